"""Skellam noise, the difference of two Poisson halves: the integer stand-in for Gaussian noise (specs/lossless 7.7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from stream_dp.exact import laws
from stream_dp.exact.reals import exp_neg
from stream_dp.lossless.families.poisson import Poisson
from stream_dp.lossless.kernels import NoiseFamily, TwoSided


@dataclass(frozen=True)
class Skellam(TwoSided[Fraction]):
    """Skellam noise as two Poisson halves; a level is the variance, finer is smaller.

    Rational coins throughout. Its cost is a Renyi curve close to the Gaussian one of the same variance.
    Source: specs/lossless 7.7, vectors S01, S02.
    """

    side: NoiseFamily[Fraction, int] = field(default_factory=lambda: Poisson(Fraction(1, 2)))

    def variance(self, level: Fraction) -> Fraction:
        """The level itself, in squared counts."""
        return level


def pmf(variance: Fraction, k: int, precision: int) -> tuple[int, int]:
    """Enclose P(Z = k) = e^-mu I_k(mu) of Skellam noise.

    Args:
        variance: mu, positive.
        k: any integer.
        precision: bits after the binary point.

    Returns:
        Integers with lower <= 2^precision P(Z = k) <= upper, a few units apart.

    Source: specs/lossless 7.7, vector S02.
    """
    # I_k(mu) is a sum of positive terms (mu/2)^(2n + k) / (n! (n + k)!), which fall faster than by halves in the end.
    half, index = Fraction(variance, 2), abs(k)
    term = Fraction(1)
    for i in range(1, index + 1):
        term *= Fraction(half, i)
    total, n = Fraction(0), 0
    smallest = Fraction(1, 1 << (precision + 2))
    while term > smallest or 2 * half * half > (n + 1) * (n + 1 + index):
        total += term
        n += 1
        term *= Fraction(half * half, n * (n + index))
    guard = (total.numerator // total.denominator).bit_length() + 2
    lower, _ = laws.scaled(total, exp_neg(variance, precision + guard), guard)
    _, upper = laws.scaled(total + 2 * term, exp_neg(variance, precision + guard), guard)
    return lower, upper
