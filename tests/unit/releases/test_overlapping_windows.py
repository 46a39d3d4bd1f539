"""What readers of windows that overlap learn together: exact laws of a small case, at two levels, for two audiences.

One key, two windows: of panes 1 and 2, and of panes 2 and 3; direct, the same intervals noised each by itself. The
coarse audience has the coarse levels, the fine one the fine levels, and together they have everything. That what is
published is made like this is shown beside the engine (`test_engine_panes`, `test_engine_hopping`), and that the
readings of one table have this law beside the sealed tables (`lossless/test_joint_law`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import product

import pytest

from tests.support.laplace_family import pmf
from tests.support.laplace_laws import bridge_pmf

FINE, COARSE = Fraction(1, 30), Fraction(1, 15)
REACH = 2
"""Of the noise of a table that is enumerated; what lies beyond is the missing mass, which every statement carries."""

Readings = tuple[int, ...]
Law = Mapping[Readings, Fraction]


def of_table(count: int) -> Law:
    """The law of the coarse and the fine reading of a table, as far as it is enumerated."""
    around = range(-REACH, REACH + 1)
    return {
        (count + fine + step, count + fine): pmf(FINE, fine) * bridge_pmf(FINE, COARSE, step)
        for fine, step in product(around, around)
    }


Show = Callable[[Sequence[Readings]], Readings]
"""What is published, from the two readings of every table."""


@cache
def published(counts: tuple[int, ...], show: Show) -> tuple[Law, Fraction]:
    """The law of what is published of tables with these counts, and how much of it is missing."""
    scale = 10**24  # rounded down: what that leaves out is missing, too
    found: dict[Readings, int] = {}
    laws = [[(readings, int(p * scale)) for readings, p in of_table(count).items()] for count in counts]
    for tables in product(*laws):
        mass = 1
        for _, p in tables:
            mass *= p
        outcome = show([readings for readings, _ in tables])
        found[outcome] = found.get(outcome, 0) + mass
    law = {outcome: Fraction(mass, scale ** len(counts)) for outcome, mass in found.items()}
    return law, 1 - sum(law.values(), Fraction(0))


def proven_ratio(one: tuple[int, ...], other: tuple[int, ...], show: Show) -> Fraction:
    """The largest likelihood ratio that the enumerated mass proves, whatever the rest does."""
    laws = published(one, show), published(other, show)
    return max(
        p / (against.get(outcome, Fraction(0)) + missing)
        for (law, _), (against, missing) in (laws, laws[::-1])
        for outcome, p in law.items()
    )


def sums(levels: Mapping[str, Sequence[int]]) -> Show:
    """Windows of panes: by window, the levels (0 coarse, 1 fine) that somebody has of it."""
    of = {"first": (0, 1), "second": (1, 2)}

    def show(tables: Sequence[Readings]) -> Readings:
        return tuple(sum(tables[at][level] for at in of[name]) for name, held in levels.items() for level in held)

    return show


def windows(tables: Sequence[Readings]) -> Readings:
    """Windows that were noised by themselves, each read at both levels."""
    return tuple(reading for table in tables for reading in table)


EVERYTHING = sums({"first": (0, 1), "second": (0, 1)})
ONLY_COARSE = sums({"first": (0,), "second": (0,)})
HALF_SHARPENED = sums({"first": (0, 1), "second": (0,)})
"""A grant has reached the panes of the first window and not the last pane."""
NEARLY = Fraction(85, 100)
ZERO = (0, 0, 0)


def test_little_of_the_laws_is_missing() -> None:
    for counts, show in ((ZERO, EVERYTHING), ((0, 0), windows)):
        assert 0 < published(counts, show)[1] < Fraction(1, 50)


@pytest.mark.parametrize(("show", "level"), [(EVERYTHING, FINE), (HALF_SHARPENED, FINE), (ONLY_COARSE, COARSE)])
def test_a_user_of_one_pane_is_told_of_once_however_many_windows_it_is_in(show: Show, level: Fraction) -> None:
    """Two windows at two levels are four numbers with the pane's noise, and cost the finest level of one pane."""
    for user in ((0, 1, 0), (1, 0, 0)):
        assert NEARLY / level < proven_ratio(ZERO, user, show) <= 1 / level


def test_a_user_of_every_pane_costs_no_more_than_what_the_panes_are_charged() -> None:
    assert proven_ratio(ZERO, (1, 1, 1), EVERYTHING) <= 1 / FINE**3
    assert proven_ratio(ZERO, (1, 1, 1), ONLY_COARSE) <= 1 / COARSE**3


def test_windows_that_are_noised_by_themselves_cost_the_finest_level_of_each_and_no_less() -> None:
    assert proven_ratio((0, 0), (1, 0), windows) <= 1 / FINE
    assert 1 / FINE < proven_ratio((0, 0), (1, 1), windows) <= 1 / FINE**2


def test_the_same_check_rejects_windows_of_their_own_noise_at_the_price_of_panes() -> None:
    """A user of the shared pane is in both windows: charged once, what is told of it would not be covered."""
    assert proven_ratio((0, 0), (1, 1), windows) > 1 / FINE
