"""Laplace noise of scale b, released in any order with the difference alone as state.

This is Lemma F.5 of the paper as corrected: printed, it attaches the continuous parts to the wrong scales (see
docs/lossless.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.lossless.kernels import FloatArray, Number, Size
from stream_dp.errors import ParameterError


def bridge_atom(fine: Number, coarse: Number) -> Number:
    """The chance that fine noise needs no addition to become coarse noise; else Lap(coarse) is added.

    Source: specs/lossless 2.6 (Claim F.3), vector L01.
    """
    return fine * fine / (coarse * coarse)


def stay_probability(fine: Number, scale: Number, coarse: Number) -> Number:
    """The chance that a release in between equals the finer one, given that its neighbours differ, whatever they are.

    Source: specs/lossless 2.6, vector L04.
    """
    return fine * fine * (coarse - scale) * (coarse + scale) / (scale * scale * (coarse - fine) * (coarse + fine))


def convolution_density(scale: float, other: float, x: FloatArray) -> FloatArray:
    """The density of the sum of two independent Laplace noises; the scales may be equal or close.

    Source: specs/lossless 2.6 (Lemma F.4, divided through by the difference of the scales), vector L02.
    """
    large, small = max(scale, other), min(scale, other)
    t = np.abs(x) / large
    gap = (large - small) / small
    result: FloatArray = np.exp(-t) * (1 + t * _mean_decay(t * gap)) / (2 * (large + small))
    return result


@dataclass(frozen=True, slots=True)
class Sharpened:
    """The law of finer noise w given coarse noise z: an atom at z, else one of three pieces.

    Attributes:
        keep: chance of the atom, w = z.
        below: share of the rest beyond 0, seen from z: -Exp(1/b + 1/b_c), mirrored for z < 0.
        middle: share between 0 and z: Exp(1/b - 1/b_c) from 0 on, truncated at |z|.
        above: share beyond z: |z| + Exp(1/b + 1/b_c).
    """

    keep: FloatArray
    below: FloatArray
    middle: FloatArray
    above: FloatArray


def sharpened(z: FloatArray, coarse: float, scale: float) -> Sharpened:
    """Split coarse noise z as sharpening to a smaller scale does; the three pieces add up to 1.

    Raises:
        ParameterError: not 0 < scale < coarse.

    Source: specs/lossless 2.6, vector L03.
    """
    _ordered(scale, coarse)
    distance = np.abs(z)
    decay = np.exp(-distance * _rate_gap(scale, coarse))
    outer = 1 / (1 / scale + 1 / coarse)
    # The masses of 2.6 times e^(|z| / coarse), which would underflow.
    middle = distance * _mean_decay(distance * _rate_gap(scale, coarse))
    total = outer + middle + outer * decay
    return Sharpened(scale / coarse * decay, outer / total, middle / total, outer * decay / total)


def sharpened_density(w: FloatArray, z: FloatArray, coarse: float, scale: float) -> FloatArray:
    """The density of the part of the law of `sharpened` that is not the atom, together 1 - keep.

    Source: specs/lossless 2.6.
    """
    family = Laplace()
    mixture = family.density(scale, w) * family.density(coarse, z - w) / convolution_density(scale, coarse, z)
    return (1 - sharpened(z, coarse, scale).keep) * mixture


@dataclass(frozen=True, slots=True)
class Laplace:
    """The Laplace family; a level is the scale b, smaller is finer.

    Guarantee: everything released down to a smallest b is Delta1 / b-DP.
    """

    def is_finer(self, level: float, other: float) -> bool:
        """Smaller scale, less noise."""
        return level < other

    def fresh(self, level: float, size: Size, rng: np.random.Generator) -> FloatArray:
        """Lap(b)."""
        return rng.laplace(scale=level, size=size)

    def coarsen(self, value_fine: FloatArray, fine: float, level: float, rng: np.random.Generator) -> FloatArray:
        """Stay with probability fine^2 / level^2, else add Lap(level): the coarse scale."""
        _ordered(fine, level)
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
        """The fine value where both agree or with `stay_probability`, else their difference sharpened."""
        _ordered(fine, level)
        stay = (value_fine == value_coarse) | (rng.random(value_fine.shape) < stay_probability(fine, level, coarse))
        return np.where(stay, value_fine, self.sharpen(value_coarse, coarse, value_fine, level, rng))

    def sharpen(
        self, value_coarse: FloatArray, coarse: float, exact: FloatArray, level: float, rng: np.random.Generator
    ) -> FloatArray:
        """Keep the release with the chance of the atom, else draw the noise anew from the three pieces."""
        z = value_coarse - exact
        law, distance, shape = sharpened(z, coarse, level), np.abs(z), z.shape
        piece = rng.random(shape)
        outside = rng.standard_exponential(shape) / (1 / level + 1 / coarse)
        inside = _truncated_exponential(_rate_gap(level, coarse), distance, rng.random(shape))
        noise = np.where(
            piece < law.below, -outside, np.where(piece < law.below + law.middle, inside, distance + outside)
        )
        return np.where(rng.random(shape) < law.keep, value_coarse, exact + np.copysign(1, z) * noise)

    def density(self, level: float, x: FloatArray) -> FloatArray:
        """Of Lap(b)."""
        result: FloatArray = np.exp(-np.abs(x) / level) / (2 * level)
        return result


def _rate_gap(scale: float, coarse: float) -> float:
    return (coarse - scale) / (scale * coarse)


def _mean_decay(x: FloatArray) -> FloatArray:
    """(1 - e^-x) / x for x >= 0, 1 at 0."""
    safe = np.where(x > 0, x, 1)
    result: FloatArray = np.where(x > 0, -np.expm1(-safe) / safe, 1)
    return result


def _truncated_exponential(rate: float, end: FloatArray, uniform: FloatArray) -> FloatArray:
    """Exp(rate) conditioned to lie in [0, end], by inversion."""
    drawn = -np.log1p(uniform * np.expm1(-rate * end)) / rate
    result: FloatArray = np.clip(drawn, 0, end)
    return result


def _ordered(fine: float, coarse: float) -> None:
    if not 0 < fine < coarse:
        raise ParameterError(f"Laplace noise sharpens to a smaller scale above 0, not from {coarse} to {fine}")
