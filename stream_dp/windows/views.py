"""What counting needs to know of a view: a plain value, made from the view's plan by the runtime."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Literal

from stream_dp.windows.shape import Shape, Tiling

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
    bounds: Tiling | None = None
    """Longer stretches, each of whole windows, in which `items_per_user` holds; None: it holds in every window."""

    def closed_before(self, clock_ms: int) -> int:
        """The start of the first window still open when the clock shows `clock_ms`: end + grace is not reached."""
        return max(self.first_ms, self.windows.first_open(clock_ms - self.grace_ms))

    def bounded_in(self, start_ms: int) -> int:
        """The start of the stretch in which contributions to a window are bounded."""
        return start_ms if self.bounds is None else self.bounds.start_of(start_ms)

    def is_over(self, start_ms: int, stop_ms: int) -> bool:
        """Whether no window of a stretch in which contributions are bounded is left, where the next starts at a time.

        Args:
            start_ms: start of the stretch.
            stop_ms: start of the first window that is not over.
        """
        return start_ms < stop_ms if self.bounds is None else self.bounds.end(start_ms) <= stop_ms
