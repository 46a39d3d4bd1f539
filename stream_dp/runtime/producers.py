"""A producer that keeps what it was given until the broker has taken it, however long that takes."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError

_NOT_TAKEN = (KafkaTimeoutError, UnknownTopicOrPartitionError)
"""There was no room for it, or for a while nobody knew the topic: a broker that starts again knows none at first."""


class PatientProducer(AIOKafkaProducer):
    """An idempotent producer that waits for a broker that is gone.

    aiokafka gives up after the time of a request where a buffer is full or the leader of a partition is not known, and
    with a batch it gives up its place in the partition's sequence: whatever follows would be refused. It also asks only
    for topics that it did not know when it started, and forgets the others with the first answer: what had been taken
    for one of them then waits for ever. So every topic is asked for.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(enable_idempotence=True, **options)
        self._message_accumulator._batch_ttl = math.inf

    async def send(self, topic: str, *args: Any, **options: Any) -> asyncio.Future[Any]:
        """See `AIOKafkaProducer`; returns when there is room for the record."""
        self.client.add_topic(topic)
        while True:
            try:
                sent: asyncio.Future[Any] = await super().send(topic, *args, **options)
            except _NOT_TAKEN:
                continue
            return sent

    async def send_batch(self, batch: Any, topic: str, **options: Any) -> asyncio.Future[Any]:
        """See `AIOKafkaProducer`; returns when there is room for the batch."""
        self.client.add_topic(topic)
        while True:
            try:
                sent: asyncio.Future[Any] = await super().send_batch(batch, topic, **options)
            except _NOT_TAKEN:
                continue
            return sent
