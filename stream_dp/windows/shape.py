"""How time is cut: windows, and the periods they are charged to. Nowhere else is the length of either added up."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

_LONGEST_IN_UNITS = 10_000
"""How far a length that fits is searched for; of lengths as people write them, the first hundreds are enough."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The moments from `start_ms` up to, and without, `end_ms`."""

    start_ms: int
    end_ms: int

    def holds(self, other: Stretch) -> bool:
        """Whether all of another stretch is in this one."""
        return self.start_ms <= other.start_ms and other.end_ms <= self.end_ms

    def overlaps(self, other: Stretch) -> bool:
        """Whether some moment is in both."""
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms


@dataclass(frozen=True, slots=True)
class Tiling:
    """Stretches of one length, end to end, over all time: tumbling windows, or the periods of a ledger.

    A stretch is named by its start and holds `[start, end)`. All times and lengths are in ms.

    Attributes:
        length_ms: length of every stretch, above 0.
        origin_ms: start of some stretch; all others follow from it.
    """

    length_ms: int
    origin_ms: int = 0

    @classmethod
    def of(cls, stretch: Stretch) -> Tiling:
        """The tiling that a stretch is one of."""
        return cls(stretch.end_ms - stretch.start_ms, stretch.start_ms)

    def stretch(self, time_ms: int) -> Stretch:
        """The stretch that a time is in."""
        start = self.start_of(time_ms)
        return Stretch(start, self.end(start))

    def start_of(self, time_ms: int) -> int:
        """The start of the stretch that a time is in."""
        return time_ms - (time_ms - self.origin_ms) % self.length_ms

    def end(self, start_ms: int) -> int:
        """The first moment behind a stretch."""
        return start_ms + self.length_ms

    def next(self, start_ms: int, steps: int = 1) -> int:
        """The start of the stretch so many steps on; back, where `steps` is negative."""
        return start_ms + steps * self.length_ms

    def starts(self, first_ms: int, until_ms: int) -> range:
        """The starts from one stretch on up to, and without, a time."""
        return range(first_ms, until_ms, self.length_ms)

    def begun(self, first_ms: int, until_ms: int) -> int:
        """How many stretches begin from `first_ms`, a start, up to and without a time; 0 if the time is earlier."""
        return max(0, -((first_ms - until_ms) // self.length_ms))

    def ended(self, first_ms: int, until_ms: int) -> int:
        """How many stretches from `first_ms`, a start, on have ended at a time; 0 if none has."""
        return max(0, (until_ms - first_ms) // self.length_ms)

    @property
    def per_second(self) -> Fraction:
        """How many begin in a second."""
        return Fraction(1000, self.length_ms)

    def most_in(self, stretch_ms: int) -> int:
        """How many begin in a stretch of time that begins with one."""
        return self.begun(0, stretch_ms)

    def tiles(self, others: Tiling) -> bool:
        """Whether every other stretch is made of whole ones of these, so that none of these is in two of the others."""
        return others.length_ms % self.length_ms == 0 and (self.origin_ms - others.origin_ms) % self.length_ms == 0

    def to_tile(self, others: Tiling) -> Tiling:
        """Stretches like these, but shorter or moved (towards 1970) where they have to be to tile the others."""
        unit = others.length_ms // Fraction(self.length_ms, others.length_ms).denominator  # greatest common divisor
        most = min(self.length_ms // unit, _LONGEST_IN_UNITS)
        length = unit * max(units for units in range(1, most + 1) if others.length_ms // unit % units == 0)
        grid = Tiling(length, others.origin_ms)
        start = grid.start_of(self.origin_ms)
        return Tiling(length, grid.next(start) if start < self.origin_ms < 0 else start)

    def to_be_tiled(self, others: Tiling) -> list[Tiling]:
        """Stretches like these, but shorter, longer or moved where they have to be for the others to tile them."""
        counts = {self.length_ms // others.length_ms, -(-self.length_ms // others.length_ms)} - {0}
        aligned = (self.origin_ms - others.origin_ms) % others.length_ms == 0
        origin = self.origin_ms if aligned else others.origin_ms
        return [Tiling(count * others.length_ms, origin) for count in sorted(counts)]
