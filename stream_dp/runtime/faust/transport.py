"""The Kafka transport: Faust's own, with coalesced chunks, and writers that the broker fences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import InvalidProducerEpoch, ProducerFenced
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from stream_dp.runtime.faust.coalescing import CoalescingConsumer
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.outages import answering
from stream_dp.runtime.kafka.transactions import PatientProducer, Row, claims_group, lost
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import BATCH_BYTES

SCHEME = "stream-dp-kafka"
CLOSE_SECONDS = 5.0
FETCH_WAIT_MS = 100
"""Time that a broker holds back an answer while there is nothing new. On the same connection everything else waits
behind it: where partitions end and begin, which recovery asks for again and again."""
_FENCED = (ProducerFenced, InvalidProducerEpoch)


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer, which it lets wait for 1.5 s."""

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Look for a stuck partition. Faust fails on one without a position, which is looked up again at present.

        That is so when the records at the position were deleted before they were fetched.
        """
        subscription = self._ensure_consumer()._subscription.subscription
        assignment = subscription.assignment if subscription is not None else None
        state = assignment.state_value(tp) if assignment is not None else None
        if state is not None and state.has_valid_position:
            super().verify_event_path(now, tp)


class _Listener(driver.ConsumerRebalanceListener):
    """Tells Faust of an assignment, and the group all the while that this worker lives.

    aiokafka's heartbeats begin only behind all that is done about an assignment. Where that takes longer than a
    session, the group gives the worker up, hands out its partitions anew, and everybody begins again, for ever.
    """

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Begin with the heartbeats, then let Faust take the partitions over."""
        self._thread._ensure_consumer()._coordinator._start_heartbeat_task()
        await super().on_partitions_assigned(assigned)


class Consumer(CoalescingConsumer, driver.Consumer):
    """A Kafka consumer that delivers chunks."""

    RebalanceListener: ClassVar[type[Any]] = _Listener

    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def fetched_to(self, tp: TP) -> int | None:
        """The offset the next fetch starts at: behind every record and transaction marker read so far."""
        consumer = self._thread._consumer
        subscription = consumer._subscription.subscription if consumer is not None else None
        assignment = subscription.assignment if subscription is not None else None
        if assignment is None or tp not in assignment.tps:
            return None
        position: int | None = assignment.state_value(tp)._position
        return position

    async def rejoin(self) -> None:
        """Join the group again, so that its partitions are shared anew.

        Whoever shares them asks first which there are. A broker that has just begun to run knows none, and that answer
        would stand for minutes.
        """
        await self._thread.call_thread(self._rejoin)

    async def _rejoin(self) -> None:
        consumer = self._thread._consumer
        await consumer._client.force_metadata_update()
        consumer._coordinator.request_rejoin()


class Transport(driver.Transport):
    """Registered under the scheme of `SCHEME`."""

    Consumer: ClassVar[type[Any]] = Consumer


class KafkaWriter:
    """The writer of one partition on Kafka (`fence.Writer`): idempotent batches under the epoch of its claim.

    aiokafka lets a producer that has a transactional id write in transactions only. So one that lives as long as a
    request asks for the epoch, and an idempotent one, to which it is handed, writes.
    """

    def __init__(self, cluster: Cluster, tp: TP, producer: PatientProducer) -> None:
        self._cluster = cluster
        self._tp = tp
        self._producer = producer

    @classmethod
    async def claim(cls, cluster: Cluster, tp: TP) -> KafkaWriter:
        """Become the next owner of a partition.

        Args:
            cluster: how the broker is reached.
            tp: the partition of a changelog.

        Raises:
            OutageError: the broker does not answer.
            AccessError: the account may not claim it.
        """
        async with _started(_owner(cluster, tp), cluster) as owner:
            epoch = owner._txn_manager
        producer = PatientProducer(
            **cluster.options,
            max_batch_size=BATCH_BYTES,
            max_request_size=BATCH_BYTES,
            linger_ms=0,
        )
        producer._txn_manager.set_pid_and_epoch(epoch.producer_id, epoch.producer_epoch)
        await _start(producer, cluster)
        return cls(cluster, tp, producer)

    async def write(self, rows: Sequence[Row]) -> int:
        """See `Writer`."""
        sent, batch = [], _new_batch()
        for key, value in rows:
            if batch.append(timestamp=None, key=key, value=value) is None:
                sent.append(await self._send(batch))
                batch = _new_batch()
                batch.append(timestamp=None, key=key, value=value)
        sent.append(await self._send(batch))
        results = await self._acknowledged(sent)
        return int(results[-1].offset) + int(batch.record_count()) - 1

    async def publish(self, messages: Sequence[Message], timestamp_ms: int | None = None) -> None:
        """See `Writer`."""
        sent = [
            await self._producer.send(m.topic, m.value, m.key, m.partition, timestamp_ms, list(m.headers.items()))
            for m in messages
        ]
        await self._acknowledged(sent)

    async def _acknowledged(self, sent: Sequence[asyncio.Future[Any]]) -> list[Any]:
        await asyncio.wait(sent)  # all of them, so that no failure behind the first one goes unread
        try:
            return [one.result() for one in sent]
        except _FENCED as error:
            raise lost(self._tp) from error

    async def _send(self, batch: BatchBuilder) -> asyncio.Future[Any]:
        batch.close()
        sent: asyncio.Future[Any] = await self._producer.send_batch(batch, self._tp.topic, partition=self._tp.partition)
        return sent

    async def renew(self) -> None:
        """See `Writer`. The transaction writes to no changelog: the offset of a group without members."""
        epoch = self._producer._txn_manager
        owner = _owner(self._cluster, self._tp)
        owner._txn_manager.set_pid_and_epoch(epoch.producer_id, epoch.producer_epoch)
        at = TopicPartition(self._tp.topic, self._tp.partition)
        try:
            async with _started(owner, self._cluster), owner.transaction():
                await owner.send_offsets_to_transaction({at: 0}, claims_group(self._tp.topic))
        except _FENCED as error:
            raise lost(self._tp) from error

    async def close(self) -> None:
        """See `Writer`. A broker that is gone does not hold it up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._producer.stop(), CLOSE_SECONDS)


def _new_batch() -> BatchBuilder:
    return BatchBuilder(BATCH_BYTES, DefaultRecordBatch.CODEC_LZ4)


@asynccontextmanager
async def _started(producer: AIOKafkaProducer, cluster: Cluster) -> AsyncIterator[AIOKafkaProducer]:
    await _start(producer, cluster)
    try:
        yield producer
    finally:
        await producer.stop()


async def _start(producer: AIOKafkaProducer, cluster: Cluster) -> None:
    try:
        with answering(cluster.address):
            await producer.start()
    except BaseException:
        await producer.stop()
        raise


def _owner(cluster: Cluster, tp: TP) -> AIOKafkaProducer:
    return AIOKafkaProducer(**cluster.options, transactional_id=f"{tp.topic}-{tp.partition}")
