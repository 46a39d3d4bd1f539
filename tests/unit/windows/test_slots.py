"""When releases leave: by the close of their window and by nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.windows.durations import Slots

TIMES = st.integers(-(10**13), 10**13)
ALL = st.builds(Slots, st.integers(100, 10**7), st.integers(0, 10**7))


@pytest.mark.parametrize(
    ("closed_ms", "slot_ms"), [(0, 2000), (1, 3000), (999, 3000), (1000, 3000), (1001, 4000), (-1, 2000), (-2000, 0)]
)
def test_a_window_takes_the_first_slot_at_or_after_its_offset(closed_ms: int, slot_ms: int) -> None:
    assert Slots(1000, 2000).after(closed_ms) == slot_ms


def test_an_offset_that_is_no_multiple_of_the_slot_is_rounded_up() -> None:
    assert [Slots(1000, 1500).after(closed) for closed in (0, 500, 501)] == [2000, 2000, 3000]


def test_without_an_offset_a_window_that_closes_at_a_slot_takes_it() -> None:
    assert [Slots(100, 0).after(closed) for closed in (0, 1, 100)] == [0, 100, 100]


@given(ALL, TIMES)
def test_slots_are_multiples_none_is_early_and_none_is_more_than_one_length_late(slots: Slots, closed_ms: int) -> None:
    slot = slots.after(closed_ms)
    assert slot % slots.every_ms == 0
    assert 0 <= slot - closed_ms - slots.offset_ms < slots.every_ms


@given(ALL, TIMES, st.integers(0, 10**7))
def test_what_closes_later_leaves_no_earlier(slots: Slots, closed_ms: int, later_ms: int) -> None:
    assert slots.after(closed_ms + later_ms) >= slots.after(closed_ms)


@pytest.mark.parametrize(("now_ms", "missed"), [(5000, False), (5250, False), (5251, True), (6000, True)])
def test_a_slot_that_is_reached_more_than_a_quarter_late_is_missed(now_ms: int, missed: bool) -> None:
    assert Slots(1000, 0).missed(5000, now_ms) is missed
