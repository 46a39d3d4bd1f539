"""How windows and periods lie to one another, against what that means moment by moment."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import pytest

from stream_dp.windows.shapes.hopping import Hopping
from stream_dp.windows.shapes.shape import Interval, Schedule
from stream_dp.windows.shapes.tumbling import Tiling

LENGTHS = range(1, 9)
PAIRS = [
    (Tiling(length, origin), Tiling(period, start))
    for length, period in product(LENGTHS, LENGTHS)
    for origin, start in product((-7, -1, 0, 2, 5), (-3, 0, 4))
]
"""Windows and periods: every pair of lengths up to 8, in 15 places to one another."""


def straddles(windows: Tiling, periods: Tiling) -> bool:
    """Whether two moments of one window are in two periods; the picture repeats after at most 56."""
    return any(
        windows.start_of(moment) == windows.start_of(moment + 1)
        and periods.start_of(moment) != periods.start_of(moment + 1)
        for moment in range(-60, 60)
    )


def test_windows_tile_periods_if_and_only_if_no_window_is_in_two() -> None:
    tiled = [windows.tiles(periods) for windows, periods in PAIRS]
    assert tiled == [not straddles(windows, periods) for windows, periods in PAIRS]
    assert 0 < sum(tiled) < len(PAIRS)


def test_intervals_hold_and_overlap_one_another_as_their_moments_do() -> None:
    intervals = [Interval(start, end) for start, end in combinations(range(-3, 4), 2)]
    for one, other in product(intervals, intervals):
        mine, theirs = range(one.start_ms, one.end_ms), range(other.start_ms, other.end_ms)
        assert one.holds(other) == (set(theirs) <= set(mine))
        assert one.overlaps(other) == other.overlaps(one) == (not set(mine).isdisjoint(theirs))


def test_a_tiling_is_that_of_each_of_its_intervals() -> None:
    for tiling, moment in product([Tiling(3, -1), Tiling(1), Tiling(8, 5)], range(-20, 20)):
        interval = tiling.interval(moment)
        assert interval.start_ms <= moment < interval.end_ms
        assert Tiling.of(interval).length_ms == tiling.length_ms
        assert all(Tiling.of(interval).start_of(at) == tiling.start_of(at) for at in range(-20, 20))


def test_windows_that_fit_are_the_longest_that_do_and_are_moved_by_less_than_one() -> None:
    """Of those that are a whole number of the largest unit that both lengths are written in."""
    for windows, periods in PAIRS:
        found = windows.to_tile(periods)
        assert not straddles(found, periods)
        units = [unit for unit in LENGTHS if windows.length_ms % unit == periods.length_ms % unit == 0]
        lengths = [length for length in LENGTHS if length % units[-1] == 0 and periods.length_ms % length == 0]
        assert found.length_ms == max(length for length in lengths if length <= windows.length_ms)
        assert abs(found.origin_ms - windows.origin_ms) < found.length_ms


def test_windows_that_tile_are_left_as_they_are() -> None:
    for windows, periods in PAIRS:
        if windows.tiles(periods):
            assert windows.to_tile(periods) == windows
            assert periods.to_be_tiled(windows) == [periods]


def test_periods_that_fit_are_the_next_shorter_and_longer() -> None:
    for windows, periods in PAIRS:
        found = periods.to_be_tiled(windows)
        assert not any(straddles(windows, period) for period in found)
        fitting = [length for length in range(1, 17) if length % windows.length_ms == 0]
        shorter = [length for length in fitting if length <= periods.length_ms]
        longer = [length for length in fitting if length >= periods.length_ms]
        assert [period.length_ms for period in found] == sorted({*shorter[-1:], longer[0]})


@pytest.mark.parametrize("origin", [-10, -1, 0, 1, 10])
def test_windows_are_moved_towards_1970(origin: int) -> None:
    """A start near the first or last moment that can be written must not be moved out of what can."""
    assert abs(Tiling(7, origin).to_tile(Tiling(7, 3)).origin_ms) <= max(abs(origin), 7)


def test_search_for_a_length_that_fits_ends_where_lengths_have_no_unit_in_common() -> None:
    windows, periods = Tiling(366 * 86_400_000), Tiling(366 * 86_400_000 + 1)
    assert windows.to_tile(periods).tiles(periods)


# -- windows that hop, and those that a period pays for -------------------------------------------------------------

SHAPES: list[Tiling | Hopping] = [
    *(Tiling(length, origin) for length, origin in product((1, 2, 3, 6), (-7, 0, 2))),
    *(
        Hopping(length, step, origin)
        for length, step in ((2, 1), (4, 2), (6, 2), (6, 3), (5, 1))
        for origin in (-7, 0, 2)
    ),
]
MOMENTS = range(-20, 21)


def windows_of(shape: Tiling | Hopping) -> list[int]:
    """Starts far beyond every moment, walked from the origin."""
    step = shape.grid.shortest_ms
    return [shape.origin_ms + step * number for number in range(-60 // step, 60 // step + 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_shape_says_what_its_windows_are_one_by_one(shape: Tiling | Hopping) -> None:
    starts = windows_of(shape)
    for moment in MOMENTS:
        around = [start for start in starts if start <= moment < shape.end(start)]
        assert len(around) == shape.at_once
        assert shape.start_of(moment) == around[-1]
        assert (shape.interval(moment).start_ms, shape.interval(moment).end_ms) == (around[-1], shape.end(around[-1]))
        assert sorted(tiling.start_of(moment) for tiling in shape.tilings) == around
        assert shape.first_open(moment) == next(start for start in starts if shape.end(start) > moment)
        assert shape.first_from(moment) == next(start for start in starts if start >= moment)
        first = shape.first_from(-20)
        assert shape.begun(first, moment) == sum(first <= start < moment for start in starts)
        assert shape.begun(first, shape.first_open(moment)) == sum(
            first <= start and shape.end(start) <= moment for start in starts
        )
        assert [*shape.starts(first, moment)] == [start for start in starts if first <= start < moment]
    assert {tiling.shortest_ms for tiling in shape.tilings} == {shape.length_ms}
    assert shape.next(starts[0], 3) == starts[3]
    assert shape.per_second == 1000 / Fraction(shape.grid.shortest_ms)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_schedule_has_the_windows_that_are_whole_in_a_period_and_no_other(shape: Tiling | Hopping) -> None:
    step = shape.grid.shortest_ms
    for periods in (Tiling(count * step, shape.origin_ms + shift * step) for count in (1, 2, 6, 7) for shift in (0, 1)):
        if periods.length_ms < shape.length_ms:
            continue
        assert shape.tiles(periods)
        schedule = Schedule(shape, periods)
        starts = windows_of(shape)
        whole = [start for start in starts if periods.interval(start).holds(Interval(start, shape.end(start)))]
        assert [start for start in starts if schedule.has(start)] == whole
        first = shape.first_from(-20)
        there = [start for start in whole if start >= first]
        assert [schedule.after(first, count) for count in range(9)] == there[:9]
        assert schedule.next(first) == there[0]
        for moment in MOMENTS:
            assert schedule.begun(first, moment) == sum(start < moment for start in there)
            assert schedule.begun(first, shape.first_open(moment)) == sum(shape.end(start) <= moment for start in there)
        for before in range(periods.length_ms + 1):
            of_one = [start for start in whole if periods.start_of(start) == periods.origin_ms]
            period, until = periods.interval(periods.origin_ms), periods.origin_ms + before
            assert shape.whole_in(period) == len(of_one)
            assert shape.whole_in(period, until) == sum(start < until for start in of_one)
