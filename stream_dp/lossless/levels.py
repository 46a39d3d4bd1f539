"""Levels of the noise ladder as exact integers: level A has noise parameter a = A / 2^64 (specs/lossless 6.3, 7.5)."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.errors import ParameterError
from stream_dp.exact.reals import exp_neg, log

WORD_BITS = 64
WORD = 1 << WORD_BITS
"""Words of the threshold process are uniform in [0, WORD)."""

_START_PRECISION = 2 * WORD_BITS


def threshold_for(epsilon_per_unit: Fraction) -> int:
    """The level of a nominal epsilon: A = ceil(2^64 e^-epsilon).

    Rounding upwards only adds noise: ln(2^64 / A) <= epsilon.

    Args:
        epsilon_per_unit: what a change of one count by one may cost, the level's epsilon over the L1 sensitivity.

    Raises:
        ParameterError: epsilon is not positive, or so small that A would be 2^64.

    Source: specs/lossless 6.3, vector D12.
    """
    if epsilon_per_unit <= 0:
        raise ParameterError(f"epsilon per count must be positive, not {epsilon_per_unit}")
    precision = _START_PRECISION
    while True:
        # e^-epsilon is irrational, so the ceiling is one more than the floor and the two ends agree in the end.
        lower, upper = ((end >> (precision - WORD_BITS)) + 1 for end in exp_neg(epsilon_per_unit, precision))
        if lower == upper:
            break
        precision *= 2
    if lower >= WORD:
        raise ParameterError(f"epsilon per count must be above 2^-64, not {epsilon_per_unit}")
    return lower


def noise_parameter(threshold: int) -> Fraction:
    """The parameter a = A / 2^64 of the discrete Laplace law at level A; larger is coarser.

    Raises:
        ParameterError: not 1 <= A < 2^64: A = 0 would be no noise at all, and from 2^64 on a clock never stops.
    """
    if not 1 <= threshold < WORD:
        raise ParameterError(f"a level must be an integer from 1 to 2^64 - 1, not {threshold}")
    return Fraction(threshold, WORD)


def epsilon_bound(threshold: int) -> Fraction:
    """What a change of one count by one costs at level A: ln(2^64 / A), rounded up by less than 2^-60.

    The rounding can lie above the nominal epsilon that A was made for, which bounds the cost as well.

    Raises:
        ParameterError: not a level.

    Source: specs/lossless 7.5, D12.
    """
    a = noise_parameter(threshold)
    return Fraction(log(Fraction(a.denominator, a.numerator), WORD_BITS)[1], WORD)
