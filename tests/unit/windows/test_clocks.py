"""What moves the clock of a view, and what never does."""

from __future__ import annotations

import pytest

from stream_dp.errors import StateError
from stream_dp.windows.count_rows import MARKER, Marker
from stream_dp.windows.keys import decode, text
from tests.support.counting import counter, event, letters, loaded, partials, view, watermark
from tests.support.machine import CutError, Machine, newest

MARKER_KEY = MARKER + text("visits")


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


# -- when a window was closed -----------------------------------------------------------------------------------------


def closes(machine: Machine) -> list[tuple[int, int]]:
    """Start and close of the windows that were handed on, in order."""
    return list(dict.fromkeys((partial.start_ms, partial.closed_ms) for partial in partials(machine.sent)))


def test_a_window_is_closed_at_the_time_of_the_tick_that_closes_it() -> None:
    machine = Machine()
    one = loaded(machine, view())
    machine.carry_out(one.tick(13, 0, drained=True))
    machine.carry_out(one.tick(20, 0, drained=True))
    machine.carry_out(one.tick(34, 0, drained=True))
    assert closes(machine) == [(0, 13), (10, 34), (20, 34)]


def test_a_window_is_closed_as_of_its_tick_however_long_it_took_to_count_what_the_log_held_then() -> None:
    """Else the time of the close would tell how many events there were."""
    machine = Machine()
    one = loaded(machine, view())
    machine.carry_out(one.tick(13, 3, drained=False))
    machine.carry_out(one.chunk([event(n, "u", "a", 1) for n in range(2)], 40))
    machine.carry_out(one.chunk([event(2, "u", "a", 1)], 70))
    assert closes(machine) == [(0, 13)]


def test_a_window_is_closed_when_the_watermark_that_closes_it_is_read() -> None:
    machine = Machine()
    one = loaded(machine, view(clock="event"))
    machine.carry_out(one.chunk([watermark(0, 13)], 500))
    machine.carry_out(one.chunk([event(1, "u", "a", 25), watermark(2, 33)], 800))
    assert closes(machine) == [(0, 500), (10, 800), (20, 800)]


def test_a_window_that_an_idle_partition_closes_is_closed_at_the_tick() -> None:
    machine = Machine()
    one = loaded(machine, view(clock="event", idle_ms=100))
    machine.carry_out(one.chunk([watermark(0, 10)], 1000))
    machine.carry_out(one.tick(1103, 1, drained=True))
    assert closes(machine)[0] == (0, 1103)


def test_a_window_that_is_handed_on_again_after_a_crash_bears_the_close_that_was_stored() -> None:
    """Its partials have the same bytes, whenever the process is started again and whatever the clock shows then."""

    def run(cut: int | None) -> Machine:
        machine = Machine(cut_after=cut)
        one = counter(view())
        try:
            machine.carry_out(one.load(machine))
            machine.carry_out(one.chunk([event(0, "u", "a", 1)], 2))
            machine.carry_out(one.tick(13, 1, drained=True))
        except CutError:
            pass
        machine.cut_after = None
        again = loaded(machine, view())
        machine.carry_out(again.tick(23, 1, drained=True))
        return machine

    whole = run(None)
    stored = next(at for at in range(whole.points) if (0, 13) in closes(run(at)))
    assert closes(run(stored - 1)) == [(0, 23), (10, 23)], "the tick was not stored"
    for cut in range(stored, whole.points):
        machine = run(cut)
        assert closes(machine) == [(0, 13), (10, 23)]
        assert newest(machine.sent) == newest(whole.sent)
