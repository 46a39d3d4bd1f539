"""Theorems about the canonical mechanism, and the epsilon below which it collapses.

Bounds in normalised scores, one user moving each by 1; natural logarithms.
"""

from __future__ import annotations

import math

import numpy as np

from experiments.subset.canonical import Canonical
from experiments.subset.noises import FloatArray
from experiments.subset.profiles import Profile, good, log_choose


def canonical_error(domain: int, k: int, alpha: float) -> float:
    """The error term of the canonical mechanism at confidence 1 - alpha: log C(d, k) + log 1 / alpha.

    The worst selected score lies above that of rank k less 2 / (gamma epsilon) times it (specs/subset 3.4).
    """
    return log_choose(domain, k) - math.log(alpha)


def canonical_error_printed(domain: int, k: int, alpha: float) -> float:
    """The same with the simpler upper bound k log (d / k) + k on the logarithm."""
    return k * math.log(domain / k) - math.log(alpha) + k


def peeling_error(domain: int, k: int, alpha: float) -> float:
    """That of k picks by the exponential mechanism, each at the confidence that leaves 1 - alpha for all."""
    return -k * math.log(-math.expm1(math.log1p(-alpha) / k) / domain)


def peeling_error_printed(domain: int, k: int, alpha: float) -> float:
    """The same as printed, for alpha up to a tenth."""
    return k * math.log(domain * k) - k * math.log(alpha) - 0.06 * k


def canonical_leap(domain: int, k: int, gamma: float) -> float:
    """The mean of the gap behind rank k that is enough for the exact top-k."""
    return log_choose(domain, k) / gamma


def peeling_leap(domain: int, k: int) -> float:
    """The same for peeling."""
    return k * math.log((domain - 1 - k) * k)


def joint_shortfall(profile: Profile, gamma: float) -> FloatArray:
    """Return how far classes fall short: (1 - gamma) of the best score left out, gamma of the worst let in.

    In raw scores; no more than 2 / epsilon times `canonical_error`, times the sensitivity, at its confidence.
    """
    line = profile.best[-1]
    shortfall: FloatArray = (1 - gamma) * (profile.best[:, None] - line) + gamma * (line - profile.scores)
    return shortfall


def critical_epsilon(profile: Profile, mechanism: Canonical, sensitivity: float = 0.5) -> tuple[float, tuple[int, int]]:
    """Below it some class that is not good outweighs the top-k, and the selection collapses to a random subset.

    Returns:
        The largest log size over gap of all classes outside `good`, and that class: leading ranks held, worst rank.

    Source: specs/subset 3.6.
    """
    k, bar = profile.k, good(profile.k)
    head = profile.scores[0] if mechanism.signed else profile.best[-1]
    worst, place = 0.0, (0, 0)
    behind = profile.last.astype(float)
    log_size = np.zeros(len(behind))
    for j in range(k):
        if j:
            log_size = log_size + np.log1p(behind / j)
        held = k - 1 - j
        gap = (1 - mechanism.gamma) * (profile.best[held] - head) + mechanism.gamma * (
            profile.best[-1] - profile.scores
        )
        outside = gap > 0
        if held >= bar.kept:
            outside[: profile.runs_within(bar)] = False
        ratios = np.where(outside, log_size / np.where(outside, gap, 1.0), 0.0)
        if ratios.max() > worst:
            run = int(ratios.argmax())
            worst, place = float(ratios[run]), (held, k + 1 + int(profile.last[run]))
    return 2 * sensitivity * worst, place
