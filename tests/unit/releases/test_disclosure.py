"""What was taken out of the settings discloses nothing more, of windows of no edition, wherever they wait."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from stream_dp.control.grant_records import Scope
from stream_dp.errors import ConfigError
from stream_dp.releases.accounts import price, read_ledgers
from stream_dp.releases.pieces import stored_table
from stream_dp.releases.rows import TABLE, WINDOW, Call, WindowRow, stored_window
from stream_dp.windows.encoding import decode, text
from tests.support.acts import shop as panes_shop
from tests.support.chosen import kept_ordinary, ordinarily, spread
from tests.support.editions import holding
from tests.support.expiring import standing
from tests.support.machine import newest
from tests.support.releasing import COARSE, EVERYTHING, FINE, ONLY_PAGES, Desk, plan

RICH = ('epsilon: "40", delta: "1/5", period: 4s', 'epsilon: "4000", delta: "9/10", period: 80s')
BOUND = ("items_per_user: 1", "items_per_user: 2")
AUDIENCES = "audiences: {partner: coarse, public: coarse, staff: middle}"
BUCKETS = "retention: 1h\n    buckets: 2"
UNLOCKED = (
    AUDIENCES,
    "audiences: {partner: coarse, public: {level: coarse, unlock: [{level: fine, after: 50s}]}, staff: middle}",
)
UNLOCKED_MS = 52_000
"""When this unlocks the windows that start in the first two seconds; the slots of these revisions are still to come."""
SHARPENED = (BUCKETS, f"{BUCKETS}\n    sharpen: {{audience: staff, level: fine, every: 50s}}")
NOBODY_MORE = (AUDIENCES, "audiences: {partner: coarse, staff: middle}")
Edits = Sequence[tuple[str, str]]
COUNTS = {"home": 40, "cart": 12, "rare": 1}


def shop(*edits: tuple[str, str]) -> Plan:
    return plan(RICH, ONLY_PAGES, *edits)


def give(desk: Desk, view: str, *seconds: int) -> None:
    for second in seconds:
        desk.give(view, 1000 * second, COUNTS)


def told(desk: Desk, audience: str, view: str = "pages") -> list[tuple[int, int, str]]:
    return [(one.window.start_ms // 1000, one.revision, one.level.name) for one in desk.records(view, audience)]


def levels_of(desk: Desk, view: str, audience: str) -> list[tuple[int, str]]:
    return [(start, level) for start, _, level in told(desk, audience, view)]


def others() -> Plan:
    """Without the view `pages`."""
    return plan(RICH, ("\n  pages:\n", "\n  clicks:\n"), ("1970-01-01T00:00:00Z, grace", "1970-01-01T00:00:09Z, grace"))


GONE: dict[str, tuple[Edits, Edits, str]] = {
    "unlock": ((UNLOCKED,), (), "public"),
    "sharpen": ((SHARPENED,), (), "staff"),
    "audience": ((UNLOCKED,), (NOBODY_MORE,), "public"),
    "view": ((UNLOCKED, SHARPENED), (), "public"),
}
"""What the first settings have, what the last ones have in its place, and whom it concerns."""


def taken_out(what: str, cut: int | None = None, *, takes_out: bool = True) -> Desk:
    """Windows of two definitions, then something is taken out, then time goes on; the process ends at a point."""
    with_it, without, _ = GONE[what]
    last = others() if what == "view" else shop(BOUND, *without)
    known = [(0, shop(*with_it)), (3, shop(BOUND, *with_it)), (5, last)]
    desk = Desk(holding(*known[:1]))
    give(desk, "pages", 0, 1, 2)
    desk.change(holding(*known[:2]))
    give(desk, "pages@2", 3, 4)
    desk.tell(6000)
    desk.machine.cut_after = cut
    if takes_out:
        desk.change(holding(*known))
    desk.tell(60_000)
    desk.machine.cut_after = None
    desk.reader.restart()
    desk.tell(120_000)
    return desk


@pytest.mark.parametrize("what", kept_ordinary(["sharpen", "audience"], GONE))
def test_what_was_taken_out_makes_no_window_of_a_former_edition_finer(what: str) -> None:
    *_, audience = GONE[what]
    first = [(second, 1, "middle" if audience == "staff" else "coarse") for second in range(5)]
    assert {(second, 2, "fine") for second in range(5)} <= {*told(taken_out(what, takes_out=False), audience)}
    desk = taken_out(what)
    assert told(desk, audience) == first
    assert told(desk, "partner") == [(second, 1, "coarse") for second in range(5)]
    desk.auditor.settled()


@pytest.mark.parametrize("what", ordinarily(1, GONE))
def test_what_was_taken_out_stays_out_wherever_the_process_ends(what: str) -> None:
    whole = taken_out(what)
    for cut in range(0, 40, 6):
        desk = taken_out(what, cut)
        assert newest(desk.published()) == newest(whole.published())
        desk.auditor.settled()


# -- what holds in its place --------------------------------------------------------------------------------------


def test_a_new_schedule_unlocks_the_windows_of_former_editions() -> None:
    known = [(0, shop()), (3, shop(BOUND)), (5, shop(BOUND, UNLOCKED))]
    desk = Desk(holding(*known[:2]))
    give(desk, "pages", 0, 1, 2)
    desk.change(holding(*known))
    desk.tell(60_000)
    assert [one for one in told(desk, "public") if one[1] == 2] == [(second, 2, "fine") for second in range(3)]
    desk.auditor.settled()


def test_a_window_that_is_still_to_come_goes_to_who_is_left_no_finer_than_now_and_than_then() -> None:
    lowered = (AUDIENCES, "audiences: {late: fine, staff: coarse, public: middle}")
    known = [(0, shop()), (3, shop(lowered))]
    desk = Desk(holding(*known[:1]))
    give(desk, "pages", 0)
    desk.change(holding(*known))
    give(desk, "pages", 1)
    assert [told(desk, name)[-1] for name in ("staff", "public")] == [(1, 1, "coarse"), (1, 1, "coarse")]
    assert told(desk, "partner") == [(0, 1, "coarse")]
    assert told(desk, "late") == [], "that would cost more than it did"
    give(desk, "pages", 2, 3)
    assert [told(desk, name)[-1][2] for name in ("staff", "public", "late")] == ["coarse", "middle", "fine"]
    desk.auditor.settled()


def test_a_window_whose_audiences_are_all_gone_goes_to_those_of_today() -> None:
    """Another name for the readers costs no window; who comes anew sees it no finer than anybody did."""
    renamed = (AUDIENCES, "audiences: {team: fine}")
    desk = Desk(holding((0, shop()), (3, shop(renamed))))
    give(desk, "pages", 0, 1, 2, 3)
    assert told(desk, "team") == [*((second, 1, "middle") for second in range(3)), (3, 1, "fine")]
    assert {name: told(desk, name) for name in ("staff", "public", "partner")} == {
        "staff": [],
        "public": [],
        "partner": [],
    }
    desk.auditor.settled()


def test_a_window_that_nobody_may_see_is_not_made_and_costs_nothing() -> None:
    """The ladder has other names now, and less than the coarsest level then."""
    ladder = (
        'three: [{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}]',
        'three: [{level: low, epsilon: "1/2"}, {level: high, epsilon: "3/4"}]',
    )
    fewer = (AUDIENCES, "audiences: {public: low, staff: high}")
    desk = Desk(holding((0, shop()), (3, shop(ladder, fewer))))
    give(desk, "pages", 0, 1, 2)
    assert desk.published() == []
    give(desk, "pages@2", 3, 4)
    assert told(desk, "staff") == [(3, 1, "high"), (4, 1, "high")]
    assert not [key for key in desk.machine.rows if key.startswith((WINDOW + text("pages"), TABLE + text("pages")))]
    desk.auditor.settled()


# -- what waits for its slot --------------------------------------------------------------------------------------


def spent(desk: Desk) -> list[str]:
    return [str(ledger.spent) for ledger in read_ledgers(desk.machine.rows.items()).values()]


@pytest.mark.parametrize("cut", spread(3, [None, 0, 1, 2, 3, 5, 8]))
def test_a_release_that_waits_for_its_slot_does_not_leave_for_an_audience_that_is_gone(cut: int | None) -> None:
    known = [(0, shop()), (3, shop(BOUND)), (5, shop(BOUND, NOBODY_MORE))]
    desk = Desk(holding(*known[:2]), until_ms=0)
    give(desk, "pages", 0, 1)
    before = spent(desk)
    desk.machine.cut_after = cut
    desk.change(holding(*known))
    desk.machine.cut_after = None
    desk.slot(30_000)
    desk.reader.restart()
    assert told(desk, "public") == []
    assert told(desk, "staff") == [(0, 1, "middle"), (1, 1, "middle")]
    assert spent(desk) == before
    desk.change(holding(*known, (7, shop(BOUND))))
    desk.slot(40_000)
    assert told(desk, "public") == [(0, 2, "coarse"), (1, 2, "coarse")], "it is there again, and that is free"
    assert spent(desk) == before


@pytest.mark.parametrize("is_slow", [False, True])
def test_audience_that_returns_has_first_revisions(*, is_slow: bool) -> None:
    """The slots had come when the audience was removed. How fast the worker publishes does not matter."""
    known = [(0, shop()), (5, shop(NOBODY_MORE)), (7, shop())]
    desk = Desk(holding(*known[:1]), until_ms=0)
    give(desk, "pages", 0, 1)
    desk.tell(10_000)
    if not is_slow:
        desk.slot(10_000)
    accepted_ms = {5: 11_000, 7: 21_000}
    desk.change(holding(*known[:2], accepted_ms=accepted_ms))
    desk.slot(20_000)
    desk.change(holding(*known, accepted_ms=accepted_ms))
    desk.slot(30_000)
    assert told(desk, "public") == [(0, 1, "coarse"), (1, 1, "coarse")]
    desk.auditor.settled()


@pytest.mark.parametrize("at_once", [False, True])
def test_settings_that_a_worker_missed_void_the_same(*, at_once: bool) -> None:
    """It was down, or slow: it goes by the last settings at once, and those before them took an audience out."""
    known = [(0, shop()), (5, shop(NOBODY_MORE)), (7, shop(NOBODY_MORE, ("retention: 1h", "retention: 2h")))]
    accepted_ms = {5: 1, 7: 21_000}
    desk = Desk(holding(*known[:1]), until_ms=0)
    give(desk, "pages", 0, 1)
    if not at_once:
        desk.change(holding(*known[:2], accepted_ms=accepted_ms))
    desk.change(holding(*known, accepted_ms=accepted_ms))
    desk.slot(30_000)
    assert told(desk, "public") == []


@pytest.mark.parametrize("restarts", [False, True])
def test_restart_voids_nothing_that_a_grant_left(*, restarts: bool) -> None:
    """The slots had come when the grant was given, and the worker publishes late."""
    desk = Desk(holding((0, shop())), until_ms=0)
    give(desk, "pages", 0, 1)
    desk.tell(10_000)
    desk.grant(1, "staff", "coarse", now_ms=11_000)
    if restarts:
        desk.reader.restart()
    desk.slot(30_000)
    assert [level for *_, level in told(desk, "staff")] == ["middle", "middle"]
    desk.auditor.settled()


@pytest.mark.parametrize("order_first", [False, True])
def test_grant_voids_nothing_of_other_audiences(*, order_first: bool) -> None:
    """Settings took one out after its slots had come. Whether a worker hears first of the grant decides nothing."""
    known = [(0, shop()), (5, shop(NOBODY_MORE))]
    desk = Desk(holding(*known[:1]), until_ms=0)
    give(desk, "pages", 0, 1)
    desk.tell(10_000)
    if order_first:
        desk.grant(1, "staff", "coarse", now_ms=1)
    desk.change(holding(*known, accepted_ms={5: 11_000}))
    if not order_first:
        desk.grant(1, "staff", "coarse", now_ms=1)
    desk.slot(30_000)
    assert told(desk, "public") == [(0, 1, "coarse"), (1, 1, "coarse")]


@pytest.mark.parametrize("cut", spread(3, [None, 0, 1, 2, 3, 5, 8]))
@pytest.mark.parametrize("made_of_panes", [False, True])
def test_a_revision_that_waits_for_its_slot_does_not_leave_when_its_unlock_is_gone(
    cut: int | None, *, made_of_panes: bool
) -> None:
    panes = (
        "kind: histogram\n    items_per_user: 1\n    window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}\n"
        '    delta: "1/100"',
        "kind: catalogue\n    catalogue: [cart, home]\n    items_per_user: 1\n    "
        "window: {size: 2s, step: 1s, pane: 1s, "
        "start: 1970-01-01T00:00:00Z, grace: 0s}",
    )
    kind = [panes] if made_of_panes else []
    known = [(0, shop(*kind, UNLOCKED)), (3, shop(*kind, UNLOCKED, ("buckets: 2", "buckets: 1"))), (5, shop(*kind))]
    desk = Desk(holding(*known[:2]), until_ms=0)
    give(desk, "pages", 0, 1)
    desk.slot(10_000)
    first = told(desk, "public")
    desk.tell(UNLOCKED_MS)
    before = spent(desk)
    desk.machine.cut_after = cut
    desk.change(holding(*known))
    desk.machine.cut_after = None
    desk.slot(70_000)
    desk.reader.restart()
    assert told(desk, "public") == first
    assert spent(desk) == before
    desk.machine.cut_after = None if cut is None else 4 * cut
    desk.change(holding(*known, (7, shop(*kind, UNLOCKED))))
    desk.tell(80_000)
    desk.machine.cut_after = None
    desk.slot(90_000)
    again = sorted({*told(desk, "public")[len(first) :]})
    assert [level for *_, level in again] == ["fine"] * len(first), "though a crash may publish it twice"
    assert spent(desk) == before, "what was drawn stays paid, and costs nothing more"


def test_a_call_that_a_crash_left_open_costs_nothing_more_where_its_level_was_drawn_and_revoked() -> None:
    known = [(0, shop(UNLOCKED)), (5, shop())]
    desk = Desk(holding(*known[:1]), until_ms=0)
    give(desk, "pages", 0)
    desk.slot(10_000)
    desk.tell(UNLOCKED_MS)
    desk.change(holding(*known))
    view, row = desk.plan.views["pages"], stored_window("pages", 0, desk.machine)
    assert row is not None
    assert (row.states["public"].level, row.steps[-1], row.finest) == (COARSE, FINE, FINE)
    table = stored_table("pages", 0, desk.machine)
    cost, shares, *_ = price(view, Call("pages", 0, "public", COARSE, FINE, FINE), table, row)
    assert cost == Cost.ZERO
    assert shares["public"] == view.counts(FINE) - view.counts(COARSE)


def test_a_refusal_that_waits_for_its_slot_does_not_leave_for_an_audience_that_is_gone() -> None:
    poor = ('epsilon: "40", delta: "1/5", period: 4s', 'epsilon: "3", delta: "1/5", period: 80s')
    known = [(0, plan(poor, ONLY_PAGES)), (5, plan(poor, ONLY_PAGES, NOBODY_MORE))]
    desk = Desk(holding(*known[:1]), until_ms=0)
    give(desk, "pages", 0, 1)
    desk.change(holding(*known))
    desk.slot(30_000)
    assert [one.type for one in desk.records("pages", "staff")] == ["release", "refusal"]
    assert desk.records("pages", "public") == []


# -- a view that was taken out ------------------------------------------------------------------------------------


def expired(cut: int | None = None, *, clock: str = "wall") -> Desk:
    """A view with two definitions is taken out, and its retention passes."""
    edits = ("retention: 1h", "retention: 3s"), ("grace: 0s}", f"grace: 0s, clock: {clock}}}")
    both = [(0, plan(RICH, *edits)), (3, plan(RICH, BOUND, *edits))]
    desk = Desk(holding(*both))
    for name, seconds in (("tops", (0, 1, 2)), ("tops@2", (3, 4))):
        give(desk, name, *seconds)
    give(desk, "pages", 0, 1, 2)
    give(desk, "pages@2", 3, 4)
    desk.tell(5000)
    desk.machine.cut_after = cut
    desk.change(holding(*both, (5, plan(RICH, ONLY_PAGES, BOUND, *edits))))
    desk.tell(20_000)
    for second in range(5, 20):
        give(desk, "pages@2", second)
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


@pytest.mark.parametrize("clock", ["wall", "event"])
def test_the_windows_of_a_view_that_was_taken_out_expire_but_for_the_newest(clock: str) -> None:
    """By the event clock with the windows of another view of its source."""
    desk = expired(clock=clock)
    assert {key for key in standing(desk) if key.startswith(b"tops/")} == {
        b"tops/%s/4000" % name for name in (b"partner", b"public", b"staff")
    }
    assert not [key for key in desk.machine.rows if key.startswith((WINDOW + text("tops"), TABLE + text("tops")))]
    rows = [decode(WindowRow, value) for key, value in desk.machine.changelog if key.startswith(b"w\x04tops") and value]
    left = b"".join([*desk.machine.rows.values(), *(value for _, value in desk.machine.outdated)])
    assert {row.secret for row in rows if row.secret}
    assert not [row for row in rows if row.secret and row.secret in left]
    desk.auditor.settled()


def test_windows_of_a_view_that_was_taken_out_stay_until_their_retention_is_over() -> None:
    edit = ("retention: 1h", "retention: 10s")
    known = [(0, plan(RICH, edit)), (3, plan(RICH, ONLY_PAGES, edit))]
    desk = Desk(holding(*known))
    give(desk, "tops", 0, 1, 2)
    told_at = ((11_999, [0, 1, 2], 12_000), (12_000, [1, 2], 13_000), (13_000, [2], None), (60_000, [2], None))
    for now_ms, kept, due_ms in told_at:
        desk.tell(now_ms)
        left = {key for key in standing(desk) if key.startswith(b"tops/staff/")}
        assert left == {b"tops/staff/%d" % (1000 * second) for second in kept}
        engine = desk.engine()
        desk.machine.carry_out(engine.load(desk.machine, now_ms=now_ms))
        assert engine.due_ms == due_ms, "the runtime tells the time by then"


@pytest.mark.parametrize("step", [199, pytest.param(67, marks=pytest.mark.slow)])
def test_a_view_expires_wherever_the_process_ends(step: int) -> None:
    whole = expired()
    for cut in range(0, 400, step):
        desk = expired(cut)
        assert newest(desk.published()) == newest(whole.published())
        desk.auditor.settled()


def test_panes_of_a_view_that_was_taken_out_expire_though_no_window_was_told_of() -> None:
    panes = (
        "kind: histogram\n    items_per_user: 1\n    window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}\n"
        '    delta: "1/100"',
        "kind: catalogue\n    catalogue: [cart, home]\n    items_per_user: 1\n    "
        "window: {size: 4s, step: 1s, pane: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}",
    )
    kept = ("retention: 1h\n    buckets: 2", "retention: 3s\n    buckets: 2")
    desk = Desk(holding((0, shop(panes, kept)), (2, others())))
    give(desk, "pages", 0, 1)
    assert [key for key in desk.machine.rows if key.startswith(TABLE + text("pages"))]
    desk.tell(60_000)
    assert not [key for key in desk.machine.rows if key.startswith((TABLE + text("pages"), WINDOW + text("pages")))]


# -- who comes later ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "gets"), [("coarse", [0, 1, 2, 3]), ("middle", [0, 1, 2, 3]), ("fine", [1, 2])])
def test_who_comes_later_gets_exactly_the_windows_that_somebody_has_as_fine(level: str, gets: list[int]) -> None:
    """As the threat model says: it learns which these are."""
    desk = Desk(holding((0, shop())))
    give(desk, "pages", 0, 1, 2, 3)
    desk.grant(1, "partner", "fine", 0, Scope(from_ms=1000, until_ms=3000))
    late = (AUDIENCES, f"audiences: {{partner: coarse, public: coarse, staff: middle, late: {level}}}")
    desk.change(holding((0, shop()), (9, shop(late))))
    assert told(desk, "late") == [(second, 1, level) for second in gets]


# -- grants -------------------------------------------------------------------------------------------------------


def granted(level: str, scope: Scope = EVERYTHING, cut: int | None = None) -> Desk:
    """Windows of two definitions; a grant for an audience that begins at the coarsest level; then its unlock is due."""
    known = [(0, shop(UNLOCKED)), (3, shop(UNLOCKED, BOUND))]
    desk = Desk(holding(*known))
    give(desk, "pages", 0, 1, 2)
    give(desk, "pages@2", 3)
    desk.tell(5000)
    desk.machine.cut_after = cut
    desk.grant(1, "public", level, 5000, scope)
    give(desk, "pages@2", 4)
    desk.tell(60_000)
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


@pytest.mark.parametrize("cut", [None, 0, 1, 2, 3, 5])
def test_a_grant_of_none_ends_an_audience_of_all_editions_until_the_next_one(cut: int | None) -> None:
    desk = granted("none", cut=cut)
    first = [(second, 1, "coarse") for second in range(4)]
    assert told(desk, "public") == first
    assert told(desk, "staff")[-1] == (4, 1, "middle")
    desk.grant(2, "public", "coarse", 61_000)
    assert told(desk, "public")[4:] == [(4, 1, "coarse")], "an unlock that was held back does not come by itself"
    desk.grant(3, "public", "fine", 62_000)
    assert told(desk, "public")[5:] == [(second, 2, "fine") for second in range(5)]
    desk.auditor.settled()


def test_a_grant_of_none_for_retained_windows_leaves_those_to_come() -> None:
    """And the retained ones as they are, though the schedule would unlock them."""
    desk = granted("none", Scope(windows="retained"))
    assert told(desk, "public") == [*((second, 1, "coarse") for second in range(5)), (4, 2, "fine")]


def test_a_grant_of_none_begins_no_window_that_nobody_else_may_see() -> None:
    desk = Desk(holding((0, shop((AUDIENCES, "audiences: {public: coarse}")))))
    desk.grant(1, "public", "none")
    give(desk, "pages", 0)
    assert desk.published() == []
    desk.grant(2, "public", "fine", 1000)
    give(desk, "pages", 1)
    assert told(desk, "public") == [(1, 1, "fine")]
    desk.auditor.settled()


@pytest.mark.parametrize("level", ["none", "coarse"])
@pytest.mark.parametrize("at_ms", [None, 61_000])
def test_a_grant_stops_what_waits_for_its_slot(level: str, at_ms: int | None) -> None:
    """A revision that another grant asked for; one that is carried out at a time does so, too."""
    known = [(0, shop()), (3, shop(BOUND))]
    desk = Desk(holding(*known), until_ms=0)
    give(desk, "pages", 0, 1)
    desk.slot(10_000)
    desk.grant(1, "public", "fine", 60_000)
    before = spent(desk)
    desk.grant(2, "public", level, 60_500, at_ms=at_ms)
    desk.tell(61_000)
    desk.slot(90_000)
    assert [one for one in told(desk, "public") if one[1] > 1] == []
    assert spent(desk) == before


@pytest.mark.parametrize("at_ms", [None, 600])
@pytest.mark.parametrize("restarts", [False, True])
def test_who_is_lowered_before_a_window_leaves_gets_it_at_the_lower_level(at_ms: int | None, *, restarts: bool) -> None:
    """Whether the process ends in between or not."""
    desk = Desk(holding((0, shop())), until_ms=0)
    desk.grant(1, "public", "fine")
    give(desk, "pages", 0, 1)
    before = spent(desk)
    desk.grant(2, "public", "coarse", 500, at_ms=at_ms)
    desk.tell(600)
    if restarts:
        desk.reader.restart()
    desk.slot(10_000)
    assert told(desk, "public") == [(0, 2, "coarse"), (1, 2, "coarse")]
    assert spent(desk) == before
    desk.grant(3, "public", "fine", 15_000)
    desk.slot(90_000)
    assert told(desk, "public")[2:] == [(0, 3, "fine"), (1, 3, "fine")]
    assert spent(desk) == before, "the finest level was paid for when it was drawn"


@pytest.mark.parametrize("cut", spread(4, range(0, 40, 3)))
@pytest.mark.parametrize("lowered", ["none", "coarse"])
def test_what_was_taken_back_counts_once_among_what_an_audience_was_told(lowered: str, cut: int) -> None:
    desk = Desk(holding((0, shop())), until_ms=0)
    desk.grant(1, "public", "middle")
    give(desk, "pages", 0, 1)
    desk.grant(2, "public", lowered, 500)
    desk.machine.cut_after = cut
    desk.grant(3, "public", "middle", 5000)
    desk.slot(10_000)
    desk.machine.cut_after = None
    desk.grant(4, "public", "fine", 11_000)
    desk.slot(90_000)
    (ledger,) = read_ledgers(desk.machine.rows.items()).values()
    newest = desk.records("pages", "public")[-1]
    assert ledger.readers["public"] == newest.privacy.period.cost == ledger.spent
    assert ledger.spent.epsilon == 2 * 4
    desk.auditor.settled()


@pytest.mark.parametrize("level", [None, "coarse", "fine"])
def test_a_grant_lets_nothing_leave_to_an_audience_that_was_taken_out(level: str | None) -> None:
    desk = Desk(holding((0, shop())), until_ms=0)
    if level is not None:
        desk.grant(1, "public", level)
    give(desk, "pages", 0, 1)
    desk.change(holding((0, shop()), (9, shop(NOBODY_MORE))))
    desk.slot(90_000)
    assert told(desk, "public") == []
    assert told(desk, "staff") == [(0, 1, "middle"), (1, 1, "middle")]


@pytest.mark.parametrize("first", [True, False])
def test_a_window_of_panes_that_was_lowered_before_it_left_comes_as_fine_as_is_asked(*, first: bool) -> None:
    """Its panes stay paid for at the finest level."""
    desk = Desk(holding((0, panes_shop(("paned",)))), until_ms=0)
    if first:
        desk.grant(1, "partner", "fine")
    for start in range(0, 50_000, 10_000):
        desk.give("paned", start, COUNTS)
    if not first:
        desk.slot(10_000)
        desk.grant(1, "partner", "fine", 60_000)
    desk.grant(2, "partner", "coarse", 1000 if first else 60_000)
    desk.reader.restart()
    desk.slot(70_000)
    seen = [(0, "coarse"), (10, "coarse"), (20, "coarse")]
    assert levels_of(desk, "paned", "partner") == seen
    desk.grant(3, "partner", "middle", 71_000)
    desk.slot(90_000)
    assert levels_of(desk, "paned", "partner")[3:] == [(start, "middle") for start, _ in seen]


@pytest.mark.parametrize("now", ["middle", "none"])
def test_a_grant_holds_for_windows_of_a_ladder_without_its_level(now: str) -> None:
    """It comes to the level that the newest ladder's name comes to; staff began these windows with high."""
    old = (
        '[{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}',
        '[{level: low, epsilon: "1"}, {level: high, epsilon: "2"}',
    )
    start = (AUDIENCES, "audiences: {partner: low, public: low, staff: high}")
    unlocked = (
        AUDIENCES,
        "audiences: {partner: coarse, public: coarse, staff: {level: middle, unlock: [{level: fine, after: 50s}]}}",
    )
    known = [(0, shop(old, start)), (3, shop(unlocked))]
    desk = Desk(holding(*known))
    give(desk, "pages", 0, 1)
    desk.grant(1, "staff", "none" if now == "none" else "coarse", 5000)
    desk.tell(60_000)
    assert told(desk, "staff") == [(0, 1, "high"), (1, 1, "high")]
    desk.grant(2, "staff", "middle", 61_000)
    desk.tell(61_000)
    desk.reader.restart()
    assert [one for one in told(desk, "public") if one[1] > 1] == []


# -- what keeps the newest that was told --------------------------------------------------------------------------


@pytest.mark.parametrize("cut", spread(3, [None, 0, 1, 2, 3, 5, 8, 13]))
@pytest.mark.parametrize("definitions", [1, 2])
def test_windows_that_were_taken_back_before_they_left_let_nothing_expire(definitions: int, cut: int | None) -> None:
    """Else no topic would tell up to where windows were released, and state that is lost would be drawn again."""
    kept = ("retention: 1h\n    buckets: 2", "retention: 2s\n    buckets: 2")
    known = [(0, shop(kept)), (3, shop(kept, BOUND))][:definitions]
    desk = Desk(holding(*known), until_ms=0)
    give(desk, "pages", 0, 1)
    desk.slot(3000)
    seen = standing(desk)
    for second in range(2, 9):
        desk.give("pages" if second < 3 or definitions == 1 else "pages@2", 1000 * second, COUNTS, closed_ms=15_000)
    desk.machine.cut_after = cut
    for number, audience in enumerate(("partner", "public", "staff"), 1):
        desk.grant(number, audience, "none", 16_000)
    desk.machine.cut_after = None
    desk.slot(90_000)
    desk.reader.restart()
    desk.slot(99_000)
    newest_told = {key for key in seen if key.endswith(b"/1000")}
    assert newest_told
    assert newest_told <= standing(desk) <= seen
    desk.machine.rows.clear()
    with pytest.raises(ConfigError):
        desk.reader.restart()
