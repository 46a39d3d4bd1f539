"""What every registered window shape has to hold, for shapes and periods drawn from the settings that ask for them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.windows.durations import CalendarUnit
from stream_dp.windows.encoding import window_key, window_start
from stream_dp.windows.shapes import asked_shape
from stream_dp.windows.shapes.calendars import Calendar
from stream_dp.windows.shapes.hopping import Hopping
from stream_dp.windows.shapes.paned import Paned
from stream_dp.windows.shapes.running_totals import Running
from stream_dp.windows.shapes.shape import Interval, Schedule, Settings, Shape
from stream_dp.windows.shapes.tumbling import Tiling
from tests.support.chosen import examples

SECOND, HOUR, DAY = 1000, 3_600_000, 86_400_000
SHAPES: dict[str, type[Shape]] = {
    "calendar": Calendar,
    "running": Running,
    "paned": Paned,
    "hopping": Hopping,
    "tumbling": Tiling,
}
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/Sao_Paulo",  # clocks skipped midnight
    "America/St_Johns",  # they changed at 0:01
    "Pacific/Apia",  # 30 December 2011 is missing
    "Australia/Lord_Howe",  # half an hour
    "Asia/Kolkata",
)
ORIGINS = st.sampled_from([None, 0, 7 * SECOND, -5 * SECOND, 1_704_067_200_000])
UNITS = st.sampled_from(CalendarUnit)
MOMENTS = st.integers(-200 * 365 * DAY, 400 * 365 * DAY) | st.integers(0, 100) | st.integers(17 * 10**11, 18 * 10**11)


@st.composite
def lengths(draw: st.DrawFn) -> tuple[int, int, int]:
    """A pane, and a step and a size that are made of panes, not too many."""
    pane = draw(st.sampled_from([SECOND, 7 * SECOND, HOUR, 15 * HOUR, DAY]))
    step = pane * draw(st.integers(1, 4))
    return pane, step, step * draw(st.integers(2, 6))


@st.composite
def settings_of(draw: st.DrawFn, name: str) -> Settings:
    """Settings that ask for a shape."""
    pane, step, size = draw(lengths())
    origin = draw(ORIGINS)
    match name:
        case "tumbling":
            return Settings(size, start_ms=origin)
        case "hopping":
            return Settings(size, step, start_ms=origin)
        case "paned":
            return Settings(size, step, pane, origin)
        case "running":
            return Settings(size, pane=pane, start_ms=origin, totals=True)
    unit, zone = draw(UNITS), draw(st.sampled_from(ZONES))
    return Settings(DAY if unit is CalendarUnit.DAY else unit, zone=zone)


def shapes(*names: str) -> st.SearchStrategy[Shape]:
    return st.sampled_from(names or tuple(SHAPES)).flatmap(settings_of).map(lambda one: asked_shape(one).planned(one))


def periods() -> st.SearchStrategy[Shape]:
    return shapes("tumbling", "calendar")


def parts(shape: Shape) -> list[Shape]:
    """How it cuts time in every respect."""
    return [shape, shape.counted, shape.released, shape.paid, shape.told, *([shape.bounds] if shape.bounds else [])]


def walked(shape: Shape, first: int, count: int) -> list[int]:
    starts = [first]
    while len(starts) < count:
        starts.append(shape.next(starts[-1]))
    return starts


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_what_settings_ask_for(name: str) -> None:
    @given(settings_of(name))
    def check(settings: Settings) -> None:
        assert asked_shape(settings) is SHAPES[name]
        assert not list(SHAPES[name].faults(settings))

    check()


@examples(30, 100, given(shapes(), MOMENTS))
def test_every_moment_is_in_exactly_the_right_intervals(shape: Shape, moment: int) -> None:
    for part in parts(shape):
        newest = part.start_of(moment)
        around = [part.next(newest, -back) for back in range(part.at_once + 2)]
        assert newest <= moment < part.next(newest)
        assert sum(start <= moment < part.end(start) for start in around) >= 1
        if part.longest.length_ms % part.grid.longest.length_ms == 0 or part.at_once == 1:
            assert sum(start <= moment < part.end(start) for start in around) == part.at_once
        assert part.interval(moment) == Interval(newest, part.end(newest))


@examples(30, 100, given(shapes("tumbling", "hopping", "calendar"), MOMENTS))
def test_tilings_have_each_moment_once_and_meet(shape: Shape, moment: int) -> None:
    own = {shape.next(shape.start_of(moment), -back) for back in range(shape.at_once)}
    assert {tiling.start_of(moment) for tiling in shape.tilings} == own
    for tiling in shape.tilings:
        start = tiling.start_of(moment)
        assert start <= moment < tiling.end(start) == tiling.next(start) == shape.end(start)
        assert tiling.next(tiling.next(start, -1)) == tiling.end(tiling.next(start, -1)) == start


@given(shapes(), MOMENTS, st.integers(1, 12), st.integers(0, 40))
def test_starts_are_found_and_counted_as_if_they_were_walked(shape: Shape, moment: int, count: int, part: int) -> None:
    for one in parts(shape):
        starts = walked(one, one.first_from(moment), count + 1)
        first, until = starts[0], starts[-1]
        assert first >= moment > one.next(first, -1)
        assert [*one.starts(first, until)] == starts[:-1]
        assert one.begun(first, until) == count
        assert one.next(first, count) == until
        assert one.next(until, -count) == first
        between = first + (until - first) * part // 40
        assert one.begun(first, between) == sum(start < between for start in starts)
        assert one.begun(first, one.first_open(between)) == sum(one.end(start) <= between for start in starts)
        assert one.first_open(between) == next(
            start
            for start in walked(one, one.next(one.start_of(between), -one.at_once - 2), one.at_once + 5)
            if one.end(start) > between
        )


@given(shapes(), MOMENTS)
def test_what_is_paid_and_bounded_together_is_made_of_whole_ones(shape: Shape, moment: int) -> None:
    start = shape.start_of(moment)
    counted = Interval(start, shape.end(start))
    for longer in (shape.paid, shape.bounds):
        if longer is not None:
            assert longer.interval(start).holds(counted)
            assert shape.counted.start_of(longer.start_of(start)) == longer.start_of(start)
    assert shape.kept(HOUR) >= HOUR


@given(shapes("paned"), MOMENTS)
def test_a_window_of_panes_is_its_panes(shape: Shape, moment: int) -> None:
    window = shape.released.interval(moment)
    last = shape.start_of(window.end_ms - 1)
    panes = shape.of_window(last)
    assert (panes[0], shape.end(panes[-1]), len(panes)) == (window.start_ms, window.end_ms, shape.panes)
    assert [shape.end(start) for start in panes[:-1]] == [*panes[1:]]
    ends = [start for start in walked(shape, last, shape.panes) if shape.of_window(start)]
    assert [shape.end(start) for start in ends] == [
        shape.released.end(start) for start in walked(shape.released, window.start_ms, len(ends))
    ]


@given(shapes("running"), MOMENTS)
def test_a_total_is_its_blocks(shape: Shape, moment: int) -> None:
    start = shape.start_of(moment)
    total = shape.total(start)
    assert (total.start_ms, total.end_ms) == (shape.paid.start_of(start), shape.end(start))
    assert shape.blocks(start)[-1] == start
    assert len(shape.blocks(start)) <= shape.summands
    assert shape.paid.begun(total.start_ms, total.end_ms) == 1
    assert shape.counted.begun(total.start_ms, shape.paid.end(total.start_ms)) == shape.totals


@given(shapes(), shapes())
def test_two_shapes_that_count_or_charge_otherwise_never_share_an_identity(one: Shape, other: Shape) -> None:
    def alike(shape: Shape) -> Sequence[object]:
        return [_lengths(part) for part in (shape.counted, shape.paid, shape.bounds)]

    assert (one.identity == other.identity) == (alike(one) == alike(other))


def _lengths(shape: Shape | None) -> object:
    if shape is None or isinstance(shape, Calendar):
        return shape
    return shape.shortest_ms, shape.grid.shortest_ms


@st.composite
def charged(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """What is paid for together, and periods that it tiles."""
    windows = draw(shapes()).paid
    zone, first = draw(st.sampled_from(ZONES)), windows.first_from(0)
    found: list[Shape] = [windows] if windows.at_once == 1 else [Tiling(windows.shortest_ms, first)]
    if not isinstance(windows, Calendar):
        found += [Tiling(windows.shortest_ms * count, first) for count in (2, 7)]
    zones = {zone, windows.zone if isinstance(windows, Calendar) else "UTC"}
    calendars = [Calendar(unit, one) for unit in CalendarUnit for one in sorted(zones)]
    return windows, draw(st.sampled_from(found + [one for one in calendars if windows.tiles(one)]))


@pytest.mark.slow
@given(charged(), MOMENTS)
def test_a_period_holds_what_it_pays_for_and_never_more_than_the_longest(
    pair: tuple[Shape, Shape], moment: int
) -> None:
    windows, ledger = pair
    schedule, period = Schedule(windows, ledger), ledger.interval(moment)
    start = schedule.next(windows.start_of(moment))
    assert ledger.interval(start).holds(Interval(start, windows.end(start)))
    assert windows.whole_in(period) == schedule.begun(period.start_ms, period.end_ms)
    assert windows.whole_in(period) <= windows.whole_in(ledger.longest)
    assert windows.first_from(period.start_ms) == period.start_ms
    assert period.length_ms <= ledger.longest.length_ms
    assert period.length_ms >= ledger.shortest_ms
    if windows.whole_in(period) <= 800:
        starts = [one for one in windows.starts(period.start_ms, period.end_ms) if windows.end(one) <= period.end_ms]
        assert windows.whole_in(period) == len(starts)
        middle = starts[len(starts) // 2]
        assert windows.whole_in(period, middle) == len(starts) // 2
        assert schedule.after(period.start_ms, len(starts) // 2) == middle
        assert schedule.after(period.start_ms, len(starts)) == period.end_ms


@examples(30, 100, given(shapes(), periods()))
def test_windows_that_tile_no_periods_could_be_charged_to_one_that_lacks_their_events(
    shape: Shape, ledger: Shape
) -> None:
    """Of fixed lengths all is said by their common multiple; of calendars by the years that rules are known of."""
    windows = shape.paid
    calendars = isinstance(ledger, Calendar) or isinstance(windows, Calendar)
    count = 3000 if calendars else 500
    first_ms = 1_262_304_000_000
    if isinstance(ledger, Calendar) and ledger.unit is CalendarUnit.DAY:
        count = 800
    elif isinstance(ledger, Calendar) and ledger.unit is not CalendarUnit.WEEK:
        first_ms = 0  # a zone may have left its half hours long ago
    starts = walked(ledger, ledger.first_from(first_ms), count)
    whole = all(windows.start_of(start) == start for start in starts)
    fits = windows.longest.length_ms <= ledger.shortest_ms or windows.at_once == 1
    if windows.tiles(ledger):
        assert whole
        assert fits
    else:
        assert not (whole and fits)


@given(shapes(), MOMENTS)
def test_windows_are_named_by_their_start_in_keys(shape: Shape, moment: int) -> None:
    start = shape.start_of(moment)
    key = window_key(b"w", "pages", start)
    assert window_start(b"w", "pages", key) == start
    assert shape.start_of(window_start(b"w", "pages", key)) == start


@examples(
    30,
    100,
    given(shapes("tumbling", "hopping", "calendar"), shapes("tumbling", "calendar"), st.integers(0, 2 * 10**12)),
)
def test_new_settings_begin_where_windows_of_both_meet(one: Shape, other: Shape, moment: int) -> None:
    found = one.grid.first_common(other, moment)
    assert found == other.first_common(one.grid, moment)
    if found is not None:
        assert found >= moment
        assert one.grid.start_of(found) == other.start_of(found) == found
    shorter, longer = sorted([one.grid, other], key=lambda shape: shape.longest.length_ms)
    common = (start for start in walked(longer, longer.first_from(moment), 40) if shorter.start_of(start) == start)
    assert found == next(common, found)


def test_periods_of_a_ledger_are_one_interval_once_they_have_begun() -> None:
    month = Calendar(CalendarUnit.MONTH, "Europe/Berlin").interval(1_709_000_000_000)
    assert Tiling.of(month).interval(month.end_ms - 1) == month
