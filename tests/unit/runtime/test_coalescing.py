"""The consumer of chunks: what it asks Faust's consumer for, what it holds back, and what becomes of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from stream_dp.runtime.clock import Tick
from stream_dp.runtime.embedded import LogRecord
from stream_dp.runtime.faust.coalescing import MAX_WAIT_SECONDS, Chunk, CoalescingConsumer
from stream_dp.windows.encoding import CHUNK_BYTES, encode
from stream_dp.windows.records import Records

TICKS, SOURCE, ORDERS, CHANGELOG = (TP(topic, 0) for topic in ("ticks", "visits", "orders", "changelog"))
ALL = {TICKS, SOURCE, ORDERS, CHANGELOG}


class Driver:
    """What Faust's consumer is to ours: it brings what the test lays out, once, of the partitions it is asked for."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.laid_out: dict[TP, list[LogRecord]] = {}
        self.asked: list[tuple[set[TP], float]] = []
        self.positions: dict[TP, int] = {}
        self.committed: dict[TP, int | None] = {}
        self.seeks: list[tuple[TP, int]] = []
        self.assigned_meanwhile: set[TP] = set()

    async def _getmany(self, active: set[TP], seconds: float) -> Mapping[TP, Sequence[Any]]:
        self.asked.append((active, seconds))
        found = {tp: self.laid_out.pop(tp) for tp in sorted(active) if tp in self.laid_out}
        self.positions |= {tp: records[-1].offset + 1 for tp, records in found.items() if records}
        return found

    def fetched_to(self, tp: TP) -> int | None:
        return self.positions.get(tp)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Nothing here."""

    async def seek_to_committed(self) -> Mapping[TP, int | None]:
        if self.assigned_meanwhile:
            await self.on_partitions_assigned(self.assigned_meanwhile)
            self.assigned_meanwhile = set()
        return self.committed

    async def _seek(self, tp: TP, offset: int) -> None:
        self.seeks.append((tp, offset))


class Consumer(CoalescingConsumer, Driver):
    pass


def record(tp: TP, offset: int, value: bytes = b"x") -> LogRecord:
    return LogRecord(tp.topic, tp.partition, offset, None, value, 0)


def tick(offset: int, now_ms: int, end: int) -> LogRecord:
    return record(TICKS, offset, encode(Tick(now_ms, {"visits": end})))


@pytest.fixture
async def consumer() -> Consumer:
    app = SimpleNamespace(
        rebalancing=False,
        ticks="ticks",
        sources={"visits"},
        coalesced=frozenset({"ticks", "visits", "orders"}),
        changelogs=frozenset({"changelog"}),
        clock_bound_ms=None,
    )
    positions: dict[TP, int] = {}
    app.positions = positions

    async def find_positions(_: Mapping[TP, int | None]) -> Mapping[TP, int]:
        return positions

    app.find_positions = find_positions
    made = Consumer(app)
    await made.seek_to_committed()
    return made


def chunk_of(records: Sequence[Any], before: int | None, now_ms: int) -> Chunk:
    return Chunk(records[0].topic, records[0].partition, Records.of(records), now_ms, before)


async def fetch(consumer: Consumer, active: set[TP] = ALL, **records: list[LogRecord]) -> dict[str, Any]:
    """One round: what is laid out, by topic; what comes of it, by topic."""
    consumer.laid_out |= {TP(topic, 0): found for topic, found in records.items()}
    return {tp.topic: found for tp, found in (await consumer._getmany(active, 1.0)).items()}


async def test_what_no_tick_is_about_goes_on_at_once_in_one_piece(consumer: Consumer) -> None:
    orders, rows = [record(ORDERS, 0), record(ORDERS, 1)], [record(CHANGELOG, 7), record(CHANGELOG, 8)]

    assert await fetch(consumer, orders=orders, changelog=rows) == {
        "orders": [chunk_of(orders, None, 0)],
        "changelog": [chunk_of(rows, None, 0)],
    }
    assert await fetch(consumer, orders=[record(ORDERS, 5)]) == {"orders": [chunk_of([record(ORDERS, 5)], 1, 0)]}


async def test_records_of_a_source_go_on_with_the_tick_behind_them_and_each_names_its_predecessor(
    consumer: Consumer,
) -> None:
    events = [record(SOURCE, at) for at in range(4)]
    assert await fetch(consumer, visits=events) == {}
    said = [tick(0, 10, 3), tick(1, 20, 4)]
    assert await fetch(consumer, ticks=said) == {"visits": [chunk_of(events[:3], None, 10)]}
    assert await fetch(consumer) == {"ticks": [chunk_of(said[:1], None, 10)]}
    assert await fetch(consumer) == {"visits": [chunk_of(events[3:], 2, 20)]}
    assert await fetch(consumer) == {"ticks": [chunk_of(said[1:], 0, 20)]}
    assert await fetch(consumer) == {}


async def test_nothing_is_fetched_of_a_partition_that_holds_something_and_nobody_waits_while_something_is_due(
    consumer: Consumer,
) -> None:
    """So a source that runs ahead of its ticks fills no memory, and a backlog is counted without a pause."""
    await fetch(consumer, visits=[record(SOURCE, 0), record(SOURCE, 1)])
    await fetch(consumer, ticks=[tick(0, 10, 1)])
    await fetch(consumer)
    await fetch(consumer)

    assert consumer.asked == [
        (ALL, MAX_WAIT_SECONDS),
        (ALL - {SOURCE}, MAX_WAIT_SECONDS),
        (ALL - {SOURCE, TICKS}, 0),  # the tick is due, the second event is held
        (ALL - {SOURCE}, MAX_WAIT_SECONDS),
    ]


async def test_where_everything_is_held_nothing_is_asked_for(consumer: Consumer) -> None:
    """To ask aiokafka for no partition is to ask it for all."""
    await fetch(consumer, {SOURCE}, visits=[record(SOURCE, 0)])
    assert await fetch(consumer, {SOURCE}) == {}
    assert await fetch(consumer, set()) == {}
    assert len(consumer.asked) == 1


async def test_nothing_coalesced_is_fetched_or_handed_on_during_a_rebalance(consumer: Consumer) -> None:
    await fetch(consumer, visits=[record(SOURCE, 0)], ticks=[tick(0, 10, 0)])
    consumer.app.rebalancing = True

    assert await fetch(consumer, orders=[record(ORDERS, 0)]) == {}
    assert consumer.asked[-1][0] == {CHANGELOG}


async def test_what_a_fetch_brings_that_a_rebalance_has_overtaken_is_not_handed_on(consumer: Consumer) -> None:
    events = [record(SOURCE, 5)]
    consumer.laid_out = {SOURCE: events, TICKS: [tick(0, 10, 9)]}
    fetching = consumer._getmany(ALL, 1.0)
    getmany = Driver._getmany

    async def overtaken(self: Driver, active: set[TP], seconds: float) -> Mapping[TP, Sequence[Any]]:
        self.app.rebalancing = True
        return await getmany(self, active, seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driver, "_getmany", overtaken)
        assert await fetching == {}


@pytest.mark.parametrize("committed", [3, 9, None, 0])
async def test_reading_continues_where_the_tables_say(consumer: Consumer, committed: int | None) -> None:
    """Whatever the group has committed, and whatever was held."""
    consumer.committed = {SOURCE: committed, CHANGELOG: 7}
    consumer.app.positions[SOURCE] = 5
    await fetch(consumer, visits=[record(SOURCE, 6), record(SOURCE, 7)])

    assert await consumer.seek_to_committed() == {SOURCE: 5, CHANGELOG: 7}

    assert consumer.seeks == [(SOURCE, 5)]
    again = [record(SOURCE, at) for at in (5, 6, 7)]
    assert await fetch(consumer, visits=again, ticks=[tick(0, 10, 8)]) == {"visits": [chunk_of(again, None, 10)]}


async def test_a_chunk_is_cut_by_bytes_and_every_piece_names_the_one_before(consumer: Consumer) -> None:
    """Of compressed records a fetch can bring far more than it asked for."""
    half = bytes(CHUNK_BYTES // 2)
    events = [record(SOURCE, at, half) for at in range(5)]
    orders = [record(ORDERS, at, half) for at in (0, 1, 7)]
    said = [tick(0, 10, 3), tick(1, 20, 5)]
    assert await fetch(consumer, visits=events, orders=orders, ticks=said) == {
        "orders": [chunk_of(orders[:2], None, 0), chunk_of(orders[2:], 1, 0)],
        "visits": [chunk_of(events[:2], None, 10), chunk_of(events[2:3], 1, 10)],
    }
    assert await fetch(consumer) == {"ticks": [chunk_of(said[:1], None, 10)]}
    assert await fetch(consumer) == {"visits": [chunk_of(events[3:], 2, 20)]}


async def test_a_record_that_is_larger_than_a_chunk_goes_alone(consumer: Consumer) -> None:
    events = [record(ORDERS, 0), record(ORDERS, 1, bytes(CHUNK_BYTES + 1)), record(ORDERS, 2)]
    found = (await fetch(consumer, orders=events))["orders"]
    assert found == [chunk_of(events[:1], None, 0), chunk_of(events[1:2], 0, 0), chunk_of(events[2:], 1, 0)]


async def test_between_an_assignment_and_its_seek_nothing_is_fetched_or_due_though_no_rebalance_is_known(
    consumer: Consumer,
) -> None:
    """The end of a rebalance that another one has overtaken leaves the positions as they were before."""
    await consumer.on_partitions_assigned(ALL)
    consumer.positions[SOURCE] = 100  # where a fetch of before has come to; nothing of that is held any more
    consumer.laid_out = {TICKS: [tick(0, 10, 100)], SOURCE: [record(SOURCE, 100)], CHANGELOG: [record(CHANGELOG, 7)]}

    assert await fetch(consumer) == {"changelog": [chunk_of([record(CHANGELOG, 7)], None, 0)]}
    assert consumer.asked[-1][0] == {CHANGELOG}

    await consumer.seek_to_committed()
    consumer.laid_out[SOURCE] = [record(SOURCE, 5)]
    found = await fetch(consumer)
    assert found == {"visits": [chunk_of([record(SOURCE, 5)], None, 10)]}


async def test_a_seek_says_nothing_of_partitions_that_were_assigned_during_it(consumer: Consumer) -> None:
    consumer.assigned_meanwhile = {TICKS, SOURCE}
    await consumer.seek_to_committed()

    assert await fetch(consumer, visits=[record(SOURCE, 5)], ticks=[tick(3, 10, 6)]) == {}
    assert SOURCE in consumer.laid_out, "nothing was asked for"
    await consumer.seek_to_committed()
    assert await fetch(consumer) == {"visits": [chunk_of([record(SOURCE, 5)], None, 10)]}


@pytest.mark.parametrize(("position", "seeks"), [(8, [(SOURCE, 6)]), (6, []), (2, []), (None, [])])
async def test_what_was_under_way_when_all_was_forgotten_is_left_out_and_fetched_again(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, position: int | None, seeks: list[tuple[TP, int]]
) -> None:
    """Wherever the partition was sought to meanwhile: in front of the records, or before they were taken."""

    async def slow(self: Driver, active: set[TP], seconds: float) -> Mapping[TP, Sequence[Any]]:
        await consumer.seek_to_committed()
        if position is not None:
            self.positions[SOURCE] = position
        return {SOURCE: [record(SOURCE, 6), record(SOURCE, 7)], CHANGELOG: [record(CHANGELOG, 1)]}

    with monkeypatch.context() as patched:
        patched.setattr(Driver, "_getmany", slow)
        assert await fetch(consumer) == {"changelog": [chunk_of([record(CHANGELOG, 1)], None, 0)]}
    assert consumer.seeks == seeks
    assert await fetch(consumer, visits=[record(SOURCE, 3)], ticks=[tick(0, 10, 4)]) == {
        "visits": [chunk_of([record(SOURCE, 3)], None, 10)]
    }
