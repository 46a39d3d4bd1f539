"""What the rows of every table have in common: how names and times stand in keys, and how values are encoded.

Keys are big-endian so that RocksDB's order is the order of time. A view's name is length-prefixed, so no key is a
prefix of another view's. Values are msgpack. The rows themselves stand in one file per table: `windows.count_rows`,
`windows.merge_rows`, `releases.rows`.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar
from zlib import crc32

import msgspec

from stream_dp.errors import StateError

_TIME = struct.Struct(">Q")
_NUMBER = struct.Struct(">H")
_EPOCH = 1 << 63
"""Times are stored shifted, so that windows before 1970 sort before those after it."""

T = TypeVar("T")


def text(name: str) -> bytes:
    """A name as it stands in keys: its UTF-8 bytes behind one length byte."""
    raw = name.encode()
    if len(raw) > 255:
        raise StateError(f"the name {name[:40]!r}... is longer than 255 bytes")
    return bytes((len(raw),)) + raw


def moment(time_ms: int) -> bytes:
    """A time as it stands in keys: 8 bytes, ordered."""
    return _TIME.pack(time_ms + _EPOCH)


def moment_at(key: bytes, at: int) -> int:
    """The time whose 8 bytes stand at a place of a key, in ms: the inverse of `moment`."""
    time: int = _TIME.unpack_from(key, at)[0]
    return time - _EPOCH


def window_key(kind: bytes, view: str, start_ms: int) -> bytes:
    """The key of a window's row, and the common prefix of the rows that belong to it."""
    return kind + text(view) + moment(start_ms)


def window_start(kind: bytes, view: str, key: bytes) -> int:
    """The start of the window a key is about, in ms: the inverse of `window_key`."""
    return moment_at(key, len(kind) + len(text(view)))


def bucket_key(kind: bytes, view: str, start_ms: int, bucket: int) -> bytes:
    """The key of one bucket of a window."""
    return window_key(kind, view, start_ms) + bucket_number(bucket)


def bucket_number(number: int) -> bytes:
    """The number of a bucket or a partition as it stands in keys: 2 bytes, ordered."""
    return _NUMBER.pack(number)


def bucket_of(item: str, buckets: int) -> int:
    """The bucket an item is counted in: public, the same on every worker and for ever."""
    return crc32(item.encode()) % buckets


def after(prefix: bytes) -> bytes:
    """The first key behind every key that starts with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,))


_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {}


def encode(row: object) -> bytes:
    """A row or message as bytes."""
    return _encoder.encode(row)


def decode(kind: type[T], value: bytes) -> T:
    """The inverse of `encode`.

    Raises:
        StateError: the bytes are not such a row.
    """
    decoder = _decoders.setdefault(kind, msgspec.msgpack.Decoder(kind))
    try:
        row: T = decoder.decode(value)
    except msgspec.DecodeError as error:
        raise StateError(f"a stored {kind.__name__} cannot be read: {error}") from None
    return row
