"""The host that agents run on: it hands them chunks, keeps the pure parts of their partitions and does what steps ask.

An agent is an async function of a stream and the host; `stream_dp.agents.AGENTS` has them. The host turns steps into
acts: rows into changelog and RocksDB, messages into Kafka.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from faust.types import TP

from stream_dp.config.plan import ViewPlan
from stream_dp.control.grant_records import Order
from stream_dp.control.republications import Republication, read_republication
from stream_dp.errors import StateError
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.releases.outboxes import Outboxes
from stream_dp.runtime.clock import Clock, Tick, read_tick
from stream_dp.runtime.factory import Factory
from stream_dp.runtime.faust.app import App
from stream_dp.runtime.faust.coalescing import Chunk
from stream_dp.runtime.faust.delivery import Carrier
from stream_dp.runtime.faust.positions import Positions
from stream_dp.runtime.faust.published import read_published
from stream_dp.runtime.faust.republishing import Republisher
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import read_order
from stream_dp.runtime.kafka.ownership import Life
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics, counted_in, sources_of
from stream_dp.runtime.kafka.transactions import GaveWayError, PartitionLostError, Writer
from stream_dp.runtime.sources.schema_registry import SourceSchemas, needed
from stream_dp.windows.avro import headers
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import ROWS_LOADED, Increment, Message, Rows, Step
from stream_dp.windows.encoding import decode
from stream_dp.windows.events import Schemas
from stream_dp.windows.marker_rows import read_marker
from stream_dp.windows.merging import BucketMerger, Named
from stream_dp.windows.rekeying import Rekeyer, events_in, place_behind

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Of glibc alone."""


def give_back_freed() -> None:
    """Give freed memory back to the system, where the C library can; some milliseconds, in which others run."""
    if _malloc_trim is not None:
        _malloc_trim(0)


log = logging.getLogger("stream_dp.worker")

PROGRESS_SECONDS = 5.0


def tell_withheld(withheld: Mapping[str, Collection[str]]) -> None:
    """Say which audiences wait for a grant; which level is whose is configuration."""
    for audience, views in sorted(withheld.items()):
        log.info(
            "audience %s does not get all windows of %s from before it was added: at its level they cost more than was "
            "paid for them; `stream-dp grant FILE %s --level LEVEL` charges that and releases them",
            audience,
            ", ".join(sorted(views)),
            audience,
        )


def telling(load: Step, what: str) -> Step:
    """Say every few seconds how many rows a load has read back; at its end give back what reading has freed.

    A recovery and a load make and drop several times what they leave behind, and the process would keep all of it.
    """
    said, rows = time.monotonic(), 0
    for effect in load:
        if isinstance(effect, Increment) and effect.name == ROWS_LOADED:
            rows += effect.amount
            if time.monotonic() >= said + PROGRESS_SECONDS:
                said = time.monotonic()
                log.info("reading back %s: %d rows so far", what, rows)
        yield effect
    give_back_freed()


async def _nothing_newer() -> None:
    """Where no settings are posted."""


async def _nothing_deleted() -> None:
    """Where nobody deletes records."""


T = TypeVar("T")
Agent = Callable[[Any, "Host"], Any]


class Host(Carrier):
    """Host of the agents of one worker: the state that they share.

    Attributes:
        plan: the plan that holds.
        topics: the topics of its application.
        catch_up: adopts accepted settings that are newer than the ones in use (`Adoption`).
        tables: the application's tables by name.
        clock_ms: the clock of the worker.
        earliest_ms: the same, or its wall clock where that is behind: what is disclosed at a time waits for this.
        asked: by partition, when its owner last asked others for ticks.
        rekeyed: the sources that are not keyed by user, by topic.
        republisher: keeps the release topics complete.
    """

    def __init__(
        self,
        app: App,
        factory: Factory,
        tables: Mapping[str, DurableTable],
        *,
        client: Client,
        clock: Clock,
        schemas: Mapping[str, SourceSchemas] = MappingProxyType({}),
        accept_loss: bool = False,
    ) -> None:
        """Set up the host; parts are made and loaded when an agent first asks for them.

        Args:
            app: the application that sends and consumes.
            factory: makes the parts of the plan that holds.
            tables: the application's tables by name.
            client: a client of its broker, which reads what was published.
            clock: the clock of the worker.
            schemas: of the sources in Avro, by topic.
            accept_loss: go on where state was lost (`ReleaseEngine.load`).
        """
        self.plan = plan = factory.plan
        self.topics = Topics.of(plan)
        super().__init__(app, client, self.topics)
        self.tables = tables
        self.clock_ms = clock
        self.earliest_ms = clock.earliest_ms
        self.asked: dict[int, int] = {}
        self.catch_up: Callable[[], Awaitable[None]] = _nothing_newer
        self.check_whole: Callable[[], Awaitable[None]] = _nothing_deleted
        self._factory = factory
        self.republisher = Republisher(app, client, self, factory.owner)
        self._schemas = schemas
        self._accept_loss = accept_loss
        self._sources = counted_in(plan)
        self.rekeyed = {topic: source for topic, source in sources_of(plan).items() if source.key_field is not None}
        self.positions = Positions(plan, tables, client, app.outage)
        self.positions.go_by(factory.lives)
        app.find_positions = self.positions.find
        app.topic_made_again = self.positions.begin_again
        for table in tables.values():
            table.stored_beside = self.positions.rows
        self._read: dict[TP, int] = {}
        self._parts: dict[tuple[str, int], Rekeyer | PartitionCounter | BucketMerger] = {}
        """By topic and partition, what reads it; release engines are by themselves."""
        self._engines: dict[int, ReleaseEngine] = {}
        self._told: set[int] = set()
        """Partitions whose engine is being told the time."""
        self._engine_locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._times_forgotten = 0

    def adopt(self, factory: Factory) -> None:
        """Go by another plan: steps that are under way end by the former one, and nothing else of it is left.

        What waits to be published stays: it is stored, and leaves by its slots whatever holds.
        """
        self.plan = factory.plan
        self._factory = factory
        self.positions.go_by(factory.lives)
        for topic, schemas in self._schemas.items():
            if topic in self._sources:
                schemas.go_by(needed(self.plan, self._sources[topic]))
        self._forget_parts()

    def forget(self) -> None:
        """Load every part anew from the tables when it is next asked for: partitions may have changed hands.

        What parts keep on disk beside the tables goes with them.
        """
        self._forget_parts()
        self.positions.forget()
        self.release_topics.forget()
        self.letters.forget()
        self.outboxes.clear()

    def _forget_parts(self) -> None:
        self._times_forgotten += 1
        self._parts.clear()
        self._engines.clear()
        self.balances.forget()

    # -- what an agent reads ----------------------------------------------------------------------------------

    async def chunks(self, stream: Any) -> AsyncIterator[Chunk]:
        """The chunks of a stream; a chunk is acknowledged when the next one is asked for.

        An agent that fails on a chunk ends the process, and the chunk is read again: nothing is skipped.

        Raises:
            StateError: a chunk was lost between the consumer and the stream.
        """
        async for event in stream.noack().events():
            message = event.message
            tp, chunk = message.tp, message.value
            if chunk.before is not None and self._read.get(tp) != chunk.before:
                raise StateError(f"a chunk of {tp.topic} was fetched and did not arrive; starting again reads it again")
            if chunk.settings > self.plan.settings:
                await self.catch_up()
            fetched_in = self.positions.round
            yield chunk
            self._read[tp] = message.offset
            self.positions.finish(tp, message.offset, fetched_in)
            await stream.ack(event)

    def ticks(self, chunk: Chunk) -> list[Tick]:
        """Return the ticks of a chunk of the ticks topic; partitions that ask for ticks are noted."""
        ticks = [read_tick(record, self._app.clock_bound_ms) for record in chunk.records]
        for tick in ticks:
            self.asked |= dict.fromkeys(tick.asks, tick.now_ms)
        return ticks

    async def reader(self, chunk: Chunk) -> tuple[Rekeyer | PartitionCounter, int]:
        """Return the loaded rekeyer or counter of a chunk, with the schemas of its values, all by one plan.

        Returns:
            It, and where the log of the partition begins, if records in front of the chunk may be missing; else 0.

        Raises:
            GaveWayError: as `schemas`.
            ConfigError: as `schemas`.
        """
        while True:
            part, times = await self.part(chunk.topic, chunk.partition), self._times_forgotten
            schemas = await self.schemas(chunk, part)
            begins = await self._begins({chunk.topic: part}, chunk.partition, {chunk.topic: chunk.records[0].offset})
            if times == self._times_forgotten:
                part.learn(schemas)
                return part, begins.get(chunk.topic, 0)

    async def schemas(self, chunk: Chunk, part: Rekeyer | PartitionCounter) -> Schemas:
        """Return the schemas of a chunk's values: none has to be asked for later, when it is counted.

        A registry that does not answer is waited for; what stands behind the chunk waits with it. A stop does not: the
        chunk is left to the next start.

        Args:
            chunk: the chunk.
            part: counts it, or passes it on.

        Raises:
            GaveWayError: the partition is given away, or may have been; the chunk has to be read again.
            ConfigError: the registry does not let us in.
        """
        if (schemas := self._schemas.get(chunk.topic)) is None:
            return {}
        is_rekeyed = chunk.topic in self._sources and self._sources[chunk.topic].key_field is not None
        give_way = self._giving_way(chunk.partition, [chunk.topic], COUNTS, str(schemas.registry))
        if is_rekeyed:  # The worker that passed them on knew their schemas.
            return await schemas.wait_for_readers(headers(events_in(chunk.records)), give_way)
        fresh = chunk.records
        if fresh and fresh[0].offset < part.next_offset:
            fresh = [record for record in fresh if record.offset >= part.next_offset]
        age_s = (self.clock_ms() - chunk.now_ms) / 1000  # the tick was made when they were in the log
        return await schemas.wait_for_readers(part.schema_outcomes.headers(fresh), give_way, age_s=age_s)

    def _giving_way(
        self, partition: int, topics: Collection[str], name: str, what: str
    ) -> Callable[[], Awaitable[None]]:
        """Return the callback for waits: it lets a stop or a rebalance go first.

        Args:
            partition: whose chunks wait.
            topics: of these chunks.
            name: of the table of whoever reads them.
            what: is waited for.
        """
        table = self.tables[name]
        owner = table.owner(partition)

        async def give_way() -> None:
            if self._app.should_stop:
                for topic in topics:
                    self._app.consumer.leave(TP(topic, partition))
                await asyncio.Event().wait()  # until the agent is ended
            if self._app.rebalancing or not table.is_owner(partition, owner):
                raise GaveWayError(f"it was waiting for {what} when its partitions were given away")

        return give_way

    async def settled(self) -> None:
        """Adopt all accepted settings, and make sure that everything stored can be read.

        Raises:
            ConfigError: records of a changelog were deleted.
        """
        await self.check_whole()
        await self.catch_up()

    @property
    def waiting_for(self) -> str:
        """Reason why chunks wait, other than the broker, in words; empty if they do not."""
        return next((str(one.registry) for one in self._schemas.values() if one.registry.waits), "")

    @property
    def is_idle(self) -> bool:
        """True if no release engine has anything to do now, and every record has left and is settled.

        Settling may queue tombstones of windows that have expired.
        """
        now_ms = self.earliest_ms()
        due = [engine.due_ms for engine in self._engines.values()]
        return not (
            any(engine.waits for engine in self._engines.values())
            or any(time_ms is not None and time_ms <= now_ms for time_ms in due)
            or any(lock.locked() for lock in self._engine_locks.values())
            or any(outboxes.next_ms is not None or outboxes.published for outboxes in self.outboxes.values())
            or self.publishing.locked()
        )

    # -- the parts of a partition -----------------------------------------------------------------------------

    async def counters_of(self, partition: int) -> dict[str, PartitionCounter]:
        """The counters of a partition of every source, by the topic in which it is counted, loaded."""
        return {topic: await self.part(topic, partition) for topic in self._sources}

    async def part(self, topic: str, partition: int) -> Any:
        """The part that reads a partition of a source, of re-keyed events or of partials, loaded."""
        key, name, what = (topic, partition), COUNTS, f"the counts of partition {partition} of {topic}"
        if topic == self.topics.partials:
            name, what = MERGES, f"the partial counts of partition {partition}"
        table = self.tables[name]
        while key not in self._parts:
            await self.settled()
            part, times = self._factory.part(topic, partition), self._times_forgotten
            await self.carry_out(telling(part.load(table.rows(partition)), what), table, partition, threaded=True)
            if times == self._times_forgotten:
                self._parts[key] = part
        return self._parts[key]

    async def parts_at(
        self, partition: int, ends: Mapping[str, int]
    ) -> tuple[dict[str, Rekeyer | PartitionCounter], Mapping[str, int]]:
        """Whatever reads a partition of a source, or counts it, by topic; and where logs that lack records begin.

        Args:
            partition: the partition.
            ends: by topic, the offset before which everything that there was has been read.
        """
        while True:
            parts = {topic: await self.part(topic, partition) for topic in [*self.rekeyed, *self._sources]}
            times = self._times_forgotten
            begins = await self._begins(parts, partition, ends)
            if times == self._times_forgotten:
                return parts, begins

    async def _begins(
        self, parts: Mapping[str, Rekeyer | PartitionCounter], partition: int, ends: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Ask where sources begin of which not every offset before an end was counted."""
        sources = self._app.sources
        open_to = {topic: ends[topic] for topic in parts if topic in sources and topic in ends}
        places = [TP(topic, partition) for topic, end in open_to.items() if parts[topic].next_offset < end]
        if not places:
            return {}
        found = await self._app.outage.patiently(lambda: self._client.begins(places))
        return {topic: begin for (topic, _), begin in found.items()}

    def has_loaded(self, partition: int) -> bool:
        """Return True if every part of a partition has read what is stored, and found nothing wrong with it."""
        topics = [*self._sources, *self.rekeyed, self.topics.partials]
        return partition in self._engines and all((topic, partition) in self._parts for topic in topics)

    def counted_to(self) -> Mapping[TP, int]:
        """The offset behind what is counted, or re-keyed, of every partition of a topic that was loaded."""
        readers = ((TP(*place), part) for place, part in self._parts.items())
        return {place: part.next_offset for place, part in readers if not isinstance(part, BucketMerger)}

    async def delete_counted(self, partition: int) -> None:
        """Delete what is counted of the re-keyed events of a partition, by what stands in the table.

        Raises:
            OutageError: the broker does not answer.
            PartitionLostError: the partition has changed hands.
        """
        rows, behind = self.tables[COUNTS].rows(partition), {}
        for source in self.rekeyed.values():
            topic, marker = self.topics.rekeyed(source.name), read_marker(rows, source.name)
            life, offset = (0, 0) if marker is None else place_behind(marker.offset)
            if life == self._factory.life(topic):
                behind[TP(topic, partition)] = offset
        if behind:
            await self._client.delete_before(behind)

    async def merge(self, chunk: Chunk) -> None:
        """Take a chunk of partials."""
        table, partition = self.tables[MERGES], chunk.partition
        await self._know(chunk)
        merger = await self.part(chunk.topic, partition)
        await self.carry_out(merger.partials(chunk.values, table.rows(partition)), table, partition, threaded=True)

    async def take_buckets(self, chunk: Chunk) -> None:
        """Take a chunk of merged buckets, and release what waits."""
        await self._know(chunk)
        await self.engage(chunk.partition, ReleaseEngine.buckets, chunk.values)

    async def _know(self, chunk: Chunk) -> None:
        """Read the settings if something is about a view, or a definition of one, that they may have brought."""
        if any(decode(Named, value).view not in self.plan.views for value in chunk.values if value is not None):
            await self.settled()

    async def engage(self, partition: int, step: Callable[[ReleaseEngine, T], Step], message: T) -> None:
        """Run a step of a partition's release engine on a message, then release what waits, some windows at a time.

        One step at a time, whichever agent asks; between two steps another agent's message is taken. When a rebalance
        begins the rest is left to whoever loads the engine next: the message is stored, and the partition may be given
        away.
        """
        table = self.tables[RELEASES]
        async with self._engine_locks[partition]:
            while (engine := self._engines.get(partition)) is None:
                await self._load_engine(partition)
            await self.carry_out(step(engine, message), table, partition, threaded=True)
        await self._go_on(partition, engine)

    async def _go_on(self, partition: int, engine: ReleaseEngine) -> None:
        """Do what a partition's release engine has waiting."""
        while True:
            async with self._engine_locks[partition]:
                if self._app.rebalancing or self._engines.get(partition) is not engine or not engine.waits:
                    return
                await self.carry_out(engine.due(), self.tables[RELEASES], partition, threaded=True)

    def tell_time(self) -> None:
        """Let the release engines that wait for a time which has come go on; nothing is waited for."""
        now_ms = self.earliest_ms()
        for partition, engine in self._engines.items():
            due_ms = engine.due_ms
            if due_ms is not None and due_ms <= now_ms and partition not in self._told:
                self._told.add(partition)
                self._app.add_future(self._tell(partition, now_ms))
        self.republisher.write_missing()

    async def _tell(self, partition: int, now_ms: int) -> None:
        table, owner = self.tables[RELEASES], None
        try:
            owner = table.owner(partition)
            async with self._engine_locks[partition]:
                engine = self._engines.get(partition)
                if engine is None or not self.keeps(partition, owner):
                    return
                await self.carry_out(engine.tell(now_ms), table, partition, threaded=True)
            await self._go_on(partition, engine)
        except PartitionLostError:  # whoever loads it next goes on
            if owner is not None and self.keeps(partition, owner):
                raise
        finally:
            self._told.discard(partition)

    async def _load_engine(self, partition: int) -> None:
        """Load the release engine of a partition, unless it has to be made anew when that is over."""
        await self.settled()
        table, times = self.tables[RELEASES], self._times_forgotten
        engine = self._factory.engine(partition)
        await self.republisher.load(partition, engine.views)
        missing = self.release_topics.stopped
        published = await self._app.outage.patiently(
            lambda: read_published(
                self._client,
                self.topics.release,
                engine.views,
                whole=self._accept_loss,
                missing=missing,
            )
        )
        load = engine.load(
            table.rows(partition),
            published,
            accept_loss=self._accept_loss,
            now_ms=self.earliest_ms(),
            disclosed_ms=self.plan.disclosed_ms,
        )
        await self.carry_out(load, table, partition, threaded=True)
        if times == self._times_forgotten:
            tell_withheld(engine.withheld)
            self._engines[partition] = engine

    # -- release topics -------------------------------------------------------------------------------------------

    @property
    def claims(self) -> Mapping[str, Life]:
        """The topics that the application had claimed when the settings were adopted."""
        return self._factory.claims

    def has_engine(self, partition: int) -> bool:
        """Return True if the release engine of a partition is loaded."""
        return partition in self._engines

    async def load_engine(self, partition: int) -> None:
        """Load the release engine of a partition, unless it is loaded."""
        async with self._engine_locks[partition]:
            if partition not in self._engines:
                await self._load_engine(partition)

    def engine_views(self, partition: int) -> Collection[ViewPlan] | None:
        """Return the views of a partition's release engine; None if it is not loaded."""
        engine = self._engines.get(partition)
        return None if engine is None else engine.views

    async def leave_out(self, topics: Collection[str]) -> None:
        """Store that topics lack records, before any record is left out of them."""
        await self.republisher.leave_out(topics)

    async def give_up_expired(self, partition: int) -> None:
        """Delete the release topics of removed views whose windows have all passed their retention.

        Raises:
            BrokerError: the cluster does not answer, or refused.
        """
        engine = self._engines.get(partition)
        if engine is not None and (over := engine.over):
            await self.republisher.give_up_expired(partition, over)

    # -- between steps --------------------------------------------------------------------------------------------

    async def settle(self, partition: int, owner: Writer) -> None:
        """Empty a partition's outboxes of what was published, between two steps of its release engine."""
        await self._empty(partition, owner, lambda outboxes: outboxes.published, Outboxes.settle)

    async def erase_expired(self, partition: int) -> None:
        """Erase what expired since this was done last, between two steps of a partition's release engine."""
        for of, owner in [*self.outboxes]:
            if of == partition:
                await self._empty(partition, owner, lambda outboxes: outboxes.expired, Outboxes.erase)

    async def _empty(
        self, partition: int, owner: Writer, waits: Callable[[Outboxes], bool], step: Callable[[Outboxes, Rows], Step]
    ) -> None:
        table = self.tables[RELEASES]
        async with self._engine_locks[partition]:
            while self.keeps(partition, owner) and (outboxes := self.outboxes.get((partition, owner))):
                if not waits(outboxes):
                    return
                try:
                    await self.carry_out(step(outboxes, table.rows(partition)), table, partition)
                except PartitionLostError:  # whoever loads it next empties them
                    if self.keeps(partition, owner):
                        raise

    def keeps(self, partition: int, owner: Writer) -> bool:
        """Return True if this worker still is that owner of a partition of the releases, and no rebalance has begun."""
        return self.tables[RELEASES].is_owner(partition, owner) and not self._app.rebalancing

    def order(self, record: Any) -> Order | None:
        """The order that a record of the control topic gives, None if it gives none.

        Orders of a topic that was made anew come behind those of the former one.
        """
        return read_order(record, self.plan, self._factory.life(self.topics.control))

    def republication(self, record: Any) -> Republication | None:
        """Return the order to write a release topic again in a record of the control topic; None if it has none."""
        return read_republication(record.key, record.value)

    def fan_out(self, key: bytes, value: bytes) -> list[Message]:
        """A copy of a record for every partition of the orders topic."""
        return [Message(self.topics.orders, key, value, partition) for partition in range(self.plan.partitions)]
