"""The distinct contributions of a file of past events, window by window: exact and raw, for planning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.config.plan import ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.windows.durations import format_time
from stream_dp.windows.events import Decoded
from stream_dp.windows.shapes.shape import Shape

Ints = NDArray[np.int64]

_OFF_LIST = 1 << 62
MOST_CONTRIBUTIONS = 50_000_000
"""Of one window length; an event of windows that overlap counts in each."""
MOST_WINDOWS = 1_000_000
"""Largest number of windows of a view whose releases make a list, or that counts such a list: each window takes memory.
In other views, only windows with contributions do."""


class EventColumns:
    """Users, times and items of the contributions to a view, and to the one that finds its keys, in log order."""

    def __init__(self, view: ViewPlan, views: Sequence[str]) -> None:
        """Set up the columns; `take` fills them.

        Args:
            view: the view.
            views: the names of all views of its source.
        """
        names = [view.name] if view.kind.made_of is None else [view.name, view.kind.made_of.view]
        self._at = {name: views.index(name) for name in names}
        self._user_ids: dict[bytes, int] = {}
        self._item_ids: dict[str, int] = {}
        self._chunks: dict[str, list[tuple[Ints, Ints, Ints]]] = {name: [] for name in names}
        self._counted: dict[object, WindowCounts] = {}

    def take(self, decoded: Decoded) -> None:
        """Append the events of a chunk."""
        users, items = self._user_ids, self._item_ids
        for name, at in self._at.items():
            column = decoded.columns[at]
            found = (
                [users.setdefault(user, len(users)) for user in column.users],
                column.times,
                [items.setdefault(item, len(items)) for item in column.items],
            )
            user, time, item = (np.array(one, np.int64) for one in found)
            self._chunks[name].append((user, time, item))

    @property
    def items(self) -> Sequence[str]:
        """The items by their numbers."""
        return list(self._item_ids)

    def arrays(self, view: str) -> tuple[Ints, Ints, Ints]:
        """Return users, times and items of a view, by number."""
        chunks = self._chunks[view]
        users, times, items = zip(*chunks, strict=True) if chunks else ([], [], [])
        return tuple(np.concatenate([np.empty(0, np.int64), *one]) for one in (users, times, items))  # type: ignore[return-value]

    def counted(self, view: ViewPlan, until_ms: int) -> WindowCounts:
        """Return what `count_windows` does, counted once for all settings with the same windows.

        Raises:
            ConfigError: as there, no window is over, or the columns are those of other views.
        """
        if view.name not in self._at:
            raise ConfigError(f"the events of view {view.name} were not read; name that view in the file")
        showing = view.kind.showing
        listed = None if showing is None or showing.listed is None else showing.listed.version
        key = view.name, view.windows, view.window.first_ms, view.window.grace_ms, until_ms, listed
        if key not in self._counted:
            self._counted[key] = count_windows(self, view, until_ms)
        if not self._counted[key].windows:
            raise ConfigError(
                f"no window of view {view.name} is over at the end of the history; give a later --until, or shorter "
                "windows"
            )
        return self._counted[key]


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """The distinct contributions of all windows, from which the counts under any bound follow.

    A cell is a window and an item that some user had in it. Cells are in the order of windows, and in a window the most
    frequent item comes first. Windows are numbered from 0 in the order of their starts, including those without a cell.

    Attributes:
        windows: number of windows.
        first_ms: start of the first window.
        open_ms: start of the first window that is not over.
        window: of each cell, the number of its window.
        item: of each cell, the number of its item.
        users: of each cell, the number of users, without a bound.
        place: of each cell, how many are before it in its window.
        ranks: by cell, of each of its users how many other items the user had earlier in the window; `_OFF_LIST` where
            the item is off a fixed list, since the items of the list count as if there were no others.
        entered: likewise, how many windows of the period the user had entered before; of those of one tiling.
        begins: of each cell, where its ranks begin.
    """

    windows: int
    first_ms: int
    open_ms: int
    window: Ints
    item: Ints
    users: Ints
    place: Ints
    ranks: Ints
    entered: Ints
    begins: Ints

    def bounded(self, view: ViewPlan) -> Ints:
        """Return the counts of the cells as a view bounds them: of a user the first items and the first windows."""
        if not len(self.begins):
            return self.users
        counts = self.ranks < view.items_per_user
        if view.windows_per_user is not None:
            counts &= self.entered < view.windows_per_user // view.windows.shape.at_once
        return np.add.reduceat(counts.astype(np.int64), self.begins)


def count_windows(columns: EventColumns, view: ViewPlan, until_ms: int) -> WindowCounts:
    """Count the distinct contributions of every window that is over, as `bound_chunk` admits them in order of time.

    Args:
        columns: of the view.
        view: the view; the history has windows of its shape.
        until_ms: the history is complete up to this time.

    Raises:
        ConfigError: a window is made of panes, or there are too many contributions.
    """
    shape = view.windows.shape
    if view.window.shape.is_sum or view.window.shape.tells_totals:
        raise ConfigError("windows of panes cannot be planned; use `stream-dp replay`", f"views.{view.name}.window")
    users, times, items = columns.arrays(view.name)
    listed = on_list(view, columns.items)
    if len(times) * shape.at_once > MOST_CONTRIBUTIONS:
        raise ConfigError(f"the windows have more than {MOST_CONTRIBUTIONS:,} contributions", f"views.{view.name}")
    first_ms = view.window.first_ms
    if first_ms is None:
        first_ms = shape.start_of(int(times.min())) if len(times) else 0
    open_ms = shape.first_open(until_ms - view.window.grace_ms)
    last_ms = int(times.max()) if len(times) else 0
    # An unfinished window matters only for the bound on a user's windows, so only if its period has a finished one.
    period_end_ms = view.ledger.periods.end(view.ledger.periods.start_of(open_ms))
    end_ms = max(open_ms, min(last_ms + 1, period_end_ms))
    sorted_times = np.sort(times)
    start_ms = shape.first_from(first_ms)
    found = []
    for tiling in shape.tilings:
        starts = [
            start for start in _occupied_starts(tiling, sorted_times, first_ms, end_ms) if view.windows.has(start)
        ]
        if not starts:
            continue
        numbers = np.array([view.windows.begun(start_ms, start) for start in starts], np.int64)
        ends = np.array([tiling.end(start) for start in starts], np.int64)
        at = np.searchsorted(np.array(starts, np.int64), times, "right") - 1
        inside = np.flatnonzero((at >= 0) & (times < ends[at]))
        window = at[inside]
        user = users[inside]
        item = items[inside]
        periods = np.array([view.ledger.periods.start_of(start) for start in starts], np.int64)
        entered = np.zeros(len(inside), np.int64)
        some = listed[item]
        # Windows that are not over are included: a user may be in both kinds.
        entered[some] = _entered(window[some], user[some], periods[window[some]])
        is_over = window < sum(start < open_ms for start in starts)
        found.append((numbers[window[is_over]], user[is_over], item[is_over], entered[is_over]))
    empty = (np.empty(0, np.int64),) * 4
    window, user, item, entered = (np.concatenate(one) for one in zip(empty, *found, strict=True))
    bounds = view.windows.begun(start_ms, open_ms), start_ms, open_ms
    return _counted(bounds, window, user, item, entered, listed)


def _occupied_starts(tiling: Shape, sorted_times: Ints, first_ms: int, until_ms: int) -> Iterator[int]:
    """Yield the starts, within limits, of the windows of a tiling that contain at least one time."""
    at = int(np.searchsorted(sorted_times, tiling.first_from(first_ms)))
    while at < len(sorted_times):
        start = tiling.start_of(int(sorted_times[at]))
        if start >= until_ms:
            return
        yield start
        at = int(np.searchsorted(sorted_times, tiling.end(start)))


def closing_times(view: ViewPlan, counted: WindowCounts) -> Ints:
    """Return when each window of a view closes.

    Raises:
        ConfigError: there are too many windows.
    """
    if counted.windows > MOST_WINDOWS:
        raise ConfigError(
            f"there are {counted.windows:,} windows up to {format_time(counted.open_ms)}; with a list made of releases "
            f"the limit is {MOST_WINDOWS:,}. Choose a shorter part of the history (--from, --until), or longer windows",
            f"views.{view.name}.window.size",
        )
    shape = view.window.shape
    starts = [start for start in shape.starts(counted.first_ms, counted.open_ms) if view.windows.has(start)]
    return np.array([shape.end(start) + view.window.grace_ms for start in starts], np.int64)


def on_list(view: ViewPlan, items: Sequence[str]) -> NDArray[np.bool_]:
    """Return for each item whether a view counts it, by a list that is fixed."""
    domain = None if view.kind.topics else view.kind.domain({})
    return np.array([domain is None or name in domain for name in items], bool)


def _entered(window: Ints, user: Ints, period: Ints) -> Ints:
    """Return for each contribution how many windows of its period its user had entered before its window."""
    if not len(window):
        return window
    periods, at = np.unique(period, return_inverse=True)
    of_user = user * len(periods) + at
    _, first, pair = np.unique(of_user * (1 + int(window.max())) + window, return_index=True, return_inverse=True)
    order = np.lexsort((first, of_user[first]))
    places = np.empty(len(first), np.int64)
    places[order] = _places(of_user[first][order])
    return places[pair]


def _counted(
    bounds: tuple[int, int, int],
    window: Ints,
    user: Ints,
    item: Ints,
    entered: Ints,
    listed: NDArray[np.bool_],
) -> WindowCounts:
    """Count contributions in the order of the log.

    Args:
        bounds: the first three fields of the result.
        window: of each contribution, the number of its window.
        user: of each, the number of its user.
        item: of each, the number of its item.
        entered: of each, how many windows of the period its user had entered before.
        listed: of each item, whether the view counts it.
    """
    most = 1 + (int(item.max()) if len(item) else 0)
    _, group = np.unique(window * (1 + (int(user.max()) if len(user) else 0)) + user, return_inverse=True)
    _, first = np.unique(group * most + item, return_index=True)  # the first contribution of each user, window and item
    first.sort()
    order = first[np.lexsort((~listed[item[first]], group[first]))]
    ranks = np.where(listed[item[order]], _places(group[order]), _OFF_LIST)
    cell = window[order] * most + item[order]
    by_cell = np.argsort(cell, kind="stable")
    cells, begins, users = np.unique(cell[by_cell], return_index=True, return_counts=True)
    ranked = np.lexsort((-users, cells // most))
    place = np.empty(len(cells), np.int64)
    place[ranked] = _places((cells // most)[ranked])
    return WindowCounts(
        *bounds, cells // most, cells % most, users, place, ranks[by_cell], entered[order][by_cell], begins
    )


def _places(sorted_groups: Ints) -> Ints:
    """Return for each element of sorted groups how many of its group are before it."""
    at = np.arange(len(sorted_groups))
    is_first = np.append(True, sorted_groups[1:] != sorted_groups[:-1])[: len(at)]
    return at - np.maximum.accumulate(np.where(is_first, at, 0)) if len(at) else at
