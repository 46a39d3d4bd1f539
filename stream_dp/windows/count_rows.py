"""The rows of the counts table, which the ingest agent writes: one partition of the source topics.

| key | value |
|---|---|
| `m` source | `Marker`: how far the source is counted, and the totals so far; the commit point of a chunk |
| `n` source, slot, number | part of a `Marker` that is too large for one row (`windows.marker_rows`) |
| `k` source | `SourceProgress`: how far the source is re-keyed, where it is |
| `u` source | `schema_outcomes.SchemaOutcomeRow`: which records of the newest chunk had no known schema |
| `j` view, start, sequence | `JournalRow`: what one chunk added to one window, in as many rows as it takes |
| `p` view, period | where the windows of a user are bounded: the key of the pseudonyms of those who entered some |
| `e` view, period, tiling, pseudonym | `participation.EnteredRow`: how many windows of the period a user has entered |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import msgspec

from stream_dp.windows.catch_up import CatchUp
from stream_dp.windows.effects import Increment
from stream_dp.windows.encoding import ENTRIES_BYTES, cut, encode, text, window_key
from stream_dp.windows.views import CountedView, view_of

MARKER, MARKER_PIECE, REKEYED, JOURNAL, SCHEMA_OUTCOMES = b"m", b"n", b"k", b"j", b"u"
UNLISTED = "unlisted"
"""Why a contribution is refused whose key is not on the view's list; counted as `events_unknown`."""
REPEATS = ("duplicate", "clipped", "participation", UNLISTED)
"""Reasons that depend on the item or on what the user contributed before. How often they occur tells something of open
windows."""

MOST_MISSING = 8
"""Number of gaps of a partition that are stored one by one."""


def journal_key(view: str, start_ms: int, sequence: int) -> bytes:
    """The key of the `sequence`-th journal row of a window."""
    return window_key(JOURNAL, view, start_ms) + sequence.to_bytes(4)


class Missing(msgspec.Struct, array_like=True):
    """Records of a source that were deleted before they were counted, side by side."""

    first: int
    """Offset of the first."""
    behind: int
    """The offset behind the last."""
    at_ms: int
    """The time of the first tick behind them."""


class SourcePartitionClock(msgspec.Struct, array_like=True):
    """The time of a view in one partition of a source that is re-keyed; as in `ViewMark`."""

    clock_ms: int
    idle_since_ms: int | None
    gap: tuple[int, int] | None = None
    catch_up: CatchUp | None = None


class SourcePartition(msgspec.Struct, array_like=True):
    """Progress of one partition of a re-keyed source, as known in a partition of users."""

    offset: int = -1
    """Of the last record of the source that was taken."""
    tick_ms: int = -1
    """The latest time of a tick."""
    read_ms: int = -1
    watermark_ms: int | None = None
    gap_ms: int | None = None
    """All three as in `Marker`."""


class ViewMark(msgspec.Struct, array_like=True):
    """Progress of one view in one partition of its source."""

    fingerprint: bytes
    clock_ms: int
    """Everything before this time has been seen: the last watermark or, by the wall clock, the last tick."""
    idle_since_ms: int | None
    """With an event clock, the time of the tick from which idle time counts; None until there was one."""
    open_from_ms: int
    """Start of the first window whose counts have not been handed on."""
    closed_until_ms: int
    """Start of the first window that is not closed; those before it may still have to be handed on."""
    closed_ms: int
    """The wall time at which the last windows were closed. It is stored before they are handed on, so that it is the
    same whenever that is done again."""
    purging: list[tuple[int, int]]
    """Windows handed on whose journal rows may still stand in the changelog: (start, number of rows)."""
    closed: int = 0
    """Number of windows that were handed on."""
    counted: int = 0
    """Number of their contributions."""
    refused: dict[str, int] = {}
    """Number of events that were refused, by reason."""
    repeats: dict[str, int] = {}
    """Those of them that were `REPEATS`, when windows were handed on last."""
    source_partitions: dict[int, SourcePartitionClock] = {}
    """Where the source is re-keyed: the times that make up that of the view, by partition of the source."""
    cut_ms: int | None = None
    """Start of the windows whose counts were left to a later definition of the view, or given up."""
    lost: list[tuple[int, int]] = []
    """Windows that start in one of these intervals may lack records that were deleted before they were counted: they
    are refused as lost. From the first start to, and without, a time."""
    gap: tuple[int, int] | None = None
    """With an event clock, an interval as in `lost` that the next watermark which moves the clock makes shorter."""
    catch_up: CatchUp | None = None
    """Set while the clock stands still after a silence."""
    interrupted: list[tuple[int, int]] = []
    """Windows that start in one of these intervals were closed in a partition of the source before it had caught up."""

    @classmethod
    def new(cls, view: CountedView, opens_ms: int, closed_ms: int) -> Self:
        """The mark of a definition that was never counted here.

        Args:
            view: the definition.
            opens_ms: start of the first window that is counted.
            closed_ms: the wall time.
        """
        return cls(view.fingerprint, view.first_ms, None, opens_ms, opens_ms, closed_ms, [], cut_ms=view.until_ms)

    def hand_on(self, stop_ms: int, gone: list[tuple[int, int]], windows: int) -> None:
        """Go on behind windows that were handed on.

        Args:
            stop_ms: start of the first one that was not.
            gone: what is to be purged of them.
            windows: how many they are.
        """
        self.open_from_ms, self.purging = stop_ms, [*self.purging, *gone]
        self.lost = [(first, until) for first, until in self.lost if until > stop_ms]
        self.interrupted = [(first, until) for first, until in self.interrupted if until > stop_ms]
        self.closed += windows
        self.repeats = {reason: self.refused[reason] for reason in REPEATS if reason in self.refused}

    @property
    def shown(self) -> dict[str, int]:
        """Number of refused events by reason, without what tells of an open window."""
        return {reason: amount for reason, amount in self.refused.items() if reason not in REPEATS} | self.repeats


class SourceProgress(msgspec.Struct, array_like=True):
    """Progress in one partition of a source, and its counters: the row of a partition that is re-keyed."""

    offset: int = -1
    tick_ms: int = -1
    """The latest time of a tick; -1 before the first, as `offset` is before the first record."""
    consumed: int = 0
    """Number of records that were read up to `offset`."""
    watermarks: int = 0
    """Number of them that were watermarks."""
    refused: dict[str, int] = {}
    """Number of records that were refused for every view, by reason."""
    missing: list[Missing] = []
    """Records deleted before they were counted, no more than `MOST_MISSING`; the newest last, which one that follows
    on it makes longer."""
    records_missing: int = 0
    """Number of offsets of all records that were ever missing."""

    @property
    def has_begun(self) -> bool:
        """True if the partition was read, or heard of a time, before."""
        return self.offset >= 0 or self.tick_ms >= 0

    def pass_to(self, end: int, begins: int, now_ms: int) -> tuple[int, int] | None:
        """Go on at an offset, since none before it is to be read any more.

        What was deleted of it is missing, unless nothing was read here before. The rest are places without a record
        of anybody: the marks of transactions, and what compaction leaves.

        Args:
            end: the offset, behind the next one.
            begins: the offset at which the log begins, asked for after everything before `end` had been read.
            now_ms: the time of the first tick behind it.

        Returns:
            The first offset that is missing, and the one behind the last; None if none is.
        """
        first, behind, begun = self.offset + 1, min(begins, end), self.has_begun
        self.offset = end - 1
        if not begun or behind <= first:
            return None
        self.records_missing += behind - first
        if self.missing and self.missing[-1].behind == first:
            *before, last = self.missing
            self.missing = [*before, Missing(last.first, behind, now_ms)]
        else:
            self.missing = [*self.missing, Missing(first, behind, now_ms)][-MOST_MISSING:]
        return first, behind

    def totals(self) -> Iterator[Increment]:
        """Yield the counters since the first record; none of them is about an open window."""
        yield Increment("events_consumed", self.consumed)
        yield Increment("watermarks_read", self.watermarks)
        yield Increment("records_missing", self.records_missing)
        yield from refusals(self.refused, "")


class Marker(SourceProgress, array_like=True, kw_only=True):
    """The commit record of one partition of a source: journal rows behind `offset` do not count."""

    views: dict[str, ViewMark]
    source_partitions: dict[int, SourcePartition] = {}
    """Where the source is re-keyed: by its partition, how far that has come."""
    read_ms: int = -1
    """The time of the tick behind the last record that was read, if it is later than `tick_ms`."""
    watermark_ms: int | None = None
    """The time of the latest watermark up to `offset`, whichever views there are; None before the first."""
    gap_ms: int | None = None
    """The time of the tick behind records that are missing, as long as no later watermark was read."""

    @property
    def progress(self) -> list[Marker | SourcePartition]:
        """Progress here and, where the source is re-keyed, in each of its partitions."""
        return [self, *self.source_partitions.values()]

    def totals(self) -> Iterator[Increment]:
        """Yield the counters since the first record; none of them is about an open window."""
        yield from super().totals()
        for name, mark in self.views.items():
            view = view_of(name)
            yield from refusals(mark.shown, view)
            yield Increment("events_counted", mark.counted, (("view", view),))
            yield Increment("windows_closed", mark.closed, (("view", view),))


def take_watermarks(of: Marker | SourcePartition, watermarks: Iterable[tuple[int, int]], now_ms: int) -> int | None:
    """Take watermarks into what is known of a partition.

    Args:
        of: what is known; changed in place.
        watermarks: (offset, time in ms) in order.
        now_ms: the time of the tick behind them: none shows more.

    Returns:
        The time of the first that is later than all before it; None if none is.
    """
    news: int | None = None
    for _, time_ms in watermarks:
        shown = min(time_ms, now_ms)
        if of.watermark_ms is None or shown > of.watermark_ms:
            of.watermark_ms, of.gap_ms = shown, None
            news = shown if news is None else news
    return news


def refusals(refused: Mapping[str, int], view: str) -> Iterator[Increment]:
    """Events that were refused, by reason; for every view where none is named."""
    for reason, amount in refused.items():
        if reason == UNLISTED:
            yield Increment("events_unknown", amount, (("view", view),))
        else:
            yield Increment("events_refused", amount, (("reason", reason), ("view", view)))


def rekey_key(source: str) -> bytes:
    """The key of the row that says how far a source's partition is re-keyed."""
    return REKEYED + text(source)


class JournalRowHead(msgspec.Struct, array_like=True):
    """The beginning of a `JournalRow`."""

    last_offset: int
    """That of the chunk: as long as it is behind the marker's, no row of the chunk counts."""


class JournalRow(JournalRowHead, array_like=True):
    """Contributions of one chunk to one window: user and item at the same place of two lists."""

    users: list[bytes]
    items: list[str]

    def encoded(self) -> Iterator[bytes]:
        """The row as bytes; as several rows, in order, if it is too large for one."""
        value = encode(self)
        if len(value) <= ENTRIES_BYTES:
            yield value
            return
        for pairs in cut(zip(self.users, self.items, strict=True), _size, ENTRIES_BYTES):
            users, items = (list(column) for column in zip(*pairs, strict=True))
            yield encode(JournalRow(self.last_offset, users, items))


def _size(contribution: tuple[bytes, str]) -> int:
    user, item = contribution
    return len(user) + len(item.encode()) + 6
