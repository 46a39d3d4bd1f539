"""The discrete Laplace law, P(Z = k) = (1 - a) / (1 + a) a^|k|, 0 < a < 1, and its bridges: exact rationals.

It is the difference of two geometric clocks. Adding Z to a count of sensitivity 1 is ln(1/a)-DP.
"""

from __future__ import annotations

from fractions import Fraction

from stream_dp.errors import ConfigError
from stream_dp.exact.reals import smallest_power


def pmf(a: Fraction, k: int) -> Fraction:
    """P(Z = k)."""
    return Fraction(1 - a, 1 + a) * a ** abs(k)


def tail(a: Fraction, t: int) -> Fraction:
    """P(Z >= t), any integer t; a^t / (1 + a) for t >= 0.

    Source: lossless 2.9.4, vector H02.
    """
    if t >= 0:
        return Fraction(a**t, 1 + a)
    return 1 - Fraction(a ** (1 - t), 1 + a)


def bridge_pmf(a_fine: Fraction, a_coarse: Fraction, k: int) -> Fraction:
    """P(W = k) of the only W, independent of the fine noise, that turns it into coarse noise; a_fine <= a_coarse.

    An atom at zero plus a discrete Laplace law of the coarse parameter.

    Source: lossless 7.1, vectors D01, D02.
    """
    atom = Fraction(a_fine * (1 - a_coarse) ** 2, a_coarse * (1 - a_fine) ** 2)
    return (1 - atom) * pmf(a_coarse, k) + (atom if k == 0 else 0)


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
        ConfigError: an argument is out of range.
    """
    if not 0 < a < 1 or not 0 <= confidence < 1:
        raise ConfigError(f"an interval needs 0 < a < 1 and 0 <= confidence < 1, not {a} and {confidence}")
    # P(|Z| > t) = 2 a^(t+1) / (1 + a)
    return max(smallest_power(a, (1 - confidence) * (1 + a) * Fraction(1, 2)) - 1, 0)
