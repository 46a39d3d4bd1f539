"""Grants: what becomes sharper, for whom, and what it costs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.control.grant_records import Order, Scope
from stream_dp.records.by_kind import TopKRelease
from stream_dp.records.models import Refusal
from stream_dp.releases.engine import SHARPENED_AT_ONCE, ReleaseEngine
from stream_dp.releases.rows import WINDOW, AudienceState
from tests.support.chosen import spread
from tests.support.releasing import COARSE, DELTA, FINE, MIDDLE, ONLY_PAGES, Desk, plan

CROWD = {f"page {n}": 40 + n for n in range(12)}
PAGES = plan(ONLY_PAGES)


def released(*starts: int, changes: tuple[tuple[str, str], ...] = (ONLY_PAGES,)) -> Desk:
    """A desk with some windows of pages released: public and partner coarse, staff at the middle."""
    desk = Desk(plan(*changes))
    for start in starts:
        desk.give("pages", start, CROWD)
    return desk


def revisions(desk: Desk, audience: str, view: str = "pages") -> list[tuple[int, int, str]]:
    return [(r.window.start_ms, r.revision, r.level.name) for r in desk.records(view, audience) if r.type == "release"]


def shown(desk: Desk, audience: str, start: int, view: str = "pages") -> dict[str, int]:
    record = desk.record(view, audience, start)
    return {row.item: row.count for row in record.items}


def tops_on_a_ladder_of_their_own(first: str, second: str, third: str) -> tuple[tuple[str, str], ...]:
    """Changes that give the view `tops` three levels with these names, at epsilon 1, 3/2 and 2."""
    levels = (
        f'[{{level: {first}, epsilon: "1"}}, {{level: {second}, epsilon: "3/2"}}, {{level: {third}, epsilon: "2"}}]'
    )
    end = "three\n    retention: 1h\n    buckets: 1"
    return ("audiences", f"  small: {levels}\naudiences"), (end, end.replace("three", "small"))


def test_a_grant_publishes_every_window_of_the_audience_again_at_the_level_and_no_other() -> None:
    desk = released(0, 1000)
    before = {name: desk.records("pages", name) for name in ("public", "staff")}
    desk.grant(1, "partner", "fine")
    assert revisions(desk, "partner") == [
        (0, 1, "coarse"),
        (1000, 1, "coarse"),
        (0, 2, "fine"),
        (1000, 2, "fine"),
    ]
    assert {name: desk.records("pages", name) for name in before} == before
    desk.auditor.settled()


def test_a_sharper_revision_replaces_the_former_under_its_key() -> None:
    desk = released(0)
    desk.grant(1, "partner", "fine")
    keys = {message.key for message in desk.published() if message.topic == "shop.releases.pages.partner"}
    assert keys == {b"pages/partner/0"}


def test_a_grant_is_charged_the_difference_to_the_finest_that_anyone_has() -> None:
    desk = released(0, 1000)
    assert desk.ledger().spent == Cost(Fraction(4), 2 * DELTA)
    desk.grant(1, "partner", "fine")
    assert desk.ledger().spent == Cost(Fraction(8), 2 * DELTA)
    record = desk.record("pages", "partner", 1000)
    assert desk.charged("pages", "partner", 1000) == Cost(Fraction(2), Fraction(0))
    assert (record.privacy.window.epsilon.exact, record.privacy.window.delta.exact) == ("4", "1/100")
    assert desk.entries()[-1].remaining.epsilon.exact == "32"
    desk.auditor.settled()


def test_a_grant_of_a_level_that_another_audience_has_costs_nothing_even_with_a_spent_ledger() -> None:
    desk = released(0, changes=(ONLY_PAGES, ('epsilon: "40"', 'epsilon: "2"')))
    before = desk.ledger()
    assert before.left.epsilon == 0
    desk.grant(1, "partner", "middle")
    record = desk.record("pages", "partner", 0)
    assert (record.revision, desk.charged("pages", "partner", 0)) == (2, Cost.ZERO)
    assert record.privacy.window.epsilon.exact == "2"
    assert desk.ledger().spent == before.spent
    assert desk.ledger().readers["partner"] == Cost(Fraction(2), DELTA)
    desk.auditor.settled()


def test_readers_of_a_level_see_the_same_counts_whenever_they_came_to_it() -> None:
    """specs/lossless 6.4: a sharper revision is another reading of the same sealed table, not another draw."""
    desk = released(0)
    desk.grant(1, "partner", "middle")
    assert shown(desk, "partner", 0) == shown(desk, "staff", 0)
    desk.grant(2, "partner", "fine")
    desk.grant(3, "public", "fine")
    assert shown(desk, "partner", 0) == shown(desk, "public", 0)
    assert shown(desk, "partner", 0) != shown(desk, "staff", 0)


def test_a_grant_sharpens_the_counts_of_a_topk_and_leaves_its_selection() -> None:
    desk = Desk(plan())
    desk.give("tops", 0, CROWD)
    before = desk.ledger().spent
    desk.grant(1, "public", "fine")
    first, second = desk.records("tops", "public")
    assert isinstance(first, TopKRelease)
    assert isinstance(second, TopKRelease)
    assert [row.item for row in first.items] == [row.item for row in second.items]
    assert first.complete == second.complete
    assert desk.ledger().spent - before == Cost(Fraction(2), Fraction(0))
    desk.auditor.settled()


def test_a_grant_holds_for_windows_to_come() -> None:
    desk = released(0)
    desk.grant(1, "partner", "fine")
    desk.reader.restart()
    desk.give("pages", 1000, CROWD)
    assert revisions(desk, "partner")[-1] == (1000, 1, "fine")
    assert desk.row("pages", 1000).states == {
        "partner": AudienceState(1, FINE, steps=[FINE]),
        "public": AudienceState(1, COARSE, steps=[COARSE]),
        "staff": AudienceState(1, MIDDLE, steps=[MIDDLE]),
    }
    desk.auditor.settled()


@pytest.mark.parametrize("restart", [False, True])
def test_a_grant_that_is_read_again_changes_nothing(restart: bool) -> None:
    desk = released(0, 1000)
    desk.grant(3, "partner", "fine")
    rows, published = dict(desk.machine.rows), desk.published()
    if restart:
        desk.reader.restart()
    desk.grant(3, "partner", "fine")
    assert (desk.machine.rows, desk.published()) == (rows, published)


def test_a_refused_grant_that_is_read_again_publishes_no_other_bytes() -> None:
    """Windows of `tops` are paid for behind those of `pages` that were refused; then there is less left."""
    desk = Desk(plan(*tops_on_a_ladder_of_their_own("coarse", "middle", "fine"), ('epsilon: "40"', 'epsilon: "13/2"')))
    for view in ("pages", "tops"):
        desk.give(view, 0, {"home": 50, "cart": 45})
    desk.grant(1, "partner", "fine")
    assert isinstance(desk.records("pages", "partner")[-1], Refusal)
    assert revisions(desk, "partner", "tops")[-1] == (0, 2, "fine")

    desk.grant(1, "partner", "fine")


def test_a_grant_older_than_the_last_one_is_passed_over() -> None:
    desk = released(0)
    desk.grant(5, "partner", "middle")
    rows, published = dict(desk.machine.rows), desk.published()
    desk.grant(4, "partner", "fine")
    assert (desk.machine.rows, desk.published()) == (rows, published)
    desk.give("pages", 1000, CROWD)
    assert revisions(desk, "partner")[-1] == (1000, 1, "middle")


def test_grants_of_different_audiences_do_not_pass_over_one_another() -> None:
    desk = released(0)
    desk.grant(5, "partner", "middle")
    desk.grant(4, "public", "middle")
    assert revisions(desk, "public")[-1] == (0, 2, "middle")


def test_a_lower_grant_holds_for_windows_to_come_and_takes_nothing_back() -> None:
    desk = released(0)
    desk.grant(1, "staff", "fine")
    published = desk.published()
    desk.grant(2, "staff", "coarse")
    assert desk.published() == published
    desk.give("pages", 1000, CROWD)
    assert revisions(desk, "staff")[-1] == (1000, 1, "coarse")
    assert desk.ledger().spent == Cost(Fraction(4 + 1), 2 * DELTA)

    desk.grant(3, "staff", "middle")
    assert revisions(desk, "staff")[3:] == [(1000, 2, "middle")]
    desk.auditor.settled()


def test_a_grant_raises_only_windows_that_are_retained() -> None:
    desk = released(0, 1000, 2000, changes=(ONLY_PAGES, ("retention: 1h", "retention: 1s")))
    desk.grant(1, "public", "fine")
    assert revisions(desk, "public")[3:] == [(1000, 2, "fine"), (2000, 2, "fine")]
    assert desk.ledger().spent == Cost(Fraction(2 + 4 + 4), 3 * DELTA)
    desk.auditor.settled()


def test_a_window_that_was_refused_is_not_sharpened() -> None:
    desk = released(0, 1000, changes=(ONLY_PAGES, ('epsilon: "40"', 'epsilon: "3"')))
    assert [record.type for record in desk.records("pages", "public")] == ["release", "refusal"]
    refusal = desk.records("pages", "public")[-1]
    assert isinstance(refusal, Refusal)
    assert (refusal.refuses, refusal.final) == ("window", True)
    desk.grant(1, "public", "middle")
    desk.reader.restart()
    desk.grant(2, "public", "coarse")
    assert revisions(desk, "public") == [(0, 1, "coarse"), (0, 2, "middle")]
    assert len(desk.records("pages", "public")) == 3


def test_a_sharpening_that_the_ledger_cannot_pay_for_leaves_the_release_and_publishes_a_refusal() -> None:
    desk = released(0, 1000, changes=(ONLY_PAGES, ('epsilon: "40"', 'epsilon: "6"')))
    before = desk.record("pages", "public", 1000)
    desk.grant(1, "public", "fine")

    assert revisions(desk, "public")[2:] == [(0, 2, "fine")]
    assert desk.record("pages", "public", 1000) == before
    refusal = desk.records("pages", "public")[-1]
    assert isinstance(refusal, Refusal)
    assert (refusal.window.start_ms, refusal.revision, refusal.level.name) == (1000, 2, "fine")
    assert (refusal.refuses, refusal.final) == ("sharpening", False)
    assert refusal.requested.epsilon.exact == "3", "beyond what public has; staff has a level between"
    (entry,) = [entry for entry in desk.entries() if entry.type == "refusal"]
    assert (entry.requested.epsilon.exact, entry.remaining.epsilon.exact) == ("2", "0")
    assert desk.row("pages", 1000).states["public"] == AudienceState(1, COARSE, steps=[COARSE])
    assert desk.machine.counts["windows_sharpened", (("view", "pages"),)] == 1
    assert desk.machine.counts["sharpenings_refused", (("view", "pages"),)] == 1
    desk.auditor.settled()

    desk.grant(2, "public", "middle")  # staff has it, so it is free
    assert revisions(desk, "public")[3:] == [(1000, 2, "middle")]
    desk.auditor.settled()


def test_each_window_is_charged_to_the_ledger_of_its_own_period() -> None:
    desk = released(0, 3000, 4000)
    desk.give("pages", 1000, CROWD)
    desk.give("pages", 2000, CROWD)
    assert {start for start, _, _ in revisions(desk, "public")} == {0, 1000, 2000, 3000, 4000}
    desk.grant(1, "public", "fine")
    assert desk.ledger(0).spent == Cost(Fraction(4 * 4), 4 * DELTA)
    assert desk.ledger(4000).spent == Cost(Fraction(4), DELTA)
    desk.auditor.settled()


def test_a_grant_to_an_audience_that_does_not_read_the_view_leaves_it_alone() -> None:
    audiences = ("retention: 1h\n    buckets: 2", "retention: 1h\n    buckets: 2\n    audiences: [public, staff]")
    desk = released(0, changes=(audiences, ONLY_PAGES))
    desk.grant(1, "partner", "fine")
    assert len(desk.published()) == 2
    assert desk.ledger().spent == Cost(Fraction(2), DELTA)


def readers(names: str) -> tuple[str, str]:
    """A change after which these audiences read the pages."""
    return ("retention: 1h\n    buckets: 2", f"retention: 1h\n    buckets: 2\n    audiences: [{names}]")


def test_an_audience_that_came_later_gets_retained_windows_at_its_level_if_that_costs_nothing() -> None:
    desk = released(0, 1000, changes=(readers("public, staff"), ONLY_PAGES))
    before, others = desk.ledger(), [desk.records("pages", name) for name in ("public", "staff")]
    desk.change(PAGES)
    assert revisions(desk, "partner") == [(0, 1, "coarse"), (1000, 1, "coarse")]
    assert shown(desk, "partner", 0) == shown(desk, "public", 0)
    assert [desk.records("pages", name) for name in ("public", "staff")] == others
    assert (desk.ledger().spent, desk.ledger().left) == (before.spent, before.left)
    assert desk.ledger().readers["partner"] == desk.ledger().readers["public"]
    assert desk.record("pages", "partner", 1000).privacy.period.cost == Cost(Fraction(2), 2 * DELTA)
    rows, published = dict(desk.machine.rows), desk.published()
    desk.reader.restart()
    assert (desk.machine.rows, desk.published()) == (rows, published), "once is enough"
    desk.grant(1, "partner", "fine")
    assert revisions(desk, "partner")[2:] == [(0, 2, "fine"), (1000, 2, "fine")]
    desk.auditor.settled()


def test_an_audience_that_came_later_at_a_level_that_costs_more_gets_nothing_until_a_grant_pays() -> None:
    desk = released(0, changes=(readers("public"), ONLY_PAGES))
    before = dict(desk.machine.rows)
    desk.change(PAGES)
    assert revisions(desk, "partner") == [(0, 1, "coarse")], "public has that level"
    assert revisions(desk, "staff") == []
    assert desk.ledger().spent == Cost(Fraction(1), DELTA)
    engine = desk.made(ReleaseEngine)
    desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
    assert {audience: set(views) for audience, views in engine.withheld.items()} == {"staff": {"pages"}}
    desk.grant(1, "staff", "middle")
    assert revisions(desk, "staff") == [(0, 1, "middle")]
    assert desk.ledger().spent == Cost(Fraction(2), DELTA)
    assert before.keys() < desk.machine.rows.keys()
    engine = desk.made(ReleaseEngine)
    desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
    assert not engine.withheld
    desk.auditor.settled()


def test_an_audience_that_came_later_gets_a_window_when_somebody_else_was_given_its_level() -> None:
    desk = released(0, changes=(readers("public"), ONLY_PAGES))
    desk.grant(1, "public", "fine")
    desk.change(PAGES)
    assert revisions(desk, "staff") == [(0, 1, "middle")]
    assert desk.ledger().spent == Cost(Fraction(4), DELTA)
    desk.auditor.settled()


def test_an_audience_that_came_later_gets_a_window_as_soon_as_somebody_else_is_given_its_level() -> None:
    desk = released(0, 1000, changes=(readers("public"), ONLY_PAGES))
    desk.change(PAGES)
    desk.grant(1, "public", "middle", scope=Scope(from_ms=1000))
    assert revisions(desk, "staff") == [(1000, 1, "middle")], "nobody has that level of the first window"
    desk.grant(2, "public", "fine")
    assert revisions(desk, "staff") == [(1000, 1, "middle"), (0, 1, "middle")]
    assert desk.ledger().spent == Cost(Fraction(8), 2 * DELTA)
    desk.auditor.settled()


def test_what_a_grant_was_refused_comes_without_another_one_when_somebody_else_has_it() -> None:
    desk = released(0, changes=(ONLY_PAGES, ("kind: histogram", 'kind: histogram\n    share: "3/40"')))
    desk.grant(1, "public", "fine")
    assert [record.type for record in desk.records("pages", "public")] == ["release", "refusal"]
    desk.change(PAGES)
    assert revisions(desk, "public") == [(0, 1, "coarse")], "it would cost more, and the grant was carried out"
    desk.grant(2, "staff", "fine")
    assert revisions(desk, "public") == [(0, 1, "coarse"), (0, 2, "fine")]
    assert shown(desk, "public", 0) == shown(desk, "staff", 0)
    assert desk.ledger().spent == Cost(Fraction(4), DELTA)
    rows, published = dict(desk.machine.rows), desk.published()
    desk.reader.restart()
    assert (desk.machine.rows, desk.published()) == (rows, published), "once is enough"
    desk.auditor.settled()


def test_a_window_that_an_audience_came_later_than_and_was_refused_may_still_come() -> None:
    share = ("kind: histogram", 'kind: histogram\n    share: "1/20"')
    desk = released(0, changes=(readers("public"), ONLY_PAGES, share))
    desk.change(plan(ONLY_PAGES, share))
    desk.grant(1, "staff", "fine")
    desk.grant(2, "staff", "fine")
    for refusal in desk.records("pages", "staff"):
        assert isinstance(refusal, Refusal)
        assert (refusal.revision, refusal.refuses, refusal.final) == (1, "window", False)
        assert refusal.requested.epsilon.exact == "4", "staff has nothing of it"
    assert len(desk.records("pages", "staff")) == 2, "each grant asks"
    desk.change(PAGES)
    desk.grant(3, "staff", "fine")
    assert revisions(desk, "staff") == [(0, 1, "fine")]
    desk.auditor.settled()


@pytest.mark.parametrize("cut", spread(4, range(40)))
def test_what_becomes_free_is_given_wherever_the_process_ends(cut: int) -> None:
    desk = released(0, 1000, changes=(readers("staff"), ONLY_PAGES))
    desk.grant(1, "public", "fine")
    desk.change(PAGES)
    assert (revisions(desk, "public"), len(revisions(desk, "partner"))) == ([], 2)
    desk.machine.cut_after = cut
    desk.grant(2, "staff", "fine")
    desk.reader.restart()
    assert revisions(desk, "public") == [(0, 1, "fine"), (1000, 1, "fine")]
    assert desk.ledger().spent == Cost(Fraction(8), 2 * DELTA)
    desk.auditor.settled()


def test_an_audience_that_came_later_gets_no_window_that_was_refused() -> None:
    desk = released(0, 1000, changes=(readers("public, staff"), ONLY_PAGES, ('epsilon: "40"', 'epsilon: "3"')))
    desk.change(plan(ONLY_PAGES, ('epsilon: "40"', 'epsilon: "3"')))
    assert revisions(desk, "partner") == [(0, 1, "coarse")]
    assert len(desk.records("pages", "partner")) == 1


def test_what_an_audience_came_later_than_leaves_at_the_slot_behind_the_start() -> None:
    desk = released(0, changes=(readers("public, staff"), ONLY_PAGES))
    desk.plan = PAGES
    engine = desk.made(ReleaseEngine)
    desk.machine.carry_out(engine.load(desk.machine, now_ms=70_500))
    while engine.waits:
        desk.machine.carry_out(engine.due())
    (departure,) = desk.row("pages", 0).outbox
    assert departure.slot_ms == PAGES.slots.after(70_500) == 73_000


def test_a_grant_takes_the_place_of_what_an_audience_gets_by_itself() -> None:
    desk = released(0, changes=(readers("public, staff"), ONLY_PAGES))
    desk.plan = PAGES
    engine = desk.made(ReleaseEngine)
    desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
    desk.machine.carry_out(engine.order(Order(1, "partner", "fine"), now_ms=0))
    while engine.waits:
        desk.machine.carry_out(engine.due())
    assert desk.row("pages", 0).states["partner"] == AudienceState(1, FINE, steps=[FINE])


def test_a_grant_to_an_audience_that_came_later_than_windows_that_cost_more_gives_them() -> None:
    desk = released(0, changes=(readers("public, staff"), ONLY_PAGES))
    desk.change(plan(ONLY_PAGES, ("partner: coarse", "partner: fine")))
    desk.grant(1, "partner", "fine")
    assert revisions(desk, "partner") == [(0, 1, "fine")]
    record = desk.record("pages", "partner", 0)
    assert desk.charged("pages", "partner", 0) == Cost(Fraction(2), Fraction(0))
    assert record.privacy.window.epsilon.exact == "4"
    assert record.privacy.window.delta.exact == "1/100"
    desk.auditor.settled()


def test_a_grant_of_a_level_that_a_ladder_does_not_have_leaves_the_clearance_of_its_views() -> None:
    """An operator lowered staff in every view; a grant that only concerns another ladder must not raise it again."""
    desk = Desk(plan(*tops_on_a_ladder_of_their_own("low", "middle", "coarse")))
    desk.grant(1, "staff", "coarse")
    desk.grant(2, "staff", "low")
    desk.give("pages", 0, CROWD)
    assert revisions(desk, "staff") == [(0, 1, "coarse")]


def test_a_step_sharpens_some_of_the_windows_and_the_next_one_goes_on() -> None:
    """Between two steps the runtime looks whether the partition is still its own."""
    count = 2 * SHARPENED_AT_ONCE + 3
    desk = released(
        *range(0, 1000 * count, 1000),
        changes=(ONLY_PAGES, ("period: 4s", "period: 1h"), ('"40"', '"400"'), ('"1/5"', '"4/5"')),
    )
    engine = desk.made(ReleaseEngine)
    published = desk.published()
    desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
    desk.machine.carry_out(engine.order(Order(1, "public", "fine"), now_ms=0))
    found = []
    while engine.waits:
        before, commits = len(desk.machine.changelog), desk.machine.commits
        desk.machine.carry_out(engine.due())
        found.append(sum(key.startswith(WINDOW) for key, _ in desk.machine.changelog[before:]))
        assert desk.machine.commits == commits + 1
    assert found == [SHARPENED_AT_ONCE, SHARPENED_AT_ONCE, 3]
    assert [leave.start_ms for leave in desk.machine.leaving] == list(range(0, 1000 * count, 1000))
    assert desk.published() == published
    desk.reader.restart()
    assert revisions(desk, "public")[count:] == [(start, 2, "fine") for start in range(0, 1000 * count, 1000)]
    assert desk.ledger().spent == Cost(Fraction(4 * count), count * DELTA)
    desk.auditor.settled()
