"""Losing a topic, and an application that would notice."""

from __future__ import annotations

from aiokafka.admin import AIOKafkaAdminClient

from stream_dp.testing import Application, Event, Watermark
from stream_dp.windows.effects import Message
from tests.support.processes import WorkerProcess
from tests.support.views import only_view, start_of

MINUTE = 60_000


async def publish_minutes(app: Application, *minutes: int) -> None:
    """Visits of some minutes, one after another, and the word that they are over."""
    start = start_of(only_view(app))
    for minute in minutes:
        at = start + minute * MINUTE
        await app.publish([Event(f"u{number}", f"/{number % 5}", at + number) for number in range(300)])
    await app.publish([Watermark(start + (minutes[-1] + 2) * MINUTE)])


async def two_released(app: Application, worker: WorkerProcess) -> dict[str, list[bytes]]:
    """Let a worker release two windows and stop; what was published."""
    view = only_view(app)
    worker.start()
    await publish_minutes(app, 0, 1)
    await app.wait_for_releases(view.name, 2)
    before = await app.published(view.name)
    assert worker.terminate() == 0
    return before


async def empty(app: Application, topic: str) -> None:
    """Lose the rows of a changelog that stays: each is deleted."""
    rows = {(one.partition, one.key): None async for one in app.client.follow([topic], until_end=True)}
    await app.client.publish([Message(topic, key, None, partition) for partition, key in rows])


async def delete(app: Application, topic: str) -> None:
    """Delete a topic, as an operator does by mistake."""
    if app.log is not None:
        app.log.delete(topic)
        return
    admin = AIOKafkaAdminClient(bootstrap_servers=app.plan.broker.address)
    await admin.start()
    try:
        await admin.delete_topics([topic])
    finally:
        await admin.close()

    async def gone() -> bool:
        return await app.client.partitions(topic) is None

    await app.eventually(gone)
