"""A choice among weights that are real numbers, drawn exactly: enclosures are refined until no doubt is left."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

from stream_dp.errors import ParameterError
from stream_dp.exact.bits import BitSource

START_PRECISION = 128


def choose(
    weights: Callable[[int], Sequence[tuple[int, int]]],
    bits: BitSource,
    *,
    precision: int = START_PRECISION,
) -> int:
    """Draw an index with probability proportional to its weight, exactly.

    Inverts the distribution function at a uniform real U, of which the first `precision` bits are drawn. Where the
    enclosures of the weights and of U cannot tell two neighbours apart, more bits of the same U are drawn and the
    weights are enclosed again at twice the precision; at 128 bits that is as rare as 2^-120 or so.

    Args:
        weights: at precision p, for every index, integers lower <= 2^p w <= upper, 0 <= lower, whose relative width
            goes to zero as p grows; the same weights w >= 0 at every p, not all zero. A common factor is free.
        bits: source of uniform bits; `precision` of them, twice as many after each refinement.
        precision: bits of the first attempt, at least 1.

    Returns:
        i with probability w_i / sum(w); an index of weight zero never.

    Raises:
        ParameterError: no weight can be positive.

    Time: O(n) additions per attempt, besides `weights`. Source: specs/topk 2.1, 6 ("sequential peeling"), inversion.
    """
    uniform = bits.bits(precision)
    while True:
        enclosed = weights(precision)
        below = list(accumulate(lower for lower, _ in enclosed))
        above = list(accumulate(upper for _, upper in enclosed))
        if not above or above[-1] <= 0:
            raise ParameterError("a choice needs at least one positive weight")
        # U total lies in [uniform, uniform + 1) total; index i is certain once that lies in [S_(i-1), S_i).
        least, most = below[-1] * uniform, above[-1] * (uniform + 1)
        index = min(bisect_left(below, -(-most >> precision)), len(below) - 1)
        if index == 0 or above[index - 1] << precision <= least:
            return index
        uniform = uniform << precision | bits.bits(precision)
        precision *= 2
