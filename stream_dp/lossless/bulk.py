"""Discrete Laplace noise for many counts at once: fresh noise, and the keyed noise of coarser levels (`LMR3`)."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import ParameterError
from stream_dp.exact.aes import KEY_BYTES, Aes256, Blocks
from stream_dp.exact.bits import BitSource
from stream_dp.lossless.levels import WORD, WORD_BITS, noise_parameter


def length_prefixed(field: bytes) -> bytes:
    """The field behind its length in 8 bytes, big endian."""
    return len(field).to_bytes(8, "big") + field


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


_TAG = b"LMR3"
_CHUNK_BYTES = 8
_LAST = 1 << 63
_RESTS = 1 << 63
REST_BITS = 48
WORDS_PER_BLOCK = 4
_REST_MASK = (1 << REST_BITS) - 1
_ITEMS_AT_ONCE = 1 << 14


class AddressedWords:
    """The streams of one table: two for every key, by name."""

    def __init__(self, key: bytes, *fields: bytes) -> None:
        """Derive the keys of the table.

        Args:
            key: secret, 32 bytes long.
            fields: what names the table; no two tables share them.
        """
        message = _TAG + b"".join(map(length_prefixed, fields))
        self._address, self._words = (
            Aes256(hmac.digest(key, message + length_prefixed(label), "sha256")) for label in (b"address", b"words")
        )

    # -- one word at a time: the reference ------------------------------------------------------------------------

    def words(self, item: bytes, side: int) -> Iterator[int]:
        """The endless stream U_0, U_1, ... of a key; `side` is 0 for plus, 1 for minus."""
        address = self._address_of(item)
        for index in count():
            block, lane = divmod(index, WORDS_PER_BLOCK)
            lead = int.from_bytes(self._block(address, block)[8 * side + 2 * lane :][:2], "little")
            rest = int.from_bytes(self._block(address, _RESTS + index)[8 * side :][:8], "little") & _REST_MASK
            yield lead << REST_BITS | rest

    def _block(self, address: int, number: int) -> bytes:
        return self._words.block((address ^ number << 64).to_bytes(16, "little"))

    def _address_of(self, item: bytes) -> int:
        address = 0
        starts = range(0, len(item), _CHUNK_BYTES) or range(1)
        for start in starts:
            chunk = item[start : start + _CHUNK_BYTES].ljust(_CHUNK_BYTES, b"\0")
            tag = _LAST + len(item) if start == starts[-1] else start // _CHUNK_BYTES
            address ^= int.from_bytes(self._address.block(chunk + tag.to_bytes(8, "little")), "little")
        return address

    # -- all keys at once -----------------------------------------------------------------------------------------

    def addresses(self, items: Sequence[bytes]) -> Blocks:
        """Where the streams of the keys begin, in their order. About 0.2 microseconds per key."""
        parts = [self._addresses(items[at : at + _ITEMS_AT_ONCE]) for at in range(0, len(items), _ITEMS_AT_ONCE)]
        return np.concatenate(parts) if parts else np.empty((0, 2), "<u8")

    def _addresses(self, items: Sequence[bytes]) -> Blocks:
        lengths = np.fromiter(map(len, items), np.int64, len(items))
        chunks = np.maximum((lengths + (_CHUNK_BYTES - 1)) // _CHUNK_BYTES, 1)
        ends = np.cumsum(chunks)
        starts = ends - chunks
        blocks = np.zeros((int(ends[-1]), 2), "<u8")
        text = np.zeros(_CHUNK_BYTES * len(blocks), np.uint8)
        # Byte p of the joined items belongs at p plus what its item is moved by.
        moved = np.repeat(_CHUNK_BYTES * starts - (np.cumsum(lengths) - lengths), lengths)
        moved += np.arange(len(moved))
        text[moved] = np.frombuffer(b"".join(items), np.uint8)
        blocks[:, 0] = text.view("<u8")
        blocks[:, 1] = np.arange(len(blocks)) - np.repeat(starts, chunks)
        blocks[ends - 1, 1] = lengths.astype("<u8") | np.uint64(_LAST)
        values = self._address.blocks(blocks)
        addresses = np.empty((len(items), 2), "<u8")
        for half in (0, 1):
            addresses[:, half] = np.bitwise_xor.reduceat(values[:, half], starts)
        return addresses

    def blocks(self, addresses: Blocks, block: int | NDArray[np.uint64]) -> Blocks:
        """Shape (n, 2): a block of each key as it is, for a table that draws no words of 64 bits."""
        return self._words.blocks(_numbered(addresses, np.asarray(block, np.uint64)))

    def leads(self, addresses: Blocks, block: int | NDArray[np.uint64]) -> NDArray[np.uint16]:
        """Shape (n, 8): of each key, the leads of the words 4 `block` .. 4 `block` + 3 of plus, then those of minus."""
        return self.blocks(addresses, block).view("<u2")

    def rests(self, addresses: Blocks, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Shape (n, 2): of the i-th key, the rest of word `words[i]` of plus and of minus."""
        return self._words.blocks(_numbered(addresses, words | np.uint64(_RESTS))) & np.uint64(_REST_MASK)


def _numbered(addresses: Blocks, numbers: np.uint64 | NDArray[np.uint64]) -> Blocks:
    blocks = addresses.copy()
    blocks[:, 1] ^= numbers
    return blocks


_BITS_PER_BLOCK = 8 * WORDS_PER_BLOCK
_ROWS_AT_ONCE = 1 << 14
"""Keys whose blocks stay in the processor's cache."""
_WORTH_A_CALL = 1 << 12
"""Rows of blocks that take about as long as the calls that work them out."""
_MOST_BLOCKS = 1024
"""Blocks between two looks at who has stopped; the sum of their bits must fit 16 bits."""


class LeadingWords(Protocol):
    """Words of two sides of many keys, of which the top 16 bits are cheap (`AddressedWords` says more)."""

    def leads(self, addresses: Blocks, block: int | NDArray[np.uint64]) -> NDArray[np.uint16]:
        """Top 16 bits of four words of plus, then of minus: shape (n, 8); of a block, or of one for each key."""

    def rests(self, addresses: Blocks, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The other 48 bits of one word of plus and of minus: shape (n, 2)."""


def bulk_clocks(source: LeadingWords, addresses: Blocks, threshold: int) -> NDArray[np.int64]:
    """Of each side of each key the number of words before the first that is >= A: the clocks of specs/lossless 7.5.

    Args:
        source: the words.
        addresses: the keys, shape (n, 2).
        threshold: one level A, 1 <= A < 2^64. Each level is read on its own; the words are the same for all.

    Returns:
        Shape (2, n): plus, minus.

    Time: 7 nanoseconds per key and block of four words of both sides.
    """
    length = _blocks_per_round(threshold)
    running = np.ones((len(addresses), 2), np.bool_)
    clocks = np.empty((2, len(addresses)), np.int64)
    clocks[:] = _round(source, addresses, running, threshold, range(length)).T
    rows = np.arange(len(addresses))
    for first in count(length, length):
        left = np.flatnonzero(running.view("<u2").reshape(-1) != 0)
        if not len(left):
            break
        rows, addresses, running = rows.take(left), addresses.take(left, 0), running.take(left, 0)
        passed = _round(source, addresses, running, threshold, range(first, first + length))
        for side in (0, 1):
            clocks[side][rows] += passed[:, side]
    return clocks


def _round(
    source: LeadingWords, addresses: Blocks, running: NDArray[np.bool_], threshold: int, blocks: range
) -> NDArray[np.uint16]:
    """Words that running sides leave behind in some blocks; afterwards `running` says who has found none to stop at."""
    # Four words of a side are four bytes of a number x, 1 where the word stops the clock. x ^ (x - 1) has a bit for
    # each up to the lowest of the first such byte: 8 (words before it) + 1, or all 32. Only the last can be odd.
    bits = np.zeros((len(addresses), 2), np.uint16)
    for start in range(0, len(addresses), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        going, passed = running[part], bits[part]
        if len(going) * len(blocks) <= _WORTH_A_CALL:
            passed += _together(source, addresses[part], going, threshold, blocks)
            continue
        for block in blocks:
            stops = _stops(source, addresses[part], threshold, block).view("<u4")
            found = np.bitwise_count(stops ^ (stops - np.uint32(1)))
            found *= going
            passed += found
            np.equal(found, _BITS_PER_BLOCK, out=going)
            if not going.any():
                break
    bits >>= 3
    return bits


def _together(
    source: LeadingWords, addresses: Blocks, running: NDArray[np.bool_], threshold: int, blocks: range
) -> NDArray[np.uint16]:
    """Return the bits of all blocks at once: of few keys a call takes longer than what it works out."""
    numbers = np.repeat(np.arange(blocks.start, blocks.stop, dtype=np.uint64), len(addresses))
    stops = _stops(source, np.tile(addresses, (len(blocks), 1)), threshold, numbers).view("<u4")
    found = np.bitwise_count(stops ^ (stops - np.uint32(1))).reshape(len(blocks), -1, 2)
    going = np.logical_and.accumulate(np.concatenate([running[None], found == _BITS_PER_BLOCK]))
    running[:] = going[-1]
    bits: NDArray[np.uint16] = (found * going[:-1]).sum(axis=0, dtype=np.uint16)
    return bits


def _stops(
    source: LeadingWords, addresses: Blocks, threshold: int, block: int | NDArray[np.uint64]
) -> NDArray[np.bool_]:
    """Shape (n, 8): which words of a block are >= the threshold; of one block for all keys, or of one for each."""
    lead, rest = threshold >> REST_BITS, threshold & ((1 << REST_BITS) - 1)
    leads = source.leads(addresses, block)
    stops = leads >= lead
    if rest:
        doubts = np.flatnonzero(leads == lead)
        if len(doubts):
            rows, lanes = np.divmod(doubts, 2 * WORDS_PER_BLOCK)
            sides, words = np.divmod(lanes, WORDS_PER_BLOCK)
            blocks = block if isinstance(block, int) else block[rows]
            rests = source.rests(addresses[rows], words.astype(np.uint64) + np.uint64(WORDS_PER_BLOCK) * blocks)
            stops[rows, lanes] = rests[np.arange(len(doubts)), sides] >= rest
    return stops


def _blocks_per_round(threshold: int) -> int:
    """So many that about a quarter of the sides runs on; what is read does not depend on it."""
    lead = threshold >> REST_BITS
    quarter = 1 << 14
    run_on = 1 << 16
    for blocks in range(1, _MOST_BLOCKS):
        run_on = run_on * lead**WORDS_PER_BLOCK >> 16 * WORDS_PER_BLOCK
        if run_on <= quarter:
            return blocks
    return _MOST_BLOCKS
