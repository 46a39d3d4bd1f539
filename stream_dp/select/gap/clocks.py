"""The two pieces of geometric noise of parameter e^(-1/t): whole clocks for all keys, remainders for a few.

A clock of e^(-1/t) is t times a clock of e^-1, which does not depend on t, and an independent remainder modulo t. The
whole clocks say nearly everything about the order of many keys; remainders are drawn for those that are left
(specs/gap 2.7).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.aes import UniformWords
from stream_dp.exact.bits import BitSource
from stream_dp.exact.coins import bernoulli_exp, uniform
from stream_dp.exact.comparison import decide
from stream_dp.exact.reals import exp_neg

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
    kept = _kept(2 * size + 8, t, words, bits)
    while len(kept) < size:
        kept = np.concatenate([kept, _kept(2 * size + 8, t, words, bits)])
    return kept[:size].astype(np.int64)


def _remainder(t: int, bits: BitSource) -> int:
    while True:
        u = uniform(t, bits)
        if bernoulli_exp(Fraction(u, t), bits):
            return u


def _kept(proposals: int, t: int, words: UniformWords, bits: BitSource) -> NDArray[np.uint64]:
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


def _inverse_factorials() -> list[np.uint64]:
    found, factorial = [], 1
    for j in range(_TERMS):
        factorial *= max(j, 1)
        found.append(np.uint64((1 << _EXP_BITS) // factorial))
    return found


_COEFFICIENTS = _inverse_factorials()
