"""Stretches of a history without events: where they are, and whether a replay can leave their windows out exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stream_dp.config.plan import ViewPlan
from stream_dp.kinds.kind import KindPlan

LONG_STRETCH = 200
"""Number of windows of all views. A replay leaves out a stretch with more windows than this. It takes a few seconds to
release this many, and half a second to leave them out, because the worker is started again."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time without events.

    Attributes:
        from_ms: all windows with earlier events are closed at this time.
        until_ms: the next event, or the end of the history.
        next_ms: by view, the start of the first window that is not left out.
    """

    from_ms: int
    until_ms: int
    next_ms: Mapping[str, int]


def stretch_between(views: Sequence[ViewPlan], last_ms: int | None, next_ms: int, until_ms: int) -> Stretch | None:
    """Return the stretch between two events, or None if few windows are in it.

    Args:
        views: the views that count the events.
        last_ms: time of the event before it; None: there is none, and the views begin with their first windows.
        next_ms: time of the event after it, or the end of the history.
        until_ms: the end of the history.
    """
    begins = {view.name: _first_start_ms(view, next_ms) for view in views}
    since_ms = min(begins.values()) if last_ms is None else last_ms
    step_ms = min(view.window.shape.grid.shortest_ms for view in views)
    if len(views) * ((next_ms - since_ms) // step_ms + 2) <= LONG_STRETCH:
        return None  # The usual case: this function is called for every event.
    from_ms = since_ms if last_ms is None else max(_last_close_ms(view, last_ms) for view in views)
    firsts: dict[str, int] = {}
    nexts: dict[str, int] = {}
    for view in views:
        shape = view.window.shape
        open_ms = shape.first_open(until_ms - view.window.grace_ms)
        nexts[view.name] = max(begins[view.name], min(shape.first_open(next_ms), open_ms))
        firsts[view.name] = max(begins[view.name], shape.first_open(from_ms - view.window.grace_ms))
    number = sum(view.windows.begun(firsts[view.name], nexts[view.name]) for view in views)
    if from_ms >= next_ms or number <= LONG_STRETCH:
        return None
    return Stretch(from_ms, next_ms, nexts)


def _first_start_ms(view: ViewPlan, time_ms: int) -> int:
    """Return the start of the first window of a view: as configured, or else the window that contains a time."""
    first_ms = view.window.first_ms
    return view.window.shape.start_of(time_ms) if first_ms is None else first_ms


def _last_close_ms(view: ViewPlan, time_ms: int) -> int:
    """Return when the last window that contains a time closes."""
    return view.window.shape.end(view.window.shape.start_of(time_ms)) + view.window.grace_ms


def why_all_windows(views: Sequence[ViewPlan], *, ordered: bool) -> str:
    """Return why no window can be left out; empty if windows without events change no other window.

    Args:
        views: the views that count the events.
        ordered: whether the rows are in order of time.
    """
    if not ordered:
        return "the rows are not in order of time; sort them"
    found = ((view.name, _why_dependent(view) or _closes_out_of_order(view, views)) for view in views)
    return next((f"{reason} (view {name})" for name, reason in found if reason), "")


def _closes_out_of_order(view: ViewPlan, views: Sequence[ViewPlan]) -> str:
    """Return what makes windows of a ledger close, and so be charged, in another order than they end."""
    graces = {one.window.grace_ms for one in views if one.ledger.fingerprint == view.ledger.fingerprint}
    return "windows of views of one ledger have different graces" if len(graces) > 1 else ""


def _why_dependent(view: ViewPlan) -> str:
    """Return what makes other windows of a view depend on those without events."""
    if view.window.shape.is_sum or view.window.shape.tells_totals:
        return "windows are made of panes"
    if view.kind.made_of is not None:
        return "the keys that are counted follow from earlier releases"
    if type(view.kind).keys_spent is not KindPlan.keys_spent:
        return "the cost of a window depends on its noise"
    if view.unlocks or view.sharpen is not None:
        return "released windows are sharpened later"
    return "windows get coarser levels when budget is short" if view.falls_back else ""
