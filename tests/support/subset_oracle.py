"""Subset selection from its definition: every subset listed, every class counted, and the paper's own sampler.

Small tables only. Ranks are counted from 1 and positions from 0, as in specs/subset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import comb, exp, expm1, inf, log
from random import Random

import numpy as np

Subset = tuple[int, ...]
Law = dict[Subset, float]


def score(y: Subset, x: Sequence[Fraction], gamma: Fraction, *, signed: bool) -> Fraction:
    """The loss (1 - gamma) M - gamma m of a subset; the paper's takes the larger of M and m for M."""
    inside = min(x[i] for i in y)
    outside = max(x[i] for i in range(len(x)) if i not in y)
    return (1 - gamma) * (outside if signed else max(outside, inside)) - gamma * inside


def energies(
    x: Sequence[Fraction], k: int, epsilon: Fraction, gamma: Fraction, delta: Fraction, *, signed: bool
) -> dict[Subset, Fraction]:
    """How far each subset's score lies below the best one's, times epsilon / (2 delta)."""
    losses = {y: score(y, x, gamma, signed=signed) for y in combinations(range(len(x)), k)}
    least = min(losses.values())
    return {y: epsilon * (loss - least) / (2 * delta) for y, loss in losses.items()}


def gumbel_law(found: Mapping[Subset, Fraction]) -> Law:
    """The exponential mechanism."""
    weights = {y: exp(-energy) for y, energy in found.items()}
    total = sum(weights.values())
    return {y: weight / total for y, weight in weights.items()}


def exponential_law(found: Mapping[Subset, Fraction]) -> Law:
    """Permute-and-flip: p_y times the integral of prod (1 - p u) over the others, u from 0 to 1."""
    chances = np.array([exp(-energy) for energy in found.values()])
    nodes, weights = np.polynomial.legendre.leggauss(max(len(chances) // 2 + 1, 8))
    u = (nodes + 1) / 2
    factors = 1 - chances[:, None] * u
    law = {}
    for i, y in enumerate(found):
        others = np.prod(np.delete(factors, i, axis=0), axis=0)
        law[y] = float(chances[i] * (weights * others).sum() / 2)
    return law


def class_size(h: int, t: int, k: int) -> int:
    """How many subsets keep ranks 1 to h, miss h + 1, and have t > k as their worst."""
    return comb(t - h - 2, k - 1 - h)


def classes(d: int, k: int) -> list[tuple[int, int]]:
    """All (h, t); (k - 1, k) is the top-k."""
    return [(k - 1, k)] + [(h, t) for t in range(k + 1, d + 1) for h in range(k)]


def class_of(y: Subset, order: Sequence[int], k: int) -> tuple[int, int]:
    """The class of a subset in an order of all positions, best first."""
    ranks = sorted(order.index(i) + 1 for i in y)
    h = next((i for i, rank in enumerate(ranks) if rank != i + 1), k)
    return (k - 1, k) if h == k else (h, ranks[-1])


def order_of(x: Sequence[Fraction]) -> list[int]:
    """Positions, best first."""
    return sorted(range(len(x)), key=lambda i: -x[i])


def printed_binomials(x: Sequence[Fraction], k: int, epsilon: float, gamma: float, delta: float) -> Law:
    """A mutant: the class sizes that the printed Algorithm 1 comes to, t - (h + 1) in place of t - (h + 2) (E4)."""

    def size(h: int, t: int) -> float:
        product = 1.0
        for i in range(k - 2, h - 1, -1):
            product *= (t - (i + 1)) / (k - (i + 1))
        return product

    return _by_classes(x, k, epsilon, gamma, delta, size)


def counted_binomials(x: Sequence[Fraction], k: int, epsilon: float, gamma: float, delta: float) -> Law:
    """The same with the true class sizes: the mechanism, variant as printed."""
    return _by_classes(x, k, epsilon, gamma, delta, lambda h, t: class_size(h, t, k))


def unscaled_top(x: Sequence[Fraction], k: int, epsilon: float, delta: float) -> Law:
    """A mutant at gamma = 1: the top-k starts from x_k without the factor epsilon / 2 (E5)."""
    order = order_of(x)
    kth = float(x[order[k - 1]]) / delta
    return _by_classes(x, k, epsilon, 1, delta, lambda h, t: class_size(h, t, k), top=kth - epsilon / 2 * kth)


def _by_classes(
    x: Sequence[Fraction],
    k: int,
    epsilon: float,
    gamma: float,
    delta: float,
    size: Callable[[int, int], float],
    top: float = 0.0,
) -> Law:
    """Draw a class with weight size e^utility, utilities above the top-k's; then a member uniformly."""
    order, rate = order_of(x), epsilon / (2 * delta)
    scores = [float(x[i]) for i in order]
    weights = {(k - 1, k): exp(top)}
    for h, t in classes(len(x), k)[1:]:
        lead, depth = scores[h] - scores[k - 1], scores[k - 1] - scores[t - 1]
        weights[h, t] = size(h, t) * exp(-rate * ((1 - gamma) * lead + gamma * depth))
    total = sum(weights.values())
    law = {}
    for y in combinations(range(len(x)), k):
        cell = class_of(y, order, k)
        members = 1 if cell == (k - 1, k) else class_size(*cell, k)
        law[y] = weights[cell] / total / members
    return law


def algorithm_b(
    x: Sequence[Fraction],
    k: int,
    epsilon: float,
    gamma: float,
    delta: float,
    *,
    signed: bool,
    noise: str,
    random: Random,
) -> Subset:
    """The paper's Algorithm 1, corrected: the best of noisy classes, O(dk)."""
    order, rate = order_of(x), epsilon / (2 * delta)
    s = [float(x[i]) for i in order]

    def noisy(log_size: float) -> float:
        g = log_size - log(random.expovariate(1))
        z = exp(-g)
        return g if noise == "gumbel" else (g if g > 34 else -log(-expm1(-z)))

    head = s[k] if signed else s[k - 1]
    best, kept, worst = rate * (gamma * s[k - 1] - (1 - gamma) * head) + noisy(0), k - 1, k
    for t in range(k + 1, len(x) + 1):
        log_size = 0.0
        for h in range(k - 1, -1, -1):
            if h < k - 1:
                log_size += log((t - (h + 2)) / (k - (h + 1)))
            value = rate * (gamma * s[t - 1] - (1 - gamma) * s[h]) + noisy(log_size)
            if value > best:
                best, kept, worst = value, h, t
    ranks = list(range(k)) if worst == k else [*range(kept), worst - 1]
    if worst > k:
        ranks += random.sample(range(kept + 1, worst - 1), k - 1 - kept)
    return tuple(sorted(order[rank] for rank in ranks))


def farthest(one: Law, other: Law) -> float:
    """The largest |ln(p / q)| over all outputs of two laws."""
    return max(abs(log(one[y] / other[y])) for y in one)


def log_sum(values: np.ndarray) -> float:
    """ln of a sum of exponentials."""
    largest = float(values.max())
    return largest if largest == -inf else largest + log(float(np.exp(values - largest).sum()))


def dense(x: np.ndarray, k: int, epsilon: float, gamma: float, *, signed: bool) -> tuple[float, float]:
    """P(top-k) and the mean worst score, by a pass over all ranks for each h; x falls and is normalised.

    What a plain NumPy implementation of the paper's formulas does, with floats.
    """
    behind = np.arange(len(x) - k, dtype=float)
    a, b = (1 - gamma) * epsilon / 2, gamma * epsilon / 2
    head = x[k] if signed else x[k - 1]
    logs, total, scores = np.zeros(len(x) - k), [b * x[k - 1] - a * head], [float(x[k - 1])]
    for j in range(k):
        if j:
            logs += np.log1p(behind / j)
        values = logs + b * x[k:] - a * x[k - 1 - j]
        total.append(log_sum(values))
        weights = np.exp(values - values.max())
        scores.append(float((weights * x[k:]).sum() / weights.sum()))
    rows = np.array(total)
    shares = np.exp(rows - log_sum(rows))
    return float(shares[0]), float((shares * np.array(scores)).sum())
