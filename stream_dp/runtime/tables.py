"""Faust tables that a step can rely on: written where the changelog has acknowledged, read by partition.

Faust writes RocksDB first and the changelog when it gets there, so after a crash either may be ahead, and a failed
publish is only logged (streaming.md 2.4). Here a commit goes to the changelog first, waits for every
acknowledgement, and reaches RocksDB as one batch that also moves the changelog offset. So the local state is always
exactly what the changelog held up to its offset, on this machine or on a new one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import rocksdict
from faust.tables.table import Table

from stream_dp.errors import StreamDPError


class PartitionLostError(StreamDPError):
    """A partition was given to another worker while this one wrote to it; its local copy must not be touched."""


class DurableTable(Table):
    """A table of raw rows whose partitions are named by the caller, not by the event being processed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._one_at_a_time: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def commit(self, partition: int, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Carry out a `Commit`: changelog, acknowledgement, RocksDB.

        Raises:
            KafkaError: a row was not acknowledged; nothing is stored locally, and the process has to end.
        """
        async with self._one_at_a_time[partition]:  # the stored offset must never pass a row not yet stored
            await self._commit(partition, rows)

    async def _commit(self, partition: int, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        self.app.lease.check()
        generation = self.app.consumer_generation_id
        producer, topic = self.app.producer, self.changelog_topic.get_topic_name()
        sent = [await producer.send(topic, key, value, partition, None, None) for key, value in rows]
        acknowledged = await asyncio.gather(*sent)
        if generation != self.app.consumer_generation_id:
            raise PartitionLostError(f"partition {partition} of table {self.name} changed hands during a commit")
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        if acknowledged:
            batch.put(self.data.offset_key, str(max(record.offset for record in acknowledged)).encode())
        self._database(partition).write(batch)

    async def beat(self, partition: int, key: bytes, value: bytes) -> None:
        """Write a row that nobody reads, so that the changelog's open segment is closed in time."""
        with suppress(PartitionLostError):
            await self.commit(partition, [(key, value)])

    def rows(self, partition: int) -> PartitionRows:
        """Read access to a partition."""
        return PartitionRows(self._database(partition))

    def erase(self, partition: int, first: bytes, last: bytes) -> None:
        """Carry out an `Erase`: leave no file of the partition that holds a deleted row of the range.

        A flush ends the write-ahead log that the rows were written to, a forced compaction of the range rewrites the
        tables that held them. Blocks until done: call it off the event loop.
        """
        database = self._database(partition)
        database.flush()
        options = rocksdict.CompactOptions()
        options.set_bottommost_level_compaction(rocksdict.BottommostLevelCompaction.force())
        database.compact_range(first, last, options)

    def _database(self, partition: int) -> Any:
        return self.data._db_for_partition(partition)


class PartitionRows:
    """The rows of one partition, as of the last finished commit (`stream_dp.windows.effects.Rows`)."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def get(self, key: bytes) -> bytes | None:
        """The value of a row, None when there is none."""
        value: bytes | None = self._database.get(key)
        return value

    def scan(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `first <= key < last`, in key order; read at once, since the database may be taken away."""
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(last)
        found: list[tuple[bytes, bytes]] = list(self._database.items(from_key=first, read_opt=options))
        return iter(found)
