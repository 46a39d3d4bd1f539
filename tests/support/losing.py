"""Losing a topic, and an application that would notice."""

from __future__ import annotations

from aiokafka.admin import AIOKafkaAdminClient
from faust.types import TP

from stream_dp.runtime.client import kafka_address
from stream_dp.testing import Application, Event, Watermark
from tests.support.views import only_view, start_of

MINUTE = 60_000


async def publish_minutes(app: Application, *minutes: int) -> None:
    """Visits of some minutes, one after another, and the word that they are over."""
    start = start_of(only_view(app))
    for minute in minutes:
        at = start + minute * MINUTE
        await app.publish([Event(f"u{number}", f"/{number % 5}", at + number) for number in range(300)])
    await app.publish([Watermark(start + (minutes[-1] + 2) * MINUTE)])


async def delete(app: Application, topic: str) -> None:
    """Delete a topic, as an operator does by mistake."""
    if app.log is not None:
        for partition in range(app.log.partitions.pop(topic)):
            app.log.records.pop(TP(topic, partition), None)
        return
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_address(app.plan.broker))
    await admin.start()
    try:
        await admin.delete_topics([topic])
    finally:
        await admin.close()

    async def gone() -> bool:
        return await app.client.partitions(topic) is None

    await app.eventually(gone)
