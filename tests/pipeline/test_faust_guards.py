"""Behaviours of Faust, mode and aiokafka that the adapter works around or builds on: an upgrade that changes one shows.

A failing test here is no defect of this project yet: read docs/faust.md, and what the adapter does about the
behaviour, before the pins are moved.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import faust.streams
import mode
import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.consumer import AIOKafkaConsumer
from aiokafka.consumer.fetcher import OffsetResetStrategy
from aiokafka.consumer.subscription_state import Assignment, TopicPartitionState
from faust.stores.rocksdb import Store
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.transport import base
from faust.transport.consumer import Consumer
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types import TP
from mode.utils.queues import FlowControlEvent, FlowControlQueue

from stream_dp.runtime import embedded as memory
from stream_dp.runtime.faust.app import App
from stream_dp.runtime.faust.transport import MEMORY, _ConsumerThread
from stream_dp.testing.application import WITHIN_SECONDS

EVENTS = TP("guard-events", 0)


def plain_app(folder: Path, log: memory.MemoryLog, **settings: Any) -> App:
    """A Faust application as anyone would write it, on the embedded log, with no topic coalesced."""
    log.create(EVENTS.topic, 1)
    log.create("guard-sums-changelog", 1)
    defaults = {"topic_disable_leader": True, "topic_allow_declare": False, "web_enabled": False}
    app = App(
        "guard",
        broker=f"{MEMORY}://",
        store="rocksdb://",
        datadir=str(folder / "state"),
        broker_commit_interval=0.05,
        broker_max_poll_records=100,
        topic_partitions=1,
        table_standby_replicas=0,
        **(defaults | settings),
    )
    app.memory_log = log
    return app


async def test_faust_reads_a_position_that_is_looked_up_anew_and_the_adapter_does_not() -> None:
    """It is, when the records there were deleted: a worker that had been suspended crashed by it."""
    place = TopicPartition("visits", 0)
    assignment = Assignment({place})
    state = assignment.state_value(place)
    state.seek(5)
    state.await_reset(OffsetResetStrategy.EARLIEST)
    with pytest.raises(AssertionError):
        _ = state.position
    assert "tp_state.position" in inspect.getsource(AIOKafkaConsumerThread.verify_event_path)
    thread = _ConsumerThread.__new__(_ConsumerThread)
    subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))
    thread._consumer = SimpleNamespace(_subscription=subscription)
    thread.verify_event_path(0.0, TP(*place))


@asynccontextmanager
async def started(app: App) -> AsyncIterator[None]:
    await app.start()
    try:
        yield
    finally:
        await app.stop()


async def until(check: Callable[[], object], within_s: float = WITHIN_SECONDS) -> None:
    async with asyncio.timeout(within_s):
        while not check():
            await asyncio.sleep(0.02)


@pytest.fixture
def log() -> memory.MemoryLog:
    return memory.MemoryLog()


def test_pins_are_the_versions_that_were_studied() -> None:
    pins = {name: version(name) for name in ("faust-streaming", "mode-streaming", "aiokafka", "rocksdict")}

    assert pins == {
        "faust-streaming": "0.15.3",
        "mode-streaming": "0.7.1",
        "aiokafka": "0.14.0",
        "rocksdict": "0.3.29",
    }


async def test_event_of_an_agent_that_raises_is_acknowledged_and_lost(log: memory.MemoryLog, tmp_path: Path) -> None:
    """Hence `noack`, and an acknowledgement only behind the last effect."""
    app = plain_app(tmp_path, log)
    seen: list[bytes] = []

    @app.agent(app.topic(EVENTS.topic, value_type=bytes))  # type: ignore[untyped-decorator]
    async def failing(stream: Any) -> None:
        async for value in stream:
            seen.append(value)
            raise RuntimeError("poison")

    log.append(EVENTS.topic, 0, None, b'"one"')
    async with started(app):
        await until(lambda: log.committed.get(EVENTS) == 1)
    assert len(seen) == 1


async def test_event_without_acknowledgement_is_not_committed_and_its_failure_ends_the_app(
    log: memory.MemoryLog, tmp_path: Path
) -> None:
    app = plain_app(tmp_path, log, agent_supervisor=mode.CrashingSupervisor)

    @app.agent(app.topic(EVENTS.topic, value_type=bytes))  # type: ignore[untyped-decorator]
    async def failing(stream: Any) -> None:
        async for event in stream.noack().events():
            if event.message.offset == 1:
                raise RuntimeError("poison")
            await stream.ack(event)

    for _ in range(3):
        log.append(EVENTS.topic, 0, None, b'"one"')
    async with started(app):
        await until(lambda: app.crashed)
        assert isinstance(app.crash_reason, RuntimeError)
        await asyncio.sleep(0.2)
    assert log.committed.get(EVENTS) in (None, 1)


async def test_timer_that_raises_ends_the_app(log: memory.MemoryLog, tmp_path: Path) -> None:
    """The renewal of claims builds on it: a worker whose partition has another owner ends."""
    app = plain_app(tmp_path, log)

    @app.timer(0.01)  # type: ignore[untyped-decorator]
    async def failing() -> None:
        raise RuntimeError("tick")

    @app.agent(app.topic(EVENTS.topic, value_type=bytes))  # type: ignore[untyped-decorator]
    async def reading(stream: Any) -> None:
        async for _ in stream:
            pass

    async with started(app):
        await until(lambda: app.crashed)
        assert isinstance(app.crash_reason, RuntimeError)


async def test_plain_table_is_written_before_its_changelog_and_a_failed_publish_is_only_logged(
    log: memory.MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hence `DurableTable`."""
    app = plain_app(tmp_path, log)
    sums = app.Table("sums", key_type=bytes, value_type=bytes, partitions=1)

    @app.agent(app.topic(EVENTS.topic, value_type=bytes))  # type: ignore[untyped-decorator]
    async def writing(stream: Any) -> None:
        async for value in stream:
            sums[b"key"] = value

    async def refusing(self: base.Producer, *_: Any, **__: Any) -> asyncio.Future[Any]:
        refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        refused.set_exception(OSError("not acknowledged"))
        return refused

    monkeypatch.setattr(base.Producer, "send", refusing)
    log.append(EVENTS.topic, 0, None, b'"one"')
    async with started(app):
        await until(lambda: log.committed.get(EVENTS) == 1)
        assert sums.data._db_for_partition(0).get(b"key") is not None
        assert not app.crashed
    gc.collect()  # Faust leaves a future whose exception nobody looks at; it is reported here, not in some other test
    assert log.end(TP("guard-sums-changelog", 0)) == 0


async def test_message_of_an_earlier_generation_is_skipped_and_not_acknowledged(
    log: memory.MemoryLog, tmp_path: Path
) -> None:
    """True of the compiled stream iterator only: the one in Python acknowledges what it skips, and loses it."""
    assert faust.streams._CStreamIterator is not None, "faust-streaming is installed without its compiled modules"
    app = plain_app(tmp_path, log)
    seen: list[str] = []

    @app.agent(app.topic(EVENTS.topic, value_type=str))  # type: ignore[untyped-decorator]
    async def reading(stream: Any) -> None:
        async for event in stream.noack().events():
            seen.append(event.value)
            await stream.ack(event)

    async with started(app):
        await until(lambda: app.flow_control.is_active() and not app.rebalancing)
        stale = app.consumer._to_message(
            EVENTS, memory.LogRecord(EVENTS.topic, EVENTS.partition, 41, None, b'"old"', 0)
        )
        stale.generation_id = app.consumer_generation_id - 1
        await app.consumer.callback(stale)
        log.append(EVENTS.topic, 0, None, b'"new"')
        await until(lambda: log.committed.get(EVENTS) == 1)
        await asyncio.sleep(0.2)
    assert seen == ["new"]
    assert not stale.acked
    assert log.committed == {EVENTS: 1}


async def test_flow_that_resumes_empties_the_queues() -> None:
    flow = FlowControlEvent(initially_suspended=False)
    queue: FlowControlQueue[int] = FlowControlQueue(flow_control=flow, clear_on_resume=True)
    await queue.put(1)

    flow.resume()

    assert queue.empty()
    assert "clear_on_resume=True" in inspect.getsource(faust.Channel)


def test_recovery_resumes_the_sources_before_it_seeks_and_empties_the_queues() -> None:
    """Together with the test above: what is fetched in between is lost. Hence no fetch during a rebalance."""
    body = inspect.getsource(Recovery.on_recovery_completed)

    order = [
        "_set_recovery_ended()",
        "resume_partitions(",
        "perform_seek()",
        "flow_control.resume()",
        "on_rebalance_end()",
    ]
    places = [body.index(step) for step in order]
    assert places == sorted(places)


def test_seek_to_committed_leaves_a_partition_without_a_committed_offset_where_it_is() -> None:
    assert "if offset and offset > 0:" in inspect.getsource(AIOKafkaConsumer.seek_to_committed)


def test_seams_that_the_coalescing_consumer_overrides_are_there() -> None:
    signatures = {
        name: list(inspect.signature(getattr(Consumer, name)).parameters)
        for name in (
            "_getmany",
            "_to_message",
            "_add_gap",
            "_new_offset",
            "on_partitions_assigned",
            "seek_to_committed",
        )
    }

    assert signatures == {
        "_getmany": ["self", "active_partitions", "timeout"],
        "_to_message": ["self", "tp", "record"],
        "_add_gap": ["self", "tp", "offset_from", "offset_to"],
        "_new_offset": ["self", "tp"],
        "on_partitions_assigned": ["self", "assigned", "generation_id"],
        "seek_to_committed": ["self"],
    }
    drained = inspect.getsource(Consumer._drain_messages)
    assert "self._add_gap(tp, r_offset + 1, offset)" in drained
    assert "self.wait_first(" in drained


def test_base_consumer_counts_the_offsets_inside_a_chunk_as_missing() -> None:
    assert "gap = offset - (r_offset or 0)" in inspect.getsource(Consumer._drain_messages)
    assert "self._gap[tp]" in inspect.getsource(Consumer._new_offset)


def test_position_of_a_kafka_partition_is_where_the_adapter_reads_it() -> None:
    """`kafka.Consumer.fetched_to` looks into aiokafka: its public `position` waits for an offset reset."""
    assert "self._position = None" in inspect.getsource(TopicPartitionState.__init__)
    assert "self._position = position" in inspect.getsource(TopicPartitionState.consumed_to)
    assert hasattr(Assignment, "state_value")
    assert "self._subscription = SubscriptionState(" in inspect.getsource(AIOKafkaConsumer.__init__)


def test_isolation_level_reaches_the_fetcher() -> None:
    """Faust sets it by `exactly_once` alone, and its recovery asks the same consumer where a changelog ends."""
    assert 'isolation_level: str = "read_uncommitted"' in inspect.getsource(
        AIOKafkaConsumerThread._create_worker_consumer
    )
    assert "isolation_level=self._isolation_level" in inspect.getsource(AIOKafkaConsumer.start)
    assert "await consumer.highwaters(*tps)" in inspect.getsource(Recovery._build_highwaters)


def test_static_membership_reaches_the_client() -> None:
    body = inspect.getsource(AIOKafkaConsumerThread._create_worker_consumer)

    assert "group_instance_id=conf.consumer_group_instance_id" in body
    assert "enable_auto_commit=False" in body


def test_store_keeps_a_database_per_partition_and_the_changelog_offset_in_it() -> None:
    assert Store.offset_key == b"__faust\0offset__"
    assert list(inspect.signature(Store._db_for_partition).parameters) == ["self", "partition"]
    assert "int(offset)" in inspect.getsource(Store.persisted_offset)
    assert "str(offset).encode()" in inspect.getsource(Store.set_persisted_offset)


def test_changelog_is_named_after_application_and_table(tmp_path: Path, log: memory.MemoryLog) -> None:
    app = plain_app(tmp_path, log)

    assert app.Table("sums", partitions=1).changelog_topic_name == "guard-sums-changelog"


def test_table_values_are_served_over_http_unless_that_is_switched_off(tmp_path: Path) -> None:
    """Hence three settings of the application; see `test_worker_serves_nothing`."""
    conf = faust.App("defaults", datadir=str(tmp_path)).conf

    assert (conf.web_enabled, conf.web_tables_enabled, conf.web_router_enabled) == (True, True, True)


def test_tables_wait_a_second_for_more_of_them_and_collect_all_garbage_to_close_databases() -> None:
    assert "await self.sleep(1.0)" in inspect.getsource(TableManager.on_start)
    for method in (Store.stop, Store.revoke_partitions):
        assert "gc.collect()" in inspect.getsource(method)
