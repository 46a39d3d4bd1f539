"""Warm standbys: who keeps copies, what reaches them, and what leaves their files."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rocksdict
from aiokafka.errors import OffsetOutOfRangeError
from faust.types import TP

from stream_dp.releases.rows import BUCKET, OUTBOX, TABLE
from stream_dp.runtime.embedded import LogRecord, MemoryWriter
from stream_dp.runtime.faust.coalescing import Chunk, message_of
from stream_dp.runtime.faust.copies import Copies
from stream_dp.runtime.faust.membership import Assignor
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.topics import RELEASES
from stream_dp.runtime.kafka.transactions import PartitionLostError
from stream_dp.runtime.storage import Database, open_database
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.windows.encoding import bucket_key
from stream_dp.windows.merging import PARTIAL

SECRET = b"planted-51d6a0c7"
OFFSET = (b"offset", b"7")
PARTITION = 1


def files_with(folder: Path, secret: bytes = SECRET) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and secret in path.read_bytes()]


def opened(folder: Path) -> Database:
    return open_database(folder, rocksdict.Cache(8 << 20))


# -- what leaves the files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [BUCKET, TABLE], ids=["in the family for counts", "in the other family"])
def test_row_that_a_changelog_deleted_leaves_the_files_also_after_a_crash_before_that(
    tmp_path: Path, kind: bytes
) -> None:
    key, kept = bucket_key(kind, "pages", 1000, 0), bucket_key(kind, "pages", 2000, 0)
    database = opened(tmp_path)
    database.follow([(key, SECRET), (kept, b"kept")], OFFSET)
    del database
    database = opened(tmp_path)  # in a sorted file now
    database.follow([(key, None)], OFFSET)
    del database
    database = opened(tmp_path)
    assert any(name.endswith(".sst") for name in files_with(tmp_path))

    database.erase_followed()

    assert files_with(tmp_path) == []
    assert database.get(kept) == b"kept"
    assert database.get(OFFSET[0]) == OFFSET[1]


@pytest.mark.parametrize("kind", [BUCKET, TABLE, PARTIAL], ids=["bucket", "table", "partial"])
def test_what_an_owner_deleted_and_had_not_erased_leaves_the_files_when_it_is_a_standby(
    tmp_path: Path, kind: bytes
) -> None:
    key = bucket_key(kind, "pages", 1000, 0)
    database = opened(tmp_path)
    database.write([(key, SECRET)])
    del database
    database = opened(tmp_path)  # in a sorted file now
    database.write([(key, None)])
    assert files_with(tmp_path)

    database.follow_on()
    database.erase_followed()

    assert files_with(tmp_path) == []


def test_row_that_was_deleted_while_another_was_erased_is_erased_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (bucket_key(TABLE, "pages", start, 0) for start in (1000, 2000))
    database, erase = opened(tmp_path), Database.erase
    database.follow([(first, b"1"), (second, SECRET), (first, None)])

    def erase_and_delete(self: Database, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        erase(self, ranges)
        self.follow([(second, None)])

    monkeypatch.setattr(Database, "erase", erase_and_delete)
    database.erase_followed()
    assert files_with(tmp_path)
    monkeypatch.setattr(Database, "erase", erase)
    database.erase_followed()

    assert files_with(tmp_path) == []


def test_only_what_hides_something_is_erased_and_no_more_than_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    erased: list[Sequence[tuple[bytes, bytes]]] = []
    monkeypatch.setattr(Database, "erase", lambda _, ranges: erased.append(ranges))
    database = opened(tmp_path)
    database.follow([(bucket_key(OUTBOX, "pages", 1000, 0), None)])
    database.erase_followed()
    assert erased == []

    database.follow([(bucket_key(TABLE, "pages", 1000, 0), None)])
    database.erase_followed()
    database.erase_followed()
    assert len(erased) == 1


def test_what_stands_in_a_key_behind_view_and_time_is_not_noted(tmp_path: Path) -> None:
    key = bucket_key(b"e", "pages", 1000, 0) + SECRET  # as the pseudonym of a user
    database = opened(tmp_path)
    database.follow([(key, b"")])
    database.follow([(key, None)])
    database.erase_followed()

    assert all(name.startswith("MANIFEST") for name in files_with(tmp_path)), "RocksDB notes keys there by itself"


# -- what reaches a copy ----------------------------------------------------------------------------------------------


@pytest.fixture
def table(worker: Worker) -> DurableTable:
    """The release table of a worker that has nothing to do, and does not own a partition of it any more."""
    found = worker.tables[RELEASES]
    found._owned.pop(PARTITION)
    found._claimed.pop(PARTITION)
    return found


def place_of(table: DurableTable) -> TP:
    return TP(table.changelog_topic.get_topic_name(), PARTITION)


def value(table: DurableTable, key: bytes) -> bytes | None:
    return table._database(PARTITION).get(key)


async def test_copy_takes_only_what_follows_on_it_and_nothing_while_the_partition_is_claimed(
    table: DurableTable,
) -> None:
    since = table.persisted_offset(place_of(table))
    await table.follow(PARTITION, [(b"a", b"1")], since, 11)
    assert table.persisted_offset(place_of(table)) == 11

    with pytest.raises(PartitionLostError):
        await table.follow(PARTITION, [(b"a", b"2")], since, 20)
    table._claimed[PARTITION] = object()  # type: ignore[assignment]
    with pytest.raises(PartitionLostError):
        await table.follow(PARTITION, [(b"a", b"3")], 11, 20)
    table._claimed.pop(PARTITION)

    assert value(table, b"a") == b"1"
    assert table.persisted_offset(place_of(table)) == 11


async def test_chunk_of_a_former_recovery_does_not_throw_a_copy_back(table: DurableTable) -> None:
    place = place_of(table)
    await table.follow(PARTITION, [(b"a", b"new")], table.persisted_offset(place), 50)
    chunk = Chunk(place.topic, PARTITION, [LogRecord(place.topic, PARTITION, 40, b"a", b"old", 0)], 0)

    table.apply_changelog_batch([SimpleNamespace(message=message_of(table.app, place, chunk.records[-1], chunk))])

    assert (value(table, b"a"), table.persisted_offset(place)) == (b"new", 50)


class Reader:
    """Reads changelogs on the embedded log, as `copies.reading` does on Kafka."""

    def __init__(self, worker: Worker) -> None:
        assert worker.app.memory_log is not None
        self._log = worker.app.memory_log
        self.starts: list[Mapping[TP, int | None]] = []

    @asynccontextmanager
    async def __call__(self, since: Mapping[TP, int | None]) -> AsyncIterator[Reader]:
        self.starts.append(dict(since))
        self._positions = {tp: 0 if offset is None else offset + 1 for tp, offset in since.items()}
        yield self

    async def getmany(self, **_: int) -> dict[TP, Sequence[Any]]:
        await asyncio.sleep(0.01)
        if beyond := {tp: at for tp, at in self._positions.items() if at > self._log.end(tp)}:
            raise OffsetOutOfRangeError(beyond)
        found = {tp: self._log.read(tp, at, 100) for tp, at in self._positions.items()}
        self._positions.update({tp: records[-1].offset + 1 for tp, records in found.items() if records})
        return {tp: records for tp, records in found.items() if records}

    def highwater(self, partition: TP) -> int:
        return self._log.end(partition)


@asynccontextmanager
async def keeping(worker: Worker, read: Reader) -> AsyncIterator[Copies]:
    copies = Copies(worker.app, worker.tables, read)
    running = asyncio.create_task(copies.run())
    yield copies
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.fixture
def copied(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Callable[[set[int]], None]:
    """Lets the group say of which partitions the worker keeps copies; it owns the others."""

    def share(partitions: set[int]) -> None:
        monkeypatch.setattr(Assignor, "copied", frozenset(partitions))

    for table in worker.tables.values():
        table._owned.pop(PARTITION)
        table._claimed.pop(PARTITION)
    share({PARTITION})
    return share


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_SECONDS):
        while not is_so():
            await asyncio.sleep(0.01)


async def write(table: DurableTable, *rows: tuple[bytes, bytes | None]) -> None:
    """Commit rows as the owner of the partition, another worker."""
    writer = await MemoryWriter.claim(table.app.memory_log, place_of(table))
    await writer.write(rows)


@pytest.mark.usefixtures("copied")
async def test_copy_follows_its_owner_until_a_rebalance_and_goes_on_where_it_stood(worker: Worker) -> None:
    table, read = worker.tables[RELEASES], Reader(worker)
    async with keeping(worker, read) as copies:
        copies.go_on()
        await write(table, (b"a", b"1"))
        await until(lambda: value(table, b"a") == b"1" and copies.behind == 0)
        copies.pause()
        await write(table, (b"a", b"2"))
        await asyncio.sleep(0.1)
        assert value(table, b"a") == b"1"
        assert copies.behind is None

        stood = table.persisted_offset(place_of(table))
        copies.go_on()
        await until(lambda: value(table, b"a") == b"2")
        assert read.starts[-1][place_of(table)] == stood
        assert not worker.is_recovering


@pytest.mark.usefixtures("copied")
async def test_copy_that_is_longer_than_its_changelog_is_made_anew(worker: Worker) -> None:
    table = worker.tables[RELEASES]
    await table.follow(PARTITION, [(b"gone", b"1")], table.persisted_offset(place_of(table)), 1000)
    async with keeping(worker, Reader(worker)) as copies:
        copies.go_on()
        await write(table, (b"a", b"1"))
        await until(lambda: value(table, b"a") == b"1")

    assert value(table, b"gone") is None


async def test_beat_erases_what_a_copy_was_told_is_deleted_and_discards_a_copy_that_is_kept_no_more(
    worker: Worker, copied: Callable[[set[int]], None]
) -> None:
    table, folder = worker.tables[RELEASES], Path(str(worker.tables[RELEASES].data.path))
    key = bucket_key(BUCKET, "pages", 1000, 0)
    async with keeping(worker, Reader(worker)) as copies:
        copies.go_on()
        await write(table, (key, SECRET))
        await until(lambda: value(table, key) == SECRET)
        await write(table, (key, None))
        await until(lambda: value(table, key) is None)
        assert files_with(folder)
        await copies.erase()
        assert files_with(folder) == []

        await write(table, (key, SECRET))
        await until(lambda: value(table, key) == SECRET)
        copies.pause()
        await copies.erase()
        assert PARTITION in table.local, "it may be given back"
        copied(set())
        copies.go_on()
        await copies.erase()

    assert PARTITION not in table.local
    assert table.local == table.owned
    assert files_with(folder) == []


# -- who keeps copies -------------------------------------------------------------------------------------------------

TOPICS = ("source", "changelog")


class Member:
    """A worker in a group, as its assignor knows it."""

    def __init__(self, replicas: int) -> None:
        app: Any = SimpleNamespace(
            tables=SimpleNamespace(changelog_topics={"changelog"}, data={}),
            conf=SimpleNamespace(canonical_url="http://here"),
            changelogs={"changelog"},
            protocol="p",
            tracer=None,
        )
        app.sensors = SimpleNamespace(on_assignment_start=lambda *_: None, on_assignment_completed=lambda *_: None)
        self.assignor = Assignor(app, replicas=replicas)

    @property
    def actives(self) -> set[int]:
        return {tp.partition for tp in self.assignor.assigned_actives() if tp.topic == "changelog"}


def share(members: Mapping[str, Member], partitions: int) -> None:
    """Let the first member share the partitions."""
    cluster: Any = SimpleNamespace(partitions_for_topic=lambda _: set(range(partitions)))
    said = {name: member.assignor.metadata(set(TOPICS)) for name, member in members.items()}
    for name, assignment in next(iter(members.values())).assignor.assign(cluster, said).items():
        members[name].assignor.on_assignment(assignment)
        owned = {(topic, partition) for topic, places in assignment.assignment for partition in places}
        assert owned == {(topic, partition) for topic in TOPICS for partition in members[name].actives}


def given(members: Mapping[str, Member], partitions: int, replicas: int) -> dict[int, str]:
    """The owner of every partition; fails where partitions or copies are not as they have to be."""
    owners: dict[int, str] = {}
    for partition in range(partitions):
        (owner,) = [name for name, one in members.items() if partition in one.actives]
        copies = [name for name, one in members.items() if partition in one.assignor.copied]
        assert len(copies) == min(replicas, len(members) - 1)
        assert owner not in copies
        owners[partition] = owner
    loads = [len(one.actives) for one in members.values()]
    assert max(loads) - min(loads) <= 2, loads
    assert all(one.assignor.assigned_standbys() == set() for one in members.values()), "Faust would recover them"
    return owners


@pytest.mark.parametrize("seed", range(40))
def test_partitions_of_a_worker_that_dies_go_to_copies_and_nothing_else_moves_without_one(seed: int) -> None:
    chance = random.Random(seed)
    partitions, replicas = chance.randint(1, 32), chance.randint(1, 2)
    members: dict[str, Member] = {}
    for number in range(30):
        before = {name: (one.actives, one.assignor.copied) for name, one in members.items()}
        dies = len(members) > 1 and (len(members) > 6 or chance.random() < 0.5)
        if dies:
            del members[chance.choice(list(members))]
        else:
            members[f"w{number}"] = Member(replicas)
        share(members, partitions)

        owners = given(members, partitions, replicas)
        there = {p: before[name] for p, name in owners.items() if any(before.get(name, ()))}
        assert all(p in actives | copies for p, (actives, copies) in there.items()), "it was given one without a copy"
