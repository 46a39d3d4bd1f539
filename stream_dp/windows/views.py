"""What counting needs to know of a view: a plain value, made from the view's plan by the runtime."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Literal

from stream_dp.windows.shape import Shape

HANDED_ON_AT_ONCE = 32
"""Windows whose partial counts are handed on in one go when many close together."""

Clock = Literal["wall", "event"]


@dataclass(frozen=True, slots=True)
class CountedView:
    """The counting side of a view; times in ms since the epoch, UTC."""

    name: str
    fingerprint: bytes
    """Digest of everything that may not change while counts are kept."""
    windows: Shape
    first_ms: int
    """Start of the first window that is counted."""
    grace_ms: int
    clock: Clock
    max_ahead_ms: int
    """An event later by more than this than the tick behind it is refused."""
    idle_ms: int
    """After this long without a watermark, an event clock goes on with the wall clock."""
    items_per_user: int
    """Most distinct items one user can add to a window; each counts once."""
    buckets: int
    needed: Callable[[Mapping[str, int]], Mapping[str, int]]
    """What of a bucket's exact counts the release needs; the rest is not sent on."""
    retention_ms: int
    domain: Container[str] | None = None
    """The keys that can be needed, where that is settled before a window is sealed; None: any."""

    def closed_before(self, clock_ms: int) -> int:
        """The start of the first window still open when the clock shows `clock_ms`: end + grace is not reached."""
        return max(self.first_ms, self.windows.first_open(clock_ms - self.grace_ms))
