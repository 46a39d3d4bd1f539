"""Windows of one length of which a new one begins at every step, so that they overlap; each is paid for by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Self

from stream_dp.errors import Fault
from stream_dp.windows.durations import format_duration
from stream_dp.windows.shapes.shape import Alternative, Settings, Shape, lengths_in_words
from stream_dp.windows.shapes.tumbling import Even, Tiling

MOST_AT_ONCE = 1000
"""Windows of a view that an event is in."""
SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class Hopping(Even):
    """Windows that overlap.

    A time is in `length_ms / step_ms` windows. Windows that begin so many steps apart tile the time, so all of them
    are that many tilings (`tilings`), and whoever looks at each tiling by itself needs to know nothing else.

    Each window is paid for by itself (`Shape.paid`): an event is charged `at_once` times.

    Attributes:
        length_ms: length of every window, a multiple of `step_ms`.
        step_ms: from one start to the next, above 0 and less than `length_ms`.
        origin_ms: start of some window.
    """

    length_ms: int
    step_ms: int
    origin_ms: int = 0

    @classmethod
    def faults(cls, settings: Settings) -> Iterator[Fault]:
        """Find a step that windows cannot hop by."""
        size, step = settings.size_ms, settings.step or settings.size_ms
        length, hop = format_duration(size), format_duration(step)
        if size % step:
            yield Fault(
                "step",
                f"{hop} does not divide the size of the windows, {length}; give step: "
                f"{lengths_in_words(dividing(size, step))}, or another size",
            )
        elif size // step > MOST_AT_ONCE:
            longer = format_duration(dividing(size, -(-size // MOST_AT_ONCE) - 1)[-1])
            yield Fault(
                "step",
                f"by steps of {hop} an event is in {size // step} windows of {length}, each of which is counted and "
                f"paid for by itself, and {MOST_AT_ONCE} is the most; give step: {longer} or more",
            )

    @classmethod
    def planned(cls, settings: Settings) -> Self:
        """Return the windows one of which is the first."""
        return cls(settings.size_ms, settings.step or settings.size_ms, settings.origin_ms)

    @property
    def settings(self) -> Settings:
        """Settings that ask for it."""
        return Settings(self.length_ms, self.step_ms, start_ms=self.origin_ms)

    @property
    def grid(self) -> Tiling:
        """From one start to the next."""
        return Tiling(self.step_ms, self.origin_ms)

    @property
    def tilings(self) -> Sequence[Tiling]:
        """Return what tiles the time each by itself, and is all of these together."""
        return [Tiling(self.length_ms, start) for start in self.starts(self.origin_ms, self.origin_ms + self.length_ms)]

    @property
    def at_once(self) -> int:
        """Number of intervals that a time is in."""
        return self.length_ms // self.step_ms

    def first_open(self, time_ms: int) -> int:
        """Return the start of the first window that has not ended at a time."""
        return self.next(self.start_of(time_ms - self.length_ms))

    @property
    def identity(self) -> Sequence[int | str]:
        """Length and step, the smaller of the two."""
        return [self.length_ms, self.step_ms]

    def tiles(self, others: Shape) -> bool:
        """Tell whether the first window of every other interval begins with it, and the last one ends with it."""
        return self.grid.tiles(others) and self.length_ms <= others.shortest_ms

    @property
    def when(self) -> str:
        """Of which time something is released, and how often."""
        return f"of the last {self.words} every {self.grid.words}"

    def explained(self, ledger: str) -> str:
        """Say that time is paid for several times, and that windows are whole in a period."""
        return (
            f"A window of {self.words} begins every {self.grid.words}: an event is in {self.at_once} of them, and each "
            f"is counted, bounded, noised and paid for by itself, so time costs {self.at_once} times what windows of "
            f"{self.words} one after another cost. A window is whole in one period of ledger {ledger}, which pays for "
            f"it: the first release of a period comes {self.words} after the period begins."
        )

    def alternatives(self, *, divides: bool) -> Sequence[Alternative]:
        """Return these, and sums of panes as long as a step."""
        if not divides:
            return ()
        return [Alternative("panes", self.grid, self.at_once, False), Alternative("direct", self, 1, True)]


def dividing(length: int, near: int) -> list[int]:
    """Return the next shorter and the next longer divisor of a length, in whole seconds as far as the length is one."""
    unit = SECOND_MS if length % SECOND_MS == 0 else length
    units = length // unit
    small = [one for one in takewhile(lambda one: one * one <= units, count(1)) if units % one == 0]
    found = [unit * one for one in sorted({*small, *(units // one for one in small)})]
    return [*[one for one in found if one < near][-1:], *[one for one in found if one > near][:1]]
