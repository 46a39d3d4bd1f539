"""A source that grows, is fetched in chunks and ticked, and is counted on a machine that is cut, beside the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Step
from stream_dp.windows.keys import bucket_of
from tests.support.counting import Entry, Oracle, partials
from tests.support.machine import CutError, Machine


@dataclass
class Feed:
    """One partition: its log, how much of it is there, how much is read, and the clock on the wall."""

    entries: Sequence[Entry]
    new: Callable[[], PartitionCounter]
    oracle: Oracle
    machine: Machine = field(default_factory=Machine)
    cuts: Iterable[int] = ()
    back: int = 0
    """How many counted entries are read again after a cut."""
    now: int = 0
    produced: int = 0
    read: int = 0
    counted: int = 0
    """Offset behind the last counted entry."""
    gap: int = 0
    """Offsets without a record at the end of what is there: transaction markers."""

    def __post_init__(self) -> None:
        self._left = iter(self.cuts)
        self.machine.cut_after = next(self._left, None)
        self._counter: PartitionCounter | None = None

    @property
    def end(self) -> int:
        """The end of the log."""
        return (self.entries[self.produced - 1].offset + 1 if self.produced else 0) + self.gap

    def produce(self, count: int) -> None:
        self.produced = min(len(self.entries), self.produced + count)
        following = self.entries[self.produced].offset if self.produced < len(self.entries) else None
        self.gap = 0 if following is None or not self.produced else following - self.end_of_records()

    def end_of_records(self) -> int:
        return self.entries[self.produced - 1].offset + 1 if self.produced else 0

    def fetch(self, count: int) -> None:
        """Read and count the next entries, no more than there are."""
        chunk = self.entries[self.read : min(self.read + count, self.produced)]
        if not chunk:
            return
        fresh = [entry for entry in chunk if entry.offset >= self.counted]
        after = deepcopy(self.oracle)
        if fresh:
            after.chunk(fresh, self.now)
        if self._attempt(lambda counter: counter.chunk(chunk, self.now), after, chunk[-1].offset + 1):
            self.read += len(chunk)

    def tick(self, *, known: bool = True) -> None:
        drained = self.read == self.produced and self.counted >= self.end_of_records()
        end = self.end if known else None
        after = deepcopy(self.oracle)
        after.tick(self.now, end, self.end if drained else self.counted)
        self._attempt(lambda counter: counter.tick(self.now, end, drained=drained), after, self.counted)

    def settle(self) -> None:
        """Read everything and tick until nothing is cut any more."""
        self.machine.cut_after, self._left = None, iter(())
        self.produce(len(self.entries))
        while self.read < self.produced:
            self.fetch(7)
        self.tick()

    def _attempt(self, step: Callable[[PartitionCounter], Step], after: Oracle, counted: int) -> bool:
        """Run a step, and believe the oracle's `after` if it was stored."""
        machine = self.machine
        while self._counter is None:
            fresh = self.new()
            try:
                machine.carry_out(fresh.load(machine))
                self._counter = fresh
            except CutError:
                machine.cut_after = next(self._left, None)
        commits, sent = machine.commits, len(machine.sent)
        try:
            machine.carry_out(step(self._counter))
        except CutError:
            finished, self._counter = False, None
            machine.cut_after = next(self._left, None)
        else:
            finished = True
        if finished or machine.commits > commits:
            self.oracle, self.counted = after, max(self.counted, counted)
        self._check_sent(sent)
        if not finished:
            self.oracle = self.oracle.restarted()
            stored = sum(entry.offset < self.counted for entry in self.entries)
            self.read = max(0, stored - self.back)
        return finished

    def _check_sent(self, before: int) -> None:
        """What was handed on just now: closed windows only, with exactly the counts of the oracle."""
        known = {one.view.name: one for one in self.oracle.views}
        for partial in partials(self.machine.sent[before:]):
            one = known[partial.view]
            assert one.closed(partial.start_ms)
            expected = {
                item: count
                for item, count in one.counts(partial.start_ms).items()
                if bucket_of(item, one.view.buckets) == partial.bucket
            }
            assert partial.counts == expected
