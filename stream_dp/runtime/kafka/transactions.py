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
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError

from stream_dp.errors import StreamDPError
from stream_dp.windows.effects import Message

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
        self._message_accumulator._batch_ttl = math.inf

    async def send(self, topic: str, *args: Any, **options: Any) -> asyncio.Future[Any]:
        """See `AIOKafkaProducer`; returns when there is room for the record."""
        self.client.add_topic(topic)
        while True:
            try:
                sent: asyncio.Future[Any] = await super().send(topic, *args, **options)
            except _NOT_TAKEN:
                continue
            return sent

    async def send_batch(self, batch: Any, topic: str, **options: Any) -> asyncio.Future[Any]:
        """See `AIOKafkaProducer`; returns when there is room for the batch."""
        self.client.add_topic(topic)
        while True:
            try:
                sent: asyncio.Future[Any] = await super().send_batch(batch, topic, **options)
            except _NOT_TAKEN:
                continue
            return sent
