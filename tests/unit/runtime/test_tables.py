"""Tables that a step can rely on: changelog first, RocksDB after it, and nothing half done."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaError
from faust.types import TP

from stream_dp.config.access import MEMORY, Broker
from stream_dp.runtime import storage
from stream_dp.runtime.embedded import LogRecord, MemoryWriter
from stream_dp.runtime.faust import tables
from stream_dp.runtime.faust.app import claims
from stream_dp.runtime.faust.coalescing import Chunk, message_of
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.topics import RELEASES
from stream_dp.runtime.kafka.transactions import CLAIM, PartitionLostError, Row
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.windows.encoding import after

SECRET = b"planted-0d6c2f81"


@pytest.fixture
def table(worker: Worker) -> DurableTable:
    """The release table of a worker that has nothing to do."""
    return worker.tables[RELEASES]


def changelog(table: DurableTable, partition: int) -> list[tuple[bytes, bytes | None]]:
    """What stands behind the row of this worker's claim."""
    claim, *rows = table.app.memory_log.records[changelog_of(table, partition)]
    assert claim.key == CLAIM
    return [(record.key, record.value) for record in rows]


def changelog_of(table: DurableTable, partition: int) -> TP:
    return TP(table.changelog_topic.get_topic_name(), partition)


async def commit(table: DurableTable, partition: int, rows: Sequence[Row]) -> None:
    """Commit as the present owner."""
    await table.commit(partition, rows, table.owner(partition))


def stored(table: DurableTable, partition: int) -> dict[bytes, bytes]:
    kinds = (bytes([kind]) for kind in range(ord("a"), ord("z")))  # a scan is of one kind
    return {key: value for kind in kinds for key, value in table.rows(partition).scan(kind, after(kind))}


def offset(table: DurableTable, partition: int) -> int | None:
    found: int | None = table.persisted_offset(TP(table.changelog_topic.get_topic_name(), partition))
    return found


def files_with_secret(table: DurableTable) -> list[str]:
    folder = Path(str(table.data.path))
    return [path.name for path in folder.rglob("*") if path.is_file() and SECRET in path.read_bytes()]


async def test_commit_reaches_changelog_and_database_in_order_and_moves_the_offset(table: DurableTable) -> None:
    await commit(table, 1, [(b"a", b"1"), (b"b", b"2")])
    await commit(table, 1, [(b"a", None), (b"c", b"3"), (b"c", b"4")])

    assert changelog(table, 1) == [(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"c", b"3"), (b"c", b"4")]
    assert stored(table, 1) == {b"b": b"2", b"c": b"4"}
    assert offset(table, 1) == 5
    assert stored(table, 0) == {}
    assert changelog(table, 0) == []
    assert table.rows(1).get(b"a") is None
    assert table.rows(1).get(b"b") == b"2"


async def test_recovered_chunks_enter_in_order_and_move_the_offset_to_the_last_of_them(table: DurableTable) -> None:
    """Faust takes 65 us for a row that is handed over by itself, and an empty folder needs every row."""
    rows = [(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"c", b"3"), (b"b", b"4")]
    place = changelog_of(table, 1)
    records = [LogRecord(place.topic, 1, at, key, value, 0) for at, (key, value) in enumerate(rows, 7)]
    chunks = [Chunk(place.topic, 1, some, 0) for some in (records[:2], records[2:])]
    events = [SimpleNamespace(message=message_of(table.app, place, one.records[-1], one)) for one in chunks]

    await commit(table, 1, [(b"d", b"5")])
    table.apply_changelog_batch(events)
    assert stored(table, 1) == {b"d": b"5"}, "an owned partition is written by its commits alone"
    del table._owned[1]
    table.apply_changelog_batch(events)

    assert stored(table, 1) == {b"b": b"4", b"c": b"3", b"d": b"5"}
    assert offset(table, 1) == 11
    assert stored(table, 0) == {}


async def test_rows_of_a_changelog_are_read_in_one_chunk(table: DurableTable, worker: Worker) -> None:
    await commit(table, 1, [(b"%d" % at, b"1") for at in range(20)])
    consumer, place = worker.app.consumer, changelog_of(table, 1)
    consumer._positions[place] = 0

    (chunk,) = (await consumer._getmany({place}, 0.1))[place]

    assert [record.offset for record in chunk.records] == list(range(21))
    assert place not in consumer._get_active_partitions(), "a changelog is read on though it is recovered"


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage is collected unless somebody asks."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
async def test_database_that_is_let_go_of_is_closed_without_a_collection_of_all_garbage(
    table: DurableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection takes longer the more a worker holds; there was one for every table at every rebalance."""
    store = table.data
    await commit(table, 1, [(b"a", b"1")])
    monkeypatch.setattr("stream_dp.runtime.faust.tables.gc.collect", lambda: pytest.fail("collected"))

    store.revoke_partitions(table, {changelog_of(table, 1)})
    await store._try_open_db_for_partition(1)
    assert table.rows(1).get(b"a") == b"1"
    await store.stop()
    await store._try_open_db_for_partition(1)
    assert table.rows(1).get(b"a") == b"1"


@pytest.mark.usefixtures("uncollected")
async def test_database_that_garbage_holds_open_is_opened_again_at_once(
    table: DurableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = table.data
    await commit(table, 1, [(b"a", b"1")])
    circle: list[object] = [store._db_for_partition(1)]
    circle.append(circle)
    del circle
    monkeypatch.setattr(store, "sleep", lambda *_: pytest.fail("waited"))

    store.revoke_partitions(table, {changelog_of(table, 1)})
    await store._try_open_db_for_partition(1)

    assert table.rows(1).get(b"a") == b"1"


@pytest.mark.usefixtures("uncollected")
async def test_stopped_store_holds_no_database_open_though_it_is_asked_for_one(table: DurableTable) -> None:
    """Recovery ends after the tables, and what it asks the store of a crashed worker for would hold up the next one."""
    await commit(table, 1, [(b"a", b"1")])
    await table.data.stop()

    assert offset(table, 1) == 1
    database = table.data._open_for_partition(1)

    assert database.get(b"a") == b"1"


@pytest.mark.usefixtures("uncollected")
async def test_database_that_becomes_garbage_while_it_is_waited_for_is_opened_at_the_next_try(
    table: DurableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = table.data
    await commit(table, 1, [(b"a", b"1")])
    circle: list[object] = [store._db_for_partition(1)]
    circle.append(circle)
    slept: list[float] = []

    async def sleep(_: object, seconds: float) -> None:
        slept.append(seconds)
        circle_of = circle.copy()
        circle.clear()
        circle_of.append(circle_of)

    monkeypatch.setattr("faust.stores.base.Store.sleep", sleep)

    store.revoke_partitions(table, {changelog_of(table, 1)})
    await store._try_open_db_for_partition(1, generation_id=table.app.consumer_generation_id)

    assert len(slept) == 1
    assert table.rows(1).get(b"a") == b"1"


async def test_recovery_ends_with_the_row_of_the_claim(table: DurableTable) -> None:
    """It was written before recovery asked where the changelog ends: what others wrote before it is read."""
    for partition in range(3):
        assert [row.key for row in table.app.memory_log.records[changelog_of(table, partition)]] == [CLAIM]
        assert table.rows(partition).get(CLAIM) is not None
        assert offset(table, partition) == 0


async def test_commit_of_nothing_changes_nothing(table: DurableTable) -> None:
    await commit(table, 0, [(b"a", b"1")])
    await commit(table, 0, [])

    assert stored(table, 0) == {b"a": b"1"}
    assert offset(table, 0) == 1


async def test_rows_that_are_not_acknowledged_stay_out_of_the_database(
    table: DurableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(table, 0, [(b"a", b"1")])

    async def refusing(self: MemoryWriter, rows: Sequence[Row]) -> int:
        raise OSError("not acknowledged")

    monkeypatch.setattr(MemoryWriter, "write", refusing)
    with pytest.raises(OSError, match="not acknowledged"):
        await commit(table, 0, [(b"b", b"2"), (b"c", b"3"), (b"d", b"4")])

    assert stored(table, 0) == {b"a": b"1"}
    assert offset(table, 0) == 1


async def test_partition_that_changes_hands_during_a_commit_is_not_touched(
    table: DurableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changelog took the rows; by the time this is known, recovery may be at work on the local copy."""
    before, write = offset(table, 2), MemoryWriter.write

    async def rebalanced(self: MemoryWriter, rows: Sequence[Row]) -> int:
        last = await write(self, rows)
        table._owned.clear()
        return last

    monkeypatch.setattr(MemoryWriter, "write", rebalanced)
    with pytest.raises(PartitionLostError, match=r"partition 2 of t\w+-releases-changelog was taken over"):
        await commit(table, 2, [(b"a", b"1")])

    assert stored(table, 2) == {}
    assert offset(table, 2) == before
    await table.beat(2, b"h", b"1")  # a heartbeat minds less
    assert stored(table, 2) == {}


async def test_row_of_a_former_owner_reaches_neither_changelog_nor_database(table: DurableTable) -> None:
    log, tp = table.app.memory_log, changelog_of(table, 1)
    await commit(table, 1, [(b"a", b"1")])
    successor = await claims(Broker(MEMORY), log)(tp)
    await commit(table, 1, [(b"b", b"2")])  # nothing of the successor stands there yet, so it will be recovered
    await successor.write([(b"c", b"3")])

    with pytest.raises(PartitionLostError, match="taken over by another worker"):
        await commit(table, 1, [(b"d", b"4")])
    with pytest.raises(PartitionLostError):
        await table.renew()

    assert changelog(table, 1) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    assert stored(table, 1) == {b"a": b"1", b"b": b"2"}


async def test_rows_worked_out_as_a_former_owner_are_refused_to_the_present_one(table: DurableTable) -> None:
    """Else a step that a rebalance overtook would write, by right of the new claim, what it knows of the old one."""
    before, tp = table.owner(1), changelog_of(table, 1)

    await table.claim({tp})
    with pytest.raises(PartitionLostError):
        table.owner(1)
    await table.on_recovery_completed({tp}, set())
    with pytest.raises(PartitionLostError):  # another rebalance cut the recovery short
        table.owner(1)
    table.data.set_persisted_offset(tp, table.app.memory_log.end(tp) - 1)
    await table.on_recovery_completed({tp}, set())

    with pytest.raises(PartitionLostError):
        await table.commit(1, [(b"a", b"1")], before)
    await table.commit(1, [(b"b", b"2")], table.owner(1))
    assert [key for key, _ in changelog(table, 1)] == [CLAIM, b"b"]


async def test_claims_are_renewed_at_the_broker_and_in_every_partition(table: DurableTable) -> None:
    await table.renew()

    for partition in range(3):
        assert [key for key, _ in changelog(table, partition)] == [CLAIM]


async def test_slow_commit_is_not_overtaken_by_the_next_one_of_its_partition(
    table: DurableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it, the stored offset would pass a row that is not stored yet; a crash would lose it."""
    write, slow = MemoryWriter.write, asyncio.Event()

    async def waiting(self: MemoryWriter, rows: Sequence[Row]) -> int:
        if rows[0][0] == b"a":
            await slow.wait()
        return await write(self, rows)

    monkeypatch.setattr(MemoryWriter, "write", waiting)
    first = asyncio.create_task(commit(table, 0, [(b"a", b"1")]))
    await asyncio.sleep(0)
    second = asyncio.create_task(commit(table, 0, [(b"b", b"2")]))
    await commit(table, 1, [(b"b", b"2")])
    assert not second.done()
    assert stored(table, 0) == {}

    slow.set()
    await asyncio.gather(first, second)

    assert changelog(table, 0) == [(b"a", b"1"), (b"b", b"2")]
    assert offset(table, 0) == 2


async def test_small_scan_is_ordered_ends_before_its_bound_and_is_of_one_moment(
    table: DurableTable,
) -> None:
    keys = [bytes((120, number)) for number in (0, 1, 2, 127, 128, 254, 255)]
    await commit(table, 0, [(key, key) for key in reversed(keys)])

    assert [key for key, _ in table.rows(0).scan(b"x", b"y")] == keys
    assert [key for key, _ in table.rows(0).scan(keys[1], keys[4])] == keys[1:4]
    assert list(table.rows(0).scan(keys[4], keys[4])) == []
    begun = table.rows(0).scan(b"x", b"y")
    assert next(begun) == (keys[0], keys[0])
    await commit(table, 0, [(key, None) for key in keys])
    assert [key for key, _ in begun] == keys[1:]
    assert list(table.rows(0).scan(b"x", b"y")) == []


async def test_long_scan_reads_every_row_once_a_few_at_a_time(table: DurableTable) -> None:
    """So that reading back what was counted takes hardly more memory than the counts."""
    rows = [(b"%04d" % number, bytes(10_000)) for number in range(1000)]
    await commit(table, 0, rows)
    assert list(table.rows(0).scan(b"0", b"1")) == rows

    begun = table.rows(0).scan(b"0", b"1")
    assert next(begun) == rows[0]
    await commit(table, 0, [(b"0999", None)])
    assert list(begun) == rows[1:-1]


async def test_rows_are_not_read_on_as_an_owner_who_is_one_no_more(table: DurableTable) -> None:
    """A long scan may be under way when the partition is given away and its database opened by the next owner."""
    await commit(table, 0, [(b"%04d" % number, bytes(10_000)) for number in range(1000)])
    rows = table.rows(0)
    begun = rows.scan(b"0", b"1")
    next(begun)
    await table._disown()
    with pytest.raises(PartitionLostError):
        list(begun)
    with pytest.raises(PartitionLostError):
        rows.get(b"0000")


async def test_a_large_commit_is_stored_piece_by_piece_and_never_more_of_it_than_was_acknowledged(
    table: DurableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CHUNK_BYTES", 1000)
    rows: list[Row] = [(b"k%d" % number, bytes(400)) for number in range(5)]
    write, sizes = MemoryWriter.write, list[int]()

    async def failing(self: MemoryWriter, some: Sequence[Row]) -> int:
        sizes.append(len(some))
        if len(sizes) == 3:
            raise KafkaError("gone")
        return await write(self, some)

    monkeypatch.setattr(MemoryWriter, "write", failing)
    with pytest.raises(KafkaError, match="gone"):
        await commit(table, 0, rows)

    assert sizes == [2, 2, 1]
    assert list(stored(table, 0).items()) == rows[:4] == changelog(table, 0)
    assert offset(table, 0) == 4


async def test_erased_rows_are_in_no_file_and_other_rows_stay(table: DurableTable) -> None:
    await commit(table, 0, [(b"k%03d" % number, SECRET) for number in range(100)])
    await commit(table, 0, [(b"kept", b"value"), (b"a", b"1")])
    await asyncio.to_thread(table.erase, 0, [(b"k", b"l")])
    assert files_with_secret(table), "nothing was deleted, so nothing may vanish"
    await commit(table, 0, [(b"k%03d" % number, None) for number in range(100)])
    assert files_with_secret(table), "a delete alone leaves the rows in the files"

    await asyncio.to_thread(table.erase, 0, [(b"k000", b"k999")])

    assert files_with_secret(table) == []
    assert stored(table, 0) == {b"kept": b"value", b"a": b"1"}
    assert changelog(table, 0)[-1] == (b"k099", None)


async def test_the_files_beside_the_rows_stay_small_however_long_a_database_is_open(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(storage, "LOG_BYTES", 32 << 10)
    monkeypatch.setattr(storage, "MANIFEST_BYTES", 8 << 10)
    store = worker.tables[RELEASES].data
    monkeypatch.setattr(type(store), "partition_path", lambda _self, partition: tmp_path / f"{partition}.db")
    database = store._open_for_partition(0)
    for number in range(60):
        database.put(b"row %d" % number, bytes(100))
        database.erase([(b"row", b"rox")])

    folder = tmp_path / "0.db"
    logs = sorted(folder.glob("LOG*"))
    assert 1 < len(logs) <= storage.LOG_FILES
    assert all(path.stat().st_size <= 34 << 10 for path in logs)  # the last line of one may pass the bound
    assert sum(path.stat().st_size for path in folder.glob("MANIFEST-*")) <= 12 << 10
    assert {path.suffix for path in folder.glob("0*")} <= {".sst", ".log"}


async def test_all_tables_of_a_process_read_through_the_cache_that_the_configuration_sizes(worker: Worker) -> None:
    cache, used = worker.app.block_cache, []
    for table in worker.tables.values():
        for partition in (0, 1):
            await commit(table, partition, [(b"k%03d" % number, bytes(100)) for number in range(1000)])
            await asyncio.to_thread(table.erase, partition, [(b"k", b"l")])
            before = cache.get_usage()
            assert len(dict(table.rows(partition).scan(b"k", b"l"))) == 1000
            used.append(cache.get_usage() - before)
    assert all(bytes_read > 0 for bytes_read in used)
