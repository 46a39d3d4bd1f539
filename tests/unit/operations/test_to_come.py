"""What `stream-dp status` says becomes sharper next is what the engine then publishes, at that time and not before."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stream_dp.config.plan import Plan
from stream_dp.control.editions import Posted, next_record, plan_holding
from stream_dp.operations.progress import ToCome, sharper_to_come
from stream_dp.releases.rows import stored_view
from tests.support.chosen import spread
from tests.support.panes import COUNTS, paned
from tests.support.releasing import ONLY_PAGES, Desk, plan
from tests.support.running import running

RISING = (
    "audiences: {partner: coarse, public: coarse, staff: middle}",
    "audiences: {partner: coarse, staff: middle,\n"
    "  public: {level: coarse, unlock: [{level: middle, after: 3s}, {level: fine, after: 6s}]}}",
)
HIGHER = ("partner: coarse, staff", "partner: middle, staff")
MIDDLE_FIRST = ("level: coarse, unlock: [{level: middle, after: 3s}, ", "level: middle, unlock: [")
RICH = (("period: 4s", "period: 24s"), ('epsilon: "40", delta: "1/5"', 'epsilon: "4000", delta: "9/10"'))
EVENT = ("grace: 0s}", "grace: 0s, clock: event}")
SPENDS = ("buckets: 2", "buckets: 2\n    sharpen: {audience: staff, level: fine, every: 4s}")
HOPPING = ("{size: 1s,", "{size: 3s, step: 1s,")
SHARPER = ('fine, epsilon: "4"', 'fine, epsilon: "5"')
COUNTED = {start: COUNTS[start // 1000 % len(COUNTS)] for start in range(0, 24_000, 1000)}


def holding(*begun: tuple[int, Plan]) -> Plan:
    """The plan that holds when settings of the view begin at these times."""
    known: list[Posted] = []
    for from_ms, wanted in begun:
        known.append(next_record(known, wanted, {"pages": from_ms}, {}, 0))
    return plan_holding(known, begun[0][1])


def tumbling(*changes: tuple[str, str]) -> Plan:
    return plan(ONLY_PAGES, RISING, *RICH, *changes)


PLANS = {
    "tumbling": holding((0, tumbling())),
    "hopping": holding((0, tumbling(HOPPING))),
    "panes": holding((0, paned(3, 1, RISING, *RICH))),
    "panes of which some end no window": holding((0, paned(3, 2, RISING, *RICH))),
    "totals": holding((0, running(RISING, RICH[1]))),
    "another definition": holding((0, tumbling()), (4000, tumbling(SHARPER))),
    "other readers": holding((0, tumbling()), (4000, tumbling(HIGHER))),
    "public starts higher at first": holding((0, tumbling(MIDDLE_FIRST)), (4000, tumbling())),
    "longer windows of panes": holding((0, paned(2, 1, RISING, *RICH)), (4000, paned(3, 2, RISING, *RICH))),
}


def to_come(desk: Desk, now_ms: int) -> list[ToCome]:
    """What becomes sharper next, as a report of this engine would have it."""
    definitions = list(desk.plan.views.values())
    released = next(
        row.next_ms
        for one in definitions
        if (row := stored_view(one.name, desk.machine)) is not None
        and (one.until_ms is None or row.next_ms < one.until_ms)
    )
    return sorted(sharper_to_come(definitions, released, now_ms), key=lambda one: (one.at_ms, one.what))


def published(desk: Desk) -> Mapping[tuple[int, str, str], int]:
    """How often a window was released to an audience at a level beyond its first release."""
    found: dict[tuple[int, str, str], int] = {}
    for audience in desk.plan.audiences:
        for record in desk.records("pages", audience):
            if record.revision > 1:
                key = (record.window.start_ms, record.level.name, audience)
                found[key] = found.get(key, 0) + 1
    return found


def words(start: int, level: str, audience: str) -> str:
    seconds = f"{start // 1000:02d}"
    window = "1970-01-01" if start == 0 else f"1970-01-01T00:00:{seconds}Z"
    return f"window of {window} unlocked to {level} for {audience}"


def given(desk: Desk, starts: range) -> Desk:
    for start in starts:
        view = next(one for one in desk.plan.views.values() if one.asks_for(start))
        desk.give(view.name, start, COUNTED[start])
    return desk


@pytest.mark.parametrize("name", spread(2, PLANS))
def test_the_next_window_of_each_level_is_unlocked_at_that_time_and_no_other_one_before(name: str) -> None:
    desk = given(Desk(PLANS[name], audit=False), range(0, 12_000, 1000))
    now, seen = 0, 0
    while coming := to_come(desk, now):
        before, now = published(desk), coming[0].at_ms
        desk.tell(now - 1)
        assert published(desk) == before, "nothing comes earlier than what is next"
        assert to_come(desk, now - 1) == coming
        desk.tell(now)
        new = {words(*key) for key, count in published(desk).items() if count > before.get(key, 0)}
        assert new == {one.what for one in coming if one.at_ms == now}
        seen += len(new)
    after = published(desk)
    desk.tell(10**9)
    assert published(desk) == after, "nothing is left"
    assert seen > 2


@pytest.mark.parametrize("further", [(), (SHARPER,)], ids=["one definition", "another one an hour ahead"])
def test_by_the_clock_of_a_stream_what_is_next_comes_as_the_stream_moves_on(
    further: tuple[tuple[str, str], ...],
) -> None:
    begun = [(0, tumbling(EVENT))]
    desk = Desk(holding(*begun, *((3_600_000, tumbling(EVENT, one)) for one in further)), audit=False)
    for start in range(0, 12_000, 1000):
        coming = to_come(desk, 10**12) if start else []
        before = published(desk)
        given(desk, range(start, start + 1000, 1000))
        new = {words(*key) for key, count in published(desk).items() if count > before.get(key, 0)}
        assert new == {one.what for one in coming if one.at_ms <= start + 1000}
        assert {one.clock for one in coming} <= {"event"}
    assert len(published(desk)) == 9 + 6


def test_what_is_left_is_spent_at_that_time() -> None:
    desk = given(Desk(holding((0, plan(ONLY_PAGES, *RICH, SPENDS))), audit=False), range(0, 4000, 1000))
    desk.tell(2500)
    (coming,) = to_come(desk, 2500)
    what = "newest windows unlocked to fine for staff, from leftover budget; remove `sharpen` to stop it"
    assert coming == ToCome("pages", what, 4000)
    desk.tell(3999)
    assert not published(desk)
    desk.tell(4000)
    assert len(published(desk)) == 4
    (coming,) = to_come(desk, 4000)
    assert coming.at_ms == 8000
