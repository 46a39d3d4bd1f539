"""Exact coins: integer samplers on uniform bits, and choices by real probabilities; the stated law to the last digit.

Real numbers are known by enclosures that are refined until no decision is in doubt (specs/lossless 7.10). How many bits
a draw takes depends on the draw: batch draws behind a fixed release schedule (specs/lossless 5, no. 21).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Protocol

from stream_dp.errors import ParameterError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.reals import log

_START_PRECISION = 128
# Above this mean a geometric clock is inverted instead of counted.
_LONGEST_COUNT = 64


def uniform(n: int, bits: BitSource) -> int:
    """A number of 0, ..., n - 1, each with probability 1 / n; rejection on the bits that n - 1 needs.

    Raises:
        ParameterError: n < 1.
    """
    if n < 1:
        raise ParameterError(f"a uniform number needs at least one outcome, not {n}")
    size = (n - 1).bit_length()
    while True:
        value = bits.bits(size)
        if value < n:
            return value


def bernoulli(p: Fraction, bits: BitSource) -> bool:
    """True with probability p.

    Raises:
        ParameterError: p is not in [0, 1].
    """
    if not 0 <= p.numerator <= p.denominator:
        raise ParameterError(f"a probability must lie between 0 and 1, not {p}")
    return uniform(p.denominator, bits) < p.numerator


def geometric(a: Fraction, bits: BitSource) -> int:
    """A geometric clock: P(k) = (1 - a) a^k, k >= 0.

    Raises:
        ParameterError: a is not in [0, 1).

    Time: min(1 / (1 - a), 64) coins on average, or a few logarithms.
    """
    if not 0 <= a.numerator < a.denominator:
        raise ParameterError(f"a geometric clock needs 0 <= a < 1, not {a}")
    if (a.denominator - a.numerator) * _LONGEST_COUNT < a.denominator:
        return _geometric_by_inversion(a, bits, _START_PRECISION)
    count = 0
    while bernoulli(a, bits):
        count += 1
    return count


def _geometric_by_inversion(a: Fraction, bits: BitSource, precision: int) -> int:
    """The number of k >= 1 with U < a^k, for a real uniform U that is read as far as that number needs it."""
    uniform_bits, size = bits.bits(precision), precision
    while True:
        least, most = log(Fraction(a.denominator, a.numerator), size)
        if uniform_bits > 0 and least > 0:
            # U lies in [u, u + 1) / 2^size, and the number is the floor of ln(1/U) / ln(1/a).
            low, _ = log(Fraction(1 << size, uniform_bits + 1), size)
            _, high = log(Fraction(1 << size, uniform_bits), size)
            if low // most == high // least:
                return low // most
        uniform_bits = uniform_bits << precision | bits.bits(precision)
        size += precision


def binomial(n: int, p: Fraction, bits: BitSource) -> int:
    """The number of successes in n independent trials of probability p.

    All trials compare their fair bits with the binary digits of p at once.

    Raises:
        ParameterError: n is negative, or p is not in [0, 1].

    Time: about 2 n fair bits.
    Source: specs/lossless 7.10, vector B04.
    """
    if n < 0 or not 0 <= p <= 1:
        raise ParameterError(f"binomial trials need n >= 0 and 0 <= p <= 1, not {n} and {p}")
    if p == 1:
        return n
    successes, live, rest = 0, n, p.numerator
    while live and rest:
        rest *= 2
        zeros = live - bits.bits(live).bit_count()
        if rest >= p.denominator:  # the digit is 1: a zero is below p, a one is still equal to it
            rest -= p.denominator
            successes += zeros
            live -= zeros
        else:  # the digit is 0: a one is above p
            live = zeros
    return successes


def bernoulli_exp(x: Fraction, bits: BitSource) -> bool:
    """True with probability e^-x.

    Raises:
        ParameterError: x is negative.

    Source: specs/lossless 7.10 (Canonne, Kamath, Steinke 2020, Algorithm 1).
    """
    if x < 0:
        raise ParameterError(f"e^-x is a probability for x >= 0, not for {x}")
    whole = x.numerator // x.denominator
    for _ in range(whole):
        if not _bernoulli_exp_of_fraction(Fraction(1), bits):
            return False
    return _bernoulli_exp_of_fraction(x - whole, bits)


def _bernoulli_exp_of_fraction(x: Fraction, bits: BitSource) -> bool:
    k = 1
    while bernoulli(Fraction(x, k), bits):
        k += 1
    return k % 2 == 1


def geometric_exp(x: Fraction, bits: BitSource) -> int:
    """A geometric clock of parameter e^-x: P(k) = (1 - e^-x) e^(-x k), k >= 0.

    Raises:
        ParameterError: x is not positive.

    Time: a few coins, however small x is. Source: specs/lossless 7.4 (Canonne, Kamath, Steinke 2020, Algorithm 2).
    """
    if x <= 0:
        raise ParameterError(f"a geometric clock of parameter e^-x needs x > 0, not {x}")
    # A clock of parameter e^(-1/t) is a remainder modulo t, which keeps e^(-r/t) of it, and t times one of e^-1.
    t = x.denominator
    while True:
        remainder = uniform(t, bits)
        if bernoulli_exp(Fraction(remainder, t), bits):
            break
    whole = 0
    while _bernoulli_exp_of_fraction(Fraction(1), bits):
        whole += 1
    return (remainder + t * whole) // x.numerator


def poisson(rate: Fraction, bits: BitSource) -> int:
    """A Poisson number of the given mean: so many draws of mean 1, and the rest of the rate by thinning one more.

    Raises:
        ParameterError: the rate is negative.

    Time: `rate` draws of a few uniform numbers each. Source: specs/lossless 7.7, vector P06.
    """
    if rate < 0:
        raise ParameterError(f"a Poisson rate must be at least 0, not {rate}")
    whole = rate.numerator // rate.denominator
    total = sum(_poisson_one(bits) for _ in range(whole))
    return total if rate == whole else total + binomial(_poisson_one(bits), rate - whole, bits)


def _poisson_one(bits: BitSource) -> int:
    """Duchon and Duvignau 2016: fixed points of a random permutation that grows until they are settled."""
    number, size, settled = 1, 1, 0
    while True:
        place = uniform(size + 1, bits)
        if place == size:
            number += 1
        elif place < settled:
            return number
        else:
            number, settled = number - 1, size + 1
        size += 1


START_PRECISION = 64


class Real(Protocol):
    """A real number that can be enclosed as closely as wanted."""

    def enclose(self, precision: int) -> tuple[Fraction, Fraction]:
        """A lower and an upper bound; their distance goes to zero as `precision`, at least 1, grows."""


class Exponential:
    """An exponential number of mean 1: ln(1 / U), the bits of U drawn as far as they are asked for."""

    def __init__(self, bits: BitSource, uniform: int = 0, size: int = 0) -> None:
        """Start with `size` bits of U that were drawn before."""
        self._bits, self._uniform, self._size = bits, uniform, size

    def enclose(self, precision: int) -> tuple[int, int]:
        """Bounds, in units of 2^-precision; about `precision` more bits of U than it has zeros in front."""
        while self._uniform >> precision == 0:
            self._uniform = self._uniform << START_PRECISION | self._bits.bits(START_PRECISION)
            self._size += START_PRECISION
        # U lies in [u, u + 1) / 2^size.
        whole = 1 << self._size
        least, _ = log(Fraction(whole, self._uniform + 1), precision)
        _, most = log(Fraction(whole, self._uniform), precision)
        return least, most


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
