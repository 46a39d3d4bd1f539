"""A producer that waits for the broker does not wait for what never comes."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from stream_dp.config.access import Broker
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.topics import TopicSpec
from stream_dp.runtime.kafka.transactions import PatientProducer
from stream_dp.testing.application import WITHIN_SECONDS

pytestmark = pytest.mark.broker


async def test_record_for_a_topic_that_was_there_is_sent_though_another_topic_is_new(kafka: str) -> None:
    """It lingers while the producer is told about the new topic, and about no other if it asks for no other."""
    old, new = (f"{name}{uuid.uuid4().hex[:8]}" for name in ("old", "new"))
    async with connect(Broker(f"kafka://{kafka}")) as client:
        await client.create([TopicSpec(old, 1)])
        producer = PatientProducer(bootstrap_servers=kafka, linger_ms=1000)
        await producer.start()
        try:
            await client.create([TopicSpec(new, 1)])
            sent = [await producer.send(topic, b"value", partition=0) for topic in (old, new)]
            async with asyncio.timeout(WITHIN_SECONDS):
                assert [found.topic for found in await asyncio.gather(*sent)] == [old, new]
        finally:
            async with asyncio.timeout(WITHIN_SECONDS):
                await producer.stop()
