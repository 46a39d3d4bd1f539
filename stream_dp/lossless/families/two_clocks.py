"""Discrete Laplace noise kept as its two geometric clocks: kernels of two kinds of coins and no large powers.

Each clock only ever grows as the noise gets coarser. The joint law of the released integers is that of
`DiscreteLaplace` and of the threshold process (specs/lossless 7.4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from stream_dp.exact import coins
from stream_dp.exact.bits import BitSource
from stream_dp.lossless.families import discrete_laplace
from stream_dp.lossless.families.discrete_laplace import check_parameter
from stream_dp.lossless.kernels import NoiseFamily, Sides, TwoSided, check_monotone, check_order


def clock_pmf(a: Fraction, k: int) -> Fraction:
    """P(G = k) = (1 - a) a^k of a geometric clock."""
    return (1 - a) * a**k if k >= 0 else Fraction(0)


def clock_bridge_pmf(a_fine: Fraction, a_coarse: Fraction, k: int) -> Fraction:
    """P(the coarse clock is k above the fine one), independent of the fine one.

    Source: specs/lossless 7.4, vector D09.
    """
    stay = Fraction(1 - a_coarse, 1 - a_fine)
    return stay if k == 0 else (1 - stay) * clock_pmf(a_coarse, k - 1)


def clock_sharpen_pmf(a_coarse: Fraction, a: Fraction, z: int, w: int) -> Fraction:
    """P(the clock at a is w | the clock at a_coarse is z).

    Source: specs/lossless 7.4, vector D09.
    """
    return Fraction(clock_pmf(a, w) * clock_bridge_pmf(a, a_coarse, z - w), clock_pmf(a_coarse, z))


def clock_between_pmf(a_fine: Fraction, a: Fraction, a_coarse: Fraction, k: int, w: int) -> Fraction:
    """P(the clock at a is w above the fine one | the coarse one is k above it).

    Source: specs/lossless 7.4, vector D08.
    """
    joint = clock_bridge_pmf(a_fine, a, w) * clock_bridge_pmf(a, a_coarse, k - w)
    return Fraction(joint, clock_bridge_pmf(a_fine, a_coarse, k))


@dataclass(frozen=True)
class GeometricClock:
    """One clock, P(G = k) = (1 - a) a^k; a level is a, finer is smaller. By itself it hides nothing below it."""

    @property
    def zero(self) -> int:
        """See `NoiseFamily`."""
        return 0

    def is_finer(self, a: Fraction, b: Fraction) -> bool:
        """See `NoiseFamily`."""
        return a < b

    def fresh(self, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`."""
        check_parameter(level)
        return coins.geometric(level, bits)

    def coarsen(self, value_fine: int, fine: Fraction, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`."""
        check_parameter(fine, level)
        check_order(self, fine, level)
        if coins.bernoulli(Fraction(1 - level, 1 - fine), bits):
            return value_fine
        return value_fine + 1 + coins.geometric(level, bits)

    def between(
        self, value_fine: int, fine: Fraction, value_coarse: int, coarse: Fraction, level: Fraction, bits: BitSource
    ) -> int:
        """See `NoiseFamily`; equal neighbours leave no room."""
        check_parameter(fine, level, coarse)
        check_order(self, fine, level, coarse)
        check_monotone(value_fine, value_coarse)
        ratio = Fraction(level, coarse)
        stay = Fraction(1 - ratio, 1 - Fraction(fine, coarse))
        if value_coarse == value_fine or coins.bernoulli(stay, bits):
            return value_fine
        return min(value_coarse, value_fine + 1 + coins.geometric(ratio, bits))

    def sharpen(self, value_coarse: int, coarse: Fraction, exact: int, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`."""
        check_parameter(level, coarse)
        check_order(self, level, coarse)
        check_monotone(exact, value_coarse)
        return min(value_coarse, exact + coins.geometric(Fraction(level, coarse), bits))


@dataclass(frozen=True)
class TwoClocks(TwoSided[Fraction]):
    """Discrete Laplace noise as the difference of two geometric clocks; a level is a, finer is smaller.

    Guarantee of the integers at a set of levels: ln(1 / a) of its finest, for one count moved by at most 1.
    Source: specs/lossless 7.4, vectors D08, D09.
    """

    side: NoiseFamily[Fraction, int] = field(default_factory=GeometricClock)

    def tail(self, level: Fraction, t: int) -> Fraction:
        """P(Z >= t)."""
        check_parameter(level)
        return discrete_laplace.tail(level, t)

    def above(self, level: Fraction, t: int, bits: BitSource) -> Sides:
        """The clocks given that their difference is at least t >= 0."""
        check_parameter(level)
        noise = t + coins.geometric(level, bits)
        return Sides(*discrete_laplace.clocks_behind(level, noise, bits))


@dataclass(frozen=True)
class EpsilonClock:
    """A geometric clock of parameter e^-epsilon for rational epsilon, without rounding; a level is epsilon.

    Finer is larger here. `TwoSided(EpsilonClock())` is discrete Laplace noise that costs exactly epsilon.
    Source: specs/lossless 7.4, last paragraph.
    """

    @property
    def zero(self) -> int:
        """See `NoiseFamily`."""
        return 0

    def is_finer(self, a: Fraction, b: Fraction) -> bool:
        """See `NoiseFamily`."""
        return a > b

    def fresh(self, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`."""
        return coins.geometric_exp(level, bits)

    def coarsen(self, value_fine: int, fine: Fraction, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`."""
        check_order(self, fine, level)
        if _stays(level, fine, bits):
            return value_fine
        return value_fine + 1 + coins.geometric_exp(level, bits)

    def between(
        self, value_fine: int, fine: Fraction, value_coarse: int, coarse: Fraction, level: Fraction, bits: BitSource
    ) -> int:
        """See `NoiseFamily`; equal neighbours leave no room."""
        check_order(self, fine, level, coarse)
        check_monotone(value_fine, value_coarse)
        if value_coarse == value_fine or _stays(level - coarse, fine - coarse, bits):
            return value_fine
        return min(value_coarse, value_fine + 1 + coins.geometric_exp(level - coarse, bits))

    def sharpen(self, value_coarse: int, coarse: Fraction, exact: int, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`."""
        check_order(self, level, coarse)
        check_monotone(exact, value_coarse)
        return min(value_coarse, exact + coins.geometric_exp(level - coarse, bits))


def _stays(x: Fraction, larger: Fraction, bits: BitSource) -> bool:
    """True with probability (1 - e^-x) / (1 - e^-larger), 0 < x < larger: two coins raced until one falls."""
    while True:
        if not coins.bernoulli_exp(x, bits):
            return True
        if not coins.bernoulli_exp(larger - x, bits):
            return False
