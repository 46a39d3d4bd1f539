"""Records that cannot be read: those of own topics end the reader with an error, those of sources are counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from aiokafka import TopicPartition

from stream_dp.client.from_kafka import KafkaSource
from stream_dp.client.sources import Patience
from stream_dp.errors import BrokerError, ConfigError, StateError
from stream_dp.runtime.kafka import record_batches
from stream_dp.runtime.kafka.client import Client, TopicState
from stream_dp.runtime.kafka.list_topics import ListTopic
from stream_dp.runtime.kafka.record_batches import DAMAGED_BATCH, make_refusal
from stream_dp.runtime.kafka.unreadable import check_all_readable
from stream_dp.windows.events import UNREADABLE_REASONS
from stream_dp.windows.records import OneRecord, Records

PLACE = TopicPartition("app-control", 0)
GOOD = OneRecord(6, 1000, b"k", b"v")
TOMBSTONE = OneRecord(8, 1000, b"k", None, [("h", b"")])
BAD = make_refusal(7, DAMAGED_BATCH)


@pytest.mark.parametrize(
    "records", [[GOOD, BAD, TOMBSTONE], Records.of([GOOD, BAD, TOMBSTONE])], ids=["list", "columns"]
)
def test_damaged_own_topic_is_named(records: Any) -> None:
    with pytest.raises(StateError, match="topic app-control, partition 0, offset 7 cannot be read: damaged_batch"):
        check_all_readable({PLACE: records})
    check_all_readable({PLACE: records}, foreign=["app-control"])
    check_all_readable({PLACE: [GOOD, TOMBSTONE]})


class _Consumed(NamedTuple):
    """A record as the client hands it on."""

    topic: str
    partition: int
    offset: int
    headers: Sequence[tuple[str, bytes]] = ()
    key: bytes | None = None
    value: bytes | None = None


class _Client:
    """A broker with one list topic."""

    async def stable_ends(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(places, 8)

    async def follow(self, topics: Sequence[str], **options: Any) -> Any:
        assert options["foreign"]
        yield _Consumed(topics[0], 0, GOOD.offset, (), GOOD.key, GOOD.value)
        yield _Consumed(topics[0], 0, BAD.offset, BAD.headers)


async def test_damaged_list_topic_is_named() -> None:
    client: Client = _Client()  # type: ignore[assignment]
    state = TopicState("1", 1)
    with pytest.raises(ConfigError, match="topic countries, partition 0, offset 7 cannot be read: damaged_batch"):
        await ListTopic("countries").read_on(client, state)


def test_reasons_are_those_of_the_reader() -> None:
    names = ("TOO_LARGE", "BAD_HEADER", "DAMAGED_RECORD", "DAMAGED_BATCH", "UNSUPPORTED")
    assert {getattr(record_batches, name) for name in names} == UNREADABLE_REASONS


async def test_release_client_names_a_topic_that_cannot_be_read() -> None:
    """Programs read releases with aiokafka as it is, which lets through whatever its parsers raise."""

    class Consumer:
        async def getmany(self, *_places: TopicPartition, **_options: Any) -> Any:
            return b"\xff".decode()

    source = KafkaSource("broker:9092", "app.releases", "view", "public", {}, Patience(None))
    consumer: Any = Consumer()
    with pytest.raises(BrokerError, match="holds a record that cannot be read"):
        await source._fetched(consumer, PLACE)
