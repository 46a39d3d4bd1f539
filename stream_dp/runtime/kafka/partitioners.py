"""Where producers put a key: the hashes of Kafka's clients, for many keys at once."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import aiokafka.partitioner
import numpy as np
from numpy.typing import NDArray

_SEED, _FACTOR = 0x9747B28C, np.uint32(0x5BD1E995)
_A_FEW = 10
"""Keys that are hashed sooner one by one."""


def by_murmur2(keys: Sequence[bytes], partitions: int) -> Sequence[int]:
    """Return the partition of each key, as Java's client chooses it."""
    if len(keys) < _A_FEW:
        return [(aiokafka.partitioner.murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    found: Sequence[int] = ((murmur2(keys) & 0x7FFFFFFF) % partitions).tolist()
    return found


def by_crc32(keys: Sequence[bytes], partitions: int) -> Sequence[int]:
    """Return the partition of each key, as librdkafka chooses it."""
    return [crc32(key) % partitions for key in keys]


def murmur2(keys: Sequence[bytes]) -> NDArray[np.uint32]:
    """Return the hash of each key, computed word by word for all keys that have so many.

    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    order = np.argsort(-lengths, kind="stable")
    words = lengths // 4
    texts = np.frombuffer(b"".join([key + bytes(4 - len(key) % 4) for key in keys]), "<u4")
    first = (np.cumsum(words + 1) - words - 1)[order]
    lengths, words = lengths[order], words[order]
    hashes = (_SEED ^ lengths).astype(np.uint32)
    for word, keys_left in enumerate(np.cumsum(np.bincount(words)[::-1])[-2::-1].tolist()):
        mixed = texts[first[:keys_left] + word] * _FACTOR
        mixed ^= mixed >> 24
        hashes[:keys_left] = hashes[:keys_left] * _FACTOR ^ mixed * _FACTOR
    hashes = np.where(lengths % 4, (hashes ^ texts[first + words]) * _FACTOR, hashes)
    hashes ^= hashes >> 13
    hashes *= _FACTOR
    hashes ^= hashes >> 15
    found = np.empty_like(hashes)
    found[order] = hashes
    return found
