"""Inverse problems: the largest parameter that keeps a bound."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from stream_dp.errors import ParameterError

SIGNIFICANT_BITS = 64
"""Of a parameter found by search; what is lost to them is less than one part in 2^63."""


def largest(within: Callable[[Fraction], bool]) -> Fraction:
    """The largest number that keeps a bound, rounded down to a dyadic rational of 64 significant bits.

    Args:
        within: whether a positive number keeps the bound; true of small numbers, false from some point on. Only
            numbers of which it was true are returned, also where rounding inside it blurs that point.

    Returns:
        A positive m 2^e with 2^63 <= m < 2^64.

    Time: about 64 calls of `within`, and twice the logarithm of the result's exponent.
    """
    found, unit = 1 << SIGNIFICANT_BITS - 1, _exponent(within) - SIGNIFICANT_BITS + 1
    for bit in reversed(range(SIGNIFICANT_BITS - 1)):
        if within(_dyadic(found | 1 << bit, unit)):
            found |= 1 << bit
    return _dyadic(found, unit)


def _exponent(within: Callable[[Fraction], bool]) -> int:
    """The largest e with `within` true of 2^e: in steps that double, then by halves."""
    step = 1
    if within(Fraction(1)):
        while within(_dyadic(1, step)):
            step *= 2
        low, high = step // 2, step
    else:
        while not within(_dyadic(1, -step)):
            step *= 2
        low, high = -step, -(step // 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(_dyadic(1, middle)) else (low, middle)
    return low


def check_target(epsilon: Fraction) -> None:
    """Refuse a target that no parameter keeps, or that is not exact.

    Raises:
        ParameterError: epsilon is not a Fraction above 0.
    """
    if not isinstance(epsilon, Fraction) or epsilon <= 0:
        raise ParameterError(f"the epsilon to keep must be an exact fraction above 0, not {epsilon!r}")


def _dyadic(mantissa: int, exponent: int) -> Fraction:
    return Fraction(mantissa << max(exponent, 0), 1 << max(-exponent, 0))
