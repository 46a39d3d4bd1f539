"""Exact sums of what the partitions of a source counted, one bucket of one window at a time.

Partials replace one another under their key, so delivery in any order and any number of times gives one result. A
finished bucket leaves a marker in place of its counts: a partial that comes again is dropped, not counted anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest

from stream_dp.windows.effects import Commit, Effect, Erase, Increment, Message, Rows, Send, Step
from stream_dp.windows.keys import after, bucket_key, decode, encode, text, window_key
from stream_dp.windows.merge_rows import FINISHED, PARTIAL, MergedBucket, Partial, partial_key
from stream_dp.windows.views import HANDED_ON_AT_ONCE, CountedView

Outlet = Callable[[MergedBucket], Message]
"""Addresses a merged bucket to the topic that the release agent reads."""
Withdrawal = Callable[[Partial], Message]
"""The tombstone that erases a partial from its topic; sent as soon as the partial stands in the table."""


class BucketMerger:
    """Merges the partials of one partition of the partials topic."""

    def __init__(
        self,
        views: Mapping[str, CountedView],
        sources: Mapping[str, int],
        *,
        outlet: Outlet,
        withdrawal: Withdrawal,
    ) -> None:
        """Set up the merger.

        Args:
            views: the views by name; partials of other views are withdrawn.
            sources: number of source partitions of each view.
            outlet: where merged buckets go.
            withdrawal: how a partial is erased from its topic.
        """
        self._views = views
        self._sources = sources
        self._outlet = outlet
        self._withdrawal = withdrawal

    def load(self, rows: Rows) -> Step:
        """Hand on what is complete; delete counts of finished buckets and of views that are no longer configured.

        What is stored was withdrawn from its topic and may never come again, so a crash between the two leaves it here.
        """
        left: list[tuple[bytes, None]] = []
        waiting: dict[tuple[str, int, int], None] = {}
        for key, value in rows.scan(PARTIAL, after(PARTIAL)):
            partial = decode(Partial, value)
            if self._finished(partial, rows):
                left.append((key, None))
            else:
                waiting[partial.view, partial.start_ms, partial.bucket] = None
        if left:
            yield Commit(left)
        yield Erase(PARTIAL, after(PARTIAL))
        yield from self._finish(waiting, rows)

    def partials(self, values: Sequence[bytes | None], rows: Rows) -> Step:
        """Store partials; hand on every bucket that they complete.

        Args:
            values: encoded partials as consumed; None is a withdrawal and says nothing.
            rows: the partition's table.
        """
        taken = [decode(Partial, value) for value in values if value is not None]
        stored: dict[bytes, bytes] = {}
        touched: dict[tuple[str, int, int], None] = {}
        for partial in taken:
            if self._finished(partial, rows):
                continue
            stored[partial_key(partial.view, partial.start_ms, partial.bucket, partial.partition)] = encode(partial)
            touched[partial.view, partial.start_ms, partial.bucket] = None
        if stored:
            yield Commit(list(stored.items()))
        if taken:
            yield Send([self._withdrawal(partial) for partial in taken])
        yield Increment("partials_repeated", len(taken) - len(stored))
        yield from self._finish(touched, rows)

    def _finished(self, partial: Partial, rows: Rows) -> bool:
        key = bucket_key(FINISHED, partial.view, partial.start_ms, partial.bucket)
        return partial.view not in self._views or rows.get(key) is not None

    @staticmethod
    def _found(view: str, start: int, bucket: int, rows: Rows) -> list[Partial]:
        prefix = bucket_key(PARTIAL, view, start, bucket)
        return [decode(Partial, value) for _, value in rows.scan(prefix, after(prefix))]

    def _finish(self, buckets: Iterable[tuple[str, int, int]], rows: Rows) -> Iterator[Effect]:
        """Hand on those of the buckets that every partition has counted."""
        stored = [self._found(view, start, bucket, rows) for view, start, bucket in buckets]
        complete = [found for found in stored if len(found) == self._sources[found[0].view]]
        if not complete:
            return
        messages: list[Message] = []
        puts: list[tuple[bytes, bytes | None]] = []
        deletes: list[tuple[bytes, bytes | None]] = []
        windows: dict[tuple[str, int], None] = {}
        for found in complete:
            first = found[0]
            view = self._views[first.view]
            counts = dict(view.needed(summed([partial.counts for partial in found])))
            closed = max(partial.closed_ms for partial in found)
            messages.append(self._outlet(MergedBucket(first.view, first.start_ms, first.bucket, closed, 0, 1, counts)))
            puts.append((bucket_key(FINISHED, first.view, first.start_ms, first.bucket), b""))
            deletes += [(partial_key(p.view, p.start_ms, p.bucket, p.partition), None) for p in found]
            windows[first.view, first.start_ms] = None
        yield Send(messages)
        yield Commit([*puts, *deletes, *self._outdated(windows, rows)])
        for view_name, start in windows:
            prefix = window_key(PARTIAL, view_name, start)
            yield Erase(prefix, after(prefix))

    def _outdated(self, windows: Mapping[tuple[str, int], None], rows: Rows) -> Iterator[tuple[bytes, None]]:
        """Markers of windows so old that no partial of theirs can come again: a counter repeats one hand-over."""
        newest: dict[str, int] = {}
        for view, start in windows:
            newest[view] = max(start, newest.get(view, start))
        for view, start in newest.items():
            once = self._views[view]
            horizon = min(start - once.retention_ms, once.windows.next(start, -2 * HANDED_ON_AT_ONCE))
            for key, _ in rows.scan(FINISHED + text(view), window_key(FINISHED, view, horizon)):
                yield key, None


def drop_except(kind: bytes, kept: tuple[bytes, ...], rows: Rows) -> Step:
    """Delete, and erase from the files, the rows of a kind whose keys begin with none of `kept`."""
    found = [(key, None) for key, _ in rows.scan(kind, after(kind)) if not key.startswith(kept)]
    if found:
        yield Commit(found)
        yield Erase(kind, after(kind))


def largest(counts: Mapping[str, int], keep: int) -> dict[str, int]:
    """The `keep` largest counts, exact, ties by item; the merged top of disjoint tables is the top of their union."""
    rows = nsmallest(keep, counts.items(), key=lambda row: (-row[1], row[0]))
    return dict(rows)


def summed(parts: list[Mapping[str, int]]) -> dict[str, int]:
    """Exact sum of count tables."""
    total: dict[str, int] = {}
    for part in parts:
        for item, count in part.items():
            total[item] = total.get(item, 0) + count
    return total
