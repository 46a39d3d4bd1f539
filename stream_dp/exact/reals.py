"""Real numbers enclosed between integers: exponentials and logarithms with every rounding directed outwards."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from stream_dp.errors import ParameterError

_START_PRECISION = 128


def exp_neg(x: Fraction, precision: int) -> tuple[int, int]:
    """Enclose e^-x.

    Args:
        x: the exponent, at least 0.
        precision: bits after the binary point, at least 1.

    Returns:
        Integers with lower <= 2^precision e^-x <= upper and upper - lower <= 2; equal where x = 0.

    Raises:
        ParameterError: x is negative.

    Time: O(precision) multiplications of `precision`-bit integers, none for x >= `precision`.
    """
    if x < 0:
        raise ParameterError(f"exp_neg needs an exponent of at least 0, not {x}")
    if x >= precision:  # e^-x < 2^-precision
        return 0, 1
    if x == 0:
        return 1 << precision, 1 << precision
    # e^-x = (e^-y)^(2^halvings) with y < 2^-8; a squaring at most doubles the error.
    halvings = (x.numerator // x.denominator).bit_length() + 8
    guard = halvings + precision.bit_length() + 5
    point = precision + guard
    lower, upper = _exp_small(x.numerator << (point - halvings), x.denominator, point)
    lower, upper = (1 << 2 * point) // upper, _ceil_div(1 << 2 * point, lower)
    for _ in range(halvings):
        lower, upper = lower * lower >> point, _ceil_shift(upper * upper, point)
    return lower >> guard, _ceil_shift(upper, guard)


def _exp_small(numerator: int, denominator: int, point: int) -> tuple[int, int]:
    """Enclose 2^point e^y for y = numerator / (denominator 2^point) in (0, 1/2), by its series of positive terms."""
    low_y, high_y = numerator // denominator, _ceil_div(numerator, denominator)
    low_term = high_term = low_sum = high_sum = 1 << point
    n = 0
    while high_term > 1:
        n += 1
        low_term = (low_term * low_y >> point) // n
        high_term = _ceil_div(_ceil_shift(high_term * high_y, point), n)
        low_sum += low_term
        high_sum += high_term
    # The terms left out shrink at least by halves: together they are less than the last one.
    return low_sum, high_sum + high_term


def log(q: Fraction, precision: int) -> tuple[int, int]:
    """Enclose the natural logarithm of q.

    Args:
        q: a positive rational.
        precision: bits after the binary point, at least 1.

    Returns:
        Integers with lower <= 2^precision ln q <= upper and upper - lower <= 2; equal where q = 1.

    Raises:
        ParameterError: q is not positive.

    Time: O(precision) multiplications of `precision`-bit integers.
    """
    if q <= 0:
        raise ParameterError(f"log needs a positive number, not {q}")
    # q = 2^exponent m with 1 <= m < 2, and ln m = 2 artanh((m - 1) / (m + 1)), artanh's argument at most 1/3.
    exponent = q.numerator.bit_length() - q.denominator.bit_length()
    scaled = _times_power_of_two(q, -exponent)
    if scaled < 1:
        exponent, scaled = exponent - 1, scaled * 2
    guard = exponent.bit_length() + precision.bit_length() + 4
    point = precision + guard
    lower, upper = _log_ratio(scaled, point)
    if exponent:
        low_two, high_two = _log_ratio(Fraction(2), point)
        lower += exponent * (low_two if exponent > 0 else high_two)
        upper += exponent * (high_two if exponent > 0 else low_two)
    return lower >> guard, _ceil_shift(upper, guard)


def _log_ratio(m: Fraction, point: int) -> tuple[int, int]:
    """Enclose 2^point ln m for 1 <= m <= 2 by the series of 2 artanh z, z = (m - 1) / (m + 1) <= 1/3."""
    top, bottom = m.numerator - m.denominator, m.numerator + m.denominator
    if top == 0:
        return 0, 0
    low_z, high_z = (top << point) // bottom, _ceil_div(top << point, bottom)
    low_square, high_square = low_z * low_z >> point, _ceil_shift(high_z * high_z, point)
    low_power, high_power = low_z, high_z
    low_sum = high_sum = 0
    n = 1
    while True:
        low_sum += low_power // n
        high_sum += _ceil_div(high_power, n)
        if high_power <= 1:
            # What is left out is less than (z^2 + z^4 + ...) <= 1/8 of the last power.
            return 2 * low_sum, 2 * (high_sum + 1)
        low_power, high_power = low_power * low_square >> point, _ceil_shift(high_power * high_square, point)
        n += 2


@lru_cache(maxsize=4096)  # the same few levels and thresholds are asked about for every record
def smallest_power(base: Fraction, bound: Fraction) -> int:
    """Smallest n >= 0 with base^n <= bound, exactly, without computing a large power.

    Args:
        base: in (0, 1).
        bound: positive.

    Raises:
        ParameterError: an argument is out of range.

    Time: a few logarithms, whatever the size of n; an exact power is formed only where `bound` is as long as it.
    """
    if not 0 < base < 1 or bound <= 0:
        raise ParameterError(f"smallest_power needs 0 < base < 1 and bound > 0, not {base} and {bound}")
    if bound >= 1:
        return 0
    precision = _START_PRECISION
    while True:
        low_bound, high_bound = log(Fraction(bound.denominator, bound.numerator), precision)
        low_base, high_base = log(Fraction(base.denominator, base.numerator), precision)
        if low_base > 0:
            first, last = max(_ceil_div(low_bound, high_base), 1), _ceil_div(high_bound, low_base)
            if first == last or (last == first + 1 and _is_power(bound, base, first)):
                return first
        precision *= 2


def _is_power(value: Fraction, base: Fraction, n: int) -> bool:
    """Return True if value = base^n, both in lowest terms and in (0, 1); n >= 1."""
    shortest = n * (base.denominator.bit_length() - 1)
    return value.denominator.bit_length() > shortest and value == base**n


def _times_power_of_two(q: Fraction, exponent: int) -> Fraction:
    return q * (1 << exponent) if exponent >= 0 else Fraction(q.numerator, q.denominator << -exponent)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _ceil_shift(a: int, n: int) -> int:
    return -(-a >> n)
