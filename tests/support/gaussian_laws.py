"""The law of discrete Gaussian noise, enclosed."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.exact.reals import exp_neg


def pmf(variance: Fraction, k: int, precision: int) -> tuple[int, int]:
    """Enclose P(Z = k) of discrete Gaussian noise.

    Args:
        variance: its parameter, positive; the variance itself never exceeds it.
        k: any integer.
        precision: bits after the binary point.

    Returns:
        Integers with lower <= 2^precision P(Z = k) <= upper, a few units apart.

    Time: O(variance + sqrt(variance precision)) exponentials. Source: specs/lossless 7.6, vector DG2.
    """
    guard = 8 + variance.numerator.bit_length()
    places = precision + guard
    low_total = high_total = 1 << places
    j = 0
    while True:
        j += 1
        low, high = exp_neg(Fraction(j * j, 2 * variance), places)
        low_total, high_total = low_total + 2 * low, high_total + 2 * high
        if j >= variance and high <= 1:  # the next terms fall at least by e^-1, so all of them are below this one
            break
    low_top, high_top = exp_neg(Fraction(k * k, 2 * variance), places)
    one = 1 << precision
    return low_top * one // (high_total + 2), -(-high_top * one // low_total)
