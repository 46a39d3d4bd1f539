"""Figure 2 of the paper by simulation: what n releases at growing budgets cost in variance, lossless and independent.

Budgets go from rho = 0.001 to 5, evenly on a log scale. Lossless, release k has variance 1 / (2 rho_k), however many
there are and in whatever order they are drawn. Independent releases under the same total may each use only what the
budget grew by: 1 / (2 (rho_k - rho_(k-1))), a constant factor worse after the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.lossless.gaussian import Gaussian, covariance, insertion
from experiments.lossless.kernels import FloatArray, release_in_order

RHO_MIN, RHO_MAX = 0.001, 5.0
RELEASES = (2, 5, 10, 20, 50, 100)
"""Numbers of releases; the paper's own list is not known."""
RUNS = 1_000_000
STANDARD_ERRORS = 4
ORDERS = ("increasing", "decreasing", "shuffled")

_CHUNK = 1 << 14


@dataclass(frozen=True, slots=True)
class Curve:
    """The noise variance of every release of a series, one entry per budget, budgets growing.

    Attributes:
        expected: by the closed form.
        measured: over the runs.
    """

    expected: FloatArray
    measured: FloatArray

    @property
    def deviations(self) -> FloatArray:
        """Relative errors of the measured variances."""
        return self.measured / self.expected - 1


@dataclass(frozen=True, slots=True)
class Series:
    """n releases.

    Attributes:
        budgets: rho of each release, shape (n,).
        lossless: one curve for each of `ORDERS`.
        independent: the baseline under the same total budget.
    """

    budgets: FloatArray
    lossless: dict[str, Curve]
    independent: Curve

    @property
    def ratio(self) -> float:
        """From one budget to the next."""
        return float(self.budgets[1] / self.budgets[0])

    @property
    def penalty(self) -> float:
        """Factor by which independent releases are worse from the second on, r / (r - 1)."""
        return self.ratio / (self.ratio - 1)


def log_even_budgets(releases: int) -> FloatArray:
    """From `RHO_MIN` to `RHO_MAX`, each the same ratio above the one before; at least two."""
    budgets: FloatArray = np.geomspace(RHO_MIN, RHO_MAX, releases)
    return budgets


def lossless_variance(budgets: FloatArray) -> FloatArray:
    """1 / (2 rho) for every budget."""
    return np.array([covariance(rho, rho, 1.0) for rho in budgets.tolist()])


def independent_variance(budgets: FloatArray) -> FloatArray:
    """1 / (2 (rho_k - rho_(k-1))) for every budget, rho_0 = 0."""
    return np.array([insertion(rho, None, None, 1.0).variance for rho in np.diff(budgets, prepend=0.0).tolist()])


def tolerance(runs: int) -> float:
    """Four standard errors of a measured variance, relative to it: 0.57 % for a million runs."""
    return STANDARD_ERRORS * math.sqrt(2 / runs)


def work(runs: int, releases: Sequence[int] = RELEASES) -> int:
    """Return how many noise numbers `simulate` draws in all: the unit of its progress."""
    return runs * sum(releases) * (len(ORDERS) + 1)


def simulate(
    runs: int,
    rng: np.random.Generator,
    releases: Sequence[int] = RELEASES,
    progress: Callable[[int], object] = lambda drawn: None,
) -> list[Series]:
    """Draw every series `runs` times and measure the variances; no statistic, noise only.

    Args:
        runs: repetitions, at least 1.
        rng: source of noise.
        releases: numbers of releases, each at least 2.
        progress: told after every piece of work how many noise numbers it drew.

    Returns:
        One series for each number of releases.

    Time: about 15 ns for each of the `work(runs)` numbers. Source: specs/lossless 4, vector G10.
    """
    return [_series(log_even_budgets(n), runs, rng, progress) for n in releases]


def _series(budgets: FloatArray, runs: int, rng: np.random.Generator, progress: Callable[[int], object]) -> Series:
    expected, separate = lossless_variance(budgets), independent_variance(budgets)
    squares = {order: np.zeros(len(budgets)) for order in ORDERS}
    independent = np.zeros(len(budgets))
    for start in range(0, runs, _CHUNK):
        size = min(_CHUNK, runs - start)
        for order in ORDERS:
            levels = _ordered(budgets, order, rng)
            held = release_in_order(Gaussian(), np.zeros(size), levels, rng)
            squares[order] += [_square_sum(held[rho]) for rho in budgets.tolist()]
            progress(size * len(budgets))
        for index, variance in enumerate(separate):
            independent[index] += variance * _square_sum(rng.standard_normal(size))
        progress(size * len(budgets))
    lossless = {order: Curve(expected, total / runs) for order, total in squares.items()}
    return Series(budgets, lossless, Curve(separate, independent / runs))


def _square_sum(noise: FloatArray) -> float:
    return float(np.square(noise).sum())  # a BLAS product would wake its threads for every small array


def _ordered(budgets: FloatArray, order: str, rng: np.random.Generator) -> list[float]:
    places = np.arange(len(budgets))
    if order == "decreasing":
        places = places[::-1]
    elif order == "shuffled":
        rng.shuffle(places)
    return [float(budgets[place]) for place in places]
