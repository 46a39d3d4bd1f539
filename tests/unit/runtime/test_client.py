"""What a cluster says of its logs: where they end, asked on a connection of its own, and what they take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, UnknownTopicOrPartitionError
from faust.types import TP

import stream_dp
from stream_dp.config.access import Broker
from stream_dp.errors import AccessError, BrokerError
from stream_dp.runtime.embedded import MemoryLog
from stream_dp.runtime.kafka import client, cluster
from stream_dp.runtime.kafka.client import KafkaClient
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.requests import OneVersion
from stream_dp.runtime.kafka.topics import TopicSpec

PLACES = [TP("visits", 0), TP("visits", 1)]


def answering(answer: Callable[[list[Any]], Awaitable[Any]], known: set[str]) -> KafkaClient:
    nobody: Any = None
    idle: Any = SimpleNamespace(end_offsets=answer, _client=SimpleNamespace(add_topic=known.add))
    return KafkaClient(Cluster.of(Broker("kafka://here:9092")), nobody, nobody, idle, nobody)


async def test_ends_are_those_that_the_leaders_name() -> None:
    async def answer(places: list[Any]) -> dict[Any, int]:
        assert known == {"visits"}, "the topics are known when they are asked about"
        return {place: 7 + place.partition for place in places}

    known = set[str]()
    assert await answering(answer, known).ends(PLACES) == {PLACES[0]: 7, PLACES[1]: 8}


@pytest.mark.parametrize("error", [KafkaTimeoutError, UnknownTopicOrPartitionError])
async def test_leaders_that_refuse_are_a_broker_that_does_not_answer(error: type[Exception]) -> None:
    async def answer(_: list[Any]) -> None:
        raise error

    with pytest.raises(BrokerError, match="here:9092 does not answer"):
        await answering(answer, set()).ends(PLACES)


async def test_leaders_that_say_nothing_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ENDS_SECONDS", 0.01)

    async def answer(_: list[Any]) -> None:
        await asyncio.Event().wait()

    with pytest.raises(BrokerError, match="no answer in time"):
        await answering(answer, set()).ends(PLACES)


async def test_the_embedded_log_takes_no_record_that_a_broker_would_refuse() -> None:
    log = MemoryLog()
    log.create("topic", 1)
    log.append("topic", 0, b"key", bytes((1 << 20) - 3))
    with pytest.raises(BrokerError, match="a record of 1048577 bytes for topic topic is larger than the 1048576 of a"):
        log.append("topic", 0, b"key", bytes((1 << 20) - 2))
    with pytest.raises(BrokerError, match="larger than"):
        log.append("topic", 0, None, bytes(1 << 20), headers=[("name", b"text")])
    assert log.end(TP("topic", 0)) == 1


async def test_settings_of_topics_are_read_and_a_cluster_that_does_not_tell_is_named() -> None:
    answers: list[tuple[int, str, int, str, list[tuple[str, str | None]]]] = [
        (0, "", 2, "first", [("max.message.bytes", "1000"), ("hidden", None)]),
        (0, "", 2, "second", [("max.message.bytes", "1048588")]),
    ]

    class Admin:
        async def describe_configs(self, _: list[Any]) -> list[Any]:
            return [SimpleNamespace(resources=answers)]

    none: Any = None
    admin: Any = Admin()
    asked = KafkaClient(Cluster.of(Broker("kafka://host:1")), none, admin, none, none)
    assert await asked.settings(["first", "second"]) == {
        "first": {"max.message.bytes": "1000"},
        "second": {"max.message.bytes": "1048588"},
    }
    answers[1] = (37, "not now", 2, "second", [])
    with pytest.raises(BrokerError, match="did not tell the settings of topic second: InvalidPartitionsError"):
        await asked.settings(["first", "second"])


class Brokers:
    """Two brokers, of which the second learns of a topic when it was asked for it a few times."""

    def __init__(self) -> None:
        self.there = {"first"}
        self.created = list[str]()
        self.asked = 0
        self._client = SimpleNamespace(cluster=SimpleNamespace(brokers=lambda: [Node(1), Node(2)]))

    async def _send_request(self, request: OneVersion, node: int | None = None) -> Any:
        asked = [name for _, _, name, _ in request.build(request._CLASSES[0]).topics]
        self.asked += node == 2
        late = self.created if node == 2 and self.asked < 4 else ()
        place: tuple[Any, ...] = (0, 0, 1, 5, [1], [1], [])
        known = {name: name in self.there and name not in late for name in asked}
        return SimpleNamespace(topics=[(0 if known[name] else 3, name, 1, 2, False, [place], 0) for name in asked])

    async def create_topics(self, topics: list[Any]) -> Any:
        self.created += [topic.name for topic in topics]
        self.there.update(self.created)
        return SimpleNamespace(topic_errors=[(topic.name, 0) for topic in topics])


class Node(NamedTuple):
    nodeId: int  # noqa: N815 (as aiokafka has it)


async def test_only_topics_that_are_missing_are_created_so_that_nobody_needs_the_right_to_who_has_them_all() -> None:
    """And every broker shows them then."""
    none: Any = None
    brokers: Any = Brokers()
    asked = KafkaClient(Cluster.of(Broker("kafka://host:1")), none, brokers, none, none)
    await asked.create([TopicSpec("first", 1), TopicSpec("second", 1)])
    assert brokers.created == ["second"]
    assert brokers.asked == 4
    await asked.create([TopicSpec("first", 1), TopicSpec("second", 1)])
    assert brokers.created == ["second"]


@pytest.mark.parametrize(
    ("code", "words"), [(29, "use topic accounts"), (30, "use group accounts"), (31, "write to any topic")]
)
async def test_account_that_lacks_a_right_is_told_which_and_is_not_taken_for_one_that_waits(
    code: int, words: str
) -> None:
    class Admin:
        async def _send_request(self, _: OneVersion) -> Any:
            return SimpleNamespace(topics=[(code, "accounts", 0, 0, False, [], 0)])

    none: Any = None
    admin: Any = Admin()
    asked = KafkaClient(Cluster.of(Broker("kafka://host:1")), none, admin, none, none)
    with pytest.raises(AccessError) as raised:
        await asked.partitions("accounts")
    remedy = "`stream-dp acl FILE` prints the rights that are needed"
    assert str(raised.value) == f"the cluster at host:1 does not let this account {words}; {remedy}"


async def test_a_reader_that_could_not_connect_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each attempt of a long outage leaves its connections behind."""
    stopped = []

    class Unreachable:
        def __init__(self, **_: Any) -> None:
            pass

        async def start(self) -> None:
            raise KafkaConnectionError

        async def stop(self) -> None:
            stopped.append(self)

    async def described(_: Any) -> dict[str, Any]:
        return {"visits": SimpleNamespace(partitions=1)}

    none: Any = None
    asked = KafkaClient(Cluster.of(Broker("kafka://host:1")), none, none, none, none)
    monkeypatch.setattr(asked, "describe", described)
    monkeypatch.setattr(cluster, "AIOKafkaConsumer", Unreachable)
    with pytest.raises(BrokerError):
        await anext(aiter(asked.follow(["visits"])))
    assert len(stopped) == 1


def test_every_consumer_reads_committed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are two makers of consumers; Faust's, for the worker, gets its level in `transport.py`."""
    package = Path(stream_dp.__file__).parent
    makers = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if "AIOKafkaConsumer(" in file.read_text(encoding="utf-8")
    }
    assert makers == {"runtime/kafka/cluster.py", "client/from_kafka.py"}
    monkeypatch.setattr(cluster, "AIOKafkaConsumer", lambda **options: options)
    options: Any = Cluster.of(Broker("kafka://host:1")).consumer()
    assert options["isolation_level"] == "read_committed"
