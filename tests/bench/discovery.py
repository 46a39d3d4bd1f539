"""Keys found by votes and by bounded counts, at one (epsilon, delta): `python -m tests.bench.discovery`.

A window promises every user (epsilon, delta). Each side takes the number of items of a user that shows most. Nothing is
drawn: the figures are expected numbers of keys that somebody has and that are shown, from exact counts and the
thresholds of the plans. The last side is no mechanism but an upper limit for adaptive weights (such as those of
MaxAdaptiveDegree, ICML 2025): whatever a key has beyond what shows it is moved to the other keys of its users, with
hindsight and at no cost.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from stream_dp.config.planner import build_plan
from stream_dp.exact.rationals import exact_text
from stream_dp.kinds.histogram import HistogramPlan
from stream_dp.kinds.votes import KeysPlan
from stream_dp.operations.past_counts import Ints
from stream_dp.operations.shown_keys import Floats, reaching, shown_at_least
from tests.bench.accuracy import Stream, baskets, flights
from tests.bench.figures import show

EPSILONS, DELTA = (Fraction(1), Fraction(1, 4)), Fraction(1, 10**6)
BOUNDS = (1, 2, 3, 5, 10, 20, 50, 100)
SURE = 3
"""Standard deviations above the threshold, from which the oracle takes votes away."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Keys found in a window, on average.

    Attributes:
        stream: the events.
        epsilon: of a window.
        side: the mechanism.
        found: number of keys.
        keys: number that somebody has.
    """

    stream: str
    epsilon: str
    side: str
    found: float
    keys: float


@dataclass(frozen=True, slots=True)
class Window:
    """Distinct pairs of a window: users and items by number, in the order in which each user had them."""

    users: Ints
    items: Ints
    ranks: Ints
    degrees: Ints
    """Of each pair, how many items its user has."""


def windows_of(stream: Stream, parts: int) -> Iterator[Window]:
    """The windows of a stream that is cut into equal parts."""
    begins = int(stream.times.min())
    part = (stream.times - begins) * parts // (1 + int(stream.times.max()) - begins)
    for number in range(parts):
        inside = np.flatnonzero(part == number)
        pairs = stream.users[inside] * (1 + int(stream.items.max())) + stream.items[inside]
        first = np.sort(np.unique(pairs, return_index=True)[1])
        order = first[np.argsort(stream.users[inside][first], kind="stable")]
        _, user, degree = np.unique(stream.users[inside][order], return_inverse=True, return_counts=True)
        item = np.unique(stream.items[inside][order], return_inverse=True)[1]
        ranks = np.arange(len(user)) - np.repeat(np.cumsum(degree) - degree, degree)
        yield Window(user, item, ranks, np.repeat(degree, degree))


def plan_of(kind: str, items: int, epsilon: Fraction, noise: str) -> Any:
    """The plan of a view that has a ledger and its one window for itself."""
    pool = noise == "discrete-gaussian"
    slack = DELTA / 2 if pool else Fraction(0)
    zcdp = {"zcdp": {"epsilon": exact_text(epsilon * Fraction(9999, 10_000)), "slack": exact_text(slack)}}
    ledger = {"population": "users", "epsilon": exact_text(epsilon), "delta": exact_text(DELTA), "period": "1d"}
    view = {"source": "s", "kind": kind, "item": "i", "items_per_user": items, "window": {"size": "1d"}}
    view |= {"delta": exact_text(DELTA - slack), "ledger": "l", "ladder": "one"}
    view |= {"noise": noise}
    raw = {
        "name": "bench",
        "broker": "memory://",
        "data_dir": "state",
        "key_file": "key",
        "sources": {"s": {"topic": "t", "partitions": 1}},
        "ledgers": {"l": ledger | (zcdp if pool else {})},
        "ladders": {"one": [{"level": "all", "share": "1"}]},
        "audiences": {"all": "all"},
        "views": {"v": view},
    }
    return build_plan(raw).views["v"].kind


def of_counts(window: Window, plan: HistogramPlan) -> float:
    """Expected number of keys that a histogram shows."""
    counts = np.bincount(window.items[window.ranks < plan.sensitivity])
    shown = shown_at_least(counts, reaching(plan.levels[0]), plan.minimum_counts[0])
    return float(shown[counts > 0].sum())


def votes(window: Window, plan: KeysPlan) -> Floats:
    """The parts of votes that the users of a window give, pair by pair."""
    kept = window.ranks < len(plan.weights)
    given = np.array([0, *plan.weights])[np.minimum(window.degrees, len(plan.weights))]
    return np.where(kept, given, 0).astype(float)


def of_votes(window: Window, plan: KeysPlan, given: Floats) -> float:
    """Expected number of keys that votes show."""
    sums = np.bincount(window.items, given)
    return float(shown_at_least(sums.astype(np.int64), reaching(plan.levels[0]), plan.minimum)[sums > 0].sum())


def _of_histograms(plans: Mapping[int, HistogramPlan], window: Window, bound: int) -> float:
    return of_counts(window, plans[bound])


def _of_plans(plans: Mapping[int, KeysPlan], window: Window, bound: int) -> float:
    return of_votes(window, plans[bound], votes(window, plans[bound]))


def moved(window: Window, plan: KeysPlan, given: Floats) -> Floats:
    """The votes with what found keys do not need moved to other keys of the same users, within one vote in length."""
    sums = np.bincount(window.items, given)
    enough = plan.minimum + SURE * sqrt(plan.levels[0].variance)
    needed = np.minimum(1.0, enough / np.maximum(sums, 1))[window.items]
    is_safe = needed < 1
    squares = np.bincount(window.users, np.where(is_safe, (needed * given) ** 2, 0))
    others = np.bincount(window.users, ~is_safe & (given > 0))
    rest = np.sqrt(np.maximum(0, plan.weights[0] ** 2 - squares) / np.maximum(1, others))
    return np.where(is_safe, needed * given, np.where(given > 0, np.maximum(given, rest[window.users]), 0))


def figures_of(name: str, windows: Sequence[Window], epsilon: Fraction) -> Iterator[Figure]:
    """Yield the figure of every side."""
    keys = float(np.mean([len(np.unique(one.items)) for one in windows]))

    def best(side: str, found: Callable[[Window, int], float]) -> Figure:
        most, bound = max((float(np.mean([found(one, bound) for one in windows])), bound) for bound in BOUNDS)
        return Figure(name, exact_text(epsilon), f"{side}, {bound} items", most, keys)

    for noise in ("discrete-laplace", "truncated-laplace", "discrete-gaussian"):
        counts = {bound: plan_of("histogram", bound, epsilon, noise) for bound in BOUNDS}
        yield best(f"histogram, {noise}", partial(_of_histograms, counts))
        if noise == "truncated-laplace":  # its delta pays for the end of the noise of counts that move by one
            continue
        plans = {bound: plan_of("keys", bound, epsilon, noise) for bound in BOUNDS}
        yield best(f"keys, {noise}", partial(_of_plans, plans))
    yield best(
        "moved votes, Gaussian",
        lambda one, bound: of_votes(one, plans[bound], moved(one, plans[bound], votes(one, plans[bound]))),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FILE", help="baskets in FIMI format, .gz too, as further streams")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    asked = parser.parse_args()
    streams = [("flights, a week", [*windows_of(flights(), 52)])]
    if asked.data is not None:
        shop = baskets(asked.data)
        streams += [("baskets, a week", [*windows_of(shop, 52)]), ("baskets, all", [*windows_of(shop, 1)])]
    figures = [one for name, windows in streams for epsilon in EPSILONS for one in figures_of(name, windows, epsilon)]
    table = Table("window", "epsilon", "side", "keys found", "keys")
    for one in figures:
        table.add_row(one.stream, one.epsilon, one.side, f"{one.found:,.1f}", f"{one.keys:,.1f}")
    show(figures, table, ["numpy"], as_json=asked.json)


if __name__ == "__main__":
    main()
