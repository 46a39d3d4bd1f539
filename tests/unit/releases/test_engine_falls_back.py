"""Windows that the ledger does not pay for at the finest level, in a view that falls back: coarser, and not refused."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.control.grant_records import Scope
from stream_dp.records.by_kind import TopKRelease
from stream_dp.records.codec import AnyRecord
from stream_dp.records.models import Release
from tests.support.panes import COUNTS, LIST, counts_at, give_all, paned
from tests.support.releasing import COARSE, MIDDLE, ONLY_PAGES, POOL, SHOP, Desk, plan
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


# -- draws that are left ----------------------------------------------------------------------------------------------


ONLY_TOPS = ("  pages:\n" + SHOP.partition("  pages:\n")[2].partition("  tops:\n")[0], "")
THREE_KEYS = ("    k: 2\n    kbar: 3", "    k: 3\n    kbar: 3")
SMALL_POOL = (POOL[0], POOL[1].replace('"39"', '"6"').replace('"41"', '"8"'))
SCARCE = plan(ONLY_TOPS, THREE_KEYS, FALLS, ('epsilon: "40"', 'epsilon: "8.055"'), ("staff: middle", "staff: coarse"))
"""Two windows at coarse cost 4.03 and 3.02; that leaves a step to middle for one."""
APART = {"home": 90, "cart": 80, "help": 70, "about": 1}
"""Three keys that are drawn before bottom with a chance above 1 - e^-60."""


def tops(desk: Desk, audience: str = "public") -> list[tuple[int, int | None, bool] | str]:
    """Of every record the keys shown, those that could be paid for, and whether they were found; or that it refuses."""
    return [
        (len(record.items), record.paid, record.complete) if isinstance(record, TopKRelease) else "refused"
        for record in desk.records("tops", audience)
    ]


def test_a_top_k_makes_the_draws_that_are_left_at_the_coarsest_level() -> None:
    """A window at middle costs 2 + 3 * 1.01; then 3.5 is left: coarse for 1, two draws for 2.02, none for the third."""
    desk = Desk(plan(ONLY_TOPS, THREE_KEYS, FALLS, ('epsilon: "40"', 'epsilon: "8.53"')))
    for start in range(0, 3000, 1000):
        desk.give("tops", start, APART)
    for audience in ("public", "staff"):
        assert tops(desk, audience) == [(3, None, True), (2, 2, True), "refused"]
    assert levels(desk.records("tops", "staff")) == ["middle", "coarse", "refused"]
    assert desk.ledger(view="tops").spent.epsilon == Fraction("8.05")
    first, second, _ = desk.records("tops", "public")
    assert isinstance(first, TopKRelease)
    assert isinstance(second, TopKRelease)
    assert first.k == second.k == 3
    assert first.extent() == "3 of 3"
    assert second.extent() == "2 of 3; the budget paid for 2"
    assert [entry.item for entry in second.items] == ["home", "cart"]
    assert second.privacy.window.cost == Cost(1 + 2 * Fraction("1.01"), Fraction(1, 100))
    desk.auditor.settled()


def test_a_top_k_makes_one_draw_where_no_more_is_left() -> None:
    """A window at middle costs 2 + 3 * 1.01; then 2.5 is left: coarse for 1, and one draw of three."""
    desk = Desk(plan(ONLY_TOPS, THREE_KEYS, FALLS, ('epsilon: "40"', 'epsilon: "7.53"')))
    for start in range(0, 3000, 1000):
        desk.give("tops", start, APART)
    assert tops(desk) == [(3, None, True), (1, 1, True), "refused"]
    assert desk.ledger(view="tops").spent.epsilon == Fraction("7.04")
    desk.auditor.settled()


def test_a_list_that_ends_before_that_pays_for_bottom_and_no_more() -> None:
    desk = Desk(plan(ONLY_TOPS, THREE_KEYS, FALLS, ('epsilon: "40"', 'epsilon: "8.53"')))
    desk.give("tops", 0, APART)
    desk.give("tops", 1000, {})
    desk.give("tops", 2000, {})
    assert tops(desk) == [(3, None, True), (0, 2, False), "refused"]
    assert desk.ledger(view="tops").spent.epsilon == Fraction("7.04")


def test_without_when_short_the_window_is_refused() -> None:
    desk = Desk(plan(ONLY_TOPS, THREE_KEYS, ('epsilon: "40"', 'epsilon: "8.53"')))
    for start in range(0, 2000, 1000):
        desk.give("tops", start, APART)
    assert tops(desk) == [(3, None, True), "refused"]


def test_a_pool_pays_for_the_draws_that_it_has_left() -> None:
    """Coarse is tanh(1/2) of rho and a draw 1/8, of a pool of 1.62: a window of three draws, then one of two."""
    desk = Desk(plan(ONLY_TOPS, THREE_KEYS, FALLS, SMALL_POOL, ("staff: middle", "staff: coarse")))
    for start in range(0, 4000, 1000):
        desk.give("tops", start, APART)
    shown = tops(desk)
    room, counts = desk.plan.ledgers["visitors"].budget.rho, desk.plan.views["tops"].levels[COARSE].rho
    whole = int(room // (counts + Fraction(3, 8)))
    keys = int((room - whole * (counts + Fraction(3, 8)) - counts) // Fraction(1, 8))
    assert (whole, keys) == (1, 2)
    assert shown == [(3, None, True), (2, 2, True), "refused", "refused"]
    desk.auditor.settled()


def test_a_window_with_fewer_keys_survives_a_crash_at_any_place_and_becomes_sharper() -> None:
    def play(cut: int | None) -> Desk:
        desk = Desk(SCARCE, cuts=[] if cut is None else [cut])
        for start in range(0, 2000, 1000):
            desk.give("tops", start, APART)
        desk.grant(1, "public", "middle", scope=Scope(from_ms=1000))
        return desk

    def by_revision(desk: Desk) -> dict[tuple[int, int], AnyRecord]:
        return {(one.window.start_ms, one.revision): one for one in desk.records("tops", "public")}

    whole = play(None)
    assert tops(whole) == [(3, None, True), (2, 2, True), (2, 2, True)]
    assert whole.ledger(view="tops").spent.epsilon == Fraction("8.05")
    for cut in range(60):
        desk = play(cut)
        assert by_revision(desk) == by_revision(whole)
        desk.auditor.settled()
