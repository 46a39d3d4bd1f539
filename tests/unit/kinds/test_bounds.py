"""How many users have how many items: bins, what bounds leave out, the cost of a user, records, mutants."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from math import log

import pytest

from stream_dp.cli.tail_command import record_line
from stream_dp.config.explanation import describe
from stream_dp.config.plan import ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.exact.bits import KeyedBits
from stream_dp.kinds.bounds import degree_bins, left_out
from stream_dp.lossless.discrete_laplace import interval
from stream_dp.lossless.levels import noise_parameter
from stream_dp.records.by_kind import BoundsRelease
from stream_dp.records.codec import decode, encode
from stream_dp.runtime.factory import counted_view
from tests.kinds.cases import SHOP, VIEW
from tests.support.counting import counter, event, handed_on
from tests.support.machine import Machine
from tests.support.releasing import Desk, plan_of

GRID = (1, 2, 5, 10, 20)
BINS = ["1", "2", "3-5", "6-10", "11-20", "more than 20"]
TEXT = (
    SHOP.replace("items_per_user: 1", "items_per_user: 21").replace("BUDGET", "400")
    + "    kind: bounds\n    grid: [1, 2, 5, 10, 20]\n"
)
USERS = {1: 4000, 2: 2000, 4: 900, 8: 300, 15: 100, 21: 30}
"""By number of items."""


def plan_with(*changes: tuple[str, str]) -> ViewPlan:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return plan_of(text).views[VIEW]


def test_every_number_of_items_is_in_one_bin() -> None:
    kind = plan_with().kind
    assert degree_bins(GRID) == BINS
    assert [kind.degrees[d - 1] for d in (1, 2, 3, 5, 6, 10, 11, 20, 21)] == [
        BINS[at] for at in (0, 1, 2, 2, 3, 3, 4, 4, 5)
    ]
    assert [len(kind.degrees), kind.sensitivity, *(level.epsilon for level in kind.levels)] == [21, 1, 1, 2, 4]
    assert not any(plan_with().keys_at_worst)


def test_what_a_worker_counts_of_the_view_are_users_by_all_of_their_items() -> None:
    """The bins are a public list, but what users have is on none."""
    machine = Machine()
    one = counter(counted_view(plan_with(), 0))
    machine.carry_out(one.load(machine))
    users = {f"u{degree}": [f"i{at}" for at in range(degree)] for degree in (1, 2, 4, 30)}
    acts = [(user, item) for user, items in users.items() for item in items]
    machine.carry_out(one.chunk([event(at, user, item, 1) for at, (user, item) in enumerate(acts)], 5))
    machine.carry_out(one.ticks([2000]))
    assert handed_on(machine.sent)[VIEW][0] == {"1": 1, "2": 1, "3-5": 1, "more than 20": 1}


def loss(before: Sequence[int], after: Sequence[int], a: float) -> float:
    """The largest loss of noisy counts: of each count that moves, its move times ln(1/a)."""
    return sum(abs(one - other) for one, other in zip(before, after, strict=True)) * log(1 / a)


def moved(bins: Sequence[Sequence[int]]) -> list[list[int]]:
    """The counts of the bins with a user more, for each number of items, and where the user is."""
    return [[int(at in own) for at in range(len(BINS))] for own in bins]


def test_a_user_moves_one_bin_by_one_and_costs_the_epsilon_of_a_level() -> None:
    view, none = plan_with(), [0] * len(BINS)
    own = [[BINS.index(name)] for name in view.kind.degrees]
    twice = [[*range(bins[0] + 1)] for bins in own]  # a mutant: a user in every bin up to their number of items
    for level in view.levels:
        a = float(noise_parameter(level.threshold))
        assert max(loss(none, one, a) for one in moved(own)) <= float(level.epsilon) * (1 + 1e-12)
        assert max(loss(none, one, a) for one in moved(twice)) > 5 * float(level.epsilon)


def exact_share(users: Mapping[int, int], bound: int) -> Fraction:
    out = sum(number * max(0, degree - bound) for degree, number in users.items())
    return Fraction(out, sum(number * degree for degree, number in users.items()))


def misses(reach: int, width: int) -> int:
    """How often ends for a reach do not hold, over users, noise of up to 2, and bounds; width 0: bins without any."""
    found, grid = 0, (1, 3)
    for numbers in product((0, 1, 4), repeat=4):
        users = dict(zip((1, 2, 3, 4), numbers, strict=True))
        counts = [users[1], users[2] + users[3], users[4]]
        for noise, bound in product(product((-2, 0, 2), repeat=3), grid):
            noisy = [count + one for count, one in zip(counts, noise, strict=True)]
            if sum(numbers):
                low, high = (left_out(noisy, grid, bound, side * reach) for side in (-width, width))
                found += not low <= exact_share(users, bound) <= high
    return found


def test_what_is_left_out_lies_between_the_ends_for_all_users_and_noise_within_reach() -> None:
    assert misses(reach=2, width=1) == 0
    assert misses(reach=1, width=1) > 0, "a reach that is too small"
    assert misses(reach=2, width=0) > 0, "an estimate is no interval"
    assert left_out([0, 0, 0], (1, 3), 1, 0) == 0
    assert left_out([0, 10, 0], (1, 3), 1, 0) == Fraction(3, 5)


def give(desk: Desk) -> BoundsRelease:
    counts = dict.fromkeys(BINS, 0)
    for degree, number in USERS.items():
        counts[desk.plan.views[VIEW].kind.degrees[degree - 1]] += number
    desk.give(VIEW, 0, counts)
    record = desk.record(VIEW, "public", 0)
    assert isinstance(record, BoundsRelease)
    return record


def test_a_record_says_what_each_bound_leaves_out() -> None:
    record = give(Desk(plan_of(TEXT)))
    assert decode(encode(record)) == record
    assert [one.item for one in record.items] == BINS
    assert "left_out" not in json.loads(encode(record))["items"][-1]
    counts, a = [one.count for one in record.items], noise_parameter(plan_with().levels[0].threshold)
    reach = interval(a, 1 - Fraction(1, 20 * len(BINS)))  # all bins together
    for one, bound in zip(record.items, GRID, strict=False):
        assert one.left_out_95 is not None
        assert one.left_out is not None
        low, high = one.left_out_95
        assert low <= 100 * exact_share(USERS, bound) <= high
        assert low <= one.left_out <= high
        assert low == 100 * left_out(counts, GRID, bound, -reach) // 1
        assert high == -(-100 * left_out(counts, GRID, bound, reach) // 1)
    assert record.extent() == "a bound at the end of bin 6-10 leaves out about 5 % of items or less"
    assert "this bound leaves out" in record_line(record)


def test_the_intervals_of_all_bounds_hold_together_in_95_percent_of_windows() -> None:
    """The chance that fewer than 50 of 60 hold would be below 1e-3 if each had 95 %; the source is keyed."""
    view = plan_with()
    a = noise_parameter(view.levels[0].threshold)
    reach = interval(a, 1 - Fraction(1, 20 * len(BINS)))
    assert (
        2 * len(BINS) * float(a) ** (reach + 1) / (1 + float(a))
        <= 0.05
        < 2 * len(BINS) * float(a) ** reach / (1 + float(a))
    )
    held = 0
    for window in range(60):
        desk = Desk(plan_of(TEXT), entropy=partial(KeyedBits, b"bounds %d" % window))
        record = give(desk)
        ends = [one.left_out_95 for one in record.items if one.left_out_95]
        held += all(
            low <= 100 * exact_share(USERS, bound) <= high for (low, high), bound in zip(ends, GRID, strict=True)
        )
    assert held >= 50


def test_settings_that_do_not_fit_are_refused() -> None:
    for change, words in (
        (
            ("items_per_user: 21", "items_per_user: 20"),
            "items_per_user: must be 21, one more than the last of the grid",
        ),
        (("size: 1s", "size: 2s, pane: 1s"), "windows of a bounds are not made of panes: a user is in one bin"),
    ):
        with pytest.raises(ConfigError, match=words):
            plan_with(change)
    with pytest.raises(AssertionError, match="grid', message='must rise'"):
        plan_with(("[1, 2, 5, 10, 20]", "[1, 5, 5, 20]"))
    pooled = ("period: 100s", 'period: 100s, zcdp: {epsilon: "300", slack: "1/100"}')
    with pytest.raises(ConfigError, match="noise: is discrete Laplace"):
        plan_with(pooled, ("    kind: bounds", "    noise: discrete-gaussian\n    kind: bounds"))
    listing = TEXT + TEXT.partition("views:\n")[2].replace("asked:", "listed:").replace(
        "kind: bounds\n    grid: [1, 2, 5, 10, 20]", "kind: catalogue\n    catalogue: {from: asked, audience: public}"
    )
    with pytest.raises(ConfigError, match="a bounds shows no keys"):
        plan_of(listing)


def test_the_protection_is_told_in_bins() -> None:
    (view,) = describe(plan_of(TEXT)).views
    assert "changes the count of one bin by one, because a user adds at most 21 distinct values" in view.protection
