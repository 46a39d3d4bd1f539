"""Faust tables that a step can rely on: written where the changelog has acknowledged, read by partition.

Faust writes RocksDB first and the changelog when it gets there, so after a crash either may be ahead, and a failed
publish is only logged (docs/faust.md). Here a commit goes to the changelog first, waits for its acknowledgement, and
reaches RocksDB as one batch that also moves the changelog offset. So the local state is always exactly what the
changelog held up to its offset, on this machine or on a new one; a batch that the disk refuses is the last one
(`stream_dp.runtime.storage`). The changelog takes rows from the partition's present
owner only (`stream_dp.runtime.kafka.transactions`).
"""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

import rocksdict
from faust.stores import rocksdb
from faust.tables.table import Table
from faust.types import TP, EventT

from stream_dp.errors import StorageError
from stream_dp.runtime.kafka.transactions import CLAIM, PartitionLostError, Row, Writer, lost
from stream_dp.runtime.storage import Database, open_database
from stream_dp.windows.encoding import CHUNK_BYTES, cut, row_size
from stream_dp.windows.records import Records

CONGESTED_SECONDS = 0.02
"""Between two looks whether RocksDB takes rows at once again."""


class Store(rocksdb.Store):
    """Faust's store, whose databases are ours."""

    _is_stopped = False

    def _db_for_partition(self, partition: int) -> Database:
        """Return the open database of a partition.

        Parts of Faust that end after the tables still ask for databases. One that is opened for them is not kept, so
        that the next worker of the process can open it.
        """
        if self._is_stopped:
            return self._open_for_partition(partition)
        database: Database = super()._db_for_partition(partition)
        return database

    def _open_for_partition(self, partition: int) -> Database:
        return open_database(self.partition_path(partition), self.app.block_cache)

    def apply_changelog_batch(self, batch: Iterable[EventT], **_: Any) -> None:
        """Store the rows of recovered chunks, and how far they come, in one batch for each partition.

        One that is owned was recovered, and is written by commits: a fetch that was under way brings their rows again.
        One that is not claimed is a copy at most, which may be further (`DurableTable.follow`).
        """
        rows: defaultdict[int, list[Row]] = defaultdict(list)
        last: dict[int, int] = {}
        own = self.table.changelog_topic.topics  # Faust may put a chunk of a topic that it does not know here
        for message in [event.message for event in batch]:
            if message.topic not in own or message.partition not in self.table.recovering:
                continue
            records = Records.of(message.value.records)
            rows[message.partition] += zip(cast("list[bytes]", records.keys), records.values, strict=True)
            last[message.partition] = max(message.offset, last.get(message.partition, -1))
        for partition, some in rows.items():
            self._db_for_partition(partition).follow(some, (self.offset_key, str(last[partition]).encode()))

    async def _try_open_db_for_partition(self, partition: int, *args: Any, **options: Any) -> Any:
        """Open a database. Faust waits half a minute where an error so much as mentions a lock."""
        try:
            return self._db_for_partition(partition)
        except StorageError:
            raise
        except Exception:
            gc.collect()  # it may be garbage that holds the database open
            return await super()._try_open_db_for_partition(partition, *args, **options)

    async def sleep(self, n: float) -> None:
        """Wait until the next try to open a database, and collect what became garbage meanwhile."""
        await super().sleep(n)
        gc.collect()

    async def stop(self) -> None:
        """Let go of the databases: each is closed when its last reader ends.

        Faust's store collects all garbage of the process, for every table and at every rebalance.
        """
        self._is_stopped = True
        self._dbs.clear()

    def revoke_partitions(self, table: Any, tps: set[TP]) -> None:
        """Let go of the databases of some partitions of the table's changelog."""
        for tp in tps:
            if tp.topic in table.changelog_topic.topics:
                self._dbs.pop(tp.partition, None)


def _nothing_beside(_table: str, _partition: int) -> list[Row]:
    return []


class DurableTable(Table):
    """A table of raw rows whose partitions are named by the caller, not by the event being processed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._one_at_a_time: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._claimed: dict[int, Writer] = {}
        self._from: dict[int, int] = {}
        """The offset of the claim's row of every claimed partition."""
        self._owned: dict[int, Writer] = {}
        self._given_up: dict[int, Exception] = {}
        """Why a step of a partition failed; whoever asks for the partition meets it again."""
        self.stored_beside: Callable[[str, int], list[Row]] = _nothing_beside
        """Returns the rows to store with a commit of a table's partition (`Positions.rows`)."""

    # -- ownership --------------------------------------------------------------------------------------------

    async def claim(self, assigned: set[TP]) -> None:
        """Claim every assigned partition, before recovery asks where its changelog ends.

        One that this worker had before as well: between two rebalances that it knows of, others may have had it.
        """
        await self._disown()
        topic = self.changelog_topic.get_topic_name()
        await asyncio.gather(*(self._claim(tp) for tp in assigned if tp.topic == topic))

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Own what was claimed and recovered: the local rows are those of the changelog.

        Faust says so of a recovery, too, that another rebalance cut short. One that did not come to the row of the
        claim has not read all that former owners wrote.
        """
        await super().on_recovery_completed(active_tps, standby_tps)
        for partition, writer in self._claimed.items():
            claimed, stored = self._from.get(partition), self._database(partition).get(self.data.offset_key)
            if claimed is not None and stored is not None and int(stored) >= claimed:
                self._owned[partition] = writer

    async def on_stop(self) -> None:
        """Give up the partitions."""
        await super().on_stop()
        await self._disown()

    def owner(self, partition: int) -> Writer:
        """This worker as the owner of a partition, from one rebalance to the next.

        Raises:
            PartitionLostError: it is not, or has not recovered the partition yet.
        """
        writer = self._owned.get(partition)
        if writer is None:
            raise self._lost(partition)
        return writer

    @property
    def is_recovered(self) -> bool:
        """True if it owns all that was claimed."""
        return self._owned.keys() == self._claimed.keys()

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that this worker owns."""
        return frozenset(self._owned)

    @property
    def recovering(self) -> frozenset[int]:
        """The partitions that this worker has claimed and does not own yet."""
        return frozenset(self._claimed.keys() - self._owned.keys())

    def is_owner(self, partition: int, writer: Writer) -> bool:
        """Return True if this worker still is that owner of a partition."""
        return self._owned.get(partition) is writer

    def check_owner(self, partition: int, writer: Writer) -> None:
        """Refuse to go on as an owner of a partition who is one no more.

        Raises:
            PartitionLostError: there was a rebalance, and the partition may have been changed by others in between.
        """
        if not self.is_owner(partition, writer):
            raise self._lost(partition)

    def give_up(self, partition: int, writer: Writer, why: Exception) -> None:
        """Own a partition no more, until the next rebalance, unless there was one since.

        Args:
            partition: the partition.
            writer: the owner who gives it up.
            why: what others who ask for the owner meet as well, so that whichever ends the process tells the cause.
        """
        if self.is_owner(partition, writer):
            del self._owned[partition]
            self._given_up[partition] = why

    def _lost(self, partition: int) -> Exception:
        return self._given_up.get(partition) or lost(TP(self.changelog_topic.get_topic_name(), partition))

    async def renew(self) -> None:
        """Keep the claims known to the broker and to the partitions' leaders, which forget within a day or a week.

        Raises:
            PartitionLostError: a partition was taken over.
        """
        for partition, writer in list(self._owned.items()):
            await self.app.outage.patiently(writer.renew)
            if self.is_owner(partition, writer):
                await self.commit(partition, [self._claim_row()], writer)

    async def _claim(self, tp: TP) -> None:
        outage = self.app.outage
        writer = await outage.patiently(lambda: self.app.claim(tp))
        self._claimed[tp.partition] = writer
        async with outage.waiting():
            self._from[tp.partition] = await writer.write([self._claim_row()])

    def _claim_row(self) -> Row:
        return CLAIM, self.app.conf.consumer_group_instance_id.encode()

    async def _disown(self) -> None:
        writers = list(self._claimed.values())
        self._claimed.clear()
        self._from.clear()
        self._owned.clear()
        self._given_up.clear()
        await asyncio.gather(*(writer.close() for writer in writers))

    # -- rows -------------------------------------------------------------------------------------------------

    async def commit(self, partition: int, rows: Sequence[Row], writer: Writer) -> None:
        """Carry out a `Commit`: changelog, acknowledgement, RocksDB; more than `CHUNK_BYTES` one piece after the other.

        If it fails the changelog may have a prefix of the rows, which the next owner recovers, and RocksDB less of it.

        Args:
            partition: the partition.
            rows: what to store; a value of None deletes.
            writer: the owner as whom the rows were worked out, from `owner`.

        Raises:
            PartitionLostError: the partition has another owner; the changelog has refused the rows, or this worker was
                told of it before they were acknowledged. They are not stored locally.
            KafkaError: the rows were not acknowledged or stored locally, and the process has to end.
            StorageError: they were, but nothing can be stored locally any more; the process has to end, and the next
                start reads them from the changelog.
        """
        async with self._one_at_a_time[partition]:  # the stored offset must never pass a row not yet stored
            self.check_owner(partition, writer)
            rows = [*self.stored_beside(self.name, partition), *rows]
            for some in cut(rows, _row_size, CHUNK_BYTES):  # RocksDB lets nobody go on while it takes them
                async with self.app.outage.waiting():
                    last = await writer.write(some)
                self.check_owner(partition, writer)
                self._database(partition).write([*some, (self.data.offset_key, str(last).encode())])

    async def beat(self, partition: int, key: bytes, value: bytes) -> None:
        """Write a row that nobody reads, so that the changelog's open segment is closed in time."""
        with suppress(PartitionLostError):
            await self.commit(partition, [(key, value)], self.owner(partition))

    async def follow(self, partition: int, rows: Sequence[Row], since: int | None, last: int) -> None:
        """Store rows that were read from the changelog in the copy of a partition that another worker owns.

        Args:
            partition: the partition.
            rows: the rows.
            since: the stored offset that they follow on, None for the first.
            last: the offset of the last of them.

        Raises:
            PartitionLostError: this worker has claimed it, or has stored something else meanwhile.
        """
        place, database = TP(self.changelog_topic.get_topic_name(), partition), self._database(partition)
        while database.is_congested:  # noqa: ASYNC110 - RocksDB tells nobody
            await asyncio.sleep(CONGESTED_SECONDS)
        if partition in self._claimed or self.persisted_offset(place) != since:
            raise lost(place)
        database.follow(rows, (self.data.offset_key, str(last).encode()))

    def follow_on(self, partition: int) -> None:
        """Begin a copy of a partition with the local rows that there are."""
        self._database(partition).follow_on()

    async def erase_followed(self, partition: int) -> None:
        """Erase from the files what the changelog has deleted of a partition; for long in another thread."""
        await asyncio.to_thread(self._database(partition).erase_followed)

    def discard(self, partition: int) -> None:
        """Delete the local rows of a partition that this worker neither owns nor copies."""
        self.data._dbs.pop(partition, None)
        shutil.rmtree(self.data.partition_path(partition), ignore_errors=True)

    @property
    def local(self) -> frozenset[int]:
        """The partitions that have rows in the data folder."""
        return frozenset(p for p in range(self.partitions) if self.data.partition_path(p).exists())

    def rows(self, partition: int) -> PartitionRows:
        """Read access to a partition, for as long as it is owned, or not owned, as it is now."""
        return PartitionRows(self, partition)

    def erase(self, partition: int, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        """Carry out `Erase`s: leave no file of the partition that holds a deleted row of the ranges.

        A flush ends the write-ahead log that the rows were written to, a forced compaction rewrites the tables that
        held them. Both wait for the disk, which takes longer than anything else that is done for a small window. Blocks
        until done: call it off the event loop.
        """
        self._database(partition).erase(ranges)

    def _database(self, partition: int) -> Database:
        database: Database = self.data._db_for_partition(partition)
        return database


def _row_size(row: Row) -> int:
    return len(row[0]) + len(row[1] or b"")


class PartitionRows:
    """The rows of one partition, as of the last finished commit (`stream_dp.windows.effects.Rows`).

    No database is held on to between two reads: it is opened by one owner at a time.
    """

    def __init__(self, table: DurableTable, partition: int) -> None:
        self._table = table
        self._partition = partition
        self._owner = table._owned.get(partition)

    def get(self, key: bytes) -> bytes | None:
        """The value of a row, None when there is none.

        Raises:
            PartitionLostError: the partition has changed hands.
        """
        return self._database().get(key)

    def scan(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `first <= key < last`, in key order; about `CHUNK_BYTES` of them are read at once.

        Raises:
            PartitionLostError: the partition has changed hands.
        """
        start: bytes | None = first
        while start is not None:
            some, start = self._read(start, last)
            yield from some

    def _read(self, first: bytes, last: bytes) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Some rows, and the key to go on from if there may be more."""
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(last)
        some: list[tuple[bytes, bytes]] = []
        room = CHUNK_BYTES
        for row in self._database().items(from_key=first, read_opt=options):
            some.append(row)
            room -= row_size(row)
            if room < 0:
                return some, row[0] + b"\0"
        return some, None

    def _database(self) -> Database:
        if self._table._owned.get(self._partition) is not self._owner:
            raise self._table._lost(self._partition)
        return self._table._database(self._partition)
