"""Windows of one length that follow one another. So do the periods of ledgers, and the panes of windows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Self

from stream_dp.errors import Fault
from stream_dp.windows.durations import format_duration, format_time
from stream_dp.windows.shapes.shape import Interval, Settings, Shape

_LONGEST_IN_UNITS = 10_000
"""Limit of the search for a length that fits; of lengths as people write them, the first hundreds are enough."""


class Even(Shape):
    """Intervals of one length, of which one begins at every step, over all time."""

    __slots__ = ()

    @property
    @abstractmethod
    def length_ms(self) -> int:
        """Length of every interval, above 0."""

    @property
    def step_ms(self) -> int:
        """Time from one start to the next, above 0: the length, where each begins where the one before ends."""
        return self.length_ms

    @property
    @abstractmethod
    def origin_ms(self) -> int:
        """Start of some interval; all others follow from it."""

    def start_of(self, time_ms: int) -> int:
        """Return the start of the newest interval that a time is in."""
        return time_ms - (time_ms - self.origin_ms) % self.step_ms

    def end(self, start_ms: int) -> int:
        """Return the first moment behind an interval."""
        return start_ms + self.length_ms

    def next(self, start_ms: int, steps: int = 1) -> int:
        """Return the start of the interval so many steps on; back, where `steps` is negative."""
        return start_ms + steps * self.step_ms

    def starts(self, first_ms: int, until_ms: int) -> range:
        """Return the starts from one interval on up to, and without, a time."""
        return range(first_ms, until_ms, self.step_ms)

    @property
    def shortest_ms(self) -> int:
        """Length of every interval."""
        return self.length_ms

    @property
    def longest(self) -> Interval:
        """Any interval: all are as long."""
        return Interval(self.origin_ms, self.end(self.origin_ms))

    @property
    def per_second(self) -> Fraction:
        """Intervals that begin in a second."""
        return Fraction(1000, self.step_ms)

    @property
    def words(self) -> str:
        """The length as text."""
        return format_duration(self.length_ms)


@dataclass(frozen=True, slots=True)
class Tiling(Even):
    """Intervals of one length, end to end, over all time: tumbling windows, panes, or the periods of a ledger.

    Attributes:
        length_ms: length of every interval, above 0.
        origin_ms: start of some interval; all others follow from it.
    """

    length_ms: int
    origin_ms: int = 0

    @classmethod
    def faults(cls, settings: Settings) -> Iterator[Fault]:
        """Find nothing: any length will do."""
        yield from ()

    @classmethod
    def planned(cls, settings: Settings) -> Self:
        """Return the tiling that the first window is one of."""
        return cls(settings.size_ms, settings.origin_ms)

    @property
    def settings(self) -> Settings:
        """Settings that ask for it."""
        return Settings(self.length_ms, start_ms=self.origin_ms)

    @classmethod
    def of(cls, interval: Interval) -> Tiling:
        """Return the tiling that an interval is one of."""
        return cls(interval.length_ms, interval.start_ms)

    @property
    def since(self) -> str:
        """Length and some start as text."""
        return f"{self.words} from {format_time(self.origin_ms)} on"

    @property
    def identity(self) -> Sequence[int | str]:
        """The length. Sums of panes of this length are counted and paid for alike, so they share it."""
        return [self.length_ms]

    def tiles(self, others: Shape) -> bool:
        """Tell whether every other interval is made of whole ones of these."""
        return others.fixed_ms % self.length_ms == 0 and all(self.start_of(start) == start for start in others.changing)

    def first_common(self, other: Shape, time_ms: int) -> int | None:
        """Return the first start, at a time or later, that both have; None where they have none in common."""
        if not isinstance(other, Tiling):
            return Shape.first_common(self, other, time_ms)
        found = self.common(other)
        return None if found is None else found.first_from(time_ms)

    def to_tile(self, others: Tiling) -> Tiling:
        """Return intervals like these, but shorter or moved (towards 1970) where they have to be to tile the others."""
        unit = gcd(self.length_ms, others.length_ms)
        most = min(self.length_ms // unit, _LONGEST_IN_UNITS)
        length = unit * max(units for units in range(1, most + 1) if others.length_ms // unit % units == 0)
        grid = Tiling(length, others.origin_ms)
        start = grid.start_of(self.origin_ms)
        return Tiling(length, grid.next(start) if start < self.origin_ms < 0 else start)

    def to_tile_with(self, others: Tiling) -> Tiling:
        """Return the longest intervals of which these are made, too, and that tile the others."""
        return Tiling(gcd(self.length_ms, others.length_ms), self.to_tile(others).origin_ms)

    def common(self, other: Tiling) -> Tiling | None:
        """Return the starts that both have, as those of longer intervals; None if they have none in common."""
        ratio = Fraction(self.length_ms, other.length_ms)
        unit = self.length_ms // ratio.numerator  # the greatest common divisor
        apart, rest = divmod(other.origin_ms - self.origin_ms, unit)
        if rest:
            return None
        steps = apart * pow(ratio.numerator, -1, ratio.denominator) % ratio.denominator
        return Tiling(self.length_ms * ratio.denominator, self.next(self.origin_ms, steps))

    def to_be_tiled(self, others: Tiling) -> list[Tiling]:
        """Return intervals like these, shorter, longer or moved where they have to be for the others to tile them."""
        counts = {self.length_ms // others.length_ms, -(-self.length_ms // others.length_ms)} - {0}
        aligned = (self.origin_ms - others.origin_ms) % others.length_ms == 0
        origin = self.origin_ms if aligned else others.origin_ms
        return [Tiling(count * others.length_ms, origin) for count in sorted(counts)]


class OfPanes(Even):
    """A shape whose windows are made of panes: the panes are what is counted, noised and sealed by itself.

    Attributes:
        pane: how the panes cut time.
    """

    __slots__ = ()

    pane: Tiling

    @property
    def length_ms(self) -> int:
        """Length of a pane."""
        return self.pane.length_ms

    @property
    def origin_ms(self) -> int:
        """Start of some pane."""
        return self.pane.origin_ms

    @property
    def counted(self) -> Tiling:
        """The panes."""
        return self.pane

    def tiles(self, others: Shape) -> bool:
        """Tell whether every other interval is made of whole panes."""
        return self.pane.tiles(others)
