"""The windows of a view, as they are planned."""

from __future__ import annotations

from dataclasses import dataclass

from stream_dp.windows.blocks import Running
from stream_dp.windows.shape import Paned, Shape, Stretch, Tiling
from stream_dp.windows.views import Clock


@dataclass(frozen=True)
class WindowPlan:
    """When windows open, close and are forgotten. All times in milliseconds.

    Attributes:
        shape: how what is counted, noised and charged by itself cuts the time: windows or, of windows that are made of
            panes, the panes.
        made_of_panes: how those windows cut it, None where there are no panes. It is no part of a view's identity.
        first_ms: start of the first window since epoch, None when it is recorded once, at run time.
        grace_ms: how long after its end a window still takes late events.
        clock: "wall" closes windows by the clock of the machine, "event" by the watermark records of the source. No
            event moves a clock: it would make other users' events late.
        max_ahead_ms: an event further ahead of the tick behind it than this is refused.
        idle_ms: after this long without a watermark, a partition's event clock goes on with the wall clock.
        retention_ms: how long after its end a sealed window can still be sharpened.
        running: how the windows are made up of which a total is told at the end of every pane; `shape` is that of the
            panes then. None where a window is told of when it is over.
    """

    shape: Shape
    first_ms: int | None
    grace_ms: int
    clock: Clock
    max_ahead_ms: int
    idle_ms: int
    retention_ms: int
    made_of_panes: Paned | None = None
    running: Running | None = None

    @property
    def released(self) -> Shape:
        """How the windows cut the time that are released."""
        if self.running is not None:
            return self.running.windows
        return self.shape if self.made_of_panes is None else self.made_of_panes.windows

    @property
    def panes(self) -> int:
        """Of how many panes a window is; 1: it is counted by itself."""
        return 1 if self.made_of_panes is None else self.made_of_panes.count

    @property
    def kept_ms(self) -> int:
        """How long after its end what was sealed is kept, for all that is released of it."""
        if self.running is not None:
            return self.running.kept(self.retention_ms)
        return self.retention_ms if self.made_of_panes is None else self.made_of_panes.kept(self.retention_ms)

    @property
    def told(self) -> Tiling:
        """How often something is released: the grid of the windows, or the panes where each tells a total."""
        return self.released.grid if self.running is None else self.running.panes

    @property
    def summands(self) -> int:
        """Of how many noisy counts, at most, a count that is released is the sum."""
        return self.panes if self.running is None else self.running.most_blocks

    def pays(self, start_ms: int) -> bool:
        """Whether something is charged with a window: with each, but of the panes of one only with the first."""
        return self.running is None or self.running.first(start_ms) == start_ms

    @property
    def whole(self) -> Shape:
        """How what is paid for together cuts the time: the window, or all panes of a total that is told of at each."""
        return self.shape if self.running is None else self.running.windows

    def charged(self, start_ms: int) -> Stretch:
        """What is paid for together: the window, or all panes of the one that a pane is in."""
        return self.whole.stretch(start_ms)

    def at_age(self, start_ms: int, age_ms: int) -> int:
        """When a window is so old, which is told from its end; a pane is with all that is paid for together with it."""
        return self.charged(start_ms).end_ms + age_ms

    def first_younger(self, age_ms: int, now_ms: int) -> int:
        """Start of the first window, or of what is paid for together, for which `at_age` is still to come."""
        return self.whole.first_open(now_ms - age_ms)
