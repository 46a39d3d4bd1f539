"""A worker believes a watermark only if it is plausible in ms at the tick in the log, not at its own clock."""

from __future__ import annotations

import pytest

from stream_dp.windows.count_rows import MARKER, Marker
from stream_dp.windows.durations import DAY_MS
from stream_dp.windows.encoding import decode, text
from stream_dp.windows.plausible_times import PlausibleTimes
from tests.support.counting import counter, event, handed_on, letters, totals, view, watermark
from tests.support.machine import Machine

NOW = 1_790_000_000_000
FIRST = NOW - NOW % 1000 - 10_000
VIEW = view(clock="event", length_ms=1000, first_ms=FIRST, max_ahead_ms=DAY_MS, idle_ms=1 << 40)
WRONG: dict[str, int | str] = {
    "seconds": NOW // 1000,
    "microseconds": 1000 * NOW,
    "nanoseconds": 1_000_000 * NOW,
    "a huge number": 10**30,
    "a huge negative number": -(10**30),
    "more digits than Python reads": "9" * 5000,
    "too far ahead": NOW + DAY_MS + 1,
    "a fraction": f"{NOW}.5",
    "1989": 631_151_999_999,
}


def counted(mark: int | str) -> Machine:
    """A counter with one event of the first window and, after it, a watermark; the tick after them is NOW."""
    machine, one = Machine(), counter(VIEW)
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([event(0, "u", "a", FIRST), watermark(1, mark)], NOW))
    return machine


@pytest.mark.parametrize("mark", WRONG.values(), ids=WRONG)
def test_a_watermark_in_a_wrong_unit_is_refused(mark: int | str) -> None:
    machine = counted(mark)
    assert handed_on(machine.sent) == {}
    assert letters(machine.sent) == {(1, "bad_watermark"): 1}
    assert totals(machine)["events_refused", (("reason", "bad_watermark"), ("view", ""))] == 1
    assert ("watermarks_read", ()) not in totals(machine)


@pytest.mark.parametrize("mark", [NOW, NOW + DAY_MS], ids=["now", "as far ahead as an event may be"])
def test_a_watermark_in_ms_closes_windows_up_to_the_tick(mark: int) -> None:
    machine = counted(mark)
    assert letters(machine.sent) == {}
    assert decode(Marker, machine.rows[MARKER + text("visits")]).views["pages"].clock_ms == NOW
    assert handed_on(machine.sent)["pages"][FIRST] == {"a": 1}


def test_history_is_believed() -> None:
    """Watermarks of 2024 in 2026, and those of 1985 if a view has windows then."""
    assert PlausibleTimes.of([None], [DAY_MS]).has(1_704_067_200_000, NOW)
    assert not PlausibleTimes.of([None], [DAY_MS]).has(480_000_000_000, NOW)
    assert PlausibleTimes.of([480_000_000_000], [DAY_MS]).has(470_000_000_000, NOW)


def test_the_unit_of_a_number_is_recognised() -> None:
    plausible = PlausibleTimes.of([None], [DAY_MS])
    found = {unit: plausible.unit_of(int(WRONG[unit]), NOW) for unit in ("seconds", "microseconds", "nanoseconds")}
    assert found == {unit: unit for unit in found}
    assert not plausible.unit_of(10**30, NOW)
