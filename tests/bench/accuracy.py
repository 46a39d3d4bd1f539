"""What a promise buys: keys shown and their errors, beside OpenDP's thresholds: `python -m tests.bench.accuracy`.

Every user is promised the same (epsilon, delta) for a year by each side, over all windows together. Nothing is drawn:
the figures are expectations, by formulas from exact counts. OpenDP's two mechanisms (`pip install opendp`) get their
scales and thresholds from its own maps: Laplace noise with an even part of epsilon and delta for every window,
Gaussian noise with an even part of the rho that half of the delta converts to. Each side bounds the items of a user by
the number that shows most. docs/accuracy.md says what the figures mean.

`--discovery` computes only how many users a key needs in one window, beside the optimum of any mechanism.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from stream_dp.accounting.composition import rho_within
from stream_dp.cli.demo.runs import flights_file, read_flights
from stream_dp.config.plan import ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.errors import ConfigError
from stream_dp.exact.rationals import decimal_down
from stream_dp.kinds.histogram import HistogramPlan
from stream_dp.lossless.levels import minimum_count, threshold_for
from stream_dp.lossless.truncated import TruncatedLaplace
from stream_dp.operations.past_counts import EventColumns, Ints, WindowCounts, closing_times, count_windows
from stream_dp.operations.shown_keys import Floats, chances_on_list, reaching, shown_at_least
from stream_dp.windows.durations import DAY_MS, format_time
from tests.bench.events import read_baskets
from tests.bench.figures import show

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
BOUNDS = (1, 2, 3, 5, 10)
"""Of the items of a user in a window."""
FEW = (1, 2, 3, 5, 10, 20, 50)
"""Of the windows of a user in a year."""
START_MS = 1_704_067_200_000
USEFUL = 0.5
"""Relative error of a count that is of use, at most."""
TOP = 10


@dataclass(frozen=True)
class Stream:
    """Events of a year: users, times in ms and items, in the order of the log."""

    name: str
    window: str
    window_ms: int
    windows: int
    users: Ints
    times: Ints
    items: Ints

    @cached_property
    def counted(self) -> WindowCounts:
        """The counts of its windows."""
        view = planned(self, 1, None, pool=True)
        return count_windows(Columns(self), view, START_MS + (self.windows + 2) * self.window_ms)


class Columns(EventColumns):
    """The events of a stream, as a plan takes them."""

    def __init__(self, stream: Stream) -> None:
        """Set up the columns."""
        self._stream = stream

    @property
    def items(self) -> Sequence[str]:
        """The items by their numbers."""
        return [str(number) for number in range(1 + int(self._stream.items.max()))]

    def arrays(self, view: str) -> tuple[Ints, Ints, Ints]:
        """Users, times and items."""
        return self._stream.users, self._stream.times, self._stream.items


@dataclass(frozen=True, slots=True)
class Figure:
    """One line.

    Attributes:
        stream: the events.
        side: the mechanism.
        bounds: items of a user in a window, and windows of a user.
        shown: keys shown in a year.
        useful: keys shown with a relative error of 50 % at most, in a year.
        recall: share of the ten most frequent keys of a window that are shown.
        median: relative error of a shown count, in percent.
        high: its 95th percentile.
    """

    stream: str
    side: str
    bounds: str
    shown: float
    useful: float
    recall: float
    median: float
    high: float


AtLeast = Callable[[Ints, Any], Floats]
"""(counts, number) to the chance that each count with its noise is at least the number."""


@dataclass(frozen=True, slots=True)
class Noisy:
    """Counts of the windows of a stream as a mechanism bounds them, and the law of its noise."""

    counted: WindowCounts
    counts: Ints
    at_least: AtLeast
    listed: Floats | None = None
    """The chance of each that its key is on the list, and shown with any count; None where there is none."""


def figure_of(stream: Stream, side: str, bounds: str, noisy: Noisy, least: float) -> Figure:
    """Work out the figures of a mechanism that shows noisy counts of at least a number, and those of a list."""
    counted, counts, at = noisy.counted, noisy.counts, noisy.at_least
    listed = np.zeros(len(counts)) if noisy.listed is None else noisy.listed
    some = np.flatnonzero(listed + (counts > 0))
    counts, users, place, window = counts[some], counted.users[some], counted.place[some], counted.window[some]
    listed, others = listed[some], (1 - listed[some]) * (counts > 0)
    shown = listed + others * at(counts, np.full(len(counts), least))

    def within(error: float) -> Floats:
        reach = error * users
        low, high = np.ceil(users - reach - 1e-9), np.floor(users + reach + 1e-9) + 1
        every, from_least = at(counts, low), at(counts, np.maximum(low, least))
        return listed * (every - at(counts, high)) + others * np.maximum(from_least - at(counts, high), 0)

    def quantile(share: float) -> float:
        low, high = 0.0, 64.0
        for _ in range(18):
            middle = (low + high) / 2
            low, high = (low, middle) if within(middle).sum() >= share * shown.sum() else (middle, high)
        return 100 * high

    tops = np.bincount(counted.window[counted.place < TOP], minlength=counted.windows)
    found = np.bincount(window[place < TOP], shown[place < TOP], minlength=counted.windows)
    recall = float((found[tops > 0] / tops[tops > 0]).mean())
    return Figure(
        stream.name,
        side,
        bounds,
        float(shown.sum()),
        float(within(USEFUL).sum()),
        recall,
        quantile(0.5),
        quantile(0.95),
    )


# -- the sides ---------------------------------------------------------------------------------------------------------


def planned(
    stream: Stream, items: int, windows: int | None, *, pool: bool, noise: str = "discrete-laplace"
) -> ViewPlan:
    """The view of a file as `stream-dp init` writes it, with one level.

    Raises:
        ConfigError: the promise affords no window.
    """
    return build_plan(written(stream, items, windows, pool=pool, noise=noise)).views["counts"]


def written(stream: Stream, items: int, windows: int | None, *, pool: bool, noise: str) -> dict[str, Any]:
    """The file of that view."""
    paid = stream.windows if windows is None else min(windows, stream.windows)
    slack = DELTA / 2 if pool else Fraction(0)
    part = {"zcdp": {"epsilon": "9999/10000", "slack": str(slack)}} if pool else {}
    period = f"{stream.windows * stream.window_ms // DAY_MS}d"
    start = format_time(START_MS)
    window = {"size": stream.window, "start": start, "clock": "event", "idle": "36500d"}
    view = {"source": "events", "kind": "histogram", "item": "i", "items_per_user": items, "window": window}
    view["noise"] = noise
    view |= {} if windows is None else {"windows_per_user": windows}
    view |= {"delta": decimal_down((DELTA - slack) / paid, 3), "ledger": "promise", "ladder": "one"}
    promise = {"population": "users", "epsilon": str(EPSILON), "delta": str(DELTA), "period": period, "start": start}
    return {
        "name": "bench",
        "broker": "memory://",
        "data_dir": "state",
        "key_file": "key",
        "sources": {"events": {"topic": "events", "partitions": 1, "user": "u", "time": {"field": "t"}}},
        "ledgers": {"promise": promise | part},
        "ladders": {"one": [{"level": "all", "share": "1"}]},
        "audiences": {"all": "all"},
        "views": {"counts": view},
    }


BUDGETS = {
    "": {"pool": False},
    ", pool": {"pool": True},
    ", Gaussian": {"pool": True, "noise": "discrete-gaussian"},
}
"""Ways to add up what windows cost, with the noise that is used."""


def of_product(stream: Stream, items: int, windows: int | None, budget: str) -> Iterator[Figure]:
    """The figure of that view; none where the promise affords no window."""
    try:
        view = planned(stream, items, windows, **BUDGETS[budget])  # type: ignore[arg-type]
    except ConfigError:
        return
    counted = stream.counted
    showing = view.kind.showing
    assert showing is not None and showing.least is not None  # noqa: PT018
    reaches = reaching(view.levels[-1])
    said = f"{items} items" + ("" if windows is None else f", {windows} windows")
    side = "stream-dp" + budget + ("" if windows is None else ", windows_per_user")
    noisy = Noisy(counted, counted.bounded(view), lambda counts, number: shown_at_least(counts, reaches, number))
    yield figure_of(stream, side, said, noisy, showing.least[-1])


KEPT = (4, 12)
"""Windows whose keys are remembered."""
FINDS = Fraction(1, 2)
"""Of rho, for the view that finds the keys."""


def of_lists(stream: Stream, items: int) -> Figure:
    """The figure of a view whose list is what another, slower one has shown in its window before; both Gaussian."""
    parts = next(parts for parts in (4, 5) if stream.windows % parts == 0)
    each = stream.windows // parts
    rare = replace(
        stream, window=f"{each * stream.window_ms // DAY_MS}d", window_ms=each * stream.window_ms, windows=parts
    )
    start, slack = format_time(START_MS), DELTA / 2
    both = {"source": "events", "item": "i", "items_per_user": items, "noise": "discrete-gaussian", "ladder": "one"}
    both |= {"ledger": "promise"}
    window = {"start": start, "clock": "event", "idle": "36500d"}
    found = both | {"kind": "histogram", "delta": decimal_down(FINDS * (DELTA - slack) / parts, 3), "share": str(FINDS)}
    listed = {"from": "found", "audience": "all", "keep": 1}
    counted = both | {"kind": "catalogue", "catalogue": listed, "share": str(1 - FINDS)}
    raw = written(stream, items, None, pool=True, noise="discrete-gaussian")
    views = {
        "found": found | {"window": window | {"size": rare.window}},
        "counted": counted | {"window": window | {"size": stream.window}},
    }
    plan = build_plan(raw | {"views": views}).views
    showing = plan["found"].kind.showing
    assert showing is not None
    of_rare, of_each = rare.counted, stream.counted
    some = np.flatnonzero(of_rare.bounded(plan["found"]))
    chance = shown_at_least(of_rare.bounded(plan["found"])[some], reaching(plan["found"].levels[-1]), showing.least[-1])
    kept = 1, plan["found"].window.retention_ms
    closes_ms = closing_times(plan["counted"], of_each)
    released_ms = closing_times(plan["found"], of_rare)
    listed_with, _ = chances_on_list((of_rare, some, chance), released_ms, kept, of_each, closes_ms)
    reaches, counts = reaching(plan["counted"].levels[-1]), of_each.bounded(plan["counted"])

    def at_least(_counts: Ints, number: Any) -> Floats:
        return shown_at_least(_counts, reaches, number)

    return figure_of(
        stream,
        "stream-dp, list of releases",
        f"{items} items",
        Noisy(of_each, counts, at_least, listed_with),
        math.inf,
    )


def of_remembering(stream: Stream, items: int, windows: int | None, keep: int) -> Iterator[Figure]:
    """The figure of a Gaussian histogram that remembers its keys; none where the promise affords no window.

    Of every key, the chance is followed from window to window that a record keeps it, and how many windows ago.
    """
    raw = written(stream, items, windows, pool=True, noise="discrete-gaussian")
    raw["views"]["counts"] |= {"remember": {"audience": "all", "keep": keep}}
    try:
        view = build_plan(raw).views["counts"]
    except ConfigError:
        return
    kind, counted, reaches = view.kind, stream.counted, reaching(view.levels[-1])
    assert isinstance(kind, HistogramPlan)
    least, stays, counts = kind.minimum_counts[-1], kind.stays_from[-1], counted.bounded(view)
    of_all = np.zeros((counted.windows, 1 + int(stream.items.max())), np.int64)
    of_all[counted.window, counted.item] = counts
    known = np.zeros_like(of_all, np.float64)
    ago = np.zeros((keep, of_all.shape[1]))
    for at, row in enumerate(of_all):
        known[at] = ago.sum(axis=0)
        again, new = (shown_at_least(row, reaches, number) for number in (stays, least))
        kept = known[at] * again + (1 - known[at]) * new * (row > 0)
        ago = np.vstack([kept, ago[:-1] * (1 - again)])
    said = f"{items} items" + ("" if windows is None else f", {windows} windows")
    listed = known[counted.window, counted.item]
    noisy = Noisy(counted, counts, lambda some, number: shown_at_least(some, reaches, number), listed)
    yield figure_of(stream, "stream-dp, remember", f"{said}, keep {keep}", noisy, least)


def of_opendp(stream: Stream, items: int, noise: str) -> Figure:
    """OpenDP's counts with a threshold."""
    import opendp.prelude as dp  # type: ignore[import-not-found,unused-ignore]

    dp.enable_features("contrib")
    domain = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int))
    distance = dp.absolute_distance(T=int if noise == "Laplace" else float)
    if noise == "Laplace":
        scale = float(items * stream.windows / EPSILON)
        make, metric, delta = dp.m.make_laplace_threshold, dp.l01inf_distance(distance), DELTA / stream.windows
        moved: tuple[int, float, float] = (items, items, 1)
    else:
        rho = rho_within(EPSILON, DELTA / 2) / stream.windows
        scale = math.sqrt(items / (2 * float(rho)))
        make, metric, delta = dp.m.make_gaussian_threshold, dp.l02inf_distance(distance), DELTA / 2 / stream.windows
        moved = (items, math.sqrt(items), 1.0)
    low, high = 1, 1 << 30
    while low < high:
        middle = (low + high) // 2
        enough = make(domain, metric, scale=scale, threshold=middle).map(moved)[1] <= float(delta)
        low, high = (low, middle) if enough else (middle + 1, high)
    counted, ratio = stream.counted, math.exp(-1 / scale)
    erfc = np.frompyfunc(math.erfc, 1, 1)

    def at_least(counts: Ints, number: Any) -> Floats:
        if noise == "Laplace":
            return shown_at_least(counts, lambda t: ratio**t / (1 + ratio), number)
        tail: Floats = np.asarray(erfc((number - 0.5 - counts) / (scale * math.sqrt(2))), np.float64) / 2
        return tail

    bounded = replace(planned(stream, 1, None, pool=True), items_per_user=items)
    noisy = Noisy(counted, counted.bounded(bounded), at_least)
    return figure_of(stream, f"OpenDP, {noise}", f"{items} items", noisy, low)


def best(figures: Iterator[Figure]) -> Figure:
    """The figure with the most useful counts."""
    return max(figures, key=lambda one: (one.useful, one.shown))


def figures_of(stream: Stream) -> Iterator[Figure]:
    """Yield the best figure of every side: each gain apart, and both together."""
    for noise in ("Laplace", "Gaussian"):
        yield best(of_opendp(stream, items, noise) for items in BOUNDS)
    few: list[int | None] = [windows for windows in FEW if windows < stream.windows]
    for windows in ([None], few):
        for budget in BUDGETS:
            asked = product(BOUNDS, windows)
            yield best(one for items, some in asked for one in of_product(stream, items, some, budget))
    yield best(of_lists(stream, items) for items in BOUNDS)
    asked_of = product(BOUNDS, [None, *few], KEPT)
    yield best(one for items, some, keep in asked_of for one in of_remembering(stream, items, some, keep))


# -- one window --------------------------------------------------------------------------------------------------------

PROMISES = [("1", "1e-6"), ("1/10", "1e-6"), ("1/10", "1e-9"), ("1/100", "1e-8"), ("1/1000", "1e-9")]
"""Epsilon and delta of a window in which users have one item."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """How many users a key needs to be shown half of the time: in a histogram, and at best.

    Attributes:
        plain: with discrete Laplace noise.
        ending: with noise that ends.
        optimum: the least that any mechanism allows (Desfontaines, Voss, Gipson and Mandayam 2022, by its recursion).
    """

    epsilon: str
    delta: str
    plain: int
    ending: int
    optimum: int


def discovery(epsilon: str, delta: str) -> Discovery:
    """Work out one line; a key with the threshold's number of users is shown with all noise that is not negative."""
    threshold, chance = threshold_for(Fraction(epsilon)), Fraction(delta)
    factor, shown, users = math.exp(Fraction(epsilon)), 0.0, 0
    while shown < 1 / 2:
        shown, users = min(factor * shown + float(chance), 1 - (1 - shown - float(chance)) / factor), users + 1
    ending = 1 + TruncatedLaplace.within(threshold, chance).largest
    return Discovery(epsilon, delta, minimum_count(threshold, chance), ending, users)


def show_discovery(*, as_json: bool) -> None:
    """Print the table."""
    lines = [discovery(*promise) for promise in PROMISES]
    table = Table("epsilon", "delta", "discrete-laplace", "truncated-laplace", "optimum")
    for one in lines:
        table.add_row(one.epsilon, one.delta, *(f"{users:,}" for users in (one.plain, one.ending, one.optimum)))
    show(lines, table, [], as_json=as_json)


# -- the streams -------------------------------------------------------------------------------------------------------


def synthetic(name: str, window: str, window_ms: int, windows: int, active: int, users: int, seed: int) -> Stream:
    """Every user is in so many windows, at random, with one to three items of 300; popular ones more often."""
    chance = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 301)
    where = np.argsort(chance.random((users, windows)), axis=1)[:, :active]
    often = chance.integers(1, 4, where.shape)
    user, at = np.nonzero(often)
    user, start = np.repeat(user, often[user, at]), np.repeat(where[user, at], often[user, at])
    items = chance.choice(300, len(user), p=weights / weights.sum())
    times = START_MS + start * window_ms + chance.integers(0, window_ms, len(user))
    return _ordered(Stream(name, window, window_ms, windows, user, times, items))


def _ordered(stream: Stream) -> Stream:
    order = np.argsort(stream.times, kind="stable")
    users, times, items = (np.asarray(one, np.int64)[order] for one in (stream.users, stream.times, stream.items))
    return replace(stream, users=users, times=times, items=items)


def flights() -> Stream:
    """A year of flights: aircraft, and where they flew, week by week."""
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    rows = [
        (users.setdefault(one.tailnum, len(users)), one.time_ms, items.setdefault(one.dest, len(items)))
        for one in read_flights(flights_file()).flights
    ]
    user, time, item = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    time = START_MS + (time - time.min()) // DAY_MS * DAY_MS
    inside = time < START_MS + 52 * 7 * DAY_MS
    return _ordered(Stream("flights", "1w", 7 * DAY_MS, 52, user[inside], time[inside], item[inside]))


def baskets(file: Path) -> Stream:
    """Baskets of a shop, each of another customer, cut into 52 weeks in their order."""
    rows = list(read_baskets(file))
    week = 7 * DAY_MS
    sizes = np.array([len(row) for row in rows])
    user = np.repeat(np.arange(len(rows)), sizes)
    numbers: dict[str, int] = {}
    item = np.array([numbers.setdefault(str(name), len(numbers)) for row in rows for name in row], np.int64)
    return Stream("baskets", "1w", week, 52, user, START_MS + user * 52 // len(rows) * week, item)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="baskets in FIMI format, .gz too, as a further stream"
    )
    parser.add_argument("--users", type=int, default=20_000, help="of the synthetic streams")
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="write the useful counts as a picture, .svg or .png"
    )
    parser.add_argument("--discovery", action="store_true", help="only the users that a key needs in one window")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    asked = parser.parse_args()
    if asked.discovery:
        show_discovery(as_json=asked.json)
        return
    streams = [
        synthetic("all weeks", "1w", 7 * DAY_MS, 52, 52, asked.users, 1),
        synthetic("few days", "1d", DAY_MS, 365, 6, asked.users, 2),
        flights(),
        *([] if asked.data is None else [baskets(asked.data)]),
    ]
    figures: list[Figure] = []
    for stream in streams:
        for one in figures_of(stream):
            figures.append(one)
            Console(stderr=True).print(f"{one.stream}: {one.side}: {one.useful:,.0f} useful", highlight=False)
    table = Table("stream", "side", "bounds", "shown", "useful", "recall", "error, median", "95 %")
    for one in figures:
        errors = (f"{one.median:.0f} %", f"{one.high:.0f} %") if one.shown >= 1 else ("-", "-")
        table.add_row(
            one.stream, one.side, one.bounds, f"{one.shown:,.0f}", f"{one.useful:,.0f}", f"{one.recall:.0%}", *errors
        )
    show(figures, table, ["opendp", "numpy"], as_json=asked.json)
    if asked.figure is not None:
        draw(figures, asked.figure)


def draw(figures: Sequence[Figure], file: Path) -> None:
    """Write small multiples: a panel for each stream, a bar for each side."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure as Picture

    rcParams["svg.hashsalt"], rcParams["svg.fonttype"] = "accuracy", "none"
    names = list(dict.fromkeys(one.stream for one in figures))
    picture = Picture(figsize=(3.0 * len(names) + 2.4, 3.6), layout="constrained")
    panels = picture.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        bars = [one for one in figures if one.stream == name]
        colours = ["#9e9e9e" if one.side.startswith("OpenDP") else "#1565c0" for one in bars]
        drawn = axes.barh(range(len(bars)), [one.useful for one in bars], color=colours)
        axes.bar_label(drawn, [f"{one.useful:,.0f}" for one in bars], padding=2, fontsize=8)
        axes.set_yticks(range(len(bars)), [one.side.removeprefix("stream-dp, ") for one in bars], fontsize=8)
        axes.set_xlim(0, 1.25 * max(one.useful for one in bars) or 1)
        axes.set_title(name, fontsize=9)
        axes.set_xticks([])
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    panels[0].invert_yaxis()
    picture.suptitle("Useful counts in a year, at epsilon 1 and delta 1e-6 a user", fontsize=10)
    picture.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
