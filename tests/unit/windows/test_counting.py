"""The counter of a source partition against an oracle that takes one event at a time, whatever is cut and repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
from faust.types import TP
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.windows.count_rows import JOURNAL, MARKER, JournalRow, Marker
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Commit, Erase, Send, SendLetters, Step
from stream_dp.windows.encoding import CHUNK_BYTES, MESSAGE_BYTES, bucket_of, decode, text
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import HANDED_ON_AT_ONCE, ParticipationBound
from tests.support.chosen import examples, ordinarily
from tests.support.counting import (
    Entry,
    Oracle,
    Totals,
    by_crc32,
    counted,
    counter,
    event,
    handed_on,
    letters,
    letters_by_view,
    loaded,
    partials,
    small_sizes,
    totals,
    view,
    watermark,
)
from tests.support.feeding import SOURCE, TICKS, Feed
from tests.support.machine import Machine, deliver
from tests.support.phases import PHASES

MARKER_KEY = MARKER + text("visits")
WEEKS = Tiling(24, -16)
VIEWS = (
    view("wall", max_ahead_ms=30),
    view("event", clock="event", length_ms=7, first_ms=-14, grace_ms=2, items_per_user=1, idle_ms=25, buckets=3),
    view("single", length_ms=25, grace_ms=0, items_per_user=3, buckets=1, max_ahead_ms=12, domain={"a", "b"}),
    view("other", clock="event", length_ms=20, grace_ms=5, max_ahead_ms=9, idle_ms=15),
    view("hops", length_ms=12, step_ms=4, grace_ms=3, max_ahead_ms=30),
    view("leaps", clock="event", length_ms=14, step_ms=7, first_ms=-7, grace_ms=2, items_per_user=1, idle_ms=25),
    view("running", length_ms=5, bounds=Tiling(20), max_ahead_ms=40),
    view("whole", clock="event", length_ms=8, first_ms=-16, bounds=Tiling(24, -16), grace_ms=6, idle_ms=25, buckets=3),
    view("few", max_ahead_ms=30, participation=ParticipationBound(2, Tiling(40))),
    view(
        "paced",
        clock="event",
        length_ms=8,
        first_ms=-16,
        idle_ms=25,
        participation=ParticipationBound(2, WEEKS, "even"),
    ),
    view("few-hops", length_ms=12, step_ms=4, max_ahead_ms=30, participation=ParticipationBound(3, Tiling(36))),
    view("few-days", length_ms=5, bounds=Tiling(20), max_ahead_ms=40, participation=ParticipationBound(1, Tiling(40))),
    view("few-listed", max_ahead_ms=30, participation=ParticipationBound(2, Tiling(40)), domain={"a", "b", "c"}),
    view("listed-hops", length_ms=12, step_ms=4, grace_ms=3, items_per_user=1, max_ahead_ms=30, domain={"a", "b"}),
)
HORIZON = 140
"""When everything is closed: no event is later than 60, and an idle clock gets there in one step."""


# -- random streams, chunkings and crashes -----------------------------------------------------------------------


@dataclass(frozen=True)
class Script:
    """A source and its ticks, and how they are read: how many records of which of the two logs at a time."""

    entries: list[Entry]
    ticks: list[tuple[int, int]]
    reads: list[tuple[TP, int]]
    cuts: list[int]
    back: tuple[int, int]


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
    now, ends = 0, draw(st.lists(st.integers(0, offset + 1), max_size=25))
    ticks: list[tuple[int, int]] = []
    for end in sorted(ends) if draw(st.booleans()) else ends:  # a former owner's tick may come behind a later one
        now += draw(st.sampled_from([0, 1, 2, 5, 9, 9, -3]))
        ticks.append((now, end))
    ticks += [(max(now, HORIZON), offset + 1), (max(now, HORIZON) + 60, offset + 1)]
    reads = st.lists(st.tuples(st.sampled_from([SOURCE, TICKS]), st.integers(0, 12)), max_size=40)
    cuts = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 120)), max_size=6)
    return Script(entries, ticks, draw(reads), draw(cuts), draw(st.tuples(st.integers(0, 6), st.integers(0, 4))))


def misplaced(user: bytes) -> bool:
    return by_crc32(3)([user]) != [0]


def play(script: Script, cuts: list[int]) -> Machine:
    """Read both logs to their ends."""
    feed = Feed(
        script.entries,
        script.ticks,
        lambda: counter(*VIEWS, partitioner=by_crc32(3)),
        cuts=cuts,
        back=script.back,
    )
    for tp, amount in script.reads:
        feed.fetch(tp, amount)
        feed.deliver()
    feed.settle()
    return feed.machine


def expected(oracle: Oracle) -> dict[str, dict[int, dict[str, int]]]:
    return {one.view.name: {start: one.counts(start) for start in one.closed_windows()} for one in oracle.views}


@pytest.mark.slow
@settings(derandomize=True, max_examples=150, deadline=None, phases=PHASES)
@given(scripts(), st.booleans())
def test_the_two_logs_decide_what_is_counted_and_refused_whatever_is_read_first_cut_or_read_again(
    script: Script, small: bool
) -> None:
    oracle = Oracle.of(VIEWS, misplaced).follow(script.entries, script.ticks)
    with small_sizes() if small else nullcontext():
        machine = play(script, script.cuts)

    assert handed_on(machine.sent) == expected(oracle)
    assert totals(machine) == oracle.totals(script.entries)
    assert all(one.closed_windows()[-1] + one.view.windows.grid.shortest_ms > 60 for one in oracle.views)
    assert machine.rows.keys() == {MARKER_KEY}
    assert machine.unerased(JOURNAL) == []
    assert Counter(letters_by_view(machine.sent)).keys() == oracle.letters().keys()
    assert Counter(letters_by_view(machine.sent)) >= oracle.letters()


@examples(25, 100, given(scripts()), derandomize=True, phases=PHASES)
def test_without_a_crash_everything_is_handed_on_once_and_every_refusal_counted_once(script: Script) -> None:
    oracle = Oracle.of(VIEWS, misplaced).follow(script.entries, script.ticks)
    machine = play(script, [])

    seen = [(p.view, p.start_ms, p.bucket, p.partition) for p in partials(machine.sent)]
    assert len(seen) == len(set(seen))
    assert Counter(letters_by_view(machine.sent)) == oracle.letters()
    refused = {labels: n for (name, labels), n in machine.counts.items() if name == "events_refused"}
    unknown = {labels: n for (name, labels), n in machine.counts.items() if name == "events_unknown"}
    refused |= {(("reason", "unlisted"), *labels): n for labels, n in unknown.items()}
    assert refused == {(("reason", r), ("view", v)): n for (r, v), n in oracle.tally().items()}
    assert machine.counts["events_consumed", ()] == len(script.entries)
    assert machine.counts["events_replayed", ()] == 0
    for name, windows in expected(oracle).items():
        assert machine.counts["windows_closed", (("view", name),)] == len(windows)


# -- every single cut of one run ------------------------------------------------------------------------------------

DAY = [
    [event(0, "u1", "a", 1), event(1, "u2", "a", 2), event(2, "u1", "b", 12), Entry(3, b"u1", b"[")],
    [event(4, "u1", "b", 3), event(5, "u1", "c", 4), event(6, "u3", "a", 12), event(8, "u2", "a", 5)],
    [watermark(9, 13), event(10, "u1", "a", 1), event(11, "u2", "d", 15)],
    [event(12, "u1", "a", 31), watermark(13, 47)],
]
DAY_VIEWS = (
    view("wall"),
    view("event", clock="event", buckets=1),
    view("running", length_ms=5, bounds=Tiling(20), items_per_user=3),
    view("few", buckets=1, participation=ParticipationBound(1, Tiling(20))),
)


def day(now: int = 60) -> Machine:
    machine = Machine()
    deliver(machine, lambda: counter(*DAY_VIEWS), steps(now))
    return machine


def steps(now: int) -> list[Callable[[PartitionCounter], Step]]:
    def chunk(entries: list[Entry]) -> Callable[[PartitionCounter], Step]:
        return lambda one: one.chunk(entries, now - 1)

    def tick(at: int) -> Callable[[PartitionCounter], Step]:
        return lambda one: one.ticks([at])

    return [*map(chunk, DAY), *map(tick, range(now, now + 3))]


WALL = {0: {"a": 2, "b": 1}, 10: {"a": 1, "b": 1, "d": 1}, 20: {}, 30: {"a": 1}, 40: {}}
EVENT = {0: {"a": 2, "b": 1}, 10: {"a": 1, "b": 1, "d": 1}, 20: {}, 30: {"a": 1}}
RUNNING = {0: {"a": 2, "c": 1}, 5: {}, 10: {"a": 1, "b": 1}, 15: {"d": 1}, 20: {}, 25: {}, 30: {"a": 1}}
RUNNING |= {35: {}, 40: {}, 45: {}, 50: {}}
FEW = {0: {"a": 2, "b": 1}, 10: {"a": 1}, 20: {}, 30: {"a": 1}, 40: {}}  # u1 is in 0 as the log has it, u2 too
HANDED_ON = {"wall": WALL, "event": EVENT, "running": RUNNING, "few": FEW}


def check_every_cut(again: int) -> Machine:
    """Cut a run at every point; returns the uncut one."""
    whole = day()
    assert handed_on(whole.sent) == HANDED_ON

    for cut in range(whole.points):
        machine = Machine()
        deliver(machine, lambda: counter(*DAY_VIEWS), steps(60), cuts=[cut], again=again)
        assert handed_on(machine.sent) == HANDED_ON
        assert machine.rows.keys() == {MARKER_KEY}
        assert machine.unerased(JOURNAL) == []
        assert decode(Marker, machine.rows[MARKER_KEY]) == decode(Marker, whole.rows[MARKER_KEY])
    return whole


@pytest.mark.parametrize("again", ordinarily(1, [1, 0, 4]))
def test_a_run_cut_anywhere_hands_on_what_an_uncut_run_does(again: int) -> None:
    check_every_cut(again)


@pytest.mark.parametrize("again", ordinarily(1, [4, 0]))
def test_a_run_cut_anywhere_is_as_exact_where_a_chunk_needs_several_rows_and_a_bucket_several_parts(again: int) -> None:
    """A crash may leave some rows of a chunk without its marker, and some parts of a bucket without the others."""
    rows = len(day().changelog)
    with small_sizes():
        whole = check_every_cut(again)
    assert len(whole.changelog) > rows
    assert max(partial.parts for partial in partials(whole.sent)) > 1


@pytest.mark.parametrize("step", [9, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_whose_recovery_is_cut_as_well_hands_on_what_an_uncut_run_does(step: int) -> None:
    points = day().points
    for cut in range(0, points, step):
        for second in range(8):
            machine = Machine()
            deliver(machine, lambda: counter(*DAY_VIEWS), steps(60), cuts=[cut, second], again=1)
            assert handed_on(machine.sent) == HANDED_ON
            assert machine.rows.keys() == {MARKER_KEY}
            assert machine.unerased(JOURNAL) == []


def test_totals_are_the_same_wherever_a_run_is_cut_and_tell_of_no_window_that_is_open() -> None:
    """Two events of the window, two off its list, and two one too many show when it closes; a late one at once."""
    listed = view("all", domain={"a", "d"}, items_per_user=1)
    refused, label = "events_refused", (("view", "all"),)

    def of(reason: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        return refused, (("reason", reason), *label)

    def chunk(*entries: Entry) -> Callable[[PartitionCounter], Step]:
        return lambda one: one.chunk(entries, 14)

    first = [event(0, "u1", "b", 11), event(1, "u1", "a", 11), event(2, "u2", "d", 12), event(3, "u2", "d", 12)]
    second = [event(4, "u3", "b", 12), event(5, "u1", "d", 13), event(6, "u1", "c", 3), Entry(7, b"u1", b"{")]
    steps = [lambda one: one.ticks([13]), chunk(*first), chunk(*second), lambda one: one.ticks([23])]
    malformed = refused, (("reason", "malformed_json"), ("view", ""))
    early: Totals = {("events_consumed", ()): 8, of("late"): 1, malformed: 1}
    closed: Totals = {("events_counted", label): 2, ("events_unknown", label): 2, ("windows_closed", label): 2}
    closed |= {of("clipped"): 1, of("duplicate"): 1}
    for stop, due in ((3, early | {("windows_closed", label): 1}), (4, early | closed)):
        whole = Machine()
        deliver(whole, lambda: counter(listed), steps[:stop])
        assert totals(whole) == due
        for cut in range(whole.points):
            machine = Machine()
            deliver(machine, lambda: counter(listed), steps[:stop], cuts=[cut], again=cut % 3)
            assert totals(machine) == due


def test_records_are_stored_before_dead_letters_are_forgotten_and_letters_before_the_commit_point() -> None:
    """A crash may repeat a dead letter; it must not lose one."""
    one = counter(view())
    effects = list(one.chunk([Entry(0, b"u", b"{"), event(1, "u", "a", 1)], 5))
    kinds = [type(effect) for effect in effects if isinstance(effect, Commit | Send)]
    assert kinds == [SendLetters, Commit]
    commit = next(effect for effect in effects if isinstance(effect, Commit))
    assert [key[:1] for key, _ in commit.rows] == [JOURNAL, MARKER]


def test_records_that_are_counted_are_passed_over_when_they_come_again() -> None:
    """Not even as duplicates: they are counted as replayed, the last one too, and leave no dead letter again."""
    machine = Machine()
    one = loaded(machine, view())
    chunk = [event(0, "u", "a", 1), event(1, "u", "b", 2), event(2, "u", "c", -5)]
    machine.carry_out(one.chunk(chunk, 5))
    before, rows = machine.counts.copy(), dict(machine.rows)
    machine.carry_out(one.chunk(chunk, 5))
    assert machine.rows == rows
    machine.carry_out(loaded(machine, view()).chunk([*chunk[1:], event(3, "v", "a", 1)], 6))

    assert letters(machine.sent) == {(2, "before_start"): 1}
    others = {("events_counted", (("view", "pages"),)): 1, ("rows_loaded", ()): 1}
    assert machine.counts - before == {("events_consumed", ()): 6, ("events_replayed", ()): 5, **others}


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
        machine.carry_out(one.ticks([time]))
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
    machine.carry_out(one.ticks([23]))
    assert [(p.start_ms, p.bucket, p.counts) for p in partials(machine.sent)] == [
        (start, bucket, {}) for start in (0, 10) for bucket in range(3)
    ]


def test_many_windows_that_close_together_are_handed_on_in_parts_each_with_its_own_commit_point() -> None:
    count = 2 * HANDED_ON_AT_ONCE + 1
    one = counter(view(buckets=1))
    list(one.load(Machine()))
    effects = list(one.ticks([10 * count + 3]))
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
    machine.carry_out(one.ticks([13]))
    found = {item: p.bucket for p in partials(machine.sent) for item in p.counts}
    assert found == {f"item {n}": bucket_of(f"item {n}", 4) for n in range(40)}
    assert set(found.values()) == {0, 1, 2, 3}


def test_the_tick_behind_erases_what_an_uncut_run_erases() -> None:
    """The range that is erased holds every journal row of the windows that were handed on."""
    one = counter(view())
    list(one.load(Machine()))
    list(one.chunk([event(n, "u", "a", 10 * n) for n in range(3)], 5))
    assert not [e for e in one.ticks([33]) if isinstance(e, Erase)], "a release does not wait for it"
    effects = list(one.ticks([34]))
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


# -- sizes ----------------------------------------------------------------------------------------------------------

LONG = [f"{number:04d}" + "é" * 510 for number in range(2100)]


def test_rows_and_messages_fit_however_long_items_are_and_are_sent_a_few_at_a_time() -> None:
    """2 MB of items in one chunk, and in one bucket: no row, no message and no send is larger than it may be."""
    machine = Machine()
    one = loaded(machine, view(buckets=1, items_per_user=9999))
    sizes = []
    for step in (one.chunk([event(n, "u", item, 1) for n, item in enumerate(LONG)], 5), one.ticks([13])):
        for effect in step:
            match effect:
                case Commit(rows):
                    sizes += [len(key) + len(value or b"") for key, value in rows]
                    assert len({key for key, _ in rows}) == len(rows)
                case Send(messages):
                    sizes += [message.size for message in messages]
                    assert sum(message.size for message in messages) <= CHUNK_BYTES
                    machine.sent += messages
    assert MESSAGE_BYTES - 4096 < max(sizes) <= MESSAGE_BYTES
    assert handed_on(machine.sent) == {"pages": {0: dict.fromkeys(LONG, 1)}}
    assert [(p.part, p.parts) for p in partials(machine.sent)] == [(part, 5) for part in range(5)]


def test_the_journal_of_many_chunks_is_deleted_in_commits_that_fit() -> None:
    with small_sizes():
        machine = Machine()
        one = loaded(machine, view())
        for n in range(5):
            machine.carry_out(one.chunk([event(n, f"u{n}", "a", 1)], 5))
        effects = [*one.ticks([13]), *one.ticks([14])]
        purges = [e.rows for e in effects if isinstance(e, Commit) and e.rows[0][0].startswith(JOURNAL)]
    assert [len(rows) for rows in purges] == [2, 2, 1]


def test_journals_of_many_windows_that_close_together_do_not_pile_up_in_the_marker() -> None:
    machine, one = Machine(), counter(view(grace_ms=0, max_ahead_ms=10_000))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([event(n, "u", "a", 10 * n) for n in range(200)], 5))
    machine.carry_out(one.ticks([2000]))
    marks = [decode(Marker, value or b"").views["pages"] for key, value in machine.changelog if key.startswith(MARKER)]
    assert max(len(mark.purging) for mark in marks) == 2 * HANDED_ON_AT_ONCE
    machine.carry_out(one.ticks([2001]))
    assert [key for key in machine.rows if key.startswith(JOURNAL)] == machine.unerased(JOURNAL) == []
