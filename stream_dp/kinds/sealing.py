"""From exact counts to the sealed table of a window, and from that to the counts of a level; what kinds share of it.

Both are pure functions of their arguments; nothing here knows of tables, topics or ledgers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec

from stream_dp.exact.bits import Entropy
from stream_dp.kinds.lists import KeyList
from stream_dp.kinds.noise import NoiseLevel
from stream_dp.lossless.prf import KEY_BYTES, joint_key
from stream_dp.lossless.sealed import SALT_BYTES, read_levels, seal, snapshot_digest


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


@dataclass(frozen=True, slots=True)
class WindowNoise:
    """Noise parameters of one window, as long as the window is retained.

    Attributes:
        name: of the view and the window; no two windows of any definitions share one (specs/lossless 6.3).
        prf_key: the secret that coarser levels are derived from, the window's own.
    """

    name: bytes
    prf_key: bytes

    @classmethod
    def of(cls, name: bytes, secret: bytes, own: bytes) -> Self:
        """The noise of a window, from the application's secret and the window's.

        A coarser level is the stored table plus words that `prf_key` fixes (`lossless.sealed.read_levels`). Without the
        window's secret that key is as good as uniform (`joint_key`), whoever else's secrets and records are known: then
        no level that was not published can be told, and none that was can be lifted to a finer one
        (specs/lossless 6.7).

        Args:
            name: of the view and the window.
            secret: of the application, in its key file (`releases.keyring`).
            own: of the window (`own_secret`), stored with it and nowhere else.
        """
        return cls(name, joint_key(secret, own, name))


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
        noise: what its noise is made from.
        entropy: where the salt, a selection and the finest noise come from.
        lists: the public lists that stand in topics, by topic.
    """

    noise: WindowNoise
    entropy: Entropy
    lists: Mapping[str, KeyList]

    def context(self, purpose: bytes) -> bytes:
        """The context of a draw: what it is for, and the window."""
        return purpose + self.noise.name


def seal_counts(
    exact: Mapping[bytes, int], levels: Sequence[NoiseLevel], sealing: Sealing
) -> tuple[bytes, dict[bytes, int]]:
    """Noise a window's counts at the finest level; afterwards they can be erased.

    Args:
        exact: the counts by key.
        levels: the ladder, coarse to fine.
        sealing: where the randomness comes from.

    Returns:
        The digest of the snapshot, and the noised count of every key, in the order of the keys.

    Guarantee: that of `lossless.sealed.seal`. Source: specs/lossless 6.4, 6.7.
    """
    salt = sealing.entropy(sealing.context(b"salt")).bits(8 * SALT_BYTES).to_bytes(SALT_BYTES)
    digest = snapshot_digest(exact, salt)
    return digest, seal(exact, levels[-1].threshold, sealing.entropy(sealing.context(b"noise")))


def seal_table(
    items: Iterable[str], counts: Mapping[str, int], levels: Sequence[NoiseLevel], sealing: Sealing, payload: bytes
) -> SealedTable:
    """Noise the counts of some keys, 0 where nobody had one, and keep them in the order of the keys.

    Args:
        items: the keys, each once.
        counts: exact; those of other keys are left out.
        levels: the ladder, coarse to fine.
        sealing: where the randomness comes from.
        payload: what else the kind has to remember.

    Guarantee: that of `seal_counts`.
    """
    exact = {item: counts.get(item, 0) for item in items}
    digest, fine = seal_counts({item.encode(): count for item, count in exact.items()}, levels, sealing)
    return SealedTable(digest, list(exact), [fine[item.encode()] for item in exact], payload)


def read_counts(
    table: SealedTable, ladder: Sequence[NoiseLevel], levels: Sequence[int], noise: WindowNoise
) -> list[list[int]]:
    """Read a sealed table at several levels; each is computed from its own level's values alone.

    Args:
        table: what was sealed.
        ladder: the levels it was sealed with, coarse to fine.
        levels: indices into the ladder.
        noise: what the window's noise is made from.

    Returns:
        For every asked level the count of every key of the table, in its order.
    """
    return read_levels(
        dict(zip((item.encode() for item in table.items), table.values, strict=True)),
        prf_key=noise.prf_key,
        window=noise.name,
        digest=table.digest,
        thresholds=[ladder[level].threshold for level in levels],
        finest=ladder[-1].threshold,
    )
