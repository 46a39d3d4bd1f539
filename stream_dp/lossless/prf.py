"""`LMR1`: the streams of words of lossless 6.3, fixed by a secret key, an HMAC-SHA256 for every four words.

Sealed tables are read by `LMR3` (`addressed_words`), which is more than 50 times as fast; this is the stream that the
vectors of the specification are about, and the reference that the law of the other is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from stream_dp.exact.bits import hmac_blocks

KEY_BYTES = 32

_TAG = b"LMR1"
_FOUR_WORDS = Struct(">4Q")


def words(key: bytes, *fields: bytes) -> Iterator[int]:
    """Endless 64-bit words U_0, U_1, ..., to whoever lacks the key indistinguishable from independent uniform ones.

    Args:
        key: secret, `KEY_BYTES` long.
        fields: what the stream is for. Different sequences of fields give unrelated streams, however they would
            concatenate.

    Source: lossless 6.2, 6.3, vector X01.
    """
    for block in hmac_blocks(key, _TAG + b"".join(map(length_prefixed, fields))):
        yield from _FOUR_WORDS.unpack(block)


def length_prefixed(field: bytes) -> bytes:
    """The field behind its length in 8 bytes, big endian."""
    return len(field).to_bytes(8, "big") + field
