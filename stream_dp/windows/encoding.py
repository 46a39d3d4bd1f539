"""Encoding of the rows of every table: names and times in keys, and values.

Keys are big-endian so that RocksDB's order is the order of time. A view's name is length-prefixed, so no key is a
prefix of another view's. Values are msgpack. The rows themselves stand in one file per table: `windows.count_rows`,
`windows.merging`, `releases.rows`.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import StateError

_TIME = struct.Struct(">Q")
_EPOCH = 1 << 63
"""Times are stored shifted, so that windows before 1970 sort before those after it."""

T = TypeVar("T")

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors that msgspec 0.22 raises for bytes that are no value of a type: text may be invalid, or nested too deeply."""


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
    return number.to_bytes(2)


def bucket_of(item: str, buckets: int) -> int:
    """The bucket an item is counted in: public, the same on every worker and for ever."""
    return crc32(item.encode()) % buckets


def after(prefix: bytes) -> bytes:
    """The first key behind every key that starts with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,))


def encode(row: object) -> bytes:
    """A row or message as bytes."""
    return msgspec.msgpack.encode(row)


def decode(kind: type[T], value: bytes) -> T:
    """The inverse of `encode`.

    Raises:
        StateError: the bytes are not such a row.
    """
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except UNDECODABLE as error:
        raise StateError(f"a stored {kind.__name__} cannot be read: {error}") from None


MESSAGE_BYTES = 512 << 10
"""Of a row or a message: its key and its value, encoded."""
BATCH_BYTES = 960 << 10
"""Of rows or messages that are sent together, uncompressed."""
BROKER_BYTES = 1_048_588
"""Of a batch as it is sent: what brokers take where nobody has set anything (`max.message.bytes`)."""

ENTRIES_BYTES = MESSAGE_BYTES - 1024
"""Of the entries in a row or a message; the rest is for its key and its other fields, a view's name in each."""
CHUNK_BYTES = 4 << 20
"""Of what is read at once, or is encoded before it is sent: more is not held in memory for a single step."""

TABLES = 3
WRITE_BUFFER_BYTES, WRITE_BUFFERS = 4 << 20, 2
"""Of a partition of a table: rows on their way to its files."""
WRITE_BUFFERS_BYTES = TABLES * WRITE_BUFFERS * WRITE_BUFFER_BYTES
"""Of a partition, over its tables."""

_SHIFTS = {"GiB": 30, "MiB": 20, "KiB": 10}
_FORM = re.compile(rf"([0-9]{{1,9}})({'|'.join(_SHIFTS)})")


def parse_size(text: str) -> int:
    """A size in bytes.

    Args:
        text: a whole number with its unit, such as "64MiB" or "1GiB"; units KiB, MiB, GiB.

    Raises:
        ValueError: the text is not of this form.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError('write a size as a whole number with its unit: "64MiB", "1GiB"')
    return int(match[1]) << _SHIFTS[match[2]]


def format_size(size_bytes: int) -> str:
    """The text of the largest unit that `parse_size` reads back as this size; bytes where there is none."""
    for unit, shift in _SHIFTS.items():
        if size_bytes % (1 << shift) == 0:
            return f"{size_bytes >> shift}{unit}"
    return f"{size_bytes} bytes"


def row_size(row: tuple[bytes, bytes]) -> int:
    """Of a stored row, in bytes."""
    return len(row[0]) + len(row[1])


def cut(entries: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Cut entries, in their order, into lists that are as long as they can be.

    Args:
        entries: what is cut.
        size: of an entry, in bytes.
        most: bytes of a list; an entry that is larger stands alone.

    Returns:
        The lists; none is empty, and there is none if there are no entries.
    """
    taken: list[T] = []
    room = most
    for entry in entries:
        need = size(entry)
        if taken and need > room:
            yield taken
            taken, room = [], most
        taken.append(entry)
        room -= need
    if taken:
        yield taken


def spans(sizes: Sequence[int] | NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """Cut many entries as `cut` does, by their sizes: of each list the first entry, and the one behind the last."""
    ends, found, first = np.cumsum(np.asarray(sizes, np.int64)), list[tuple[int, int]](), 0
    while first < len(ends):
        full = most + (int(ends[first - 1]) if first else 0)
        found.append((first, max(first + 1, int(np.searchsorted(ends, full, side="right")))))
        first = found[-1][1]
    return found


PADDED_BYTES = 64 << 20
"""Of keys that are sorted at once, each as long as the longest."""
_AT_ONCE = 1 << 14
"""Keys that NumPy takes, or gives back, while all other threads wait."""


def in_order(keys: Sequence[str]) -> tuple[NDArray[np.int64], list[bytes]]:
    """Return the places of keys in the order of the keys, as `sorted` has it, and the keys as bytes in that order.

    For a million keys that would hold up all other threads for half a second; here they go on meanwhile. NumPy sorts
    short keys as bytes of one width: it pads them with zeros, so none may have any. Others are sorted in small parts.
    """
    raw = [key.encode() for key in keys]
    width = max((len(key) for key in raw), default=0)
    if len(keys) * width <= PADDED_BYTES and not any(b"\0" in key for key in raw):
        firsts = range(0, max(1, len(raw)), _AT_ONCE)
        padded = np.concatenate([np.array(raw[at : at + _AT_ONCE], f"S{max(1, width)}") for at in firsts])
        places = padded.argsort(kind="stable")
        return places, [*chain.from_iterable(padded[places[at : at + _AT_ONCE]].tolist() for at in firsts)]
    some = sorted(raw[::256])[::16]
    parts: list[list[int]] = [[] for _ in range(len(some) + 1)]
    for at, key in enumerate(raw):
        parts[bisect_right(some, key)].append(at)
    for part in parts:
        part.sort(key=raw.__getitem__)
    order = [*chain.from_iterable(parts)]
    return np.array(order, np.int64), [raw[at] for at in order]
