"""What one user can do to the counts of a window: the sensitivity that guarantees rest on (specs/lossless 1.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.windows.bounding import Admission, bound_chunk
from stream_dp.windows.count_rows import JOURNAL, JournalRow
from stream_dp.windows.encoding import decode, encode, text, window_start
from stream_dp.windows.events import Column, Decoded
from stream_dp.windows.open_windows import CODE_BYTES, OpenWindow, code_of
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import CountedView
from tests.support.counting import Entry, counter, event, handed_on, letters, letters_by_view, view, watermark
from tests.support.feeding import SOURCE, TICKS, Feed
from tests.support.machine import Machine
from tests.support.phases import PHASES

Contributions = dict[tuple[str, int, bytes], tuple[str, ...]]
"""By view, window and user: the items that count, in the order in which they were accepted."""


@dataclass(frozen=True)
class Line:
    """A record of a log whose offsets are not yet given: an event, or a watermark where there is no user."""

    user: str | None
    item: str
    time: int


Act = tuple[str, int]
"""("grow", n records), ("tick", ms later), ("fetch", n records) or ("read", n ticks)."""


def run(views: Sequence[CountedView], lines: Sequence[Line], acts: Sequence[Act], without: str | None) -> Machine:
    """Count a log, or the log that is left without one user: what else happens, happens in the same order.

    The records of the others arrive and are fetched together as before, and a tick sees the end of the log that
    there is.
    """
    left = [line.user != without or line.user is None for line in lines]

    def place(at: int) -> int:
        return sum(left[:at])

    log = [
        watermark(offset, line.time) if line.user is None else event(offset, line.user, line.item, line.time)
        for offset, line in enumerate(line for line, stays in zip(lines, left, strict=True) if stays)
    ]
    now = grown = 0
    ticks = []
    for act, amount in acts:
        if act == "grow":
            grown = min(len(lines), grown + amount)
        elif act == "tick":
            now += amount
            ticks.append((now, place(grown)))
    feed = Feed(log, ticks, lambda: counter(*views))
    grown = made = read = 0
    for act, amount in acts:
        if act == "grow":
            grown = min(len(lines), grown + amount)
        elif act == "tick":
            made += 1
        elif act == "fetch":
            until = min(grown, read + amount)
            feed.fetch(SOURCE, place(until) - place(read))
            read = until
        else:
            feed.fetch(TICKS, min(amount, made))
            made -= min(amount, made)
        feed.deliver()
    feed.settle()
    return feed.machine


def contributions(machine: Machine) -> Contributions:
    """Everything that was ever accepted, from the journals."""
    found: Contributions = {}
    for key, value in machine.changelog:
        if key.startswith(JOURNAL) and value is not None:
            name = key[2 : 2 + key[1]].decode()
            start, row = window_start(JOURNAL, name, key), decode(JournalRow, value)
            for user, item in zip(row.users, row.items, strict=True):
                found[name, start, user] = (*found.get((name, start, user), ()), item)
    return found


VIEWS = (
    view("wall", max_ahead_ms=20),
    view("event", clock="event", length_ms=7, first_ms=-7, items_per_user=1),
    view("three", clock="event", length_ms=30, grace_ms=0, items_per_user=3, max_ahead_ms=20),
    view("running", length_ms=20, bounds=Tiling(60), max_ahead_ms=30),
    view("listed", max_ahead_ms=20, items_per_user=1, domain={"a", "b", "c"}),
)
LINES = st.lists(
    st.one_of(
        st.builds(Line, st.sampled_from(["u", "v", "w", "x"]), st.sampled_from("abcde"), st.integers(-10, 60)),
        st.builds(Line, st.sampled_from(["u", "u", "v"]), st.sampled_from("abcde"), st.integers(0, 20)),
        st.builds(Line, st.none(), st.just(""), st.integers(-10, 60)),
    ),
    max_size=40,
)
AMOUNTS = st.integers(1, 9)


def check_sensitivity(views: Sequence[CountedView], lines: list[Line], acts: list[Act]) -> None:
    """Without the user u the others add what they add with them, and few counts fall, each by one."""
    acts = [*acts, ("grow", len(lines)), ("tick", 1000)]
    lines = [*lines, Line(None, "", 900)]
    acts = [*acts, ("grow", 1), ("tick", 1)]
    full, rest = run(views, lines, acts, None), run(views, lines, acts, "u")

    others = {key: items for key, items in contributions(full).items() if key[2] != b"u"}
    assert contributions(rest) == others
    more, less = handed_on(full.sent), handed_on(rest.sent)
    assert {name: windows.keys() for name, windows in more.items()} == {
        name: windows.keys() for name, windows in less.items()
    }
    for one in views:
        moved: Counter[tuple[int, str]] = Counter()
        for start, counts in more[one.name].items():
            fewer, interval = less[one.name][start], start if one.bounds is None else one.bounds.start_of(start)
            for item in counts.keys() | fewer.keys():
                moved[interval, item] += (by := counts.get(item, 0) - fewer.get(item, 0))
                assert by in (0, 1)
        assert set(moved.values()) <= {0, 1}
        together = Counter(start for start, _ in moved.elements())
        assert all(amount <= one.items_per_user for amount in together.values())


ACTS = st.lists(st.tuples(st.sampled_from(["grow", "grow", "fetch", "fetch", "tick", "read"]), AMOUNTS), max_size=30)
IDLE = view("idle", clock="event", idle_ms=15, grace_ms=0)


@pytest.mark.slow
@settings(derandomize=True, max_examples=150, deadline=None, phases=PHASES)
@given(LINES, ACTS)
def test_one_user_moves_few_counts_by_one_and_no_count_of_another_however_the_log_is_read(
    lines: list[Line], acts: list[Act]
) -> None:
    check_sensitivity((*VIEWS, IDLE), lines, acts)


@pytest.mark.slow
@settings(derandomize=True, max_examples=100, deadline=None, phases=PHASES)
@given(
    LINES,
    st.lists(st.tuples(AMOUNTS, st.integers(0, 9)), max_size=8),
    st.lists(st.tuples(st.sampled_from(["fetch", "read"]), AMOUNTS), max_size=20),
)
def test_the_chunks_a_log_is_read_in_decide_nothing(
    lines: list[Line], ticks: list[tuple[int, int]], reads: list[Act]
) -> None:
    log = [Line(None, "", -5), *lines, Line(None, "", 900)]
    grown: list[Act] = [act for grow, later in ticks for act in (("grow", grow), ("tick", later))]
    grown += [("grow", len(log)), ("tick", 1000)]
    whole = run((*VIEWS, IDLE), log, grown, None)
    parts = run((*VIEWS, IDLE), log, [*grown, *reads], None)

    assert contributions(parts) == contributions(whole)
    assert handed_on(parts.sent) == handed_on(whole.sent)
    assert letters(parts.sent) == letters(whole.sent)


# -- a user who is not read yet -------------------------------------------------------------------------------------


def test_what_one_fetch_brings_together_decides_nothing() -> None:
    """A tick closes a window for the records behind the end of log that it saw, whatever is fetched with them.

    Else a user's record decides where a chunk ends, and with it whether the late events of others count.
    """
    lines = [Line("u", "a", 2), Line("v", "secret", 5)]
    acts: list[Act] = [("grow", 1), ("tick", 13), ("grow", 1), ("tick", 1)]
    apart = run([view()], lines, [*acts, ("fetch", 1), ("read", 1), ("fetch", 1)], None)
    together = run([view()], lines, [*acts, ("fetch", 2)], None)

    assert handed_on(apart.sent) == {"pages": {0: {"a": 1}}}
    assert handed_on(together.sent) == handed_on(apart.sent)


def test_a_tick_that_waits_behind_the_flood_of_another_user_closes_the_window_where_it_was_made() -> None:
    """Without the flood of u the tick is read at once, with it not before v's late event has been read as well."""
    flood = [Line("u", f"{n}", 5) for n in range(500)]
    late = Line("v", "secret", 9)
    at_once: list[Act] = [("tick", 13), ("read", 1), ("grow", 1), ("fetch", 1), ("tick", 20), ("read", 1)]
    at_last: list[Act] = [("tick", 13), ("grow", 1), ("tick", 20), ("fetch", 501), ("read", 2)]
    quiet = run([view()], [late], at_once, None)
    busy = run([view()], [*flood, late], [("grow", 500), *at_last], None)

    counted = [{user for _, _, user in contributions(machine)} for machine in (quiet, busy)]
    assert counted == [set(), {b"u"}]
    assert letters(quiet.sent) == {(0, "late"): 1}
    assert letters(busy.sent) == {(500, "late"): 1}
    assert [set(handed_on(machine.sent)["pages"]) for machine in (quiet, busy)] == [{0, 10, 20}] * 2


def test_an_event_is_ahead_of_the_clock_of_its_own_time_however_late_it_is_read() -> None:
    """Else the flood of u would let the event of v pass: by the time it is read, its time has come closer."""
    flood = [Line("u", f"{n}", 5) for n in range(500)]
    early = Line("v", "a", 35)
    at_once: list[Act] = [("grow", 1), ("fetch", 1), ("tick", 13), ("read", 1), ("tick", 20)]
    at_last: list[Act] = [("grow", 1), ("tick", 13), ("tick", 20), ("fetch", 501), ("read", 2)]
    views = [view(max_ahead_ms=20)]
    quiet = run(views, [early], at_once, None)
    busy = run(views, [*flood, early], [("grow", 500), *at_last], None)

    assert letters(quiet.sent) == {(0, "future"): 1}
    assert letters(busy.sent) == {(500, "future"): 1}


def test_with_a_wall_clock_a_user_who_is_not_read_yet_keeps_no_window_open_for_others() -> None:
    """The window of v is over when v comes; a record of u that waits in the same fetch must not change that."""
    lines = [Line("u", "a", 2), *(Line(f"v{n}", "b", 5) for n in range(50))]
    acts: list[Act] = [("grow", 1), ("tick", 13), ("grow", 50), ("tick", 1), ("fetch", 51)]
    full, rest = (handed_on(run([view()], lines, acts, without).sent) for without in (None, "u"))

    assert rest == {"pages": {0: {}}}
    assert full == {"pages": {0: {"a": 1}}}


def test_a_user_who_is_not_read_yet_holds_no_idle_clock_back() -> None:
    """As above for an event clock that goes on without watermarks."""
    views = [view(clock="event", idle_ms=20)]
    lines = [Line(None, "", 0), Line("u", "a", 2), *(Line(f"v{n}", "b", 5) for n in range(50))]
    acts: list[Act] = [("grow", 1), ("tick", 0), ("grow", 1), ("tick", 20), ("grow", 50), ("tick", 1), ("tick", 40)]
    acts += [("fetch", 51)]
    full, rest = (handed_on(run(views, lines, acts, without).sent) for without in (None, "u"))

    assert rest["pages"][0] == {}
    assert full["pages"][0] == {"a": 1}


# -- one chunk, one view --------------------------------------------------------------------------------------------


def decoded(*events: tuple[int, bytes, str, int], watermarks: Sequence[tuple[int, int]] = ()) -> Decoded:
    offsets, users, items, times = (list(column) for column in zip(*events, strict=True))
    return Decoded(offsets, users, times, [Column(offsets, users, times, items)], list(watermarks), [])


def bounded(
    one: CountedView,
    chunk: Decoded,
    *,
    clock_ms: int = 0,
    now_ms: int = 100,
    misplaced: Container[bytes] = (),
) -> tuple[dict[int, tuple[list[bytes], list[str]]], list[tuple[int, str]], int]:
    marks = chunk.watermarks if one.clock == "event" else ()
    out = bound_chunk(one, {}, chunk.columns[0], Admission(clock_ms, now_ms, one.first_ms, marks, misplaced))
    return {start: (row.users, row.items) for start, row in out.added.items()}, out.refused, out.clock_ms


def test_a_user_counts_for_each_item_once_and_for_no_more_than_the_bound() -> None:
    events = [(0, b"u", "a", 1), (1, b"u", "a", 2), (2, b"u", "b", 3), (3, b"u", "c", 4), (4, b"u", "b", 5)]
    added, refused, _ = bounded(view(items_per_user=2), decoded(*events))
    assert added == {0: ([b"u", b"u"], ["a", "b"])}
    assert refused == [(1, "duplicate"), (3, "clipped"), (4, "duplicate")]


def test_bounds_hold_per_window() -> None:
    events = [(0, b"u", "a", 1), (1, b"u", "a", 11), (2, b"u", "b", 2), (3, b"u", "b", 19)]
    added, refused, _ = bounded(view(items_per_user=1), decoded(*events))
    assert added == {0: ([b"u"], ["a"]), 10: ([b"u"], ["a"])}
    assert refused == [(2, "clipped"), (3, "clipped")]


def test_bounds_hold_over_all_windows_of_an_interval_and_begin_anew_with_the_next() -> None:
    """The item counts where it was accepted first, whatever its time; 20 begins an interval of four windows."""
    events = [(0, b"u", "a", 11), (1, b"u", "a", 1), (2, b"u", "b", 2), (3, b"u", "c", 19), (4, b"u", "a", 20)]
    added, refused, _ = bounded(view(length_ms=5, bounds=Tiling(20)), decoded(*events))
    assert added == {10: ([b"u"], ["a"]), 0: ([b"u"], ["b"]), 20: ([b"u"], ["a"])}
    assert refused == [(1, "duplicate"), (3, "clipped")]


def test_what_comes_late_for_its_window_leaves_the_interval_as_it_was() -> None:
    """Else a user would be clipped, or an item repeated, for something that no count has."""
    one = view(length_ms=5, grace_ms=0, bounds=Tiling(20), items_per_user=1)
    added, refused, _ = bounded(one, decoded((0, b"u", "a", 4), (1, b"u", "a", 6), (2, b"u", "b", 7)), clock_ms=5)
    assert added == {5: ([b"u"], ["a"])}
    assert refused == [(0, "late"), (2, "clipped")]


def test_bounds_go_on_from_what_the_window_holds() -> None:
    window = OpenWindow()
    window.add(JournalRow(9, [b"u", b"u", b"v"], ["a", "b", "a"]))
    chunk = decoded((10, b"u", "c", 1), (11, b"v", "c", 1), (12, b"v", "a", 1))
    out = bound_chunk(view(items_per_user=2), {0: window}, chunk.columns[0], Admission(0, 100, 0))
    assert out.refused == [(10, "clipped"), (12, "duplicate")]
    assert dict(window.counts()) == {"a": 2, "b": 1, "c": 1}
    assert window.accepted == {b"u": code_of(0) + code_of(1), b"v": code_of(0) + code_of(2)}


def test_a_window_that_is_read_back_is_the_one_that_was_counted_and_takes_no_more_memory() -> None:
    """Items are shared by their users, whichever way they came in."""
    counted, read_back = OpenWindow(), OpenWindow()
    for offset in range(0, 3000, 100):
        events = [(at, b"%d" % (at % 2000), str(at * at % 31), 1) for at in range(offset, offset + 100)]
        out = bound_chunk(view(items_per_user=3), {0: counted}, decoded(*events).columns[0], Admission(0, 100, 0))
        for row in out.added.values():
            read_back.add(decode(JournalRow, encode(row)))

    assert read_back == counted
    assert list(read_back.counts()) == list(counted.counts())
    for window in (counted, read_back):
        single = [id(held) for held in window.accepted.values() if len(held) == CODE_BYTES]
        assert 0 < len(set(single)) < len(single)


def test_a_misplaced_user_adds_nothing_and_no_empty_journal_row() -> None:
    chunk = decoded((0, b"u", "a", 1), (1, b"v", "a", 1), (2, b"u", "b", 11))
    added, refused, _ = bounded(view(), chunk, misplaced={b"u"})
    assert added == {0: ([b"v"], ["a"])}
    assert refused == [(0, "wrong_partition"), (2, "wrong_partition")]


def test_a_watermark_closes_windows_for_what_stands_behind_it_in_the_chunk() -> None:
    events = [(0, b"u", "a", 1), (2, b"v", "a", 1), (3, b"v", "a", 12)]
    for clock, refused in (("event", [(2, "late")]), ("wall", [])):
        found = bounded(view(clock=clock), decoded(*events, watermarks=[(1, 13), (4, 40)]))
        assert found[1:] == (refused, 40 if clock == "event" else 0)


def windows_of(one: CountedView, times: Sequence[int]) -> Iterator[int]:
    for time in times:
        added, _, _ = bounded(one, decoded((0, b"u", "a", time)), clock_ms=one.first_ms)
        yield from added


def test_an_event_counts_in_the_window_that_holds_its_time() -> None:
    one = view(length_ms=7, first_ms=-10)
    times = range(-10, 18)
    assert list(windows_of(one, times)) == [-10 + 7 * ((time + 10) // 7) for time in times]


def test_a_wall_clock_is_not_moved_by_a_chunk() -> None:
    assert bounded(view(), decoded((0, b"u", "a", 90), watermarks=[(1, 50)]), clock_ms=3)[2] == 3


def test_journals_are_kept_under_the_name_of_their_view() -> None:
    machine, one = Machine(), counter(view("a"), view("ab"))
    machine.carry_out(one.load(machine))
    entries: list[Entry] = [event(0, "u", "x", 1)]
    machine.carry_out(one.chunk(entries, 1))
    assert {key[: 2 + key[1]] for key in machine.rows if key.startswith(JOURNAL)} == {
        JOURNAL + text("a"),
        JOURNAL + text("ab"),
    }


def test_a_record_has_one_dead_letter_for_each_reason_which_names_the_views_that_do_not_count_it() -> None:
    machine = Machine()
    one = counter(view("a"), view("b"), view("c", first_ms=view().first_ms + view().windows.shortest_ms))
    machine.carry_out(one.load(machine))
    start = view().first_ms
    records = [
        event(0, "u", "x", start - 1),
        event(1, "u", "x", start),
        Entry(2, b"u", b"{"),
        event(3, "u", "x", 1 << 60),
    ]
    machine.carry_out(one.chunk(records, start))
    assert letters_by_view(machine.sent) == [
        (2, "malformed_json", "a+b+c"),
        (0, "before_start", "a+b+c"),
        (3, "future", "a+b+c"),
        (1, "before_start", "c"),
    ]


def test_items_of_one_event_are_judged_one_by_one_where_windows_overlap() -> None:
    """A contribution is refused if none of its windows takes it, whatever became of the others of its event."""
    hops = view(length_ms=10, step_ms=5, first_ms=0, items_per_user=2)
    windows: dict[int, OpenWindow] = {}
    column = Column([7] * 4, [b"u"] * 4, [12] * 4, ["a", "b", "a", "c"])
    bound = bound_chunk(hops, windows, column, Admission(0, 100, 0))
    assert bound.refused == [(7, "duplicate"), (7, "clipped")]
    assert {start: row.items for start, row in bound.added.items()} == {5: ["a", "b"], 10: ["a", "b"]}
