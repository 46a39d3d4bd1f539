"""From exact counts to a sealed table, and from that to the counts of a level.

All are pure functions of their arguments; nothing here knows of tables, topics or ledgers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.bits import BitSource, Entropy
from stream_dp.kinds.noise_levels import GaussianLevel, NoiseLevel, TruncatedLevel
from stream_dp.kinds.public_lists import KeyList
from stream_dp.lossless.sealed import (
    KEY_BYTES,
    SALT_BYTES,
    Excess,
    WindowNoise,
    gaussian_excess,
    laplace_excess,
    lock,
    read_levels,
    seal,
    seal_gaussian,
    seal_truncated,
    snapshot_digest,
)


class SealedTable(msgspec.Struct, array_like=True, frozen=True):
    """Sealed table of a window: integers noised at the finest level (specs/lossless 6.4)."""

    digest: bytes
    """Names the snapshot; salted, so that it does not confirm a guess of the counts."""
    items: list[str]
    """The keys that some level can show, in the order of the kind."""
    values: list[int]
    """The count of each key with the noise of the finest level."""
    payload: bytes = b""
    """Further state of the window, in the form of its kind. Every row of the table has it, so it is far
    less than a row may be."""
    excess: bytes = b""
    """Noise of coarser levels beyond the finest, locked (`lossless.sealed.lock`): as many bytes for each key."""


def own_secret(name: bytes, entropy: Entropy) -> bytes:
    """Draw the secret of a window, when it is sealed and never again.

    Args:
        name: of the view and the window.
        entropy: where it comes from.
    """
    return entropy(b"key" + name).bits(8 * KEY_BYTES).to_bytes(KEY_BYTES)


@dataclass(frozen=True, slots=True)
class Sealing:
    """Inputs of sealing a closed window.

    Attributes:
        noise: what the noise of coarser levels is locked with.
        entropy: where the salt, a selection and the finest noise come from.
        lists: the public lists that stand in topics, by topic.
    """

    noise: WindowNoise
    entropy: Entropy
    lists: Mapping[str, KeyList]

    def bits(self, purpose: bytes) -> BitSource:
        """The source of the draws for a purpose, in this window."""
        return self.entropy(purpose + self.noise.name)


def exact_digest(exact: Mapping[bytes, int], sealing: Sealing) -> bytes:
    """Name the exact counts of a window by a salted hash, which confirms no guess of them."""
    keys = sorted(exact)
    return _digest(keys, [exact[key] for key in keys], sealing)


def _digest(keys: Sequence[bytes], counts: Sequence[int], sealing: Sealing) -> bytes:
    return snapshot_digest(keys, counts, sealing.bits(b"salt").bits(8 * SALT_BYTES).to_bytes(SALT_BYTES))


def seal_counts(
    keys: Sequence[bytes], counts: Sequence[int], levels: Sequence[NoiseLevel], sealing: Sealing
) -> tuple[bytes, NDArray[np.int64], Excess]:
    """Noise a window's counts at the finest level, and draw what the others add; afterwards they can be erased.

    Args:
        keys: each once, in any order; noise is drawn in sorted order.
        counts: of the keys.
        levels: the ladder, coarse to fine.
        sealing: where the randomness comes from.

    Returns:
        The digest of the snapshot; the noised count of every key; what coarser levels have beyond it, for as many keys.

    Guarantee: that of `lossless.sealed.seal`. Source: specs/lossless 6.4, 6.7.
    """
    places: Sequence[int] | None = None
    if not all(one < other for one, other in pairwise(keys)):  # not in one call: other threads go on meanwhile
        places = sorted(range(len(keys)), key=keys.__getitem__)
        keys, counts = [keys[at] for at in places], [counts[at] for at in places]
    digest, coarsest, finest, bits = _digest(keys, counts, sealing), levels[0], levels[-1], sealing.bits(b"noise")
    exact = np.fromiter((count for count in counts), np.int64, len(counts))
    if isinstance(coarsest, GaussianLevel):
        variance, *steps = coarsest.parts
        fine = seal_gaussian(exact, variance, bits)
        excess = gaussian_excess(steps, len(fine), bits)
    else:
        if isinstance(finest, TruncatedLevel):
            fine = seal_truncated(exact, finest.law, bits)
        else:
            fine = seal(exact, finest.threshold, bits)
        excess = laplace_excess([level.threshold for level in levels], len(fine), bits)
    if places is None:
        return digest, fine, excess
    values = np.empty_like(fine)
    values[np.array(places, np.int64)] = fine
    return digest, values, excess


def seal_table(
    items: Sequence[str], counts: Sequence[int], levels: Sequence[NoiseLevel], sealing: Sealing, payload: bytes
) -> SealedTable:
    """Noise the counts of some keys, and keep them in the order of the keys.

    Args:
        items: the keys, each once.
        counts: exact, key by key.
        levels: the ladder, coarse to fine.
        sealing: where the randomness comes from.
        payload: what else the kind has to remember.

    Guarantee: that of `seal_counts`.
    """
    digest, values, excess = seal_counts([item.encode() for item in items], counts, levels, sealing)
    return SealedTable(digest, list(items), values.tolist(), payload, lock(excess, sealing.noise, digest))


def seal_pruned(
    keys: Sequence[bytes],
    counts: Sequence[int],
    levels: Sequence[NoiseLevel],
    sealing: Sealing,
    payload: bytes,
    pruning: Pruning,
) -> SealedTable:
    """Noise the counts of some keys as `seal_table`, and keep those that a rule keeps."""
    digest, values, excess = seal_counts(keys, counts, levels, sealing)
    kept = pruning.kept(values, excess)
    items = [keys[at].decode() for at in kept.tolist()]
    return SealedTable(digest, items, values[kept].tolist(), payload, lock(excess[kept], sealing.noise, digest))


class Pruning(NamedTuple):
    """The rule by which keys are stored: they reach the minimum count at some level of the ladder.

    A key that is stored tells who reads the state that somebody had it, even if no release shows it. Source:
    specs/lossless 6.4, 2.9.5.
    """

    minimum_counts: Sequence[int]
    """Of every level, coarse to fine."""
    known: int = 0
    """So many keys at the head of the table are public, and are kept whatever they have."""

    def kept(self, values: NDArray[np.int64], excess: Excess) -> NDArray[np.int64]:
        """The numbers of the keys that are kept, by their counts at the finest level and what others have beyond."""
        *coarser, finest = self.minimum_counts
        keeps = (values >= finest) | (values[:, np.newaxis] + excess >= coarser).any(axis=1)
        keeps[: self.known] = True
        return np.flatnonzero(keeps)


def read_counts(
    table: SealedTable, ladder: Sequence[NoiseLevel], levels: Sequence[int], noise: WindowNoise
) -> list[list[int]]:
    """Read a sealed table at several levels; each is computed from its own level's values alone.

    Args:
        table: what was sealed.
        ladder: the levels it was sealed with, coarse to fine.
        levels: indices into the ladder.
        noise: what the window's noise was locked with.

    Returns:
        For every asked level the count of every key of the table, in its order.
    """
    return read_levels(table.values, table.excess, noise, table.digest, levels=levels, finest=len(ladder) - 1)
