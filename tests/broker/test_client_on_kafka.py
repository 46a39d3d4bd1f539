"""The client for programs on a real Kafka: parts, what is new, tombstones, a topic that is not there."""

# ruff: noqa: F811 - fixtures
from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from stream_dp.client import Expired, Releases
from stream_dp.config.access import Broker
from stream_dp.errors import BrokerError, OutageError, StateError
from stream_dp.records.codec import encode_parts
from stream_dp.runtime.kafka.client import connect
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support import transactional
from tests.support.published import refusal, release, visits, visits_file  # noqa: F401 - fixtures
from tests.support.visits import new_name

pytestmark = pytest.mark.broker
MANY = {f"page {number}": 900 - number for number in range(300)}


async def test_a_topic_of_kafka_is_read_whole_followed_and_never_made(
    kafka: str, release: Callable[..., Any], refusal: Callable[..., Any]
) -> None:
    address, name = kafka.removeprefix("kafka://"), new_name()
    reader = Releases(f"kafka://{address}", application=name, view="pages", audience="public", expired=True)
    topic = f"{name}.releases.pages.public"
    for _ in range(2):  # to ask for it does not make it
        with pytest.raises(BrokerError, match="has no topic"):
            _ = [record async for record in reader]
    admin, producer = AIOKafkaAdminClient(bootstrap_servers=address), AIOKafkaProducer(bootstrap_servers=address)
    await admin.start()
    await producer.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"cleanup.policy": "compact"})])

        async def publish(*records: Any) -> None:
            for record in records:
                for key, value in encode_parts(record, 3200):
                    await producer.send_and_wait(topic, value, key)

        large = release(MANY, revision=2, level=1)
        await publish(release(MANY), large, refusal(day=1))
        async with asyncio.timeout(2 * WITHIN_SECONDS), aclosing(reader.__aiter__()) as records:
            assert [await anext(records), await anext(records)] == [large, refusal(day=1)]
            await publish(large, release({"home": 4}, day=2))
            assert await anext(records) == release({"home": 4}, day=2)
            await producer.send_and_wait(topic, None, encode_parts(large, 3200)[0][0])
            assert await anext(records) == Expired("pages", "public", large.window)
            await producer.send_and_wait(topic, b"not stream-dp's", b"key")
            with pytest.raises(StateError, match="not a release record"):
                await anext(records)
    finally:
        await producer.stop()
        await admin.close()


async def test_undecided_releases_are_not_read(kafka: str, release: Callable[..., Any]) -> None:
    """A reader that does not follow ends where the log is decided, and behind the mark at its end."""
    address, name = kafka.removeprefix("kafka://"), new_name()
    topic = f"{name}.releases.pages.public"
    reader = Releases(f"kafka://{address}", application=name, view="pages", audience="public", follow=False)
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=name)
    await admin.start()
    await producer.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])

        async def send(record: Any) -> None:
            for key, value in encode_parts(record, 3200):
                await (await producer.send(topic, value, key))

        async def read() -> list[Any]:
            async with asyncio.timeout(WITHIN_SECONDS):
                return [record async for record in reader]

        async def decided() -> list[Any]:
            """Read when the transactions have ended, which is some time after the producer was told so."""
            async with connect(Broker(f"kafka://{address}")) as client:
                await transactional.decided(client, TopicPartition(topic, 0))
            return await read()

        kept, aborted, late = (release({"home": 4}, day=day) for day in range(3))
        async with producer.transaction():
            await send(kept)
        await producer.begin_transaction()
        await send(aborted)
        await producer.abort_transaction()
        assert await decided() == [kept]
        await producer.begin_transaction()
        await send(late)
        assert await read() == [kept]
        await producer.commit_transaction()
        assert await decided() == [kept, late]
    finally:
        await producer.stop()
        await admin.close()


async def test_a_port_where_no_kafka_is_is_an_outage() -> None:
    reader = Releases("kafka://127.0.0.1:9", application="a", view="b", audience="c", wait_seconds=0)
    with pytest.raises(OutageError, match=r"no Kafka answers at 127\.0\.0\.1:9"):
        _ = [record async for record in reader]
