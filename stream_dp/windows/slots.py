"""The moments at which releases leave."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slots:
    """Moments at multiples of one length, and how long after its close a window takes the first of them.

    Nothing here looks at counts: the slot of a window follows from the time of its close. All times in ms.

    Attributes:
        every_ms: time from one slot to the next, above 0; slots are its multiples since 1970.
        offset_ms: time from the close of a window to the earliest slot of its release, 0 or more.
    """

    every_ms: int
    offset_ms: int

    def first(self, time_ms: int) -> int:
        """The first slot at a time or after it."""
        return time_ms - time_ms % -self.every_ms

    def after(self, closed_ms: int) -> int:
        """The slot of what was closed, or ordered, at a time."""
        return self.first(closed_ms + self.offset_ms)

    def missed(self, slot_ms: int, now_ms: int) -> bool:
        """Whether it is too late for a slot: by more than a quarter of the length, which is left for waking up."""
        return now_ms > slot_ms + self.every_ms // 4
