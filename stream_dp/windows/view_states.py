"""What the counter of a partition holds of a view in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from stream_dp.windows.count_rows import LaneClock, ViewMark
from stream_dp.windows.open_windows import OpenWindow
from stream_dp.windows.views import CountedView

_NOBODY_THERE_MS = 60_000
"""Ticks further apart tell of an outage, which may have kept producers from writing: no idle time of the source."""


@dataclass(slots=True)
class ViewState:
    """A view, how far it has come, and its open windows by start."""

    view: CountedView
    mark: ViewMark
    windows: dict[int, OpenWindow] = field(default_factory=dict)
    """By start of where contributions are bounded: a window, or a longer stretch of them."""
    rows: Counter[int] = field(default_factory=Counter)
    """How many journal rows there are of each window."""

    def forget(self, stop_ms: int) -> list[tuple[int, int]]:
        """Forget what bounds only windows that were handed on: all before the one that starts at `stop_ms`.

        Returns:
            Starts of the windows whose journals nobody needs any more, and how many rows these have.
        """
        for start in [start for start in self.windows if self.view.is_over(start, stop_ms)]:
            self.windows.pop(start).drop()
        over = sorted(start for start in self.rows if self.view.is_over(self.view.bounded_in(start), stop_ms))
        return [(start, self.rows.pop(start)) for start in over]

    @property
    def is_over(self) -> bool:
        """Whether all its windows were handed on, and no more will follow."""
        return self.view.until_ms is not None and self.mark.open_from_ms >= self.view.until_ms


def pass_time(view: CountedView, clock: ViewMark | LaneClock, now_ms: int, before_ms: int) -> None:
    """Set a clock by a tick, `before_ms` being the one before it."""
    if view.clock == "wall":
        clock.clock_ms = max(clock.clock_ms, now_ms)
    elif clock.heard_ms is None or now_ms - before_ms > _NOBODY_THERE_MS:
        clock.heard_ms = now_ms
    elif now_ms - clock.heard_ms >= view.idle_ms:
        clock.clock_ms = max(clock.clock_ms, min(clock.clock_ms + now_ms - clock.heard_ms, now_ms))
        clock.heard_ms = now_ms
