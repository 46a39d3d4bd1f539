"""What a gap proves about the counts behind it: from what is published, every rounding on the safe side."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.errors import Fault, ParameterError
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.exact.reals import exp_neg, log
from stream_dp.select.gap.parameters import GapParameters

_PRECISION = 128
_SMALLEST = 1100
"""No chance below 2^-1100 is told from it."""


def wrong_chance(gap: int, p: GapParameters) -> Fraction:
    """Bound the chance that the first i items are not the i largest counts and yet the i-th gap is this large.

    e^(-gap exponent), whatever the counts are and however many keys the domain has: a p-value of "this selection is
    wrong". With k = 1 it is exact: given that the winner is not a largest count, its gap has the law of the noise.

    Args:
        gap: the i-th gap of a selection, in steps.
        p: its parameters.

    Returns:
        The bound, rounded up to 12 significant digits; never below 2^-1100.

    Raises:
        ParameterError: the gap is no gap.

    Source: specs/gap 5.3 (1, 2).
    """
    exponent = _checked(gap) * p.exponent
    # e^-x takes less than 3/2 x + 1 bits before its first digit.
    whole = exponent.numerator // exponent.denominator
    precision = min(2 * whole + _PRECISION, _SMALLEST)
    return Fraction(decimal_up(Fraction(exp_neg(exponent, precision)[1], 1 << precision)))


def margin(gap: int, alpha: Fraction, p: GapParameters) -> Fraction | None:
    """Bound from below how far the first i items are ahead of all other keys, in true counts.

    A claim is made where the i-th gap g is at least t = ln(1/alpha) scale, and says that the smallest count among the
    first i items is at least g - t above the largest of all others; so these are the i largest. Claims made this way
    are false with probability alpha at most. For claims about all k ranks at once take alpha / k.

    Args:
        gap: the i-th gap of a selection, in steps.
        alpha: the chance of a false claim, in (0, 1).
        p: the selection's parameters.

    Returns:
        The bound in counts, rounded down to 12 significant digits; None where nothing can be claimed.

    Raises:
        ParameterError: the gap is no gap, or alpha is out of range.

    Source: specs/gap 5.3 (3).
    """
    if not isinstance(alpha, Fraction) or not 0 < alpha < 1:
        raise ParameterError([Fault("alpha", f"must be an exact fraction between 0 and 1, not {alpha!r}")])
    _, above = log(Fraction(alpha.denominator, alpha.numerator), _PRECISION)
    bound = Fraction(_checked(gap), p.resolution) - p.scale * Fraction(above, 1 << _PRECISION)
    return Fraction(decimal_down(bound)) if bound >= 0 else None


def _checked(gap: int) -> int:
    if not isinstance(gap, int) or gap < 0:
        raise ParameterError([Fault("gap", f"must be a whole number of steps, at least 0, not {gap!r}")])
    return gap
