"""Settings of a view that counting needs: a plain value, made from the view's plan by the runtime."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stream_dp.errors import ParameterError
from stream_dp.windows.catch_up import CatchUpRule
from stream_dp.windows.plausible_times import PlausibleTimes
from stream_dp.windows.shapes.shape import Interval, Shape

HANDED_ON_AT_ONCE = 32
"""Windows whose partial counts are handed on in one go when many close together."""

Clock = Literal["wall", "event"]
Pacing = Literal["none", "even"]
"""Of the windows of a period that a user may be in: none, or so many more from day to day."""

_EDITION = "@"
"""Stands in the names of states, and in no name of a view."""


def state_name(view: str, edition: int) -> str:
    """Return the name of a definition's state: the view's, with the number of the edition behind the first."""
    return view if edition == 1 else f"{view}{_EDITION}{edition}"


def view_of(state: str) -> str:
    """The view that a state belongs to, by its name: the inverse of `state_name`."""
    return state.partition(_EDITION)[0]


@dataclass(frozen=True, slots=True)
class ParticipationBound:
    """Bound on the windows of each period that a user is counted in.

    Attributes:
        most: number of windows; a multiple of the number of windows that an event is in.
        periods: the periods.
        pacing: whether `most` is reached bit by bit.
    """

    most: int
    periods: Shape
    pacing: Pacing = "none"

    def period_of(self, unit: Interval) -> Interval | None:
        """Return the period that is charged for what is bounded together; None where none is, and it is not released.

        Args:
            unit: the window, pane, or window of panes that are charged together.
        """
        period = self.periods.interval(unit.start_ms)
        return period if period.holds(unit) else None

    def most_by(self, period: Interval, time_ms: int, at_once: int) -> int:
        """Return how many windows of one tiling a user may be in by the time of an event.

        Args:
            period: the period of the event's window.
            time_ms: of the event.
            at_once: number of windows that an event is in.
        """
        most = self.most // at_once
        if self.pacing == "none":
            return most
        passed = period.share(max(0, time_ms - period.start_ms))
        return min(most, -(-most * passed.numerator // passed.denominator) + -(-most // 10))


@dataclass(frozen=True, slots=True)
class CountedView:
    """The counting side of a view, or of one of the definitions of a view; times in ms since the epoch, UTC."""

    name: str
    """Name of its state (`state_name`)."""
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
    """After this long without a watermark, an event clock advances as fast as the wall clock."""
    items_per_user: int
    """Most distinct items one user can add to a window; each counts once."""
    buckets: int
    needed: Callable[[Mapping[str, int]], Mapping[str, int]]
    """Filter of a bucket's exact counts: what the release needs; the rest is not sent on."""
    retention_ms: int
    domain: Container[str] | None = None
    """The keys that are counted, where that is settled before a window is sealed; None: any."""
    bounds: Shape | None = None
    """Longer intervals, each of whole windows, in which `items_per_user` holds; None: it holds in every window."""
    item: str = ""
    """The field that is counted."""
    has_lists: bool = False
    """True if it is a list of items."""
    until_ms: int | None = None
    """Start of the first window that is another definition's, or nobody's; None: there is none."""
    origin_ms: int | None = None
    """Where the first definition of the view began, if that is another one."""
    participation: ParticipationBound | None = None
    """Bound on the windows of a period that a user is counted in; None: there is none."""
    weights: Sequence[int] = ()
    """By the number of a user's items in a window, from 1 on, what the user adds to each of them; empty: 1."""
    degrees: Sequence[str] = ()
    """The one key that a user with 1, 2, ... items in a window adds 1 to, in place of the items; empty: none."""
    catch_up_ms: int = 0
    """Time that the clock stands still after a silence (`windows.catch_up`); 0: not at all."""

    def __post_init__(self) -> None:
        """Refuse to group the items of users by window where they are bounded over several.

        Raises:
            ParameterError: a user's first window of several may depend on how many items the user has in later ones.
        """
        if self.groups_users and self.bounds is not None:
            raise ParameterError("items of a user are bounded over several windows and cannot be grouped in each")

    @property
    def groups_users(self) -> bool:
        """True if what a user adds to a count depends on how many items they have in the window."""
        return bool(self.weights or self.degrees)

    @property
    def view(self) -> str:
        """The view's name, which readers and operators know."""
        return view_of(self.name)

    def closed_before(self, clock_ms: int) -> int:
        """The start of the first window still open when the clock shows `clock_ms`: end + grace is not reached."""
        before = max(self.first_ms, self.windows.first_open(clock_ms - self.grace_ms))
        return before if self.until_ms is None else min(before, self.until_ms)

    def ends(self, tiling: Shape) -> int | None:
        """The first moment behind the last of its windows that are of a tiling, None if none is the last."""
        return None if self.until_ms is None else tiling.end(tiling.start_of(self.until_ms - 1))

    def out_of_time(self, time_ms: int, closed_before_ms: int, *, is_oldest: bool) -> str:
        """Why an event that is too early or too late is refused; nothing if it is an earlier definition's to say.

        Args:
            time_ms: of the event.
            closed_before_ms: start of the first window that is open.
            is_oldest: whether no earlier definition of the view is open: what is too early for this one is for all.
        """
        if time_ms >= closed_before_ms:
            return "future"
        if time_ms < self.first_ms and not is_oldest:
            return ""
        return "late" if time_ms >= (self.first_ms if self.origin_ms is None else self.origin_ms) else "before_start"

    def asks_for(self, start_ms: int) -> bool:
        """Return True if a window that starts at a time is its own."""
        return self.first_ms <= start_ms and (self.until_ms is None or start_ms < self.until_ms)

    def accepts_like(self, other: CountedView) -> bool:
        """Return True if the same contributions of the same records are accepted by it as by another one."""
        return self._accepts == other._accepts

    @property
    def _accepts(self) -> tuple[object, ...]:
        # Who is counted in how many windows is known of one definition alone: none goes on with another's.
        own = self.name if self.participation else ""
        return self.windows, self.bounds, self.items_per_user, self.item, self.has_lists, self.domain, own

    def admits_like(self, other: CountedView) -> bool:
        """Return True if, besides, the same events are in time for it, by clocks that show the same."""
        return self.accepts_like(other) and self._admits == other._admits

    @property
    def _admits(self) -> tuple[object, ...]:
        times = self.grace_ms, self.max_ahead_ms, self.idle_ms, self.first_ms, self.until_ms, self.origin_ms
        return self.clock, self.catch_up_rule, *times

    @property
    def catch_up_rule(self) -> CatchUpRule:
        """Rule for the clock after a silence."""
        return CatchUpRule(self.grace_ms, self.catch_up_ms)

    def unit(self, start_ms: int, tiling: Shape) -> Interval:
        """Return what a user enters with a contribution to a window: that window, or what is bounded together with it.

        Args:
            start_ms: start of the window.
            tiling: of the window.
        """
        return Interval(start_ms, tiling.end(start_ms)) if self.bounds is None else self.bounds.interval(start_ms)

    def bounded_in(self, start_ms: int) -> int:
        """The start of the interval in which contributions to a window are bounded."""
        return start_ms if self.bounds is None else self.bounds.start_of(start_ms)

    def is_over(self, start_ms: int, stop_ms: int) -> bool:
        """Return True if no window of an interval in which contributions are bounded is left before a start.

        Args:
            start_ms: start of the interval.
            stop_ms: start of the first window that is not over.
        """
        return start_ms < stop_ms if self.bounds is None else self.bounds.end(start_ms) <= stop_ms


def plausible_times(views: Sequence[CountedView]) -> PlausibleTimes:
    """Return the range of plausible times for watermarks of a source.

    Args:
        views: the views on the source, with every definition of each.
    """
    return PlausibleTimes.of((view.first_ms for view in views), (view.max_ahead_ms for view in views))
