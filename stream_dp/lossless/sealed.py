"""Sealed tables: counts noised once at the finest level, from which every coarser level is read (specs/lossless 6.4).

Neighbours add or remove one user of one window; each count moves by at most 1, and at most `l` counts move.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import BitSource
from stream_dp.lossless.bulk import AddressedWords, bulk_clocks, bulk_noise, length_prefixed
from stream_dp.lossless.gaussian import bulk_gaussian, keyed_gaussian
from stream_dp.lossless.levels import noise_parameter
from stream_dp.lossless.truncated import TruncatedLaplace

DIGEST_BYTES = 32
SALT_BYTES = 32

_DIGEST_TAG = b"stream-dp snapshot"


def seal(counts: Mapping[bytes, int], finest: int, bits: BitSource) -> dict[bytes, int]:
    """Add fresh discrete Laplace noise of the finest level to every count; the counts can then be erased.

    The noise comes from `bits`, never from the key of `read_levels`: the table stays private at the finest level even
    to someone who holds that key.

    Args:
        counts: exact counts. Where the keys are unknown beforehand, only keys that a user has counted for: the
            delta of `discovery` rests on it.
        finest: level A of the noise; nothing finer can ever be released.
        bits: fresh source of uniform bits; 256 are taken, as the key of the AES-256 that the noise is drawn with.

    Returns:
        One exact integer per key, in the order of the keys: the order of `counts` tells who came first. Never clamp
        or round what is stored (specs/lossless 5, no. 7).

    Raises:
        ParameterError: `finest` is not a level that can be drawn.

    Guarantee: l ln(2^64 / A)-DP for a known set of keys; with `discovery_delta` where keys are unknown.
    Time: that of `bulk_noise`; what else there is, is sorting. Source: specs/lossless 6.4, 7.5.
    """
    return _noised(counts, bulk_noise(finest, len(counts), bits))


def _noised(counts: Mapping[bytes, int], noise: NDArray[np.int64]) -> dict[bytes, int]:
    """Add noise to the counts, in the order of their keys."""
    return {key: counts[key] + drawn for key, drawn in zip(sorted(counts), noise.tolist(), strict=True)}


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

        A coarser level is the stored table plus words that `prf_key` fixes (`read_levels`). Without the
        window's secret that key is as good as uniform (`joint_key`), whoever else's secrets and records are known: then
        no level that was not published can be told, and none that was can be lifted to a finer one
        (specs/lossless 6.7).

        Args:
            name: of the view and the window.
            secret: of the application, in its key file (`releases.keyring`).
            own: of the window (`own_secret`), stored with it and nowhere else.
        """
        return cls(name, joint_key(secret, own, name))


def read_levels(
    fine: Mapping[bytes, int], noise: WindowNoise, digest: bytes, *, thresholds: Sequence[int], finest: int
) -> list[list[int]]:
    """Read a sealed table at several levels; each coarser value is the sealed one plus noise fixed by the key.

    The noise of level A lies above that of the finest by clock(A, +) - clock(finest, +) - clock(A, -) +
    clock(finest, -), on the words of `LMR3` (`AddressedWords`).

    A pure function: whatever is asked together, before or after, a level of a window always reads the same, and so
    does a key, whatever other keys are stored. Given the sealed table nothing here depends on the data, so releasing a
    set of levels costs its finest (specs/lossless 1.3).

    Args:
        fine: what `seal` returned, or a part of it.
        noise: of the window. Whoever holds its key and a coarse release can lift that to `finest`.
        digest: the `snapshot_digest` of the counts behind the table.
        thresholds: the levels A asked for, in any order.
        finest: level the table was sealed at.

    Returns:
        One list per asked level: the values of the keys of `fine`, in its order.

    Raises:
        ParameterError: something asked is not a level, or the key has another length.
        StateError: a level is finer than `finest`, or the digest is not one.

    Time: 0.2 microseconds per key, and per key and level 120 nanoseconds at epsilon 2, 180 at 0.1.
    Source: specs/lossless 6.3, 6.4.
    """
    _check(noise, digest)
    for threshold in (finest, *thresholds):
        noise_parameter(threshold)
        if threshold < finest:
            raise StateError(f"level {threshold} is finer than {finest}, from which it would be read")
    streams = AddressedWords(noise.prf_key, noise.name, digest)
    addresses = streams.addresses(list(fine))
    clocks = {}
    for threshold in {finest, *thresholds}:  # several readers may have one level, and some the finest
        plus, minus = bulk_clocks(streams, addresses, threshold)
        clocks[threshold] = plus - minus
    columns = [(clocks[threshold] - clocks[finest]).tolist() for threshold in thresholds]
    return [[value + added for value, added in zip(fine.values(), column, strict=True)] for column in columns]


def seal_gaussian(counts: Mapping[bytes, int], variance: Fraction, bits: BitSource) -> dict[bytes, int]:
    """Add fresh discrete Gaussian noise to every count; all else is as in `seal`.

    Guarantee: l / (2 variance)-zCDP for a known set of keys, where a user moves l counts.
    """
    return _noised(counts, bulk_gaussian(variance, len(counts), bits))


def seal_truncated(counts: Mapping[bytes, int], law: TruncatedLaplace, bits: BitSource) -> dict[bytes, int]:
    """Add fresh noise of a law that ends to every count; (l ln(1/a), l P(X = t))-DP if keys are shown above t."""
    return _noised(counts, law.draw(len(counts), bits))


def read_gaussian(
    fine: Mapping[bytes, int], noise: WindowNoise, digest: bytes, *, steps: Sequence[Fraction], levels: Sequence[int]
) -> list[list[int]]:
    """Read a table with Gaussian noise at several levels; see `read_levels`.

    A level has the noise of the finest and that of each step in between, which are independent. The noise of a step
    has its own words, named by how many steps there are to the finest.

    Args:
        fine: what `seal_gaussian` returned, or a part of it.
        noise: of the window.
        digest: the `snapshot_digest` of the counts behind the table.
        steps: from each level to the next finer one, by how much the variance falls, coarse to fine.
        levels: the levels asked for, 0 the coarsest, len(steps) the finest.

    Raises:
        ParameterError: the key has another length.
        StateError: the digest is not one.
    """
    _check(noise, digest)
    if not levels:
        return []
    columns = {len(steps): np.array(list(fine.values()), np.int64)}
    for above, variance in enumerate(reversed(steps[min(levels) :])):
        streams = AddressedWords(noise.prf_key, noise.name, digest, _STEP_TAG + above.to_bytes(4, "big"))
        at = len(steps) - above
        columns[at - 1] = columns[at] + keyed_gaussian(streams, streams.addresses(list(fine)), variance)
    return [columns[level].tolist() for level in levels]


_STEP_TAG = b"gaussian step"


def _check(noise: WindowNoise, digest: bytes) -> None:
    if len(digest) != DIGEST_BYTES:
        raise StateError(f"a snapshot digest has {DIGEST_BYTES} bytes, not {len(digest)}")
    if len(noise.prf_key) != KEY_BYTES:
        raise ParameterError(f"the noise key must have {KEY_BYTES} bytes, not {len(noise.prf_key)}")


def snapshot_digest(counts: Mapping[bytes, int], salt: bytes) -> bytes:
    """Name a frozen table of counts, to which noise is bound; a window has no second one (specs/lossless 5, no. 3).

    The digest stands in the stored state, beside the sealed table. A bare hash of a small table would let whoever
    holds that state confirm a guess of the raw counts, and the state at rest would not be private at the finest
    level. Under a secret salt the digest tells nothing; the salt is erased together with the counts.

    Args:
        counts: exact counts, each in [0, 2^64).
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
    for key in sorted(counts):
        state.update(length_prefixed(key) + counts[key].to_bytes(8, "big"))
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
