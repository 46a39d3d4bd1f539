"""A worker: the Faust application of a plan, and the host that its agents run on.

An agent is an async function of a stream and the host; `stream_dp.agents.AGENTS` has them. The host turns steps into
acts: rows into changelog and RocksDB, messages into Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from zlib import crc32

import faust
import mode
from faust.transport.drivers import TRANSPORTS
from faust.types import TP

from stream_dp.config.plan import Plan, SourcePlan
from stream_dp.errors import StateError
from stream_dp.exact.bits import Entropy, system_entropy
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.runtime import kafka, memory
from stream_dp.runtime.client import MEMORY, kafka_address
from stream_dp.runtime.coalescing import ChunkSchema
from stream_dp.runtime.factory import Routes, counted_view, dead_letter, event_format, partitioner
from stream_dp.runtime.keys import key_id
from stream_dp.runtime.lease import Lease
from stream_dp.runtime.metrics import Counters
from stream_dp.runtime.tables import DurableTable, PartitionRows
from stream_dp.runtime.topics import COUNTS, MERGES, RELEASES, Topics
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Commit, Erase, Increment, Message, Publish, Send, Step
from stream_dp.windows.events import EventDecoder
from stream_dp.windows.merging import BucketMerger

log = logging.getLogger("stream_dp.worker")

CHUNK_RECORDS = 10_000
BUFFERED_CHUNKS = 16
TICK_SECONDS = 1.0
SESSION_SECONDS = 60.0
PUBLISHING_BEAT_MS = 100
"""Releases leave at multiples of this; drawing noise takes a time that depends on the noise (lossless 5, no. 21)."""
HEARTBEAT = b"\x00heartbeat"
"""Key of the records that exist only so that a topic's open segment is closed in time (Topics.erasing)."""

TRANSPORTS.aliases[kafka.SCHEME] = "stream_dp.runtime.kafka:Transport"
TRANSPORTS.aliases[memory.SCHEME] = "stream_dp.runtime.memory:Transport"

T = TypeVar("T")
Agent = Callable[[Any, "Worker"], Any]


def wall_clock_ms() -> int:
    """The machine's clock, ms since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one fetch brought of one partition."""

    topic: str
    partition: int
    records: Sequence[Any]

    @property
    def values(self) -> list[bytes | None]:
        """The values of the records."""
        return [record.value for record in self.records]


class App(faust.App):
    """A Faust application whose consumer hands out chunks for the topics in `coalesced`."""

    sources: frozenset[str] = frozenset()
    coalesced: frozenset[str] = frozenset()
    memory_log: memory.MemoryLog | None = None
    lease: Lease


class Worker:
    """One worker of an application, on Kafka or on an embedded log."""

    def __init__(
        self,
        plan: Plan,
        starts: Mapping[str, int],
        agents: Mapping[str, Agent],
        *,
        prf_key: bytes,
        log: memory.MemoryLog | None = None,
        entropy: Entropy = system_entropy,
        clock_ms: Callable[[], int] = wall_clock_ms,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        """Build the application; `app.start()` runs it.

        Args:
            plan: the checked configuration.
            starts: start of each view's first window, from `prepare`.
            agents: the agents by name (`stream_dp.agents.AGENTS`).
            prf_key: the application's secret, from `load_key`.
            log: the embedded log, for `memory://`.
            entropy: where fresh noise comes from.
            clock_ms: the wall clock.
            tick_seconds: time between two ticks.
        """
        self.plan = plan
        self.topics = Topics.of(plan)
        self._routes = Routes(plan)
        self.counters = Counters()
        self.clock_ms = clock_ms
        self._starts = starts
        self._prf_key = prf_key
        self._entropy = entropy
        self._sources = {view.source.topic: view.source for view in plan.views.values()}
        self._counted = {view.name: counted_view(view, starts[view.name]) for view in plan.views.values()}
        self._counters: dict[tuple[str, int], PartitionCounter] = {}
        self._merging: set[int] = set()
        self._greeted: set[int] = set()
        self._read: dict[TP, int] = {}
        self._engines: dict[int, ReleaseEngine] = {}
        self._engine_locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.app = self._new_app(log)
        self.tables = {name: self._new_table(name) for name in (COUNTS, MERGES, RELEASES)}
        self._merger = BucketMerger(
            self._counted,
            dict.fromkeys(self._counted, plan.partitions),
            outlet=self._routes.merged,
            withdrawal=self._routes.withdraw_partial,
        )
        self._register(agents)
        self.app.timer(tick_seconds)(self._tick)
        self.app.timer(max(1.0, plan.erase_within_ms / 16_000))(self._beat)
        self.app.on_partitions_revoked.connect(self._forget)
        self.app.on_partitions_assigned.connect(self._forget)

    # -- the application --------------------------------------------------------------------------------------

    def _new_app(self, log: memory.MemoryLog | None) -> App:
        plan = self.plan
        if plan.broker == MEMORY:
            broker = f"{memory.SCHEME}://"
        else:
            addresses = kafka_address(plan.broker).split(",")
            broker = ";".join(f"{kafka.SCHEME}://{address}" for address in addresses)
        plan.data_dir.mkdir(parents=True, exist_ok=True)
        app = App(
            plan.name,
            broker=broker,
            store="rocksdb://",
            datadir=str(plan.data_dir),
            Table=DurableTable,
            topic_partitions=plan.partitions,
            topic_allow_declare=False,
            topic_disable_leader=True,
            agent_supervisor=mode.CrashingSupervisor,
            broker_max_poll_records=CHUNK_RECORDS,
            broker_commit_interval=0.5,
            broker_commit_every=100,
            broker_session_timeout=SESSION_SECONDS,
            consumer_auto_offset_reset="earliest",
            consumer_group_instance_id=instance_id(plan),
            consumer_max_fetch_size=4 << 20,
            stream_buffer_maxsize=BUFFERED_CHUNKS,
            producer_linger=0.0,
            producer_max_batch_size=1 << 18,
            producer_max_request_size=8 << 20,
            producer_compression_type="lz4" if plan.broker != MEMORY else None,
            table_standby_replicas=0,
            web_enabled=False,
            web_tables_enabled=False,
            web_router_enabled=False,
            worker_redirect_stdouts=False,
        )
        topics = self.topics
        internal = [topics.ticks, topics.partials, topics.merged, topics.control, topics.orders]
        app.sources = frozenset(self._sources)
        app.coalesced = app.sources.union(internal)
        app.memory_log = log
        app.lease = Lease(SESSION_SECONDS / 2)
        return app

    def _new_table(self, name: str) -> DurableTable:
        table: DurableTable = self.app.Table(
            name,
            key_type=bytes,
            value_type=bytes,
            partitions=self.plan.partitions,
            options={"block_cache_size": 64 << 20, "write_buffer_size": 16 << 20},
        )
        return table

    def _register(self, agents: Mapping[str, Agent]) -> None:
        topics = self.topics
        inputs = {
            "ingest": [*self._sources, topics.ticks],
            "merge": [topics.partials],
            "release": [topics.merged],
            "sharpen": [topics.orders],
            "control": [topics.control],
        }
        for name, names in inputs.items():
            body = agents[name]

            def agent(stream: Any, body: Agent = body) -> Any:
                return body(stream, self)

            self.app.agent(self.app.topic(*names, schema=ChunkSchema()), name=f"stream_dp.{name}")(agent)

    async def crashed(self) -> None:
        """Return when the worker has crashed."""
        await self.app._crashed.wait()

    def crash_reason(self) -> BaseException | None:
        """What the worker crashed of, None while it runs."""
        if not self.app.crashed:
            return None
        reason: BaseException | None = self.app.crash_reason
        return reason or StateError("an agent failed")

    # -- what agents use --------------------------------------------------------------------------------------

    async def chunks(self, stream: Any) -> AsyncIterator[Chunk]:
        """The chunks of a stream; a chunk is acknowledged when the next one is asked for.

        An agent that fails on a chunk ends the process, and the chunk is read again: nothing is skipped.

        Raises:
            StateError: a chunk was lost between the consumer and the stream.
        """
        async for event in stream.noack().events():
            message = event.message
            tp, before = message.tp, message.key
            if before is not None and self._read.get(tp) != before:
                raise StateError(f"a chunk of {tp.topic} was fetched and did not arrive; starting again reads it again")
            yield Chunk(message.topic, message.partition, message.value)
            self._read[tp] = message.offset
            await stream.ack(event)

    async def carry_out(self, step: Step, table: DurableTable, partition: int, *, threaded: bool = False) -> None:
        """Do what a step asks for, effect by effect.

        Args:
            step: the step.
            table: the agent's table.
            partition: the partition that the step is about.
            threaded: compute the step off the event loop, for steps that draw or read noise.
        """
        while True:
            effect = await asyncio.to_thread(next, step, None) if threaded else next(step, None)
            match effect:
                case None:
                    return
                case Commit(rows):
                    await table.commit(partition, rows)
                case Publish(messages):
                    await self.publish(messages)
                case Send(messages):
                    await self.send(messages)
                case Erase(first, last):
                    await asyncio.to_thread(table.erase, partition, first, last)
                case Increment():
                    self.counters.add(effect)

    async def send(self, messages: Sequence[Message], *, timestamp_ms: int | None = None) -> None:
        """Send messages and wait for every acknowledgement; without a timestamp they bear the time of sending."""
        self.app.lease.check()
        producer, seconds = self.app.producer, None if timestamp_ms is None else timestamp_ms / 1000
        sent = [
            await producer.send(m.topic, m.key, m.value, m.partition, seconds, list(m.headers.items()))
            for m in messages
        ]
        await asyncio.gather(*sent)

    async def publish(self, messages: Sequence[Message]) -> None:
        """Publish records at the next full beat of the clock, and with its time: how long drawing took is not seen."""
        now = self.clock_ms()
        beat = now - now % -PUBLISHING_BEAT_MS
        await asyncio.sleep((beat - now) / 1000)
        await self.send(messages, timestamp_ms=beat)

    async def counters_of(self, partition: int) -> dict[str, PartitionCounter]:
        """The counters of a partition of every source, by topic, loaded."""
        return {topic: await self.counter(topic, partition) for topic in self._sources}

    async def counter(self, topic: str, partition: int) -> PartitionCounter:
        """The counter of a source partition, loaded."""
        key = (topic, partition)
        if key not in self._counters:
            counter = self._new_counter(self._sources[topic], partition)
            table = self.tables[COUNTS]
            await self.carry_out(counter.load(table.rows(partition)), table, partition)
            self._counters[key] = counter
        return self._counters[key]

    async def merge(self, chunk: Chunk) -> None:
        """Take a chunk of partials."""
        table = self.tables[MERGES]
        if chunk.partition not in self._merging:
            await self.carry_out(self._merger.load(table.rows(chunk.partition)), table, chunk.partition)
            self._merging.add(chunk.partition)
        await self.carry_out(self._merger.partials(chunk.values, table.rows(chunk.partition)), table, chunk.partition)

    async def engage(self, partition: int, step: Callable[[ReleaseEngine, T, PartitionRows], Step], message: T) -> None:
        """Run a step of a partition's release engine on a message; one at a time, whichever agent asks."""
        table = self.tables[RELEASES]
        async with self._engine_locks[partition]:
            rows = table.rows(partition)
            engine = self._engines.get(partition)
            if engine is None:
                engine = self._new_engine(partition)
                await self.carry_out(engine.load(rows), table, partition, threaded=True)
                self._engines[partition] = engine
            await self.carry_out(step(engine, message, rows), table, partition, threaded=True)

    def end_of(self, topic: str, partition: int) -> int | None:
        """The end of a partition's log as far as it is known."""
        end: int | None = self.app.consumer.highwater(TP(topic, partition))
        return end

    def drained(self, topic: str, partition: int, counted_to: int) -> bool:
        """Whether the log was read to its end and all that was read is counted."""
        drained: bool = self.app.consumer.drained(TP(topic, partition), counted_to)
        return drained

    def fan_out(self, key: bytes, value: bytes) -> list[Message]:
        """A copy of a record for every partition of the orders topic."""
        return [Message(self.topics.orders, key, value, partition) for partition in range(self.plan.partitions)]

    # -- timers and membership --------------------------------------------------------------------------------

    def _owned(self) -> list[int]:
        ticks = self.topics.ticks
        return sorted(tp.partition for tp in self.app.consumer.assignment() if tp.topic == ticks)

    async def _tick(self) -> None:
        self.app.lease.renew()
        if not self.app.rebalancing:
            now = str(self.clock_ms()).encode()
            owned = self._owned()
            greeting = [
                p for p in owned if p not in self._greeted
            ]  # lets the agents load and finish what was cut short
            self._greeted.update(greeting)
            await self.send(
                [
                    *(Message(self.topics.ticks, None, now, partition) for partition in owned),
                    *(heartbeat for partition in greeting for heartbeat in self._heartbeats(partition)),
                ]
            )

    async def _beat(self) -> None:
        for partition in self._owned():
            if self.app.rebalancing:
                return
            beat = str(self.clock_ms()).encode()
            await self.send(self._heartbeats(partition))
            for name in (MERGES, RELEASES):
                await self.tables[name].beat(partition, HEARTBEAT, beat)

    def _heartbeats(self, partition: int) -> list[Message]:
        return [Message(topic, HEARTBEAT, None, partition) for topic in (self.topics.partials, self.topics.merged)]

    async def _forget(self, *_: Any, **__: Any) -> None:
        """After a rebalance everything is read anew from the tables."""
        self._greeted.clear()
        self._counters.clear()
        self._merging.clear()
        self._engines.clear()

    # -- assembly ---------------------------------------------------------------------------------------------

    def _new_counter(self, source: SourcePlan, partition: int) -> PartitionCounter:
        views = [view for view in self.plan.views.values() if view.source.topic == source.topic]
        return PartitionCounter(
            source.name,
            partition,
            [self._counted[view.name] for view in views],
            EventDecoder(event_format(source, views)),
            outlet=self._routes.partial,
            dead_letters=lambda p, offset, reason: dead_letter(source, p, offset, reason),
            partitioner=partitioner(source),
            configured=self.plan.views.keys(),
        )

    def _new_engine(self, partition: int) -> ReleaseEngine:
        views = [v for v in self.plan.views.values() if self.topics.ledger_partition(v.ledger.name) == partition]
        return ReleaseEngine(
            views,
            self._starts,
            prf_key=self._prf_key,
            key_id=key_id(self._prf_key),
            entropy=self._entropy,
            lists={},
            topic=self.topics.release,
            withdrawal=lambda bucket: self._routes.withdraw_merged(bucket, partition),
        )


def instance_id(plan: Plan) -> str:
    """A name of this worker that survives a restart: its machine and its data folder."""
    return f"{plan.name}-{socket.gethostname()}-{crc32(str(plan.data_dir.resolve()).encode()):08x}"
