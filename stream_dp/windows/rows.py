"""Every byte layout of the tables and internal topics, in one place.

Keys are big-endian so that RocksDB's order is the order of time. A view's name is length-prefixed, so no key is a
prefix of another view's. Values are msgpack.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, TypeVar
from zlib import crc32

import msgspec

from stream_dp.errors import StateError

MARKER, JOURNAL = b"m", b"j"
PARTIAL, MERGED = b"p", b"d"
BUCKET, VIEW, TABLE, WINDOW, LEDGER, RESERVATION, CLEARANCE = b"b", b"v", b"t", b"w", b"l", b"r", b"c"

_TIME = struct.Struct(">Q")
_SEQUENCE = struct.Struct(">I")
_BUCKET = struct.Struct(">H")
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


def window_key(kind: bytes, view: str, start_ms: int) -> bytes:
    """The key of a window's row, and the common prefix of the rows that belong to it."""
    return kind + text(view) + moment(start_ms)


def window_start(kind: bytes, view: str, key: bytes) -> int:
    """The start of the window a key is about, in ms: the inverse of `window_key`."""
    at = len(kind) + len(text(view))
    start: int = _TIME.unpack_from(key, at)[0]
    return start - _EPOCH


def journal_key(view: str, start_ms: int, sequence: int) -> bytes:
    """The key of the `sequence`-th journal row of a window."""
    return window_key(JOURNAL, view, start_ms) + _SEQUENCE.pack(sequence)


def bucket_key(kind: bytes, view: str, start_ms: int, bucket: int) -> bytes:
    """The key of one bucket of a window."""
    return window_key(kind, view, start_ms) + _BUCKET.pack(bucket)


def partial_key(view: str, start_ms: int, bucket: int, partition: int) -> bytes:
    """The key of what one source partition counted in one bucket of a window."""
    return bucket_key(PARTIAL, view, start_ms, bucket) + _BUCKET.pack(partition)


def bucket_of(item: str, buckets: int) -> int:
    """The bucket an item is counted in: public, the same on every worker and for ever."""
    return crc32(item.encode()) % buckets


def after(prefix: bytes) -> bytes:
    """The first key behind every key that starts with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,))


class ViewMark(msgspec.Struct, array_like=True):
    """How far one view has come in one partition of its source."""

    fingerprint: bytes
    clock_ms: int
    """Everything before this time has been seen: the last watermark, or the wall time up to which the log was read."""
    open_from_ms: int
    """Start of the first window whose counts have not been handed on."""
    purging: list[tuple[int, int]]
    """Windows handed on whose journal rows may still stand in the changelog: (start, number of rows)."""


class Marker(msgspec.Struct, array_like=True):
    """The commit record of one partition of a source: journal rows behind `offset` do not count."""

    offset: int
    views: dict[str, ViewMark]


class JournalRow(msgspec.Struct, array_like=True):
    """What one chunk added to one window: accepted contributions, user and item at the same place of two lists."""

    last_offset: int
    users: list[bytes]
    items: list[str]


class Partial(msgspec.Struct, array_like=True):
    """What one source partition counted in one bucket of a window; it replaces any earlier one under its key."""

    view: str
    start_ms: int
    bucket: int
    partition: int
    counts: dict[str, int]


class MergedBucket(msgspec.Struct, array_like=True):
    """The exact counts of one bucket of a window, summed over all partitions of the source."""

    view: str
    start_ms: int
    bucket: int
    counts: dict[str, int]


_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (Marker, JournalRow, Partial, MergedBucket)
}


def encode(row: object) -> bytes:
    """A row or message of this module as bytes."""
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


def summed(parts: list[Mapping[str, int]]) -> dict[str, int]:
    """Exact sum of count tables."""
    total: dict[str, int] = {}
    for part in parts:
        for item, count in part.items():
            total[item] = total.get(item, 0) + count
    return total
