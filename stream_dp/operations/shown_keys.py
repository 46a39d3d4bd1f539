"""Chances of keys to be shown, and errors of their counts: formulas of the law of the noise, for planning.

They compute with floats, and nothing of them decides or publishes a release.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stream_dp.kinds.kind import Showing
from stream_dp.kinds.noise_levels import GaussianLevel, NoiseLevel, TruncatedLevel
from stream_dp.lossless.levels import noise_parameter
from stream_dp.operations.past_counts import Ints, WindowCounts

Floats = NDArray[np.float64]

NEGLIGIBLE = 1e-6
"""Keys that are shown more rarely are left out."""


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


def top_k_of(showing: Showing, counted: WindowCounts, counts: Ints, window: int) -> tuple[Ints, Floats, float]:
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
USEFUL = 0.5
"""Relative error of a count that is of use, at most."""


def relative_errors(
    chance: Floats, counts: Ints, users: Ints, reaches: Reaching, least: float
) -> tuple[Quantiles, Quantiles, Quantiles, float]:
    """Return median and 95th percentile of the relative error of shown counts: in all, of the noise, of the bias.

    And how many of the counts are useful: shown, and within 50 %.

    Args:
        chance: of each count, to be shown.
        counts: the counts, within bounds.
        users: the same without bounds.
        reaches: the law of the noise.
        least: the smallest noisy count that is shown; minus infinity where the count does not decide.
    """
    likely = np.flatnonzero((chance > NEGLIGIBLE) & (users > 0))
    if not len(likely):
        return None, None, None, 0.0
    chance, counts, users = chance[likely], counts[likely], users[likely]
    pairs, at = np.unique(users * (1 + int(counts.max())) + counts, return_inverse=True)
    users, counts = pairs // (1 + int(counts.max())), pairs % (1 + int(counts.max()))
    weights = np.bincount(at, chance)
    total = weights.sum()
    is_threshold = least > -math.inf
    times = weights / shown_at_least(counts, reaches, least) if is_threshold else weights

    def within(middle: Ints) -> Callable[[float], float]:
        def chance_of(error: float) -> float:
            reach = error * users
            low = np.maximum(np.ceil(middle - reach - 1e-9), least)
            high = np.floor(middle + reach + 1e-9) + 1
            inside = shown_at_least(counts, reaches, low) - shown_at_least(counts, reaches, high)
            return float((times * np.maximum(inside, 0)).sum() / total)

        return chance_of

    error, noise = (_quantiles(within(middle)) for middle in (users, counts))
    relative = 1 - counts / users
    order = np.argsort(relative)
    places = np.searchsorted(np.cumsum(weights[order]), [share * total for share in QUANTILES])
    low, high = (float(relative[order[min(place, len(order) - 1)]]) for place in places)
    return error, noise, (low, high), float(within(users)(USEFUL) * total)


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


def chances_on_list(
    found: tuple[WindowCounts, Ints, Floats],
    released_ms: Ints,
    kept: tuple[int, int],
    counted: WindowCounts,
    closes_ms: Ints,
) -> tuple[Floats, float]:
    """Return the chance of each cell of a view that its key is on the list that is made of releases of another view.

    The list of a window has the keys that were shown of the newest windows that were released before it closed. The
    noises of these windows are independent: a key is missing with the product of the chances that it was not shown.

    Args:
        found: counts of the other view, cells of them, and the chance that each of these is shown.
        released_ms: when each of its windows is released.
        kept: the number of its windows that count, and the time in ms after which a release is deleted.
        counted: of the view; its items have the same numbers.
        closes_ms: when each window of the view closes.

    Returns:
        The chances, and the expected number of keys on all lists that nobody had in the window.
    """
    rare, cells, chance = found
    order = np.argsort(released_ms, kind="stable")
    times, rank = released_ms[order], np.argsort(order)[rare.window[cells]]
    cells, rank = cells[by := np.argsort(rank, kind="stable")], np.sort(rank)
    missed = np.log1p(-np.minimum(chance[by], _ALMOST_SURE))
    size = 1 + max(rare.item.max(initial=0), counted.item.max(initial=0))
    versions = np.searchsorted(times, closes_ms, "left")
    of_cell = versions[counted.window]
    by_version, listed, others = np.argsort(of_cell, kind="stable"), np.zeros(len(of_cell)), 0.0
    for version, windows in zip(*np.unique(versions[versions > 0], return_counts=True), strict=True):
        oldest = max(version - kept[0], np.searchsorted(times, times[version - 1] - kept[1]))
        low, high = np.searchsorted(rank, [oldest, version])
        on_list = -np.expm1(np.bincount(rare.item[cells[low:high]], missed[low:high], size))
        low, high = np.searchsorted(of_cell[by_version], [version, version + 1])
        mine = by_version[low:high]
        listed[mine] = on_list[counted.item[mine]]
        others += float(windows * on_list.sum() - listed[mine].sum())
    return listed, others


_ALMOST_SURE = 1 - 1e-15
