"""The range of plausible times, which decides whether watermarks and the times of events in files are believed.

A time in a wrong unit is off by a factor of 1,000 or more, so it is outside this range: seconds read as milliseconds
are in 1970, and microseconds are tens of thousands of years ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

PLAUSIBLE_FROM_MS = 631_152_000_000
"""1990-01-01T00:00:00Z. Earlier times are believed only if a view has an earlier window."""
FIRST_MS = -62_135_596_800_000
"""0001-01-01T00:00:00Z. Earlier times are never believed, because they cannot be printed."""

BAD_WATERMARK = "bad_watermark"
"""Reason of a watermark that is not believed."""

_PER_MS = {"seconds": (1000, 1), "microseconds": (1, 1000), "nanoseconds": (1, 1_000_000)}
"""Factor and divisor that convert a number to milliseconds, by unit."""


class PlausibleTimes(NamedTuple):
    """Range of believed times, relative to a clock."""

    from_ms: int
    max_ahead_ms: int
    """Longest time ahead of the clock that is believed."""

    @classmethod
    def of(cls, starts_ms: Iterable[int | None], max_aheads_ms: Iterable[int]) -> Self:
        """Return the range for the views of a source.

        Args:
            starts_ms: start of the first window of each view; None where that is not known. Without views, old times
                are believed: a view that is added later may have old windows.
            max_aheads_ms: `max_ahead` of each view.
        """
        starts = list(starts_ms)
        is_old = not starts or any(start is not None and start < PLAUSIBLE_FROM_MS for start in starts)
        return cls(FIRST_MS if is_old else PLAUSIBLE_FROM_MS, max(max_aheads_ms, default=0))

    def until(self, now_ms: int) -> int:
        """Return the last believed time when the clock shows `now_ms`."""
        return now_ms + self.max_ahead_ms

    def has(self, time_ms: int, now_ms: int) -> bool:
        """Return True if a time is believed when the clock shows `now_ms`."""
        return self.from_ms <= time_ms <= self.until(now_ms)

    def check_watermarks(
        self, watermarks: Sequence[tuple[int, int]], now_ms: int
    ) -> tuple[list[tuple[int, int]], list[tuple[int, str]]]:
        """Separate watermarks that are believed from those that are refused.

        Workers pass the time of the tick after the chunk, which is in the log. With their own clock, two workers, or
        one that reads the chunk again, could decide differently.

        Args:
            watermarks: (offset, time in ms) in order.
            now_ms: the time of the tick.

        Returns:
            The believed watermarks, and (offset, reason) of the others.
        """
        believed: list[tuple[int, int]] = []
        refused: list[tuple[int, str]] = []
        for offset, time_ms in watermarks:
            if self.has(time_ms, now_ms):
                believed.append((offset, time_ms))
            else:
                refused.append((offset, BAD_WATERMARK))
        return believed, refused

    def unit_of(self, number: int, now_ms: int) -> str:
        """Return the unit, other than ms, in which a number would be a believed time; empty if there is none."""
        for unit, (factor, divisor) in _PER_MS.items():
            if self.has(number * factor // divisor, now_ms):
                return unit
        return ""
