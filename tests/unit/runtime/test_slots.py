"""The publisher: at which moments stored records leave, and when they stay where they are stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import rocksdict
from faust.types import TP

from stream_dp.control.grant_records import Order
from stream_dp.errors import BrokerError
from stream_dp.kinds.histogram import HistogramPlan
from stream_dp.releases import outboxes
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.pieces import Addressed, record_rows, waiting_records
from stream_dp.releases.rows import WINDOW, Change, WindowRow
from stream_dp.runtime.clock import Clock
from stream_dp.runtime.embedded import LogRecord, MemoryClient, MemoryWriter
from stream_dp.runtime.factory import Factory, Settled
from stream_dp.runtime.faust.delivery import Publisher
from stream_dp.runtime.faust.host import Host
from stream_dp.runtime.kafka.topics import RELEASES, Topics
from stream_dp.runtime.kafka.transactions import PartitionLostError, lost
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.testing import Application, ManualClock, application, keyed_entropy
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.windows.effects import Commit, Leave, Step
from stream_dp.windows.encoding import bucket_of, decode, encode, window_key
from stream_dp.windows.merging import MergedBucket

CACHE = rocksdict.Cache(0)

NOON = 1_700_000_000_000
"""A slot, whatever the length of slots."""


def window_rows(start: int, slot: int, records: list[Addressed]) -> list[Change]:
    """The rows of a window whose records wait for a slot."""
    row = WindowRow(refused=False, slot_ms=slot)
    before = record_rows("stored", start, row.add(slot, len(records)), records)
    return [*before, (window_key(WINDOW, "stored", start), encode(row))]


@dataclass
class Stand:
    """A host whose clock a test has in hand, beside the worker whose application and tables it uses."""

    worker: Worker
    host: Host

    @classmethod
    def at(cls, worker: Worker, clock_ms: Callable[[], int]) -> Stand:
        plan = worker.plan
        factory = Factory(
            Settled(plan), keys=KeyRing.of(bytes(32)), entropy=keyed_entropy(b"slots"), cache=rocksdict.Cache(0)
        )
        assert worker.app.memory_log is not None
        client = MemoryClient(worker.app.memory_log)
        return cls(worker, Host(worker.app, factory, worker.tables, client=client, clock=Clock(clock_ms, None)))

    @property
    def topic(self) -> str:
        """A topic that no agent reads."""
        (view,) = self.worker.plan.views.values()
        return Topics.of(self.worker.plan).release(view.name, "public")

    async def store(self, *departures: tuple[int, str], first: int = 0) -> None:
        """Store a window for each (slot, text of its record), and let it leave."""

        def step() -> Step:
            for start, (slot, text) in enumerate(departures, first):
                yield Commit(window_rows(start, slot, [(self.topic, b"key", text.encode())]))
                yield Leave("stored", start, slot)

        await self.host.carry_out(step(), self.worker.tables[RELEASES], 0)

    def stored(self, start: int = 0) -> list[bytes]:
        """The records in the outbox of a stored window."""
        rows = self.worker.tables[RELEASES].rows(0)
        row = decode(WindowRow, rows.get(window_key(WINDOW, "stored", start)) or b"")
        return [message.value or b"" for one in row.outbox for message in waiting_records("stored", start, one, rows)]

    def sent(self) -> list[tuple[int, str]]:
        """Time and text of what was published."""
        return [(record.timestamp, (record.value or b"").decode()) for record in self.log()]

    def log(self) -> list[LogRecord]:
        """What was published of windows."""
        assert self.worker.app.memory_log is not None
        records = self.worker.app.memory_log.records[TP(self.topic, 0)]
        return [record for record in records if b"/view/" not in (record.key or b"")]

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(Publisher(self.worker.app, self.host).run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_SECONDS):
        while not check():
            await asyncio.sleep(0.005)


def ticking(*times: int) -> Callable[[], int]:
    """A clock that shows some times, one after the other, and then the last one for ever."""
    shown: Iterator[int] = chain(times, repeat(times[-1]))
    return lambda: next(shown)


# -- when -----------------------------------------------------------------------------------------------------------


async def test_view_whose_windows_leave_late_for_a_while_is_told_of_once_and_again_when_it_has_caught_up(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stream_dp.worker")
    clock = ManualClock(NOON)
    stand = Stand.at(worker, clock)

    async def leave(now_ms: int, slot_ms: int) -> None:
        clock.now_ms = NOON + now_ms
        count = len(stand.sent())
        await stand.store((NOON + slot_ms, f"{now_ms}"))
        await until(lambda: len(stand.sent()) > count and not stand.stored())

    def said() -> list[tuple[str, str]]:
        return [(r.levelname, r.message.partition(";")[0]) for r in caplog.records if r.message.startswith("view ")]

    async with stand.publishing():
        for second in (3, 6, 9, 12):
            await leave(1000 * second, 1000 * second - 2500)
        assert said() == []  # not yet for ten seconds
        for second in (15, 18):
            await leave(1000 * second, 1000 * second - 2500)
        behind = "view stored is behind: since 2023-11-14T22:13:23Z its windows leave later than their slots"
        assert said() == [("WARNING", f"{behind}, 5 of them so far")]
        for second in (21, 24):
            await leave(1000 * second, 1000 * second)
        caught_up = "view stored has caught up: after 6 late windows they leave at their slots"
        assert said()[1:] == [("INFO", caught_up)]
        await leave(27_000, 26_000)
        await leave(30_000, 30_000)
    assert len(said()) == 2
    assert stand.host.counters.total("releases_late") == 7


async def test_records_leave_at_their_slot_and_bear_its_time_and_their_outboxes_are_emptied(worker: Worker) -> None:
    stand = Stand.at(worker, ManualClock(NOON + 40))
    async with stand.publishing():
        await stand.store((NOON + 100, "first"), (NOON + 200, "second"))
        await until(lambda: not stand.stored(0) and not stand.stored(1))
    assert stand.sent() == [(NOON + 100, "first"), (NOON + 200, "second")]
    assert stand.host.counters.total("releases_late") == 0


async def test_records_that_were_stored_behind_their_slot_leave_at_the_next_one_and_are_counted(worker: Worker) -> None:
    stand = Stand.at(worker, ManualClock(NOON + 40))
    async with stand.publishing():
        await stand.store((NOON - 700, "late"), (NOON, "later"))
        await until(lambda: stand.host.counters.total("releases_late", view="stored") == 2)
    assert stand.sent() == [(NOON + 100, "late"), (NOON + 100, "later")]


async def test_records_that_are_stored_at_a_slot_take_it(worker: Worker) -> None:
    stand = Stand.at(worker, ManualClock(NOON))
    async with stand.publishing():
        await stand.store((NOON, "in time"))
        await until(lambda: not stand.stored())
    assert stand.sent() == [(NOON, "in time")]
    assert stand.host.counters.total("releases_late") == 0


async def test_a_worker_that_was_held_up_over_a_slot_lets_records_leave_at_the_next_one(worker: Worker) -> None:
    """By how long it was held up may depend on what it computed."""
    stand = Stand.at(worker, ticking(NOON + 99, NOON + 126, NOON + 150, NOON + 225))
    await stand.store((NOON + 100, "held up"))
    async with stand.publishing():
        await until(lambda: not stand.stored())
    assert stand.sent() == [(NOON + 200, "held up")]
    assert stand.host.counters.total("releases_late") == 1


async def test_records_with_an_earlier_slot_do_not_wait_for_those_that_came_first(worker: Worker) -> None:
    stand = Stand.at(worker, ManualClock(NOON))
    async with stand.publishing():
        await stand.store((NOON + 3_600_000, "in an hour"), (NOON, "now"))
        await until(stand.sent)
    assert stand.sent() == [(NOON, "now")]


class Working(ManualClock):
    """A clock that goes on while windows are sealed: the more keys, the longer."""

    def __init__(self, now_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(now_ms)
        seal = HistogramPlan.seal

        def slowly(plan: HistogramPlan, counts: Any, sealing: Any) -> Any:
            self.now_ms += len(counts) // 200
            return seal(plan, counts, sealing)

        monkeypatch.setattr(HistogramPlan, "seal", slowly)


def buckets(app: Application, window: int, keys: int) -> list[bytes]:
    """The merged buckets of a window that closed at noon."""
    (view,) = app.plan.views.values()
    parts: list[dict[str, int]] = [{} for _ in range(view.buckets)]
    for number in range(keys):
        parts[bucket_of(f"/{number}", view.buckets)][f"/{number}"] = 40
    start = (view.window.first_ms or 0) + 60_000 * window
    return [encode(MergedBucket(view.name, start, at, NOON, 0, 1, part)) for at, part in enumerate(parts)]


@asynccontextmanager
async def offset(
    visits: Callable[..., str], folder: Path, offset: str, clock_ms: Callable[[], int]
) -> AsyncIterator[tuple[Application, Worker, int]]:
    """An application whose windows leave so long after their close, its worker, and the partition that releases."""
    slots = ("release: {slot: 100ms, offset: 0s}", f"release: {{slot: 100ms, offset: {offset}}}")
    async with application(visits(slots), folder) as app:
        worker = await app.start(clock_ms=clock_ms, tick_seconds=1000)
        await until(lambda: not worker.app.rebalancing and worker.app.consumer.assignment())
        (view,) = app.plan.views.values()
        yield app, worker, worker.host.topics.ledger_partition(view.ledger)


@pytest.mark.parametrize("keys", [10, 10_000, pytest.param(50_000, marks=pytest.mark.slow)])
async def test_a_window_of_many_keys_leaves_at_the_slot_of_a_window_of_few(
    visits: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int
) -> None:
    async with offset(visits, tmp_path, "350ms", Working(NOON, monkeypatch)) as (app, worker, ledger):
        stand = Stand(worker, worker.host)
        await worker.host.engage(ledger, ReleaseEngine.buckets, buckets(app, 0, keys))
        await until(stand.log)
        assert {record.timestamp for record in stand.log()} == {NOON + 400}
        assert worker.counters.total("releases_late") == 0


async def test_an_agent_does_not_wait_for_the_slots_of_what_it_released(
    visits: Callable[..., str], tmp_path: Path
) -> None:
    """Its message is done with: what it led to is stored."""
    async with offset(visits, tmp_path, "1h", ManualClock(NOON)) as (app, worker, ledger):
        values = [value for window in range(10) for value in buckets(app, window, 0)]
        async with asyncio.timeout(WITHIN_SECONDS):
            await worker.host.engage(ledger, ReleaseEngine.buckets, values)
            order = Order(1, "public", "detailed")
            await worker.host.engage(ledger, partial(ReleaseEngine.order, now_ms=NOON), order)
        assert worker.counters.total("windows_released") == 10
        assert worker.counters.total("windows_sharpened") == 10
        assert Stand(worker, worker.host).log() == []


async def test_publishing_does_not_wait_for_the_release_engine_and_emptying_outboxes_does(worker: Worker) -> None:
    """Else drawing a window of one view would hold up those of all others."""
    stand = Stand.at(worker, ManualClock(NOON))
    drawn = asyncio.Event()
    begun = asyncio.Event()

    async def drawing() -> None:
        async with stand.host._engine_locks[0]:
            begun.set()
            await drawn.wait()

    async with stand.publishing():
        engine = asyncio.create_task(drawing())
        await begun.wait()
        await stand.store((NOON, "first"), (NOON + 100, "second"))
        await until(lambda: len(stand.sent()) == 2)
        assert (stand.stored(0), stand.stored(1)) == ([b"first"], [b"second"])
        drawn.set()
        await until(lambda: not stand.stored(0) and not stand.stored(1))
        await engine


async def test_settings_that_are_adopted_let_what_is_stored_leave_once_and_in_its_order(worker: Worker) -> None:
    """An engine that is loaded anew lets everything leave that stands in an outbox."""
    stand, plan = Stand.at(worker, ManualClock(NOON)), worker.plan
    factory = Factory(
        Settled(plan), keys=KeyRing.of(bytes(32)), entropy=keyed_entropy(b"slots"), cache=rocksdict.Cache(0)
    )

    def loaded() -> Step:
        yield from (Leave("stored", start, slot) for start, slot in enumerate((NOON, NOON + 100)))

    async with stand.publishing(), stand.host._engine_locks[0]:
        await stand.store((NOON, "published"), (NOON + 100, "waits"))
        stand.host.adopt(factory)
        await until(lambda: len(stand.sent()) == 2)
        stand.host.adopt(factory)
        await stand.host.carry_out(loaded(), worker.tables[RELEASES], 0)
        await stand.store((NOON + 200, "later"), first=2)
        await until(lambda: "later" in dict(stand.sent()).values())
    assert stand.sent() == [(NOON, "published"), (NOON + 100, "waits"), (NOON + 200, "later")]


# -- membership and failures ----------------------------------------------------------------------------------------


def given_away(worker: Worker) -> None:
    """The group is rebalanced, and this worker has the table no more."""
    worker.tables[RELEASES]._owned.clear()


def rebalancing(worker: Worker) -> None:
    worker.app.rebalancing = True


@pytest.mark.parametrize("lose", [given_away, rebalancing])
async def test_what_was_loaded_before_a_rebalance_is_left_to_whoever_loads_it_next(
    worker: Worker, lose: Callable[[Worker], None]
) -> None:
    stand = Stand.at(worker, ManualClock(NOON))
    await stand.store((NOON, "kept back"))
    lose(worker)
    async with stand.publishing():
        await until(lambda: not stand.host.outboxes)
    assert stand.sent() == []
    assert stand.stored() == [b"kept back"]


async def test_a_rebalance_between_two_parts_of_a_slot_keeps_the_second_back(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outboxes, "PUBLISHED_AT_ONCE", 1)
    stand = Stand.at(worker, ManualClock(NOON))
    publish = MemoryWriter.publish

    async def losing(self: MemoryWriter, *rest: Any) -> None:
        given_away(worker)
        await publish(self, *rest)

    await stand.store((NOON, "first"), (NOON, "second"))
    monkeypatch.setattr(MemoryWriter, "publish", losing)
    async with stand.publishing():
        await until(stand.sent)
        for _ in range(10):  # until the publisher has looked again
            await asyncio.sleep(0)
    assert stand.sent() == [(NOON, "first")]
    assert (stand.stored(0), stand.stored(1)) == ([b"first"], [b"second"])


async def test_outboxes_are_not_emptied_by_a_worker_that_may_have_lost_the_partition(worker: Worker) -> None:
    stand = Stand.at(worker, ManualClock(NOON))
    await stand.store((NOON, "first"))
    ((key, waiting),) = stand.host.outboxes.items()
    list(waiting.publish(NOON, worker.tables[RELEASES].rows(0)))
    given_away(worker)
    await stand.host.settle(*key)
    assert stand.stored() == [b"first"]


@pytest.mark.parametrize("anew", [True, False])
async def test_a_refusal_ends_the_worker_unless_it_claimed_the_partition_anew_itself(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """It joined again after an outage, and what it was publishing arrives as that of the former owner it was."""
    stand = Stand.at(worker, ManualClock(NOON))
    await stand.store((NOON, "first"))
    ((key, waiting),) = stand.host.outboxes.items()

    async def refused(*_: Any) -> None:
        if anew:
            given_away(worker)
        raise lost(TP(stand.topic, 0))

    monkeypatch.setattr(stand.host, "publish", refused)
    publishing = Publisher(worker.app, stand.host)._publish(
        *key, waiting.publish(NOON, worker.tables[RELEASES].rows(0)), NOON
    )
    with nullcontext() if anew else pytest.raises(PartitionLostError):
        await publishing
    assert stand.stored() == [b"first"]


async def test_a_publisher_that_fails_ends_the_worker(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an agent that fails does: what it could not publish is stored, and published after the next start."""
    now = worker.host.clock_ms()

    async def refused(*_: Any) -> None:
        raise BrokerError("the record is too large")

    monkeypatch.setattr(MemoryWriter, "publish", refused)

    def step() -> Step:
        yield Commit(window_rows(0, now, [("topic", b"key", b"record")]))
        yield Leave("stored", 0, now)

    await worker.host.carry_out(step(), worker.tables[RELEASES], 0)
    async with asyncio.timeout(WITHIN_SECONDS):
        await worker.crashed()
    assert isinstance(worker.crash_reason(), BrokerError)


async def test_a_worker_publishes_what_another_one_stored_and_did_not_publish(
    visits: Callable[..., str], tmp_path: Path
) -> None:
    hour = ("release: {slot: 100ms, offset: 0s}", "release: {slot: 100ms, offset: 1h}")
    async with application(visits(hour, ("clock: event", "clock: wall")), tmp_path) as app:
        (view,) = app.plan.views.values()
        start = view.window.first_ms or 0
        clock = ManualClock(start + 70_000)
        worker = await app.start(clock_ms=clock)
        await until(lambda: worker.counters.total("windows_released") == 1)
        await app.stop()
        assert all(not records for records in (await app.releases(view.name)).values())
        clock.now_ms += 3_600_000
        await app.start(clock_ms=clock)
        found = await app.wait_for_releases(view.name, 1)
        assert [record.window.start_ms for records in found.values() for record in records] == [start] * 3
