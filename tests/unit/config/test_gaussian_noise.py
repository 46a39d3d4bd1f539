"""Views with discrete Gaussian noise: what they need, what their levels are, and what is said of them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.accounting.composition import gaussian_rho, zcdp_epsilon
from stream_dp.config.explanation import alone, describe
from stream_dp.config.plan import ViewPlan
from stream_dp.errors import ConfigError
from tests.support.releasing import ONLY_PAGES, POOL, SHOP, plan

F = Fraction
LADDER = (
    '[{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}]',
    '[{level: coarse, epsilon: "1/4"}, {level: middle, epsilon: "1/2"}, {level: fine, epsilon: "1"}]',
)
SHARES = (
    LADDER[0],
    '[{level: coarse, share: "1/8"}, {level: middle, share: "1/4"}, {level: fine, share: "1/2"}]',
)
GAUSSIAN = ("kind: histogram\n", "kind: histogram\n    noise: discrete-gaussian\n")
TOPS = ("kind: topk\n", "kind: topk\n    noise: discrete-gaussian\n")
THREE_ITEMS = ("    items_per_user: 1\n", "    items_per_user: 3\n")
SMALL_POOL = (POOL[0], POOL[1].replace("period: 4s", "period: 400s").replace('"39"', '"4"'))


def pages(*changes: tuple[str, str]) -> ViewPlan:
    return plan(GAUSSIAN, ONLY_PAGES, *changes).views["pages"]


def faults(*changes: tuple[str, str]) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        plan(*changes)
    return [(fault.path, fault.message) for fault in caught.value.faults]


@pytest.mark.parametrize("items", [1, 3])
def test_a_level_has_the_items_of_a_user_over_its_epsilon_as_standard_deviation(items: int) -> None:
    view = pages(POOL, LADDER, *([THREE_ITEMS] if items == 3 else []))
    assert [level.variance for level in view.levels] == [(items * n) ** 2 for n in (4, 2, 1)]
    rho = gaussian_rho(F(items) ** 2, items, F(0))
    assert 0 <= rho - F(1, 2 * items) < F(1, 10**11)
    assert {(level.rho, level.step_rho) for level in view.levels} == {(rho, F(0))}


def test_every_window_pays_for_the_finest_level_at_once_and_steps_are_free() -> None:
    view = pages(POOL, LADDER)
    assert [view.counts(level).rho for level in range(3)] == [F(1, 2)] * 3
    assert view.counts(2, before=0) == Cost.ZERO
    assert view.keys_at_worst == Cost(F(0), F(1, 100))


def test_noise_is_part_of_what_a_view_is() -> None:
    gaussian, laplace = pages(POOL, LADDER), plan(POOL, LADDER, ONLY_PAGES).views["pages"]
    assert gaussian.fingerprint != laplace.fingerprint
    assert all(
        fine.noise_interval < coarse.noise_interval < other.noise_interval
        for coarse, fine, other in zip(gaussian.levels, gaussian.levels[1:], laplace.levels, strict=False)
    )
    assert gaussian.kind.limits(2)["minimum_count"] < laplace.kind.limits(2)["minimum_count"]


@pytest.mark.parametrize("items", [1, 3])
def test_shares_are_of_the_largest_size_that_the_pool_pays_for_in_every_window(items: int) -> None:
    more = ('delta: "1/100"', 'delta: "1/10000"')
    view = pages(SMALL_POOL, SHARES, more, *([THREE_ITEMS] if items == 3 else []))
    assert view.affords is not None
    each = view.ledger.budget.rho / 400
    finest = view.affords / 2
    assert view.levels[2].epsilon == finest
    assert view.levels[2].rho <= each < gaussian_rho((items / (finest * F(10001, 10000))) ** 2, items, F(0))


@pytest.mark.parametrize("epsilon", ["8", "16", "39"])
def test_shares_find_a_size_for_kinds_that_move_fewer_counts_than_a_user_has_items(epsilon: str) -> None:
    """A top-k of 2 moves at most 2 counts of a user with 20 items: more than the trial by the items was made for."""
    pool = (POOL[0], POOL[1].replace('"39"', f'"{epsilon}"').replace("period: 4s", "period: 2s"))
    text = plan(pool, SHARES, TOPS, ("    items_per_user: 1\n", "    items_per_user: 20\n"))
    view = text.views["tops"]
    assert view.kind.sensitivity == 2
    assert view.affords is not None
    finest = view.levels[2]
    assert finest.epsilon == view.affords / 2 <= 2
    budget = view.ledger.budget.rho
    assert 2 * sum(one.planned.rho for one in text.views.values()) <= budget


@pytest.mark.parametrize("epsilon", ["8", "39"])
def test_shares_find_a_size_for_a_ladder_that_is_nearly_as_wide_as_there_are_sizes(epsilon: str) -> None:
    wide = LADDER[0], '[{level: coarse, share: "1/500"}, {level: middle, share: "1/20"}, {level: fine, share: "1"}]'
    pool = (POOL[0], POOL[1].replace('"39"', f'"{epsilon}"').replace("period: 4s", "period: 2s"))
    no_pages = ("  pages:\n" + SHOP.partition("  pages:\n")[2].partition("  tops:\n")[0], "")
    view = plan(no_pages, pool, wide, TOPS, ("    items_per_user: 1\n", "    items_per_user: 20\n")).views["tops"]
    assert view.affords is not None
    assert 1 <= view.affords <= 2


def test_shares_keep_levels_apart_however_much_there_is() -> None:
    near = (LADDER[0], '[{level: coarse, share: "1/4"}, {level: middle, share: "3/4"}, {level: fine, share: "1"}]')
    found = {pages((POOL[0], POOL[1].replace('"39"', f'"{much}"')), near).levels[2].epsilon for much in (1, 8, 39)}
    assert max(found) < 1, "the variances of the two finest are 1 apart there"
    levels = pages(POOL, near).levels
    assert 1 <= levels[1].variance - levels[2].variance < F(101, 100)


def test_shares_pay_for_keys_whose_absence_says_more_than_the_noise_of_a_count() -> None:
    """Each window has rho 1e-4 and delta 1/40: not to be shown tells of a key of one user, up to p / (1 - p)."""
    pool = (
        POOL[0],
        POOL[1].replace('"39"', '"1/5"').replace('"1/100"', '"1/1000"').replace("period: 4s", "period: 8s"),
    )
    with pytest.raises(ConfigError, match="must be between 1/1000 and 1"):
        pages(pool, SHARES)


def test_a_pool_is_needed() -> None:
    assert faults(GAUSSIAN, LADDER) == [
        ("views.pages.noise", "discrete Gaussian noise has no pure epsilon; give ledger 'visitors' a pool (zcdp)")
    ]


@pytest.mark.parametrize(
    "strict", ["strict: {rows: 100, largest_count: 100000}", "strict: {rows: 100, largest_count: 10000000}"]
)
def test_noise_that_comes_from_a_table_has_no_other_law(strict: str) -> None:
    one = (
        '[{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}]',
        '[{level: coarse, epsilon: "4"}]',
    )
    given = (GAUSSIAN[0], f"{GAUSSIAN[1]}    {strict}\n")
    staff = ("staff: middle", "staff: coarse")
    assert [path for path, _ in faults(POOL, one, given, staff, ONLY_PAGES)] == ["views.pages.noise"]


def test_a_level_out_of_range_is_refused() -> None:
    path, words = faults(POOL, GAUSSIAN, ONLY_PAGES)[0]
    assert path == "views.pages.ladder"
    assert "that must be between 1/1000 and 1" in words


def test_levels_that_are_too_close_are_refused() -> None:
    close = (
        LADDER[0],
        '[{level: coarse, epsilon: "1/2"}, {level: middle, epsilon: "2/3"}, {level: fine, epsilon: "1"}]',
    )
    assert pages(POOL, close).levels[1].variance == F(9, 4)
    close = (close[0], close[1].replace("2/3", "4/5"))
    ((path, words),) = faults(POOL, GAUSSIAN, close, ONLY_PAGES)
    assert path == "views.pages.ladder"
    assert words.startswith("levels 'middle' and 'fine' are too close for discrete Gaussian noise")


def test_what_one_window_tells_is_said_with_the_slack_of_the_pool() -> None:
    view = pages(POOL, LADDER)
    for level in range(3):
        cost = alone(view, level)
        assert cost == Cost(zcdp_epsilon(F(1, 2), F(1, 100)), F(1, 100) + F(1, 100))
    described = describe(plan(POOL, LADDER, GAUSSIAN, ONLY_PAGES)).views[0]
    assert [level.epsilon for level in described.levels] == [None] * 3
    assert "Grants can raise" not in described.coalition
