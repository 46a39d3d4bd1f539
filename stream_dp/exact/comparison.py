"""Decisions between real numbers of which only enclosures are known: refined until none is in doubt."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Protocol

from stream_dp.errors import ParameterError
from stream_dp.exact.bits import BitSource

START_PRECISION = 64


class Real(Protocol):
    """A real number that can be enclosed as closely as wanted."""

    def enclose(self, precision: int) -> tuple[Fraction, Fraction]:
        """A lower and an upper bound; their distance goes to zero as `precision`, at least 1, grows."""


def happens(
    probability: Callable[[int], tuple[int, int]], bits: BitSource, rough: tuple[int, int] | None = None
) -> bool:
    """True with a real probability, exactly: whether a uniform U, its bits drawn as far as they decide, is below it.

    Args:
        probability: at precision p integers with lower <= 2^p probability <= upper, closer to it as p grows.
        bits: source of uniform bits; `START_PRECISION` of them, twice as many after each doubt.
        rough: a wide enclosure at `START_PRECISION` that is cheap to have, tried first.

    Raises:
        StateError: a recorded source has run out.

    Time: one enclosure, except with probability 2^-62 or so. Source: specs/gap 8.2 (comparison with refinement).
    """
    precision = START_PRECISION
    uniform = bits.bits(precision)
    # U lies in [uniform, uniform + 1) / 2^precision.
    if rough is not None and not rough[0] <= uniform < rough[1]:
        return uniform < rough[0]
    return decide(uniform, precision, probability, bits)


def decide(uniform: int, precision: int, probability: Callable[[int], tuple[int, int]], bits: BitSource) -> bool:
    """Return True if a uniform U that begins with `precision` given bits is below a probability, as in `happens`."""
    while True:
        lower, upper = probability(precision)
        if uniform < lower:
            return True
        if uniform >= upper:
            return False
        uniform = uniform << precision | bits.bits(precision)
        precision *= 2


def exceeds(one: Real, other: Real) -> bool:
    """Return True if one real number is the larger.

    Of equal numbers neither is, which shows only where both are enclosed by one point; else this does not end.

    Time: an enclosure of each, more only where they agree in 64 binary places.
    """
    precision = START_PRECISION
    while True:
        (low, high), (other_low, other_high) = one.enclose(precision), other.enclose(precision)
        if low > other_high:
            return True
        if high < other_low or low == high == other_low == other_high:
            return False
        precision *= 2


CHOICE_PRECISION = 128


def choose(
    weights: Callable[[int], Sequence[tuple[int, int]]],
    bits: BitSource,
    *,
    precision: int = CHOICE_PRECISION,
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
