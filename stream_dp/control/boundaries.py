"""From which window on new settings of a view hold: the first one that is ahead of its clock and cuts no other.

Windows keep the settings that they were opened with. So the first window under new settings begins where one under
the former ones ends: at a start that both have in common. It stands in the record, whatever anybody's clock shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import ConfigError, Fault
from stream_dp.records.statement import LedgerStatement
from stream_dp.windows.durations import format_time

TICK_MS = 1000
LEAD_MS = 10_000 + TICK_MS
"""Least lead over its clock at which new settings begin: workers learn of them by a tick."""


@dataclass(frozen=True)
class Situation:
    """State of an application whose settings are to change.

    Attributes:
        now_ms: the wall clock.
        holding: the plan that its settings come to, with every definition of every view (`plan_holding`).
        clocks: by view, what its clock shows in the partition that is ahead, as far as workers have said.
        workers: whether any runs.
        statements: what the ledgers say of their newest periods.
    """

    now_ms: int
    holding: Plan
    clocks: Mapping[str, int] = field(default_factory=dict)
    workers: bool = False
    statements: Sequence[LedgerStatement] = ()

    def clock(self, view: ViewPlan) -> int | None:
        """Return the known clocks of a view; one that is not counted has those of its source."""
        if view.window.clock == "wall":
            return self.now_ms
        if self.is_counted(view.view) and view.view in self.clocks:
            return self.clocks[view.view]
        alike = [one for one in self.holding.views.values() if one.source.name == view.source.name]
        shown = {one.view: self.clocks[one.view] for one in alike if one.view in self.clocks}
        return max(shown.values(), default=None)

    def is_counted(self, view: str) -> bool:
        """Return True if there is a view of this name, which was not taken out."""
        return any(one.until_ms is None for one in self.definitions(view))

    def definitions(self, view: str) -> list[ViewPlan]:
        """The definitions of a view so far, also of one that was taken out, in the order in which they were decided."""
        return [one for one in self.holding.views.values() if one.view == view]


def boundary(
    latter: ViewPlan,
    situation: Situation,
    from_ms: int | None = None,
    *,
    is_taken_out: bool = False,
    backfill: bool = False,
) -> int:
    """Start of the first window under new settings of a view.

    Args:
        latter: the view as it is to be; of one that is taken out, as it is.
        situation: what is known of the application.
        from_ms: no window that begins earlier is under the new settings; None: as soon as may be.
        is_taken_out: it is to be no more: the end of its last window is looked for.
        backfill: a view that is new may begin with windows that are over.

    Raises:
        ConfigError: there is no such window, it would be one of the past, or nobody says what the view's clock shows.
    """
    asked = situation.definitions(latter.view)
    start_ms = None if is_taken_out else latter.window.first_ms
    if not asked and start_ms is not None and (backfill or start_ms > situation.now_ms):
        return start_ms
    ended = [] if situation.is_counted(latter.view) else [one.until_ms for one in asked if one.until_ms is not None]
    from_ms = max(_earliest(latter, asked, situation, from_ms), start_ms or 0, *ended)  # clocks may be told late
    moves = {one.begins_ms for one in asked} | {one.until_ms + 1 for one in asked if one.until_ms is not None}
    moves = {at_ms for at_ms in moves if at_ms > from_ms}
    for at_ms, until_ms in pairwise([from_ms, *sorted(moves), None]):
        assert at_ms is not None  # noqa: S101 - the last one is the end of a pair
        former = _in_force(asked, at_ms)
        own = latter.window.whole.grid
        first_ms = own.first_from(at_ms) if former is None else former.window.whole.grid.first_common(own, at_ms)
        if first_ms is not None and (until_ms is None or first_ms < until_ms):
            return first_ms
    raise ConfigError(
        [
            Fault(
                f"views.{latter.view}.window",
                "no window under the new settings begins where one under the present ones ends, so some would be cut; "
                "choose a size and a start of which the windows meet",
            )
        ]
    )


def _in_force(asked: Sequence[ViewPlan], time_ms: int) -> ViewPlan | None:
    """The definition that has a window that ends at a time, or goes on over it; None if there is none."""
    open_then = [one for one in asked if one.begins_ms <= time_ms and (one.until_ms is None or time_ms <= one.until_ms)]
    return open_then[-1] if open_then else None


def _earliest(latter: ViewPlan, asked: Sequence[ViewPlan], situation: Situation, from_ms: int | None) -> int:
    """The earliest time at which new settings of a view can begin to hold.

    Where watermarks move its clock, that is ahead of what the clock shows, whatever the time of day is. Where nobody
    counts the view it is later by `max_ahead`: events that have been read may be so far ahead. This only keeps losses
    rare: what a partition missed it refuses as lost, whatever is worked out here (`stream_dp.windows.handover`).
    """
    path = f"views.{latter.view}"
    shown = situation.clock(asked[-1] if asked else latter)
    if shown is None and from_ms is None:
        raise ConfigError(
            [
                Fault(
                    path,
                    "watermarks move its clock, and no worker says what that shows; say from when on the new settings "
                    "hold: --from TIME",
                )
            ]
        )
    if shown is not None and from_ms is not None and from_ms < shown:
        raise ConfigError(
            [
                Fault(
                    path,
                    f"--from {format_time(from_ms)} is past, its clock shows {format_time(shown)}: windows keep the "
                    "settings that they were opened with; name a later time, or none",
                )
            ]
        )
    lead_ms = LEAD_MS
    if latter.window.clock == "event" and not situation.is_counted(latter.view):
        lead_ms += latter.window.max_ahead_ms
    return max(from_ms or 0, 0 if shown is None else shown + lead_ms)
