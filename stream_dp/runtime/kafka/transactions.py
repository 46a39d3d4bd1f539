"""One writer per partition of a table: a rule that the log enforces, not the worker.

Every partition of every changelog has a name of its own at the broker, a transactional id, and whoever asks for that
name gets its next epoch. A batch bears the epoch of its writer; once a batch of a higher epoch stands in a partition,
its leader refuses every batch of a lower one, whenever and from wherever it comes. So a worker that is given a
partition *claims* it before its recovery asks where the changelog ends: it takes the next epoch and writes one row
under it. What stands before that row is all that former owners ever got in, recovery reads it, and nothing of theirs
comes after it.

The same producer publishes what was committed, under the same epoch, so that the rule holds in the release topics too.

A commit is cut into batches of at most `sizes.BATCH_BYTES`, each of which a broker appends whole or not at all, in
order, and none of them after one that failed: what a crash leaves is a prefix of the rows. It is no transaction. That
would fence in the same way, but takes more than twice as long (`tests/bench/fence.py`), leaves rows that readers have
to wait for, and ends in a marker that takes an offset. Transactions serve only to keep the name: a broker forgets one
that none has used for `transactional.id.expiration.ms` (7 days), and the next owner would begin under another, which
fences nobody. `Writer.renew` uses it; a former owner is refused that as well.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any, Protocol
from weakref import WeakSet

from aiokafka import AIOKafkaProducer, TopicPartition, codec
from aiokafka.errors import InvalidProducerEpoch, KafkaTimeoutError, ProducerFenced, UnknownTopicOrPartitionError
from aiokafka.producer.message_accumulator import BatchBuilder, MessageBatch
from aiokafka.record.default_records import DefaultRecordBatch

from stream_dp.errors import StreamDPError
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.outages import answering
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import BATCH_BYTES

RENEWAL_SECONDS = 3600.0
CLAIM = b"\x00claim"
"""Key of the row that a claim writes; nobody reads it."""

Row = tuple[bytes, bytes | None]


def claims_group(changelog: str) -> str:
    """The group without members in which `Writer.renew` commits for the partitions of a changelog."""
    return f"{changelog}-claims"


class PartitionLostError(StreamDPError):
    """A partition was given to another worker while this one wrote to it; its local copy must not be touched."""


class GaveWayError(PartitionLostError):
    """Partitions were asked back of a worker that waited for somebody else than the broker; it has to start over."""


class Writer(Protocol):
    """The right to write to one partition of a changelog, until someone else claims it."""

    async def write(self, rows: Sequence[Row]) -> int:
        """Append rows, in order, and return the offset of the last one; one call at a time.

        Where it fails a prefix of the rows may have been appended.

        Raises:
            PartitionLostError: the partition was claimed by another since; the row that it names and those behind it
                were not appended.
            KafkaError: the broker refused them for another reason; this writer appends nothing more.
        """

    async def publish(self, messages: Sequence[Message], timestamp_ms: int | None = None) -> None:
        """Append records to other topics, with that time or the present one, and wait for every acknowledgement.

        There, too, nothing of a former owner comes behind the first record of its successor: a repeated record does
        not stand behind a newer one that bears its key.

        Raises:
            PartitionLostError: a successor has published to one of the topics.
            KafkaError: the broker refused a record for another reason.
        """

    async def publish_at(self, messages: Sequence[tuple[int | None, Message]]) -> None:
        """Publish records like `publish`, each with its own time in ms; None: the time of publishing."""

    def give_up(self, topics: Collection[str]) -> None:
        """Drop unacknowledged records for deleted topics, or a new topic of the same name would get them."""

    async def renew(self) -> None:
        """Keep the broker from forgetting the name and its epoch.

        Raises:
            PartitionLostError: the partition was claimed by another since.
            OutageError: the broker does not answer.
        """

    async def close(self) -> None:
        """Give up the connection; what was written stays."""


Claim = Callable[[TopicPartition], Awaitable[Writer]]
"""Makes the caller the one writer of a partition; what others claimed before is void from its first row on."""


def lost(tp: TopicPartition) -> PartitionLostError:
    """The error of a writer that finds itself refused."""
    return PartitionLostError(
        f"partition {tp.partition} of {tp.topic} was taken over by another worker; this one ends here, and can be "
        "started again"
    )


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
        buffer = self._message_accumulator
        buffer._batch_ttl = math.inf
        self._dropped: WeakSet[MessageBatch] = WeakSet()
        """Batches in flight that are not sent again."""
        self._requeue: Callable[[MessageBatch], None] = buffer.reenqueue
        buffer.reenqueue = self._requeue_unless_dropped

    async def send(self, topic: str, *args: Any, **options: Any) -> asyncio.Future[Any]:
        """See `AIOKafkaProducer`; returns when there is room for the record."""
        return await self._taken(topic, partial(super().send, topic, *args, **options))

    async def send_batch(self, batch: Any, topic: str, **options: Any) -> asyncio.Future[Any]:
        """See `AIOKafkaProducer`; returns when there is room for the batch."""
        return await self._taken(topic, partial(super().send_batch, batch, topic, **options))

    def drop(self, topics: Collection[str]) -> None:
        """Drop the unacknowledged records for topics. No caller may still wait for them.

        aiokafka 0.14.0 keeps a batch for a deleted topic until a topic has its name again. If the broker refuses a
        batch in flight, it goes back into the queue.
        """
        buffer = self._message_accumulator
        for place in [place for place in buffer._batches if place.topic in topics]:
            del buffer._batches[place]
        self._dropped |= {batch for batch in buffer._pending_batches if batch.tp.topic in topics}

    def _requeue_unless_dropped(self, batch: MessageBatch) -> None:
        if batch in self._dropped:
            self._message_accumulator._pending_batches.discard(batch)
        else:
            self._requeue(batch)

    async def _taken(self, topic: str, send: Callable[[], Awaitable[asyncio.Future[Any]]]) -> asyncio.Future[Any]:
        self.client.add_topic(topic)
        while True:
            with suppress(*_NOT_TAKEN):
                return await send()


CLOSE_SECONDS = 5.0
_FENCED = (ProducerFenced, InvalidProducerEpoch)


class KafkaWriter:
    """The writer of one partition on Kafka (`Writer`): idempotent batches under the epoch of its claim.

    aiokafka lets a producer that has a transactional id write in transactions only. So one that lives as long as a
    request asks for the epoch, and an idempotent one, to which it is handed, writes.
    """

    def __init__(self, cluster: Cluster, tp: TopicPartition, producer: PatientProducer) -> None:
        self._cluster = cluster
        self._tp = TopicPartition(*tp)  # the client refuses Faust's own type of a partition
        self._producer = producer

    @classmethod
    async def claim(cls, cluster: Cluster, tp: TopicPartition) -> KafkaWriter:
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
        await self.publish_at([(timestamp_ms, message) for message in messages])

    async def publish_at(self, messages: Sequence[tuple[int | None, Message]]) -> None:
        """See `Writer`."""
        sent = [
            await self._producer.send(m.topic, m.value, m.key, m.partition, timestamp_ms, list(m.headers.items()))
            for timestamp_ms, m in messages
        ]
        await self._acknowledged(sent)

    def give_up(self, topics: Collection[str]) -> None:
        """See `Writer`."""
        self._producer.drop(topics)

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
        try:
            async with _started(owner, self._cluster), owner.transaction():
                await owner.send_offsets_to_transaction({self._tp: 0}, claims_group(self._tp.topic))
        except _FENCED as error:
            raise lost(self._tp) from error

    async def close(self) -> None:
        """See `Writer`. A broker that is gone does not hold it up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._producer.stop(), CLOSE_SECONDS)


_LZ4_LEVEL = 1
"""Rows take a tenth of the time of the client's level 9, in which the event loop waits, and a quarter more bytes."""


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


def _owner(cluster: Cluster, tp: TopicPartition) -> AIOKafkaProducer:
    return AIOKafkaProducer(**cluster.options, transactional_id=f"{tp.topic}-{tp.partition}")


_records: Any = import_module(DefaultRecordBatch.__module__)
_records.lz4_encode = partial(codec.lz4_encode, level=_LZ4_LEVEL)
