"""What a broker forgets of a claim, and that renewing it keeps the fence up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from faust.types import TP

from stream_dp.config.access import Broker
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.topics import COUNTS, Topics, TopicSpec
from stream_dp.runtime.kafka.transactions import KafkaWriter, PartitionLostError
from stream_dp.runtime.localkafka import broker as localkafka
from stream_dp.runtime.localkafka import jars
from stream_dp.runtime.localkafka.broker import BrokerRun, StateFolder
from stream_dp.testing import application
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.windows.effects import Message

pytestmark = pytest.mark.broker

FORGETS_MS = 3000
"""In place of 7 days."""
FORGETS_NAMES = f"""
transactional.id.expiration.ms={FORGETS_MS}
transaction.remove.expired.transaction.cleanup.interval.ms=500
"""
FORGETS_PRODUCERS = f"""
producer.id.expiration.ms={FORGETS_MS}
producer.id.expiration.check.interval.ms=500
"""
CHANGELOG = TP("changelog", 0)


@pytest.fixture
async def servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[str]:
    """A broker of its own that forgets transactional ids, or what is asked for, within seconds, with one topic."""
    if (problem := jars.local_kafka_problem()) is not None:
        pytest.skip(f"no broker: {problem}")
    write = localkafka._write_settings

    def forgetful(folder: StateFolder, run: BrokerRun) -> None:
        write(folder, run)
        with (folder.path / "server.properties").open("a", encoding="utf-8") as settings:
            settings.write(getattr(request, "param", FORGETS_NAMES))

    monkeypatch.setattr(localkafka, "_write_settings", forgetful)
    address = (await asyncio.to_thread(localkafka.start, tmp_path)).address
    assert address is not None
    async with connect(Broker(f"kafka://{address}")) as client:
        await client.create([TopicSpec(CHANGELOG.topic, 1)])
    yield address
    await asyncio.to_thread(localkafka.stop, tmp_path)


def cluster_at(address: str) -> Cluster:
    return Cluster.of(Broker(f"kafka://{address}"))


async def wait(renewing: KafkaWriter | None) -> None:
    """Let three times the time pass after which a name is forgotten that nobody uses."""
    until = time.monotonic() + 3 * FORGETS_MS / 1000
    while time.monotonic() < until:
        await asyncio.sleep(0.5)
        if renewing is not None:
            await renewing.renew()


async def test_a_worker_renews_what_it_has_claimed(kafka: str, tmp_path: Path, visits: Callable[..., str]) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        worker = await app.start()
        places = [TopicPartition(Topics.of(app.plan).changelog(COUNTS), at) for at in range(app.plan.partitions)]
        before = await app.client.ends(places)
        for table in worker.tables.values():
            await table.renew()
        after = await app.client.ends(places)
        assert all(after[place] > before[place] for place in places)
        assert worker.crash_reason() is None


@pytest.mark.slow
async def test_claim_that_is_renewed_is_not_forgotten_and_one_that_is_not_fences_nobody(servers: str) -> None:
    """The second half is why there is a renewal; were it to fail, the renewal could go."""
    former = await KafkaWriter.claim(cluster_at(servers), CHANGELOG)
    await former.write([(b"a", b"1")])
    await wait(former)
    successor = await KafkaWriter.claim(cluster_at(servers), CHANGELOG)
    await successor.write([(b"b", b"1")])
    with pytest.raises(PartitionLostError):
        await former.write([(b"x", b"former")])

    await wait(None)
    third = await KafkaWriter.claim(cluster_at(servers), CHANGELOG)
    last = await third.write([(b"c", b"1")])
    assert await successor.write([(b"d", b"former")]) == last + 1
    await asyncio.gather(former.close(), successor.close(), third.close())


@pytest.mark.slow
async def test_transaction_that_a_dead_owner_left_open_holds_up_nobody(servers: str) -> None:
    """A renewal that was cut short by a crash."""
    writer = await KafkaWriter.claim(cluster_at(servers), CHANGELOG)
    await writer.write([(b"a", b"1")])
    dead = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"{CHANGELOG.topic}-{CHANGELOG.partition}")
    await dead.start()
    await dead.begin_transaction()
    await dead.send_offsets_to_transaction({TopicPartition(*CHANGELOG): 0}, "claims")

    successor = await asyncio.wait_for(KafkaWriter.claim(cluster_at(servers), CHANGELOG), 20)
    assert await successor.write([(b"b", b"1")]) == 1
    async with connect(Broker(f"kafka://{servers}")) as client:
        rows = [record.key async for record in client.follow([CHANGELOG.topic], until_end=True)]
    assert rows == [b"a", b"b"]
    await asyncio.gather(writer.close(), successor.close(), dead.client.close())
    dead._sender.sender_task.cancel()
    dead._closed = True


@pytest.mark.slow
@pytest.mark.parametrize("servers", [FORGETS_PRODUCERS], indirect=True)
async def test_owner_whom_the_broker_forgot_during_a_long_outage_writes_on(servers: str) -> None:
    """A day's silence, here of seconds: then a leader knows no epoch and no sequence of the producer any more."""
    writer = await KafkaWriter.claim(cluster_at(servers), CHANGELOG)
    await writer.write([(b"a", b"1"), (b"b", b"1")])
    await wait(None)
    assert await asyncio.wait_for(writer.write([(b"c", b"1")]), WITHIN_SECONDS) == 2
    await writer.publish([Message(CHANGELOG.topic, b"d", b"1", 0)])
    async with connect(Broker(f"kafka://{servers}")) as client:
        rows = [record.key async for record in client.follow([CHANGELOG.topic], until_end=True)]
    assert rows == [b"a", b"b", b"c", b"d"]
    await writer.close()
