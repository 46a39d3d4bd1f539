"""`LMR3`: the words that the noise of coarser levels is read from, as AES-256 blocks that can be computed in bulk.

One table is named by its fields (window, snapshot digest, ...), one of its keys by `item`. With enc(b) = length of b
as 8 bytes, big endian, || b; numbers in blocks are little endian:

    K_label    = HMAC-SHA256(K, "LMR3" || enc(field) ... || enc(label)), label = "address" or "words"
    chunk_i    = bytes 8i .. 8i + 7 of the item, filled up with zeros; c = max(1, ceil(length / 8)) of them
    tag_i      = i for i < c - 1; 2^63 + length for the last, i = c - 1
    address    = XOR over i of AES(K_address, chunk_i || tag_i)
    block(n)   = AES(K_words, address XOR (0 || n)), n as the second 8 bytes
    lead_j     = the top 16 bits of word j: those of the words 4b .. 4b + 3 of the plus side are the four numbers in the
                 first half of block(b), those of the minus side the four in the second
    rest_j     = its other 48 bits: the low 48 bits of block(2^63 + j), of the first half for plus, the second for minus
    U_j        = 2^48 lead_j + rest_j

Most words are decided by their lead; the rest is computed where a lead equals that of a level, one time in 2^16.

To whoever lacks K, the words of all sides, keys and tables are independent and uniform:

1. Tables have different fields, so HMAC gives them independent keys, two each.
2. Under K_address, two different items have different sets of blocks chunk || tag: either their lengths differ, then
   so do the last tags; or the same tag stands beside different chunks. So the XOR of their addresses contains the value
   of AES on a block that occurs once: it is uniform.
3. Two blocks that enter AES under K_words are equal only if two addresses differ by nothing but what their numbers
   can undo. For q keys whose clocks read fewer than 2^l words this has a chance of at most q^2 2^(l + 1) / 2^128:
   2^-75 for a million keys and 2^12 words. Otherwise all blocks are distinct, and so all words are fresh.

For t tables the advantage over uniform words is at most that against HMAC-SHA256, plus t times: two times that against
AES-256, 2^-75, and 2 sigma^2 / 2^129 because values of AES never repeat, with sigma blocks in a table. Source:
specs/lossless 6.2; the address is the hash of Bellare, Guerin and Rogaway, XOR MACs (1995).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.aes import Aes256, Blocks
from stream_dp.lossless.prf import length_prefixed

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

    def leads(self, addresses: Blocks, block: int) -> NDArray[np.uint16]:
        """Shape (n, 8): of each key, the leads of the words 4 `block` .. 4 `block` + 3 of plus, then those of minus."""
        return self._words.blocks(_numbered(addresses, np.uint64(block))).view("<u2")

    def rests(self, addresses: Blocks, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Shape (n, 2): of the i-th key, the rest of word `words[i]` of plus and of minus."""
        return self._words.blocks(_numbered(addresses, words | np.uint64(_RESTS))) & np.uint64(_REST_MASK)


def _numbered(addresses: Blocks, numbers: np.uint64 | NDArray[np.uint64]) -> Blocks:
    blocks = addresses.copy()
    blocks[:, 1] ^= numbers
    return blocks
