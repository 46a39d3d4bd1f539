"""One order for the ticks and the records of a partition, whatever order they are fetched in.

A tick says what the clock showed, and where each source ended when it was asked just after. The records before that
end go ahead of the tick, those behind it follow. So the logs alone say which records a tick finds in time: how fast
they are read, and how many at once, decides nothing. A record waits for the first tick behind it.

Nobody believes a tick alone: the broker says when it was appended (`read_tick`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from aiokafka import TopicPartition

from stream_dp.windows.encoding import decode


class Tick(msgspec.Struct, array_like=True, frozen=True):
    """A record of the ticks topic."""

    now_ms: int
    """The wall clock, read first."""
    ends: Mapping[str, int]
    """By topic, the end of the source's partition of the same number, asked for afterwards."""
    declare_lost: tuple[str, int] | None = None
    """In place of the time: a view of which counts were lost on their way, and the start of the first window that is
    waited for (`PartitionCounter.declare_lost`)."""
    settings: int = 0
    """Number of the settings that whoever made it knew: all that stood in the control topic at its time."""
    asks: tuple[int, ...] = ()
    """Partitions whose owner makes no ticks, since its clock is wrong: others make them (`Timers`)."""


def read_tick(record: Any, bound_ms: int | None) -> Tick:
    """Tick: a record of the ticks topic, the same for everyone who reads it.

    No tick is later than its append time, by the broker's clock. One that is further ahead of that than the bound was
    made by a wrong clock: it is about no source.

    Args:
        record: as it was fetched.
        bound_ms: the bound; None: append times are not looked at.

    Raises:
        StateError: it cannot be read.
    """
    tick = decode(Tick, record.value or b"")
    if bound_ms is None or tick.now_ms <= record.timestamp:
        return tick
    believed = tick.now_ms <= record.timestamp + bound_ms
    return msgspec.structs.replace(tick, now_ms=record.timestamp, ends=tick.ends if believed else {})


class TickOrder:
    """Holds what was fetched of sources and ticks until it is due: a partition is fetched on when nothing is held."""

    def __init__(self, ticks: str, sources: Collection[str], bound_ms: int | None = None) -> None:
        """Set up the order.

        Args:
            ticks: the topic of the ticks.
            sources: the topics that they are about, with as many partitions.
            bound_ms: how far a tick may be ahead of its append time (`read_tick`).
        """
        self._topic = ticks
        self._bound_ms = bound_ms
        self._sources = frozenset(sources)
        self._held: dict[TopicPartition, list[Any]] = {}
        self._ticks: defaultdict[int, list[Tick]] = defaultdict(list)
        """By partition, what the held records of the ticks topic say."""

    def orders(self, topic: str) -> bool:
        """Return True if the records of a topic have to be held."""
        return topic == self._topic or topic in self._sources

    def holds(self, tp: TopicPartition) -> bool:
        """Return True if records of a partition are held."""
        return tp in self._held

    def hold(self, tp: TopicPartition, records: Sequence[Any]) -> None:
        """Take the records that follow on those taken before.

        Raises:
            StateError: a tick that cannot be read.
        """
        self._held.setdefault(tp, []).extend(records)
        if tp.topic == self._topic:
            self._ticks[tp.partition] += [read_tick(record, self._bound_ms) for record in records]

    def first_held(self) -> dict[TopicPartition, int]:
        """The first offset that is held of every partition."""
        return {tp: records[0].offset for tp, records in self._held.items()}

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()
        self._ticks.clear()

    def due(
        self, active: Collection[TopicPartition], read_to: Callable[[TopicPartition], int | None]
    ) -> dict[TopicPartition, int]:
        """Return what may proceed now: by partition, the number of its held records. What follows them is due later.

        Args:
            active: the partitions that may be asked for.
            read_to: the offset behind everything that was fetched of a partition, records or not; None if not known.
        """
        due: dict[TopicPartition, int] = {}
        for partition, ticks in self._ticks.items():
            if ticks:
                places = {tp: count for tp, count in self._due(partition, ticks, read_to).items() if tp in active}
                due.update(places)
        return due

    def _due(
        self, partition: int, ticks: Sequence[Tick], read_to: Callable[[TopicPartition], int | None]
    ) -> dict[TopicPartition, int]:
        due: dict[TopicPartition, int] = {}
        for tp, end in self._ends(partition, ticks[0]).items():
            if count := bisect_left(self._held.get(tp, ()), end, key=lambda record: record.offset):
                due[tp] = count
        if due:
            return due
        passed = 0
        while passed < len(ticks) and all(
            self._clear_to(tp, read_to) >= end for tp, end in self._ends(partition, ticks[passed]).items()
        ):
            passed += 1
        return {TopicPartition(self._topic, partition): passed} if passed else {}

    def _ends(self, partition: int, tick: Tick) -> dict[TopicPartition, int]:
        return {TopicPartition(topic, partition): end for topic, end in tick.ends.items() if topic in self._sources}

    def _clear_to(self, tp: TopicPartition, read_to: Callable[[TopicPartition], int | None]) -> int:
        """The offset before which nothing is left to wait for."""
        if tp in self._held:
            first: int = self._held[tp][0].offset
            return first
        position = read_to(tp)
        return -1 if position is None else position

    def take(self, due: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[list[Any], int, int]]:
        """Hand out what is due, as `due` just said.

        Returns:
            By partition the records, and the wall time of the tick behind them; of ticks, that of the first. And the
            number of the settings that have to be known for them.
        """
        taken: dict[TopicPartition, tuple[list[Any], int, int]] = {}
        for tp, count in due.items():
            ticks = self._ticks[tp.partition]
            held = self._held.pop(tp)
            if held[count:]:
                self._held[tp] = held[count:]
            own = ticks[:count] if tp.topic == self._topic else ticks[:1]
            taken[tp] = held[:count], ticks[0].now_ms, max(tick.settings for tick in own)
            if tp.topic == self._topic:
                del ticks[:count]
        return taken
