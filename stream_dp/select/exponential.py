"""Exponential noise on the counts of a public domain, drawn only where a key may still be among the first.

Noise of mean t is a geometric clock of parameter e^(-1/t): t times a clock of e^-1, which does not depend on t, and an
independent remainder modulo t. The whole clocks say nearly everything about the order of many keys; remainders are
drawn for those that are left (specs/gap 2.7). A table is taken piece by piece; of each piece the keys that may be first
are kept.

Everything here is secret: noisy values are biased upwards, so one of them, or how many keys contend, tells more about
a count than the guarantee allows (specs/gap 6, no. 6, no. 8). Only what `finish` says may leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.aes import UniformWords
from stream_dp.exact.bits import BitSource
from stream_dp.exact.coins import START_PRECISION, bernoulli_exp, decide, happens, poisson, uniform
from stream_dp.exact.reals import exp_neg, log

Survival = Callable[[int, int], tuple[int, int]]
"""At v >= 0 and a precision p, integers with lower <= 2^p P(V >= v) <= upper, closer as p grows."""

_WORD_BITS = 16
_MORE_BITS = 64
_DOUBT = 255

_MOST_VECTORISED = 1 << 31
_EXP_BITS = 32
_TERMS = 9
_EXP_ERROR = 12_000
_COIN_BITS = _EXP_BITS + 1


@lru_cache(maxsize=4096)
def powers_of_e(v: int, precision: int) -> tuple[int, int]:
    """Enclose e^-v: what is left of a whole clock at v."""
    return exp_neg(Fraction(v), precision)


class WholeClock:
    """A geometric clock V: how many v >= 1 have U < q^v, for a real uniform U whose bits are drawn as far as needed."""

    def __init__(self, survival: Survival) -> None:
        """Set the clock by its survival function P(V >= v) = q^v."""
        self.survival = survival
        self._of_word = np.full(1 << _WORD_BITS, _DOUBT, np.uint8)
        v, end = 0, 1 << _WORD_BITS
        while end:
            lower, upper = survival(v + 1, _WORD_BITS)
            self._of_word[upper:end] = v
            v, end = v + 1, min(lower, end)

    def draw(self, size: int, words: UniformWords, bits: BitSource) -> tuple[NDArray[np.uint8], dict[int, int]]:
        """So many independent clocks.

        Args:
            size: how many.
            words: where the first 16 bits of every U come from.
            bits: where its further bits come from, for one in some thousands.

        Returns:
            The clocks of nearly all as small numbers; and those of the others, which have no bound, by their places,
            at which the first have 0.
        """
        first = words.draw((size + 3) // 4).view(np.uint16)[:size]
        clocks = self._of_word.take(first)
        doubtful = np.flatnonzero(clocks == _DOUBT)
        clocks[doubtful] = 0
        rest = {place: self.resolve(int(first[place]), _WORD_BITS, bits) for place in doubtful.tolist()}
        return clocks, rest

    def resolve(self, prefix: int, size: int, bits: BitSource) -> int:
        """The clock of the U that begins with `size` given bits."""
        v = 0
        while True:
            lower, upper = self.survival(v + 1, size)
            if prefix < lower:
                v += 1
            elif prefix >= upper:
                return v
            else:
                prefix = prefix << _MORE_BITS | bits.bits(_MORE_BITS)
                size += _MORE_BITS


UNIT_CLOCK = WholeClock(powers_of_e)
"""The clock of e^-1."""


def remainders(size: int, t: int, words: UniformWords, bits: BitSource) -> NDArray[Any]:
    """So many independent numbers of 0, ..., t - 1 with P(u) proportional to e^(-u / t).

    A uniform number is kept with probability e^(-u / t). What is kept of a sequence of proposals is a sequence of
    independent draws, so proposals are made in bulk and the first `size` that are kept are returned. A coin compares 33
    bits with e^(-u / t) to some 18 places; where they do not tell, more bits and a closer enclosure do.

    Returns:
        Shape (size,), int64; of Python's integers where t is above 2^31.

    Source: specs/gap 2.2 (GEOMETRIC, first loop).
    """
    if t > _MOST_VECTORISED:
        return np.array([_remainder(t, bits) for _ in range(size)], object)
    kept = _accepted(2 * size + 8, t, words, bits)
    while len(kept) < size:
        kept = np.concatenate([kept, _accepted(2 * size + 8, t, words, bits)])
    return kept[:size].astype(np.int64)


def _remainder(t: int, bits: BitSource) -> int:
    while True:
        u = uniform(t, bits)
        if bernoulli_exp(Fraction(u, t), bits):
            return u


def _accepted(proposals: int, t: int, words: UniformWords, bits: BitSource) -> NDArray[np.uint64]:
    """Of so many proposals those that are kept, in order."""
    drawn = words.draw(proposals)
    places = (t - 1).bit_length()
    # The upper bits of a word propose, the lower ones are the coin: 31 + 33 at most.
    u = drawn >> np.uint64(64 - places) if places else np.zeros(proposals, np.uint64)
    coin = drawn & np.uint64((1 << _COIN_BITS) - 1)
    inside = u < t
    u, coin = u[inside], coin[inside]
    lower, upper = enclosed_powers(u, t)
    keep = coin < lower
    for place in np.flatnonzero(~keep & (coin < upper)).tolist():
        x = Fraction(int(u[place]), t)
        keep[place] = decide(int(coin[place]), _COIN_BITS, partial(exp_neg, x), bits)
    return u[keep]


def enclosed_powers(u: NDArray[np.uint64], t: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Enclose e^(-u / t) at 2^33, for 0 <= u < t <= 2^31.

    y = floor(2^32 u / t), and the sum of the first 9 terms (-y)^j / j!, from the last to the first. A coefficient and a
    product are rounded down and subtracted, so each step errs by less than 1 and passes on less than it was given; the
    rounding of y is less than 1, too, and what is left out less than 2^32 / 9! = 11,836. Altogether less than 12,000.
    """
    y = (u << np.uint64(_EXP_BITS)) // np.uint64(t)
    total = np.full(len(u), _COEFFICIENTS[-1], np.uint64)
    for coefficient in _COEFFICIENTS[-2::-1]:
        total *= y
        total >>= np.uint64(_EXP_BITS)
        np.subtract(coefficient, total, out=total)
    return 2 * (total - np.uint64(_EXP_ERROR)), 2 * (total + np.uint64(_EXP_ERROR))


_COEFFICIENTS = [np.uint64((1 << _EXP_BITS) // factorial(j)) for j in range(_TERMS)]


Parts = NDArray[Any]
"""Numbers of parts of a step: int64, or Python's integers where those do not hold them."""

MOST_PARTS = 1 << 62
_MOST_CLOCK = 1 << 10


class Randomness:
    """Randomness of one selection: bits, words of a key drawn from them, and the clock that makes them noise."""

    def __init__(self, bits: BitSource, clock: WholeClock = UNIT_CLOCK) -> None:
        self.bits = bits
        self.words = UniformWords(bits)
        self.clock = clock


@dataclass(frozen=True, slots=True)
class Contenders:
    """Keys of a part of the domain of which nobody knows yet whether they are among the first.

    Attributes:
        keys: shape (n,), int64, their numbers.
        lower: shape (n,), the least that their noisy values can be; they are below lower + t.
    """

    keys: NDArray[np.int64]
    lower: Parts

    @classmethod
    def none(cls) -> Contenders:
        """No keys."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def merged(cls, parts: Sequence[Contenders]) -> Contenders:
        """Those of disjoint parts of the domain together."""
        return cls(np.concatenate([part.keys for part in parts]), np.concatenate([part.lower for part in parts]))

    def floor(self, wanted: int) -> int | None:
        """A value that `wanted` keys surely reach, None where fewer contend: whoever cannot reach it is out."""
        size = len(self.lower)
        return int(np.partition(self.lower, size - wanted)[size - wanted]) if size >= wanted else None

    def reaching(self, floor: int | None, t: int) -> Contenders:
        """Those of them that may reach a value."""
        if floor is None:
            return self
        rows = np.flatnonzero(self.lower > floor - t)
        return Contenders(self.keys[rows], self.lower[rows])


def contenders(
    values: Parts, first: int, wanted: int, t: int, randomness: Randomness, floor: int | None = None
) -> Contenders:
    """Draw the whole clocks of some keys and keep those that may be among the first of a domain that they belong to.

    Parts of a table are taken one after the other, or where they are stored: of each are kept at least the keys that
    may be among its own first, and so all that may be among the first of the whole (specs/gap 8.7).

    Args:
        values: the values of the keys, without noise.
        first: the number of the first key; the others follow.
        wanted: how many keys are first.
        t: the mean of the noise, in the unit of the values.
        randomness: what is drawn from.
        floor: a value that `wanted` keys of other parts surely reach.

    Time: O(n). Source: specs/gap 2.7, 8.2, 8.3.
    """
    lower = raised(values, t, randomness)
    if floor is None:
        floor = _rough_floor(lower, wanted)
    rows = np.arange(len(lower)) if floor is None else np.flatnonzero(lower > floor - t)
    return Contenders(first + rows, lower[rows])


def _rough_floor(lower: Parts, wanted: int) -> int | None:
    """The value that `wanted` of some of the keys surely reach: as many as then are left, so that both are few."""
    some = lower[:: 1 << (len(lower) // (3 * wanted)).bit_length() // 2]
    return int(np.partition(some, len(some) - wanted)[len(some) - wanted]) if len(some) >= wanted else None


def raised(values: Parts, t: int, randomness: Randomness) -> Parts:
    """Every value and t times a whole clock of its own; exact whatever their size (specs/gap 8.5)."""
    clocks, rest = randomness.clock.draw(len(values), randomness.words, randomness.bits)
    most = t * max(_MOST_CLOCK, *rest.values(), 0)
    if values.dtype != object and not fits(values, MOST_PARTS - most):
        values = values.astype(object)
    noise = clocks.astype(object) * t if values.dtype == object else np.multiply(clocks, t, dtype=np.int64)
    noise += values
    for row, clock in rest.items():
        noise[row] += clock * t
    return noise


def fits(values: Parts, bound: int) -> bool:
    """Return True if all of them are between -bound and bound."""
    return not len(values) or -bound < int(values.min()) <= int(values.max()) < bound


def finish(parts: Sequence[Contenders], wanted: int, t: int, randomness: Randomness) -> tuple[NDArray[np.int64], Parts]:
    """Decide which keys are first, and by how much each is ahead of the next.

    Remainders make the noise of the contenders whole. What a real noisy value is above a whole number of parts is
    independent of these whole numbers and alike for all keys, so a uniform permutation of the contenders, drawn once,
    is the order of all that is below a part: it breaks ties, and takes 1 from a difference where the later key has more
    of it (specs/gap 2.4, 2.6, Lemma 11).

    Args:
        parts: what `contenders` has kept of every part of the domain.
        wanted: how many keys are first; so many there must be.
        t: as in `contenders`.
        randomness: what is drawn from; that of another process than those that drew the clocks will do.

    Returns:
        The numbers of the first keys, the largest noisy value first, and wanted - 1 differences of neighbours, rounded
        down to whole parts.

    Time: O(n log n) for n contenders, which are O(wanted).
    """
    close = Contenders.merged(parts)
    close = close.reaching(close.floor(wanted), t)
    noisy = close.lower + remainders(len(close.lower), t, randomness.words, randomness.bits)
    kept = np.flatnonzero(noisy >= np.partition(noisy, len(noisy) - wanted)[len(noisy) - wanted])
    kept = kept[shuffled(len(kept), randomness.words)]
    return first_of(close.keys[kept], noisy[kept], wanted)


def first_of(keys: NDArray[np.int64], noisy: Parts, wanted: int) -> tuple[NDArray[np.int64], Parts]:
    """Decide, as `finish`, among contenders in a uniform order: a later one has more below a part (specs/gap 2.6)."""
    ranks = np.argsort(noisy, kind="stable")[: -wanted - 1 : -1]
    values = noisy[ranks]
    return keys[ranks], values[:-1] - values[1:] - (ranks[:-1] < ranks[1:])


def shuffled(size: int, words: UniformWords) -> NDArray[np.int64]:
    """A uniform permutation of 0, ..., size - 1: the order of words, all drawn anew where two are equal."""
    while True:
        drawn = words.draw(size)
        order = np.argsort(drawn)
        rising = drawn[order]
        if (rising[:-1] < rising[1:]).all():
            return order


Probability = Callable[[int], tuple[int, int]]

_MOST_LISTED = 1 << 16


def zero_contenders(
    zeros: int, first: int, wanted: int, t: int, randomness: Randomness, others: Contenders
) -> Contenders:
    """Of keys that all have the value 0 those that may be among the first of a domain.

    Their clocks are drawn from the top: which keys have V >= v for a high v, then which have V = v - 1, and so on,
    until `wanted` keys of the domain are surely ahead of everything below. The v to begin with takes part in nothing
    else, so the law does not depend on it.

    Args:
        zeros: how many keys there are.
        first: the number of the first of them.
        wanted: how many keys are first.
        t: the mean of the noise, in the unit of the values.
        randomness: what is drawn from.
        others: what contends of the rest of the domain.

    Time and memory: O(wanted), whatever `zeros` is. Source: specs/gap 2.8.
    """
    floor = others.floor(wanted)
    if zeros <= _MOST_LISTED:
        return contenders(np.zeros(zeros, np.int64), first, wanted, t, randomness, floor)
    survival, bits = randomness.clock.survival, randomness.bits
    # Below the floor nothing is wanted.
    level = start_level(zeros, wanted) if floor is None else max(start_level(zeros, wanted), floor // t)
    numbers = hit(zeros, partial(survival, level), bits) if level > 0 else np.arange(zeros)
    lower = raised(_alike(len(numbers), level * t), t, randomness)  # given V >= v, V - v is such a clock again
    while True:
        found = Contenders(first + numbers, lower)
        floor = Contenders.merged([others, found]).floor(wanted)
        # A key of a smaller clock is below level * t.
        if level == 0 or (floor is not None and level * t <= floor):
            return found.reaching(floor, t)
        level -= 1
        more = hit(zeros, partial(_at_most, survival, level), bits) if level > 0 else np.arange(zeros)
        more = np.setdiff1d(more, numbers, assume_unique=True)
        numbers = np.concatenate([numbers, more])
        lower = np.concatenate([lower, _alike(len(more), level * t)])


def start_level(zeros: int, wanted: int) -> int:
    """A v that three times as many clocks as are wanted, and some more, can be expected to reach."""
    return max(log(Fraction(zeros, 3 * wanted + 40), START_PRECISION)[0] >> START_PRECISION, 0)


def _alike(size: int, value: int) -> Parts:
    return np.full(size, value, np.int64 if value < MOST_PARTS else object)


def hit(keys: int, chance: Probability, bits: BitSource) -> NDArray[np.int64]:
    """The numbers of the keys, rising, each of which is there with a real probability below 1, independently.

    A Poisson number of points, each on a uniform key, leaves every key without a point with probability e^-rate,
    independently. With a rate above ln(1 / (1 - chance)) more keys are met than should be, and each is kept with what
    the chance is of that. Few points, where the chance is small.
    """
    _, upper = chance(START_PRECISION)
    rate = Fraction(upper, (1 << START_PRECISION) - upper)  # x / (1 - x) >= ln(1 / (1 - x))
    met = sorted({uniform(keys, bits) for _ in range(poisson(keys * rate, bits))})
    kept = partial(_kept, chance, rate)
    rough = kept(START_PRECISION)
    return np.array([number for number in met if happens(kept, bits, rough)], np.int64)


def _kept(chance: Probability, rate: Fraction, precision: int) -> tuple[int, int]:
    """Enclose chance / (1 - e^-rate)."""
    guard = precision + (rate.denominator // rate.numerator).bit_length() + 2
    lower, upper = chance(guard)
    low, high = (((1 << guard) - bound) for bound in reversed(exp_neg(rate, guard)))
    return (lower << precision) // high, min(-(-(upper << precision) // low), 1 << precision)


def _at_most(survival: Survival, v: int, precision: int) -> tuple[int, int]:
    """Enclose P(V = v | V <= v)."""
    one = 1 << precision
    low_next, high_next = survival(v + 1, precision)
    low, high = survival(v, precision)
    lower = (low - high_next << precision) // (one - low_next)
    return max(lower, 0), -(-(high - low_next << precision) // (one - high_next))
