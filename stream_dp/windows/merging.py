"""Exact sums of what the partitions of a source counted, one bucket of one window at a time.

Partials replace one another under their key, so delivery in any order and any number of times gives one result. What a
partition counted may come in parts; a bucket is summed when every partition's have all come. A finished bucket leaves a
marker in place of its counts: a partial that comes again is dropped, not counted anew.

Where something was lost between the counters and the release agent, the counters are asked to stand in for what they
handed on (`PartitionCounter.declare_lost`). A partial that stands in comes behind those it stands in for, if these were
not
lost: it says nothing then. Otherwise its bucket is lost. For a bucket that is finished one is handed on nevertheless,
since the merged counts may be what was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain
from typing import NamedTuple

import msgspec

from stream_dp.errors import StateError
from stream_dp.windows.effects import ROWS_LOADED, Commit, Effect, Erase, Increment, Message, Rows, Send, Step
from stream_dp.windows.encoding import (
    CHUNK_BYTES,
    ENTRIES_BYTES,
    after,
    bucket_key,
    bucket_number,
    cut,
    decode,
    row_size,
    spans,
    text,
    window_key,
)
from stream_dp.windows.views import HANDED_ON_AT_ONCE, CountedView

PARTIAL, FINISHED = b"p", b"d"
LOST = 0xFFFF
"""The number of a part that is none."""


class Bucket(NamedTuple):
    """Bucket of a window of a view state."""

    view: str
    start_ms: int
    bucket: int


class Named(msgspec.Struct, array_like=True):
    """Head of partials and merged buckets: the name of the view state that they were counted for."""

    view: str


class PartialHead(Named, array_like=True):
    """Head of a partial, read without its counts."""

    start_ms: int
    bucket: int
    partition: int
    closed_ms: int
    """The wall time at which the partition closed the window."""
    part: int
    parts: int
    """Number of partials with the partition's counts of the bucket; this is number `part`, from 0.

    One that stands in for those that were handed on before, and may have been lost since, is number `LOST` of none;
    what it stands in for outranks it.
    """

    @property
    def lost(self) -> bool:
        """True if it only stands in for others."""
        return self.part == LOST

    @property
    def of(self) -> Bucket:
        """The bucket that it is about."""
        return Bucket(self.view, self.start_ms, self.bucket)

    @property
    def key(self) -> bytes:
        """The key of the partial, as a row and as a message."""
        return bucket_key(PARTIAL, *self.of) + bucket_number(self.partition) + bucket_number(self.part)


class Partial(PartialHead, array_like=True):
    """Counts of one source partition in one bucket of a window; replaces any earlier one under its key."""

    counts: Mapping[str, int]
    interrupted: bool = False
    """True if the window was closed before the partition had caught up after an outage (`windows.catch_up`)."""


class MergedHead(Named, array_like=True):
    """Head of a merged bucket, read without its counts."""

    start_ms: int
    bucket: int
    closed_ms: int
    """The wall time at which the last of the partitions closed the window."""
    part: int
    parts: int
    """As in a partial; one that stands in says that counts of the bucket were lost."""

    @property
    def lost(self) -> bool:
        """True if counts of it were lost on their way, so that it says nothing; one that says something outranks it."""
        return self.part == LOST


class MergedBucket(MergedHead, array_like=True):
    """Exact counts of one bucket of a window, summed over all partitions of the source: all of them, or a part."""

    counts: Mapping[str, int]
    interrupted: bool = False
    """True if one of the partials was interrupted."""


@dataclass(slots=True)
class Come:
    """Parts that have arrived of something that is cut into parts."""

    parts: int = 0
    """Number of parts; 0 before one has come."""
    numbers: set[int] = field(default_factory=set)
    """Those that have come."""
    lost: bool = False
    """True if one was declared lost."""

    @property
    def whole(self) -> bool:
        """True if all of them are there."""
        return bool(self.parts) and len(self.numbers) == self.parts

    @property
    def settled(self) -> bool:
        """True if nothing more has to be waited for."""
        return self.whole or self.lost


def parts_of(counts: Mapping[str, int]) -> Sequence[Mapping[str, int]]:
    """Counts as parts that each fit a message: the same for the same counts in the same order, and at least one."""
    if len("".join(counts).encode()) + _ENTRY_BYTES * len(counts) <= ENTRIES_BYTES:
        return [counts]
    items, amounts = [*counts], [*counts.values()]
    cuts = spans([len(item.encode()) + _ENTRY_BYTES for item in items], ENTRIES_BYTES)
    return [dict(zip(items[first:behind], amounts[first:behind], strict=True)) for first, behind in cuts]


_ENTRY_BYTES = 12
"""Of an item and its count beside the text."""


Outlet = Callable[[MergedBucket], Message]
"""Addresses a merged bucket to the topic that the release agent reads."""
Withdrawal = Callable[[PartialHead], Message]
"""The tombstone that erases a partial from its topic; sent as soon as the partial stands in the table."""


class BucketMerger:
    """Merges the partials of one partition of the partials topic; `load` makes it ready."""

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
        self._waiting: dict[Bucket, dict[int, Come]] = {}
        """What is stored of buckets that are not finished, by partition."""
        self._deleted: list[bytes] = []
        """Prefixes of rows that a step deleted and the next one erases."""

    def load(self, rows: Rows) -> Step:
        """Hand on what is complete; delete counts of finished buckets and of views that are no longer configured.

        What is stored was withdrawn from its topic and may never come again, so a crash between the two leaves it here.
        """
        left: list[tuple[bytes, None]] = []
        for some in cut(rows.scan(PARTIAL, after(PARTIAL)), row_size, CHUNK_BYTES):
            for key, value in some:
                head = decode(PartialHead, value)
                if self._finished(head, rows):
                    left.append((key, None))
                else:
                    self._note(head)
            yield Increment(ROWS_LOADED, len(some))
        if left:
            yield Commit(left)
        yield Erase(PARTIAL, after(PARTIAL))
        yield from self._finish(list(self._waiting), [], rows)

    def partials(self, values: Sequence[bytes | None], rows: Rows) -> Step:
        """Store partials; hand on every bucket that they complete; erase what the step before has deleted.

        A release waits for every partition, and to erase takes longer than to hand on. The next step follows at once:
        partials that were taken come back as withdrawals.

        Args:
            values: encoded partials as consumed; None is a withdrawal and says nothing.
            rows: the partition's table.

        Raises:
            StateError: a partition cut the same counts in two ways.
        """
        deleted, self._deleted = self._deleted, []
        stored: dict[bytes, bytes] = {}
        taken: list[PartialHead] = []
        fresh: list[PartialHead] = []
        gone: list[Message] = []
        for value in values:
            if value is not None:
                taken.append(head := decode(PartialHead, value))
                if not self._finished(head, rows):
                    fresh.append(head)
                    stored[head.key] = value
                elif head.lost and head.partition == 0 and self._counts(head):
                    gone.append(self._outlet(_lost(head.of, head.closed_ms)))
        if stored:
            yield Commit(list(stored.items()))
        yield Increment("partials_repeated", len(taken) - len(stored))
        gone += map(self._withdrawal, taken)
        yield from self._finish(dict.fromkeys(map(self._note, fresh)), gone, rows)
        for prefix in deleted:
            yield Erase(prefix, after(prefix))

    def _finished(self, head: PartialHead, rows: Rows) -> bool:
        return not self._counts(head) or rows.get(bucket_key(FINISHED, *head.of)) is not None

    def _counts(self, head: PartialHead) -> bool:
        """Return True if anybody waits for what a partial is about; not for windows of which counts were lost."""
        return head.view in self._views and self._views[head.view].asks_for(head.start_ms)

    def _note(self, head: PartialHead) -> Bucket:
        """Take down that a partial is stored."""
        bucket = head.of
        come = self._waiting.setdefault(bucket, {}).setdefault(head.partition, Come())
        if head.lost:
            come.lost = True
            return bucket
        come.parts = come.parts or head.parts
        if come.parts != head.parts:
            raise StateError(
                f"partition {head.partition} has sent what it counted in a window of view {head.view} in two ways: "
                "some of it would count twice"
            )
        come.numbers.add(head.part)
        return bucket

    def _complete(self, bucket: Bucket) -> bool:
        partitions = self._waiting[bucket].values()
        return len(partitions) == self._sources[bucket.view] and all(come.settled for come in partitions)

    def _finish(self, buckets: Iterable[Bucket], beside: Iterable[Message], rows: Rows) -> Iterator[Effect]:
        """Hand on those of the buckets that every partition has counted, and send what is to be sent beside them."""
        complete = [bucket for bucket in buckets if self._complete(bucket)]
        deletes: list[tuple[bytes, None]] = []
        merged = (message for bucket in complete for message in self._merged(bucket, rows, deletes))
        for some in cut(chain(merged, beside), lambda message: message.size, CHUNK_BYTES):
            yield Send(some)
        if not complete:
            return
        windows = dict.fromkeys((bucket.view, bucket.start_ms) for bucket in complete)
        puts = [(bucket_key(FINISHED, *bucket), b"") for bucket in complete]
        yield Commit([*puts, *deletes, *self._outdated(windows, rows)])
        for bucket in complete:
            del self._waiting[bucket]
        self._deleted += [window_key(PARTIAL, *window) for window in windows]

    def _merged(self, bucket: Bucket, rows: Rows, deletes: list[tuple[bytes, None]]) -> Iterator[Message]:
        """The messages of a complete bucket; the rows that it is made of are added to what is to be deleted."""
        tables = list[Mapping[str, int]]()
        closed = 0
        interrupted = False
        whole = all(come.whole for come in self._waiting[bucket].values())
        prefix = bucket_key(PARTIAL, *bucket)
        for key, value in rows.scan(prefix, after(prefix)):
            partial = decode(Partial, value)
            if not (whole and partial.lost):
                tables.append(partial.counts)
                closed = max(closed, partial.closed_ms)
                interrupted = interrupted or partial.interrupted
            deletes.append((key, None))
        if not whole:
            yield self._outlet(_lost(bucket, closed))
            return
        parts = parts_of(self._views[bucket.view].needed(summed(tables)))
        for part, counts in enumerate(parts):
            yield self._outlet(MergedBucket(*bucket, closed, part, len(parts), counts, interrupted))

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


def _lost(bucket: Bucket, closed_ms: int) -> MergedBucket:
    """Return the merged bucket that declares the counts of a bucket lost."""
    return MergedBucket(*bucket, closed_ms, LOST, 0, {})


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


def summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Exact sum of count tables."""
    tables, total = list(parts), dict[str, int]()
    for table in tables:
        total.update(table)
    if len(total) == sum(map(len, tables)):  # they have no item in common, as those of buckets
        return total
    added = Counter[str]()
    for table in tables:
        added.update(table)
    return dict(added)


def outside(domain: Container[str], counts: Mapping[str, int]) -> int:
    """Return the sum of a table's counts of keys that are not in a domain."""
    return sum(count for item, count in counts.items() if item not in domain)
