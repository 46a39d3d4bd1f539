"""Probabilities of the counting laws: rational ones exactly, the others enclosed as in `reals`."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.exact.reals import exp_neg


def choose_number(n: int, k: int) -> int:
    """The number of ways to choose k of n things; 0 where there is none."""
    if not 0 <= k <= n:
        return 0
    ways = 1
    for i in range(min(k, n - k)):
        ways = ways * (n - i) // (i + 1)
    return ways


def binomial_pmf(n: int, p: Fraction, k: int) -> Fraction:
    """P(k successes in n trials of probability p)."""
    return choose_number(n, k) * p**k * (1 - p) ** (n - k) if 0 <= k <= n else Fraction(0)


def hypergeometric_pmf(marked: int, plain: int, drawn: int, k: int) -> Fraction:
    """P(k marked ones among `drawn` of `marked + plain` things)."""
    return Fraction(choose_number(marked, k) * choose_number(plain, drawn - k), choose_number(marked + plain, drawn))


def poisson_pmf(rate: Fraction, k: int, precision: int) -> tuple[int, int]:
    """Integers with lower <= 2^precision P(N = k) <= upper, upper - lower <= 2, for a Poisson number of that mean."""
    if k < 0:
        return 0, 0
    weight = Fraction(rate**k, _factorial(k))
    guard = (weight.numerator // weight.denominator).bit_length() + 2
    return scaled(weight, exp_neg(rate, precision + guard), guard)


def scaled(factor: Fraction, enclosure: tuple[int, int], places: int) -> tuple[int, int]:
    """The enclosure times a factor >= 0, with `places` fewer bits after the binary point, rounded outwards."""
    lower, upper = enclosure
    low = factor.numerator * lower // (factor.denominator << places)
    return low, -(-factor.numerator * upper // (factor.denominator << places))


def _factorial(n: int) -> int:
    product = 1
    for i in range(2, n + 1):
        product *= i
    return product
