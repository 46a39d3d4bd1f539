"""AES-256 as a keyed function of 16-byte blocks, of one or of millions at a time."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from stream_dp.exact.bits import BitSource

KEY_BYTES = 32
BLOCK_BYTES = 16

Blocks = NDArray[np.uint64]
"""Shape (n, 2): a block per row, as two numbers of 8 bytes, little endian."""


class Aes256:
    """The block cipher under one key, used forwards only.

    To whoever lacks the key its values on distinct blocks are indistinguishable from independent uniform ones, as
    long as they are far fewer than 2^64 (that they never repeat tells n values apart with n^2 / 2^129 at most).
    """

    def __init__(self, key: bytes) -> None:
        """Set the key, `KEY_BYTES` long."""
        # ECB is the bare cipher. It encrypts no message here: it is a function, called on blocks that never repeat.
        self._encryptor = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305

    def block(self, block: bytes) -> bytes:
        """The value on one block."""
        return self._encryptor.update(block)

    def blocks(self, blocks: Blocks) -> Blocks:
        """The values on many blocks, row by row. About 3 ns per block where the processor has AES instructions."""
        plain = np.ascontiguousarray(blocks, "<u8").reshape(-1).view(np.uint8)
        values = np.empty(plain.size + BLOCK_BYTES - 1, np.uint8)  # the room that `update_into` asks for
        self._encryptor.update_into(plain.data, values.data)
        return values[: plain.size].view("<u8").reshape(-1, 2)


class UniformWords:
    """Independent uniform words of 64 bits: AES-256 in counter mode under a key of 256 bits.

    The key is drawn once; whoever makes one of these inherits whatever guarantees the source has about forks and
    replays. It serves one draw and is dropped with it.
    """

    def __init__(self, bits: BitSource) -> None:
        """Draw the key from a source of uniform bits."""
        self._cipher = Aes256(bits.bits(8 * KEY_BYTES).to_bytes(KEY_BYTES))
        self._blocks = 0

    def draw(self, size: int) -> NDArray[np.uint64]:
        """The next `size` words, none of which is handed out twice."""
        count = (size + 1) // 2
        blocks = np.zeros((count, 2), "<u8")
        blocks[:, 0] = np.arange(self._blocks, self._blocks + count)
        self._blocks += count
        return self._cipher.blocks(blocks).reshape(-1)[:size].astype(np.uint64, copy=False)


def masked(key: bytes, text: bytes) -> bytes:
    """The text XOR AES-256 in counter mode: blocks 0, 1, ..., each number in 16 bytes, big endian.

    Masked again it is the text. To whoever lacks the key a masked text is as good as uniform; a key serves one text.
    """
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(BLOCK_BYTES))).encryptor().update(text)
