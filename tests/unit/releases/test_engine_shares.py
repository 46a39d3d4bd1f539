"""Views that share a ledger: a backlog of one leaves the others what is kept for them, and leaves in its turn."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.forecast import forecast
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.records.statement import read_statements
from stream_dp.releases.accounts import Accounts
from stream_dp.releases.engine import ReleaseEngine
from tests.support.editions import holding
from tests.support.releasing import DELTA, POOL, SHOP, Desk, buckets_of, plan, plan_of

HOME = {"home": 40, "cart": 12}
FOUR = (0, 1000, 2000, 3000)
"""The windows of a period. One of pages costs 2, one of tops 2 + 2 (1 + 1/100) at worst, which two draws come to."""
SCARCE = ('epsilon: "40"', 'epsilon: "13"')
"""Two windows of both, 12.04, and not three."""
DEARER = ('selection: {epsilon: "1"', 'selection: {epsilon: "4"')
PAGES, TOPS = ("kind: histogram", 'kind: histogram\n    share: "{}"'), ("kind: topk", 'kind: topk\n    share: "{}"')


def share(of: tuple[str, str], part: str) -> tuple[str, str]:
    """A change that gives a view a share."""
    return of[0], of[1].format(part)


def outcomes(desk: Desk, view: str) -> list[str]:
    """What became of the windows of a view, in their order."""
    return [record.type for record in desk.records(view, "public")]


def backlog(planned: Plan, views: Sequence[str]) -> Desk:
    """All windows of one view, then all of the next."""
    desk = Desk(planned)
    for view in views:
        for start in FOUR:
            desk.give(view, start, HOME)
    return desk


@pytest.mark.parametrize("views", [("pages", "tops"), ("tops", "pages")])
def test_a_backlog_of_one_view_leaves_another_what_is_kept_for_it(views: Sequence[str]) -> None:
    desk = backlog(plan(SCARCE), views)
    for view in views:
        assert outcomes(desk, view) == ["release", "release", "refusal", "refusal"]
    desk.auditor.settled()


def test_the_pool_of_a_ledger_is_kept_as_well() -> None:
    """Rho pays for two windows of both, 1.52 and 1.77 each, and not for three."""
    scarce = ('zcdp: {epsilon: "39"', 'zcdp: {epsilon: "17"')
    for views in (("pages", "tops"), ("tops", "pages")):
        desk = backlog(plan(POOL, scarce), views)
        assert [outcomes(desk, view).count("release") for view in ("pages", "tops")] == [2, 2]


def test_a_share_is_the_most_a_view_takes_and_what_it_has_whoever_comes_first() -> None:
    """Of 16, 4 are for pages: two windows; 12 for tops, which has two at 4.02 and no more."""
    budget = ('epsilon: "40"', 'epsilon: "16"')
    for views in (("pages", "tops"), ("tops", "pages")):
        desk = backlog(plan(budget, share(PAGES, "1/4"), share(TOPS, "1/2")), views)
        assert outcomes(desk, "pages") == ["release", "release", "refusal", "refusal"]
        assert outcomes(desk, "tops") == ["release", "refusal", "refusal", "refusal"]
        assert desk.ledger().views["pages"] == Cost(Fraction(4), 2 * DELTA)
        refused = [entry for entry in desk.entries() if entry.type == "refusal"]
        assert {entry.remaining_for_view.epsilon.exact for entry in refused if entry.view == "pages"} == {"0"}
        assert refused[-1].requested.cost <= refused[-1].remaining.cost, "the ledger could have paid"


def test_what_is_kept_for_no_view_pays_for_sharper_releases() -> None:
    """Of 40, 24.08 are kept: 15.92 are free, and a window of pages at fine costs 2 more."""
    desk = backlog(plan(), ("pages", "tops"))
    desk.grant(1, "staff", "fine")
    assert [record.level.name for record in desk.records("pages", "staff")[4:]] == ["fine"] * 4
    assert {record.type for record in desk.records("pages", "staff")} == {"release"}


def test_sharper_releases_of_one_view_do_not_spend_what_is_kept_for_windows_of_another() -> None:
    """Of 25, 24.08 are kept. What is kept for tops pays for two of its windows at fine, 6.02 each."""
    desk = backlog(plan(('epsilon: "40"', 'epsilon: "25"')), ("pages",))
    desk.grant(1, "public", "fine")
    assert [record.type for record in desk.records("pages", "public")[4:]] == ["refusal"] * 4
    for start in FOUR:
        desk.give("tops", start, HOME)
    assert outcomes(desk, "tops") == ["release", "release", "refusal", "refusal"]
    desk.auditor.settled()


def test_a_changed_share_holds_at_once_also_in_a_period_that_has_begun() -> None:
    desk = Desk(plan(share(TOPS, "1/2")))
    desk.give("tops", 0, HOME)
    desk.change(plan(share(TOPS, "1/8")))
    desk.give("tops", 1000, HOME)
    assert outcomes(desk, "tops") == ["release", "refusal"]
    desk.change(plan())
    desk.give("tops", 2000, HOME)
    assert outcomes(desk, "tops") == ["release", "refusal", "release"]
    desk.auditor.settled()


def test_what_a_view_spent_that_is_gone_is_not_free_for_the_others() -> None:
    """Of 16 the former view took 8.04; pages has the 6 that are kept for it, and then 1.96 are left of 4.02."""
    desk = Desk(plan(('epsilon: "40"', 'epsilon: "16"')))
    for start in (0, 1000):
        desk.give("tops", start, HOME)
    assert desk.ledger().views.keys() == {"tops"}
    desk.change(plan(('epsilon: "40"', 'epsilon: "16"'), ("  tops:", "  others:")))
    for start in FOUR:
        desk.give("pages", start, HOME)
    assert desk.ledger().views.keys() == {"tops", "pages"}
    desk.give("others", 0, HOME)
    assert outcomes(desk, "others") == ["refusal"]
    assert outcomes(desk, "pages") == ["release", "release", "release", "refusal"]


@pytest.mark.parametrize("change", [DEARER, ("  tops:", "  others:"), share(TOPS, "9/10"), share(TOPS, "1/4")])
def test_what_becomes_of_the_settings_of_a_view_takes_nothing_that_is_kept_for_another(change: tuple[str, str]) -> None:
    """Of 25, 24.08 are kept: four windows of each. After the change the other view comes first."""
    budget = ('epsilon: "40"', 'epsilon: "25"')
    former, latter = plan(budget), plan(budget, change)
    desk = Desk(holding((0, former)))
    for view in ("tops", "pages"):
        desk.give(view, 0, HOME)
    desk.change(holding((0, former), (1, latter)))
    changed = [name for name, view in desk.plan.views.items() if view.view != "pages" and view.until_ms is None]
    for view in (*changed, "pages"):
        for start in FOUR[1:]:
            desk.give(view, start, HOME)
    assert outcomes(desk, "pages") == ["release"] * 4
    desk.auditor.settled()


@pytest.mark.parametrize("changes", [(), (POOL,), (share(PAGES, "1/3"),), (SCARCE, share(TOPS, "3/5"))])
def test_the_statement_of_a_ledger_says_of_every_view_what_its_next_call_may_take(
    changes: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(*changes)
    rooms: dict[str, Cost] = {}
    genuine = Accounts.room

    def seen(self: Accounts, view: ViewPlan, start_ms: int) -> Cost:
        rooms.update({name: genuine(self, other, start_ms) for name, other in planned.views.items()})
        return rooms[view.name]

    monkeypatch.setattr(Accounts, "room", seen)
    desk = Desk(planned)
    for start in FOUR[:3]:
        desk.give("tops", start, HOME if start else {})
        desk.give("pages", start, HOME)
        (statement,) = read_statements(enumerate(desk.entries())).values()
        views, _ = forecast(planned, statement)
        assert {name: view.left for name, view in views.items()} == rooms
        newest = desk.entries()[-1]
        assert views[newest.view].left == newest.remaining_for_view.cost
        assert statement.left == newest.remaining.cost


def test_what_is_kept_for_views_is_in_their_first_entries_of_a_period_and_then_once_in_an_hour() -> None:
    """An entry that names all views of a ledger grows with their number."""
    planned = plan(
        ("period: 4s", "period: 3600s, start: 1970-01-01T00:59:58Z"),
        ("start: 1970-01-01T00:00:00Z", "start: 1970-01-01T00:59:58Z"),
        ('epsilon: "40"', 'epsilon: "100000"'),
        ('delta: "1/5"', 'delta: "99/100"'),
    )
    desk = Desk(planned, audit=False)
    for start in range(3_598_000, 3_602_000, 1000):
        for view in ("pages", "tops"):
            desk.give(view, start, HOME)
    entries = desk.entries()
    named = [(entry.view, entry.window.start_ms // 1000) for entry in entries if entry.shares]
    assert named == [(view, start) for start in (3598, 3599) for view in ("pages", "tops")]
    (whole,) = {entry.shares for entry in entries if entry.shares}
    assert {share.view for share in whole} == {"pages", "tops"}
    (statement,) = read_statements(enumerate(entries)).values()
    assert statement.view_shares == whole


# -- the order of a backlog -------------------------------------------------------------------------------------------


def test_a_backlog_is_released_in_the_order_of_window_ends_whatever_view_they_are_of() -> None:
    """Windows of tops last two seconds here: that of [0, 2) follows that of pages of [1, 2), by the name."""
    pages, tops, later = SHOP.partition("  tops:\n")
    planned = plan_of(pages + tops + later.replace("size: 1s", "size: 2s"))
    desk = Desk(planned)
    engine = desk.made(ReleaseEngine)
    found = [
        *(("tops", start) for start in range(0, 8000, 2000)),
        *(("pages", start) for start in range(0, 8000, 1000)),
    ]
    messages = [one.value for view, start in found for one in buckets_of(planned.views[view], start, HOME)]
    desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
    desk.machine.leaving.clear()
    desk.machine.carry_out(engine.buckets(messages))
    while engine.waits:
        desk.machine.carry_out(engine.due())
    left = [(leave.view, leave.start_ms) for leave in desk.machine.leaving]
    ends = {"pages": 1000, "tops": 2000}
    assert left == sorted(found, key=lambda window: (window[1] + ends[window[0]], window[0]))
    assert left[:4] == [("pages", 0), ("pages", 1000), ("tops", 0), ("pages", 2000)]
