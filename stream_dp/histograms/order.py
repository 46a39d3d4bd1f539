"""The largest of many noisy counts that all start from 0, without drawing the others.

A universe of 2^64 keys has almost as many noisy counts of keys that nobody has; a release needs the largest few. Let m
values be left, all at most T, and let F be the distribution function of one. A uniform u decides the next level V and
the number N of values there: they are the first pair, in lexicographic order, with S(V, N) >= u, where

    S(z, l) = sum over i <= l of binom(m, i) ((F(z) - F(z - 1)) / F(T))^i (F(z - 1) / F(T))^(m - i)

is the probability that no value exceeds z and at most l are equal to z. S(z, 0) is that of no value above z - 1, so the
pairs follow each other without a gap. A step cannot be empty: K + 1 values take at most K + 1 steps, however many
levels there are.

Rounding. The terms of S come from powers of a polynomial in which every product is rounded down to the grid 2^-P
(ApproxConvExp). Two shares rounded at the start and t terms rounded per product leave the t terms together at most
((t + 2) m - t) 2^-P too small: squaring doubles the error and adds t, a further factor adds 2. A step of cap t has at
most C t cut points, and each moves by at most that; caps are at most K + 1, K, ..., 1. `rounding_units` is the sum.

Two precisions. Rounding down to a coarser grid never gives more than to a finer one, so coarse <= fine <= true <=
coarse + error. A coarse search therefore finds the fine pair unless the cut point before that pair is within the error
of u. Only then, with probability below 2^-64 for all steps together, the search is repeated at full precision. Either
way the pair is the same function of u.

Source: specs/finite 2.8, D4 (Balcer and Vadhan 2018, Algorithms 6.16 to 6.20).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from stream_dp.histograms.counting_queries import CountingQuery, ceil_log2

_COARSE = 64
"""The coarse search leaves a release in doubt with probability below 2^-64."""


def rounding_units(bound: int, values: int, places: int) -> int:
    """Return how far the law of `largest_values` is from the exact one in total variation, in units of 2^-precision.

    Args:
        bound: of the query: levels are 0..`bound`.
        values: upper bound on the number of values.
        places: at most so many are wanted.
    """
    return bound * values * sum(cap * (cap + 2) for cap in range(1, places + 1))


def largest_values(query: CountingQuery, values: int, uniforms: Sequence[int], precision: int) -> list[int]:
    """Return the largest of `values` independent noisy counts M(0, U), one for each uniform number, falling.

    Args:
        query: the counting query M.
        values: number of independent copies, at least `len(uniforms)`; may be astronomically large.
        uniforms: independent, each uniform in 1..2^`precision`; drawn beforehand, since not all may be needed.
        precision: bits of a uniform number.

    Guarantee: within `rounding_units` 2^-`precision` of the exact law. Time: for each distinct value
    log2(`bound`) powers to `values` of numbers of a hundred bits more than `values` has; with probability below 2^-64
    one or more of `precision` bits.
    """
    places = len(uniforms)
    coarse = min(precision, ceil_log2(rounding_units(query.bound, values, places)) + _COARSE)
    largest: list[int] = []
    top = query.bound
    for u in uniforms:
        left, cap = values - len(largest), places - len(largest)
        if cap == 0:
            break
        rough = -(-u >> precision - coarse)
        level, number, below = _first_pair(query, top, left, cap, rough, coarse)
        if level and coarse < precision and below + (cap + 2) * left >= rough:
            level, number, _ = _first_pair(query, top, left, cap, u, precision)
        largest += [level] * number
        top = level - 1
    return largest


def _first_pair(query: CountingQuery, top: int, left: int, cap: int, u: int, precision: int) -> tuple[int, int, int]:
    """Return the next level, the number of values there (`cap` for all from `cap`), and S of the pair before."""
    whole = query.cdf(0, top)

    def share(z: int) -> int:
        return (query.cdf(0, z) << precision) // whole

    level = bisect_left(range(top), u, key=lambda z: _sums(share(z), 0, left, precision, 1)[0])
    if level == 0:
        return 0, cap, 0
    lower, here = share(level - 1), ((query.cdf(0, level) - query.cdf(0, level - 1)) << precision) // whole
    length = 1
    while True:
        length = min(2 * length, cap)
        sums = _sums(lower, here, left, precision, length)
        number = bisect_left(sums, u)
        if number < length or length == cap:
            return level, number, sums[number - 1]


def _sums(lower: int, here: int, exponent: int, precision: int, length: int) -> list[int]:
    """Return the first `length` partial sums of the coefficients of (`lower` + `here` y)^`exponent`, in 2^-precision.

    Each product is rounded down once, coefficient by coefficient. The coefficients lie side by side in one integer:
    those of a product of three sum to at most 2^(3 precision), so no slot overflows.
    """
    slot = 3 * precision + 1
    one = (2 << precision) - 1
    mask = ((1 << slot * length) - 1) // ((1 << slot) - 1) * one
    base = (lower | here << slot) & mask
    power = base
    for digit in bin(exponent)[3:]:
        square = power * power
        power = (square * base >> 2 * precision if digit == "1" else square >> precision) & mask
    return list(accumulate(power >> slot * i & one for i in range(length)))
