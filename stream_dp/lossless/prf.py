"""The key of one window's streams of words, from two secrets."""

from __future__ import annotations

import hmac

from stream_dp.errors import ParameterError

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


def length_prefixed(field: bytes) -> bytes:
    """The field behind its length in 8 bytes, big endian."""
    return len(field).to_bytes(8, "big") + field
