"""Discrete Laplace noise as a family for `multiple_release`: all four kernels; the product needs the first two."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.exact import coins
from stream_dp.exact.bits import BitSource
from stream_dp.lossless.discrete_laplace import bridge_atom, check_parameter, coarsen, draw_noise
from tests.support.multiple_release import check_order


def pmf(a: Fraction, k: int) -> Fraction:
    """P(Z = k)."""
    return Fraction(1 - a, 1 + a) * a ** abs(k)


def clocks_behind(a: Fraction, z: int, bits: BitSource) -> tuple[int, int]:
    """Draw the two geometric clocks whose difference is the noise z at level a.

    Given the difference, the smaller clock is geometric of parameter a^2, whatever z is.

    Source: specs/lossless 7.2, vector D10.
    """
    smaller = coins.geometric(a * a, bits)
    return max(z, 0) + smaller, max(-z, 0) + smaller


@dataclass(frozen=True)
class DiscreteLaplace:
    """Discrete Laplace noise of which only the released integer is kept; a level is a, finer is smaller.

    Neighbours: one count moved by at most 1. Guarantee of a set of levels: ln(1 / a) of its finest.
    Source: specs/lossless 7.1 to 7.3, vectors D01 to D06, D10.
    """

    @property
    def zero(self) -> int:
        """See `NoiseFamily`."""
        return 0

    def is_finer(self, a: Fraction, b: Fraction) -> bool:
        """See `NoiseFamily`."""
        return a < b

    def fresh(self, level: Fraction, bits: BitSource) -> int:
        """The difference of two geometric clocks."""
        return draw_noise(level, bits)

    def coarsen(self, value_fine: int, fine: Fraction, level: Fraction, bits: BitSource) -> int:
        """The fine reading with the bridge's atom, else moved by noise of the new, coarse level."""
        return coarsen(value_fine, fine, level, bits)

    def between(
        self, value_fine: int, fine: Fraction, value_coarse: int, coarse: Fraction, level: Fraction, bits: BitSource
    ) -> int:
        """The fine reading with a certain probability, else `sharpen` applied to the difference."""
        check_parameter(fine, level, coarse)
        check_order(self, fine, level, coarse)
        upper, lower = bridge_atom(level, coarse), bridge_atom(fine, level)
        # Of the joint law of the two increments the part where the first is an atom; the second then is the whole
        # difference, which at 0 is an atom or not. Everything is divided by the coarse law, at k = 0 by g.
        if value_coarse != value_fine:
            stay = Fraction(lower * (1 - upper), 1 - upper * lower)
        else:
            g = pmf(coarse, 0)
            stay = Fraction(lower * (upper + (1 - upper) * g), upper * lower + (1 - upper * lower) * g)
        if coins.bernoulli(stay, bits):
            return value_fine
        return self.sharpen(value_coarse, coarse, value_fine, level, bits)

    def sharpen(self, value_coarse: int, coarse: Fraction, exact: int, level: Fraction, bits: BitSource) -> int:
        """Both clocks behind the coarse noise, each stopped early at the rate by which the level is finer."""
        check_parameter(level, coarse)
        check_order(self, level, coarse)
        plus, minus = clocks_behind(coarse, value_coarse - exact, bits)
        ratio = Fraction(level, coarse)
        return exact + min(plus, coins.geometric(ratio, bits)) - min(minus, coins.geometric(ratio, bits))
