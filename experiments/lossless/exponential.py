"""Exponential noise of a rate, and Laplace noise kept as the difference of two such clocks.

One-sided noise is not private by itself. Two independent clocks E+ and E- of rate 1/b differ by Laplace noise of scale
b; releasing both losslessly, side by side, releases the Laplace noise losslessly, without the densities and the cases
of `experiments.lossless.laplace`. A pair of clocks is an array whose first axis is the side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.lossless.kernels import FloatArray, Number, Size


def bridge_atom(rate_fine: Number, rate_coarse: Number) -> Number:
    """The chance that a coarser clock equals the finer one; else it is later by Exp(rate_coarse).

    Source: specs/lossless 2.7 (Claim F.7), vector L06.
    """
    return rate_coarse / rate_fine


def stay_probability(rate_fine: Number, rate: Number, rate_coarse: Number) -> Number:
    """The chance that a clock in between equals the finer one, given that its neighbours differ.

    Source: specs/lossless 2.7, vector L06.
    """
    return (rate - rate_coarse) / (rate_fine - rate_coarse)


def laplace_noise(clocks: FloatArray) -> FloatArray:
    """E+ - E-: Laplace noise of scale 1 / rate, from clocks of shape (2, ...).

    Source: specs/lossless 2.6.
    """
    difference: FloatArray = clocks[0] - clocks[1]
    return difference


@dataclass(frozen=True, slots=True)
class Exponential:
    """The exponential family; a level is the rate, larger is finer. Clocks only grow with the noise.

    Source: specs/lossless 2.7 (Claim F.7).
    """

    def is_finer(self, level: float, other: float) -> bool:
        """Larger rate, less noise."""
        return level > other

    def fresh(self, level: float, size: Size, rng: np.random.Generator) -> FloatArray:
        """Exp(rate)."""
        return rng.standard_exponential(size) / level

    def coarsen(self, value_fine: FloatArray, fine: float, level: float, rng: np.random.Generator) -> FloatArray:
        """Stay with probability level / fine, else wait Exp(level) longer."""
        stay = rng.random(value_fine.shape) < bridge_atom(fine, level)
        return np.where(stay, value_fine, value_fine + self.fresh(level, value_fine.shape, rng))

    def between(
        self,
        value_fine: FloatArray,
        fine: float,
        value_coarse: FloatArray,
        coarse: float,
        level: float,
        rng: np.random.Generator,
    ) -> FloatArray:
        """The fine value where both agree or with `stay_probability`, else the earlier of coarse and fine + Exp."""
        shape = value_fine.shape
        stay = (value_fine == value_coarse) | (rng.random(shape) < stay_probability(fine, level, coarse))
        later = np.minimum(value_coarse, value_fine + self.fresh(level - coarse, shape, rng))
        return np.where(stay, value_fine, later)

    def sharpen(
        self, value_coarse: FloatArray, coarse: float, exact: FloatArray, level: float, rng: np.random.Generator
    ) -> FloatArray:
        """The earlier of the coarse clock and a fresh one of the difference of the rates."""
        return np.minimum(value_coarse, exact + self.fresh(level - coarse, value_coarse.shape, rng))

    def density(self, level: float, x: FloatArray) -> FloatArray:
        """Of Exp(rate); 0 for negative x."""
        result: FloatArray = np.where(x >= 0, level * np.exp(-level * np.maximum(x, 0)), 0)
        return result
