"""Transactional producers of a source, such as Kafka Streams, Flink and an outbox, and what their records come to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition

from stream_dp.records.by_kind import CatalogueRelease
from stream_dp.records.codec import AnyRecord
from stream_dp.runtime.kafka.client import Client
from stream_dp.testing import Application, Event, SourceWriter
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.testing.scripts import Script
from stream_dp.windows.effects import Message
from stream_dp.windows.events import iso_ms


class Producer:
    """A producer that has a transactional id and writes to the source of an application."""

    def __init__(self, app: Application, kafka: str, name: str, **options: Any) -> None:
        """Set up the producer.

        Args:
            app: the application.
            kafka: bootstrap address of its broker.
            name: the rest of its transactional id.
            options: further arguments of `AIOKafkaProducer`.
        """
        self._writer = SourceWriter(app.plan)
        self._producer = AIOKafkaProducer(
            bootstrap_servers=kafka, transactional_id=f"{app.plan.id}-{name}", acks="all", **options
        )
        self.start = self._producer.start
        self.stop = self._producer.stop
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction

    async def send(self, script: Script) -> int:
        """Write a script within the open transaction, wait until the broker has it, and return the last offset."""
        return await self.send_messages(self._writer.records(script))

    async def send_messages(self, messages: Iterable[Message]) -> int:
        """Do the same with records of any topic."""
        sent = [
            await self._producer.send(one.topic, one.value, one.key, one.partition, headers=list(one.headers.items()))
            for one in messages
        ]
        await self._producer.flush()
        last = (await asyncio.gather(*sent))[-1]
        return int(last.offset)

    async def write(self, script: Script, *, commits: bool) -> None:
        """Write a script in a transaction of its own, which is committed or aborted."""
        await self.begin()
        await self.send(script)
        await (self.commit() if commits else self.abort())


@asynccontextmanager
async def producing(app: Application, kafka: str, name: str = "producer", **options: Any) -> AsyncIterator[Producer]:
    """A started `Producer`, stopped when the context is left."""
    producer = Producer(app, kafka, name, **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def decided(client: Client, place: TopicPartition) -> None:
    """Wait until no transaction is open in a partition: its end is written after the producer was told of it."""
    async with asyncio.timeout(WITHIN_SECONDS):
        while (await client.stable_ends([place]))[place] < (await client.ends([place]))[place]:
            await asyncio.sleep(0.05)


def crowd(item: str, users: Iterable[int], time_ms: int) -> list[Event]:
    """An event of an item for every user of some numbers."""
    return [Event(f"u{number}", item, time_ms) for number in users]


def shown(records: Iterable[AnyRecord]) -> dict[int, Mapping[str, int]]:
    """Return the counts that a view without noise has released, by start of the window, zeros left out."""
    found: dict[int, Mapping[str, int]] = {}
    for record in records:
        assert isinstance(record, CatalogueRelease)
        found[iso_ms(record.window.start)] = {row.item: row.count for row in record.items if row.count}
    return found
