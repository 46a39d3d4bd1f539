"""The classical rivals: noise for every item once, and the best k of the noisy scores.

With Gumbel noise this is peeling, k picks by the exponential mechanism at epsilon / k each, in law and in order; with
exponential noise it is a one-shot permute-and-flip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.subset.noises import FloatArray, Noise
from experiments.subset.profiles import Bar, Profile, good, great
from experiments.subset.quadrature import cut, nodes_and_weights

_NEGLIGIBLE = 42.0
"""e to minus this is below the last digit of a probability."""
_FAR = 18.0
"""So far out the noises are exponential to eight digits, and many items are as one."""
_CELLS_AT_ONCE = 1 << 20
_KINKS = 100
"""Of scores behind rank k; those of the others are too far from the largest of them to matter."""


def scaled(scores: ArrayLike, k: int, epsilon: float, sensitivity: float) -> FloatArray:
    """Scores in units of the noise."""
    return np.asarray(scores, float) * (epsilon / (2 * k * sensitivity))


def set_law(
    scores: Sequence[float], k: int, noise: Noise, epsilon: float, sensitivity: float = 0.5
) -> dict[tuple[int, ...], float]:
    """The probability of every set of k winners, by integrals; for a handful of items."""
    values = scaled(scores, k, epsilon, sensitivity)
    nodes, lengths = nodes_and_weights(_around(values, noise))
    below = np.array([noise.log_cumulative(nodes - value) for value in values])
    above = np.array([noise.log_survival(nodes - value) for value in values])
    best = np.array([noise.reversed_hazard(nodes - value) for value in values])
    law = {}
    for chosen in combinations(range(len(values)), k):
        others = [item for item in range(len(values)) if item not in chosen]
        # The best of the others is at the node, and all the chosen are above it.
        density = np.exp(below[others].sum(axis=0) + above[list(chosen)].sum(axis=0)) * best[others].sum(axis=0)
        law[chosen] = float((lengths * density).sum())
    return law


def ordered_pair_law(
    scores: Sequence[float], noise: Noise, epsilon: float, sensitivity: float = 0.5
) -> dict[tuple[int, int], float]:
    """The probability of every ordered pair of winners, k = 2, by integrals; for a handful of items."""
    values = scaled(scores, 2, epsilon, sensitivity)
    nodes, lengths = nodes_and_weights(_around(values, noise))
    law = {}
    for first, second in permutations(range(len(values)), 2):
        others = [item for item in range(len(values)) if item not in (first, second)]
        density = noise.log_density(nodes - values[second]) + noise.log_survival(nodes - values[first])
        for item in others:
            density = density + noise.log_cumulative(nodes - values[item])
        law[first, second] = float((lengths * np.exp(density)).sum())
    return law


def peeling_law(
    scores: Sequence[float], k: int, epsilon: float, sensitivity: float = 0.5
) -> dict[tuple[int, ...], float]:
    """The probability of every ordered list of k picks by the exponential mechanism; for a handful of items."""
    weights = np.exp(scaled(scores, k, epsilon, sensitivity))
    law = {}
    for order in permutations(range(len(weights)), k):
        chance, left = 1.0, float(weights.sum())
        for item in order:
            chance *= float(weights[item]) / left
            left -= float(weights[item])
        law[order] = chance
    return law


def _around(values: FloatArray, noise: Noise) -> FloatArray:
    low = float(values.min()) - (0.0 if np.isinf(noise.log_density(np.array(-1.0))) else _NEGLIGIBLE)
    return cut(low, float(values.max()) + _NEGLIGIBLE, values.tolist(), width=0.5)


def top(profile: Profile, noise: Noise, epsilon: float, sensitivity: float = 0.5) -> float:
    """The probability that the winners are exactly the best k.

    The best noisy score behind rank k lies somewhere, and all the best k are above it: one integral, whatever the size
    of the table (specs/subset 2.9).
    """
    best = scaled(profile.best, profile.k, epsilon, sensitivity)
    tail = scaled(profile.scores, profile.k, epsilon, sensitivity)
    origin = tail[0]
    best, tail = best - origin, tail - origin
    sizes = profile.sizes.astype(float)
    high = float(np.log(profile.domain)) + _NEGLIGIBLE
    low = _crossing(lambda v: _log_all_below(noise, tail, sizes, v), -_NEGLIGIBLE - 8, high)
    high = min(high, _crossing(lambda v: -float(noise.log_survival(v - best).sum()) - 2 * _NEGLIGIBLE, low, high))
    near = tail > low - _FAR
    far = noise.tail * float((sizes[~near] * np.exp(tail[~near])).sum())
    tail, sizes = tail[near], sizes[near]
    kinks = {"none": [], "survival": [0.0, *best.tolist()], "density": [*best.tolist(), *tail[:_KINKS].tolist()]}
    nodes, lengths = nodes_and_weights(cut(low, high, kinks[noise.kinks]))
    total = 0.0
    for part in np.array_split(np.arange(len(nodes)), 1 + len(nodes) * (len(tail) + len(best)) // _CELLS_AT_ONCE):
        at = nodes[part, None]
        others = far * np.exp(-nodes[part])
        below = (sizes * np.maximum(noise.log_cumulative(at - tail), -1e6)).sum(axis=1) - others
        rate = (sizes * noise.reversed_hazard(at - tail)).sum(axis=1) + others
        total += float((lengths[part] * np.exp(below + noise.log_survival(at - best).sum(axis=1)) * rate).sum())
    return total


def _log_all_below(noise: Noise, tail: FloatArray, sizes: FloatArray, value: float) -> float:
    return float((sizes * np.maximum(noise.log_cumulative(value - tail), -1e6)).sum()) + _NEGLIGIBLE


def _crossing(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return where a rising function passes zero, to a hundredth, from below."""
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return low


@dataclass(frozen=True, slots=True)
class Estimate:
    """Shares of simulated selections that clear the bars, an entry for each epsilon."""

    great: FloatArray
    good: FloatArray


def simulate(
    profile: Profile,
    noise: Noise,
    epsilons: Sequence[float],
    runs: int,
    rng: np.random.Generator,
    sensitivity: float = 0.5,
) -> Estimate:
    """Estimate how often the winners are great and good, with the same noise at every epsilon.

    Of a run of equal scores far behind only the best noise counts, and that is drawn at once.

    Time: a noise for every run of equal scores, not for every item.
    """
    bars = (great(profile.k), good(profile.k))
    split = profile.runs_within(bars[1])
    single = np.concatenate([profile.best, np.repeat(profile.scores[:split], profile.sizes[:split])])
    far, log_sizes = profile.scores[split:], np.log(profile.sizes[split:])
    found = np.zeros((2, len(epsilons)))
    at_once = max(1, _CELLS_AT_ONCE // (len(single) + len(far)))
    for start in range(0, runs, at_once):
        size = min(at_once, runs - start)
        near_noise = noise.link(rng.gumbel(size=(size, len(single))))
        far_noise = noise.link(rng.gumbel(size=(size, len(far))) + log_sizes)
        for column, epsilon in enumerate(epsilons):
            factor = epsilon / (2 * profile.k * sensitivity)
            near = near_noise + factor * single
            beyond = (far_noise + factor * far).max(axis=1, initial=-np.inf)
            for row, bar in enumerate(bars):
                found[row, column] += np.count_nonzero(_clears(near, beyond, bar, profile.k))
    return Estimate(found[0] / runs, found[1] / runs)


def _clears(near: FloatArray, beyond: FloatArray, bar: Bar, k: int) -> NDArray[np.bool_]:
    """Return, run by run, whether all that must be in are among the best k noisy scores, and none of what must not."""
    least_wanted = near[:, : bar.kept].min(axis=1)
    best_unwanted = np.maximum(beyond, near[:, bar.last :].max(axis=1, initial=-np.inf))
    between = near[:, bar.kept : bar.last]
    ahead = bar.kept + (between > least_wanted[:, None]).sum(axis=1)
    enough = bar.kept + (between > best_unwanted[:, None]).sum(axis=1)
    clears: NDArray[np.bool_] = (least_wanted > best_unwanted) & (ahead <= k) & (enough >= k)
    return clears
