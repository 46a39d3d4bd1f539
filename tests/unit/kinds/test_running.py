"""The kind `running`: what one user does to the totals of a window, and what all readers of all of them learn together.

The joint law is exact. A block of panes has noise of its own, so the readings of a block at two levels have the law of
noise and bridge (`test_joint_law` shows that of what is shipped), and those of several blocks are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from stream_dp.accounting.rounding import log_up
from stream_dp.kinds.kind import ViewBasis
from stream_dp.kinds.public_lists import TopicSettings
from stream_dp.kinds.running import RunningPlan, RunningSettings, plan_running
from stream_dp.lossless.levels import WORD
from stream_dp.windows.shapes.running_totals import blocks_of, height, inner_blocks, most_blocks
from tests.support.laplace_family import pmf
from tests.support.laplace_laws import bridge_pmf

LADDER = [("coarse", Fraction(1)), ("fine", Fraction(3))]


def plan(panes: int, items_per_user: int = 1, keys: Sequence[str] = ("home", "cart", "page")) -> RunningPlan:
    settings = RunningSettings.model_validate({"kind": "running", "catalogue": list(keys)})
    return plan_running(settings, ViewBasis(LADDER, items_per_user, Path(), panes))


def sealed(counts: Sequence[int]) -> list[int]:
    """The exact counts of the blocks that end with every pane, from those of the panes: as they are sealed."""
    blocks: list[int] = []
    for pane, count in enumerate(counts):
        blocks.append(count + sum(blocks[last] for last in inner_blocks(pane)))
    return blocks


def totals(blocks: Sequence[int]) -> list[int]:
    """The totals at the end of every pane, from the blocks that end with them: as they are read."""
    return [sum(blocks[last] for last in blocks_of(pane)) for pane in range(len(blocks))]


def blocks_behind(totals: Sequence[int]) -> list[int]:
    """The inverse: whoever has all totals has all blocks."""
    return sealed([total - before for total, before in zip(totals, [0, *totals], strict=False)])


# -- what one user moves ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("panes", [1, 2, 3, 4, 7, 8, 24])
def test_noise_is_scaled_to_all_that_one_user_moves_in_all_blocks_of_a_window(panes: int) -> None:
    """Neighbours differ in up to two keys, each counted in some pane; the most they move is what the plan says."""
    zero = [0] * panes
    one_key = [sum(sealed([*zero[:pane], 1, *zero[pane + 1 :]])) for pane in range(panes)]
    assert plan(panes, items_per_user=2).sensitivity == max(a + b for a, b in product(one_key, repeat=2))
    assert plan(panes, items_per_user=5).sensitivity == 3 * max(one_key)  # the list has three keys
    assert plan(panes).sensitivity == height(panes)


@pytest.mark.parametrize("panes", [1, 2, 5, 8, 24])
def test_totals_of_exact_blocks_are_the_prefix_sums(panes: int) -> None:
    counts = [3**pane for pane in range(panes)]
    found = totals(sealed(counts))
    assert found == [sum(counts[: pane + 1]) for pane in range(panes)]
    assert blocks_behind(found) == sealed(counts)
    assert max(len(blocks_of(pane)) for pane in range(panes)) == most_blocks(panes)


# -- what all readers learn ------------------------------------------------------------------------------------------


def noises(one: RunningPlan) -> tuple[Fraction, Fraction]:
    coarse, fine = (Fraction(level.threshold, WORD) for level in one.levels)
    return coarse, fine


Law = Callable[[tuple[int, ...], tuple[int, ...]], Fraction]
"""Of the readings of the blocks a user is in at both levels, or at one, given how many of each others make."""


def both_levels(one: RunningPlan) -> Callable[[int, int, int], Fraction]:
    a_coarse, a_fine = noises(one)
    return lambda count, coarse, fine: pmf(a_fine, fine - count) * bridge_pmf(a_fine, a_coarse, coarse - fine)


def outcomes(panes: int, reach: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Totals at every pane for the audience of the coarse level, and for that of the fine one."""
    box = list(product(range(-reach, reach + 1), repeat=panes))
    return product(box, box)


def worst_ratio(one: RunningPlan, panes: int, reach: int, pane: int) -> Fraction:
    """The largest likelihood ratio of all totals for both audiences, without and with a user in a pane."""
    law, zero = both_levels(one), [0] * panes
    without, with_user = sealed(zero), sealed([*zero[:pane], 1, *zero[pane + 1 :]])
    known: dict[tuple[int, int, int], Fraction] = {}

    def probability(count: int, coarse: int, fine: int) -> Fraction:
        place = count, coarse, fine
        if place not in known:
            known[place] = law(*place)
        return known[place]

    worst = Fraction(0)
    for coarse, fine in outcomes(panes, reach):
        ratio = Fraction(1)
        readings = zip(without, with_user, blocks_behind(coarse), blocks_behind(fine), strict=True)
        for x, y, at_coarse, at_fine in readings:
            if x != y:  # else the block has the same law in both
                ratio *= probability(y, at_coarse, at_fine) / probability(x, at_coarse, at_fine)
        worst = max(worst, ratio, 1 / ratio)
    return worst


@pytest.mark.parametrize(("panes", "reach"), [(2, 2), (3, 1), (4, 1)])
def test_all_totals_of_a_window_at_two_levels_tell_two_audiences_together_what_the_finer_level_costs(
    panes: int, reach: int
) -> None:
    one = plan(panes)
    _, a_fine = noises(one)
    found = [worst_ratio(one, panes, reach, pane) for pane in range(panes)]
    assert max(found) == found[0] == 1 / a_fine ** height(panes)
    assert log_up(max(found)) <= one.levels[-1].epsilon


def test_the_coarse_audience_alone_learns_what_its_level_costs() -> None:
    one = plan(2)
    a_coarse, _ = noises(one)
    found = []
    for readings in product(range(-3, 4), repeat=2):
        blocks = blocks_behind(readings)
        laws = [pmf(a_coarse, blocks[0] - x) * pmf(a_coarse, blocks[1] - y) for x, y in map(sealed, ([0, 0], [1, 0]))]
        found += [laws[0] / laws[1], laws[1] / laws[0]]
    assert max(found) == 1 / a_coarse**2
    assert log_up(max(found)) <= one.levels[0].epsilon


def test_noise_that_is_scaled_to_one_block_would_not_be_enough() -> None:
    """The same check rejects a plan that forgets that a count is part of several blocks."""
    assert log_up(worst_ratio(plan(1), 2, 2, 0)) > LADDER[-1][1]


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_list_in_a_topic_has_noise_for_as_many_keys_as_a_user_may_have() -> None:
    settings = RunningSettings(kind="running", catalogue=TopicSettings(topic="places"))
    plan = plan_running(settings, ViewBasis(LADDER, 3, Path(), 24))
    assert (plan.topics, plan.sensitivity) == (("places",), 3 * height(24))
