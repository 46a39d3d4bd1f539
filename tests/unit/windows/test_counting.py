"""The counter of a source partition against an oracle that takes one event at a time, whatever is cut and repeated."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import ConfigError, StateError
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Commit, Erase, Send
from stream_dp.windows.rows import JOURNAL, MARKER, JournalRow, Marker, bucket_of, decode, text
from stream_dp.windows.views import HANDED_ON_AT_ONCE, CountedView
from tests.support.counting import (
    Entry,
    Oracle,
    by_crc32,
    counter,
    event,
    handed_on,
    letters,
    partials,
    view,
    watermark,
)
from tests.support.feeding import Feed
from tests.support.machine import Machine, deliver
from tests.support.phases import PHASES

MARKER_KEY = MARKER + text("visits")
VIEWS = (
    view("wall", max_ahead_ms=30),
    view("event", clock="event", size_ms=7, start_ms=-14, grace_ms=2, items_per_user=1, idle_ms=25, buckets=3),
    view("single", size_ms=25, grace_ms=0, items_per_user=3, buckets=1, max_ahead_ms=12),
    view("other", clock="event", size_ms=20, grace_ms=5, max_ahead_ms=9, idle_ms=15),
)
HORIZON = 140
"""When everything is closed: no event is later than 60, and an idle clock gets there in one step."""


# -- random streams, chunkings and crashes -----------------------------------------------------------------------


@dataclass(frozen=True)
class Script:
    """A log, and what happens to it: ("produce", n), ("fetch", n), ("tick", ms later), ("unknown", ms later)."""

    entries: list[Entry]
    actions: list[tuple[str, int]]
    cuts: list[int]
    back: int


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    entries: list[Entry] = []
    offset = 0
    for _ in range(draw(st.integers(0, 45))):
        offset += draw(st.sampled_from([0, 0, 0, 0, 0, 1, 2]))
        kind = draw(st.sampled_from(["event"] * 12 + ["watermark", "broken", "null", "keyless"]))
        if kind == "event":
            user = "u" + draw(st.sampled_from("0123456"))
            entries.append(event(offset, user, draw(st.sampled_from("abcdef")), draw(st.integers(-20, 60))))
        elif kind == "watermark":
            entries.append(watermark(offset, draw(st.integers(-20, 90))))
        elif kind == "broken":
            entries.append(Entry(offset, b"u1", b"{"))
        elif kind == "null":
            entries.append(Entry(offset, b"u1", None))
        else:
            entries.append(Entry(offset, None, event(0, "u", "a", 1).value))
        offset += 1
    entries.append(watermark(offset, HORIZON))
    action = st.one_of(
        st.tuples(st.just("produce"), st.integers(1, 12)),
        st.tuples(st.just("fetch"), st.integers(1, 9)),
        st.tuples(st.just("fetch"), st.integers(1, 9)),
        st.tuples(st.just("tick"), st.integers(0, 9)),
        st.tuples(st.just("unknown"), st.integers(0, 9)),
    )
    cuts = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 120)), max_size=6)
    return Script(entries, draw(st.lists(action, max_size=40)), draw(cuts), draw(st.integers(0, 6)))


def misplaced(user: bytes) -> bool:
    return by_crc32(3)(user) != 0


def play(script: Script, cuts: list[int]) -> Feed:
    """Carry a script out to its end; a watermark is read before the next tick, which would else count as idle time."""
    feed = Feed(
        script.entries,
        lambda: counter(*VIEWS, partitioner=by_crc32(3)),
        Oracle.of(VIEWS, misplaced),
        cuts=cuts,
        back=script.back,
    )
    for action, amount in script.actions:
        if action == "produce":
            feed.produce(amount)
        elif action == "fetch":
            feed.fetch(amount)
        else:
            while any(not entry.value and entry.headers for entry in script.entries[feed.read : feed.produced]):
                feed.fetch(5)
            feed.now += amount
            feed.tick(known=action == "tick")
    feed.now = HORIZON
    feed.settle()
    feed.now = HORIZON + 60
    feed.tick()
    return feed


def expected(oracle: Oracle) -> dict[str, dict[int, dict[str, int]]]:
    return {one.view.name: {start: one.counts(start) for start in one.closed_windows()} for one in oracle.views}


@settings(derandomize=True, max_examples=120, deadline=None, phases=PHASES)
@given(scripts())
def test_partials_of_closed_windows_equal_the_oracle_whatever_is_cut_and_read_again(script: Script) -> None:
    feed = play(script, script.cuts)

    assert handed_on(feed.machine.sent) == expected(feed.oracle)
    assert all(one.closed_windows()[-1] + one.view.size_ms > 60 for one in feed.oracle.views)
    assert feed.machine.rows.keys() == {MARKER_KEY}
    assert feed.machine.unerased(JOURNAL) == []
    assert letters(feed.machine.sent) >= feed.oracle.letters()


@settings(derandomize=True, max_examples=60, deadline=None, phases=PHASES)
@given(scripts())
def test_without_a_crash_everything_is_handed_on_once_and_every_refusal_counted_once(script: Script) -> None:
    feed = play(script, [])
    machine = feed.machine

    seen = [(p.view, p.start_ms, p.bucket, p.partition) for p in partials(machine.sent)]
    assert len(seen) == len(set(seen))
    assert letters(machine.sent) == feed.oracle.letters()
    refused = {labels: n for (name, labels), n in machine.counts.items() if name == "events_refused"}
    assert refused == {(("reason", r), ("view", v)): n for (r, v), n in feed.oracle.tally().items()}
    assert machine.counts["events_consumed", ()] == len(script.entries)
    assert machine.counts["events_replayed", ()] == 0
    for name, windows in expected(feed.oracle).items():
        assert machine.counts["windows_closed", (("view", name),)] == len(windows)


# -- every single cut of one run ------------------------------------------------------------------------------------

DAY = [
    [event(0, "u1", "a", 1), event(1, "u2", "a", 2), event(2, "u1", "b", 12), Entry(3, b"u1", b"[")],
    [event(4, "u1", "b", 3), event(5, "u1", "c", 4), event(6, "u3", "a", 12), event(8, "u2", "a", 5)],
    [watermark(9, 13), event(10, "u1", "a", 1), event(11, "u2", "d", 15)],
    [event(12, "u1", "a", 31), watermark(13, 47)],
]
DAY_VIEWS = (view("wall"), view("event", clock="event", buckets=1))


def day(now: int = 60) -> Machine:
    machine = Machine()
    deliver(machine, lambda: counter(*DAY_VIEWS), steps(now))
    return machine


def steps(now: int) -> list[object]:
    chunks = [lambda one, chunk=chunk: one.chunk(chunk, now - 1) for chunk in DAY]
    tick = lambda one: one.tick(now, 14, drained=True)  # noqa: E731
    return [chunks[0], chunks[1], chunks[2], chunks[3], tick, lambda one: one.tick(now + 1, 14, drained=True)]


WALL = {0: {"a": 2, "b": 1}, 10: {"a": 1, "b": 1, "d": 1}, 20: {}, 30: {"a": 1}, 40: {}}
EVENT = {0: {"a": 2, "b": 1}, 10: {"a": 1, "b": 1, "d": 1}, 20: {}, 30: {"a": 1}}


@pytest.mark.parametrize("again", [0, 1, 4])
def test_a_run_cut_anywhere_hands_on_what_an_uncut_run_does(again: int) -> None:
    whole = day()
    assert handed_on(whole.sent) == {"wall": WALL, "event": EVENT}

    for cut in range(whole.points):
        machine = Machine()
        deliver(machine, lambda: counter(*DAY_VIEWS), steps(60), cuts=[cut], again=again)
        assert handed_on(machine.sent) == {"wall": WALL, "event": EVENT}
        assert machine.rows.keys() == {MARKER_KEY}
        assert machine.unerased(JOURNAL) == []
        assert decode(Marker, machine.rows[MARKER_KEY]) == decode(Marker, whole.rows[MARKER_KEY])


def test_a_run_whose_recovery_is_cut_as_well_hands_on_what_an_uncut_run_does() -> None:
    points = day().points
    for cut in range(0, points, 2):
        for second in range(8):
            machine = Machine()
            deliver(machine, lambda: counter(*DAY_VIEWS), steps(60), cuts=[cut, second], again=1)
            assert handed_on(machine.sent) == {"wall": WALL, "event": EVENT}
            assert machine.rows.keys() == {MARKER_KEY}
            assert machine.unerased(JOURNAL) == []


def test_records_are_stored_before_dead_letters_are_forgotten_and_letters_before_the_commit_point() -> None:
    """A crash may repeat a dead letter; it must not lose one."""
    one = counter(view())
    effects = list(one.chunk([Entry(0, b"u", b"{"), event(1, "u", "a", 1)], 5))
    kinds = [type(effect) for effect in effects if isinstance(effect, Commit | Send)]
    assert kinds == [Send, Commit]
    commit = next(effect for effect in effects if isinstance(effect, Commit))
    assert [key[:1] for key, _ in commit.rows] == [JOURNAL, MARKER]


def test_journal_rows_behind_the_commit_point_are_rolled_back() -> None:
    machine = Machine()
    whole = counter(view("a"), view("b"))
    machine.carry_out(whole.load(machine))
    rows = next(e for e in whole.chunk([event(0, "u", "x", 1)], 5) if isinstance(e, Commit)).rows
    machine.rows.update({key: value for key, value in rows[:2] if value is not None})
    assert len(machine.rows) == 2

    machine.carry_out(counter(view("a"), view("b")).load(machine))

    assert machine.rows == {}


# -- windows --------------------------------------------------------------------------------------------------------


def closes_at(clock: str, time: int) -> list[int]:
    """Starts of the windows that are handed on when the clock shows `time`."""
    machine, one = Machine(), counter(view(clock=clock))
    machine.carry_out(one.load(machine))
    if clock == "wall":
        machine.carry_out(one.tick(time, 0, drained=True))
    else:
        machine.carry_out(one.chunk([watermark(0, time)], 10_000))
    return sorted({partial.start_ms for partial in partials(machine.sent)})


@pytest.mark.parametrize("clock", ["wall", "event"])
def test_a_window_closes_when_its_end_and_grace_are_reached_and_not_before(clock: str) -> None:
    assert closes_at(clock, 12) == []
    assert closes_at(clock, 13) == [0]
    assert closes_at(clock, 22) == [0]
    assert closes_at(clock, 23) == [0, 10]


@pytest.mark.parametrize(("time", "outcome"), [(9, "late"), (10, None), (19, None), (-1, "before_start"), (0, "late")])
def test_an_event_is_late_by_its_window_not_by_its_age(time: int, outcome: str | None) -> None:
    machine, one = Machine(), counter(view(clock="event"))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([watermark(0, 13), event(1, "u", "a", time)], 100))
    assert letters(machine.sent) == ({(1, outcome): 1} if outcome else {})


@pytest.mark.parametrize("clock", ["wall", "event"])
def test_an_event_is_from_the_future_beyond_max_ahead_of_the_wall_clock(clock: str) -> None:
    machine, one = Machine(), counter(view(clock=clock, max_ahead_ms=50))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([event(0, "u", "a", 150), event(1, "u", "b", 151)], 100))
    assert letters(machine.sent) == {(1, "future"): 1}


def test_empty_windows_are_handed_on_with_every_bucket() -> None:
    machine, one = Machine(), counter(view(buckets=3))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.tick(23, 0, drained=True))
    assert [(p.start_ms, p.bucket, p.counts) for p in partials(machine.sent)] == [
        (start, bucket, {}) for start in (0, 10) for bucket in range(3)
    ]


def test_many_windows_that_close_together_are_handed_on_in_parts_each_with_its_own_commit_point() -> None:
    count = 2 * HANDED_ON_AT_ONCE + 1
    one = counter(view(buckets=1))
    effects = list(one.tick(10 * count + 3, 0, drained=True))
    sizes = [len(effect.messages) for effect in effects if isinstance(effect, Send)]
    assert sizes == [HANDED_ON_AT_ONCE, HANDED_ON_AT_ONCE, 1]
    marks = [
        decode(Marker, value).views["pages"].open_from_ms
        for effect in effects
        if isinstance(effect, Commit)
        for key, value in effect.rows
        if key == MARKER_KEY and value is not None
    ]
    assert marks == [0, 320, 640, 650]


def test_items_stand_in_the_bucket_of_their_hash_and_in_no_other() -> None:
    machine, one = Machine(), counter(view(buckets=4, items_per_user=99))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([event(n, "u", f"item {n}", 1) for n in range(40)], 5))
    machine.carry_out(one.tick(13, 40, drained=True))
    found = {item: p.bucket for p in partials(machine.sent) for item in p.counts}
    assert found == {f"item {n}": bucket_of(f"item {n}", 4) for n in range(40)}
    assert set(found.values()) == {0, 1, 2, 3}


# -- clocks ---------------------------------------------------------------------------------------------------------


def clock_after(*ticks: tuple[int, int | None, bool], counted: int = 5) -> int:
    """Where a wall clock stands after ticks, when `counted` records were counted before them."""
    machine, one = Machine(), counter(view())
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([event(n, "u", "a", 1) for n in range(counted)], 2))
    for now, end, drained in ticks:
        machine.carry_out(one.tick(now, end, drained=drained))
    return decode(Marker, machine.rows[MARKER_KEY]).views["pages"].clock_ms


def test_a_wall_clock_shows_the_last_tick_whose_end_of_log_is_counted() -> None:
    assert clock_after((50, 5, False)) == 50
    assert clock_after((50, 6, False)) == 0
    assert clock_after((50, 5, False), (60, 6, False)) == 50
    assert clock_after((50, None, False)) == 0
    assert clock_after((50, None, True)) == 0


def test_a_wall_clock_passes_offsets_that_hold_no_record_once_the_log_is_drained() -> None:
    assert clock_after((50, 8, True)) == 50
    assert clock_after((50, 8, False), (60, 8, True)) == 60


def test_a_wall_clock_does_not_wait_for_records_that_came_behind_the_tick() -> None:
    machine, one = Machine(), counter(view())
    machine.carry_out(one.load(machine))
    machine.carry_out(one.tick(50, 3, drained=False))
    machine.carry_out(one.tick(60, 9, drained=False))
    machine.carry_out(one.chunk([event(n, "u", "a", 45) for n in range(3)], 60))
    assert decode(Marker, machine.rows[MARKER_KEY]).views["pages"].clock_ms == 50


def test_no_clock_goes_back() -> None:
    assert clock_after((50, 5, True), (40, 5, True)) == 50
    machine, one = Machine(), counter(view(clock="event"))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([watermark(0, 40), watermark(1, 20)], 100))
    assert decode(Marker, machine.rows[MARKER_KEY]).views["pages"].clock_ms == 40


def test_a_watermark_ahead_of_the_wall_clock_counts_as_the_wall_clock() -> None:
    machine, one = Machine(), counter(view(clock="event"))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([watermark(0, 10**30)], 100))
    assert decode(Marker, machine.rows[MARKER_KEY]).views["pages"].clock_ms == 100


def test_no_event_moves_a_clock() -> None:
    """Removing a user must not change when a window closes (lossless 1.2)."""
    machine, one = Machine(), counter(view("a"), view("b", clock="event"))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([event(0, "u", "a", 900), event(1, "v", "a", 1)], 100))
    marks = decode(Marker, machine.rows[MARKER_KEY]).views
    assert (marks["a"].clock_ms, marks["b"].clock_ms) == (0, 0)
    assert letters(machine.sent) == {}


def event_clock(machine: Machine) -> int:
    return decode(Marker, machine.rows[MARKER_KEY]).views["pages"].clock_ms


def test_an_event_clock_goes_on_with_the_wall_clock_after_idle_time_without_a_watermark() -> None:
    machine, one = Machine(), counter(view(clock="event", idle_ms=100))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([watermark(0, 40)], 1000))

    def after(now: int) -> int:
        machine.carry_out(one.tick(now, 3, drained=True))
        return event_clock(machine)

    assert after(1099) == 40
    assert after(1100) == 140
    assert after(1199) == 140
    machine.carry_out(one.chunk([event(1, "u", "a", 1)], 1199))  # an event is no sign of life: it would be data
    assert after(1250) == 290
    machine.carry_out(one.chunk([watermark(2, 45)], 1300))
    assert after(1399) == 290
    assert after(1400) == 390


def test_idle_time_counts_from_the_first_tick_after_a_restart() -> None:
    machine = Machine()
    one = loaded(machine, view(clock="event", idle_ms=100))
    machine.carry_out(one.chunk([watermark(0, 40)], 1000))
    one = loaded(machine, view(clock="event", idle_ms=100))
    for now, clock in ((5000, 40), (5099, 40), (5100, 140)):
        machine.carry_out(one.tick(now, 1, drained=True))
        assert event_clock(machine) == clock


def test_idle_time_of_a_tick_counts_once_the_log_it_saw_is_counted() -> None:
    machine = Machine()
    one = loaded(machine, view(clock="event", idle_ms=100))
    machine.carry_out(one.chunk([watermark(0, 40)], 1000))
    machine.carry_out(one.tick(1100, 3, drained=False))
    assert event_clock(machine) == 40
    machine.carry_out(one.chunk([event(n, "u", "a", 30) for n in (1, 2)], 1100))
    assert event_clock(machine) == 140


def test_a_watermark_that_waits_to_be_read_ends_the_idle_time_of_earlier_ticks() -> None:
    """The worker was busy, the source was not: what its watermark still lets through must not become late."""
    machine = Machine()
    one = loaded(machine, view(clock="event", idle_ms=100))
    machine.carry_out(one.chunk([watermark(0, 1)], 1000))
    machine.carry_out(one.tick(1150, 2, drained=False))
    machine.carry_out(one.chunk([watermark(1, 2)], 1150))
    machine.carry_out(one.chunk([event(2, "u", "a", 5)], 1151))
    assert letters(machine.sent) == {}
    assert event_clock(machine) == 2


def test_a_log_that_ends_before_what_was_counted_stops_the_worker() -> None:
    machine, one = Machine(), counter(view())
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([event(0, "u", "a", 1), event(1, "u", "b", 1)], 2))
    with pytest.raises(StateError, match="made anew"):
        machine.carry_out(one.tick(5, 1, drained=False))


# -- configurations that change ---------------------------------------------------------------------------------------


def loaded(
    machine: Machine, *views: CountedView, source: str = "visits", configured: Collection[str] = ()
) -> PartitionCounter:
    one = counter(*views, source=source, configured=configured)
    machine.carry_out(one.load(machine))
    return one


def counted(machine: Machine, *views: CountedView) -> PartitionCounter:
    """A counter with one event of each window from 0 to 20."""
    one = loaded(machine, *views)
    machine.carry_out(one.chunk([event(n, "u", "a", 10 * n) for n in range(3)], 5))
    return one


def test_a_changed_fingerprint_is_refused() -> None:
    machine = Machine()
    counted(machine, view())
    with pytest.raises(ConfigError, match=r"views\.pages: .*new name"):
        loaded(machine, replace(view(), fingerprint=b"another1"))


def test_a_view_that_is_no_longer_configured_leaves_no_journal_and_the_others_go_on() -> None:
    machine = Machine()
    counted(machine, view("gone"), view("stays"))
    one = loaded(machine, view("stays"))
    assert [key[1:].startswith(text("stays")) for key in machine.rows if key.startswith(JOURNAL)] == [True] * 3
    assert machine.unerased(JOURNAL) == []
    machine.carry_out(one.tick(33, 3, drained=True))
    assert handed_on(machine.sent) == {"stays": {0: {"a": 1}, 10: {"a": 1}, 20: {"a": 1}}}


def test_a_new_view_beside_an_old_one_starts_at_its_first_window() -> None:
    machine = Machine()
    counted(machine, view("old"))
    one = loaded(machine, view("old"), view("new", start_ms=10))
    machine.carry_out(one.chunk([event(3, "v", "b", 12)], 6))
    machine.carry_out(one.tick(33, 4, drained=True))
    assert handed_on(machine.sent) == {
        "old": {0: {"a": 1}, 10: {"a": 1, "b": 1}, 20: {"a": 1}},
        "new": {10: {"b": 1}, 20: {}},
    }


def test_a_longer_grace_does_not_reopen_windows_that_were_handed_on() -> None:
    """`grace` may change between two starts; what comes for a window that is gone is late, counted, and not kept."""
    machine = Machine()
    one = counted(machine, view(grace_ms=0))
    machine.carry_out(one.tick(20, 3, drained=True))
    assert handed_on(machine.sent) == {"pages": {0: {"a": 1}, 10: {"a": 1}}}

    one = loaded(machine, view(grace_ms=100))
    machine.carry_out(one.chunk([event(3, "v", "secret", 5)], 21))
    machine.carry_out(one.tick(1000, 4, drained=True))

    assert letters(machine.sent) == {(3, "late"): 1}
    assert [key for key in machine.rows if key.startswith(JOURNAL)] == []


MOVED = replace(view(), fingerprint=b"moved001")


def two_sources() -> Machine:
    """What `pages` counted on the source `visits`, and `beside` with more records on the source `other`."""
    machine = Machine()
    counted(machine, view(), view("stays"))
    other = loaded(machine, view("beside"), source="other")
    machine.carry_out(other.chunk([event(n, "u", "o", 5) for n in range(9)], 5))
    return machine


def test_a_view_that_moves_to_another_source_is_refused() -> None:
    """Its fingerprint changes; counts of the former source must not be taken for those of the new one."""
    machine = two_sources()
    with pytest.raises(ConfigError, match=r"views\.pages"):
        loaded(machine, view("beside"), MOVED, source="other", configured=["pages", "stays", "beside"])


def test_a_view_that_moves_to_another_source_is_refused_though_its_former_source_was_counted_first() -> None:
    """Whichever source has a record first: once its former marker has forgotten the view, nothing tells any more."""
    machine, configured = two_sources(), ["pages", "stays", "beside"]

    def start() -> None:
        former = loaded(machine, view("stays"), configured=configured)
        machine.carry_out(former.chunk([event(3, "u", "a", 5)], 6))
        loaded(machine, view("beside"), MOVED, source="other", configured=configured)

    with pytest.raises(ConfigError, match=r"views\.pages"):
        start()


def test_views_of_a_source_that_is_no_longer_configured_leave_no_journal() -> None:
    """Nobody counts that source any more; its users and items must not stay in the table for ever."""
    machine = two_sources()
    loaded(machine, view("beside"), source="other", configured=["beside"])
    assert {key[2 : 2 + key[1]] for key in machine.rows if key.startswith(JOURNAL)} == {b"beside"}
    assert machine.unerased(JOURNAL) == []


def test_loading_one_source_leaves_the_journals_of_the_others() -> None:
    machine = two_sources()
    loaded(machine, view("beside"), source="other", configured=["pages", "stays", "beside"])
    one = loaded(machine, view(), view("stays"), configured=["pages", "stays", "beside"])
    machine.carry_out(one.tick(33, 3, drained=True))
    assert handed_on(machine.sent)["stays"] == {0: {"a": 1}, 10: {"a": 1}, 20: {"a": 1}}


def test_a_tick_erases_what_an_uncut_run_erases() -> None:
    """The range that is erased holds every journal row of the windows that were handed on."""
    one = counter(view())
    list(one.chunk([event(n, "u", "a", 10 * n) for n in range(3)], 5))
    effects = list(one.tick(33, 3, drained=True))
    purge = next(e for e in effects if isinstance(e, Commit) and e.rows and e.rows[0][0].startswith(JOURNAL))
    erase = next(e for e in effects if isinstance(e, Erase))
    assert len(purge.rows) == 3
    assert all(erase.first <= key < erase.last and value is None for key, value in purge.rows)


def test_a_journal_row_holds_the_users_and_items_that_one_chunk_added_to_one_window() -> None:
    machine = Machine()
    one = counted(machine, view())
    machine.carry_out(one.chunk([event(3, "v", "b", 1), event(4, "u", "a", 1), event(5, "w", "b", 1)], 6))
    row = decode(JournalRow, sorted((k, v) for k, v in machine.rows.items() if k.startswith(JOURNAL))[1][1])
    assert row == JournalRow(5, [b"v", b"w"], ["b", "b"])
