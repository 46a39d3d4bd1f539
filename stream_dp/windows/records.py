"""Consecutive records of a partition in columns.

A client makes an object of each record and one of its headers. All that wait to be counted would be looked through for
garbage again and again; texts and numbers are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter
from typing import Any, Self, overload

import msgspec

_timestamp_of = attrgetter("timestamp")
Headers = Sequence[tuple[str, bytes]]


class OneRecord(msgspec.Struct, gc=False):
    """A record, made when it is asked for."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(slots=True)
class Records(Sequence[OneRecord]):
    """Records of a partition, in the order of their offsets: parallel lists."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: dict[int, Headers]
    """By offset; where each record has a key and a value, nobody asks for headers and there are none."""
    _size_bytes: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, records: Sequence[Any], offsets: list[int] | None = None) -> Self:
        """Return records (`events.Record`) in columns; records that already are in columns are returned as they are.

        Args:
            records: the records.
            offsets: the offsets of the records, if known.
        """
        if isinstance(records, cls):
            return records
        keys, values = [record.key for record in records], [record.value for record in records]
        headers: dict[int, Headers] = {}
        if not (all(keys) and all(values)):
            headers = {record.offset: record.headers for record in records if record.headers}
        if offsets is None:
            offsets = [record.offset for record in records]
        timestamps = list(map(_timestamp_of, records))
        return cls(offsets, timestamps, keys, values, headers)

    @property
    def size_bytes(self) -> int:
        """Bytes of the keys and values; added up once, since the texts are all over the memory."""
        if self._size_bytes is None:
            self._size_bytes = sum(sum(map(len, filter(None, column))) for column in (self.keys, self.values))
        return self._size_bytes

    def leave(self, count: int) -> Records:
        """Keep the first records, so many of them, and return the rest; the first ones are not touched."""
        rest = self[count:]
        if rest:
            self._size_bytes = self.size_bytes - rest.size_bytes
            for column in (self.offsets, self.timestamps, self.keys, self.values):
                del column[count:]
            for offset in rest.headers:
                del self.headers[offset]
        return rest

    def extend(self, more: Records) -> None:
        """Append the records that follow."""
        self._size_bytes = self.size_bytes + more.size_bytes
        self.offsets += more.offsets
        self.timestamps += more.timestamps
        self.keys += more.keys
        self.values += more.values
        self.headers |= more.headers

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, at: int) -> OneRecord: ...

    @overload
    def __getitem__(self, at: slice) -> Records: ...

    def __getitem__(self, at: int | slice) -> OneRecord | Records:
        columns: tuple[Any, Any, Any, Any] = self.offsets[at], self.timestamps[at], self.keys[at], self.values[at]
        if isinstance(at, slice):
            return Records(*columns, {one: self.headers[one] for one in columns[0] if one in self.headers})
        return OneRecord(*columns, self.headers.get(self.offsets[at], ()))

    def __iter__(self) -> Iterator[OneRecord]:
        headers = map(self.headers.get, self.offsets, repeat(()))
        return map(OneRecord, self.offsets, self.timestamps, self.keys, self.values, headers)
