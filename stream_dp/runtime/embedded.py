"""The embedded log: Kafka's model in one process, for tests and for machines without Java.

It serves the workers of one process and survives nothing. What runs on it is real; only the broker is missing.
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from aiokafka import TopicPartition

from stream_dp.errors import BrokerError
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import NO_GROUP, NO_OFFSETS, Client, Group, TopicState
from stream_dp.runtime.kafka.topics import TopicSpec
from stream_dp.runtime.kafka.transactions import Row, lost
from stream_dp.windows.effects import Message

_LOOK_AGAIN_SECONDS = 0.05
_WAIT_SECONDS = 10.0
"""Time that a client waits for a missing topic, as a broker's client does."""
MOST_BYTES = 1 << 20
"""Of a record, with its key and headers."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record of the embedded log, with the attributes of a consumed Kafka record."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp_type: int = 0


@dataclass
class MemoryLog:
    """Topics, their records and the committed offsets: what outlives a worker that is killed in a test.

    A topic has to be created before it is used, as on a broker that creates none by itself; and takes what topics take
    where nobody has set anything.
    """

    partitions: dict[str, int] = field(default_factory=dict)
    records: dict[TopicPartition, list[LogRecord]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    claimed: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    """The epoch of a partition that was given out last."""
    written: dict[tuple[TopicPartition, TopicPartition], int] = field(default_factory=lambda: defaultdict(int))
    """By partition, and partition that its writer owned: the highest epoch that a record there bears."""

    ids: dict[str, str] = field(default_factory=dict)
    """By topic: another one after it was deleted and made again."""
    settings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """By topic; nothing is done about them."""
    begins: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    """The offset of the first record of a partition that was not deleted."""
    clock_ms: Callable[[], int] = wall_clock_ms
    """The broker's clock: the time of records for which none is given."""

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        """Create a topic; an existing one stays as it is."""
        if topic not in self.partitions:
            self.partitions[topic] = partitions
            self.settings[topic] = settings
            self.ids[topic] = uuid.uuid4().hex

    def delete(self, topic: str) -> None:
        """Delete a topic, its records and what was committed of it."""
        self.settings.pop(topic, None)
        for partition in range(self.partitions.pop(topic)):
            self.records.pop(TopicPartition(topic, partition), None)
            self.committed.pop(TopicPartition(topic, partition), None)
            self.begins.pop(TopicPartition(topic, partition), None)

    def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """Delete the records of a partition before an offset."""
        if (count := min(offset, self.end(tp)) - self.begins[tp]) > 0:
            del self.records[tp][:count]
            self.begins[tp] += count

    def read(self, tp: TopicPartition, offset: int, most: int | None = None) -> list[LogRecord]:
        """The records of a partition from an offset, or from the first that there is, on."""
        first = max(0, offset - self.begins[tp])
        return self.records[tp][first : None if most is None else first + most]

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        writer: tuple[TopicPartition, int] | None = None,
    ) -> int:
        """Append a record and return its offset.

        Raises:
            BrokerError: there is no such topic or partition, or the record is too large for a broker.
            PartitionLostError: it bears the epoch of a writer, and there is a record of a higher one.
        """
        if not 0 <= partition < self.partitions.get(topic, 0):
            raise BrokerError(f"the embedded log has no partition {partition} of topic {topic}")
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(text) for name, text in headers)
        if size > MOST_BYTES:
            raise BrokerError(f"a record of {size} bytes for topic {topic} is larger than the {MOST_BYTES} of a broker")
        tp = TopicPartition(topic, partition)
        if writer is not None:
            owned, epoch = writer
            if epoch < self.written[tp, owned]:
                raise lost(owned)
            self.written[tp, owned] = epoch
        log = self.records[tp]
        now = self.clock_ms() if timestamp_ms is None else timestamp_ms
        offset = self.end(tp)
        log.append(LogRecord(topic, partition, offset, key, value, now, headers))
        return offset

    def take(
        self, m: Message, timestamp_ms: int | None = None, writer: tuple[TopicPartition, int] | None = None
    ) -> None:
        """Append a message; see `append`."""
        headers = list(m.headers.items())
        self.append(m.topic, m.partition, m.key, m.value, timestamp_ms=timestamp_ms, headers=headers, writer=writer)

    def end(self, tp: TopicPartition) -> int:
        """The offset behind the last record of a partition."""
        return self.begins[tp] + len(self.records[tp])


class MemoryWriter:
    """The writer of one partition of an embedded log (`transactions.Writer`), fenced as by a broker."""

    def __init__(self, log: MemoryLog, tp: TopicPartition) -> None:
        log.claimed[tp] += 1
        self._log = log
        self._tp = tp
        self._epoch = log.claimed[tp]

    @classmethod
    async def claim(cls, log: MemoryLog, tp: TopicPartition) -> MemoryWriter:
        """Become the next owner of a partition."""
        return cls(log, tp)

    async def write(self, rows: Sequence[Row]) -> int:
        """See `Writer`."""
        for key, value in rows:
            self._log.append(self._tp.topic, self._tp.partition, key, value, writer=(self._tp, self._epoch))
        return self._log.end(self._tp) - 1

    async def publish(self, messages: Sequence[Message], timestamp_ms: int | None = None) -> None:
        """See `Writer`."""
        await self.publish_at([(timestamp_ms, message) for message in messages])

    async def publish_at(self, messages: Sequence[tuple[int | None, Message]]) -> None:
        """See `Writer`. Like a broker's client, it waits for a missing topic."""
        for timestamp_ms, m in messages:
            while m.topic not in self._log.partitions:  # noqa: ASYNC110 - the log sends no notice
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            self._log.take(m, timestamp_ms, (self._tp, self._epoch))

    def give_up(self, topics: Collection[str]) -> None:
        """Do nothing: no record of the embedded log waits to be sent."""

    async def renew(self) -> None:
        """See `Writer`."""
        if self._epoch < self._log.claimed[self._tp]:
            raise lost(self._tp)

    async def close(self) -> None:
        """Nothing is held open."""


class MemoryClient(Client):
    """The client of an embedded log."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        """Those of the topics that there are."""
        log, copies = self._log, sys.maxsize  # none is ever lost
        return {
            name: TopicState(log.ids[name], log.partitions[name], copies) for name in topics if name in log.partitions
        }

    async def topics(self) -> Collection[str]:
        """The topics that there are."""
        return list(self._log.partitions)

    async def group(self, name: str) -> Group:
        """No group: the one worker of an embedded log has everything."""
        return NO_GROUP

    async def dismiss(self, group: str, instance: str) -> None:
        """Nothing: nobody is a member."""

    async def delete_group(self, name: str) -> None:
        """Forget what was committed."""
        self._log.committed.clear()

    async def delete(self, topics: Collection[str]) -> None:
        """Delete topics; those that there are not stay away."""
        for topic in self._log.partitions.keys() & {*topics}:
            self._log.delete(topic)

    async def delete_before(self, places: Mapping[TopicPartition, int]) -> None:
        """Delete the records of partitions before an offset."""
        for tp, offset in places.items():
            self._log.delete_before(tp, offset)

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        """Create the topics that do not exist yet."""
        for topic in topics:
            self._log.create(topic.name, topic.partitions, topic.config)

    async def entries(self) -> None:
        """No authorizer."""

    async def settings(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The settings that topics were given."""
        return {topic: self._log.settings.get(topic, {}) for topic in topics}

    async def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Give a topic settings; the log keeps them and does nothing about them."""
        self._log.settings[topic] = {**self._log.settings.get(topic, {}), **settings}

    async def publish(self, records: Iterable[Message]) -> list[int | None]:
        """Append the records; returns their append times."""
        appended: list[int | None] = []
        until = time.monotonic() + _WAIT_SECONDS
        for record in records:
            while record.topic not in self._log.partitions and time.monotonic() < until:  # noqa: ASYNC110 - as above
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            if record.key is None and record.value is None:
                raise BrokerError("a record needs a key or a value")  # as the Kafka client does
            now_ms = self._log.clock_ms()
            self._log.take(record, now_ms)
            appended.append(now_ms)
        return appended

    async def follow(
        self,
        topics: Sequence[str],
        *,
        until_end: bool = False,
        last: int | None = None,
        since: Mapping[TopicPartition, int] = NO_OFFSETS,
        foreign: bool = False,
    ) -> AsyncIterator[Any]:
        """Every record of the topics from the beginning, the last ones or those from some offsets on, then new ones."""
        places = [TopicPartition(topic, p) for topic in topics for p in range(self._log.partitions.get(topic, 0))]
        ends = {tp: self._log.end(tp) for tp in places}
        positions = {tp: since.get(tp, 0 if last is None else max(0, ends[tp] - last)) for tp in places}
        while True:
            for tp in places:
                while positions[tp] < (ends[tp] if until_end else self._log.end(tp)):
                    some = self._log.read(tp, positions[tp], 1)
                    positions[tp] = some[0].offset + 1 if some else ends[tp]
                    for record in some:
                        yield record
            if until_end:
                return
            await asyncio.sleep(0.01)

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where partitions end now."""
        return {tp: self._log.end(tp) for tp in places}

    async def stable_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where partitions end now; the embedded log has no transactions."""
        return await self.ends(places)

    async def begins(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where partitions begin now."""
        return {tp: self._log.begins[tp] for tp in places}
