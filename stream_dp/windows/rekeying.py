"""From a source that is not keyed by user to re-keyed batches for the partitions in which its users are counted.

A partition of the source is read in the order of its records and ticks (`runtime.faust.coalescing`). Everything is
passed on in that order: an event to the partition of its user, a watermark and a tick to every partition. So a counter
learns of a tick of a source partition after all events that were in the partition when the tick was made. A re-keyed
batch is sent before it is marked as sent, so after a crash some batches are sent again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

import msgspec

from stream_dp.windows.count_rows import SourcePartition, SourcePartitionClock, SourceProgress, rekey_key
from stream_dp.windows.counting import DeadLetters, PartitionCounter, Row, fresh_records
from stream_dp.windows.effects import Commit, Effect, Increment, Message, Rows, Send, SendLetters, Step, Warn
from stream_dp.windows.encoding import ENTRIES_BYTES, cut, decode, encode
from stream_dp.windows.events import KeyReader, Partitioner, Record, Schemas
from stream_dp.windows.gaps import described
from stream_dp.windows.open_windows import ViewState
from stream_dp.windows.schema_outcomes import SchemaOutcomes
from stream_dp.windows.views import CountedView, plausible_times

_ENTRY_BYTES = 32
"""Bytes of an event in a re-keyed batch beside its key and its value, from above."""


class RekeyedEvent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An event on its way to the partition of its user: a record of the source, with the user as its key."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        """None: watermarks travel by themselves."""
        return ()

    @property
    def size(self) -> int:
        """In bytes, from above."""
        return len(self.key) + len(self.value) + _ENTRY_BYTES


class RekeyedBatch(msgspec.Struct, array_like=True, frozen=True):
    """Events and times from a partition of a source to a partition of users, in order."""

    partition: int
    """Of the source."""
    now_ms: int
    """The wall time of the tick behind the events."""
    events: list[RekeyedEvent]
    watermarks: list[tuple[int, int]]
    """(offset in the source, time in ms); some may stand between the events."""
    ticks_ms: Sequence[int] = ()
    """The wall times of ticks behind all of them."""
    missing: tuple[int, int] | None = None
    """In front of all of them: the first offset in the source of records that were deleted before they were read, and
    the one behind the last. `now_ms` is the time of the first tick behind them."""


def events_in(records: Sequence[Record]) -> list[Record]:
    """The events in re-keyed batches.

    Args:
        records: whose values are re-keyed batches.
    """
    return [cast("Record", event) for record in records for event in decode(RekeyedBatch, record.value or b"").events]


@dataclass(frozen=True, slots=True)
class UserPartitions:
    """Partitions in which users are counted.

    Attributes:
        number: how many there are.
        place: the partitions of users.
    """

    number: int
    place: Partitioner


Outlet = Callable[[int, RekeyedBatch], Message]
"""Addresses a re-keyed batch to a partition of users."""


class Rekeyer:
    """Re-keys one partition of a source. Its methods return steps, to be carried out in order."""

    def __init__(
        self,
        source: str,
        partition: int,
        views: Sequence[CountedView],
        reader: KeyReader,
        *,
        users: UserPartitions,
        outlet: Outlet,
        dead_letters: DeadLetters,
    ) -> None:
        """Set up the rekeyer; `load` makes it ready.

        Args:
            source: the source's name.
            partition: its partition.
            views: the views on it, with every definition of each.
            reader: reads the user out of a record.
            users: the partitions that it is passed on to.
            outlet: where re-keyed batches go.
            dead_letters: where refused records are noted.
        """
        self._source = source
        self._partition = partition
        self._views = [view.name for view in views]
        self._plausible = plausible_times(views)
        self._reader = reader
        self._users = users
        self._outlet = outlet
        self._dead_letters = dead_letters
        self._marker = SourceProgress()
        self.schema_outcomes = SchemaOutcomes(source, is_keyed=False)

    @property
    def next_offset(self) -> int:
        """The offset behind the last record that was passed on."""
        return self._marker.offset + 1

    @property
    def takes_long(self) -> bool:
        """True if passing the next chunk on may have to wait for a disk: never."""
        return False

    def load(self, rows: Rows) -> Step:
        """Go on where the table says."""
        self.schema_outcomes.load(rows)
        stored = rows.get(rekey_key(self._source))
        self._marker = SourceProgress() if stored is None else decode(SourceProgress, stored)
        yield from ()

    def learn(self, schemas: Schemas) -> None:
        """Take the schemas of the chunks to come: a step asks nobody for one."""
        self.schema_outcomes.learn(schemas)
        self._reader.learn(schemas)

    def chunk(self, records: Sequence[Record], now_ms: int, begins: int = 0) -> Step:
        """Pass on consecutive records of the partition.

        Args:
            records: the records.
            now_ms: the wall time of the tick behind them.
            begins: as of `PartitionCounter.chunk`.
        """
        fresh = yield from fresh_records(records, self._marker.offset)
        if not fresh:
            return
        fresh, outcomes = self.schema_outcomes.settle(fresh)
        if outcomes:
            yield Commit(outcomes)
        yield from self._pass_to(fresh[0].offset, begins, now_ms)
        marker = self._marker
        keyed = self._reader.read(fresh)
        watermarks, not_believed = self._plausible.check_watermarks(keyed.watermarks, now_ms)
        if watermarks:
            yield Increment("watermarks_read", len(watermarks))
        places = sorted([*keyed.refused, *not_believed])
        if places:
            yield SendLetters([self._dead_letters(self._partition, *place, self._views) for place in places])
        yield Send([*self._batches(keyed.events, watermarks, now_ms)])
        refused = Counter(reason for _, reason in places)
        for reason, amount in sorted(refused.items()):
            yield Increment("events_refused", amount, (("reason", reason), ("view", "")))
        marker.offset = fresh[-1].offset
        marker.consumed += len(fresh)
        marker.watermarks += len(watermarks)
        marker.refused = dict(Counter(marker.refused) + refused)
        yield self._commit()

    def ticks(self, times_ms: Sequence[int], ends: Sequence[int] = (), begins: int = 0) -> Step:
        """Pass on ticks with no record between them; one that is not behind all earlier ones says nothing new.

        Args:
            times_ms: the wall times of the ticks.
            ends: as of `PartitionCounter.ticks`.
            begins: as there.
        """
        news: list[int] = []
        for now_ms, end in zip_longest(times_ms, ends, fillvalue=0):
            if self._lacks(end, begins):  # what is missing comes behind the ticks before it
                yield from self._pass_ticks(news)
                news = []
            yield from self._pass_to(end, begins, now_ms)
            if now_ms > max(self._marker.tick_ms, *news[-1:], -1):
                news.append(now_ms)
        yield from self._pass_ticks(news)

    def _pass_ticks(self, news: Sequence[int]) -> Iterator[Effect]:
        if news:
            yield self._to_all(RekeyedBatch(self._partition, news[-1], [], [], news))
            self._marker.tick_ms = news[-1]
            yield self._commit()

    def _lacks(self, end: int, begins: int) -> bool:
        """Return True if some records before an offset are missing."""
        return self._marker.has_begun and self.next_offset < min(begins, end)

    def _pass_to(self, end: int, begins: int, now_ms: int) -> Iterator[Effect]:
        """Go on at an offset, as `PartitionCounter` does; pass on which records are missing."""
        if self.next_offset >= end:
            return
        at_ms = max(now_ms, self._marker.tick_ms)
        if (gap := self._marker.pass_to(end, begins, at_ms)) is not None:
            first, behind = gap
            yield self._to_all(RekeyedBatch(self._partition, at_ms, [], [], missing=gap))
            yield Increment("records_missing", behind - first)
            yield Warn(
                f"source {self._source}, partition {self._partition}: {described(first, behind)}. Windows of "
                f"{', '.join(self._views)} that may lack some of them are refused as lost, and nothing is charged"
            )
        yield self._commit()

    def _to_all(self, batch: RekeyedBatch) -> Send:
        return Send([self._outlet(to, batch) for to in range(self._users.number)])

    def _batches(
        self, events: Sequence[tuple[bytes, Record]], watermarks: Sequence[tuple[int, int]], now_ms: int
    ) -> Iterator[Message]:
        found: defaultdict[int, list[RekeyedEvent | tuple[int, int]]] = defaultdict(list)
        for (key, record), to in zip(events, self._users.place([key for key, _ in events]), strict=True):
            found[to].append(RekeyedEvent(record.offset, record.timestamp, key, record.value or b""))
        for to in range(self._users.number) if watermarks else ():
            found[to] = sorted([*found[to], *watermarks], key=_offset)
        for to, entries in sorted(found.items()):
            for some in cut(entries, _size, ENTRIES_BYTES):
                here = [one for one in some if isinstance(one, RekeyedEvent)]
                marks = [one for one in some if not isinstance(one, RekeyedEvent)]
                yield self._outlet(to, RekeyedBatch(self._partition, now_ms, here, marks))

    def _commit(self) -> Commit:
        return Commit([(rekey_key(self._source), encode(self._marker))])


def _offset(entry: RekeyedEvent | tuple[int, int]) -> int:
    return entry.offset if isinstance(entry, RekeyedEvent) else entry[0]


def _size(entry: RekeyedEvent | tuple[int, int]) -> int:
    return entry.size if isinstance(entry, RekeyedEvent) else _ENTRY_BYTES


LIFE_BITS = 40
"""Offsets of a topic that was made anew come behind all that the former one had."""


def place_behind(marker_offset: int) -> tuple[int, int]:
    """The life of the topic of the re-keyed batches, and the offset in it, behind what a marker says is counted."""
    if marker_offset < 0:
        return 0, 0
    life, offset = divmod(marker_offset, 1 << LIFE_BITS)
    return life, offset + 1


class RekeyedCounter(PartitionCounter):
    """A `PartitionCounter` of re-keyed batches. It ignores plain ticks: those of the source come in the batches."""

    def __init__(self, *args: Any, source_partitions: int, life: int, **options: Any) -> None:  # noqa: ANN401  handed through
        """Set up the counter.

        Args:
            args: as of `PartitionCounter`.
            source_partitions: how many partitions the source has.
            life: how often the topic of the re-keyed batches was made (`owners.Life`).
            options: as of `PartitionCounter`.
        """
        super().__init__(*args, **options)
        self._source_partitions = source_partitions
        self._life, self._base = life, life << LIFE_BITS

    @property
    def next_offset(self) -> int:
        """The offset behind the last re-keyed batch that was counted."""
        life, offset = place_behind(self._marker.offset)
        return offset if life == self._life else 0

    def chunk(self, records: Sequence[Record], now_ms: int, begins: int = 0) -> Step:
        """Count consecutive batches; hand on every window that they close. None is deleted before it is counted."""
        fresh = [record for record in records if self._base + record.offset > self._marker.offset]
        if not fresh:
            return
        last = self._base + fresh[-1].offset
        changed: list[Row] = []
        for record in fresh:
            changed += yield from self._batch(decode(RekeyedBatch, record.value or b""), last)
        yield self._chunk_committed(changed, last)
        yield from self._hand_on()

    def ticks(self, times_ms: Sequence[int], ends: Sequence[int] = (), begins: int = 0) -> Step:
        """Nothing."""
        yield from ()

    def _batch(self, batch: RekeyedBatch, last: int) -> Generator[Effect, None, list[Row]]:
        source_partition = self._marker.source_partitions.setdefault(batch.partition, SourcePartition())
        events = [event for event in batch.events if event.offset > source_partition.offset]
        watermarks = [mark for mark in batch.watermarks if mark[0] > source_partition.offset]
        if len(events) < len(batch.events):
            yield Increment("events_replayed", len(batch.events) - len(events))
        if batch.missing is not None and batch.missing[1] - 1 > source_partition.offset:
            source_partition.offset = batch.missing[1] - 1
            self._open_gaps(source_partition, batch.partition, batch.now_ms)
        changed: list[Row] = []
        if events or watermarks:
            decoded = self._decoder.decode(cast("Sequence[Record]", events))
            decoded.watermarks = watermarks
            self._take_watermarks(source_partition, batch.partition, watermarks, batch.now_ms)
            changed = yield from self._count(decoded, last, batch.now_ms, batch.partition)
            last_read: list[RekeyedEvent | tuple[int, int]] = [*events[-1:], *watermarks[-1:]]
            source_partition.offset = max(map(_offset, last_read))
        for now_ms in batch.ticks_ms:
            self._tick(source_partition, batch.partition, now_ms)
        return changed

    def _clock(self, state: ViewState, partition: int) -> SourcePartitionClock:
        return state.mark.source_partitions.setdefault(partition, SourcePartitionClock(state.view.first_ms, None))

    def _move(self, state: ViewState, wall_ms: int) -> None:
        """The time of a view is that of its slowest source partition; it begins when all were heard of."""
        clocks = state.mark.source_partitions.values()
        if len(clocks) == self._source_partitions:
            state.mark.clock_ms = max(state.mark.clock_ms, min(clock.clock_ms for clock in clocks))
        super()._move(state, max(wall_ms, state.mark.closed_ms))
