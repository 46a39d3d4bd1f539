"""Records that were deleted before they were counted: each window is exact, or lost and then one that may lack some.

Streams are those of `tests.support.late`, any prefix of which is deleted at any time, while views begin and change.
What is handed on is compared with a counter of the whole stream that knew all views, and what is lost with the rule
that `stream_dp.windows.gaps` gives, worked out one missing record at a time.
"""

from __future__ import annotations

import dataclasses
import random

import pytest

from stream_dp.windows import counting, gaps, handover, partial_counts
from stream_dp.windows.count_rows import MARKER, Marker, Missing, SourcePartitionClock, ViewMark
from stream_dp.windows.encoding import decode, text
from stream_dp.windows.events import WATERMARK_HEADER
from stream_dp.windows.views import CountedView, state_name
from tests.support.chosen import ordinarily
from tests.support.counting import counter, event, handed_on, loaded, partials, totals, view, watermark
from tests.support.late import AHEAD, Story, made
from tests.support.machine import Machine

MARKER_KEY = MARKER + text("visits")


def with_gaps(seed: int, clock: str) -> Story:
    """A story of which one to three prefixes are deleted, none with the last watermark."""
    story, chance = made(seed, clock), random.Random(seed)
    last = len(story.steps) - 3
    for _ in range(chance.choice([1, 1, 2, 3])):
        step = chance.randrange(1, last)
        story.gone.append((step, chance.randrange(story.end(step - 1), story.end(min(last, step + 4)) + 1)))
    return story


def missing_of(story: Story) -> list[tuple[int, int]]:
    """The records that nobody counted: the step that they belong to, and their offset."""
    return [
        (step, one.offset)
        for step, (entries, _) in enumerate(story.steps)
        for one in entries
        if one.offset < story.begins(step)
    ]


def may_lack(story: Story, one: CountedView) -> set[int]:
    """The starts of the windows of a view, known all the time, that may lack a missing record."""
    found: set[int] = set()
    for step, offset in missing_of(story):
        now = story.steps[step][1]
        if one.clock == "wall":
            clock = max([one.first_ms, *(time for _, time in story.steps[:step])])
            until = now
        else:
            heard = [
                (entry.offset, min(int(dict(entry.headers)[WATERMARK_HEADER]), time))
                for at, (entries, time) in enumerate(story.steps)
                for entry in entries
                if entry.headers and entry.offset >= story.begins(at)
            ]
            before = max([one.first_ms, *(time for at, time in heard if at < offset)])
            until = next(time for at, time in heard if at > offset and time > before)
            clock = before
        shape, at = one.windows, one.first_ms
        while at <= until + AHEAD:
            found |= {at} if shape.end(at) + one.grace_ms > clock else set()
            at = shape.next(at)
    return found


@pytest.mark.parametrize("clock", ["event", "wall"])
@pytest.mark.parametrize("seed", ordinarily(4, range(60)))
def test_each_window_around_a_gap_is_exact_or_lost_and_no_other_is_lost(seed: int, clock: str) -> None:
    story = with_gaps(seed, clock)
    machine = story.run()
    story.check_view(story.late, machine)
    for one in story.others:
        found, lost = story.check_view(one, machine)
        assert lost == may_lack(story, one) & (found | lost)
    marker = decode(Marker, machine.rows[MARKER_KEY])
    assert marker.records_missing == len(missing_of(story))
    assert bool(machine.warned) == bool(marker.records_missing)


@pytest.mark.parametrize("clock", ["event", "wall"])
@pytest.mark.parametrize("seed", ordinarily(1, range(12)))
def test_crashes_around_a_gap_leave_each_window_exact_or_lost(seed: int, clock: str) -> None:
    story, chance = with_gaps(seed, clock), random.Random(seed)
    views = [story.late, *story.others]
    due = [story.check_view(one, story.run()) for one in views]
    for _ in range(3):
        machine = story.run(cuts=[chance.randrange(200) for _ in range(3)])
        assert [story.check_view(one, machine) for one in views] == due


@pytest.mark.parametrize(
    "mutant",
    [
        "nothing",
        "not ahead",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "not what was open",
                "watermarks stand still",
                "a view that begins in a gap",
                "a view that begins behind one",
            )
        ),
    ],
)
def test_a_rule_that_loses_too_little_is_found_out(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = "wall" if mutant == "not what was open" else "event"
    if mutant == "nothing":
        monkeypatch.setattr(partial_counts, "is_lost", lambda _mark, _start: False)
    elif mutant == "not ahead":
        monkeypatch.setattr(gaps, "_behind", lambda _view, clock_ms: clock_ms + 1)
    elif mutant == "not what was open":
        begin = gaps.open_gap

        def too_late(one: CountedView, mark: ViewMark, clock: SourcePartitionClock, now_ms: int) -> object:
            later = SourcePartitionClock(clock.clock_ms + one.windows.shortest_ms, None)
            return begin(one, mark, later, now_ms)

        monkeypatch.setattr(counting, "open_gap", too_late)
    elif mutant == "a view that begins in a gap":
        monkeypatch.setattr(handover, "begin_in_gap", lambda *_: None)
    elif mutant == "a view that begins behind one":
        monkeypatch.setattr(handover, "joined", lambda _: [])
    else:
        close = gaps.close_gap
        monkeypatch.setattr(counting, "close_gap", lambda one, mark, at, _: close(one, mark, at, at.clock_ms))
    assert not all(_holds(with_gaps(seed, clock)) for seed in range(400))


def _holds(story: Story) -> bool:
    try:
        story.check_view(story.late, story.run())
    except AssertionError:
        return False
    return True


def test_offsets_without_a_record_are_no_loss_and_are_not_asked_about_again() -> None:
    """The marks of transactions, and what compaction leaves; the log begins at 3, behind what was counted."""
    machine = Machine()
    one = loaded(machine, view())
    machine.carry_out(one.chunk([event(n, "u", "a", n) for n in range(3)], 5))
    machine.carry_out(one.ticks([6], [5], 3))  # 3 and 4 are marks
    assert one.next_offset == 5
    machine.carry_out(one.chunk([event(7, "v", "a", 7)], 8, 5))  # so are 5 and 6
    machine.carry_out(one.ticks([20], [9], 7))
    machine.carry_out(one.ticks([21], [9], 9))  # all of it was deleted since
    assert handed_on(machine.sent) == {"pages": {0: {"a": 2}}}
    assert not machine.warned
    again = loaded(machine, view())
    assert again.next_offset == 9


def test_a_partition_that_was_never_counted_misses_nothing() -> None:
    machine = Machine()
    one = loaded(machine, view())
    machine.carry_out(one.chunk([event(100, "u", "a", 4)], 5, 100))
    machine.carry_out(one.ticks([20], [101], 100))
    assert handed_on(machine.sent) == {"pages": {0: {"a": 1}}}
    assert not totals(machine).get(("records_missing", ()))


def test_one_that_was_empty_at_its_first_tick_misses_what_came_then() -> None:
    machine = Machine()
    one = loaded(machine, view(max_ahead_ms=5))
    machine.carry_out(one.ticks([1], [0], 0))
    machine.carry_out(one.ticks([2], [100], 100))
    machine.carry_out(one.ticks([20, 30], [100, 100], 100))
    assert {part.start_ms for part in partials(machine.sent) if part.lost} == {0}
    assert totals(machine)["records_missing", ()] == 100


def test_ticks_inside_a_gap_say_what_each_part_of_it_may_touch() -> None:
    machine = Machine()
    one = loaded(machine, view(max_ahead_ms=5, grace_ms=0))
    machine.carry_out(one.chunk([event(0, "u", "a", 4)], 5))
    machine.carry_out(one.ticks([5], [1]))
    # Of offsets 1 to 8, some stood there at 12 and the rest at 57.
    machine.carry_out(one.ticks([12, 24, 33, 57, 90], [4, 4, 4, 9, 9], 9))
    assert sorted({part.start_ms for part in partials(machine.sent) if part.lost}) == [0, 10, 30, 40, 50, 60]
    assert sorted(handed_on([m for m in machine.sent if not _is_lost(m)])["pages"]) == [20, 70, 80]
    assert decode(Marker, machine.rows[MARKER_KEY]).missing == [Missing(1, 9, 57)]
    assert machine.warned == [
        "source visits, partition 0: records 1 to 8 were deleted before they were counted. Windows that may lack some "
        "of them are refused as lost, and nothing is charged: pages, those that start from 1970-01-01T00:00:00Z to "
        "1970-01-01T00:00:00.062Z"
    ]


def _is_lost(message: object) -> bool:
    (one,) = partials([message])  # type: ignore[list-item]
    return one.lost


def test_idle_time_that_moved_the_clock_too_far_in_a_gap_loses_what_it_made_late() -> None:
    machine, one = Machine(), view(clock="event", idle_ms=5, max_ahead_ms=2, grace_ms=0)
    running = loaded(machine, one)
    machine.carry_out(running.chunk([watermark(0, 3)], 1000))
    machine.carry_out(running.ticks([1000], [1]))
    machine.carry_out(running.ticks([1001], [2], 2))  # 1 is missing
    machine.carry_out(running.ticks([1060], [2], 2))  # nothing was heard for 60: the clock shows 63
    machine.carry_out(running.chunk([event(2, "u", "a", 45), watermark(3, 40)], 1061))
    machine.carry_out(running.ticks([1061], [4], 2))
    machine.carry_out(running.chunk([watermark(4, 100)], 1062))
    lost = {part.start_ms for part in partials(machine.sent) if part.lost}
    assert lost == {0, 10, 20, 30, 40, 50, 60}


def test_a_gap_is_no_loss_for_a_view_that_begins_behind_it() -> None:
    machine, late = Machine(), view(clock="event", first_ms=100, max_ahead_ms=2)
    running = loaded(machine, late)
    machine.carry_out(running.chunk([watermark(0, 3)], 1000))
    machine.carry_out(running.ticks([1000], [1]))
    machine.carry_out(running.chunk([watermark(5, 9), event(6, "u", "a", 104), watermark(7, 130)], 1001, 5))
    assert handed_on(machine.sent) == {"pages": {100: {"a": 1}, 110: {}}}
    assert counter(late).next_offset == 0


# -- a later definition ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clock", "ahead", "start", "at"),
    [("wall", 100, 60, 64), ("event", 2, 100, 134), ("event", 100, 60, 64)],
    ids=["by the wall clock", "with a smaller max_ahead", "the same"],
)
def test_a_definition_that_takes_over_in_an_open_gap_loses_what_the_former_one_may_have_accepted(
    clock: str, ahead: int, start: int, at: int
) -> None:
    """The missing event was in time by the settings that held then, for a window of the later definition."""
    asked = view(clock="event", max_ahead_ms=100, idle_ms=1 << 40, grace_ms=0)
    former = dataclasses.replace(asked, until_ms=start)
    later = view(clock=clock, max_ahead_ms=ahead, idle_ms=1 << 40, grace_ms=0)
    name = state_name("pages", 2)
    later = dataclasses.replace(later, name=name, fingerprint=b"pages002", first_ms=start, origin_ms=0)

    def run(begins: int) -> Machine:
        machine = Machine()
        one = loaded(machine, asked)
        machine.carry_out(one.chunk([watermark(0, 3), event(1, "w", "a", 4)], 50))
        machine.carry_out(one.ticks([50], [2], 0))
        if not begins:
            machine.carry_out(one.chunk([event(2, "u", "x", at)], 51, 0))
        machine.carry_out(one.ticks([51], [3], begins))
        both = loaded(machine, former, later)
        machine.carry_out(both.chunk([watermark(3, 60), event(4, "v", "y", at), watermark(5, 1000)], 1000, begins))
        for tick in range(1001, 1004):
            machine.carry_out(both.ticks([tick], [6], begins))
        return machine

    window = at // 10 * 10
    whole, gap = run(0), run(3)
    assert handed_on(whole.sent)[name][window] == {"x": 1, "y": 1}
    assert {one.start_ms for one in partials(gap.sent) if one.view == name and one.lost} >= {window}
