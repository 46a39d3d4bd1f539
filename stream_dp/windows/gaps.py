"""Windows that may lack records which were deleted before they were counted.

A record is missing if the partition's log begins behind the next offset to count: its retention was shorter than a
worker was down or behind. Nobody knows what the record was. By the logs it was in time for a window only if

* the window was open at the place of the record: its clock was not behind that of the last record before the gap;
* the window begins at most `max_ahead` behind the time of the first tick behind the record.

With a clock of watermarks, some of these may be missing too. They do not go back in a partition, so the clock at the
missing record was at most that of the next watermark that is later than all before the gap; and events are at most
`max_ahead` in front of the watermarks. Until there is one, the tick bounds it.

All windows in between are refused as lost; all others have every record that is theirs. It follows from ticks,
watermarks and offsets, so it is public, and the same however often and how fast the logs are read. Where contributions
are bounded over more than a window, what a user added to lost windows does not use the bound up unless it was counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stream_dp.windows.count_rows import SourcePartitionClock, ViewMark
from stream_dp.windows.durations import format_time
from stream_dp.windows.views import CountedView

Interval = tuple[int, int]


def open_gap(view: CountedView, mark: ViewMark, clock: ViewMark | SourcePartitionClock, now_ms: int) -> Interval | None:
    """Note that records are missing at the present place of a partition.

    Args:
        view: the view.
        mark: how far it is; changed in place.
        clock: its time in the partition of the source; changed in place.
        now_ms: the time of the first tick behind the records.

    Returns:
        Which windows may lack some of them, as far as is known: the first start, and the time before which the last
        one starts. None if there are none.
    """
    first = max(view.closed_before(clock.clock_ms), mark.open_from_ms)
    until = _behind(view, now_ms)
    if first >= until:
        return None
    if view.clock == "wall":
        mark.lost = joined([*mark.lost, (first, until)])
    else:
        before = clock.gap or (first, until)
        clock.gap = min(before[0], first), max(before[1], until)
    return first, until


def close_gap(view: CountedView, mark: ViewMark, clock: ViewMark | SourcePartitionClock, shown_ms: int) -> None:
    """Bound an open gap by the first watermark behind it that is news; to be called before it moves the clock.

    Args:
        view: the view.
        mark: how far it is; changed in place.
        clock: its time in the partition of the source; changed in place.
        shown_ms: the time of the watermark.
    """
    if clock.gap is None:
        return
    # Idle time may have moved the clock further than the missing watermarks did: what that made late is lost, too.
    reached_ms = shown_ms if clock.clock_ms <= view.first_ms else max(clock.clock_ms, shown_ms)
    first, until = clock.gap
    mark.lost = joined([*mark.lost, (first, min(until, _behind(view, reached_ms)))])
    clock.gap = None


def begin_in_gap(view: CountedView, clock: ViewMark | SourcePartitionClock, opens_ms: int, gap_ms: int | None) -> None:
    """Let a view that is new to a partition begin in an open gap.

    Args:
        view: the view.
        clock: its time in the partition of the source; changed in place.
        opens_ms: start of its first window.
        gap_ms: the time of the tick behind the gap; None if none is open.
    """
    if gap_ms is not None and view.clock == "event" and opens_ms < _behind(view, gap_ms):
        clock.gap = opens_ms, _behind(view, gap_ms)


def is_lost(mark: ViewMark, start_ms: int) -> bool:
    """Return True if a window may lack records that were deleted."""
    return any(first <= start_ms < until for first, until in [*mark.lost, *open_gaps(mark)])


def note_interrupted(view: CountedView, mark: ViewMark, shown_ms: int, now_ms: int) -> None:
    """Note the windows that a clock closed before its partition had caught up.

    Args:
        view: the view.
        mark: how far it is; changed in place.
        shown_ms: what the clock showed before.
        now_ms: what it shows now.
    """
    closed = view.closed_before(shown_ms), view.closed_before(now_ms)
    mark.interrupted = joined([*mark.interrupted, closed])


def is_interrupted(mark: ViewMark, start_ms: int) -> bool:
    """Return True if a partition of the source closed a window before it had caught up."""
    return any(first <= start_ms < until for first, until in mark.interrupted)


def open_gaps(mark: ViewMark) -> list[Interval]:
    """The intervals of a view that the next watermark makes shorter."""
    gaps = [mark.gap, *(source_partition.gap for source_partition in mark.source_partitions.values())]
    return [gap for gap in gaps if gap is not None]


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Intervals in order, those that overlap or touch as one; empty ones left out."""
    found: list[Interval] = []
    for first, until in sorted(one for one in intervals if one[0] < one[1]):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], until)
        else:
            found.append((first, until))
    return found


def words(source: str, partition: int, first: int, behind: int, spans: Sequence[tuple[CountedView, Interval]]) -> str:
    """Say which records are missing, and which windows are refused for it.

    Args:
        source: its name.
        partition: of the source.
        first: the first offset that is missing.
        behind: the offset behind the last.
        spans: the windows of each view.
    """
    said = f"source {source}, partition {partition}: {described(first, behind)}"
    refused: dict[str, Interval] = {}
    on_watermarks: set[str] = set()
    for view, (start, until) in spans:
        before = refused.get(view.view, (start, until))
        refused[view.view] = min(before[0], start), max(before[1], until)
        if view.clock == "event":
            on_watermarks.add(view.view)
    if not refused:
        return f"{said}; no window that is counted is touched"
    views = [
        f"{name}, those that start from {format_time(start)} to "
        + (
            f"max_ahead behind the next watermark, {format_time(until - 1)} at most"
            if name in on_watermarks
            else format_time(until - 1)
        )
        for name, (start, until) in sorted(refused.items())
    ]
    return f"{said}. Windows that may lack some of them are refused as lost, and nothing is charged: {'; '.join(views)}"


def described(first: int, behind: int) -> str:
    """Say which offsets are missing."""
    what = f"the record at offset {first} was" if behind == first + 1 else f"records {first} to {behind - 1} were"
    return f"{what} deleted before {'it was' if behind == first + 1 else 'they were'} counted"


def _behind(view: CountedView, clock_ms: int) -> int:
    """The first time that no window starts at which an event may be in that is in time when the clock shows a time."""
    return clock_ms + view.max_ahead_ms + 1
