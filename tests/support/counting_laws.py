"""Probabilities of binomial numbers, exact, and of Poisson numbers, enclosed as in `exact.reals`."""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial

from stream_dp.exact.reals import exp_neg


def binomial_pmf(n: int, p: Fraction, k: int) -> Fraction:
    """P(k successes in n trials of probability p)."""
    return comb(n, k) * p**k * (1 - p) ** (n - k) if 0 <= k <= n else Fraction(0)


def poisson_pmf(rate: Fraction, k: int, precision: int) -> tuple[int, int]:
    """Integers with lower <= 2^precision P(N = k) <= upper, upper - lower <= 2, for a Poisson number of that mean."""
    if k < 0:
        return 0, 0
    weight = Fraction(rate**k, factorial(k))
    guard = (weight.numerator // weight.denominator).bit_length() + 2
    lower, upper = exp_neg(rate, precision + guard)
    low = weight.numerator * lower // (weight.denominator << guard)
    return low, -(-weight.numerator * upper // (weight.denominator << guard))
