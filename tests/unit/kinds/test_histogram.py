"""How the record of a histogram is read: the interval of a key that is shown because its noisy count is large."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import product

import pytest

from stream_dp.kinds.noise_levels import GaussianLevel
from stream_dp.lossless.levels import noise_parameter
from stream_dp.records.by_kind import HistogramRelease
from stream_dp.records.models import ItemCount, Release
from tests.support.gaussian_laws import pmf as pmf_of_gaussian
from tests.support.laplace_family import pmf
from tests.support.laplace_laws import tail
from tests.support.releasing import COARSE, FINE, MIDDLE, Desk, plan

ENOUGH = Fraction(95, 100)
GAUSSIAN = ("    kind: histogram\n", "    kind: histogram\n    noise: discrete-gaussian\n")
COARSER = (("coarse", "1", "1/4"), ("middle", "2", "1/2"), ("fine", "4", "1"))
LEVELS = {"coarse": COARSE, "middle": MIDDLE, "fine": FINE}


def record_at(level: str) -> HistogramRelease:
    desk = Desk(plan(("public: coarse", f"public: {level}")))
    desk.give("pages", 0, {"home": 40})
    record = desk.record("pages", "public", 0)
    assert isinstance(record, HistogramRelease)
    return record


def covered(record: HistogramRelease, interval: Callable[[ItemCount], tuple[int, int]], count: int) -> Fraction:
    """The chance, given that a key of a true count is shown, that the interval of its noisy count holds that."""
    a = noise_parameter(plan().views["pages"].levels[LEVELS[record.level.name]].threshold)
    held = Fraction(0)
    for noisy in range(record.minimum_count, record.two_sided_from + count + 60):
        least, most = interval(ItemCount(item="home", count=noisy))
        held += pmf(a, noisy - count) if least <= count <= most else 0
    return held / tail(a, record.minimum_count - count)


@pytest.mark.parametrize("level", LEVELS)
def test_every_true_count_lies_in_the_interval_of_a_shown_key(level: str) -> None:
    record = record_at(level)
    assert all(covered(record, record.interval, count) >= ENOUGH for count in range(1, record.two_sided_from + 20))


@pytest.mark.parametrize("level", LEVELS)
def test_plus_or_minus_the_noise_does_not_hold_small_counts_that_are_shown(level: str) -> None:
    """The mutant: what holds for a key that was named beforehand, and for every key of the other kinds."""
    record = record_at(level)

    def plain(entry: ItemCount) -> tuple[int, int]:
        return Release.interval(record, entry)

    assert covered(record, plain, 1) < ENOUGH
    assert covered(record, plain, record.two_sided_from + 20) >= ENOUGH


@cache
def gaussian_law(variances: tuple[Fraction, ...]) -> dict[int, Fraction]:
    """The chances of a sum of independent discrete Gaussian numbers, by convolution; what is rarer is left out."""
    law = {0: Fraction(1)}
    for variance in variances:
        part = {k: Fraction(pmf_of_gaussian(variance, k, 64)[0], 1 << 64) for k in range(-60, 61)}
        sums: dict[int, Fraction] = {}
        for (one, p), (other, q) in product(law.items(), part.items()):
            sums[one + other] = sums.get(one + other, Fraction(0)) + p * q
        law = sums
    return law


@pytest.mark.parametrize("level", LEVELS)
def test_every_true_count_lies_in_the_interval_of_a_key_that_is_shown_with_gaussian_noise(level: str) -> None:
    pool = ("period: 4s", 'period: 4s, zcdp: {epsilon: "30", slack: "1/100"}')
    smaller = [(f'{name}, epsilon: "{was}"', f'{name}, epsilon: "{now}"') for name, was, now in COARSER]
    desk = Desk(plan(("public: coarse", f"public: {level}"), pool, GAUSSIAN, *smaller))
    desk.give("pages", 0, {"home": 400})
    record, made = desk.record("pages", "public", 0), desk.plan.views["pages"].levels[LEVELS[level]]
    assert isinstance(record, HistogramRelease)
    assert isinstance(made, GaussianLevel)
    law = gaussian_law(made.parts)

    def held(interval: Callable[[ItemCount], tuple[int, int]], count: int) -> Fraction:
        shown = {count + k: p for k, p in law.items() if count + k >= record.minimum_count}
        ends = {noisy: interval(ItemCount(item="home", count=noisy)) for noisy in shown}
        inside = (p for noisy, p in shown.items() if ends[noisy][0] <= count <= ends[noisy][1])
        return sum(inside, Fraction(0)) / sum(shown.values())

    counts = range(max(1, record.minimum_count - 30), record.two_sided_from + 20)
    assert all(held(record.interval, count) >= ENOUGH for count in counts)
    assert held(lambda entry: Release.interval(record, entry), counts[0]) < ENOUGH
