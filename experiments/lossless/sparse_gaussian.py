"""Sparse histograms with Gaussian noise, released at growing rho: dense, and in time that ignores empty bins.

Bins are 0, ..., d - 1; few are non-zero. A release shows the bins whose noisy count is above a threshold. Thresholding
is post-processing, so everything released up to rho is rho-zCDP, without a delta. The efficient form tracks the
non-zero bins and every empty one that was ever shown; how many of the others appear in a round is one binomial draw.

The noise of a bin that appears is not what Algorithm 6 prints. Drawing each round's increment given only that round's
bound is biased, because the past of a bin that appears now is tilted upwards, and the printed value misses a division
by rho. Here the new round is drawn first, beyond its threshold, then its past by coarsening, and a past that would have
been shown is rejected: exactly the law of the dense form (docs/lossless.md, specs/lossless 2.9.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.lossless.gaussian import Gaussian
from experiments.lossless.kernels import FloatArray
from stream_dp.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Round:
    """One release: its zCDP parameter and the noisy count above which a bin is shown."""

    rho: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Appearance:
    """Behaviour of an empty bin in the last of some rounds; 0 where doubles cannot tell it from 0.

    Attributes:
        chance: p, of being shown in the last round if it was shown in none before.
        acceptance: the share of noise beyond the last threshold whose past was silent.
    """

    chance: float
    acceptance: float


def appearance(rounds: Sequence[Round], sensitivity_squared: float = 1.0) -> Appearance:
    """The chance that an empty bin is shown for the first time in the last round, by quadrature.

    S_r = rho_r Z_r is a driftless walk; its law on the silent paths is carried from round to round on Gauss-Legendre
    panels no wider than a standard deviation of a step, to a relative accuracy of about 1e-10.

    Args:
        rounds: at growing rho.
        sensitivity_squared: Delta2^2 of the histogram.

    Raises:
        ParameterError: rho does not grow, or two rounds are so close that the panels become too many.

    Source: specs/lossless 2.9.3 (Algorithm 6, line 14), vector H01.
    """
    rhos = np.array([0.0, *(one.rho for one in rounds)])
    if not rounds or np.any(np.diff(rhos) <= 0):
        raise ParameterError("the rounds of a gradual release must have growing rho, at least one, all above 0")
    steps = np.sqrt(sensitivity_squared / 2 * np.diff(rhos))
    bounds = [one.rho * one.threshold for one in rounds]
    nodes, mass = np.zeros(1), np.ones(1)
    for index in range(len(rounds) - 1):
        spread = math.sqrt(sensitivity_squared / 2 * rounds[index].rho)
        grid, weights = _panels(bounds[index], spread, min(steps[index], steps[index + 1]))
        density = np.exp(-(((grid[:, None] - nodes[None, :]) / steps[index]) ** 2) / 2) @ mass
        nodes, mass = grid, weights * density / (steps[index] * math.sqrt(2 * math.pi))
    event = float(_normal_tail((bounds[-1] - nodes) / steps[-1]) @ mass)
    last = rounds[-1]
    beyond = float(_normal_tail(np.array(last.threshold * math.sqrt(2 * last.rho / sensitivity_squared))))
    return Appearance(chance=_ratio(event, float(mass.sum())), acceptance=_ratio(event, beyond))


def appearing(
    rounds: Sequence[Round], count: int, rng: np.random.Generator, sensitivity_squared: float = 1.0
) -> tuple[FloatArray, int]:
    """The noise of empty bins that are shown for the first time in the last round, as it was in every round.

    Args:
        rounds: at growing rho.
        count: number of bins.
        rng: source of noise.
        sensitivity_squared: Delta2^2 of the histogram.

    Returns:
        Noise of shape (count, rounds): at most the threshold in every round but the last, above it there. And the
        number of paths that were rejected on the way, 1 / acceptance - 1 for each bin on average.

    Source: specs/lossless 2.9.3, vector H01.
    """
    family, last = Gaussian(sensitivity_squared), rounds[-1]
    spread = math.sqrt(sensitivity_squared / (2 * last.rho))
    kept = [np.empty((0, len(rounds)))]
    missing, rejected = count, 0
    while missing:
        path = [spread * normal_beyond(last.threshold / spread, missing, rng)]
        for finer, one in zip(rounds[:0:-1], rounds[-2::-1], strict=True):
            path.append(family.coarsen(path[-1], finer.rho, one.rho, rng))
        noise = np.stack(path[::-1], axis=1)
        silent = np.all(noise[:, :-1] <= [one.threshold for one in rounds[:-1]], axis=1)
        kept.append(noise[silent])
        missing -= len(kept[-1])
        rejected += int(np.count_nonzero(~silent))
    return np.concatenate(kept), rejected


def normal_beyond(bound: float, size: int, rng: np.random.Generator) -> FloatArray:
    """Standard normal numbers conditioned to be above `bound`, exactly, at a cost that does not grow with it.

    Source: Robert 1995, rejection from a shifted exponential; from the normal itself where that is the better one.
    """
    rate = (bound + math.sqrt(bound * bound + 4)) / 2
    kept = [np.empty(0)]
    missing = size
    while missing:
        if bound < 0.25:
            drawn = rng.standard_normal(missing)
            accepted = drawn > bound
        else:
            drawn = bound + rng.standard_exponential(missing) / rate
            accepted = rng.random(missing) < np.exp(-((drawn - rate) ** 2) / 2)
        kept.append(drawn[accepted])
        missing -= len(kept[-1])
    return np.concatenate(kept)


class DenseGradual:
    """The gradual release of a whole histogram, bin by bin.

    Args:
        counts: shape (d,).
        sensitivity_squared: Delta2^2; l where a user adds 1 to each of l bins.

    Guarantee: all releases up to rho are together rho-zCDP. Time: d Gaussians a round.
    Source: specs/lossless 2.9.1 (Algorithm 3, Lemma 5.4).
    """

    def __init__(self, counts: FloatArray, sensitivity_squared: float = 1.0) -> None:
        self._counts = counts
        self._family = Gaussian(sensitivity_squared)
        self._rho = 0.0
        self._noise = np.zeros_like(counts)

    def release(self, rho: float, threshold: float, rng: np.random.Generator) -> FloatArray:
        """The noisy counts above the threshold, 0 elsewhere.

        Raises:
            ParameterError: rho does not grow.
        """
        if rho <= self._rho:
            raise ParameterError(f"a gradual release goes on from rho {self._rho} upwards, not to {rho}")
        self._noise = _sharpened(self._family, self._noise, self._rho, rho, rng)
        self._rho = rho
        noisy = self._counts + self._noise
        return np.where(noisy > threshold, noisy, 0)


class EfficientGradual:
    """The gradual release of a histogram with few non-zero bins, equal in law to `DenseGradual`.

    Args:
        counts: the non-zero bins.
        bins: d, the size of the domain, which is public.
        sensitivity_squared: Delta2^2; l where a user adds 1 to each of l bins.

    Attributes:
        gaussians: how many were drawn so far: one for each round and each bin that is tracked in the end, as
            Lemma 5.7 counts them, and one for each round of a rejected path.
        rejected: those of rejected paths.

    Guarantee: all releases up to rho are together rho-zCDP. Time of a round: one Gaussian for each tracked bin; the
    paths of newcomers, rejected ones included, are on average as many as empty bins lie above the threshold, tracked or
    not, because newcomers over acceptance are d times the tail.
    Source: specs/lossless 2.9.3 (Algorithm 6 as corrected), vectors H01, H04, H06.
    """

    def __init__(self, counts: Mapping[int, float], bins: int, sensitivity_squared: float = 1.0) -> None:
        if not all(0 <= name < bins for name in counts):
            raise ParameterError(f"the bins are numbered from 0 to {bins - 1}")
        self.gaussians = 0
        self.rejected = 0
        self._bins = bins
        self._family = Gaussian(sensitivity_squared)
        self._rounds: tuple[Round, ...] = ()
        self._counts = dict(counts)
        self._noise = np.zeros(len(counts))

    def release(self, rho: float, threshold: float, rng: np.random.Generator) -> dict[int, float]:
        """The noisy counts above the threshold, by bin.

        Raises:
            ParameterError: rho does not grow, or two rounds are too close and the dense form must be used.
        """
        rounds = (*self._rounds, Round(rho, threshold))
        expected = appearance(rounds, self._family.sensitivity_squared)
        newcomers = self._untracked(rng.binomial(self._bins - len(self._counts), expected.chance), rng)
        before = self._rounds[-1].rho if self._rounds else 0.0
        noise = _sharpened(self._family, self._noise, before, rho, rng)
        paths, rejected = appearing(rounds, len(newcomers), rng, self._family.sensitivity_squared)
        self.gaussians += len(noise) + (len(newcomers) + rejected) * len(rounds)
        self.rejected += rejected * len(rounds)
        self._counts.update(dict.fromkeys(newcomers, 0.0))
        self._noise = np.concatenate([noise, paths[:, -1]])
        self._rounds = rounds
        shown = zip(self._counts, np.array([*self._counts.values()]) + self._noise, strict=True)
        return {name: float(value) for name, value in shown if value > threshold}

    def _untracked(self, count: int, rng: np.random.Generator) -> list[int]:
        """Distinct bins, uniformly among those not tracked."""
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            for name in rng.integers(self._bins, size=count - len(chosen)).tolist():
                if name not in self._counts:
                    chosen[name] = None
        return list(chosen)


def _sharpened(family: Gaussian, noise: FloatArray, before: float, rho: float, rng: np.random.Generator) -> FloatArray:
    if before == 0:
        return family.fresh(rho, noise.shape, rng)
    return family.sharpen(noise, before, np.zeros_like(noise), rho, rng)


def _panels(end: float, spread: float, width: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of a quadrature from far below 0 up to `end`, in panels of at most `width`."""
    upper = min(end, _REACH * spread)
    lower = min(end, 0.0) - _REACH * spread
    count = math.ceil((upper - lower) / width)
    if count > _MOST_PANELS:
        raise ParameterError("two rounds of a gradual release are too close for the efficient form: use the dense one")
    points, weights = np.polynomial.legendre.leggauss(_NODES)
    edges = np.linspace(lower, upper, count + 1)
    half = (upper - lower) / (2 * count)
    nodes = (edges[:-1, None] + half * (points + 1)).ravel()
    return nodes, np.tile(half * weights, count)


_NODES = 16
_REACH = 12.0
_MOST_PANELS = 400


def _ratio(part: float, whole: float) -> float:
    return min(part / whole, 1.0) if whole > 0 else 0.0


def _normal_tail(x: FloatArray) -> FloatArray:
    """P(N(0, 1) > x)."""
    result: FloatArray = _erfc(x / math.sqrt(2)) / 2
    return result


_erfc = np.vectorize(math.erfc, otypes=[np.float64])
