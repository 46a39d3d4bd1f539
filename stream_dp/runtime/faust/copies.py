"""Warm standbys: copies of partitions that other workers own, read from their changelogs all the time.

Who keeps which is shared with the partitions (`membership.Assignor`), and when a worker dies each of its partitions
goes to one that has a copy. That one claims it and recovers it as always; only the tail is left to read. So a copy
decides nothing: it is a prefix of the changelog with its offset, like the folder of a worker that was stopped.

A copy is never written while the partition is claimed (`DurableTable.follow`), and is not erased from by whoever seals
windows. What the changelog deletes is noted with the rows, and erased at the beats. A partition that this worker
neither owns nor copies any more is deleted from its folder then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from faust.types import TP

from stream_dp.runtime.faust.app import App
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.transactions import PartitionLostError
from stream_dp.runtime.kafka.unpacking import BARE
from stream_dp.runtime.kafka.unreadable import check_all_readable
from stream_dp.windows.encoding import BATCH_BYTES, cut

log = logging.getLogger("stream_dp.worker")

POLL_MS = 200
RECORDS_AT_ONCE, BYTES_AT_ONCE = 1000, 128 << 10
"""Taken in one look, and stored in one batch: both hold the event loop."""
AGAIN_SECONDS = 1.0
"""Between two attempts to reach the broker."""


class RecordReader(Protocol):
    """The part of a consumer that copying uses."""

    async def getmany(self, *, timeout_ms: int, max_records: int) -> Mapping[TP, Sequence[Any]]:
        """The next records, after a while none."""

    def highwater(self, partition: TP) -> int | None:
        """The end of a partition when it was fetched last, None before that."""


Reading = Callable[[Mapping[TP, int | None]], AbstractAsyncContextManager[RecordReader]]
"""Reads partitions, each behind an offset, or from its beginning."""


def reading(cluster: Cluster) -> Reading:
    """Return a reader of changelogs, apart from the consumer of the group."""

    @asynccontextmanager
    async def read(since: Mapping[TP, int | None]) -> AsyncIterator[RecordReader]:
        consumer = cluster.consumer(
            auto_offset_reset="none", key_deserializer=BARE, max_partition_fetch_bytes=BATCH_BYTES
        )
        try:
            await consumer.start()
            begins = await consumer.beginning_offsets([tp for tp, offset in since.items() if offset is None])
            consumer.assign(list(since))
            for tp, offset in since.items():  # at once: a partition without a position is looked up
                consumer.seek(tp, begins[tp] if offset is None else offset + 1)
            yield consumer
        finally:
            await consumer.stop()

    return read


class Copies:
    """The copies that one worker keeps; the application runs `run`, and `erase` at the beats.

    Attributes:
        behind: rows of the changelogs that it has not read; None while that is not known.
    """

    def __init__(self, app: App, tables: Mapping[str, DurableTable], read: Reading | None) -> None:
        """Set up the copies; there are none until the group shares its partitions.

        Args:
            app: the application.
            tables: its tables.
            read: reads their changelogs; None: no copies are kept.
        """
        self._app = app
        self._tables = {table.changelog_topic.get_topic_name(): table for table in tables.values()}
        self._read = read
        self._copied: frozenset[int] | None = None
        """None during a rebalance."""
        self._begun: frozenset[int] = frozenset()
        self._changed = asyncio.Event()
        self.behind: int | None = None

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that it keeps copies of; none during a rebalance."""
        return self._copied or frozenset()

    def pause(self) -> None:
        """Read no more: a rebalance has begun."""
        self._copied = self.behind = None
        self._changed.set()

    def go_on(self) -> None:
        """Keep the copies that the group has given to this worker; its own partitions are recovered."""
        self._copied = frozenset() if self._read is None else self._app.assignor.copied
        self.behind = None if self._copied else 0
        self._begun &= self._copied
        self._changed.set()

    async def run(self) -> None:
        """Read until the worker ends."""
        while self._read is not None:
            self._changed.clear()
            places = [TP(topic, partition) for topic in self._tables for partition in self.partitions]
            if not places:
                await self._changed.wait()
                continue
            try:
                await self._keep(places, self._read)
            except PartitionLostError:
                await self._changed.wait()
            except OffsetOutOfRangeError as error:
                gone: list[TP] = list(error.args[0])
                log.warning("copies that are longer than their changelogs are read again: %s", sorted(gone))
                for topic, partition in gone:
                    self._tables[topic].discard(partition)
            except (KafkaError, OSError) as error:
                log.debug("the changelogs cannot be read: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _keep(self, places: Sequence[TP], read: Reading) -> None:
        """Read changelogs from where the copies of them end, until another rebalance."""
        for topic, partition in places:
            await self._tables[topic].data._try_open_db_for_partition(partition)
            if partition not in self._begun:
                self._tables[topic].follow_on(partition)
        self._begun = frozenset(partition for _, partition in places)
        stored = {place: self._tables[place.topic].persisted_offset(place) for place in places}
        async with read(stored) as reader:
            log.info("keeps a copy of partitions %s of other workers", sorted({tp.partition for tp in places}))
            while not self._changed.is_set():
                found = await reader.getmany(timeout_ms=POLL_MS, max_records=RECORDS_AT_ONCE)
                check_all_readable(found)
                for place, records in found.items():
                    for some in cut(records, _size, BYTES_AT_ONCE):
                        if self._changed.is_set():
                            return
                        rows, last = [(record.key, record.value) for record in some], some[-1].offset
                        await self._tables[place.topic].follow(place.partition, rows, stored[place], last)
                        stored[place] = last
                        await asyncio.sleep(0)
                ends = [(reader.highwater(place), stored[place]) for place in places]
                if all(end is not None for end, _ in ends):
                    self.behind = sum(max(0, (end or 0) - 1 - (-1 if at is None else at)) for end, at in ends)

    async def erase(self) -> None:
        """Erase what changelogs have deleted, and discard what nobody keeps here any more."""
        for table in self._tables.values():
            for partition in sorted(table.local):
                if self._copied is None:
                    return
                if partition in table.owned or partition in self._copied:
                    await table.erase_followed(partition)
                elif self._read is not None and partition not in table.recovering:
                    table.discard(partition)


def _size(record: Any) -> int:
    return len(record.key or b"") + len(record.value or b"")
