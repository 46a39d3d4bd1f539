"""Expected accuracy of a view over a grid of settings, computed from raw past events: for planning, never for readers.

Nothing is drawn: every figure is a formula of the exact counts and of the law of the noise. So this module computes
with floats, and nothing of it decides or publishes a release.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stream_dp.config.loading import read_config
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.config.shares import Shares, lasts_ms
from stream_dp.config.yaml_data import with_value
from stream_dp.errors import ConfigError, StateError
from stream_dp.kinds.kind import Showing
from stream_dp.kinds.sealing import GaussianLevel, NoiseLevel, TruncatedLevel
from stream_dp.lossless.levels import noise_parameter
from stream_dp.operations.settings import tuned
from stream_dp.windows.events import Decoded

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Goal = Literal["true-keys", "error"]

MOST_POINTS = 1000
MOST_CONTRIBUTIONS = 50_000_000
"""Of one window length; an event of windows that overlap counts in each."""
RECALL_KEYS = 10
"""Keys whose recall is computed where a kind has no k."""
SAMPLED_WINDOWS = 30
"""Windows of a top-k, evenly spaced, in which the chance of every key is computed."""
NEGLIGIBLE = 1e-6
"""Keys that are shown more rarely are left out."""
ALIASES = {"window": "window.size"}


@dataclass(frozen=True, slots=True)
class Point:
    """A setting of the grid and its expected results, per window.

    Attributes:
        settings: the changed settings, as written in the grid.
        reason: why the setting is no valid plan; empty if it is one. Then all other figures are None.
        windows: number of windows of the history.
        recall: share of the k most frequent keys that are shown.
        k: that k.
        true_keys: number of keys shown that somebody has; of a top-k, that are among the k most frequent.
        false_keys: number of other keys shown.
        error: relative error of a shown count, median and 95th percentile; noise and bias together.
        noise: the same of the noise alone.
        bias: the same of the bounding of users alone.
        shown_from: users of a key that is shown half of the time in the median window; None: every key is shown.
        lasts_ms: how far into a period the budget of the view reaches.
        period_ms: length of the period.
        needed: epsilon that the ledger would have to promise for a recall; None: none was asked for, or out of reach.
    """

    settings: Mapping[str, str]
    reason: str = ""
    windows: int | None = None
    recall: float | None = None
    k: int | None = None
    true_keys: float | None = None
    false_keys: float | None = None
    error: tuple[float, float] | None = None
    noise: tuple[float, float] | None = None
    bias: tuple[float, float] | None = None
    shown_from: int | None = None
    lasts_ms: int | None = None
    period_ms: int | None = None
    needed: str | None = None

    @property
    def lasts(self) -> bool:
        """True if the budget pays for every window of a period."""
        return self.lasts_ms is not None and self.lasts_ms == self.period_ms


class EventColumns:
    """Users, times and items of the contributions to a view, in the order of the log."""

    def __init__(self, view: ViewPlan, views: Sequence[str]) -> None:
        """Set up the columns; `take` fills them.

        Args:
            view: the view.
            views: the names of all views of its source.
        """
        self._at = views.index(view.name)
        self._user_ids: dict[bytes, int] = {}
        self._item_ids: dict[str, int] = {}
        self._chunks: list[tuple[Ints, Ints, Ints]] = []

    def take(self, decoded: Decoded) -> None:
        """Append the events of a chunk."""
        column, users, items = decoded.columns[self._at], self._user_ids, self._item_ids
        found = (
            [users.setdefault(user, len(users)) for user in column.users],
            column.times,
            [items.setdefault(item, len(items)) for item in column.items],
        )
        user, time, item = (np.array(one, np.int64) for one in found)
        self._chunks.append((user, time, item))

    @property
    def items(self) -> Sequence[str]:
        """The items by their numbers."""
        return list(self._item_ids)

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Return users, times and items, by number."""
        users, times, items = zip(*self._chunks, strict=True) if self._chunks else ([], [], [])
        return tuple(np.concatenate([np.empty(0, np.int64), *one]) for one in (users, times, items))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """The distinct contributions of all windows, from which the counts under any bound follow.

    A cell is a window and an item that some user had in it. Cells are in the order of windows, and in a window the most
    frequent item comes first.

    Attributes:
        windows: number of windows.
        window: of each cell, the number of its window.
        item: of each cell, the number of its item.
        users: of each cell, the number of users, without a bound.
        place: of each cell, how many are before it in its window.
        ranks: by cell, of each of its users how many other items the user had earlier in the window.
        entered: likewise, how many windows of the period the user had entered before; of those of one tiling.
        begins: of each cell, where its ranks begin.
    """

    windows: int
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
        ConfigError: a window is made of panes, or windows overlap too often.
    """
    shape = view.windows.shape
    if view.window.shape.is_sum or view.window.shape.tells_totals:
        raise ConfigError("windows of panes cannot be planned; use `stream-dp replay`", f"views.{view.name}.window")
    users, times, items = columns.arrays()
    if len(times) * shape.at_once > MOST_CONTRIBUTIONS:
        raise ConfigError(f"the windows have more than {MOST_CONTRIBUTIONS:,} contributions", f"views.{view.name}")
    first_ms = view.window.first_ms
    if first_ms is None:
        first_ms = shape.start_of(int(times.min())) if len(times) else 0
    open_ms = shape.first_open(until_ms - view.window.grace_ms)
    end_ms = max(open_ms, int(times.max()) + 1) if len(times) else open_ms
    found, count = [], 0
    for tiling in shape.tilings:
        starts = [start for start in tiling.starts(tiling.first_from(first_ms), end_ms) if view.windows.has(start)]
        over = sum(start < open_ms for start in starts)
        if starts:
            ends = np.array([tiling.end(start) for start in starts], np.int64)
            at = np.searchsorted(np.array(starts, np.int64), times, "right") - 1
            inside = np.flatnonzero((at >= 0) & (times < ends[at]))
            window, user, item = at[inside], users[inside], items[inside]
            periods = np.array([view.ledger.periods.start_of(start) for start in starts], np.int64)
            entered = _entered(window, user, periods[window])  # also of those that are not over: a user may be in both
            is_over = window < over
            found.append((window[is_over] + count, user[is_over], item[is_over], entered[is_over]))
            count += over
    empty = (np.empty(0, np.int64),) * 4
    window, user, item, entered = (np.concatenate(one) for one in zip(empty, *found, strict=True))
    return _counted(count, window, user, item, entered)


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


def _counted(windows: int, window: Ints, user: Ints, item: Ints, entered: Ints) -> WindowCounts:
    """Count contributions in the order of the log."""
    most = 1 + (int(item.max()) if len(item) else 0)
    _, group = np.unique(window * (1 + (int(user.max()) if len(user) else 0)) + user, return_inverse=True)
    _, first = np.unique(group * most + item, return_index=True)  # the first contribution of each user, window and item
    first.sort()
    order = first[np.argsort(group[first], kind="stable")]
    ranks = _places(group[order])
    cell = window[order] * most + item[order]
    by_cell = np.argsort(cell, kind="stable")
    cells, begins, users = np.unique(cell[by_cell], return_index=True, return_counts=True)
    ranked = np.lexsort((-users, cells // most))
    place = np.empty(len(cells), np.int64)
    place[ranked] = _places((cells // most)[ranked])
    return WindowCounts(
        windows, cells // most, cells % most, users, place, ranks[by_cell], entered[order][by_cell], begins
    )


def _places(sorted_groups: Ints) -> Ints:
    """Return for each element of sorted groups how many of its group are before it."""
    at = np.arange(len(sorted_groups))
    is_first = np.append(True, sorted_groups[1:] != sorted_groups[:-1])[: len(at)]
    return at - np.maximum.accumulate(np.where(is_first, at, 0)) if len(at) else at


@dataclass(frozen=True, slots=True)
class _Shown:
    """Cells of a history with the chance that each is shown, and the law of the noise of its count."""

    chance: Floats
    counts: Ints
    users: Ints
    reaches: Reaching
    least: float
    """The smallest noisy count that is shown; minus infinity where the count does not decide."""


Reaching = Callable[[Floats], Floats]
"""The chance that noise is at least t, for whole t >= 1."""


def reaching(level: NoiseLevel) -> Reaching:
    """Return the law of the noise of a level."""
    if isinstance(level, GaussianLevel):
        tails = np.array([float(chance) for chance in level.tails]) / 2
        return lambda t: tails[np.minimum(t, len(tails) - 1).astype(int)]
    ratio = float(noise_parameter(level.threshold))
    end = ratio ** (level.law.largest + 1) if isinstance(level, TruncatedLevel) else 0.0
    return lambda t: np.maximum(ratio**t - end, 0) / (1 + ratio - 2 * end)


def shown_at_least(counts: Ints, reaches: Reaching, least: float | Floats) -> Floats:
    """Return the chance that a count with noise is at least a number.

    Args:
        counts: the counts.
        reaches: the law of the noise, which is symmetric.
        least: the number.
    """
    away = np.maximum(least - counts, -1e9)
    tail = reaches(np.where(away > 0, away, 1 - away))
    return np.where(away > 0, tail, 1 - tail)


def chances_of_top_k(counts: Ints, epsilon: float, bottom: float, k: int) -> Floats:
    """Return the chance of each candidate of a top-k with Gumbel noise to be among the first k draws, before bottom.

    Item i has an exponential clock of rate e^(epsilon count_i), bottom one of rate e^(epsilon bottom); an item is drawn
    if its clock rings before that of bottom and fewer than k others ring before it. The integral over the logarithm of
    that time is a trapezoid sum; its error is below 1e-6. Source: specs/topk 2.2, Lemma 5.4.

    Args:
        counts: of the candidates, falling.
        epsilon: of a draw.
        bottom: h_bot.
        k: number of draws.
    """
    scores = epsilon * (counts - bottom)
    rival = max(scores[k - 1], 0.0) if len(counts) > k else 0.0
    near = scores[scores > rival - _FAR]
    found = np.zeros(len(counts))
    if len(near) <= k:
        found[: len(near)] = 1 / (1 + np.exp(-near))
        return found
    left = _FAR + min(near[0] - rival, 2 * _FAR)
    step = min(_STEP, _CROWDED_STEP / math.sqrt(k))
    times = np.arange(-left, _RIGHT, step) - rival
    rates = np.exp(np.minimum(near[:, None] + times, _OVERFLOW))
    arrived = -np.expm1(-rates)
    inside = rates * np.exp(-rates - np.exp(times))
    found[: len(near)] = np.minimum(1.0, step * (inside * _fewer_others(arrived, k)).sum(axis=1))
    found[: len(near)][near > rival + 2 * _FAR] = 1.0
    return found


_FAR, _RIGHT, _OVERFLOW = 20.0, 5.0, 30.0
_STEP, _CROWDED_STEP = 0.25, 1.2
"""Of the integral; the more draws there are, the more sharply the last of them depends on the time."""


def _fewer_others(chances: Floats, k: int) -> Floats:
    """Return for each row of independent events the chance that fewer than k of the other rows happen."""
    found = np.empty_like(chances)
    begin = np.zeros((k, chances.shape[1]))
    begin[0] = 1

    def joined(law: Floats, rows: Floats) -> Floats:
        for row in rows:
            moved = law[:-1] * row
            law = law * (1 - row)
            law[1:] += moved
        return law

    def visit(low: int, high: int, law: Floats) -> None:
        if high - low == 1:
            found[low] = law.sum(axis=0)
            return
        middle = (low + high) // 2
        visit(low, middle, joined(law, chances[middle:high]))
        visit(middle, high, joined(law, chances[low:middle]))

    visit(0, len(chances), begin)
    return found


def _evaluated(view: ViewPlan, level: int, counted: WindowCounts, items: Sequence[str]) -> Point:
    """Return the expected figures of a plan of a view, without its settings and its budget."""
    showing, counts = check_kind(view), counted.bounded(view)
    reaches, windows = reaching(view.levels[level]), counted.windows
    k, least, extra, shown_from = RECALL_KEYS, -math.inf, 0.0, None
    cells = np.flatnonzero(counts)
    if showing.least:
        least = shown_from = showing.least[level]
        chance = shown_at_least(counts[cells], reaches, least)
    elif (listed := showing.listed) is not None:
        cells = np.flatnonzero(np.array([name in listed for name in items], bool)[counted.item])
        chance = np.ones(len(cells))
        extra = listed.size * windows - len(cells)
    else:
        k, sample = showing.k or 0, np.unique(np.linspace(0, windows - 1, min(windows, SAMPLED_WINDOWS)).astype(int))
        found = [_top_k_of(showing, counted, counts, at) for at in sample]
        cells = np.concatenate([where for where, _, _ in found])
        chance = np.concatenate([one for _, one, _ in found])
        shown_from, windows = math.ceil(np.median([bottom for _, _, bottom in found])), len(sample)
    place = counted.place[cells]
    is_top = place < k
    true = chance.sum() if showing.k is None else chance[is_top].sum()
    tops = np.bincount(counted.window[counted.place < k], minlength=counted.windows)
    top_shown = np.bincount(counted.window[cells[is_top]], chance[is_top], minlength=counted.windows)
    looked_at = np.bincount(counted.window[cells], minlength=counted.windows) > 0
    if showing.k is None:
        looked_at = tops > 0
    shown = _Shown(chance, counts[cells], counted.users[cells], reaches, least)
    error, noise, bias = _errors(shown)
    return Point(
        {},
        windows=counted.windows,
        recall=float((top_shown[looked_at] / tops[looked_at]).mean()) if looked_at.any() else None,
        k=k,
        true_keys=float(true) / max(1, windows),
        false_keys=float(chance.sum() - true + extra) / max(1, windows),
        error=error,
        noise=noise,
        bias=bias,
        shown_from=shown_from,
    )


def _top_k_of(showing: Showing, counted: WindowCounts, counts: Ints, window: int) -> tuple[Ints, Floats, float]:
    """Return the candidates of a window, their chances, and the count that is shown half of the time."""
    low, high = np.searchsorted(counted.window, [window, window + 1])
    cells = low + np.argsort(-counts[low:high], kind="stable")
    cells = cells[counts[cells] > 0]
    following = int(counts[cells[showing.kbar]]) if len(cells) > showing.kbar else 0
    bottom = following + float(showing.margin)
    cells = cells[: showing.kbar]
    return cells, chances_of_top_k(counts[cells], float(showing.epsilon), bottom, showing.k or 0), bottom


Quantiles = tuple[float, float] | None
QUANTILES = 0.5, 0.95


def _errors(shown: _Shown) -> tuple[Quantiles, Quantiles, Quantiles]:
    """Return median and 95th percentile of the relative error of shown counts: in all, of the noise, of the bias."""
    likely = np.flatnonzero((shown.chance > NEGLIGIBLE) & (shown.users > 0))
    if not len(likely):
        return None, None, None
    chance, counts, users = (one[likely] for one in (shown.chance, shown.counts, shown.users))
    pairs, at = np.unique(users * (1 + int(counts.max())) + counts, return_inverse=True)
    users, counts = pairs // (1 + int(counts.max())), pairs % (1 + int(counts.max()))
    weights = np.bincount(at, chance)
    total = weights.sum()
    is_threshold = shown.least > -math.inf
    times = weights / shown_at_least(counts, shown.reaches, shown.least) if is_threshold else weights

    def within(middle: Ints) -> Callable[[float], float]:
        def chance_of(error: float) -> float:
            reach = error * users
            low = np.maximum(np.ceil(middle - reach - 1e-9), shown.least)
            high = np.floor(middle + reach + 1e-9) + 1
            inside = shown_at_least(counts, shown.reaches, low) - shown_at_least(counts, shown.reaches, high)
            return float((times * np.maximum(inside, 0)).sum() / total)

        return chance_of

    error, noise = (_quantiles(within(middle)) for middle in (users, counts))
    relative = 1 - counts / users
    order = np.argsort(relative)
    places = np.searchsorted(np.cumsum(weights[order]), [share * total for share in QUANTILES])
    low, high = (float(relative[order[min(place, len(order) - 1)]]) for place in places)
    return error, noise, (low, high)


_LARGEST_ERROR, _HALVINGS = 1e6, 14


def _quantiles(chance_of: Callable[[float], float]) -> tuple[float, float]:
    found = []
    for share in QUANTILES:
        low, high = 0.0, 0.0 if chance_of(0) >= share else 1.0
        while chance_of(high) < share and high < _LARGEST_ERROR:
            low, high = high, 2 * high
        for _ in range(_HALVINGS if high else 0):
            middle = (low + high) / 2
            low, high = (low, middle) if chance_of(middle) >= share else (middle, high)
        found.append(high)
    return found[0], found[1]


def check_kind(view: ViewPlan) -> Showing:
    """Check that the accuracy of a view can be computed; return how it shows keys.

    Raises:
        ConfigError: it cannot.
    """
    if view.pacing != "none":
        raise ConfigError("pacing cannot be planned; use `stream-dp replay`", f"views.{view.name}.pacing")
    showing = view.kind.showing
    if showing is None:
        raise ConfigError(
            f"a {view.kind.name} with these settings cannot be planned: only histogram and catalogue without strict, "
            "with lists in the file, and topk with mechanism gumbel; use `stream-dp replay`",
            f"views.{view.name}.kind",
        )
    return showing


def assignments(view: ViewPlan, level: str, settings: Mapping[str, str]) -> list[str]:
    """Return the settings of a point as `stream-dp tune` takes them.

    Args:
        view: the view.
        level: name of the level that `epsilon` means.
        settings: of the point.
    """
    aliases = {**ALIASES, "epsilon": f"levels.{level}.epsilon"}
    return [f"{aliases.get(key, key)}={value}" for key, value in settings.items()]


def points(grid: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return the settings of every point of a grid.

    Raises:
        ConfigError: there are too many.
    """
    if (count := math.prod(map(len, grid.values()))) > MOST_POINTS:
        raise ConfigError(f"the grid has {count:,} points; at most {MOST_POINTS:,} are computed", "--grid")
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of a grid: a view, as an audience reads it.

    Attributes:
        plan: of the file.
        view: name of the view.
        audience: whose level is computed.
        until_ms: the history is complete up to this time.
    """

    plan: Plan
    view: str
    audience: str
    until_ms: int

    @property
    def level(self) -> str:
        """Name of the level."""
        view = self.plan.views[self.view]
        return view.levels[view.audiences[self.audience]].name


Counted = dict[object, WindowCounts]
"""By their windows, counts that several points have in common."""


def what_if(
    subject: Subject, columns: EventColumns, grid: Sequence[Mapping[str, str]], known: Counted | None = None
) -> Iterator[Point]:
    """Compute the figures of every point, each from a plan as a worker would make it.

    Args:
        subject: the view.
        columns: of the view.
        grid: the settings of every point.
        known: counts that were made before; new ones are added.

    Yields:
        A point for each; one that is no valid plan, or has no whole window, has a reason.
    """
    items, counted = columns.items, {} if known is None else known
    for settings in grid:
        try:
            plan = planned(subject, settings)
            view = plan.views[subject.view]
            check_kind(view)
            key = view.windows, view.window.first_ms, view.window.grace_ms
            if key not in counted:
                counted[key] = count_windows(columns, view, subject.until_ms)
            if not counted[key].windows:
                raise ConfigError(
                    "no window is over at the end of the history; give a later --until, or shorter windows"
                )
            point = _evaluated(view, view.audiences[subject.audience], counted[key], items)
        except ConfigError as error:
            yield Point(settings, str(error.faults[0]))
            continue
        period = view.ledger.periods.longest
        others = [one for one in plan.views.values() if one.ledger == view.ledger]
        reach = lasts_ms(Shares.of(view.ledger.budget, period, others), period, view)
        yield replace(point, settings=settings, lasts_ms=reach, period_ms=period.length_ms)


def planned(subject: Subject, settings: Mapping[str, str]) -> Plan:
    """Return the plan of a point.

    Raises:
        ConfigError: the settings are no valid configuration.
    """
    view = subject.plan.views[subject.view]
    return tuned(subject.plan, subject.view, assignments(view, subject.level, settings))


def best(found: Sequence[Point], goal: Goal, most_error: float) -> Point | None:
    """Return the best point under a goal, of those whose budget lasts a whole period; None if none meets it.

    Args:
        found: the points.
        goal: true-keys: most true keys with a median error of at most `most_error`; error: least median error.
        most_error: the bound.
    """
    valid = [(point, point.error[0], point.true_keys or 0) for point in found if point.error and point.lasts]
    if goal == "error":
        return min(valid, key=lambda one: (one[1], -one[2]), default=(None,))[0]
    allowed = [one for one in valid if one[1] <= most_error]
    return max(allowed, key=lambda one: (one[2], -one[1]), default=(None,))[0]


def changed_file(text: str, subject: Subject, settings: Mapping[str, str]) -> str:
    """Return the text of a configuration with the settings of a point; comments and everything else stay.

    Args:
        text: of the file that the plan was made from.
        subject: the view.
        settings: of the point.

    Raises:
        ConfigError: the settings are no valid configuration.
        StateError: the text cannot be changed in place.
    """
    wanted = planned(subject, settings)
    for key in settings:
        place: tuple[str | int, ...] = ("views", subject.view, *ALIASES.get(key, key).split("."))
        if key == "epsilon":
            ladder = wanted.raw["views"][subject.view]["ladder"]
            levels = [one["level"] for one in wanted.raw["ladders"][ladder]]
            place = "ladders", ladder, levels.index(subject.level), "epsilon"
        value: Any = wanted.raw
        for part in place:
            value = value[part]
        text = with_value(text, place, value)
    with suppress(ConfigError):
        sections, faults = read_config(text, os.environ)
        if not faults and build_plan(sections.raw, wanted.folder) == wanted:
            return text
    raise StateError("FILE cannot be changed in place, because an alias has a setting; change it by hand")
