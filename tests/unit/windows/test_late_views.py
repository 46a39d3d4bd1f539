"""A view that begins, or is put back, while its source is counted: each of its windows is exact, or lost.

The stream runs at any speed beside the wall clock, and each partition learns of the view at a place of its own. What is
handed on is compared with a counter that knew the view before the first record.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.windows import handover
from tests.support.chosen import ordinarily
from tests.support.counting import event, handed_on, loaded, partials, view, watermark
from tests.support.late import Story, made
from tests.support.machine import Machine


@pytest.mark.parametrize("clock", ["event", "wall"])
@pytest.mark.parametrize("seed", ordinarily(6, range(40)))
def test_each_window_of_a_view_that_is_learned_late_is_exact_or_lost(seed: int, clock: str) -> None:
    story = made(seed, clock)
    story.check(story.run())


@pytest.mark.parametrize("seed", ordinarily(4, range(8)))
def test_crashes_while_a_view_is_learned_leave_each_window_exact_or_lost(seed: int) -> None:
    story, chance = made(seed, "event"), random.Random(seed)
    lost = story.check(story.run())
    for _ in range(3):
        assert story.check(story.run(cuts=[chance.randrange(200) for _ in range(3)])) == lost


@pytest.mark.parametrize("mutant", ["nothing is missed", "the clock alone", "what was counted before a gap"])
def test_a_rule_that_misses_events_is_found_out(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant == "nothing is missed":
        monkeypatch.setattr(handover.Handover, "_unread_from", lambda _self, one: one.first_ms)
    elif mutant == "the clock alone":
        monkeypatch.setattr(handover.Handover, "_unread_from", lambda self, _one: self._stream_ms)
    else:
        monkeypatch.setattr(
            handover.Handover, "_counted_until_now", lambda self, one: [former for former, _ in self._earlier(one)]
        )
    stories = [made(seed, "event") for seed in range(60)]
    assert not all(map(_holds, stories))


def _holds(story: Story) -> bool:
    try:
        story.check(story.run())
    except AssertionError:
        return False
    return True


def test_a_definition_that_begins_far_ahead_says_nothing_of_how_far_the_stream_is() -> None:
    """Its clock stands at its first window, and nothing has moved it there."""
    by_watermarks: dict[str, Any] = {"clock": "event", "max_ahead_ms": 5, "grace_ms": 0}
    old, hour = view("old", **by_watermarks), view("hour", first_ms=40, **by_watermarks)
    month = view("month", length_ms=1000, first_ms=1000, **by_watermarks)
    machine = Machine()
    one = loaded(machine, old)
    machine.carry_out(one.chunk([event(0, "u", "x", 1), watermark(1, 20)], 21))
    machine.carry_out(loaded(machine, old, month).ticks([22]))
    machine.sent.clear()
    loaded(machine, old, month, hour)
    assert partials(machine.sent) == []


def test_a_view_that_changes_before_the_first_watermark_loses_no_window_to_the_wall_clock() -> None:
    """A stream that is read from its beginning is far behind it, so all windows up to now would be lost."""
    by_watermarks: dict[str, Any] = {"clock": "event", "max_ahead_ms": 5, "grace_ms": 0, "idle_ms": 1 << 40}
    first = view("pages", **by_watermarks)
    later = view("pages@2", first_ms=20, items_per_user=1, **by_watermarks)
    machine = Machine()
    machine.carry_out(loaded(machine, first).ticks([10**6]))
    machine.sent.clear()
    one = loaded(machine, replace(first, until_ms=20), later)
    machine.carry_out(one.chunk([event(0, "u", "x", 5), event(1, "u", "y", 31), watermark(2, 40)], 10**6 + 1))
    assert not [one for one in partials(machine.sent) if one.lost]
    assert handed_on(machine.sent) == {"pages": {0: {"x": 1}, 10: {}}, "pages@2": {20: {}, 30: {"y": 1}}}


def test_a_definition_does_not_take_over_a_clock_that_nothing_has_moved() -> None:
    """Else what it takes for late depends on where a definition begins that is not in force yet."""
    first = view("pages", grace_ms=0, until_ms=60)
    later = replace(view("pages@2", grace_ms=0, clock="event", first_ms=180), origin_ms=0)
    between = replace(view("pages@3", grace_ms=0, clock="event", first_ms=60), origin_ms=0)
    machine = Machine()
    machine.carry_out(loaded(machine, replace(first, until_ms=None)).ticks([5]))
    machine.carry_out(loaded(machine, replace(first, until_ms=180), later).ticks([6]))
    one = loaded(machine, first, replace(later, until_ms=180), between)
    machine.sent.clear()
    machine.carry_out(one.chunk([event(0, "u", "a", 65)], 61))
    machine.carry_out(one.chunk([watermark(1, 70)], 71))
    assert handed_on(machine.sent)["pages@3"][60] == {"a": 1}
