"""Integrals of smooth pieces: Gauss-Legendre between given edges."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from experiments.subset.noises import FloatArray

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def nodes_and_weights(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights of an integral over rising edges; twelve nodes in every piece."""
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    return (middle[:, None] + half[:, None] * _POINTS).ravel(), (half[:, None] * _WEIGHTS).ravel()


def cut(low: float, high: float, kinks: Iterable[float], width: float = 1.0) -> FloatArray:
    """Edges from `low` to `high`, at most `width` apart, and one at every kink between them."""
    even = np.linspace(low, high, max(2, int(np.ceil((high - low) / width)) + 1))
    between = [kink for kink in kinks if low < kink < high]
    return np.unique(np.concatenate([even, np.asarray(between, float)]))
