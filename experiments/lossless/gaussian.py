"""Gaussian noise of zCDP parameter rho: N(0, Delta2^2 / (2 rho)), the noise of the paper's Figure 2.

Written in products of differences, which keep their relative accuracy where parameters are close; the printed form
loses all digits there. A missing neighbour is a case of its own: 0 and infinity never enter a formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from experiments.lossless.kernels import FloatArray, Number, Size
from stream_dp.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Insertion(Generic[Number]):
    """The law of a release given its neighbours: N(weight_fine Y_fine + weight_coarse Y_coarse, variance).

    Attributes:
        weight_fine: of the finer neighbour; of the exact statistic where nothing finer was released.
        weight_coarse: of the coarser neighbour; 0 where there is none.
        variance: of the noise to add.
    """

    weight_fine: Number
    weight_coarse: Number
    variance: Number


def insertion(
    rho: Number, coarse: Number | None, fine: Number | None, sensitivity_squared: Number
) -> Insertion[Number]:
    """Return the law of the release at rho given its neighbours, in any order of releases.

    Args:
        rho: the parameter asked for.
        coarse: the next smaller parameter released so far, None if there is none.
        fine: the next larger one, None if there is none.
        sensitivity_squared: Delta2^2 of the statistic.

    Returns:
        The weights, which add up to 1, and the variance. At rho = coarse the release is repeated: weights 0 and 1,
        variance 0.

    Raises:
        ParameterError: not 0 < coarse <= rho < fine.

    Source: specs/lossless 2.4 (Lemma 3.3, Algorithm 1), vectors G01 to G06, G12.
    """
    if not (rho > 0 and (coarse is None or 0 < coarse <= rho) and (fine is None or rho < fine)):
        raise ParameterError(f"an insertion needs 0 < coarse <= rho < fine, not {coarse}, {rho} and {fine}")
    zero = rho - rho
    if coarse is None:
        excess = (
            sensitivity_squared / (2 * rho) if fine is None else sensitivity_squared * (fine - rho) / (2 * rho * fine)
        )
        return Insertion(zero + 1, zero, excess)
    if fine is None:
        return Insertion((rho - coarse) / rho, coarse / rho, sensitivity_squared * (rho - coarse) / (2 * rho * rho))
    span = rho * (fine - coarse)
    return Insertion(
        fine * (rho - coarse) / span,
        coarse * (fine - rho) / span,
        sensitivity_squared * (rho - coarse) * (fine - rho) / (2 * rho * span),
    )


def covariance(rho: Number, other: Number, sensitivity_squared: Number) -> Number:
    """Cov(Y_rho, Y_other) = Delta2^2 / (2 max(rho, other)) of one coordinate, whatever was released in which order.

    Source: specs/lossless 2.4 (Lemma 3.2), vectors G06 to G08.
    """
    return sensitivity_squared / (2 * max(rho, other))


@dataclass(frozen=True, slots=True)
class Gaussian:
    """The Gaussian family; a level is rho, larger is finer.

    Attributes:
        sensitivity_squared: Delta2^2 of the statistic; l where a user adds 1 to each of l counts.

    Guarantee: everything released up to a largest rho is rho-zCDP.
    """

    sensitivity_squared: float = 1.0

    def is_finer(self, level: float, other: float) -> bool:
        """Larger rho, less noise."""
        return level > other

    def fresh(self, level: float, size: Size, rng: np.random.Generator) -> FloatArray:
        """N(0, Delta2^2 / (2 rho))."""
        law = insertion(level, None, None, self.sensitivity_squared)
        return _scaled(law.variance, size, rng)

    def coarsen(self, value_fine: FloatArray, fine: float, level: float, rng: np.random.Generator) -> FloatArray:
        """Add the difference of the variances."""
        law = insertion(level, None, fine, self.sensitivity_squared)
        return value_fine + _scaled(law.variance, value_fine.shape, rng)

    def between(
        self,
        value_fine: FloatArray,
        fine: float,
        value_coarse: FloatArray,
        coarse: float,
        level: float,
        rng: np.random.Generator,
    ) -> FloatArray:
        """A Brownian bridge in the variance."""
        law = insertion(level, coarse, fine, self.sensitivity_squared)
        mean = law.weight_fine * value_fine + law.weight_coarse * value_coarse
        return mean + _scaled(law.variance, value_fine.shape, rng)

    def sharpen(
        self, value_coarse: FloatArray, coarse: float, exact: FloatArray, level: float, rng: np.random.Generator
    ) -> FloatArray:
        """The old release averaged with a fresh (rho - coarse)-zCDP answer: that is what sharpening costs."""
        law = insertion(level, coarse, None, self.sensitivity_squared)
        mean = law.weight_fine * exact + law.weight_coarse * value_coarse
        return mean + _scaled(law.variance, value_coarse.shape, rng)

    def density(self, level: float, x: FloatArray) -> FloatArray:
        """Of N(0, Delta2^2 / (2 rho))."""
        variance = self.sensitivity_squared / (2 * level)
        result: FloatArray = np.exp(-x * x / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        return result


def _scaled(variance: float, size: Size, rng: np.random.Generator) -> FloatArray:
    noise = rng.standard_normal(size)
    noise *= np.sqrt(variance)
    return noise
