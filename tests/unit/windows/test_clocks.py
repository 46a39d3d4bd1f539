"""What moves the clock of a view, and what never does."""

from __future__ import annotations

from stream_dp.windows.count_rows import MARKER, Marker
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.encoding import decode, text
from tests.support.counting import counter, event, letters, loaded, partials, view, watermark
from tests.support.machine import CutError, Machine, newest

MARKER_KEY = MARKER + text("visits")


def clock_after(*ticks: int) -> int:
    """Where a wall clock stands after ticks."""
    machine, one = Machine(), counter(view())
    machine.carry_out(one.load(machine))
    machine.carry_out(one.ticks(ticks))
    return decode(Marker, machine.rows[MARKER_KEY]).views["pages"].clock_ms


def test_a_wall_clock_shows_the_latest_tick() -> None:
    assert clock_after() == 0
    assert clock_after(50) == 50
    assert clock_after(50, 60) == 60


def test_no_clock_goes_back() -> None:
    assert clock_after(50, 40) == 50
    machine, one = Machine(), counter(view(clock="event"))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([watermark(0, 40), watermark(1, 20)], 100))
    assert decode(Marker, machine.rows[MARKER_KEY]).views["pages"].clock_ms == 40


def test_a_watermark_ahead_of_the_tick_behind_it_counts_as_the_tick() -> None:
    machine, one = Machine(), counter(view(clock="event"))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([watermark(0, 1100)], 100))
    assert decode(Marker, machine.rows[MARKER_KEY]).views["pages"].clock_ms == 100


def test_no_event_moves_a_clock() -> None:
    """Removing a user must not change when a window closes (specs/lossless 1.2)."""
    machine, one = Machine(), counter(view("a"), view("b", clock="event"))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([event(0, "u", "a", 900), event(1, "v", "a", 1)], 100))
    marks = decode(Marker, machine.rows[MARKER_KEY]).views
    assert (marks["a"].clock_ms, marks["b"].clock_ms) == (0, 0)
    assert letters(machine.sent) == {}


def event_clock(machine: Machine) -> int:
    return decode(Marker, machine.rows[MARKER_KEY]).views["pages"].clock_ms


def idle(machine: Machine) -> PartitionCounter:
    """A counter with an event clock that goes on after 100 ms, a watermark of 40 counted with the tick of 1000."""
    one = loaded(machine, view(clock="event", idle_ms=100))
    machine.carry_out(one.chunk([watermark(0, 40)], 1000))
    machine.carry_out(one.ticks([1000]))
    return one


def test_an_event_clock_goes_on_with_the_wall_clock_after_idle_time_without_a_watermark() -> None:
    machine = Machine()
    one = idle(machine)

    def after(now: int) -> int:
        machine.carry_out(one.ticks([now]))
        return event_clock(machine)

    assert after(1099) == 40
    assert after(1100) == 140
    assert after(1199) == 140
    machine.carry_out(one.chunk([event(1, "u", "a", 1)], 1250))  # an event is no sign of life: it would be data
    assert after(1250) == 290
    machine.carry_out(one.chunk([watermark(2, 45)], 1300))
    assert after(1399) == 290
    assert after(1400) == 390


def test_ticks_of_one_fetch_are_the_steps_of_an_idle_clock_as_if_they_came_apart() -> None:
    apart, together = Machine(), Machine()
    times = (1090, 1110, 1200, 1215, 1300)
    one = idle(apart)
    for now in times:
        apart.carry_out(one.ticks([now]))
    together.carry_out(idle(together).ticks(times))

    assert event_clock(apart) == 40 + 110 + 105
    assert apart.rows == together.rows


def test_a_restart_changes_no_idle_time() -> None:
    machine = Machine()
    idle(machine)
    one = loaded(machine, view(clock="event", idle_ms=100))
    machine.carry_out(one.ticks([1099]))
    assert event_clock(machine) == 40
    one = loaded(machine, view(clock="event", idle_ms=100))
    machine.carry_out(one.ticks([1100]))
    assert event_clock(machine) == 140


def test_ticks_that_are_read_again_are_no_idle_time() -> None:
    """After a crash, an outage among them too: else the clock would go on faster than the wall clock."""
    machine, times = Machine(), (1100, 1200, 90_000, 90_100)
    machine.carry_out(idle(machine).ticks(times))
    assert event_clock(machine) == 340
    one = loaded(machine, view(clock="event", idle_ms=100))
    machine.carry_out(one.ticks([1000, *times]))
    assert event_clock(machine) == 340
    machine.carry_out(one.ticks([90_200]))
    assert event_clock(machine) == 440


def test_time_in_which_nobody_made_ticks_is_no_idle_time() -> None:
    """What kept the workers away may have kept the producers away: they have the idle time to come back in."""
    machine = Machine()
    one = idle(machine)
    machine.carry_out(one.ticks([61_000]))
    assert event_clock(machine) == 60_040
    machine.carry_out(one.ticks([121_001, 121_100]))
    assert event_clock(machine) == 60_040
    machine.carry_out(one.ticks([121_101]))
    assert event_clock(machine) == 60_140


# -- when a window was closed -----------------------------------------------------------------------------------------


def closes(machine: Machine) -> list[tuple[int, int]]:
    """Start and close of the windows that were handed on, in order."""
    return list(dict.fromkeys((partial.start_ms, partial.closed_ms) for partial in partials(machine.sent)))


def test_a_window_is_closed_at_the_time_of_the_tick_that_closes_it() -> None:
    machine = Machine()
    one = loaded(machine, view())
    machine.carry_out(one.ticks([13]))
    machine.carry_out(one.ticks([20]))
    machine.carry_out(one.ticks([34]))
    assert closes(machine) == [(0, 13), (10, 34), (20, 34)]


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
    machine.carry_out(one.ticks([1103]))
    assert closes(machine)[0] == (0, 1103)


def test_a_window_that_is_handed_on_again_after_a_crash_bears_the_close_that_was_stored() -> None:
    """Its partials have the same bytes, whenever the process is started again and whatever the clock shows then."""

    def run(cut: int | None) -> Machine:
        machine = Machine(cut_after=cut)
        one = counter(view())
        try:
            machine.carry_out(one.load(machine))
            machine.carry_out(one.chunk([event(0, "u", "a", 1)], 2))
            machine.carry_out(one.ticks([13]))
        except CutError:
            pass
        machine.cut_after = None
        again = loaded(machine, view())
        machine.carry_out(again.ticks([23]))
        return machine

    whole = run(None)
    stored = next(at for at in range(whole.points) if (0, 13) in closes(run(at)))
    assert closes(run(stored - 1)) == [(0, 23), (10, 23)], "the tick was not stored"
    for cut in range(stored, whole.points):
        machine = run(cut)
        assert closes(machine) == [(0, 13), (10, 23)]
        assert newest(machine.sent) == newest(whole.sent)
