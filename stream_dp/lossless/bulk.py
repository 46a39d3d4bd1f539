"""Discrete Laplace noise for many counts at once, and what a coarser level has of it beyond a finer one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import ParameterError
from stream_dp.exact.aes import KEY_BYTES, Aes256
from stream_dp.exact.bits import BitSource
from stream_dp.lossless.discrete_laplace import bridge_atom
from stream_dp.lossless.levels import WORD, WORD_BITS, noise_parameter

Step = Callable[[int], tuple[int, int]]
"""A real number t in (0, 1): for each precision p integers with lower <= 2^p t <= upper, ever closer to it."""

_LEAD_BITS = 16
_REST_BITS = WORD_BITS - _LEAD_BITS
_FEW_STEPS = WORD - (WORD >> 5)
"""b is at most 31/32, so that fewer than 1500 steps are not below 2^-64."""
COARSEST = WORD - (1 << 16)
"""The coarsest level whose noise fits 64 bits by a wide margin: epsilon is 2^-48."""

_ENDLESS = 1 << 62
_DOUBT = -1
_INDEX_BITS = 40
_AT_ONCE = 1 << 15


class Uniforms:
    """Independent uniform numbers U_0, U_1, ... of [0, 1), each a row of bits: AES-256 in counter mode, a key per call.

    Number q begins with 16 bits of block (q div 8, 0) and 48 of (q, 1); then 64 each come from (q, 2), (q, 3), ...
    """

    def __init__(self, key: bytes) -> None:
        """Set the key: 32 fresh random bytes."""
        self._cipher = Aes256(key)

    def leads(self, first: int, size: int) -> NDArray[np.uint16]:
        """The top 16 bits of the numbers `first`, a multiple of 8, and following."""
        blocks = np.zeros(((size + 7) // 8, 2), "<u8")
        blocks[:, 0] = np.arange(first // 8, first // 8 + len(blocks))
        return self._cipher.blocks(blocks).view("<u2").reshape(-1)[:size]

    def rests(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The next 48 bits of some numbers."""
        blocks = np.ones((len(numbers), 2), "<u8")
        blocks[:, 0] = numbers
        return self._cipher.blocks(blocks)[:, 0] >> np.uint64(_LEAD_BITS)

    def prefix(self, number: int, bits: int) -> int:
        """The first `bits` bits, a multiple of 64, of one number."""
        lead = int.from_bytes(self._block(number // 8, 0)[2 * (number % 8) :][:2], "little")
        value = lead << _REST_BITS | int.from_bytes(self._block(number, 1)[:8], "little") >> _LEAD_BITS
        for place in range(1, bits // WORD_BITS):
            value = value << WORD_BITS | int.from_bytes(self._block(number, 1 + place)[:8], "little")
        return value

    def _block(self, number: int, place: int) -> bytes:
        return self._cipher.block(number.to_bytes(8, "little") + place.to_bytes(8, "little"))


class Numbers(Protocol):
    """Uniform numbers in [0, 1); their top 16 bits are cheap to get."""

    def leads(self, first: int, size: int) -> NDArray[np.uint16]:
        """The top 16 bits of the numbers `first` and following."""

    def rests(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The next 48 bits of some numbers."""

    def prefix(self, number: int, bits: int) -> int:
        """The first `bits` bits, a multiple of 64, of one number."""


class Staircase:
    """Falling steps t_1 > t_2 > ... in (0, 1): how many lie above U?"""

    def __init__(self, step: Callable[[int], Step], steps: int = _ENDLESS) -> None:
        """Make the table.

        Args:
            step: t_k for k = 1, 2, ...
            steps: how many there are.
        """
        self._step = step
        self._all = range(1, steps + 1)
        self._lower, self._upper = self._enclosed()
        # Of the words that begin with a lead, the last has the fewest steps above it, the first the most.
        firsts = np.arange(1 << _LEAD_BITS, dtype=np.uint64) << np.uint64(_REST_BITS)
        least, _ = self._bounds(firsts | np.uint64((1 << _REST_BITS) - 1))
        _, most = self._bounds(firsts)
        self._table = np.where(least == most, least, _DOUBT).astype(np.int16)

    def _enclosed(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """2^64 t_k from below and above, up to the first (0, 1): it stands for all steps behind it as well."""
        pairs = []
        for k in self._all:
            pairs.append(self._step(k)(WORD_BITS))
            if pairs[-1] == (0, 1):
                break
        lower, upper = zip(*pairs, strict=True)
        return np.sort(np.array(lower, np.uint64)), np.sort(np.array(upper, np.uint64))

    def _bounds(self, words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the least and the largest number of steps above a number that begins with these 64 bits."""
        # U is in [w, w + 1) / 2^64: surely below t where w + 1 <= lower, surely not where w >= upper.
        least = len(self._lower) - np.searchsorted(self._lower, words, side="right")
        most = len(self._upper) - np.searchsorted(self._upper, words, side="right")
        return least, most

    def count_above(self, uniforms: Numbers, number: int) -> int:
        """Of one number, the number of steps above it: the reference, a step at a time."""
        return next((k - 1 for k in self._all if not _below(uniforms, number, self._step(k))), len(self._all))

    def counts_above(self, uniforms: Numbers, first: int, size: int) -> NDArray[np.int64]:
        """The same of the numbers `first`, a multiple of 8, and following."""
        leads = uniforms.leads(first, size)
        counts = self._table.take(leads).astype(np.int64)
        doubts = np.flatnonzero(counts == _DOUBT)
        if len(doubts):
            high = leads[doubts].astype(np.uint64) << np.uint64(_REST_BITS)
            least, most = self._bounds(high | uniforms.rests(doubts + first))
            for at in np.flatnonzero(least != most):
                least[at] = self.count_above(uniforms, first + int(doubts[at]))
            counts[doubts] = least
        return counts


def bulk_noise(threshold: int, size: int, bits: BitSource) -> NDArray[np.int64]:
    """Draw independent discrete Laplace numbers of a level, P(Z = k) = (1 - a) / (1 + a) a^|k|, a = A / 2^64.

    Args:
        threshold: level A, at most `COARSEST`.
        size: how many, at most 2^40.
        bits: fresh source of uniform bits, of which 256 are taken: the key of this call's AES-256.

    Returns:
        Shape (size,).

    Raises:
        ParameterError: not such a level.

    Time: 6 nanoseconds per number for epsilon above 1/32; as much again for each halving of it below. Some
    milliseconds when a level is used for the first time. Source: specs/lossless 7.5, 7.10.
    """
    stairs = staircases(threshold)
    uniforms = Uniforms(bits.bits(8 * KEY_BYTES).to_bytes(KEY_BYTES))
    noise = np.empty(size, np.int64)
    for start in range(0, size, _AT_ONCE):
        part = noise[start : start + _AT_ONCE]
        part[:] = 0
        for place, stair in enumerate(stairs):
            plus, minus = (_number(2 * place + side, start) for side in (0, 1))
            part += (stair.counts_above(uniforms, plus, len(part))) << place
            part -= (stair.counts_above(uniforms, minus, len(part))) << place
    return noise


def _number(part: int, index: int) -> int:
    """Number of the uniform number that decides a part of the noise at an index."""
    return (part << _INDEX_BITS) + index


@lru_cache(maxsize=32)
def staircases(threshold: int) -> tuple[Staircase, ...]:
    """The parts of a geometric number of level A, from the lowest binary digit upwards; the last is the rest.

    Raises:
        ParameterError: not a level, or coarser than `COARSEST`.
    """
    noise_parameter(threshold)
    if threshold > COARSEST:
        raise ParameterError(f"noise of level {threshold} does not fit 64 bits; the coarsest to be drawn is {COARSEST}")
    digits = 0
    while _power(threshold, 1 << digits, WORD_BITS)[0] > _FEW_STEPS:
        digits += 1

    def digit(place: int) -> Callable[[int], Step]:
        return lambda _: lambda precision: _odds(threshold, 1 << place, precision)

    def rest(k: int) -> Step:
        return lambda precision: _power(threshold, k << digits, precision)

    return *(Staircase(digit(place), 1) for place in range(digits)), Staircase(rest)


def _below(uniforms: Numbers, number: int, step: Step) -> bool:
    """Return True if U < t, its bits revealed until they tell."""
    precision = WORD_BITS
    while True:
        prefix = uniforms.prefix(number, precision)
        lower, upper = step(precision)
        if prefix < lower:
            return True
        if prefix >= upper:
            return False
        precision += WORD_BITS


def _power(threshold: int, exponent: int, precision: int) -> tuple[int, int]:
    """Enclose 2^precision a^exponent, a = A / 2^64, exponent >= 1, by squaring; every rounding is directed outwards."""
    # A squaring doubles an error, each rounding adds one unit at `point`: in the end less than 4 exponent units.
    guard = exponent.bit_length() + WORD_BITS
    point = precision + guard
    base = threshold << (point - WORD_BITS)
    lower = upper = base
    for digit in bin(exponent)[3:]:
        lower, upper = lower * lower >> point, -(-upper * upper >> point)
        if digit == "1":
            lower, upper = lower * base >> point, -(-upper * base >> point)
    return lower >> guard, -(-upper >> guard)


def _odds(threshold: int, exponent: int, precision: int) -> tuple[int, int]:
    """Enclose 2^precision x / (1 + x) for x = a^exponent; it rises with x."""
    one = 1 << precision
    lower, upper = _power(threshold, exponent, precision)
    return lower * one // (one + lower), -(-upper * one // (one + upper))


def bulk_step(fine: int, coarse: int, size: int, bits: BitSource) -> NDArray[np.int64]:
    """Draw what noise of a level lies above that of a finer one: discrete Laplace noise plus this is that of `coarse`.

    With the chance `bridge_atom` it is 0, else noise of the coarser level. Proof: docs/lossless.md, "From level to
    level".

    Args:
        fine: the finer level, or the same.
        coarse: the coarser level, at most `COARSEST`.
        size: how many, at most 2^40.
        bits: as of `bulk_noise`, twice: for who stays, and for the noise of the others.

    Returns:
        Shape (size,).

    Raises:
        ParameterError: not such levels.

    Time: 5 nanoseconds per number, and that of `bulk_noise` for those that do not stay. Source: specs/lossless 7.1.
    """
    steps = np.zeros(size, np.int64)
    if fine != coarse:
        uniforms = Uniforms(bits.bits(8 * KEY_BYTES).to_bytes(KEY_BYTES))
        moved = np.flatnonzero(_staying(fine, coarse).counts_above(uniforms, 0, size) == 0)
        steps[moved] = bulk_noise(coarse, len(moved), bits)
    return steps


@lru_cache(maxsize=32)
def _staying(fine: int, coarse: int) -> Staircase:
    """One step: the chance that a coarser level is read as the finer one is, at most 1 - 2^-64."""
    if fine >= coarse:
        raise ParameterError(f"level {fine} is not finer than {coarse}, which would be made of it")
    chance = bridge_atom(noise_parameter(fine), noise_parameter(coarse))

    def step(precision: int) -> tuple[int, int]:
        part = chance.numerator << precision
        return part // chance.denominator, -(-part // chance.denominator)

    return Staircase(lambda _: step, 1)
