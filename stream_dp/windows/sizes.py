"""How large what is stored and sent may get: it fits a broker that is set up as brokers come, with batches of 1 MiB.

What can grow with the data is cut into rows or messages of at most `MESSAGE_BYTES`, and what belongs together says so
itself. One entry of it is small: a key of a count has `events.MAX_ITEM_BYTES` at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

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

T = TypeVar("T")


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
