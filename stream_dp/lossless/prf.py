"""`LMR1`: the streams of words of specs/lossless 6.3, fixed by a secret key, an HMAC-SHA256 for every four words.

Sealed tables are read by `LMR3` (`addressed_words`), which is more than 50 times as fast; this is the stream that the
vectors of specs/lossless 6.3 are about, and the reference that the law of the other is compared with.

`joint_key` makes the key of one window's streams from two secrets.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from struct import Struct

from stream_dp.errors import ParameterError
from stream_dp.exact.bits import hmac_blocks

KEY_BYTES = 32

_TAG = b"LMR1"
_JOINT_TAG = b"stream-dp joint key"
_FOUR_WORDS = Struct(">4Q")


def words(key: bytes, *fields: bytes) -> Iterator[int]:
    """Endless 64-bit words U_0, U_1, ..., to whoever lacks the key indistinguishable from independent uniform ones.

    Args:
        key: secret, `KEY_BYTES` long.
        fields: what the stream is for. Different sequences of fields give unrelated streams, however they would
            concatenate.

    Source: specs/lossless 6.2, 6.3, vector X01.
    """
    for block in hmac_blocks(key, _TAG + b"".join(map(length_prefixed, fields))):
        yield from _FOUR_WORDS.unpack(block)


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


def length_prefixed(field: bytes) -> bytes:
    """The field behind its length in 8 bytes, big endian."""
    return len(field).to_bytes(8, "big") + field
