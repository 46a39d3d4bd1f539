"""A partition of a source and its ticks, fetched in pieces, put in order, and counted on a machine that is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from faust.types import TP

from stream_dp.runtime.clock import Tick, read_tick
from stream_dp.runtime.faust.coalescing import TickOrder
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Step
from stream_dp.windows.encoding import encode
from tests.support.counting import Entry
from tests.support.machine import CutError, Machine

SOURCE, TICKS = TP("visits", 0), TP("ticks", 0)


def tick(offset: int, now_ms: int, end: int) -> Entry:
    """A record of the ticks topic."""
    return Entry(offset, None, encode(Tick(now_ms, {SOURCE.topic: end})))


@dataclass
class Feed:
    """Two logs, how far each was fetched and counted, and the counter.

    A cut throws away what was fetched, and both logs are read again from a little before what was counted.
    """

    entries: Sequence[Entry]
    ticks: Sequence[tuple[int, int]]
    """(wall time, end of the source's log)."""
    new: Callable[[], PartitionCounter]
    machine: Machine = field(default_factory=Machine)
    cuts: Iterable[int] = ()
    back: tuple[int, int] = (0, 0)
    """How many counted records, and ticks, are read again after a cut."""
    said: Sequence[Entry] | None = None
    """The log of the ticks as it was written, in place of `ticks`."""
    bound_ms: int | None = None
    """How far a tick may be ahead of its append time."""

    def __post_init__(self) -> None:
        self._left = iter(self.cuts)
        self.machine.cut_after = next(self._left, None)
        ticks = self.said or [tick(at, now, end) for at, (now, end) in enumerate(self.ticks)]
        self._logs = {SOURCE: self.entries, TICKS: ticks}
        self._fetched = dict.fromkeys(self._logs, 0)
        self._counted = dict.fromkeys(self._logs, 0)
        self._order = TickOrder(TICKS.topic, [SOURCE.topic], self.bound_ms)
        self._counter: PartitionCounter | None = None

    def fetch(self, tp: TP, count: int) -> None:
        """Fetch so many records, or what there is."""
        records = self._logs[tp][self._fetched[tp] : self._fetched[tp] + count]
        if records:
            self._order.hold(tp, records)
            self._fetched[tp] += len(records)

    def deliver(self) -> bool:
        """Count what is due; False if nothing is."""
        due = self._order.due(self._logs.keys(), self._read_to)
        for tp, (records, now_ms, _) in self._order.take(due).items():
            if not self._attempt(self._step(tp, records, now_ms)):
                break
            self._counted[tp] += len(records)
        return bool(due)

    def settle(self) -> None:
        """Read everything, cut nothing any more."""
        self.machine.cut_after, self._left = None, iter(())
        for tp, log in self._logs.items():
            self.fetch(tp, len(log))
        while self.deliver():
            pass

    def _read_to(self, tp: TP) -> int | None:
        """Offsets without a record are passed with the record before them; behind the last one, all there will be."""
        at, log = self._fetched[tp], self._logs[tp]
        return log[at].offset if at < len(log) else 1 << 40

    def _attempt(self, step: Callable[[PartitionCounter], Step]) -> bool:
        try:
            if self._counter is None:
                fresh = self.new()
                self.machine.carry_out(fresh.load(self.machine))
                self._counter = fresh
            self.machine.carry_out(step(self._counter))
        except CutError:
            self._counter = None
            self.machine.cut_after = next(self._left, None)
            self._order.clear()
            for tp, back in zip((SOURCE, TICKS), self.back, strict=True):
                self._counted[tp] = self._fetched[tp] = max(0, self._counted[tp] - back)
            return False
        return True

    def _step(self, tp: TP, records: Sequence[Any], now_ms: int) -> Callable[[PartitionCounter], Step]:
        if tp == SOURCE:
            return lambda counter: counter.chunk(records, now_ms)
        ticks = [read_tick(record, self.bound_ms) for record in records]
        return lambda counter: counter.ticks([tick.now_ms for tick in ticks if SOURCE.topic in tick.ends])
