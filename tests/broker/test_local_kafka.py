"""The local Kafka itself, on real processes: one broker of its own per test."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from stream_dp.errors import BrokerError, ConfigError
from stream_dp.runtime.localkafka import broker as localkafka
from stream_dp.runtime.localkafka import jars
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.windows.encoding import BROKER_BYTES

pytestmark = pytest.mark.broker


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if (problem := jars.local_kafka_problem()) is not None:
        pytest.skip(f"no local Kafka: {problem}")
    yield tmp_path / "kafka"
    localkafka.stop(tmp_path / "kafka")


def started(folder: Path) -> tuple[str, int]:
    broker = localkafka.start(folder, ready_within_s=WITHIN_SECONDS)
    assert broker.started
    assert broker.address is not None
    assert broker.pid is not None
    return broker.address, broker.pid


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + WITHIN_SECONDS
    while localkafka.status(folder).running and time.monotonic() < deadline:
        time.sleep(0.01)


async def write(address: str, topic: str, values: list[bytes]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        assert [error for _, error, _ in answer.topic_errors] == [0]
    finally:
        await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=address, acks="all")
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()


async def read(address: str, topic: str, count: int) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


def test_start_twice_gives_one_broker_and_down_is_idempotent(folder: Path) -> None:
    address, pid = started(folder)

    again = localkafka.start(folder)
    seen = localkafka.status(folder)

    assert (again.address, again.pid, again.started) == (address, pid, False)
    assert (seen.address, seen.pid, seen.running) == (address, pid, True)
    assert seen.data_dir.is_dir()
    assert "started" in seen.log_file.read_text()
    with pytest.raises(ConfigError, match="already runs"):
        localkafka.start(folder, port=1)

    assert localkafka.stop(folder)
    assert not localkafka.status(folder).running
    assert not localkafka.answers(address, within_s=1)
    assert not localkafka.stop(folder)


@pytest.mark.slow
async def test_killed_broker_is_not_running_and_comes_back_with_its_topics(folder: Path) -> None:
    address, pid = started(folder)
    await write(address, "kept", [b"one", b"two"])

    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(wait_until_gone, folder)
    assert not localkafka.status(folder).running
    assert not localkafka.stop(folder)

    back, new_pid = started(folder)
    assert back == address
    assert new_pid != pid
    assert await read(back, "kept", 2) == [b"one", b"two"]


@pytest.mark.skipif(localkafka.external_broker() is not None, reason="the settings of the local Kafka are tested")
async def test_settings_are_in_force_and_its_limits_are_those_that_brokers_come_with(kafka: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        asked = await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "1")])
    finally:
        await admin.close()
    settings = {entry[0]: entry[1] for answer in asked for entry in answer.resources[0][4]}

    assert settings["auto.create.topics.enable"] == "false"
    assert settings["log.cleaner.backoff.ms"] == "1000"
    assert settings["log.segment.delete.delay.ms"] == "1000"
    assert settings["message.max.bytes"] == str(BROKER_BYTES)


@pytest.mark.slow
def test_broker_without_memory_says_why_it_did_not_start(folder: Path) -> None:
    with pytest.raises(BrokerError, match="OutOfMemoryError"):
        localkafka.start(folder, heap="16m")
    assert not localkafka.status(folder).running
