"""What a worker has given to its producers, or asked while it recovers, is not given up while the broker is gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from stream_dp.runtime.kafka import outages as outage
from stream_dp.runtime.kafka.transactions import KafkaWriter, PatientProducer
from stream_dp.runtime.worker.assembly import Worker

PLACE = TopicPartition("visits", 0)


@pytest.mark.parametrize("error", [KafkaTimeoutError, UnknownTopicOrPartitionError])
@pytest.mark.parametrize("send", ["send", "send_batch"])
async def test_what_finds_no_room_or_no_topic_is_offered_again(
    monkeypatch: pytest.MonkeyPatch, send: str, error: type[Exception]
) -> None:
    offered = []

    async def taken(_self: AIOKafkaProducer, *args: Any, **_: Any) -> str:
        offered.append(args)
        if len(offered) < 3:
            raise error
        return "taken"

    monkeypatch.setattr(AIOKafkaProducer, send, taken)
    producer = PatientProducer(bootstrap_servers="127.0.0.1:1")
    assert await getattr(producer, send)("visits", b"1") == "taken"
    assert offered == [("visits", b"1")] * 3
    await producer.stop()


async def test_a_batch_whose_partition_has_no_leader_for_long_keeps_its_place() -> None:
    """The clock of a batch runs for a millisecond here, not for 40 s."""
    producer = PatientProducer(bootstrap_servers="127.0.0.1:1", request_timeout_ms=1)
    buffer = producer._message_accumulator
    sent = await buffer.add_message(PLACE, b"key", b"value", timeout=1)
    await asyncio.sleep(0.01)

    batches, unknown = buffer.drain_by_nodes(ignore_nodes=set())

    assert (batches, unknown, sent.done()) == ({}, True, False)
    await producer.stop()


async def test_record_in_flight_for_a_deleted_topic_is_not_sent_again() -> None:
    """The broker refuses it, and the client would keep it until someone creates a topic with this name."""
    producer = PatientProducer(bootstrap_servers="127.0.0.1:1")
    producer._txn_manager.set_pid_and_epoch(1, 0)
    buffer = producer._message_accumulator
    other = TopicPartition("other", 0)
    cluster: Any = None
    writer = KafkaWriter(cluster, TopicPartition("changelog", 0), producer)
    in_flight = []
    for place in (PLACE, other):
        await buffer.add_message(place, b"key", b"value", timeout=1)
        in_flight.append(buffer._pop_batch(place))
        await buffer.add_message(place, b"key", b"queued", timeout=1)

    writer.give_up({PLACE.topic})
    for batch in in_flight:
        buffer.reenqueue(batch)

    assert {place: len(batches) for place, batches in buffer._batches.items()} == {other: 2}
    assert not buffer._pending_batches
    buffer._batches.clear()
    await producer.stop()


async def test_recovery_asks_again_where_the_changelogs_end(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "RETRY_SECONDS", 0.001)
    answers: list[Any] = [{PLACE: 7}, KafkaTimeoutError(), TimeoutError()]

    async def highwaters(*_: Any) -> Any:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    found: Counter[Any] = Counter()
    asked: Any = SimpleNamespace(highwaters=highwaters)
    await worker.app.tables.recovery._build_highwaters(asked, {PLACE}, found, "active")
    assert found == {PLACE: 6}


@pytest.mark.parametrize("error", [TopicAuthorizationFailedError("visits"), IllegalStateError("not assigned")])
async def test_recovery_hands_on_what_is_no_silence(worker: Worker, error: Exception) -> None:
    """Faust takes a partition that is not assigned for another rebalance."""

    async def highwaters(*_: Any) -> Any:
        raise error

    refusing: Any = SimpleNamespace(highwaters=highwaters)
    with pytest.raises(type(error)):
        await worker.app.tables.recovery._build_highwaters(refusing, {PLACE}, Counter(), "active")


async def test_recovery_waits_longer_than_a_request_may_take(worker: Worker) -> None:
    """Faust's takes the time that is over for the order to stop, and never recovers the tables."""
    answered = asyncio.Event()

    async def answer() -> None:
        await asyncio.sleep(0.05)
        answered.set()

    await worker.app.tables.recovery._wait(answer(), timeout=0.01)
    assert answered.is_set()
