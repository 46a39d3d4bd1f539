"""What `check` says of a top-k that another way beats: at the same price, computed anew here."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from stream_dp.accounting.composition import zcdp_epsilon
from stream_dp.accounting.rounding import root_up
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.kinds.topk import TopKPlan, by_draws, laplace
from stream_dp.lossless.levels import minimum_count, threshold_for
from stream_dp.operations.check import check_plan
from stream_dp.select.gumbel import TopKParameters
from tests.support.releasing import plan_of

SHOP = """\
name: shop
broker: memory://
data_dir: state
key_file: key
sources:
  visits: {topic: visits, partitions: 1}
ledgers:
  visitors: {population: visitors, epsilon: "40", delta: "1e-5", period: 30dPOOL}
ladders:
  one: [{level: all, epsilon: "LEVEL"}]
audiences: {public: all}
views:
  tops:
    source: visits
    item: page
    kind: topk
    k: 10
    KEYS
    items_per_user: ITEMS
    window: {size: 1d, start: 2024-01-01T00:00:00Z}
    ledger: visitors
    ladder: one
"""
UNKNOWN = 'kbar: 50\n    selection: {mechanism: MECHANISM, epsilon: "EACH", delta: "1e-7"}'
POOL = ', zcdp: {epsilon: "39", slack: "1e-6"}'
DELTA = Fraction("1e-7")
WINDOWS = 30


def view_of(mechanism: str, each: str, items: int, *, pool: bool = False, level: str = "1/10") -> ViewPlan:
    keys = UNKNOWN.replace("MECHANISM", mechanism).replace("EACH", each)
    return shop(keys, items, pool=pool, level=level).views["tops"]


def shop(keys: str, items: int, *, pool: bool = False, level: str = "1/10") -> Plan:
    text = SHOP.replace("KEYS", keys).replace("ITEMS", str(items)).replace("LEVEL", level)
    return plan_of(text.replace("POOL", POOL if pool else ""))


def said(view: ViewPlan) -> dict[str, Fraction]:
    """By way, the users that a key needs."""
    slack = None if view.ledger.pool is None else view.ledger.pool.slack
    words = view.kind.better(0, WINDOWS, slack)
    found = re.findall(r"with (mechanism: \w+|a histogram with rank: 10) if it has ([0-9.]+) users", words)
    return {way: Fraction(users) for way, users in found}


def margin(view: ViewPlan) -> Fraction:
    assert isinstance(view.kind, TopKPlan)
    assert view.kind.selection.margin is not None
    return view.kind.selection.margin


def near(found: Fraction, wanted: Fraction | None) -> bool:
    return wanted is not None and abs(found - wanted) <= wanted / 50


def test_a_ranked_histogram_has_all_of_the_price_for_its_counts() -> None:
    """Ten draws at 1/10 and counts at 1/10 are 1.1; two items of a user have 0.55 each."""
    view = view_of("gumbel", "1/10", 2)
    level = plan_of(
        SHOP.replace("kind: topk\n    k: 10\n    KEYS", f'kind: histogram\n    rank: 10\n    delta: "{float(DELTA)}"')
        .replace("ITEMS", "2")
        .replace("LEVEL", "11/10")
        .replace("POOL", "")
    ).views["tops"]
    least = level.kind.least_shown(0)
    assert least is not None
    assert near(said(view)["a histogram with rank: 10"], Fraction(least))
    assert said(view)["a histogram with rank: 10"] < margin(view) / 4


def test_laplace_noise_for_few_items_without_a_pool() -> None:
    found = said(view_of("gumbel", "1/10", 2))
    assert near(found["mechanism: laplace"], laplace(10, 50, Fraction(1, 2), DELTA, 2).margin)
    assert "mechanism: gumbel" not in found


def test_in_a_pool_it_is_compared_by_the_epsilon_of_a_period() -> None:
    """The pool without draws is so much smaller, and Laplace noise has that for its windows."""
    view = view_of("gumbel", "1/10", 1, pool=True)
    assert view.ledger.pool is not None
    slack, counts, draws = view.ledger.pool.slack, view.levels[0].rho, Fraction(10, 800)
    freed = zcdp_epsilon(WINDOWS * (counts + draws), slack) - zcdp_epsilon(WINDOWS * counts, slack)
    wanted = laplace(10, 50, Fraction(freed, WINDOWS), DELTA, 1).margin
    assert wanted is not None
    assert (wanted <= Fraction(9, 10) * margin(view)) == ("mechanism: laplace" in said(view))
    least = Fraction(minimum_count(threshold_for(root_up(2 * (counts + draws))), DELTA))
    assert near(said(view)["a histogram with rank: 10"], least)


def test_gumbel_noise_for_many_items() -> None:
    """Laplace noise pays 30 times 1/10 for a call; ten draws have 3/10 each for that."""
    found = said(view_of("laplace", "1/10", 30))
    wanted = by_draws("gumbel", TopKParameters(10, 50, Fraction(3, 10), DELTA, 30)).margin
    assert near(found["mechanism: gumbel"], wanted)
    assert "mechanism: laplace" not in found


@pytest.mark.parametrize(("items", "is_said"), [(7, True), (8, False), (50, False)])
def test_a_tenth_fewer_users_are_clearly_better(items: int, *, is_said: bool) -> None:
    """0.82 of them with seven items of a user, 0.94 with eight."""
    view = view_of("gumbel", "1/10", items, level="10")
    other = laplace(10, 50, Fraction(1, items), DELTA, items).margin
    assert other is not None
    assert (other <= Fraction(9, 10) * margin(view)) == is_said == ("mechanism: laplace" in said(view))


def test_a_histogram_with_less_exact_counts_is_left_out() -> None:
    """Its noise is for 30 counts of a user, that of the top-k for ten."""
    assert "a histogram with rank: 10" not in said(view_of("gumbel", "1/10", 30, level="10"))


def test_a_list_is_not_compared() -> None:
    listed = 'catalogue: {numbers: {from: 1, to: 99}}\n    selection: {mechanism: known-domain, epsilon: "1/10"}'
    assert said(shop(listed, 1).views["tops"]) == {}


@pytest.mark.parametrize("pool", [False, True])
def test_check_says_it_and_what_a_key_needs(*, pool: bool) -> None:
    keys = UNKNOWN.replace("MECHANISM", "gumbel").replace("EACH", "1/10")
    checked = check_plan(shop(keys, 1, pool=pool))
    (words,) = checked.better
    assert re.fullmatch(r"tops: at the same price, a key is shown .* with a histogram .*\.", words)
    assert checked.as_json()["better"] == list(checked.better)
    half = checked.description.views[0].explanation.half
    assert half == "A key is shown in half of the windows if it has 163 users more than key number 51."
