"""Elementary functions rounded in a stated direction: what a privacy statement needs to stay an upper bound.

Results are dyadic rationals with an error below 2^-250, relative to the result for exponentials and roots.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

from stream_dp.errors import ParameterError
from stream_dp.exact.reals import exp_neg, log

PRECISION = 256
"""Significant bits of a rounded number."""


def up(q: Fraction) -> Fraction:
    """A dyadic rational not below q, which agrees with it in about `PRECISION` significant bits."""
    return -down(-q)


def down(q: Fraction) -> Fraction:
    """A dyadic rational not above q, which agrees with it in about `PRECISION` significant bits."""
    shift = PRECISION - q.numerator.bit_length() + q.denominator.bit_length()
    if shift < 0:
        return Fraction((q.numerator // (q.denominator << -shift)) << -shift)
    return Fraction((q.numerator << shift) // q.denominator, 1 << shift)


def exp_up(x: Fraction) -> Fraction:
    """e^x, rounded up."""
    lower, upper, scale = _exp_neg(abs(x))
    return up(Fraction(scale, lower) if x > 0 else Fraction(upper, scale))


def exp_down(x: Fraction) -> Fraction:
    """e^x, rounded down; positive."""
    lower, upper, scale = _exp_neg(abs(x))
    return down(Fraction(scale, upper) if x > 0 else Fraction(lower, scale))


def log_up(q: Fraction) -> Fraction:
    """The natural logarithm of q, rounded up.

    Raises:
        ParameterError: q is not positive.
    """
    return Fraction(log(q, PRECISION)[1], 1 << PRECISION)


def log_down(q: Fraction) -> Fraction:
    """The natural logarithm of q, rounded down.

    Raises:
        ParameterError: q is not positive.
    """
    return Fraction(log(q, PRECISION)[0], 1 << PRECISION)


def root_up(q: Fraction) -> Fraction:
    """The square root of q, rounded up.

    Raises:
        ParameterError: q is negative.
    """
    if q < 0:
        raise ParameterError(f"root_up needs a number of at least 0, not {q}")
    if q == 0:
        return Fraction(0)
    # 4^shift q has at least 2 PRECISION bits, and its root PRECISION.
    shift = max(PRECISION - (q.numerator.bit_length() - q.denominator.bit_length()) // 2 + 1, 0)
    square = -((-q.numerator << 2 * shift) // q.denominator)
    root = isqrt(square)
    return Fraction(root + (root * root < square), 1 << shift)


def _exp_neg(x: Fraction) -> tuple[int, int, int]:
    """Integers with lower <= scale e^-x <= upper, lower > 2^250, however large x is."""
    precision = PRECISION + 2 * (x.numerator // x.denominator + 1)
    return *exp_neg(x, precision), 1 << precision


SIGNIFICANT_BITS = 64
"""Of a parameter found by search; what is lost to them is less than one part in 2^63."""


def largest(within: Callable[[Fraction], bool]) -> Fraction:
    """The largest number that keeps a bound, rounded down to a dyadic rational of 64 significant bits.

    Args:
        within: whether a positive number keeps the bound; true of small numbers, false from some point on. Only
            numbers of which it was true are returned, also where rounding inside it blurs that point.

    Returns:
        A positive m 2^e with 2^63 <= m < 2^64.

    Raises:
        ParameterError: no limit was found between 2^-4096 and 2^4096: every number tried keeps the bound, or none does.

    Time: about 64 calls of `within`, and twice the logarithm of the result's exponent.
    """
    found, unit = 1 << SIGNIFICANT_BITS - 1, _exponent(within) - SIGNIFICANT_BITS + 1
    for bit in reversed(range(SIGNIFICANT_BITS - 1)):
        if within(_dyadic(found | 1 << bit, unit)):
            found |= 1 << bit
    return _dyadic(found, unit)


_LARGEST_EXPONENT = 1 << 12
"""No budget is larger than 2 to this power, or smaller than its inverse. Without an end, a search for a limit that does
not exist would fill the memory: the numbers tried double in length."""


def _exponent(within: Callable[[Fraction], bool]) -> int:
    """The largest e with `within` true of 2^e: in steps that double, then by halves."""
    if within(Fraction(1)):
        step = _first_step(lambda step: not within(_dyadic(1, step)))
        low, high = step // 2, step
    else:
        step = _first_step(lambda step: within(_dyadic(1, -step)))
        low, high = -step, -(step // 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(_dyadic(1, middle)) else (low, middle)
    return low


def _first_step(is_far_enough: Callable[[int], bool]) -> int:
    """Return the first of 1, 2, 4, ... that is far enough.

    Raises:
        ParameterError: none up to `_LARGEST_EXPONENT` is.
    """
    step = 1
    while not is_far_enough(step):
        step *= 2
        if step > _LARGEST_EXPONENT:
            raise ParameterError(f"no number between 2^-{_LARGEST_EXPONENT} and 2^{_LARGEST_EXPONENT} is a limit")
    return step


def _dyadic(mantissa: int, exponent: int) -> Fraction:
    return Fraction(mantissa << max(exponent, 0), 1 << max(-exponent, 0))
