"""Expected accuracy of a view over a grid of settings, computed from raw past events: for planning, never for readers.

Nothing is drawn: every figure is a formula of the exact counts and of the law of the noise. So this module computes
with floats, and nothing of it decides or publishes a release.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, Literal

import numpy as np

from stream_dp.config.loading import read_config
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.config.shares import Shares, lasts_ms
from stream_dp.config.yaml_data import with_value
from stream_dp.errors import ConfigError, StateError
from stream_dp.exact.rationals import decimal_down, parse_exact
from stream_dp.kinds.kind import Showing
from stream_dp.operations.assignments import tuned
from stream_dp.operations.past_counts import EventColumns, Ints, WindowCounts, closing_times, on_list
from stream_dp.operations.shown_keys import (
    Floats,
    chances_on_list,
    reaching,
    relative_errors,
    shown_at_least,
    top_k_of,
)

Goal = Literal["true-keys", "useful", "error"]

MOST_POINTS = 1000
RECALL_KEYS = 10
"""Keys whose recall is computed where a kind has no k."""
SAMPLED_WINDOWS = 30
"""Windows of a top-k, evenly spaced, in which the chance of every key is computed."""
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
        useful: number of counts shown that are within 50 %.
        error: relative error of a shown count, median and 95th percentile; noise and bias together.
        noise: the same of the noise alone.
        bias: the same of the bounding of users alone.
        shown_from: users of a key that is shown half of the time in the median window, of a list made of releases in
            one of the view that finds keys; None: every key is shown.
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
    useful: float | None = None
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


def _evaluated(plan: Plan, subject: Subject, columns: EventColumns) -> Point:
    """Return the expected figures of a plan of a view, without its settings and its budget."""
    view = plan.views[subject.view]
    showing, level = check_kind(view, plan.views), view.audiences[subject.audience]
    counted = columns.counted(view, subject.until_ms)
    counts, reaches, windows = counted.bounded(view), reaching(view.levels[level]), counted.windows
    k, least, extra, shown_from = showing.k or RECALL_KEYS, -math.inf, 0.0, None
    if (finds := finder(view, plan.views)) is not None:
        rare = columns.counted(finds, subject.until_ms)
        chance, extra, shown_from = _listed(plan, view, finds, (counted, rare))
        cells = np.flatnonzero(chance)
        chance = chance[cells]
    elif (listed := showing.listed) is not None:
        cells = np.flatnonzero(on_list(view, columns.items)[counted.item])
        chance = np.ones(len(cells))
        extra = listed.size * windows - len(cells)
    else:
        sample = np.unique(np.linspace(0, windows - 1, min(windows, SAMPLED_WINDOWS)).astype(int))
        cells, chance, shown_from = _shown(view, level, counted, sample)
        least, windows = (shown_from, windows) if showing.least else (least, len(sample))
    place = counted.place[cells]
    is_top = place < k
    true = chance.sum() if showing.k is None else chance[is_top].sum()
    occupied, window = np.unique(counted.window, return_inverse=True)  # windows without events show none of the keys
    tops = np.bincount(window[counted.place < k], minlength=len(occupied))
    top_shown = np.bincount(window[cells[is_top]], chance[is_top], minlength=len(occupied))
    looked_at = np.bincount(window[cells], minlength=len(occupied)) > 0
    if showing.k is None:
        looked_at = tops > 0
    error, noise, bias, useful = relative_errors(chance, counts[cells], counted.users[cells], reaches, least)
    return Point(
        {},
        windows=counted.windows,
        recall=float((top_shown[looked_at] / tops[looked_at]).mean()) if looked_at.any() else None,
        k=k,
        true_keys=float(true) / max(1, windows),
        false_keys=float(chance.sum() - true + extra) / max(1, windows),
        useful=useful / max(1, windows),
        error=error,
        noise=noise,
        bias=bias,
        shown_from=shown_from,
    )


def _shown(view: ViewPlan, level: int, counted: WindowCounts, windows: Ints) -> tuple[Ints, Floats, int]:
    """Return the cells that may be shown, the chance of each, and the count that is shown half of the time.

    A top-k is looked at in some windows only, where most of the time is spent.
    """
    showing, counts = view.kind.showing, counted.bounded(view)
    assert showing is not None  # noqa: S101 - `check_kind`
    if showing.least:
        cells, least = np.flatnonzero(counts), showing.least[level]
        return cells, shown_at_least(counts[cells], reaching(view.levels[level]), least), least
    drawn, chances, bottoms = zip(*(top_k_of(showing, counted, counts, at) for at in windows), strict=True)
    return np.concatenate(drawn), np.concatenate(chances), math.ceil(np.median(bottoms))


def _listed(
    plan: Plan, view: ViewPlan, finds: ViewPlan, counts: tuple[WindowCounts, WindowCounts]
) -> tuple[Floats, float, int]:
    """Return the chance of each cell to be on a list made of releases, keys on it besides, and how many users find one.

    Raises:
        ConfigError: every window has an empty list.
    """
    (counted, rare), made_of = counts, view.kind.made_of
    assert made_of is not None  # noqa: S101 - `finder`
    closes_ms = closing_times(view, counted)
    released = np.array([plan.slots.after(close) for close in closing_times(finds, rare).tolist()], np.int64)
    if released.min() >= closes_ms.max():
        raise ConfigError(
            f"no window of view {finds.name} is released before the last of {view.name} closes, so the list is empty; "
            f"give a longer history, or shorter windows of {finds.name}"
        )
    cells, chance, shown_from = _shown(finds, finds.audiences[made_of.audience], rare, np.arange(rare.windows))
    kept = made_of.keep, finds.window.retention_ms
    return *chances_on_list((rare, cells, chance), released, kept, counted, closes_ms), shown_from


def finder(view: ViewPlan, views: Mapping[str, ViewPlan]) -> ViewPlan | None:
    """Return the view whose releases the list of a view is made of; None if it has no list of another's."""
    made_of = view.kind.made_of
    return None if made_of is None or made_of.view == view.name else views[made_of.view]


def check_kind(view: ViewPlan, views: Mapping[str, ViewPlan]) -> Showing:
    """Check that the accuracy of a view can be computed; return how it shows keys.

    Raises:
        ConfigError: it cannot.
    """
    if (finds := finder(view, views)) is not None:
        where = f"views.{view.name}.catalogue"
        if finds.source.name != view.source.name:
            raise ConfigError(f"view {finds.name} counts another source, so this history does not tell its keys", where)
        if check_kind(finds, views).listed is not None:
            raise ConfigError(f"view {finds.name} shows a whole list, so use that list here", where)
    if view.pacing != "none":
        raise ConfigError("pacing cannot be planned; use `stream-dp replay`", f"views.{view.name}.pacing")
    showing = view.kind.showing if view.kind.rank is None else None
    if showing is None:
        raise ConfigError(
            f"kind {view.kind.name} with these settings cannot be planned. It can be for a histogram without strict, "
            "rank and remember, a catalogue without strict and rank whose list is in the file or made of releases, and "
            "a topk with mechanism gumbel; for all others use `stream-dp replay`",
            f"views.{view.name}.kind",
        )
    return showing


def assignments(subject: Subject, settings: Mapping[str, str]) -> list[str]:
    """Return the settings of a point as `stream-dp tune` takes them.

    Args:
        subject: the view, and the level that `epsilon` means.
        settings: of the point.

    Raises:
        ConfigError: there is nothing that `split` could share out.
    """
    aliases = {**ALIASES, "epsilon": f"levels.{subject.level}.epsilon"}
    pairs = (_split(subject, value) if key == "split" else {key: value} for key, value in settings.items())
    return [f"{aliases.get(key, key)}={value}" for pair in pairs for key, value in pair.items()]


def _split(subject: Subject, value: str) -> dict[str, str]:
    """Return the shares of a view and of the one that finds its keys; the delta of that one follows its share.

    Raises:
        ConfigError: they have no shares of one ledger, or the value is no part.
    """
    view = subject.plan.views[subject.view]
    finds = finder(view, subject.plan.views)
    if finds is None or finds.share is None or view.share is None or finds.ledger != view.ledger:
        raise ConfigError(
            "give the view, and the one that its list is made of, a `share` of one ledger", "--grid split"
        )
    whole, part = view.share + finds.share, Fraction(0)
    with suppress(ValueError):
        part = parse_exact(value)
    if not 0 < part < 1:
        raise ConfigError(f"split is the part for {finds.name}, above 0 and below 1, such as 1/2, not {value}")
    found = {"share": str(whole * part)}
    if (delta := subject.plan.raw["views"][finds.name].get("delta")) is not None:
        found["delta"] = decimal_down(parse_exact(str(delta)) * whole * part / finds.share, 3)
    return {"share": str(whole * (1 - part)), **{f"views.{finds.name}.{key}": one for key, one in found.items()}}


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


def what_if(subject: Subject, columns: EventColumns, grid: Sequence[Mapping[str, str]]) -> Iterator[Point]:
    """Compute the figures of every point, each from a plan as a worker would make it.

    Args:
        subject: the view.
        columns: of the view.
        grid: the settings of every point.

    Yields:
        A point for each; one that is no valid plan, or has no whole window, has a reason.
    """
    for settings in grid:
        try:
            plan = tuned(subject.plan, subject.view, assignments(subject, settings))
            view = plan.views[subject.view]
            point = _evaluated(plan, subject, columns)
        except ConfigError as error:
            yield Point(settings, str(error.faults[0]))
            continue
        lasting = [_lasting(plan, one) for one in (view, finder(view, plan.views)) if one is not None]
        reach, period = min(lasting, key=lambda one: Fraction(*one))
        yield replace(point, settings=settings, lasts_ms=reach, period_ms=period)


def _lasting(plan: Plan, view: ViewPlan) -> tuple[int, int]:
    """Return how far into a period the budget of a view reaches, and the length of the period."""
    period = view.ledger.periods.longest
    others = [one for one in plan.views.values() if one.ledger == view.ledger]
    return lasts_ms(Shares.of(view.ledger.budget, period, others), period, view), period.length_ms


def best(found: Sequence[Point], goal: Goal, most_error: float) -> Point | None:
    """Return the best point under a goal, of those whose budget lasts a whole period; None if none meets it.

    Args:
        found: the points.
        goal: true-keys: most true keys with a median error of at most `most_error`; useful: most counts within 50 %;
            error: least median error.
        most_error: the bound.
    """
    valid = [(point, point.error[0], point.true_keys or 0) for point in found if point.error and point.lasts]
    if goal == "error":
        return min(valid, key=lambda one: (one[1], -one[2]), default=(None,))[0]
    if goal == "useful":
        return max(valid, key=lambda one: one[0].useful or 0, default=(None,))[0]
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
    changes = assignments(subject, settings)
    wanted = tuned(subject.plan, subject.view, changes)
    for assignment in changes:
        place: list[str | int] = [*assignment.partition("=")[0].split(".")]
        if place[0] == "levels":
            ladder = wanted.raw["views"][subject.view]["ladder"]
            levels = [one["level"] for one in wanted.raw["ladders"][ladder]]
            place = ["ladders", ladder, levels.index(subject.level), "epsilon"]
        elif place[0] != "views":
            place = ["views", subject.view, *place]
        value: Any = wanted.raw
        for part in place:
            value = value[part]
        text = with_value(text, place, value)
    with suppress(ConfigError):
        sections, faults = read_config(text, os.environ)
        if not faults and build_plan(sections.raw, wanted.folder) == wanted:
            return text
    raise StateError("FILE cannot be changed in place, because an alias has a setting; change it by hand")
