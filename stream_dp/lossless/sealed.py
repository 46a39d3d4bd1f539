"""Sealed tables: counts noised once, at the finest level, and what coarser levels add to that (specs/lossless 6.4).

Neighbours add or remove one user of one window; each count moves by at most 1, and at most `l` counts move.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from itertools import chain, pairwise
from struct import Struct
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.aes import masked
from stream_dp.exact.bits import BitSource
from stream_dp.lossless.bulk import bulk_noise, bulk_step
from stream_dp.lossless.gaussian import bulk_gaussian
from stream_dp.lossless.truncated import TruncatedLaplace

DIGEST_BYTES = 32
SALT_BYTES = 32

_DIGEST_TAG = b"stream-dp snapshot"
_NUMBER = Struct(">Q")
_AT_ONCE = 1 << 14


Counts = NDArray[np.int64]
"""Shape (keys,)."""


def length_prefixed(field: bytes) -> bytes:
    """The field behind its length in 8 bytes, big endian."""
    return len(field).to_bytes(8, "big") + field


def seal(counts: Counts, finest: int, bits: BitSource) -> Counts:
    """Add fresh discrete Laplace noise of the finest level to every count; the counts can then be erased.

    The noise comes from `bits`, never from a key: the table stays private at the finest level even to someone who
    holds all of them.

    Args:
        counts: exact counts, in the order of their keys: that in which they arrived tells who came first. Where the
            keys are unknown beforehand, only of keys that a user has counted for: the delta of `discovery` rests on it.
        finest: level A of the noise; nothing finer can ever be released.
        bits: fresh source of uniform bits; 256 are taken, as the key of the AES-256 that the noise is drawn with.

    Returns:
        One exact integer per count. Never clamp or round what is stored (specs/lossless 5, no. 7).

    Raises:
        ParameterError: `finest` is not a level that can be drawn.

    Guarantee: l ln(2^64 / A)-DP for a known set of keys; with `discovery_delta` where keys are unknown.
    Time: that of `bulk_noise`. Source: specs/lossless 6.4, 7.5.
    """
    return counts + bulk_noise(finest, len(counts), bits)


@dataclass(frozen=True, slots=True)
class WindowNoise:
    """Noise parameters of one window, as long as the window is retained.

    Attributes:
        name: of the view and the window; no two windows of any definitions share one (specs/lossless 6.3).
        prf_key: the secret that locks what coarser levels add, the window's own.
    """

    name: bytes
    prf_key: bytes

    @classmethod
    def of(cls, name: bytes, secret: bytes, own: bytes) -> Self:
        """The noise of a window, from the application's secret and the window's.

        What a coarser level adds to the stored table is stored beside it, locked with `prf_key` (`lock`). Without the
        window's secret that key is as good as uniform (`joint_key`), whoever else's secrets and records are known: then
        no coarser level that was not published can be told (specs/lossless 6.7). What was published cannot be lifted to
        a finer level without the stored table, whatever keys are known.

        Args:
            name: of the view and the window.
            secret: of the application, in its key file (`releases.keyring`).
            own: of the window (`own_secret`), stored with it and nowhere else.
        """
        return cls(name, joint_key(secret, own, name))


def seal_gaussian(counts: Counts, variance: Fraction, bits: BitSource) -> Counts:
    """Add fresh discrete Gaussian noise to every count; all else is as in `seal`.

    Guarantee: l / (2 variance)-zCDP for a known set of keys, where a user moves l counts.
    """
    return counts + bulk_gaussian(variance, len(counts), bits)


def seal_truncated(counts: Counts, law: TruncatedLaplace, bits: BitSource) -> Counts:
    """Add fresh noise of a law that ends to every count; (l ln(1/a), l P(X = t))-DP if keys are shown above t."""
    return counts + law.draw(len(counts), bits)


Excess = NDArray[np.int64]
"""Noise of each coarser level beyond that of the finest: shape (keys, levels - 1), coarse to fine."""


def laplace_excess(thresholds: Sequence[int], size: int, bits: BitSource) -> Excess:
    """Draw what the coarser levels of a ladder have beyond the finest, for that many keys.

    From level to level, fine to coarse, each step independent of all else: so every level has its law, and given the
    finest nothing here depends on the data. Releasing a set of levels costs its finest (specs/lossless 1.3).

    Args:
        thresholds: the levels A, coarse to fine.
        size: how many keys.
        bits: as of `bulk_step`, for each step.

    Raises:
        ParameterError: a level cannot be drawn, or is not as coarse as the next.
    """
    upwards = pairwise(reversed(thresholds))
    return _summed([bulk_step(fine, coarse, size, bits) for fine, coarse in upwards], size)


def gaussian_excess(steps: Sequence[Fraction], size: int, bits: BitSource) -> Excess:
    """The same of discrete Gaussian noise.

    Args:
        steps: by how much the variance rises from each level to the next coarser one, fine to coarse.
        size: how many keys.
        bits: as of `bulk_gaussian`, for each step.
    """
    return _summed([bulk_gaussian(variance, size, bits) for variance in steps], size)


def _summed(steps: Sequence[NDArray[np.int64]], size: int) -> Excess:
    excess = np.zeros((size, len(steps) + 1), np.int64)
    for at, step in zip(range(len(steps) - 1, -1, -1), steps, strict=True):
        excess[:, at] = excess[:, at + 1] + step
    return excess[:, :-1]


def lock(excess: Excess, noise: WindowNoise, digest: bytes) -> bytes:
    """Close what coarser levels have beyond the finest, to be stored beside it (`LMR4`, docs/noise-streams.md).

    It can be cut between two keys and joined again. What it tells without the key is its length: so many bytes for
    each number, 1, 2, 4 or 8, as the largest takes.

    Args:
        excess: of the keys that are stored, in their order.
        noise: of the window; its key locks one table.
        digest: the `snapshot_digest` of the counts behind the table.

    Raises:
        ParameterError: the key has another length.
        StateError: the digest is not one.
    """
    width = np.min_scalar_type(-1 - np.abs(excess).max(initial=0)).newbyteorder("<")
    return masked(_lock_key(noise, digest), excess.astype(width).tobytes())


def read_levels(
    values: list[int], locked: bytes, noise: WindowNoise, digest: bytes, *, levels: Sequence[int], finest: int
) -> list[list[int]]:
    """Read a sealed table at several levels.

    What is stored is looked up: whatever is asked together, before or after, a level always reads the same.

    Args:
        values: of the keys at the finest level.
        locked: what `lock` returned for the same keys.
        noise: of the window.
        digest: that of the table.
        levels: indices into the ladder, in any order.
        finest: the largest of them that there is.

    Returns:
        One list per asked level: the values of the keys, in their order.

    Raises:
        ParameterError: the key has another length.
        StateError: the digest is not one, or `locked` is not of so many keys and levels.

    Time: about 50 nanoseconds per key for three coarser levels. Source: specs/lossless 6.4.
    """
    if all(level == finest for level in levels):
        return [values for _ in levels]
    plain, numbers = masked(_lock_key(noise, digest), locked), finest * len(values)
    widths = [width for width in (1, 2, 4, 8) if width * numbers == len(plain)]
    if not widths:
        raise StateError(f"{len(plain)} bytes are not {numbers} numbers that coarser levels have beyond the finest")
    excess = np.frombuffer(plain, f"<i{widths[0]}").reshape(len(values), finest)
    fine = np.array(values, np.int64)
    columns = {level: (fine + excess[:, level]).tolist() for level in {*levels} - {finest}}
    return [columns.get(level, values) for level in levels]


_LOCK_TAG = b"LMR4"


def _lock_key(noise: WindowNoise, digest: bytes) -> bytes:
    if len(digest) != DIGEST_BYTES:
        raise StateError(f"a snapshot digest has {DIGEST_BYTES} bytes, not {len(digest)}")
    if len(noise.prf_key) != KEY_BYTES:
        raise ParameterError(f"the noise key must have {KEY_BYTES} bytes, not {len(noise.prf_key)}")
    return hmac.digest(noise.prf_key, _LOCK_TAG + length_prefixed(noise.name) + length_prefixed(digest), "sha256")


def snapshot_digest(keys: Sequence[bytes], counts: Sequence[int], salt: bytes) -> bytes:
    """Name a frozen table of counts, to which noise is bound; a window has no second one (specs/lossless 5, no. 3).

    The digest stands in the stored state, beside the sealed table. A bare hash of a small table would let whoever
    holds that state confirm a guess of the raw counts, and the state at rest would not be private at the finest
    level. Under a secret salt the digest tells nothing; the salt is erased together with the counts.

    Args:
        keys: in their order, each once.
        counts: exact counts of the keys, each in [0, 2^64).
        salt: 32 fresh random bytes of this window.

    Returns:
        32 bytes: SHA-256 over the salt and the table, in the order of its keys.

    Raises:
        ParameterError: the salt has another length.

    Source: specs/lossless 6.1, 6.3, 6.4.
    """
    if len(salt) != SALT_BYTES:
        raise ParameterError(f"the salt of a snapshot must have {SALT_BYTES} bytes, not {len(salt)}")
    state = sha256(_DIGEST_TAG + salt)
    for at in range(0, len(keys), _AT_ONCE):
        some = keys[at : at + _AT_ONCE]
        lengths, numbers = map(_NUMBER.pack, map(len, some)), map(_NUMBER.pack, counts[at : at + _AT_ONCE])
        state.update(b"".join(chain.from_iterable(zip(lengths, some, numbers, strict=True))))
    return state.digest()


KEY_BYTES = 32

_JOINT_TAG = b"stream-dp joint key"


def joint_key(lasting: bytes, passing: bytes, name: bytes) -> bytes:
    """The key of what bears a name: as good as uniform to whoever lacks one of two secrets, whichever it is.

    It is HMAC-SHA256(lasting, m || 0) XOR HMAC-SHA256(passing, m || 1), m = tag || enc(name). Proof: as long as one of
    the secrets is uniform and unknown, its term is pseudorandom and independent of the other term, which is computed
    without it; so is the XOR. No assumption but that HMAC-SHA256 is a pseudorandom function is needed. Therefore
    deleting `passing` deletes the key, though `lasting`, and all other names' keys, are known.

    Args:
        lasting: secret of `KEY_BYTES` bytes, used for many names.
        passing: secret of `KEY_BYTES` bytes, used for this name alone.
        name: of what the key is for; no two uses share one.

    Returns:
        `KEY_BYTES` bytes.

    Raises:
        ParameterError: a secret has another length.

    Source: specs/lossless 6.2, 6.7.
    """
    if len(lasting) != KEY_BYTES or len(passing) != KEY_BYTES:
        raise ParameterError(f"each of the secrets of a key must have {KEY_BYTES} bytes")
    message = _JOINT_TAG + length_prefixed(name)
    terms = (hmac.digest(secret, message + bytes((at,)), "sha256") for at, secret in enumerate((lasting, passing)))
    first, second = (int.from_bytes(term) for term in terms)
    return (first ^ second).to_bytes(KEY_BYTES)
