"""The counting queries of the paper with its own parameters: epsilon is 1 / e for a whole number e, and gamma is 1 / g.

Source: specs/finite 2.1 to 2.6.
"""

from __future__ import annotations

from fractions import Fraction

from stream_dp.exact.reals import log
from stream_dp.histograms.counting_queries import Base, ExactGeometric, TruncatedGeometric, ceil_log2

_PRECISION = 128


def k_for(e: int) -> int:
    """The least k with 2^k >= 2 e: the paper spends ln(1 + 2^-k) <= epsilon / 2 on a count (Theorem 4.7)."""
    return ceil_log2(2 * e)


def paper_cutoff(bound: int, e: int, g: int) -> int:
    """The t of FastSample (Algorithm 4.11); `counting.least_cutoff` is two to three times smaller."""
    return -(-9 * e * ceil_log2(8 * (bound + 1) * (g - 1) * e) // 2) - 1


def geo_sample(bound: int, e: int) -> ExactGeometric:
    """GeoSample (Algorithm 4.8)."""
    return ExactGeometric(bound, Base.dyadic(k_for(e)))


def fast_sample(bound: int, e: int, g: int) -> TruncatedGeometric:
    """FastSample (Algorithm 4.11)."""
    return TruncatedGeometric(bound, Base.dyadic(k_for(e)), g, paper_cutoff(bound, e, g))


def ceil_times_ln(factor: Fraction, argument: Fraction) -> int:
    """Round `factor` ln(`argument`) up, as the paper's accuracies and thresholds are; by certified arithmetic.

    Args:
        factor: above 0.
        argument: above 1.
    """
    _, upper = log(argument, _PRECISION)
    bound = factor * Fraction(upper, 1 << _PRECISION)
    return -(-bound.numerator // bound.denominator)
