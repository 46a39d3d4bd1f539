"""The embedded log: Kafka's model in one process, for tests and for machines without Java.

The Faust consumer, conductor, agents, tables, recovery and commits that run on it are the real ones; only the broker
is missing. It serves the workers of one process and survives nothing.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from faust.assignor.client_assignment import ClientAssignment
from faust.transport import base
from faust.types import TP, ConsumerMessage, RecordMetadata

from stream_dp.errors import BrokerError
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.faust.coalescing import CoalescingConsumer
from stream_dp.runtime.kafka.client import NO_GROUP, NO_OFFSETS, Group, Outgoing, TopicState
from stream_dp.runtime.kafka.topics import TopicSpec
from stream_dp.runtime.kafka.transactions import Row, lost
from stream_dp.windows.effects import Message

SCHEME = "stream-dp-memory"
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
    records: dict[TP, list[LogRecord]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[TP, int] = field(default_factory=dict)
    claimed: dict[TP, int] = field(default_factory=lambda: defaultdict(int))
    """The epoch of a partition that was given out last."""
    written: dict[tuple[TP, TP], int] = field(default_factory=lambda: defaultdict(int))
    """By partition, and partition that its writer owned: the highest epoch that a record there bears."""

    ids: dict[str, str] = field(default_factory=dict)
    """By topic: another one after it was deleted and made again."""
    settings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """By topic; nothing is done about them."""
    begins: dict[TP, int] = field(default_factory=lambda: defaultdict(int))
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
            self.records.pop(TP(topic, partition), None)
            self.committed.pop(TP(topic, partition), None)
            self.begins.pop(TP(topic, partition), None)

    def delete_before(self, tp: TP, offset: int) -> None:
        """Delete the records of a partition before an offset."""
        if (count := min(offset, self.end(tp)) - self.begins[tp]) > 0:
            del self.records[tp][:count]
            self.begins[tp] += count

    def read(self, tp: TP, offset: int, most: int | None = None) -> list[LogRecord]:
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
        writer: tuple[TP, int] | None = None,
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
        tp = TP(topic, partition)
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

    def end(self, tp: TP) -> int:
        """The offset behind the last record of a partition."""
        return self.begins[tp] + len(self.records[tp])


class MemoryWriter:
    """The writer of one partition of an embedded log (`fence.Writer`), fenced as by a broker."""

    def __init__(self, log: MemoryLog, tp: TP) -> None:
        log.claimed[tp] += 1
        self._log = log
        self._tp = tp
        self._epoch = log.claimed[tp]

    @classmethod
    async def claim(cls, log: MemoryLog, tp: TP) -> MemoryWriter:
        """Become the next owner of a partition."""
        return cls(log, tp)

    async def write(self, rows: Sequence[Row]) -> int:
        """See `Writer`."""
        for key, value in rows:
            self._log.append(self._tp.topic, self._tp.partition, key, value, writer=(self._tp, self._epoch))
        return self._log.end(self._tp) - 1

    async def publish(self, messages: Sequence[Message], timestamp_ms: int | None = None) -> None:
        """See `Writer`."""
        for m in messages:
            self._log.append(
                m.topic,
                m.partition,
                m.key,
                m.value,
                timestamp_ms=timestamp_ms,
                headers=list(m.headers.items()),
                writer=(self._tp, self._epoch),
            )

    async def renew(self) -> None:
        """See `Writer`."""
        if self._epoch < self._log.claimed[self._tp]:
            raise lost(self._tp)

    async def close(self) -> None:
        """Nothing is held open."""


class _LogConsumer(base.Consumer):
    """Faust's consumer on the embedded log."""

    consumer_stopped_errors: ClassVar[tuple[type[BaseException], ...]] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._log: MemoryLog = self.app.memory_log
        self._assigned: set[TP] = set()
        self._positions: dict[TP, int] = {}
        self._max_poll = self.app.conf.broker_max_poll_records

    async def subscribe(self, topics: Iterable[str]) -> None:
        names = sorted(topics)
        self._assigned = {TP(topic, p) for topic in names for p in range(self._log.partitions.get(topic, 0))}
        actives: dict[str, list[int]] = defaultdict(list)
        for tp in sorted(self._assigned):
            self._positions.setdefault(tp, self._log.committed.get(tp, 0))
            actives[tp.topic].append(tp.partition)
        assignor = self.app.assignor
        assignor._assignment = ClientAssignment(actives=dict(actives), standbys={})
        assignor._active_tps, assignor._standby_tps = assignor._assignment.active_tps, set()
        assignor._topic_groups = dict.fromkeys(names, 0)
        self.app.consumer_generation_id = 1
        self.app.on_rebalance_start()
        self.add_future(self.on_partitions_assigned(set(self._assigned), 1))

    def assignment(self) -> set[TP]:
        return set(self._assigned)

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)

    async def seek_to_committed(self) -> Mapping[TP, int | None]:
        for tp in self._assigned:
            self._positions[tp] = self._log.committed.get(tp, 0)
        return {tp: self._log.committed.get(tp) for tp in self._assigned}

    async def _seek(self, partition: TP, offset: int) -> None:
        self._positions[partition] = offset

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        for tp, offset in partitions.items():
            self._positions[tp] = offset
            if offset > 0:
                self._read_offset[tp] = offset
            else:
                self._read_offset.pop(tp, None)

    async def seek_to_beginning(self, *partitions: TP) -> None:
        for tp in partitions:
            self._positions[tp] = 0

    async def position(self, tp: TP) -> int | None:
        return self._positions.get(tp)

    def fetched_to(self, tp: TP) -> int | None:
        return self._positions.get(tp)

    def highwater(self, tp: TP) -> int:
        return self._log.end(tp)

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        return {tp: self._log.end(tp) for tp in partitions}

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        return {tp: self._log.begins[tp] for tp in partitions}

    def topic_partitions(self, topic: str) -> int | None:
        return self._log.partitions.get(topic)

    def key_partition(self, topic: str, key: bytes | None, partition: int | None = None) -> int | None:
        return partition if partition is not None else _no_partitioner(topic, key)

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        self._log.committed.update(offsets)
        return True

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, Sequence[Any]]:
        out: dict[TP, list[LogRecord]] = {}
        for tp in active_partitions or ():
            at = self._positions[tp] = max(self._positions.get(tp, 0), self._log.begins[tp])
            if records := self._log.read(tp, at, self._max_poll):
                out[tp] = records
                self._positions[tp] = records[-1].offset + 1
        await asyncio.sleep(0 if out else min(timeout, 0.005))
        return out

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        return ConsumerMessage(
            tp.topic,
            tp.partition,
            record.offset,
            record.timestamp / 1000,
            0,
            record.headers,
            record.key,
            record.value,
            None,
            len(record.key or b""),
            len(record.value or b""),
            tp,
            generation_id=self.app.consumer_generation_id,
        )

    async def create_topic(self, topic: str, partitions: int, replication: int, **_: Any) -> None:
        self._log.create(topic, partitions)

    def close(self) -> None:
        """Nothing is held open."""


class MemoryConsumer(CoalescingConsumer, _LogConsumer):
    """A consumer of the embedded log that delivers chunks; the only member of its group."""


class Producer(base.Producer):
    """A Faust producer on the embedded log; a record is there as soon as it is sent."""

    @property
    def _log(self) -> MemoryLog:
        log: MemoryLog = self.app.memory_log
        return log

    async def create_topic(self, topic: str, partitions: int, replication: int, **_: Any) -> None:
        self._log.create(topic, partitions)

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: Any,
        *,
        transactional_id: str | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        sent: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        at = partition if partition is not None else _no_partitioner(topic, key)
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        at_ms = None if timestamp is None else round(timestamp * 1000)
        offset = self._log.append(topic, at, key, value, timestamp_ms=at_ms, headers=pairs)
        sent.set_result(RecordMetadata(topic, at, TP(topic, at), offset, timestamp, 0))
        return sent

    async def send_and_wait(self, *args: Any, **kwargs: Any) -> RecordMetadata:
        return await (await self.send(*args, **kwargs))

    async def flush(self) -> None:
        await self.buffer.flush()

    def key_partition(self, topic: str, key: bytes | None) -> TP:
        return TP(topic, _no_partitioner(topic, key))

    def supports_headers(self) -> bool:
        return True


def _no_partitioner(topic: str, key: bytes | None) -> int:
    raise BrokerError(f"a record for topic {topic} names no partition, and the embedded log chooses none")


class MemoryTransport(base.Transport):
    """Registered under the scheme of `SCHEME`."""

    Consumer: ClassVar[type[Any]] = MemoryConsumer
    Producer: ClassVar[type[Any]] = Producer
    default_port = 0
    driver_version = "embedded log 1"


class MemoryClient:
    """The client of an embedded log."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        """Those of the topics that there are."""
        log, copies = self._log, sys.maxsize  # none is ever lost
        return {
            name: TopicState(log.ids[name], log.partitions[name], copies) for name in topics if name in log.partitions
        }

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

    async def delete_before(self, places: Mapping[TP, int]) -> None:
        """Delete the records of partitions before an offset."""
        for tp, offset in places.items():
            self._log.delete_before(tp, offset)

    async def partitions(self, topic: str) -> int | None:
        """Return the number of a topic's partitions, None if there is no such topic."""
        return self._log.partitions.get(topic)

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

    async def publish(self, records: Iterable[Outgoing]) -> list[int | None]:
        """Append the records; returns their append times."""
        appended: list[int | None] = []
        for record in records:
            if record.key is None and record.value is None:
                raise BrokerError("a record needs a key or a value")  # as the Kafka client does
            now_ms = self._log.clock_ms()
            self._log.append(
                record.topic, record.partition, record.key, record.value, timestamp_ms=now_ms, headers=record.headers
            )
            appended.append(now_ms)
        return appended

    async def follow(
        self,
        topics: Sequence[str],
        *,
        until_end: bool = False,
        last: int | None = None,
        since: Mapping[TP, int] = NO_OFFSETS,
    ) -> AsyncIterator[Any]:
        """Every record of the topics from the beginning, the last ones or those from some offsets on, then new ones."""
        places = [TP(topic, p) for topic in topics for p in range(self._log.partitions.get(topic, 0))]
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

    async def ends(self, places: Collection[TP]) -> Mapping[TP, int]:
        """Where partitions end now."""
        return {tp: self._log.end(tp) for tp in places}

    async def begins(self, places: Collection[TP]) -> Mapping[TP, int]:
        """Where partitions begin now."""
        return {tp: self._log.begins[tp] for tp in places}
