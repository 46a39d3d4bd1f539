"""Windows that the ledger does not pay for at the finest level, in a view that falls back: coarser, and not refused."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.records.codec import AnyRecord
from stream_dp.records.models import Release
from tests.support.panes import COUNTS, LIST, counts_at, give_all, paned
from tests.support.releasing import COARSE, MIDDLE, ONLY_PAGES, Desk, plan
from tests.support.running import give_panes, newest_totals, running

HOME = {"home": 40, "cart": 12}
FALLS = ("    ladder: three\n", "    ladder: three\n    when_short: coarser\n")
FIVE = ('epsilon: "40"', 'epsilon: "5"')


def levels(records: Sequence[AnyRecord]) -> list[str]:
    return [record.level.name if isinstance(record, Release) else "refused" for record in records]


def test_the_finest_level_that_is_paid_for_goes_to_all_that_may_have_a_finer_one() -> None:
    """Of 5, two windows take 2, since staff begins with middle; one takes 1; and nothing is left for the last."""
    desk = Desk(plan(ONLY_PAGES, FALLS, FIVE))
    for start in range(0, 4000, 1000):
        desk.give("pages", start, HOME)
    assert levels(desk.records("pages", "staff")) == ["middle", "middle", "coarse", "refused"]
    assert levels(desk.records("pages", "public")) == ["coarse", "coarse", "coarse", "refused"]
    assert desk.ledger().spent.epsilon == 5
    coarse = [desk.record("pages", audience, 2000) for audience in ("staff", "public")]
    assert coarse[0].items == coarse[1].items
    assert coarse[0].privacy.window.cost.epsilon == 1
    desk.auditor.settled()


def test_a_view_that_does_not_fall_back_is_refused() -> None:
    desk = Desk(plan(ONLY_PAGES, FIVE))
    for start in range(0, 4000, 1000):
        desk.give("pages", start, HOME)
    assert levels(desk.records("pages", "staff")) == ["middle", "middle", "refused", "refused"]
    assert desk.ledger().spent.epsilon == 4


def test_a_window_that_fell_back_is_sharpened_by_a_grant_once_it_can_be_paid_for() -> None:
    desk = Desk(plan(ONLY_PAGES, FALLS, FIVE))
    for start in range(0, 3000, 1000):
        desk.give("pages", start, HOME)
    desk.change(plan(ONLY_PAGES, FALLS))
    desk.grant(1, "staff", "middle")
    assert levels(desk.records("pages", "staff")) == ["middle", "middle", "coarse", "refused"], (
        "the period keeps its budget"
    )
    desk.auditor.settled()
    other = Desk(
        plan(
            ONLY_PAGES,
            FALLS,
            ('epsilon: "40"', 'epsilon: "6"'),
            ("public: coarse, staff: middle", "public: coarse, staff: fine"),
        )
    )
    other.give("pages", 0, HOME)
    other.give("pages", 1000, HOME)
    assert levels(other.records("pages", "staff")) == ["fine", "coarse"]
    other.grant(1, "staff", "middle")
    assert levels(other.records("pages", "staff")) == ["fine", "coarse", "middle"]
    assert other.ledger().spent.epsilon == 6
    other.auditor.settled()


def test_the_order_is_public_and_counts_decide_nothing() -> None:
    """The same levels whatever is in the windows."""
    found = []
    for counts in (HOME, {}, {"rare": 1}):
        desk = Desk(plan(ONLY_PAGES, FALLS, FIVE))
        for start in range(0, 4000, 1000):
            desk.give("pages", start, counts)
        found.append(levels(desk.records("pages", "staff")))
    assert found[0] == found[1] == found[2]


def test_panes_fall_back_each_by_itself() -> None:
    planned = paned(2, 1, FALLS, ('epsilon: "40"', 'epsilon: "5"'))
    view, desk = planned.views["pages"], Desk(planned)
    give_all(desk, range(0, 3000, 1000))
    records = [record for record in desk.records("pages", "staff") if isinstance(record, Release)]
    assert levels(records) == ["middle", "coarse"], "a window is as fine as its coarsest pane"
    for record in records:
        level = MIDDLE if record.level.name == "middle" else COARSE
        starts = range(record.window.start_ms, record.window.end_ms, 1000)
        panes = [counts_at(view, start, level, COUNTS[start // 1000]) for start in starts]
        assert {one.item: one.count for one in record.items} == dict(
            zip(LIST, map(sum, zip(*panes, strict=True)), strict=True)
        )
    assert desk.ledger().spent == Cost(Fraction(5), Fraction(0))
    desk.auditor.settled()


def test_all_totals_of_a_window_have_the_level_that_its_first_was_paid_for() -> None:
    planned = running(FALLS, ('epsilon: "40"', 'epsilon: "3"'))
    desk = Desk(planned)
    exact = {1000 * at: counts for at, counts in enumerate([*COUNTS, *COUNTS][:12])}
    give_panes(desk, counts=exact, starts=range(0, 12_000, 1000))
    found = newest_totals(desk, "staff")
    assert [found[start][0] for start in range(0, 12_000, 1000)] == ["middle"] * 6 + ["coarse"] * 6
    desk.auditor.settled()
