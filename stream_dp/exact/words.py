"""Uniform words by the million: a stream of AES-256 under a key of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.aes import KEY_BYTES, Aes256
from stream_dp.exact.bits import BitSource


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
