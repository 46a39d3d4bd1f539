"""What is kept for a view: whoever comes first, it has that; and the caps hold whatever is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.accounting import Cost, Ledger, Overdraft, commit, reserve
from stream_dp.config.loading import read_config
from stream_dp.config.plan import ViewPlan
from stream_dp.config.shares import Shares, asked, lasts_ms, remedy
from stream_dp.errors import ConfigError
from stream_dp.windows.shapes.shape import Interval
from tests.support.chosen import examples
from tests.support.releasing import POOL, SHOP, plan, plan_of

PERIOD_MS = 12_000
PERIOD = Interval(0, PERIOD_MS)
SIZES = {"pages": 1000, "tops": 3000, "towns": 12_000}
"""Windows of a second, of three, and of the whole period."""
TOWNS = """\
  towns:
    source: visits
    item: town
    kind: catalogue
    catalogue: [Bern, Rome]
    items_per_user: 1
    window: {size: 12s, start: 1970-01-01T00:00:00Z, grace: 0s}
    ledger: visitors
    ladder: three
    retention: 1h
    buckets: 1
"""
LONGER = ("period: 4s", "period: 12s")
Given = Mapping[str, Fraction | None]


def of(given: Given, *changes: tuple[str, str]) -> list[ViewPlan]:
    """Three views on one ledger, with these shares."""
    pages, tops, later = SHOP.partition("  tops:\n")
    text = pages + tops + later.replace("size: 1s", "size: 3s") + TOWNS
    for old, new in (*changes, LONGER):
        assert old in text
        text = text.replace(old, new)
    return [replace(view, share=given.get(name)) for name, view in plan_of(text).views.items()]


FLAT, POOLED = of({}), of({}, POOL)


@st.composite
def sharings(draw: st.DrawFn) -> tuple[Cost, list[ViewPlan]]:
    """A budget, large or small in every entry, and views of which any number have a share."""
    views = draw(st.sampled_from([FLAT, POOLED]))
    eighths = draw(st.lists(st.integers(0, 4), min_size=3, max_size=3).filter(lambda found: sum(found) <= 8))
    shared = [replace(view, share=Fraction(part, 8) or None) for view, part in zip(views, eighths, strict=True)]
    whole = sum((asked(view, PERIOD) for view in views), Cost.ZERO)
    parts = [Fraction(draw(st.integers(1, 30)), 20) for _ in range(3)]
    return Cost(*(entry * part for entry, part in zip(whole, parts, strict=True))), shared


def spent(ledger: Ledger) -> dict[str, Cost]:
    """What each view has spent and reserved."""
    held = dict(ledger.views)
    for call, cost in ledger.reserved.items():
        view = call.partition(" ")[0]
        held[view] = held.get(view, Cost.ZERO) + cost
    return held


CALLS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 8), st.booleans()), min_size=5, max_size=50
)
"""Of each: the view, the level, which part of the worst case it comes to, and whether it stays open."""


@settings(derandomize=True, max_examples=60, deadline=None)
@given(sharings(), CALLS)
def test_caps_hold_and_no_view_starves_another_whoever_comes_first(
    sharing: tuple[Cost, list[ViewPlan]], calls: Sequence[tuple[int, int, int, bool]]
) -> None:
    budget, views = sharing
    shares, ledger = Shares.of(budget, PERIOD, views), Ledger(budget)
    assert sum(shares.kept.values(), Cost.ZERO) <= budget
    for number, (at, level, eighths, opened) in enumerate(calls):
        view, cost, call = views[at], views[at].cost(level), f"{views[at].name} {number}"
        before = spent(ledger)
        outcome = reserve(ledger, call, cost, shares.room(view.name, before).least(ledger.left))
        if before.get(view.name, Cost.ZERO) + cost <= shares.kept[view.name]:
            assert isinstance(outcome, Ledger), "it asked for no more than is kept for it"
        if isinstance(outcome, Overdraft):
            continue
        ledger = outcome
        if not opened:
            part = Fraction(eighths, 8)
            came_to = Cost(cost.epsilon * part, cost.delta, cost.rho * part)
            ledger = commit(ledger, call, came_to, {}, view=view.name)
        taken = spent(ledger)
        assert sum(taken.values(), Cost.ZERO) <= budget
        if view.share is not None:
            assert taken[view.name] <= budget * view.share, "no more than its share"


@settings(derandomize=True, max_examples=50, deadline=None)
@given(sharings(), st.permutations([name for name, size in SIZES.items() for _ in range(PERIOD_MS // size)]))
def test_the_windows_that_are_paid_for_are_admitted_in_any_order_of_their_coming(
    sharing: tuple[Cost, list[ViewPlan]], order: Sequence[str]
) -> None:
    budget, views = sharing
    shares, ledger = Shares.of(budget, PERIOD, views), Ledger(budget)
    by_name = {view.name: view for view in views}
    for number, name in enumerate(order):
        view = by_name[name]
        cost = view.cost(view.start_level)
        outcome = reserve(ledger, str(number), cost, shares.room(name, ledger.views).least(ledger.left))
        if isinstance(outcome, Ledger):
            ledger = commit(outcome, str(number), cost, {}, view=name)
    for view in views:
        cost = view.cost(view.start_level)
        windows = PERIOD_MS // SIZES[view.name]
        paid = min(windows, shares.kept[view.name].fits(cost))
        assert cost * paid <= ledger.views.get(view.name, Cost.ZERO)
        assert lasts_ms(shares, PERIOD, view) == min(PERIOD_MS, paid * SIZES[view.name])


@settings(derandomize=True, max_examples=50, deadline=None)
@given(sharings(), st.lists(st.integers(0, 14), min_size=3, max_size=3))
def test_what_is_covered_together_is_admitted_one_by_one_in_any_order(
    sharing: tuple[Cost, list[ViewPlan]], counts: list[int]
) -> None:
    budget, views = sharing
    shares = Shares.of(budget, PERIOD, views)
    costs = {view.name: view.cost(view.start_level) for view in views}
    wanted = dict(zip(costs, counts, strict=True))
    covered = shares.covers({}, {name: costs[name] * count for name, count in wanted.items()})
    for names in (list(wanted), list(reversed(wanted))):
        taken: dict[str, Cost] = {}
        refused = False
        for name in chain.from_iterable([each] * wanted[each] for each in names):
            if costs[name] <= shares.room(name, taken):
                taken[name] = taken.get(name, Cost.ZERO) + costs[name]
            else:
                refused = True
        assert refused != covered


def test_views_without_a_share_last_equally_long_and_what_is_over_is_for_whoever_comes() -> None:
    """A second of pages costs 2, three of tops 4.02, the whole period of towns 2, of 20."""
    views = of({})
    budget = Cost(Fraction(20), Fraction(1))
    shares = Shares.of(budget, PERIOD, views)
    reach = {view.name: lasts_ms(shares, PERIOD, view) for view in views}
    assert reach == {"pages": 4000, "tops": 6000, "towns": 12_000}
    kept = sum(shares.kept.values(), Cost.ZERO)
    assert {view.name: shares.room(view.name, {}) for view in views} == {
        view.name: shares.kept[view.name] + (budget - kept) for view in views
    }
    assert not kept + views[0].cost(1) <= budget, "it reaches as far as it can"


def test_a_view_that_is_alone_has_the_whole_budget() -> None:
    for share in (None, Fraction(1)):
        view = replace(FLAT[0], share=share)
        budget = Cost(Fraction(7), Fraction(1, 2))
        assert Shares.of(budget, PERIOD, [view]).room(view.name, {}) == budget


def test_what_nobody_asked_for_is_kept_for_nobody() -> None:
    """Towns are a public list: nothing of epsilon and delta is kept for it."""
    shares = Shares.of(Cost(*[Fraction(100)] * 3), PERIOD, POOLED)
    assert [name for name, _ in shares.kept["towns"].entries()] == ["rho"]
    assert [name for name, _ in shares.kept["tops"].entries()] == ["epsilon", "delta", "rho"]
    assert shares.kept["pages"].epsilon == 0


def test_what_others_were_charged_that_are_gone_is_kept_from_no_view_that_has_its_own_left() -> None:
    shares = Shares.of(Cost(Fraction(40), Fraction(1)), PERIOD, of({}))
    taken = {"former": Cost(Fraction(30), Fraction(0)), "pages": Cost(Fraction(3), Fraction(0))}
    assert shares.room("pages", taken).epsilon == shares.kept["pages"].epsilon - 3
    assert shares.room("former", taken).epsilon == 0


def faults(*changes: tuple[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        plan(*changes)
    return [str(fault) for fault in caught.value.faults]


def share(view: str, part: str) -> tuple[str, str]:
    kind = {"pages": "kind: histogram", "tops": "kind: topk"}[view]
    return kind, f'{kind}\n    share: "{part}"'


def test_shares_of_more_than_the_whole_are_refused_with_all_of_them() -> None:
    assert faults(share("pages", "3/4"), share("tops", "1/2")) == [
        "ledgers.visitors: the shares of its views add up to 5/4, more than 1: pages 3/4, tops 1/2; lower "
        "some, or leave them out"
    ]


@pytest.mark.parametrize("part", ["0", "9/8", "2"])
def test_a_share_is_a_part_of_the_whole(part: str) -> None:
    old, new = share("pages", part)
    _, found = read_config(SHOP.replace(old, new), {})
    assert [str(fault) for fault in found] == ['views.pages.share: must be above 0 and at most 1, as "1/2"']


def test_a_share_that_pays_for_no_window_is_refused() -> None:
    assert faults(share("pages", "1/40")) == [
        "views.pages.share: its share, 1/40 of ledger 'visitors', affords no window: one costs epsilon 2 and delta "
        "1/100 at level 'middle', and that is epsilon 1 and delta 1/200 of a period's budget"
    ]


def test_shares_that_leave_a_view_without_one_no_window_are_refused() -> None:
    assert faults(share("pages", "39/40")) == [
        "views.tops.share: what the shares of other views leave, 1/40 of ledger 'visitors', affords no window: one "
        "costs epsilon 201/50 and delta 1/100 at level 'middle', and that is epsilon 1 and delta 1/200 of a period's "
        "budget"
    ]


@examples(15, 60, given(sharings()), derandomize=True)
def test_shares_that_are_advised_last_the_whole_period_and_where_none_are_none_would(
    sharing: tuple[Cost, list[ViewPlan]],
) -> None:
    budget, views = sharing
    found = remedy(budget, PERIOD, views)
    affordable = sum((asked(view, PERIOD) for view in views), Cost.ZERO) <= budget
    assert (found is not None) == affordable
    if found is not None:
        shares = Shares.of(budget, PERIOD, found)
        assert sum(shares.kept.values(), Cost.ZERO) <= budget
        assert all(lasts_ms(shares, PERIOD, view) == PERIOD_MS for view in found)
