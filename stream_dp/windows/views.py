"""What counting needs to know of a view: a plain value, made from the view's plan by the runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HANDED_ON_AT_ONCE = 32
"""Windows whose partial counts are handed on in one go when many close together."""

Clock = Literal["wall", "event"]


@dataclass(frozen=True, slots=True)
class CountedView:
    """The counting side of a view; times in ms since the epoch, UTC."""

    name: str
    fingerprint: bytes
    """Digest of everything that may not change while counts are kept."""
    size_ms: int
    start_ms: int
    """Start of the first window; windows tile the time from here on."""
    grace_ms: int
    clock: Clock
    max_ahead_ms: int
    """An event later than the wall clock by more than this is refused."""
    idle_ms: int
    """After this long without a watermark, an event clock goes on with the wall clock."""
    items_per_user: int
    """Most distinct items one user can add to a window; each counts once."""
    buckets: int
    keep: int | None
    """How many items of a bucket are handed to the release: the exact top `keep`, or None for all."""
    retention_ms: int

    def window_of(self, time_ms: int) -> int:
        """The start of the window that a time falls into."""
        return time_ms - (time_ms - self.start_ms) % self.size_ms

    def closed_before(self, clock_ms: int) -> int:
        """The start of the first window still open when the clock shows `clock_ms`: end + grace is not reached."""
        return max(self.start_ms, self.window_of(clock_ms - self.grace_ms))
