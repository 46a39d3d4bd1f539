"""The rule for outlying times is that of sorted times, whatever their number, order and size, in bounded memory."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.windows.durations import DAY_MS
from stream_dp.windows.outlying_times import MIN_GAP_MS, NAMED_PLACES, TimeSpread, longest_gap_ms
from stream_dp.windows.plausible_times import PlausibleTimes
from stream_dp.windows.shapes.tumbling import Tiling

NOW = 1_790_000_000_000
PLAUSIBLE = PlausibleTimes.of([None], [DAY_MS])
JANUARY = 1_704_067_200_000
"""2024-01-01, UTC."""


def spread_of(times: list[int], chunk: int = 7) -> TimeSpread[int]:
    found = TimeSpread[int](PLAUSIBLE, NOW, MIN_GAP_MS)
    for at in range(0, len(times), chunk):
        some = times[at : at + chunk]
        found.add(range(at, at + len(some)), some)
    return found


def bulk_by_sorting(times: list[int]) -> list[int]:
    """The longest run of plausible times, in order, without a gap; the first of several."""
    runs: list[list[int]] = []
    for time in sorted(time for time in times if PLAUSIBLE.has(time, NOW)):
        if runs and time - runs[-1][-1] <= MIN_GAP_MS:
            runs[-1].append(time)
        else:
            runs.append([time])
    return max(runs, key=len, default=[])


TIMES = st.one_of(
    st.integers(JANUARY, JANUARY + 31 * DAY_MS),
    st.integers(PLAUSIBLE.from_ms - DAY_MS, NOW + 2 * DAY_MS),
    st.sampled_from([JANUARY + MIN_GAP_MS, JANUARY + MIN_GAP_MS + 1, JANUARY - MIN_GAP_MS, JANUARY - MIN_GAP_MS - 1]),
    st.integers(),
)


@settings(deadline=None)
@given(st.lists(TIMES, max_size=40), st.integers(1, 9))
def test_the_bulk_is_that_of_the_sorted_times(times: list[int], chunk: int) -> None:
    spread, bulk = spread_of(times, chunk), bulk_by_sorting(times)
    found = spread.bulk
    assert (found and (found.events, found.first_ms, found.last_ms)) == (
        (len(bulk), bulk[0], bulk[-1]) if bulk else None
    )
    assert sum(one.span.events for one in spread.outlying()) == len(times) - len(bulk)
    for one in spread.outlying():
        assert all(times[place] == time for place, time in one.span.places)
        assert len(one.span.places) == min(one.span.events, NAMED_PLACES)


def test_many_outliers_at_both_ends_are_outlying() -> None:
    chance = random.Random(1)
    january = [JANUARY + chance.randrange(31 * DAY_MS) for _ in range(300)]
    early = [JANUARY - 400 * DAY_MS - chance.randrange(9) for _ in range(40)]
    late = [JANUARY + at * 200 * DAY_MS for at in range(1, 5)] * 10
    far = [4_102_358_400_000, 253_402_214_400_000, 10**30]  # 2099-12-31, 9999-12-31
    times = [*january, *early, *late, *far, 0, -(10**30)]
    chance.shuffle(times)
    assert [(one.why, one.span.events) for one in spread_of(times).outlying()] == [
        ("too early to be plausible", 2),
        ("far before the others", 40),
        ("far after the others", 40),
        ("too far ahead of the clock", 3),
    ]


def test_memory_does_not_grow_with_the_number_of_events() -> None:
    """Nor with their spread, even if every time is of a wrong unit."""
    chance = random.Random(2)
    spread = spread_of([chance.randrange(PLAUSIBLE.from_ms, NOW) for _ in range(20_000)], 5000)
    spread.add(range(5000), [chance.randrange(10**18) for _ in range(5000)])
    assert len(spread._buckets) <= 1 + (NOW - PLAUSIBLE.from_ms) // MIN_GAP_MS


def test_a_long_window_makes_the_gap_longer() -> None:
    assert longest_gap_ms([Tiling(DAY_MS)]) == 90 * DAY_MS
    assert longest_gap_ms([Tiling(DAY_MS), Tiling(7 * DAY_MS)]) == 210 * DAY_MS
