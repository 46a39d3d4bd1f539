"""How time is cut: windows, and the periods they are charged to. Nowhere else is the length of either added up."""

from __future__ import annotations

from dataclasses import dataclass


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

    def most_in(self, stretch_ms: int) -> int:
        """How many begin in a stretch of time that begins with one."""
        return self.begun(0, stretch_ms)

    def outlasts(self, other: Tiling) -> bool:
        """Whether one of these is longer than one of the others."""
        return self.length_ms > other.length_ms
