"""The discrete Laplace law, P(Z = k) = (1 - a) / (1 + a) a^|k|, 0 < a < 1, and its kernels: exact rationals.

It is the difference of two geometric clocks. Adding Z to a count of sensitivity 1 is ln(1/a)-DP. The kernels here
keep nothing but the released integer; `two_clocks` keeps the clocks and has simpler ones with the same joint law.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.errors import ParameterError
from stream_dp.exact import coins
from stream_dp.exact.bits import BitSource
from stream_dp.exact.reals import smallest_power
from stream_dp.lossless.kernels import check_order


def pmf(a: Fraction, k: int) -> Fraction:
    """P(Z = k)."""
    return Fraction(1 - a, 1 + a) * a ** abs(k)


def tail(a: Fraction, t: int) -> Fraction:
    """P(Z >= t), any integer t; a^t / (1 + a) for t >= 0.

    Source: specs/lossless 2.9.4, vector H02.
    """
    if t >= 0:
        return Fraction(a**t, 1 + a)
    return 1 - Fraction(a ** (1 - t), 1 + a)


def bridge_atom(a_fine: Fraction, a_coarse: Fraction) -> Fraction:
    """Weight of the point mass at zero in the bridge; the weights of a ladder's steps multiply.

    Source: specs/lossless 7.1, vectors D01, D02.
    """
    return Fraction(a_fine * (1 - a_coarse) ** 2, a_coarse * (1 - a_fine) ** 2)


def bridge_pmf(a_fine: Fraction, a_coarse: Fraction, k: int) -> Fraction:
    """P(W = k) of the only W, independent of the fine noise, that turns it into coarse noise; a_fine <= a_coarse.

    An atom at zero plus a discrete Laplace law of the coarse parameter.

    Source: specs/lossless 7.1, vectors D01, D02.
    """
    atom = bridge_atom(a_fine, a_coarse)
    return (1 - atom) * pmf(a_coarse, k) + (atom if k == 0 else 0)


def sharpen_pmf(a_coarse: Fraction, a: Fraction, z: int, w: int) -> Fraction:
    """P(the noise at a is w | the noise at a_coarse is z), a < a_coarse.

    Source: specs/lossless 7.2, vector D04.
    """
    return Fraction(pmf(a, w) * bridge_pmf(a, a_coarse, z - w), pmf(a_coarse, z))


def between_pmf(a_fine: Fraction, a: Fraction, a_coarse: Fraction, k: int, w: int) -> Fraction:
    """P(the reading at a is w above the fine one | the coarse one is k above it), a_fine < a < a_coarse.

    Unlike that of continuous Laplace noise, k = 0 does not force w = 0.

    Source: specs/lossless 7.3, vector D05.
    """
    return Fraction(bridge_pmf(a_fine, a, w) * bridge_pmf(a, a_coarse, k - w), bridge_pmf(a_fine, a_coarse, k))


def variance(a: Fraction) -> Fraction:
    """Var(Z) = 2a / (1 - a)^2, in squared counts."""
    return Fraction(2 * a, (1 - a) ** 2)


def mean_absolute(a: Fraction) -> Fraction:
    """E|Z| = 2a / (1 - a^2), in counts: the expected error of a released count."""
    return Fraction(2 * a, 1 - a * a)


def interval(a: Fraction, confidence: Fraction) -> int:
    """Smallest t >= 0 with P(|Z| <= t) >= confidence: the half width of an exact confidence interval, in counts.

    Args:
        a: noise parameter, in (0, 1).
        confidence: in [0, 1).

    Raises:
        ParameterError: an argument is out of range.
    """
    if not 0 < a < 1 or not 0 <= confidence < 1:
        raise ParameterError(f"an interval needs 0 < a < 1 and 0 <= confidence < 1, not {a} and {confidence}")
    # P(|Z| > t) = 2 a^(t+1) / (1 + a)
    return max(smallest_power(a, (1 - confidence) * (1 + a) * Fraction(1, 2)) - 1, 0)


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
        check_parameter(level)
        return coins.geometric(level, bits) - coins.geometric(level, bits)

    def coarsen(self, value_fine: int, fine: Fraction, level: Fraction, bits: BitSource) -> int:
        """The fine reading with the bridge's atom, else moved by noise of the new, coarse level."""
        check_parameter(fine, level)
        check_order(self, fine, level)
        if coins.bernoulli(bridge_atom(fine, level), bits):
            return value_fine
        return value_fine + self.fresh(level, bits)

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

    def tail(self, level: Fraction, t: int) -> Fraction:
        """P(Z >= t)."""
        check_parameter(level)
        return tail(level, t)

    def above(self, level: Fraction, t: int, bits: BitSource) -> int:
        """Noise given that it is at least t >= 0: the law has no memory there."""
        check_parameter(level)
        return t + coins.geometric(level, bits)


def check_parameter(*levels: Fraction) -> None:
    """Refuse what is not a noise parameter.

    Raises:
        ParameterError: not 0 < a < 1.
    """
    for a in levels:
        if not 0 < a < 1:
            raise ParameterError(f"a noise parameter must lie strictly between 0 and 1, not {a}")
