"""Handover between the definitions of a view in one partition of its source, when settings change.

A definition ends where the next one begins. What it had counted by then in later windows (events ahead of time) is the
next one's, as it was accepted, where that accepts the same; else it is given up, and refused as `changed`. So every
accepted contribution counts for one definition.

A definition that is new to a partition counts a window only if no event of it can have been read before. The windows in
front of the first such one are stood in for: they are refused as lost, and nothing is charged for them. They are

* those that an earlier definition has handed on counts of already;
* where no earlier definition accepted the same up to now, those that start at or before the clock here, in the log;
* with a clock of watermarks, where no earlier definition counted at all (a new view, or one that is put back), those
  that start within `max_ahead` of it.

The clock at a place in the log is public: it follows from ticks and watermarks. How far the events were that were read
says nothing here, since one user's event would decide what is refused for all. (That there is a record in front of a
tick may tell: by the wall clock it is known then that the time of that tick has been reached.)

What is moved is stored first, then the marker that says so, and only then the former rows are deleted. A crash before
the marker repeats all of it, to the same rows; one behind it leaves rows that are deleted when they are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stream_dp.windows.count_rows import JOURNAL, REPEATS, JournalRow, Marker, SourcePartitionClock, ViewMark
from stream_dp.windows.effects import Commit, Effect, Erase, Increment, Message, Rows, Send
from stream_dp.windows.encoding import CHUNK_BYTES, after, cut, decode, row_size, text, window_key, window_start
from stream_dp.windows.gaps import begin_in_gap, joined, open_gaps
from stream_dp.windows.marker_rows import MarkerRows
from stream_dp.windows.merging import LOST, Partial
from stream_dp.windows.views import HANDED_ON_AT_ONCE, CountedView

CHANGED = "changed"
"""Why a contribution is refused that no later definition accepts as the former one did."""


class Handover:
    """The handing over between the definitions of one partition, from what is stored of them."""

    def __init__(self, views: Sequence[CountedView], marker: Marker, rows: Rows) -> None:
        """Look what has to be handed over.

        Args:
            views: the definitions of all views of the source, those of a view in the order in which they were decided.
            marker: the stored one; changed in place.
            rows: the partition's table.
        """
        self._views = views
        self._marker = marker
        self._rows = rows
        self._known = frozenset(marker.views)

    def carried_out(self, stored: MarkerRows, outlet: Callable[[Partial], Message], partition: int) -> Iterator[Effect]:
        """Hand over what is not handed over yet.

        Args:
            stored: the rows of the marker.
            outlet: where partials go.
            partition: of the source.
        """
        marks = self._marker.views
        ending = [view for view in self._views if self._is_cut(view)]
        fresh = [view for view in self._views if view.name not in marks and self._marker.has_begun]
        for view in fresh:
            mark = self._begun(view)
            yield from send_lost_partials(view, mark, view.first_ms, outlet, partition)
            marks[view.name] = mark
        for view in ending:
            yield from self._move(view)
        if fresh or ending:
            yield Commit(stored.encode(self._marker))
        for view in self._views:
            if view.until_ms is not None:
                if left := [(key, None) for key, _ in self._behind(view, view.until_ms)]:
                    yield Commit(left)
                yield Erase(window_key(JOURNAL, view.name, view.until_ms), after(JOURNAL + text(view.name)))

    def _is_cut(self, view: CountedView) -> bool:
        mark = self._marker.views.get(view.name)
        return mark is not None and view.until_ms is not None and (mark.cut_ms is None or mark.cut_ms > view.until_ms)

    def _earlier(self, view: CountedView) -> list[tuple[CountedView, ViewMark]]:
        """The earlier definitions of a view that were counted here."""
        marks = self._marker.views
        before = self._views[: self._views.index(view)]
        return [(one, marks[one.name]) for one in before if one.view == view.view and one.name in marks]

    def _begun(self, view: CountedView) -> ViewMark:
        """The mark of a definition that was never counted here."""
        earlier, first = self._earlier(view), view.first_ms
        # One that has closed no window, since it was to begin later than this one, stands in nobody's way.
        come_to = [mark.open_from_ms for one, mark in earlier if mark.open_from_ms > one.first_ms]
        opens = view.windows.first_from(max([first, *come_to, self._unread_from(view)]))
        closed_ms = max([self._wall_ms, *(mark.closed_ms for _, mark in earlier)])
        begun = ViewMark.new(view, opens, closed_ms)
        # One that was over has heard of no watermark since: its clock would take all that time for idle.
        heard = (pair for pair in reversed(earlier) if pair[0].clock == view.clock and not _was_over(pair[1]))
        one, told = next(heard, (view, begun))

        def shown_ms(clock: ViewMark | SourcePartitionClock) -> int:
            """Return the time of a clock; one that nothing has moved stands where its definition begins."""
            return min(clock.clock_ms, first) if clock.clock_ms <= one.first_ms else clock.clock_ms

        begun.clock_ms, begun.idle_since_ms, begun.catch_up = shown_ms(told), told.idle_since_ms, told.catch_up
        begun.source_partitions = {
            number: SourcePartitionClock(shown_ms(clock), clock.idle_since_ms, catch_up=clock.catch_up)
            for number, clock in told.source_partitions.items()
        }
        self._begin_in_gaps(view, begun, earlier)
        return begun

    def _begin_in_gaps(
        self, view: CountedView, begun: ViewMark, earlier: Sequence[tuple[CountedView, ViewMark]]
    ) -> None:
        """Refuse the windows that may lack records which were deleted before they were counted (`gaps`).

        A gap that is still open reaches as far as the definition that counted then took events, whatever this one does.
        """
        opens = begun.open_from_ms
        lost = [interval for _, mark in earlier for interval in mark.lost]
        for one, mark in earlier:
            if view.clock == "wall" or one.max_ahead_ms > view.max_ahead_ms:
                lost += open_gaps(mark)
        begun.lost = joined((max(opens, first), until) for first, until in lost)
        interrupted = [interval for _, mark in earlier for interval in mark.interrupted]
        begun.interrupted = joined((max(opens, first), until) for first, until in interrupted)
        begin_in_gap(view, begun, opens, self._marker.gap_ms)
        for number, source_partition in self._marker.source_partitions.items():
            if source_partition.gap_ms is not None:
                clock = begun.source_partitions.setdefault(number, SourcePartitionClock(view.first_ms, None))
                begin_in_gap(view, clock, opens, source_partition.gap_ms)

    def _unread_from(self, view: CountedView) -> int:
        """No window of a definition that starts at this time or later can lack an event that was read before."""
        former = self._counted_until_now(view)
        if former and all(one.accepts_like(view) for one in former):
            return view.first_ms
        if view.clock == "wall":
            return self._wall_ms + 1
        return self._stream_ms + 1 + (0 if former else view.max_ahead_ms)

    def _counted_until_now(self, view: CountedView) -> list[CountedView]:
        """The earlier definitions that have counted what is from the start of one on; none if a time was nobody's."""
        found: list[CountedView] = []
        at_ms = view.first_ms
        for one, mark in sorted(self._earlier(view), key=lambda pair: pair[0].first_ms):
            if one.name in self._known and one.first_ms <= at_ms and (mark.cut_ms is None or mark.cut_ms > at_ms):
                found.append(one)
                if mark.cut_ms is None:
                    return found
                at_ms = mark.cut_ms
        return []

    @property
    def _wall_ms(self) -> int:
        """Time of the latest tick that was acted on, or is behind what was read."""
        return max(max(one.tick_ms, one.read_ms) for one in self._marker.progress)

    @property
    def _stream_ms(self) -> int:
        """Latest time of the clocks that watermarks move; the wall clock, where there is none of them.

        One that nothing has moved stands where its definition begins, and that may be long from now. So if none was
        moved, it is the earliest of these times, and of the wall clock.
        A definition that begins before the first watermark then lacks events that were read and are further ahead: to
        go by the wall clock would lose every window up to now where a stream is read from its beginning, long ago.
        """
        shown = [one.watermark_ms for one in self._marker.progress if one.watermark_ms is not None]
        unmoved = [self._wall_ms]
        for view in self._views:
            if view.clock == "event" and (mark := self._marker.views.get(view.name)) is not None:
                unmoved.append(view.first_ms)
                clocks = [mark.clock_ms, *(clock.clock_ms for clock in mark.source_partitions.values())]
                shown += [clock_ms for clock_ms in clocks if clock_ms > view.first_ms]
        return max(shown, default=min(unmoved))

    def _move(self, view: CountedView) -> Iterator[Effect]:
        """Store what was counted behind the end of a definition under the one that it is left to."""
        assert view.until_ms is not None  # noqa: S101 - `_is_cut` has looked
        mark, given_up = self._marker.views[view.name], 0
        for some in cut(self._behind(view, view.until_ms), row_size, CHUNK_BYTES):
            moved: list[tuple[bytes, bytes | None]] = []
            for key, value in some:
                row, start = decode(JournalRow, value), window_start(JOURNAL, view.name, key)
                if row.last_offset > self._marker.offset or start < mark.open_from_ms:
                    continue
                successor = self._successor(view, start)
                if successor is None:
                    given_up += len(row.users)
                else:
                    moved.append((JOURNAL + text(successor.name) + key[len(JOURNAL + text(view.name)) :], value))
            if moved:
                yield Commit(moved)
        mark.cut_ms = view.until_ms
        mark.closed_until_ms = max(mark.open_from_ms, min(mark.closed_until_ms, view.until_ms))
        self._leave_repeats(view, mark)
        if given_up:
            mark.refused[CHANGED] = mark.refused.get(CHANGED, 0) + given_up
            yield Increment("events_refused", given_up, (("reason", CHANGED), ("view", view.view)))

    def _leave_repeats(self, view: CountedView, mark: ViewMark) -> None:
        """Leave it to the newest definition to show what is not shown yet, since its windows may be open for long."""
        newest = [one for one in self._views if one.view == view.view][-1]
        to = self._marker.views[newest.name]
        for reason in REPEATS:
            hidden = mark.refused.get(reason, 0) - mark.repeats.get(reason, 0)
            if hidden and to is not mark:
                mark.refused[reason] -= hidden
                to.refused[reason] = to.refused.get(reason, 0) + hidden
        if newest.until_ms is not None and to.open_from_ms >= newest.until_ms:  # it closes no window any more
            to.repeats = {reason: to.refused[reason] for reason in REPEATS if reason in to.refused}

    def _successor(self, view: CountedView, start_ms: int) -> CountedView | None:
        """The definition that what was counted in a window is left to, if it accepts the same."""
        for one in self._views:
            if one.view == view.view and one.asks_for(start_ms) and one.accepts_like(view):
                return one if start_ms >= self._marker.views[one.name].open_from_ms else None
        return None

    def _behind(self, view: CountedView, until_ms: int) -> Iterator[tuple[bytes, bytes]]:
        """The stored rows of a definition behind its end."""
        return self._rows.scan(window_key(JOURNAL, view.name, until_ms), after(JOURNAL + text(view.name)))


def _was_over(mark: ViewMark) -> bool:
    """Return True if a definition had handed on all its windows before the settings of now were learned."""
    return mark.cut_ms is not None and mark.open_from_ms >= mark.cut_ms


def send_lost_partials(
    view: CountedView, mark: ViewMark, from_ms: int, outlet: Callable[[Partial], Message], partition: int
) -> Iterator[Send]:
    """Stand in for the windows from one that starts at a time up to the first that is still to be handed on."""
    stop = mark.open_from_ms if view.until_ms is None else min(mark.open_from_ms, view.until_ms)
    for starts in cut(view.windows.starts(from_ms, stop), lambda _: 1, HANDED_ON_AT_ONCE):
        yield Send([outlet(one) for start in starts for one in lost_partials(view, start, partition, mark)])


def lost_partials(view: CountedView, start_ms: int, partition: int, mark: ViewMark) -> Iterator[Partial]:
    """Yield partials that declare the counts of a window lost: it was handed on, or nobody has counted it."""
    for bucket in range(view.buckets):
        yield Partial(view.name, start_ms, bucket, partition, mark.closed_ms, LOST, 0, {})
