"""Inverse problems: the largest parameter that keeps a bound."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from stream_dp.errors import ConfigError

SIGNIFICANT_BITS = 64
"""Of a parameter found by search; what is lost to them is less than one part in 2^63."""


def largest(within: Callable[[Fraction], bool]) -> Fraction:
    """The largest number that keeps a bound, rounded down to a dyadic rational of 64 significant bits.

    Args:
        within: whether a positive number keeps the bound; true of small numbers, false from some point on. Only
            numbers of which it was true are returned, also where rounding inside it blurs that point.

    Returns:
        A positive m 2^e with 2^63 <= m < 2^64.

    Time: about 64 calls of `within`, and one for every power of two between 1 and the result.
    """
    exponent = 0
    while within(_dyadic(1, exponent)):
        exponent += 1
    while not within(_dyadic(1, exponent)):
        exponent -= 1
    found, unit = 1 << SIGNIFICANT_BITS - 1, exponent - SIGNIFICANT_BITS + 1
    for bit in reversed(range(SIGNIFICANT_BITS - 1)):
        if within(_dyadic(found | 1 << bit, unit)):
            found |= 1 << bit
    return _dyadic(found, unit)


def check_target(epsilon: Fraction) -> None:
    """Refuse a target that no parameter keeps, or that is not exact.

    Raises:
        ConfigError: epsilon is not a Fraction above 0.
    """
    if not isinstance(epsilon, Fraction) or epsilon <= 0:
        raise ConfigError(f"the epsilon to keep must be an exact fraction above 0, not {epsilon!r}")


def _dyadic(mantissa: int, exponent: int) -> Fraction:
    return Fraction(mantissa << max(exponent, 0), 1 << max(-exponent, 0))
