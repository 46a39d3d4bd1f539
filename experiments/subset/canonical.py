"""Exact class probabilities of the canonical Lipschitz mechanism on known scores.

They are facts about private data: for planning on public or made-up scores, and for figures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.subset.noises import FloatArray
from experiments.subset.profiles import Bar, Profile, good, great
from experiments.subset.quadrature import nodes_and_weights

_FEW = 0.01
_TERMS = 8
"""Of the series of log (1 - x) for x up to `_FEW`: the next term is below the last digit of a double."""


@dataclass(frozen=True, slots=True)
class Canonical:
    """A loss over k-subsets: (1 - gamma) times the best score left out less gamma times the worst one let in.

    Attributes:
        gamma: between 0 and 1.
        signed: whether the top-k itself is rewarded for its lead on rank k + 1; the published definition does not.
    """

    gamma: float
    signed: bool


PAPER = Canonical(0.5, signed=False)
PAPER_TAIL = Canonical(1.0, signed=False)
SIGNED = Canonical(0.75, signed=True)


@dataclass(frozen=True, slots=True)
class ClassLaw:
    """Probabilities of the classes of subsets.

    Attributes:
        profile: the scores.
        top: probability of the best k themselves.
        cells: of the others, by leading ranks held and run of the worst rank, shape (k, runs).
    """

    profile: Profile
    top: float
    cells: FloatArray

    def reaches(self, bar: Bar) -> float:
        """The probability of a selection that clears a bar."""
        return self.top + float(self.cells[bar.kept :, : self.profile.runs_within(bar)].sum())

    @property
    def great(self) -> float:
        """See `profiles.great`."""
        return self.reaches(great(self.profile.k))

    @property
    def good(self) -> float:
        """See `profiles.good`."""
        return self.reaches(good(self.profile.k))

    @property
    def worst_score(self) -> float:
        """The expected score of the worst item selected."""
        return self.top * float(self.profile.best[-1]) + float((self.cells.sum(axis=0) * self.profile.scores).sum())

    @property
    def recall(self) -> float:
        """The expected share of the best k among the selected."""
        k, sizes = self.profile.k, self.profile.log_sizes
        # Of the items between the leading ranks and the worst one, k - 1 - h ranks are among the best k; each is in
        # with the chance (k - 1 - h) / (t - h - 2), whose mean over a run is a quotient of neighbouring sizes.
        share = np.exp(sizes[1:] - sizes[:-1])
        leading = np.arange(k, dtype=float)
        found = np.broadcast_to(leading[:, None], sizes.shape).copy()
        found[:-1] += (k - 1 - leading[:-1, None]) * share
        return self.top + float((self.cells * found).sum()) / k


def log_odds(profile: Profile, mechanism: Canonical, epsilon: float, sensitivity: float) -> tuple[float, FloatArray]:
    """Log weights of the top-k and of a subset of each cell, relative to one whose head and tail score like rank k."""
    outside = (1 - mechanism.gamma) * epsilon / (2 * sensitivity)
    inside = mechanism.gamma * epsilon / (2 * sensitivity)
    line = float(profile.best[-1])
    head = float(profile.scores[0]) if mechanism.signed else line
    cells = np.subtract.outer(-outside * (profile.best - line), -inside * (profile.scores - line))
    return -outside * (head - line), cells


def class_law(profile: Profile, mechanism: Canonical, epsilon: float, sensitivity: float = 0.5) -> ClassLaw:
    """The law of the class under Gumbel noise, which is the exponential mechanism over subsets.

    Args:
        profile: the scores; there is at least one item behind rank k.
        mechanism: the loss.
        epsilon: of the whole selection.
        sensitivity: what one user moves a score by; one half for counts of users who come or go.

    Returns:
        All probabilities, accurate to about 1e-12.

    Time: one exponential for every cell. Source: specs/subset 2.5, 2.9.
    """
    top, cells = log_odds(profile, mechanism, epsilon, sensitivity)
    cells += profile.log_sizes
    largest = max(top, float(cells.max()))
    cells -= largest
    np.exp(cells, out=cells)
    weight = float(np.exp(top - largest))
    total = weight + float(cells.sum())
    cells /= total
    return ClassLaw(profile, weight / total, cells)


def top_with_exponential_noise(
    profile: Profile, mechanism: Canonical, epsilon: float, sensitivity: float = 0.5
) -> float:
    """The probability of the best k themselves under exponential noise, which is permute-and-flip over subsets.

    The integral over u in (0, 1) of the product over all other subsets of 1 - p u, p their weight relative to the
    top-k; none may be heavier (specs/subset 2.9).
    """
    top, cells = log_odds(profile, mechanism, epsilon, sensitivity)
    weights = np.exp(cells - top).ravel()
    expected = np.exp(np.minimum(cells - top + profile.log_sizes, 700.0)).ravel()
    heavy = weights > _FEW
    sums = [float((expected[~heavy] * weights[~heavy] ** power).sum()) for power in range(_TERMS)]
    scale = float(expected.sum())
    edges = np.unique(np.minimum(np.concatenate([[0.0], np.geomspace(1 / 64, 64, 25) / max(scale, 1.0), [1.0]]), 1.0))
    nodes, lengths = nodes_and_weights(edges)
    log_product = -sum(moment * nodes ** (power + 1) / (power + 1) for power, moment in enumerate(sums))
    for weight, mean in zip(weights[heavy], expected[heavy], strict=True):
        log_product = log_product + mean / weight * np.log1p(-np.minimum(weight, 1.0) * nodes)
    return float((lengths * np.exp(log_product)).sum())
