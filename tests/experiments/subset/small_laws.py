"""Laws on a handful of items, or of classes: which of some noisy utilities is the largest, under any noise."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike

from experiments.subset.canonical import Canonical, log_odds
from experiments.subset.noises import FloatArray, Noise
from experiments.subset.profiles import Profile
from experiments.subset.quadrature import cut, nodes_and_weights

_NEGLIGIBLE = 42.0


def loss(members: Collection[int], scores: Sequence[float], mechanism: Canonical) -> float:
    """The loss of a set of items, without the sensitivity."""
    worst_in = min(scores[item] for item in members)
    best_out = max(score for item, score in enumerate(scores) if item not in members)
    head = best_out if mechanism.signed else max(best_out, worst_in)
    return (1 - mechanism.gamma) * head - mechanism.gamma * worst_in


def joint_loss(members: Collection[int], scores: Sequence[float]) -> float:
    """The loss of Joseph et al. 2021: half of the widest gap between the best scores and those let in, rank by rank."""
    chosen = sorted((scores[item] for item in members), reverse=True)
    return max(best - mine for best, mine in zip(sorted(scores, reverse=True), chosen, strict=False)) / 2


def argmax_law(utilities: ArrayLike, noise: Noise, sizes: ArrayLike = 1.0) -> FloatArray:
    """How probable it is for each candidate, or each class of `sizes` equal ones, to have the largest noisy utility.

    One integral per class over the largest value; accurate to about 1e-10 while no class has more than some thousands.
    """
    values = np.asarray(utilities, float)
    many = np.broadcast_to(np.asarray(sizes, float), values.shape)
    support = np.isinf(noise.log_density(np.array(-1.0)))
    low = float(values.max()) if support else float(values.max()) - _NEGLIGIBLE - 8
    high = float(values.max() + np.log(many.sum())) + _NEGLIGIBLE
    nodes, lengths = nodes_and_weights(cut(low, high, values.tolist(), width=0.5))
    at = nodes - values[:, None]
    log_product = (many[:, None] * np.maximum(noise.log_cumulative(at), -1e6)).sum(axis=0)
    density = np.exp(log_product)
    law: FloatArray = (many[:, None] * noise.reversed_hazard(at) * density * lengths).sum(axis=1)
    return law


def class_law_under(
    profile: Profile, mechanism: Canonical, noise: Noise, epsilon: float, sensitivity: float
) -> tuple[float, FloatArray]:
    """The probability of the top-k and of every cell of `Profile.log_sizes`, under any noise, by integrals."""
    top, cells = log_odds(profile, mechanism, epsilon, sensitivity)
    sizes = np.exp(profile.log_sizes)
    law = argmax_law(np.append(cells.ravel(), top), noise, np.append(sizes.ravel(), 1.0))
    return float(law[-1]), law[:-1].reshape(cells.shape)
