"""How many subsets there are: exactly, and by logarithm."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.exact.reals import log

_SHORT = 16
_GUARD_BITS = 8


def binomial(n: int, size: int) -> int:
    """How many subsets of this size n things have; 0 where there are none.

    Time: two products of `size` numbers, multiplied in pairs of equal length: a millisecond for 1000 of 10^6.
    """
    if not 0 <= size <= n:
        return 0
    size = min(size, n - size)
    return _product(n - size + 1, n + 1) // _product(1, size + 1)


def _product(first: int, end: int) -> int:
    if end - first <= _SHORT:
        product = 1
        for factor in range(first, end):
            product *= factor
        return product
    middle = first + end >> 1
    return _product(first, middle) * _product(middle, end)


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
    low_top, high_top = _log(_product(d - size + 1, d + 1), point)
    low_bottom, high_bottom = _log(_product(1, size + 1), point)
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
