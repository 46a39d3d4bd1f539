"""Windows that pass every limit of the broker by a factor: long items, many of them, well compressed, in one bucket.

A source with 12,000 items of 1,000 bytes in one partition: more than 8 MiB in a chunk of records, in what the partition
hands on of a bucket, and in the merged bucket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiokafka import AIOKafkaProducer

from stream_dp.runtime.kafka.topics import COUNTS, MERGES, Topics
from stream_dp.testing import Application, Event, SourceWriter, Watermark
from stream_dp.windows.encoding import MESSAGE_BYTES, decode
from stream_dp.windows.merging import MergedBucket
from tests.support.oracle import count_script
from tests.support.views import only_view, oracle_bytes, start_of

pytestmark = pytest.mark.broker

MINUTE = 60_000
USERS = 12_000
LARGE = 11 << 20
"""Bytes; a request to a broker has 8 MiB at most, and a batch 1 MiB where nobody has set anything."""


@pytest.fixture
def broker(kafka: str) -> str:
    """These need a real one."""
    return kafka


async def publish_zipped(app: Application, events: list[Event]) -> None:
    """In few batches, so that one fetch brings all there is."""
    producer = AIOKafkaProducer(
        bootstrap_servers=app.plan.broker.address, compression_type="gzip", linger_ms=50, max_batch_size=900_000
    )
    await producer.start()
    try:
        records = SourceWriter(app.plan).records(events)
        await asyncio.gather(*[await producer.send(r.topic, r.value, r.key, r.partition) for r in records])
    finally:
        await producer.stop()


async def test_counts_larger_than_any_message_are_counted_handed_on_and_released_exactly(
    launch: Callable[..., Awaitable[Application]],
) -> None:
    """The worker meets all of it at once; a few pages are visited by many, so that there is something to show."""
    app = await launch(("buckets: 4", "buckets: 1"), ("erase_within: 20s", "erase_within: 15m"))
    topics, view, place = Topics.of(app.plan), only_view(app), SourceWriter(app.plan).place
    start = start_of(view)
    users = [name for name in (f"u{n}" for n in range(4 * USERS)) if place(name) == 0][:USERS]
    events = [Event(user, f"/{n:06d}/".ljust(1000, "x"), start + n) for n, user in enumerate(users)]
    events += [Event(user, f"/{n % 3}", start + n) for n, user in enumerate(users[:900])]
    script: list[Event | Watermark] = [*events, Watermark(start + MINUTE + 10_000)]
    counts = count_script(view, start, script).between(view, start, start + MINUTE)
    assert sum(map(len, counts[start])) > LARGE

    await publish_zipped(app, events)
    await app.publish(script[-1:])
    await app.start()

    async def merged() -> list[MergedBucket] | None:
        found = {key: value for key, value in await app.read(topics.merged) if value is not None}
        parts = [decode(MergedBucket, value) for value in found.values()]
        return parts if parts and len(parts) == parts[0].parts else None

    parts = await app.eventually(merged)
    assert len(parts) > LARGE // MESSAGE_BYTES
    assert sum(len(part.counts) for part in parts) == len(counts[start])
    assert {item: count for part in parts for item, count in part.counts.items()} == counts[start]
    for topic in (topics.changelog(COUNTS), topics.partials, topics.changelog(MERGES), topics.merged):
        sizes = [len(key or b"") + len(value or b"") for key, value in await app.read(topic)]
        assert MESSAGE_BYTES // 2 < max(sizes) <= MESSAGE_BYTES, topic

    async def released() -> bool:
        return all((await app.releases(view.name)).values())

    await app.eventually(released)
    assert await app.published(view.name) == oracle_bytes(app, view, counts)
