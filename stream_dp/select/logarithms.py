"""Base-2 logarithms and powers of many whole numbers at once, in fixed point and rounded to the safe side.

They only propose: what is made of them bounds a weight from above, and an exact coin takes back what they add.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import factorial, perm

import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.reals import log

Integers = NDArray[np.int64]

LOG_BITS = 24
"""Bits after the binary point of a logarithm."""

_TABLE_BITS = 16
_MANTISSA_BITS = 31
_POWER_BITS = 12
_POWERS_OF_TWO = np.left_shift(1, np.arange(63, dtype=np.int64))


def log2_below(numbers: Integers) -> Integers:
    """Whole numbers L <= 2^LOG_BITS log2 n, for n >= 1; closer than 3 for n up to 2^16, than 2^-14 in log2 beyond."""
    shift = np.maximum(_bit_length(numbers) - _TABLE_BITS, 0)
    bounds: Integers = _table()[numbers >> shift] + (shift << LOG_BITS)
    return bounds


def log2_above(numbers: Integers, shift: Integers) -> Integers:
    """Whole numbers L >= 2^LOG_BITS log2 n, for 1 <= n <= 2^(16 + shift); what `shift` cuts off is rounded up."""
    bounds: Integers = _table().take((numbers - 1 >> shift) + 1)
    # The table itself is less than 2 below the truth.
    bounds += (shift << LOG_BITS) + 2
    return bounds


def shift_for(largest: Integers) -> Integers:
    """The least shifts with which `log2_above` takes numbers up to these."""
    return np.maximum(_bit_length(largest) - _TABLE_BITS, 0)


def power_above(exponents: Integers) -> Integers:
    """Whole numbers W >= 2^(e / 2^LOG_BITS), W >= 1, for e below 45 2^LOG_BITS; closer than 2 + 2^-11 W for e >= 0."""
    raised = np.maximum(exponents, 0)
    mantissas = _mantissas().take(raised >> LOG_BITS - _POWER_BITS & (1 << _POWER_BITS) - 1)
    mantissas <<= raised >> LOG_BITS
    mantissas >>= _TABLE_BITS - 1
    mantissas += 1
    return mantissas


def _bit_length(numbers: Integers) -> Integers:
    return np.searchsorted(_POWERS_OF_TWO, numbers, "right")


@lru_cache(maxsize=1)
def _table() -> Integers:
    """floor(2^LOG_BITS log2 n) or one less, n = 0 (which has none and gets 0), ..., 2^16.

    Squaring doubles a logarithm: each time its next binary digit is whether the mantissa has passed 2. Cutting the
    mantissa to 32 bits loses 2^-31 of it at weights 1, 1/2, 1/4, ..., so less than 2^-29 of the logarithm.
    """
    numbers = np.maximum(np.arange((1 << _TABLE_BITS) + 1, dtype=np.int64), 1)
    whole = _bit_length(numbers) - 1
    mantissa = (numbers << _MANTISSA_BITS - whole).astype(np.uint64)
    logs = whole.astype(np.int64)
    for _ in range(LOG_BITS):
        square = mantissa * mantissa
        digit = square >> np.uint64(2 * _MANTISSA_BITS + 1)
        mantissa = square >> digit + np.uint64(_MANTISSA_BITS)
        logs = 2 * logs + digit.astype(np.int64)
    return logs


@lru_cache(maxsize=1)
def _mantissas() -> Integers:
    """For f = 0, ..., 2^12 - 1 a whole number of at least 2^15 2^((f + 1) / 2^12): the table read backwards."""
    half = 1 << _TABLE_BITS - 1
    fractions = _table()[half:] - (_TABLE_BITS - 1 << LOG_BITS)
    steps = np.arange(1, (1 << _POWER_BITS) + 1, dtype=np.int64) << LOG_BITS - _POWER_BITS
    return half + np.searchsorted(fractions, steps)


_GUARD_BITS = 8


def log_subsets(d: int, k: int, precision: int) -> tuple[int, int]:
    """Enclose the natural logarithm of the number of subsets of k out of d.

    Args:
        d: size of the domain.
        k: size of a subset, 0 to d.
        precision: bits after the binary point, at least 1.

    Returns:
        Integers with lower <= 2^precision ln C(d, k) <= upper and upper - lower <= 2.
    """
    size, point = min(k, d - k), precision + _GUARD_BITS
    low_top, high_top = _log(perm(d, size), point)
    low_bottom, high_bottom = _log(factorial(size), point)
    return low_top - high_bottom >> _GUARD_BITS, -(low_bottom - high_top >> _GUARD_BITS)


def _log(n: int, point: int) -> tuple[int, int]:
    """Enclose 2^point ln n by the leading bits of n, which may have millions."""
    dropped = max(n.bit_length() - point - _GUARD_BITS, 0)
    leading = n >> dropped
    lower, _ = log(Fraction(leading), point)
    _, upper = log(Fraction(leading + 1 if dropped else leading), point)
    scale = dropped.bit_length()
    low_two, high_two = log(Fraction(2), point + scale)
    return lower + (dropped * low_two >> scale), upper - (-dropped * high_two >> scale)
