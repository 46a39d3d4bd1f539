"""Records before a tick's ends, the tick, the records behind it: whatever is fetched first, and however much of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from faust.types import TP
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import StateError
from stream_dp.runtime.clock import Tick
from stream_dp.runtime.faust.coalescing import TickOrder
from stream_dp.windows.encoding import encode
from tests.support.phases import PHASES

TICKS, A, B = TP("ticks", 1), TP("a", 1), TP("b", 1)


@dataclass
class Record:
    offset: int
    value: bytes | None = None
    timestamp: int = 0
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


def records(*offsets: int) -> list[Record]:
    return [Record(offset) for offset in offsets]


def ticks(*said: tuple[int, Mapping[str, int]], first: int = 0) -> list[Record]:
    return [Record(first + at, encode(Tick(now, ends))) for at, (now, ends) in enumerate(said)]


class Reader:
    """An order and how far every partition was read."""

    def __init__(self) -> None:
        self.order = TickOrder("ticks", ["a", "b"])
        self.read_to: dict[TP, int] = {A: 0, B: 0}
        self.active = {TICKS, A, B}

    def next(self) -> dict[TP, tuple[list[int], int]]:
        """The offsets of what is due, and the time of the tick."""
        taken = self.order.take(self.order.due(self.active, self.read_to.get))
        return {tp: ([record.offset for record in held], now) for tp, (held, now, _) in taken.items()}


def test_a_record_waits_for_the_first_tick_behind_it() -> None:
    one = Reader()
    one.order.hold(A, records(0, 1, 2))
    one.read_to[A] = 3
    assert one.next() == {}
    one.order.hold(TICKS, ticks((10, {"a": 2})))

    assert one.next() == {A: ([0, 1], 10)}
    assert one.next() == {TICKS: ([0], 10)}
    assert one.next() == {}
    assert one.order.holds(A)
    one.order.hold(TICKS, ticks((20, {"a": 3}), first=1))
    assert [one.next(), one.next()] == [{A: ([2], 20)}, {TICKS: ([1], 20)}]
    assert not one.order.holds(A)
    assert not one.order.holds(TICKS)


def test_a_tick_waits_until_every_source_was_read_to_its_end() -> None:
    one = Reader()
    one.order.hold(TICKS, ticks((10, {"a": 2, "b": 1})))
    assert one.next() == {}
    one.order.hold(A, records(0, 1))
    one.read_to[A] = 2
    assert one.next() == {A: ([0, 1], 10)}
    assert one.next() == {}
    one.order.hold(B, records(0))
    one.read_to[B] = 1
    assert [one.next(), one.next()] == [{B: ([0], 10)}, {TICKS: ([0], 10)}]


def test_a_tick_waits_for_no_record_where_the_log_holds_none() -> None:
    """Transaction markers and compaction leave offsets without a record, at the end of the log too."""
    one = Reader()
    one.order.hold(TICKS, ticks((10, {"a": 5}), (20, {"a": 6}), (30, {"a": 9})))
    one.order.hold(A, records(1))
    one.read_to[A] = 5
    assert [one.next(), one.next(), one.next()] == [{A: ([1], 10)}, {TICKS: ([0], 10)}, {}]
    one.order.hold(A, records(7))
    one.read_to[A] = 8
    assert [one.next(), one.next(), one.next()] == [{TICKS: ([1], 20)}, {A: ([7], 30)}, {}]
    one.read_to[A] = 9
    assert one.next() == {TICKS: ([2], 30)}


def test_a_tick_waits_while_it_is_not_known_where_a_source_is_read() -> None:
    one = Reader()
    one.order.hold(TICKS, ticks((10, {"a": 0})))
    del one.read_to[A]
    assert one.next() == {}
    one.read_to[A] = 0
    assert one.next() == {TICKS: ([0], 10)}


def test_ticks_with_nothing_between_them_go_together() -> None:
    one = Reader()
    one.order.hold(TICKS, ticks((10, {"a": 2}), (20, {"a": 2}), (30, {"a": 1}), (40, {"a": 3})))
    one.read_to[A] = 2
    assert one.next() == {TICKS: ([0, 1, 2], 10)}
    assert one.next() == {}


def test_a_tick_says_nothing_of_a_source_that_it_does_not_name_and_one_that_is_gone_holds_nothing_up() -> None:
    one = Reader()
    one.order.hold(B, records(0))
    one.read_to[B] = 1
    one.order.hold(TICKS, ticks((10, {"gone": 9, "a": 0}), (20, {"a": 0, "b": 1})))
    assert [one.next(), one.next(), one.next()] == [{TICKS: ([0], 10)}, {B: ([0], 20)}, {TICKS: ([1], 20)}]


def test_partitions_do_not_wait_for_each_other() -> None:
    one = Reader()
    other, its_ticks = TP("a", 2), TP("ticks", 2)
    one.active |= {other, its_ticks}
    one.order.hold(TICKS, ticks((10, {"a": 9})))
    one.order.hold(its_ticks, ticks((10, {"a": 1})))
    one.order.hold(other, records(0))
    one.read_to[other] = 1
    assert [one.next(), one.next(), one.next()] == [{other: ([0], 10)}, {its_ticks: ([0], 10)}, {}]


def test_a_partition_that_is_not_active_keeps_what_it_holds_and_its_tick_waits() -> None:
    """Faust takes a partition out while its agent's queue is full."""
    one = Reader()
    one.order.hold(A, records(0))
    one.order.hold(TICKS, ticks((10, {"a": 1})))
    one.active = {TICKS}
    assert one.next() == {}
    one.active = {A}
    assert [one.next(), one.next()] == [{A: ([0], 10)}, {}]
    one.read_to[A] = 1
    one.active = {TICKS}
    assert one.next() == {TICKS: ([0], 10)}


def test_nothing_is_left_after_clearing() -> None:
    one = Reader()
    one.order.hold(A, records(4, 5))
    one.order.hold(TICKS, ticks((10, {"a": 9}), first=3))
    one.order.clear()
    assert not one.order.holds(A)
    assert not one.order.holds(TICKS)
    assert one.next() == {}


@pytest.mark.parametrize("value", [None, b"", b"1700000000000", b"\x91\x01"])
def test_a_tick_that_cannot_be_read_stops_the_worker(value: bytes | None) -> None:
    with pytest.raises(StateError, match="a stored Tick cannot be read"):
        TickOrder("ticks", ["a"]).hold(TICKS, [Record(0, value)])


ENDS = st.fixed_dictionaries({"a": st.integers(0, 20), "b": st.integers(0, 20)})
READS = st.lists(st.tuples(st.sampled_from([TICKS, A, B]), st.integers(1, 9), st.booleans()), max_size=40)


def read(said: Sequence[Mapping[str, int]], reads: Sequence[tuple[TP, int, bool]]) -> dict[str, list[tuple[str, int]]]:
    """What comes of each source and the ticks, in order: ("record", offset) and ("tick", time)."""
    logs = {A: records(*range(20)), B: records(*range(0, 20, 3)), TICKS: ticks(*enumerate(said))}
    one, out = Reader(), dict[str, list[tuple[str, int]]](a=[], b=[])
    fetched = dict.fromkeys(logs, 0)

    def deliver() -> bool:
        due = one.next()
        for tp, (offsets, _) in due.items():
            for source in out if tp == TICKS else [tp.topic]:
                out[source] += [("tick" if tp == TICKS else "record", offset) for offset in offsets]
        return bool(due)

    for tp, count, delivers in [*reads, *((tp, 99, True) for tp in logs)]:
        at = fetched[tp]
        fetched[tp] = min(len(logs[tp]), at + count)
        if logs[tp][at : fetched[tp]]:
            one.order.hold(tp, logs[tp][at : fetched[tp]])
        one.read_to[tp] = logs[tp][fetched[tp]].offset if fetched[tp] < len(logs[tp]) else 20
        if delivers:
            deliver()
    while deliver():
        pass
    return out


@settings(derandomize=True, max_examples=200, deadline=None, phases=PHASES)
@given(st.lists(ENDS, max_size=8), READS)
def test_the_order_is_that_of_the_ticks_whatever_is_read_first(
    said: list[Mapping[str, int]], reads: list[tuple[TP, int, bool]]
) -> None:
    found = read(said, reads)

    for source, step in (("a", 1), ("b", 3)):
        expected: list[tuple[str, int]] = []
        at = 0
        for now, ends in enumerate(said):
            expected += [("record", offset) for offset in range(at, ends[source]) if offset % step == 0]
            expected.append(("tick", now))
            at = max(at, ends[source])
        assert found[source] == expected
