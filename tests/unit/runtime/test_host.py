"""The host of the agents: effects are carried out one behind the other, chunks are not lost, parts are loaded once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Set
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import rocksdict
from faust.types import TP, tuples

from stream_dp.errors import BrokerError, StateError
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.losses import Published
from stream_dp.runtime.clock import Clock
from stream_dp.runtime.embedded import LogRecord, MemoryClient, MemoryWriter
from stream_dp.runtime.factory import Factory, Settled
from stream_dp.runtime.faust.coalescing import Chunk
from stream_dp.runtime.faust.host import Host
from stream_dp.runtime.faust.tables import PartitionRows
from stream_dp.runtime.kafka.topics import COUNTS, RELEASES, Topics
from stream_dp.runtime.kafka.transactions import GaveWayError, PartitionLostError
from stream_dp.runtime.sources.schema_registry import SourceSchemas
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.testing import keyed_entropy
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import ROWS_LOADED, Commit, Erase, Increment, Long, Message, Send, Step
from stream_dp.windows.encoding import encode
from stream_dp.windows.merging import BucketMerger, MergedBucket, Partial
from stream_dp.windows.schema_outcomes import SchemaOutcomes
from tests.support.chosen import ordinarily

CACHE = rocksdict.Cache(0)


@dataclass
class Stream:
    """A Faust stream as far as a host looks at it, and the offsets that were acknowledged."""

    messages: list[Any]
    acknowledged: list[int] = field(default_factory=list)

    def noack(self) -> Stream:
        return self

    async def events(self) -> AsyncIterator[Any]:
        for message in self.messages:
            yield SimpleNamespace(message=message)

    async def ack(self, event: Any) -> None:
        self.acknowledged.append(event.message.offset)


def message(offset: int, before: int | None, *values: bytes) -> Any:
    """A chunk as the coalescing consumer makes it."""
    first = offset - len(values) + 1
    records = [LogRecord("visits", 1, first + at, None, value, 0) for at, value in enumerate(values)]
    batch = Chunk("visits", 1, records, 7, before)
    return SimpleNamespace(tp=TP("visits", 1), topic="visits", partition=1, offset=offset, value=batch)


def at_time(worker: Worker, now_ms: int) -> Host:
    """A host on a worker's application whose clock stands."""
    plan = worker.plan
    factory = Factory(
        Settled(plan), keys=KeyRing.of(bytes(32)), entropy=keyed_entropy(b"host"), cache=rocksdict.Cache(0)
    )
    assert worker.app.memory_log is not None
    client = MemoryClient(worker.app.memory_log)
    return Host(worker.app, factory, worker.tables, client=client, clock=Clock(lambda: now_ms, None))


def orders(worker: Worker, partition: int) -> list[LogRecord]:
    assert worker.app.memory_log is not None
    return worker.app.memory_log.records[TP(worker.host.topics.orders, partition)]


# -- chunks -----------------------------------------------------------------------------------------------


async def test_chunk_is_acknowledged_when_the_next_one_is_asked_for(worker: Worker) -> None:
    stream = Stream([message(1, None, b"a", b"b"), message(2, 1, b"c")])
    seen: list[tuple[Chunk, list[int]]] = []

    async for chunk in worker.host.chunks(stream):
        seen.append((chunk, list(stream.acknowledged)))

    assert [(chunk.topic, chunk.partition, chunk.values, chunk.now_ms) for chunk, _ in seen] == [
        ("visits", 1, [b"a", b"b"], 7),
        ("visits", 1, [b"c"], 7),
    ]
    assert [acknowledged for _, acknowledged in seen] == [[], [1]]
    assert stream.acknowledged == [1, 2]


READER: Any = SimpleNamespace(next_offset=0, schema_outcomes=SchemaOutcomes("visits", is_keyed=True))
"""Counter of a chunk that handles schemas only."""


class Unanswered(SourceSchemas):
    """Schemas of which a registry says nothing until it is let."""

    registry: Any = "the schema registry at http://r"

    def __init__(self) -> None:
        """It asks nobody."""
        self.answers = asyncio.Event()

    async def find_readers(self, wanted: Set[bytes], *, age_s: float = 0.0) -> dict[bytes, Any]:
        await self.answers.wait()
        return {b"known": None}


@pytest.mark.parametrize("asked_back", ordinarily(1, ["rebalance", "owner"]))
async def test_chunk_that_waits_for_a_schema_gives_way_when_its_partition_is_asked_back(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, asked_back: str
) -> None:
    """A rebalance waits for what agents have at hand; a registry may be away for hours."""
    host, schemas = worker.host, Unanswered()
    monkeypatch.setattr(host, "_schemas", {"visits": schemas})
    chunk = Chunk("visits", 1, [], 7)
    asking = asyncio.create_task(host.schemas(chunk, READER))
    await asyncio.sleep(0.5)
    assert not asking.done()
    match asked_back:
        case "rebalance":
            monkeypatch.setattr(worker.app, "rebalancing", True)
        case "owner":
            monkeypatch.setattr(host.tables[COUNTS], "_owned", {})
    with pytest.raises(GaveWayError, match="it was waiting for the schema registry at http://r when"):
        await asking
    monkeypatch.undo()
    monkeypatch.setattr(host, "_schemas", {"visits": schemas})
    schemas.answers.set()
    monkeypatch.setattr(worker.app, "rebalancing", True)
    assert await host.schemas(chunk, READER) == {b"known": None}, "what is known is no reason to give way"
    assert await host.schemas(Chunk("pages", 1, [], 7), READER) == {}


async def test_stop_leaves_a_chunk_that_waits_for_a_schema_and_no_other(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the registry says then comes too late: the parts of a worker that stops are closed."""
    schemas, consumer = Unanswered(), worker.app.consumer
    monkeypatch.setattr(worker.host, "_schemas", {"visits": schemas})
    places = TP("visits", 1), TP("pages", 1)
    at_hand, other = (tuples.Message(*place, 0, 0, 0, None, None, None, None, tp=place) for place in places)
    for one in (at_hand, other):
        consumer.track_message(one)
    asking = asyncio.create_task(worker.host.schemas(Chunk("visits", 1, [], 7), READER))
    monkeypatch.setattr(type(worker.app), "should_stop", True)
    async with asyncio.timeout(WITHIN_SECONDS):
        while at_hand in consumer.unacked:
            await asyncio.sleep(0.01)
    assert set(consumer.unacked) == {other}
    schemas.answers.set()
    await asyncio.sleep(0.3)
    assert not asking.done()
    asking.cancel()


async def test_agent_that_fails_leaves_its_chunk_unacknowledged(worker: Worker) -> None:
    stream = Stream([message(1, None, b"a")])

    async def failing() -> None:
        async for _ in worker.host.chunks(stream):
            raise RuntimeError("poison")

    with pytest.raises(RuntimeError, match="poison"):
        await failing()
    assert stream.acknowledged == []


@pytest.mark.parametrize("before", [1, 4], ids=["none was read", "another was read"])
async def test_chunk_whose_predecessor_did_not_arrive_ends_the_agent(worker: Worker, before: int) -> None:
    first = [message(1, None, b"a")] if before == 4 else []
    stream = Stream([*first, message(5, before, b"f")])
    seen: list[Chunk] = []

    async def reading() -> None:
        async for chunk in worker.host.chunks(stream):
            seen.append(chunk)

    with pytest.raises(StateError, match="a chunk of visits was fetched and did not arrive"):
        await reading()
    assert len(seen) == len(first) == len(stream.acknowledged)


# -- effects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threaded", [False, True])
async def test_effect_is_done_before_the_step_goes_on(worker: Worker, threaded: bool) -> None:
    host, table = worker.host, worker.tables[RELEASES]

    def step() -> Step:
        yield Commit([(b"a", b"1"), (b"c", b"2")])
        assert table.rows(1).get(b"a") == b"1"
        yield Send([Message(host.topics.orders, b"sent", b"x", 2)])
        assert [record.key for record in orders(worker, 2)] == [b"sent"]
        yield Send([Message(host.topics.orders, b"again", b"y", 2, {"h": b"1"})])
        assert [record.key for record in orders(worker, 2)] == [b"sent", b"again"]
        assert list(orders(worker, 2)[1].headers) == [("h", b"1")]
        yield Increment("events_consumed", 3)
        yield Commit([(b"a", None)])
        assert worker.counters.total("events_consumed") == 3
        yield Erase(b"a", b"b")
        finished.append(True)

    finished: list[bool] = []
    await host.carry_out(step(), table, 1, threaded=threaded)

    assert finished == [True]
    assert dict(table.rows(1).scan(b"c", b"d")) == {b"c": b"2"}


async def test_step_goes_on_off_the_event_loop_once_it_says_that_it_takes_long(worker: Worker) -> None:
    on_loop: list[bool] = []

    def step() -> Step:
        on_loop.append(threading.current_thread() is threading.main_thread())
        yield Increment("events_consumed", 1)
        yield Long()
        on_loop.append(threading.current_thread() is threading.main_thread())
        yield Commit([(b"a", b"1")])
        on_loop.append(threading.current_thread() is threading.main_thread())

    await worker.host.carry_out(step(), worker.tables[RELEASES], 1)
    assert on_loop == [True, False, False]


async def test_effect_that_fails_ends_the_step_and_every_later_one_of_the_partition(worker: Worker) -> None:
    table = worker.tables[COUNTS]

    def step() -> Step:
        yield Commit([(b"a", b"1")])
        yield Send([Message(worker.host.topics.orders, None, b"x", 99)])
        yield Commit([(b"b", b"2")])

    with pytest.raises(BrokerError, match="no partition 99 of topic"):
        await worker.host.carry_out(step(), table, 0)

    def another(key: bytes) -> Step:
        yield Commit([(key, b"3")])

    with pytest.raises(BrokerError, match="no partition 99"):  # its part in memory may be ahead of the table
        await worker.host.carry_out(another(b"c"), table, 0)
    await worker.host.carry_out(another(b"d"), table, 1)
    assert dict(table.rows(0).scan(b"a", b"z")) == {b"a": b"1"}
    assert dict(table.rows(1).scan(b"a", b"z")) == {b"d": b"3"}


async def test_a_step_that_is_cancelled_leaves_its_partition_to_whoever_goes_on(worker: Worker) -> None:
    """As Faust cancels agents in a rebalance, which may already have given the partition back."""
    begun, table = asyncio.Event(), worker.tables[COUNTS]

    def step() -> Step:
        yield Send([Message(worker.host.topics.orders, b"a", b"1", 0)])

    async def waiting(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(worker.host.carry_out(step(), table, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker.host, "send", waiting)
        await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await worker.host.carry_out(step(), table, 0)
    assert [record.key for record in orders(worker, 0)] == [b"a"]


async def test_a_step_that_a_successor_refused_ends_the_worker_whoever_asked_for_it(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds that it is the owner still, by all that it knows: no rebalance will give it anything else to do."""
    table, log = worker.tables[RELEASES], worker.app.memory_log
    assert log is not None
    successor = await MemoryWriter.claim(log, TP(table.changelog_topic.get_topic_name(), 0))
    await successor.write([(b"a", b"2")])

    def step(*_: object) -> Step:
        yield Commit([(b"a", b"1")])

    monkeypatch.setitem(worker.host._engines, 0, SimpleNamespace(tell=step, waits=False, withheld={}, views=()))
    with pytest.raises(PartitionLostError):
        await worker.host._tell(0, 0)


async def test_order_goes_to_every_partition(worker: Worker) -> None:
    copies = worker.host.fan_out(b"public", b"order")

    topic = Topics.of(worker.plan).orders
    assert copies == [Message(topic, b"public", b"order", partition) for partition in range(worker.plan.partitions)]


# -- the parts of a partition -----------------------------------------------------------------------------


async def test_counter_is_loaded_once_and_anew_after_a_rebalance(worker: Worker) -> None:
    host = worker.host
    (topic,) = {view.source.topic for view in worker.plan.views.values()}

    first = await host.part(topic, 0)
    assert await host.part(topic, 0) is first
    assert await host.counters_of(0) == {topic: first}
    assert await host.part(topic, 1) is not first
    await worker.app.on_partitions_revoked.send(set())
    assert await host.part(topic, 0) is not first


async def test_what_takes_long_is_read_back_off_the_event_loop_and_says_how_far_it_has_come(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows, not what stands in them: a load of minutes keeps no heartbeat waiting and nobody guessing."""
    caplog.set_level(logging.INFO, "stream_dp.worker")
    monkeypatch.setattr("stream_dp.runtime.faust.host.PROGRESS_SECONDS", 0)
    threads: set[int] = set()
    asked = ContextVar("asked", default=False)  # the agents of the worker load parts of their own, any time

    def load(_part: object, _rows: PartitionRows) -> Step:
        if asked.get():
            for _ in range(3):
                threads.add(threading.get_ident())
                yield Increment(ROWS_LOADED, 7)

    monkeypatch.setattr(PartitionCounter, "load", load)
    monkeypatch.setattr(BucketMerger, "load", load)
    (topic,) = {view.source.topic for view in worker.plan.views.values()}
    host = at_time(worker, 0)
    caplog.clear()
    asked.set(True)
    await host.part(topic, 1)
    await host.merge(Chunk(host.topics.partials, 2, [], 0))

    assert threads
    assert threading.get_ident() not in threads
    assert host.counters.total(ROWS_LOADED) == 42
    for what in (f"the counts of partition 1 of {topic}", "the partial counts of partition 2"):
        said = [message for message in caplog.messages if message.startswith(f"reading back {what}:")]
        assert said == [f"reading back {what}: {rows} rows so far" for rows in (7, 14, 21)]


async def test_engine_runs_one_step_at_a_time_whoever_asks(worker: Worker) -> None:
    """Release and sharpen share a partition's engine; a step between two effects of another would see half of it."""
    seen: list[tuple[str, ReleaseEngine]] = []

    def step(engine: ReleaseEngine, name: str) -> Step:
        seen.append((f"{name} begins", engine))
        yield Commit([(b"a", name.encode())])
        assert worker.tables[RELEASES].rows(0).get(b"a") == name.encode()
        yield Increment("events_consumed", 1)
        seen.append((f"{name} ends", engine))

    await asyncio.gather(*(worker.host.engage(0, step, name) for name in ("one", "two", "three")))

    names = [name for name, _ in seen]
    assert sorted(names) == sorted(f"{name} {part}" for name in ("one", "two", "three") for part in ("begins", "ends"))
    assert all(ends == begins.replace("begins", "ends") for begins, ends in zip(names[::2], names[1::2], strict=True))
    assert len({id(engine) for _, engine in seen}) == 1


# -- membership -------------------------------------------------------------------------------------------


def given_away(worker: Worker) -> None:
    """The group is rebalanced, and this worker has the table no more."""
    worker.tables[COUNTS]._owned.clear()


async def test_a_step_that_outlived_its_ownership_does_nothing_more(worker: Worker) -> None:
    host = at_time(worker, 1000)
    topic = worker.host.topics.orders
    done: list[str] = []

    def step() -> Step:
        yield Send([Message(topic, b"a", b"1", 0)])
        done.append("first")
        given_away(worker)
        yield Send([Message(topic, b"b", b"1", 0)])
        done.append("second")

    with pytest.raises(PartitionLostError, match=r"partition 0 of t\w+-counts-changelog was taken over"):
        await host.carry_out(step(), worker.tables[COUNTS], 0)
    assert done == ["first"]
    assert [record.key for record in orders(worker, 0)] == [b"a"]


class Waiting:
    """A release engine that has windows to release, three steps long."""

    views = ()

    def __init__(self, app: Any, rebalances_after: int) -> None:
        self._app = app
        self._rebalances_after = rebalances_after
        self.steps = 0
        self.withheld: dict[str, set[str]] = {}

    @property
    def waits(self) -> bool:
        return self.steps < 3

    def load(self, _rows: PartitionRows, _published: Published, *, accept_loss: bool, **_: Any) -> Step:
        assert not accept_loss
        return iter(())

    def buckets(self, _values: object) -> Step:
        return iter(())

    def due(self) -> Step:
        self.steps += 1
        self._app.rebalancing = self.steps == self._rebalances_after
        return iter(())


@pytest.mark.parametrize(("rebalances_after", "steps"), [(0, 3), (1, 1), (2, 2)])
async def test_what_waits_is_released_step_by_step_until_a_rebalance_begins(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, rebalances_after: int, steps: int
) -> None:
    engine = Waiting(worker.app, rebalances_after)
    monkeypatch.setattr(Factory, "engine", lambda *_: engine)
    monkeypatch.setattr(worker.tables[RELEASES], "rows", lambda _: None)
    await at_time(worker, 0).engage(0, lambda one, values: one.buckets(values), [])
    assert engine.steps == steps


class Alternating(Waiting):
    """As above; it notes when a second message is taken."""

    def __init__(self, app: Any) -> None:
        super().__init__(app, 0)
        self.taken_after: list[int] = []

    def buckets(self, _values: object) -> Step:
        self.taken_after.append(self.steps)
        return iter(())


async def test_a_message_is_taken_between_two_steps_of_what_another_one_set_off(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows that close while a long order is carried out are released in between."""
    engine = Alternating(worker.app)
    monkeypatch.setattr(Factory, "engine", lambda *_: engine)
    monkeypatch.setattr(worker.tables[RELEASES], "rows", lambda _: None)
    host = at_time(worker, 0)
    await asyncio.gather(*(host.engage(0, lambda one, values: one.buckets(values), []) for _ in range(2)))
    assert engine.taken_after == [0, 0]
    assert engine.steps == 3


async def test_what_waits_is_left_to_the_engine_that_is_loaded_after_a_rebalance(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebalance may begin and end during one step."""
    engine = Waiting(worker.app, 0)
    monkeypatch.setattr(Factory, "engine", lambda *_: engine)
    monkeypatch.setattr(worker.tables[RELEASES], "rows", lambda _: None)
    host = at_time(worker, 0)
    due = engine.due

    def rebalanced() -> Step:
        host.forget()
        return due()

    monkeypatch.setattr(engine, "due", rebalanced)
    await host.engage(0, lambda one, values: one.buckets(values), [])
    assert engine.steps == 1


# -- settings ---------------------------------------------------------------------------------------------


class Reading:
    """Counts how often the settings are read."""

    def __init__(self, host: Host) -> None:
        self.times = 0
        host.catch_up = self.read

    async def read(self) -> None:
        self.times += 1


async def test_what_stands_before_a_tick_is_counted_by_the_settings_that_its_maker_knew(worker: Worker) -> None:
    newer = message(1, None, b"a")
    newer.value = replace(newer.value, settings=worker.plan.settings + 1)
    known = message(2, 1, b"b")
    known.value = replace(known.value, settings=worker.plan.settings)
    reading, seen = Reading(worker.host), []

    async for _ in worker.host.chunks(Stream([newer, known])):
        seen.append(reading.times)

    assert seen == [1, 1]


@pytest.mark.parametrize("later", [False, True])
async def test_counts_of_a_definition_that_is_not_known_make_the_settings_be_read_before_they_are_dropped(
    worker: Worker, later: bool
) -> None:
    host = at_time(worker, 0)
    (name,) = worker.plan.views
    view = f"{name}@2" if later else name
    partial = encode(Partial(view, 0, 0, 0, 0, 0, 1, {}))
    bucket = encode(MergedBucket(view, 0, 0, 0, 0, 1, {}))
    await host.merge(Chunk(host.topics.partials, 0, [LogRecord("partials", 0, 0, None, None, 0)], 0))
    await host.take_buckets(Chunk(host.topics.merged, 0, [LogRecord("merged", 0, 0, None, None, 0)], 0))
    reading = Reading(host)

    await host.merge(Chunk(host.topics.partials, 0, [LogRecord("partials", 0, 1, None, partial, 0)], 0))
    await host.take_buckets(Chunk(host.topics.merged, 0, [LogRecord("merged", 0, 1, None, bucket, 0)], 0))

    assert reading.times == 2 * later
