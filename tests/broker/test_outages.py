"""A broker that is gone is waited for: said once, and everything is exact when it is back, without a supervisor."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.metadata import MetadataRequest
from faust.types import TP

from stream_dp.config import access
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.connections import AGAIN_SECONDS
from stream_dp.runtime.kafka.topics import COUNTS, Topics
from stream_dp.runtime.kafka.transactions import CLAIM, KafkaWriter
from stream_dp.runtime.localkafka import jars
from stream_dp.testing import application
from tests.support.brokers import Broker
from tests.support.processes import SESSION_SECONDS, WorkerProcess
from tests.support.proxy import Proxy
from tests.support.visits import RICH, TOP, WITNESSED, Stream

pytestmark = pytest.mark.broker

FINEST = {"public": "detailed", "partner": "detailed", "internal": "detailed"}
GONE, BACK, RUNS = "does not answer; the worker waits for it", "answers again, after", "is running"
LONGER = SESSION_SECONDS + 3
"""Longer than the group waits for a silent worker."""
OF_THE_STREAM = re.compile(
    r" stream_dp\.worker: (ledger|sources|views\.|windows of|view \S+ (is behind|has caught up))"
)
"""What a worker says of the data, the budget and its own pace, at times that the machine's load decides as well."""
SILENT = 7
"""Longer than a worker waits before it says that the broker does not answer."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Broker]:
    """A broker of the test's own."""
    if (problem := jars.local_kafka_problem()) is not None:
        pytest.skip(f"no broker: {problem}")
    broker = Broker(tmp_path / "kafka")
    yield broker
    broker.close()


def said_since(worker: WorkerProcess, before: int) -> list[str]:
    """The lines that a worker has logged but for so many, and but for what it says of the stream."""
    lines = [line for line in worker.log.read_text().splitlines() if not OF_THE_STREAM.search(line)]
    return lines[before:]


async def test_worker_that_was_cut_off_for_longer_than_its_session_goes_on_by_itself_and_exactly(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, proxied: Any
) -> None:
    async with application(visits(*WITNESSED, *RICH), tmp_path, broker=kafka) as app:
        stream, proxy = Stream(app), proxied()
        worker = spawn(app, "state", "--terse", proxy=proxy)
        worker.start()
        await stream.go_on(2)
        await stream.wait_until_shown()
        await stream.go_on(30)
        await app.grant("public", "detailed")
        before = len(said_since(worker, 0))

        proxy.cut()
        await asyncio.sleep(LONGER)
        proxy.mend()
        await stream.go_on(2)
        await stream.wait_until_shown()
        await stream.wait_until_sharpened({"public": "detailed"})

        worker.check()
        said = said_since(worker, before)
        assert len(said) in (2, 4, 6, 8), said  # a loaded broker that comes back may fall silent again
        assert all(GONE in line for line in said[::2]), said
        assert all(BACK in line for line in said[1::2]), said
        assert worker.terminate(10) == 0
        (await stream.audit({"public": "detailed"})).assert_clean()


@pytest.mark.slow
async def test_all_who_wait_for_a_broker_that_froze_hear_that_it_timed_out(
    kafka: str, proxied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though somebody has taken the connection out meanwhile, to make another one."""
    proxy = proxied()
    monkeypatch.setattr(AIOKafkaConnection, "__init__", through(proxy))
    client = AIOKafkaClient(bootstrap_servers=kafka)
    await client.bootstrap()
    try:
        (node,) = client.cluster.brokers()
        assert await client.ready(node.nodeId)
        proxy.freeze()
        asked = [asyncio.ensure_future(client.send(node.nodeId, MetadataRequest([]))) for _ in range(3)]
        await asyncio.sleep(1)
        client._conns.clear()
        await asyncio.wait(asked)
        assert [type(one.exception()) for one in asked] == [RequestTimedOutError] * 3
        proxy.thaw()
        await asyncio.sleep(AGAIN_SECONDS)
        assert (await client.send(node.nodeId, MetadataRequest([]))).brokers
    finally:
        proxy.thaw()
        await client.close()


def through(proxy: Proxy) -> Callable[..., None]:
    """Makes connections that go to a proxy."""
    begin = AIOKafkaConnection.__init__
    host, _, port = proxy.address.rpartition(":")

    def elsewhere(self: Any, _host: str, _port: int, **options: Any) -> None:
        begin(self, host, int(port), **options)

    return elsewhere


@pytest.mark.slow
async def test_worker_whose_partition_was_taken_over_during_the_outage_starts_over_in_the_same_process(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, proxied: Any
) -> None:
    """It was silent for less than its session, so that it hears of it by being refused."""
    async with application(visits(*WITNESSED, *RICH), tmp_path, broker=kafka) as app:
        stream, proxy = Stream(app), proxied()
        worker = spawn(app, "state", "--terse", "--session-seconds", "30", proxy=proxy)
        worker.start()
        await stream.go_on(2)
        await stream.wait_until_shown()
        before, process = len(said_since(worker, 0)), worker.pid

        proxy.freeze()
        for partition in range(app.plan.partitions):
            place = TP(Topics.of(app.plan).changelog(COUNTS), partition)
            successor = await KafkaWriter.claim(Cluster.of(access.Broker(f"kafka://{kafka}")), place)
            await successor.write([(CLAIM, b"successor")])
            await successor.close()
        await stream.go_on(2)
        await asyncio.sleep(SILENT)
        proxy.thaw()
        await stream.go_on(2)
        await stream.wait_until_shown()

        worker.check()
        assert worker.pid == process
        assert any(
            "after the outage of the broker the worker starts over" in line for line in said_since(worker, before)
        )
        assert worker.terminate(10) == 0
        (await stream.audit()).assert_clean()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [35, 120])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_while_the_broker_is_gone_workers_wait_and_go_on_exactly_when_it_is_back(
    own: Broker, tmp_path: Path, visits: Callable[..., str], spawn: Any, how: str, workers: int, seconds: float
) -> None:
    """It goes in the middle of counting, releasing and sharpening."""
    text = visits(("views:\n", "views:" + TOP), *WITNESSED, *RICH)
    async with application(text, tmp_path, broker=own.address) as app:
        stream = Stream(app)
        crew = [spawn(app, f"w{number}", "--terse") for number in range(workers)]
        for worker in crew:
            worker.start()
        await stream.go_on(2)
        await stream.wait_until_shown()
        await stream.go_on(80)
        await stream.wait_until_shown(20)
        await app.grant("public", "standard")
        before = [len(said_since(worker, 0)) for worker in crew]

        (own.kill if how == "killed" else own.freeze)()
        await asyncio.sleep(seconds)
        await asyncio.to_thread(own.come_back)
        await stream.go_on(4)
        await stream.wait_until_shown()
        for audience, level in FINEST.items():
            await app.grant(audience, level)
        await stream.wait_until_sharpened(FINEST)

        for worker, lines in zip(crew, before, strict=True):
            worker.check()
            said = said_since(worker, lines)
            assert len(said) <= 12, said  # a broker that comes back may fall silent again, or refuse what it then knows
            assert GONE in said[0]
            assert any(BACK in line or RUNS in line for line in said[1:])
        assert [worker.terminate(10) for worker in crew] == [0] * workers
        (await stream.audit(FINEST)).assert_clean()
