"""A view that begins, or is put back, while its source is counted: each of its windows is exact, or lost.

The stream runs at any speed beside the wall clock, and each partition learns of the view at a place of its own. What is
handed on is compared with a counter that knew the view before the first record.
"""

from __future__ import annotations

import random

import pytest

from stream_dp.windows import handover
from tests.support.chosen import ordinarily
from tests.support.late import Story, made


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
