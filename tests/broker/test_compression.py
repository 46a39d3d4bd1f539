"""What others read is not compressed: a client needs no library for it. What workers alone read is."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch

from stream_dp.runtime.kafka.record_batches import Answer, Batch
from stream_dp.runtime.kafka.topics import COUNTS, RELEASES, Topics
from stream_dp.testing import Application
from tests.support.reading import Launch, readable

pytestmark = pytest.mark.broker

NONE, LZ4 = DefaultRecordBatch.CODEC_NONE, DefaultRecordBatch.CODEC_LZ4


@pytest.fixture
def broker(kafka: str) -> str:
    """Only a real one keeps batches as they were sent."""
    return kafka


async def codecs(app: Application, topic: str, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """How the batches of a topic are compressed as the broker hands them out."""
    found = set()

    def batches(data: bytes) -> Any:
        raw = Answer(data)
        while isinstance(batch := raw.next_entry(), Batch):
            found.add(batch.codec)
        return Answer(data)

    with monkeypatch.context() as patched:
        patched.setattr(fetcher, "MemoryRecords", batches)
        assert await app.read(topic)
    return found


async def test_releases_and_dead_letters_stand_uncompressed_on_the_broker(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, releases, letters = await readable(launch)
    topics = Topics.of(app.plan)

    assert [await codecs(app, topic, monkeypatch) for topic in (releases, letters)] == [{NONE}, {NONE}]
    for table in (COUNTS, RELEASES):
        assert LZ4 in await codecs(app, topics.changelog(table), monkeypatch), "or this test sees no compression at all"
