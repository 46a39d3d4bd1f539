"""Unlocks by age and sharpening by what is left: what becomes finer, when, at what cost, through any crash."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest
from msgspec.structs import replace

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from stream_dp.control.grant_records import Scope
from stream_dp.records.models import Refusal
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.releases.pieces import PublishedRecord
from stream_dp.releases.rows import PUBLISHED
from stream_dp.windows.encoding import decode, encode
from tests.support.chosen import every
from tests.support.releasing import DELTA, ONLY_PAGES, Desk, plan

HOME = {"home": 40, "cart": 12, "rare": 1}
UNLOCKS = (
    "public: coarse",
    "public: {level: coarse, unlock: [{level: middle, after: 3s}, {level: fine, after: 10s}]}",
)
SPENDS = (
    "retention: 1h\n    buckets: 2",
    "retention: 1h\n    buckets: 2\n    sharpen: {audience: staff, level: fine, every: 4s}",
)
AGING = plan(
    ONLY_PAGES, UNLOCKS, ("period: 4s", "period: 20s"), ('epsilon: "40"', 'epsilon: "100"'), ('"1/5"', '"9/10"')
)


def released(planned: Plan, *starts: int) -> Desk:
    desk = Desk(planned)
    for start in starts:
        desk.give("pages", start, HOME)
    return desk


def revisions(desk: Desk, audience: str, view: str = "pages") -> list[tuple[int, int, str]]:
    """Releases in the order of their publication; a refusal has its level in brackets."""
    return [
        (r.window.start_ms, r.revision, r.level.name if r.type == "release" else f"({r.level.name})")
        for r in desk.records(view, audience)
    ]


# -- unlocks --------------------------------------------------------------------------------------------------------


def test_a_window_is_unlocked_when_it_is_so_old_and_charged_then() -> None:
    desk = released(AGING, 0, 1000)
    before = desk.ledger().spent
    desk.tell(3999)
    assert len(revisions(desk, "public")) == 2
    desk.tell(4000)
    assert revisions(desk, "public")[2:] == [(0, 2, "middle")]
    assert desk.ledger().spent == before, "staff has that level"
    desk.tell(11_000)
    assert sorted(revisions(desk, "public")[3:]) == [(0, 3, "fine"), (1000, 2, "middle")]
    assert desk.ledger().spent - before == Cost(Fraction(2), Fraction(0))
    desk.tell(12_000)
    assert revisions(desk, "public")[5:] == [(1000, 3, "fine")]
    assert revisions(desk, "staff") == [(0, 1, "middle"), (1000, 1, "middle")]
    desk.auditor.settled()


def test_an_engine_says_when_it_is_to_be_told_the_time() -> None:
    desk = released(AGING)
    engine = desk.made(ReleaseEngine)
    desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
    assert engine.due_ms is None
    desk.give("pages", 0, HOME)
    engine = desk.made(ReleaseEngine)
    desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
    assert engine.due_ms == 4000
    assert not engine.waits
    desk.machine.carry_out(engine.tell(4000))
    assert engine.waits
    while engine.waits:
        desk.machine.carry_out(engine.due())
    assert engine.due_ms == 11_000
    assert desk.row("pages", 0).outbox[-1].slot_ms == AGING.slots.after(4000) == 6000


def test_after_a_downtime_only_the_finest_level_that_is_due_is_published() -> None:
    desk = released(AGING, 0, 1000)
    desk.reader.stop()
    desk.tell(11_500)
    assert sorted(revisions(desk, "public")[2:]) == [(0, 2, "fine"), (1000, 2, "middle")]
    desk.auditor.settled()


def test_a_window_that_is_released_late_is_unlocked_behind_its_release() -> None:
    desk = released(AGING, 0)
    desk.tell(30_000)
    desk.give("pages", 1000, HOME)
    assert revisions(desk, "public")[2:] == [(1000, 1, "coarse"), (1000, 2, "fine")]


def test_an_unlock_that_the_ledger_cannot_pay_for_is_refused_once_and_the_next_one_asks_anew() -> None:
    spent = plan(
        ONLY_PAGES, UNLOCKS, ("staff: middle", "staff: coarse"), ('epsilon: "40"', 'epsilon: "5"'), ("4s", "2s")
    )
    desk = released(spent, 0)
    desk.grant(1, "partner", "fine")
    desk.give("pages", 1000, HOME)
    desk.tell(5000)
    desk.reader.restart()
    desk.tell(5500)
    assert revisions(desk, "public") == [(0, 1, "coarse"), (1000, 1, "(coarse)"), (0, 2, "middle")]

    desk = released(spent, 0, 1000)
    desk.grant(1, "partner", "fine", scope=Scope(until_ms=1000))
    assert desk.ledger().left.epsilon == 0
    for now in (5000, 6000, 12_000, 13_000):
        desk.tell(now)
        desk.reader.restart()
    assert revisions(desk, "public") == [
        (0, 1, "coarse"),
        (1000, 1, "coarse"),
        (0, 2, "middle"),
        (1000, 2, "(middle)"),
        (0, 3, "fine"),
        (1000, 2, "(fine)"),
    ]
    refused = [record for record in desk.records("pages", "public") if isinstance(record, Refusal)]
    assert {(record.refuses, record.final) for record in refused} == {("sharpening", False)}
    assert desk.machine.counts["sharpenings_refused", (("view", "pages"),)] == 2
    desk.auditor.settled()


def without_slots(rows: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Rows without the slots at which records left: after a crash they leave again, at a later one."""
    found = dict(rows)
    for key, value in rows.items():
        if key.startswith(PUBLISHED):
            found[key] = encode(replace(decode(PublishedRecord, value), slot_ms=0))
    return found


@every(7)
def test_an_unlock_that_is_refused_is_refused_once_wherever_the_process_ends(step: int) -> None:
    spent = plan(
        ONLY_PAGES, UNLOCKS, ("staff: middle", "staff: coarse"), ('epsilon: "40"', 'epsilon: "5"'), ("4s", "2s")
    )

    def run(cut: int | None) -> Desk:
        desk = released(spent, 0)
        desk.give("pages", 1000, HOME)
        desk.grant(1, "partner", "fine", scope=Scope(until_ms=1000))
        desk.machine.cut_after = cut
        desk.tell(12_000)
        desk.machine.cut_after = None
        desk.reader.restart()
        return desk

    whole = run(None)
    assert whole.machine.counts["sharpenings_refused", (("view", "pages"),)] == 2
    for cut in range(0, 60, step):
        desk = run(cut)
        assert without_slots(desk.machine.rows) == without_slots(whole.machine.rows)
        desk.auditor.settled()


def test_the_money_of_an_unlock_is_kept_while_another_view_is_granted_all_it_can_get() -> None:
    """Without that the grant would take the eight that are over, and the unlocks would be refused."""
    both = plan(
        (
            "  tops:\n",
            "  rests:\n    {source: visits, item: page, kind: histogram, items_per_user: 1, delta: "
            '"1/100",\n     ledger: visitors, ladder: three, '
            "window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s},\n"
            "     audiences: [partner, staff]}\n  tops:\n",
        ),
        ("  tops:\n" + tops_text(), ""),
        UNLOCKS,
        ('epsilon: "40"', 'epsilon: "26"'),
    )
    desk = Desk(both)
    for start in (0, 1000, 2000, 3000):
        desk.give("pages", start, HOME)
        desk.give("rests", start, HOME)
    desk.grant(1, "partner", "fine", scope=Scope(("rests",)))
    assert {r[2] for r in revisions(desk, "partner", "rests")[4:]} == {"fine", "(fine)"}
    desk.tell(20_000)
    assert revisions(desk, "public")[4:] == [(start, 2, "fine") for start in (0, 1000, 2000, 3000)]
    desk.auditor.settled()


def tops_text() -> str:
    from tests.support.releasing import SHOP

    return SHOP.partition("  tops:\n")[2]


def test_a_grant_below_the_start_holds_the_schedule_back_and_one_above_leaves_it() -> None:
    middle = plan(
        ONLY_PAGES,
        ("public: coarse", "public: {level: middle, unlock: [{level: fine, after: 3s}]}"),
        ("period: 4s", "period: 20s"),
    )
    desk = Desk(middle)
    desk.grant(1, "public", "coarse", scope=Scope(from_ms=1000, until_ms=2000))
    for start in (0, 1000):
        desk.give("pages", start, HOME)
    desk.tell(10_000)
    assert revisions(desk, "public") == [(0, 1, "middle"), (1000, 1, "coarse"), (0, 2, "fine")]

    desk = released(AGING, 0)
    desk.grant(1, "public", "middle")
    desk.tell(20_000)
    assert revisions(desk, "public")[1:] == [(0, 2, "middle"), (0, 3, "fine")]


def test_a_schedule_that_is_new_is_carried_out_for_the_retained_windows() -> None:
    desk = released(plan(ONLY_PAGES, ("period: 4s", "period: 20s")), 0, 1000)
    desk.published_ms = 20_000
    desk.change(plan(ONLY_PAGES, ("period: 4s", "period: 20s"), UNLOCKS))
    assert revisions(desk, "public")[2:] == [(0, 2, "fine"), (1000, 2, "fine")]


def test_ten_thousand_retained_windows_are_not_looked_at_when_none_is_due() -> None:
    desk = released(AGING, 0, 1000, 2000)
    desk.tell(5000)
    scanned, commits = desk.machine.scanned, desk.machine.commits
    for now in range(5000, 6000, 100):
        desk.tell(now)
    assert (desk.machine.scanned, desk.machine.commits) == (scanned, commits)


# -- what is left ---------------------------------------------------------------------------------------------------


def spending(epsilon: str, *changes: tuple[str, str], reserve: str = "0") -> Plan:
    return plan(
        ONLY_PAGES,
        (SPENDS[0], SPENDS[1].replace("every: 4s", f'reserve: "{reserve}", every: 4s')),
        ('epsilon: "40"', f'epsilon: "{epsilon}"'),
        *changes,
    )


def test_what_a_period_has_left_shows_its_newest_windows_finer_until_the_next_would_not_fit() -> None:
    """Four windows cost two each; of thirteen five are left, which pays for two that cost two more."""
    desk = released(spending("13"), 0, 1000, 2000, 3000)
    desk.tell(3999)
    assert len(revisions(desk, "staff")) == 4
    desk.tell(4000)
    assert revisions(desk, "staff")[4:] == [(2000, 2, "fine"), (3000, 2, "fine")]
    assert desk.ledger().left.epsilon == 1
    desk.tell(9000)
    desk.reader.restart()
    assert len(revisions(desk, "staff")) == 6, "nothing is refused, nothing is tried again"
    assert desk.machine.counts["sharpenings_refused", (("view", "pages"),)] == 0
    desk.auditor.settled()


def test_what_windows_to_come_cost_is_left_alone_and_so_is_the_reserve() -> None:
    """At half of the period half of the windows have cost four, and the others will."""
    halves = (SPENDS[1], SPENDS[1].replace("every: 4s", "every: 2s"))
    planned = plan(ONLY_PAGES, SPENDS, halves, ('epsilon: "40"', 'epsilon: "11"'))
    desk = released(planned, 0, 1000)
    desk.tell(2000)
    assert revisions(desk, "staff")[2:] == [(1000, 2, "fine")], "eleven less eight pays for one"
    for start in (2000, 3000):
        desk.give("pages", start, HOME)
    desk.tell(4000)
    assert [r for r in revisions(desk, "staff") if r[1] > 1] == [(1000, 2, "fine")]
    assert all(record.type == "release" for record in desk.records("pages", "staff"))

    desk = released(spending("16", reserve="1/4"), 0, 1000, 2000, 3000)
    desk.tell(4000)
    assert revisions(desk, "staff")[4:] == [(2000, 2, "fine"), (3000, 2, "fine")], "four are held back"


def test_what_unlocks_will_cost_is_left_alone() -> None:
    desk = released(spending("17", UNLOCKS), 0, 1000, 2000, 3000)
    desk.tell(4000)
    assert desk.ledger().left.epsilon == 17 - 4 * 2 - 4 * 2 + 0, "all of them: at the level that is unlocked anyway"
    desk.tell(20_000)
    assert {r.level.name for r in desk.records("pages", "public")[-4:]} == {"fine"}
    assert all(r.type == "release" for r in desk.records("pages", "public"))
    desk.auditor.settled()


def test_each_period_spends_its_own_rest_and_times_that_were_missed_are_made_up_for() -> None:
    desk = released(spending("13"), *range(0, 8000, 1000))
    desk.reader.stop()
    desk.tell(8500)
    found = [r for r in revisions(desk, "staff") if r[1] > 1]
    assert found == [(start, 2, "fine") for start in (2000, 3000, 6000, 7000)]
    desk.auditor.settled()


def test_a_view_that_begins_to_spend_waits_for_the_next_time_of_the_grid() -> None:
    desk = released(plan(ONLY_PAGES), 0, 1000)
    desk.published_ms = 5000
    desk.change(spending("40"))
    desk.tell(7999)
    assert len(revisions(desk, "staff")) == 2
    desk.tell(8000)
    assert revisions(desk, "staff")[2:] == [], "the period is over for which that would have been"


def test_a_window_that_costs_nothing_more_is_shown_though_nothing_is_left() -> None:
    desk = released(spending("12"), 0, 1000, 2000, 3000)
    desk.grant(1, "partner", "fine", scope=Scope(until_ms=2000))
    assert desk.ledger().left.epsilon == 0
    desk.tell(4000)
    assert revisions(desk, "staff")[4:] == [], "the next would not fit, and what is behind it is not tried"
    desk = released(spending("12"), 0, 1000, 2000, 3000)
    desk.grant(1, "partner", "fine", scope=Scope(from_ms=2000))
    desk.tell(4000)
    assert revisions(desk, "staff")[4:] == [(2000, 2, "fine"), (3000, 2, "fine")]


# -- cut anywhere -----------------------------------------------------------------------------------------------------

SCARCE = spending("13", UNLOCKS, ("retention: 1h\n", "retention: 20s\n"))


@pytest.mark.parametrize("step", [53, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_without_money_that_is_cut_refuses_and_stops_where_an_uncut_one_does(step: int) -> None:
    def run(cuts: list[int]) -> Desk:
        desk = Desk(SCARCE, cuts=cuts)
        for start in (0, 1000):
            desk.give("pages", start, HOME)
        desk.grant(1, "partner", "fine", scope=Scope(until_ms=2000))
        for start in (2000, 3000):
            desk.give("pages", start, HOME)
        for now in (4000, 7000, 14_000):
            desk.tell(now)
        desk.machine.cut_after = None
        desk.reader.restart()
        return desk

    whole = run([])
    assert whole.ledger().spent == Cost(Fraction(2 * 4 + 2 * 2), 4 * DELTA)
    assert whole.machine.counts["sharpenings_refused", (("view", "pages"),)] == 2
    for cut in range(0, whole.machine.points, step):
        desk = run([cut])
        desk.auditor.settled()
        assert desk.machine.rows == whole.machine.rows
        assert set(map(str, desk.published())) == set(map(str, whole.published()))
