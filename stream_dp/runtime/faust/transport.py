"""The transports, on Kafka and on the embedded log: Faust's own consumers, with coalesced chunks."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from aiokafka import AIOKafkaConsumer
from faust.assignor.client_assignment import ClientAssignment
from faust.transport import base
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from stream_dp.runtime.embedded import MemoryLog
from stream_dp.runtime.faust.coalescing import Chunk, CoalescingConsumer, message_of
from stream_dp.runtime.kafka.cluster import READ_COMMITTED
from stream_dp.runtime.kafka.unpacking import BARE
from stream_dp.windows.records import Records

KAFKA, MEMORY = "stream-dp-kafka", "stream-dp-memory"
"""Schemes of the addresses of the two transports."""
FETCH_WAIT_MS = 100
"""Time that a broker holds back an answer while there is nothing new. On the same connection everything else waits
behind it: where partitions end and begin, which recovery asks for again and again."""


def _assignment(consumer: AIOKafkaConsumer) -> Any:
    subscription = consumer._subscription.subscription
    return None if subscription is None else subscription.assignment


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer, changed in what it waits for and in which records it reads."""

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        consumer._key_deserializer = BARE
        # Faust 0.15.3 sets this only with `exactly_once`; without it, events of aborted transactions were counted.
        consumer._isolation_level = READ_COMMITTED
        return consumer

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Look for a stuck partition. Faust fails on one without a position, which is looked up again at present.

        That is so when the records at the position were deleted before they were fetched.
        """
        assignment = _assignment(self._ensure_consumer())
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

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        if isinstance(record, Chunk):
            return super()._to_message(tp, record)
        return message_of(self.app, tp, record, record.value, record.key, record.headers)

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """Return the high watermarks of changelogs, at which a recovery ends.

        Faust asks its consumer, which reads only committed records: a recovery would end at an open transaction of
        someone else in a changelog, and miss the rows after it. With the high watermarks, the recovery waits.
        """
        ends = await self.app.ends(partitions)
        return {TP(*place): end for place, end in ends.items()}

    def fetched_to(self, tp: TP) -> int | None:
        """The offset the next fetch starts at: behind every record and transaction marker read so far."""
        consumer = self._thread._consumer
        assignment = None if consumer is None else _assignment(consumer)
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
    """Registered under the scheme `KAFKA`."""

    Consumer: ClassVar[type[Any]] = Consumer
    Producer: ClassVar[type[Any]] = base.Producer  # nothing is sent through Faust


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
        return partition

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        self._log.committed.update(offsets)
        return True

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, Sequence[Any]]:
        out: dict[TP, Records] = {}
        for tp in active_partitions or ():
            at = self._positions[tp] = max(self._positions.get(tp, 0), self._log.begins[tp])
            if records := self._log.read(tp, at, self._max_poll):
                out[tp] = Records.of(records)
                self._positions[tp] = records[-1].offset + 1
        await asyncio.sleep(0 if out else min(timeout, 0.005))
        return out

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        return message_of(self.app, tp, record, record.value, record.key, record.headers)

    async def create_topic(self, topic: str, partitions: int, replication: int, **_: Any) -> None:
        self._log.create(topic, partitions)


class MemoryConsumer(CoalescingConsumer, _LogConsumer):
    """A consumer of the embedded log that delivers chunks; the only member of its group."""


class MemoryTransport(base.Transport):
    """Registered under the scheme `MEMORY`."""

    Consumer: ClassVar[type[Any]] = MemoryConsumer
    Producer: ClassVar[type[Any]] = base.Producer
    default_port = 0
    driver_version = "embedded log 1"
