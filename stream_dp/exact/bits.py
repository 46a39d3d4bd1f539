"""Sources of uniform random bits: those of the operating system, and a stream keyed for replay."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

_BLOCK_BYTES = 4096


class BitSource(Protocol):
    """Where a mechanism reads its randomness from."""

    def bits(self, n: int) -> int:
        """The next `n` >= 0 bits as an integer, uniform in [0, 2^n) and independent of all earlier ones."""


Entropy = Callable[[bytes], BitSource]
"""Gives the bit source of a draw, named by a context that no two draws share; production ignores the name."""


class SystemBits:
    """Bits of the operating system's generator, read in blocks.

    A bit is handed out once: what has been used is overwritten, and a forked child drops the block it inherited, so
    parent and child never share noise (specs/topk P27). One instance belongs to one thread.
    """

    def __init__(self) -> None:
        self._block = bytearray()
        self._next = 0
        self._process = os.getpid()

    def bits(self, n: int) -> int:
        """The next `n` >= 0 bits, uniform in [0, 2^n); whole bytes are used up."""
        size = (n + 7) // 8
        if self._process != os.getpid() or self._next + size > len(self._block):
            self._refill(size)
        first, self._next = self._next, self._next + size
        value = int.from_bytes(self._block[first : self._next], "big")
        self._block[first : self._next] = bytes(size)
        return value >> (8 * size - n)

    def _refill(self, size: int) -> None:
        self._block[:] = os.urandom(max(size, _BLOCK_BYTES))
        self._next = 0
        self._process = os.getpid()


class KeyedBits:
    """A stream fixed by a key and a context, for replays that must repeat: HMAC-SHA256 in counter mode.

    As good as uniform to whoever does not hold the key. The same (key, context) gives the same bits, so a context
    names one draw over one snapshot.
    """

    def __init__(self, key: bytes, context: bytes) -> None:
        self._blocks = hmac_blocks(key, b"stream-dp bits" + context)
        self._held = 0
        self._held_bits = 0

    def bits(self, n: int) -> int:
        """The next `n` >= 0 bits of the stream."""
        while self._held_bits < n:
            self._held = self._held << 256 | int.from_bytes(next(self._blocks), "big")
            self._held_bits += 256
        self._held_bits -= n
        value = self._held >> self._held_bits
        self._held &= (1 << self._held_bits) - 1
        return value


def hmac_blocks(key: bytes, message: bytes) -> Iterator[bytes]:
    """HMAC-SHA256 in counter mode: 32 bytes for `message` followed by 0, 1, 2, ... as 8 bytes, big endian.

    Two messages share a block only if they are equal: the counter has a fixed width and stands last.
    """
    for index in count():
        yield hmac.digest(key, message + index.to_bytes(8, "big"), "sha256")


def system_entropy(context: bytes) -> BitSource:
    """The production `Entropy`: fresh bits of the operating system for every draw, whatever its context."""
    return SystemBits()
