"""Grants of some windows and views, at a time: the newest whose scope has a window decides, through any crash."""

from __future__ import annotations

from collections.abc import Callable

from stream_dp.control.grant_records import Scope
from stream_dp.releases.clearances import ClearanceRow
from stream_dp.releases.rows import CLEARANCE, WINDOW
from stream_dp.windows.encoding import decode, text, window_key
from tests.support.releasing import EVERYTHING, ONLY_PAGES, Desk, WholeEngine, plan

HOME = {"home": 40, "cart": 12, "rare": 1}
RICH = (('epsilon: "40"', 'epsilon: "400"'), ("period: 4s", "period: 1h"), ('delta: "1/5"', 'delta: "9/10"'))
CHEAP = plan(ONLY_PAGES, *RICH)
TWO_PAGES = plan(
    (
        "  tops:\n",
        "  rests:\n    {source: visits, item: page, kind: histogram, items_per_user: 1, "
        'delta: "1/100", ledger: visitors,\n'
        "     ladder: three, window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}}\n  tops:\n",
    ),
    *RICH,
)


def levels(desk: Desk, audience: str, view: str = "pages") -> dict[int, tuple[int, str]]:
    """By window: revision and level of the newest release."""
    return {
        record.window.start_ms: (record.revision, record.level.name)
        for record in desk.records(view, audience)
        if record.type == "release"
    }


def released(*starts: int) -> Desk:
    desk = Desk(CHEAP)
    for start in starts:
        desk.give("pages", start, HOME)
    return desk


def test_a_grant_for_retained_windows_leaves_those_to_come_and_one_for_those_leaves_the_others() -> None:
    desk = released(0, 1000)
    desk.grant(1, "public", "fine", scope=Scope(windows="retained"))
    desk.give("pages", 2000, HOME)
    assert levels(desk, "public") == {0: (2, "fine"), 1000: (2, "fine"), 2000: (1, "coarse")}
    desk.grant(2, "partner", "fine", scope=Scope(windows="future"))
    desk.reader.restart()
    desk.give("pages", 3000, HOME)
    assert levels(desk, "partner") == {**dict.fromkeys((0, 1000, 2000), (1, "coarse")), 3000: (1, "fine")}
    desk.auditor.settled()


def test_a_grant_between_two_starts_is_about_no_other_window_released_or_not() -> None:
    desk = released(0, 1000)
    desk.grant(1, "public", "fine", scope=Scope(from_ms=1000, until_ms=3000))
    for start in (2000, 3000):
        desk.give("pages", start, HOME)
    assert levels(desk, "public") == {0: (1, "coarse"), 1000: (2, "fine"), 2000: (1, "fine"), 3000: (1, "coarse")}
    desk.auditor.settled()


def test_a_grant_of_one_view_leaves_the_others_alone() -> None:
    desk = Desk(TWO_PAGES)
    for view in ("pages", "rests"):
        desk.give(view, 0, HOME)
    desk.grant(1, "public", "fine", scope=Scope(("rests",)))
    assert (levels(desk, "public"), levels(desk, "public", "rests")) == ({0: (1, "coarse")}, {0: (2, "fine")})


def test_a_newer_grant_of_another_scope_decides_only_there() -> None:
    desk = released(0)
    desk.grant(1, "public", "fine")
    desk.grant(2, "public", "coarse", scope=Scope(windows="future"))
    desk.grant(3, "public", "middle", scope=Scope(from_ms=2000, until_ms=3000))
    for start in (1000, 2000, 3000):
        desk.give("pages", start, HOME)
    assert levels(desk, "public") == {0: (2, "fine"), 1000: (1, "coarse"), 2000: (1, "middle"), 3000: (1, "coarse")}


def test_a_grant_waits_for_its_time_and_is_carried_out_once() -> None:
    desk = released(0)
    desk.grant(1, "public", "fine", now_ms=10, at_ms=5000)
    desk.tell(4999)
    assert levels(desk, "public") == {0: (1, "coarse")}
    desk.reader.restart()
    desk.give("pages", 1000, HOME)
    desk.tell(5000)
    assert levels(desk, "public") == {0: (2, "fine"), 1000: (2, "fine")}
    rows, published = dict(desk.machine.rows), desk.published()
    desk.tell(6000)
    desk.grant(1, "public", "fine", now_ms=10, at_ms=5000)
    assert (desk.machine.rows, desk.published()) == (rows, published)


def test_a_grant_that_waits_can_be_withdrawn_and_one_that_was_carried_out_cannot() -> None:
    desk = released(0)
    desk.grant(1, "public", "fine", at_ms=5000)
    desk.grant(2, "public", None, at_ms=5000)
    desk.tell(5000)
    assert levels(desk, "public") == {0: (1, "coarse")}
    desk.grant(3, "public", "fine", at_ms=6000)
    desk.tell(6000)
    desk.grant(4, "public", None, at_ms=6000)
    desk.give("pages", 1000, HOME)
    assert levels(desk, "public") == {0: (2, "fine"), 1000: (1, "fine")}


def test_a_grant_that_waited_is_older_than_one_that_was_given_after_its_time() -> None:
    """It was carried out late, as after a downtime; the operator has lowered the level in between."""
    desk = released(0)
    desk.grant(1, "public", "fine", now_ms=100, at_ms=5000)
    desk.grant(2, "public", "coarse", now_ms=6000)
    desk.tell(7000)
    desk.give("pages", 1000, HOME)
    assert levels(desk, "public") == {0: (1, "coarse"), 1000: (1, "coarse")}


def test_a_grant_that_waited_is_newer_than_one_that_was_given_before_its_time() -> None:
    desk = released(0)
    desk.grant(1, "public", "fine", now_ms=100, at_ms=5000)
    desk.grant(2, "public", "middle", now_ms=1000)
    desk.tell(5000)
    desk.give("pages", 1000, HOME)
    assert levels(desk, "public") == {0: (3, "fine"), 1000: (1, "fine")}


def test_a_lower_grant_counts_though_the_clock_it_was_written_by_is_behind() -> None:
    desk = released(0)
    desk.grant(1, "public", "fine", now_ms=6000)
    desk.grant(2, "public", "coarse", now_ms=5000)
    desk.give("pages", 1000, HOME)
    assert levels(desk, "public")[1000] == (1, "coarse")


def test_grants_that_can_decide_nothing_any_more_are_forgotten() -> None:
    desk = released(0)
    for number in range(1, 40):
        desk.grant(number, "public", "fine" if number % 2 else "coarse", scope=EVERYTHING)
        desk.grant(100 + number, "partner", "fine", scope=Scope(windows="future"))
        desk.grant(200 + number, "staff", "fine", scope=Scope(from_ms=number * 1000, until_ms=(number + 1) * 1000))
    stored = {name: decode(ClearanceRow, desk.machine.rows[CLEARANCE + text(name)]) for name in desk.plan.audiences}
    assert {name: len(row.grants) for name, row in stored.items()} == {"public": 1, "partner": 1, "staff": 39}


def test_a_window_whose_release_a_crash_cut_short_was_released_if_its_row_is_stored() -> None:
    """A grant for retained windows comes due meanwhile; the row of the view may be one window behind."""
    found = set()
    for cut in range(0, 40, 3):
        desk, stored = Desk(CHEAP), list[bool]()
        made = desk.reader.new

        def new(desk: Desk = desk, stored: list[bool] = stored, made: Callable[[], WholeEngine] = made) -> WholeEngine:
            stored.append(window_key(WINDOW, "pages", 0) in desk.machine.rows)
            return made()

        desk.reader.new = new
        desk.grant(1, "public", "fine", scope=Scope(windows="retained"), at_ms=5000)
        desk.published_ms, desk.machine.cut_after = 6000, cut
        desk.give("pages", 0, HOME)
        desk.machine.cut_after = None
        desk.reader.load()
        restarted, was_stored = len(stored) == 2, stored[-1]
        expected = (2, "fine") if restarted and was_stored else (1, "coarse")
        assert levels(desk, "public")[0] == expected
        found.add((restarted, was_stored))
    assert found == {(True, False), (True, True), (False, False)}
