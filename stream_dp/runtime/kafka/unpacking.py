"""Compressed batches, unpacked up to a bound: a megabyte of gzip may hold a gigabyte of blanks.

The Kafka client unpacks a batch whole. It does so here once this module is imported. Of a batch that would take more
than `MOST_BYTES`, each record becomes one that is refused as `batch_too_large`: counted, with a dead letter that tells
its offset, and nothing of it is in memory.

A consumer whose `key_deserializer` is `BARE` is handed records in columns, without their topic and partition. The
client would make an object of each, one by one, which takes longer than all else about it.
"""

from __future__ import annotations

import struct
import sys
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import cramjam
from aiokafka import codec
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record import default_records

from stream_dp.windows.events import TOO_LARGE_HEADER
from stream_dp.windows.records import Records

MOST_BYTES = 32 << 20
"""Of a batch, unpacked: a broker takes 1 MiB of it as it is sent."""

_LEAST_ROOM, _GROWTH = 1 << 16, 8
"""Where a batch does not say how large it is, room for it grows."""


class TooLargeError(Exception):
    """A batch unpacks to more than `MOST_BYTES`."""


class Refused(NamedTuple):
    """A record of a batch that was not unpacked, as the client's readers have records."""

    offset: int
    timestamp: int
    timestamp_type: int | None
    key: None = None
    value: None = None
    checksum: None = None
    headers: tuple[tuple[str, bytes], ...] = ((TOO_LARGE_HEADER, b""),)


def gzip_decode(payload: Any) -> bytes:
    """See `aiokafka.codec`.

    Raises:
        TooLargeError: it is more than `MOST_BYTES`.
    """
    out, rest = bytearray(), bytes(payload)
    while rest:
        member = zlib.decompressobj(wbits=31)
        out += member.decompress(rest, MOST_BYTES + 1 - len(out))
        if len(out) > MOST_BYTES:
            raise TooLargeError
        if not member.eof:
            raise CorruptRecordException("a batch in gzip ends too early")
        rest = member.unused_data
    return bytes(out)


def snappy_decode(payload: Any) -> bytes:
    """See `aiokafka.codec`.

    Raises:
        TooLargeError: it is more than `MOST_BYTES`.
    """
    if sum(map(cramjam.snappy.decompress_raw_len, _snappy_blocks(payload))) > MOST_BYTES:
        raise TooLargeError
    unpacked: bytes = codec.snappy_decode(payload)
    return unpacked


def _snappy_blocks(payload: Any) -> Iterator[Any]:
    view = memoryview(payload)
    if not codec._detect_xerial_stream(payload):
        yield view
        return
    at = 16
    while at < len(view):
        (size,) = struct.unpack_from("!i", view, at)
        yield view[at + 4 : at + 4 + size]
        at += 4 + size


def _bounded(decompress_into: Callable[[Any, bytearray], int]) -> Callable[[Any], bytes]:
    def decode(payload: Any) -> bytes:
        size = max(_LEAST_ROOM, _GROWTH * len(payload))
        while True:
            room = bytearray(min(size, MOST_BYTES + 1))  # each byte of it is written: no more than may be needed
            try:
                taken = decompress_into(payload, room)
            except cramjam.DecompressionError as error:
                if "whole buffer" not in str(error):
                    raise
                if len(room) > MOST_BYTES:
                    raise TooLargeError from None
                size *= _GROWTH
                continue
            if taken > MOST_BYTES:
                raise TooLargeError
            return bytes(memoryview(room)[:taken])

    return decode


class BareRecords(NamedTuple):
    """Records that follow on one another in a batch; the client takes them for one record."""

    records: Records

    @property
    def offset(self) -> int:
        """That of the last one."""
        return self.records.offsets[-1]


BARE: Any = object()
"""As `key_deserializer` of a consumer: hand out bare records."""
_AT_ONCE = 1000
"""Bare records of a batch that are taken together."""


class UnpackedBatch:
    """A batch as the client reads it, or its records as refused ones."""

    def __init__(self, batch: Any, *, is_bare: bool) -> None:
        self._batch, self._is_bare = batch, is_bare

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        batch = self._batch
        try:
            records = list(batch) if self._is_bare else iter(batch)
        except TooLargeError:
            offsets = range(batch.base_offset, batch.next_offset)
            records = [Refused(offset, batch.max_timestamp, batch.timestamp_type) for offset in offsets]
        if self._is_bare:
            return (BareRecords(Records.of(records[at : at + _AT_ONCE])) for at in range(0, len(records), _AT_ONCE))
        return iter(records)


class Batches:
    """The batches of one answer of a broker."""

    def __init__(self, records: Any, *, is_bare: bool) -> None:
        self._records, self._is_bare = records, is_bare

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def next_batch(self) -> UnpackedBatch:
        """The next one."""
        return UnpackedBatch(self._records.next_batch(), is_bare=self._is_bare)


class PartitionRecords(fetcher.PartitionRecords):
    """The records of a partition, batch by batch."""

    next_fetch_offset: int

    def __init__(self, tp: Any, records: Any, aborted: Any, offset: int, key_deserializer: Any, *rest: Any) -> None:
        self.is_bare = key_deserializer is BARE
        self._left = Records.of([])
        super().__init__(tp, Batches(records, is_bare=self.is_bare), aborted, offset, key_deserializer, *rest)

    def _consumer_record(self, tp: Any, record: Any) -> Any:
        if not self.is_bare:
            return super()._consumer_record(tp, record)
        read = bisect_left(record.records.offsets, self.next_fetch_offset)  # a batch is fetched whole
        return BareRecords(record.records[read:]) if read else record

    def bare(self, most: int) -> tuple[Records, bool]:
        """Take at most so many bare records, about `MOST_BYTES`; and say if there may be more."""
        taken, has_more = self._left, True
        while has_more and taken.size_bytes < MOST_BYTES and len(taken) < most:
            found = next(self, None)
            has_more = found is not None
            if found is not None:
                taken.extend(found.records)
        self._left = taken.leave(most)
        if self._left:
            self.next_fetch_offset, has_more = self._left.offsets[0], True
        elif taken:
            self.next_fetch_offset = max(self.next_fetch_offset, taken.offsets[-1] + 1)
        return taken, has_more


class FetchResult(fetcher.FetchResult):
    """Records of one answer for a partition, handed out `MOST_BYTES` at a time: it may have many small batches."""

    _partition_records: Any

    def getall(self, max_records: int | None = None) -> Sequence[Any]:
        """See `aiokafka`; the rest is handed out by the next call."""
        taken: Sequence[Any] = []
        if not self.check_assignment(self._topic_partition) or not self.has_more():
            return taken
        if self._partition_records.is_bare:
            taken, has_more = self._partition_records.bare(sys.maxsize if max_records is None else max_records)
        else:
            taken, has_more = self._one_by_one(max_records)
        self._update_position()
        if not has_more:
            self._partition_records = None
        return taken

    def _one_by_one(self, max_records: int | None) -> tuple[list[Any], bool]:
        taken: list[Any] = []
        size = 0
        for record in self._partition_records:
            taken.append(record)
            size += record.serialized_key_size + record.serialized_value_size
            if size >= MOST_BYTES or len(taken) == max_records:
                return taken, True
        return taken, False


_reader: Any = import_module(default_records.DefaultRecordBatch.__module__)
_reader.gzip_decode = gzip_decode
_reader.snappy_decode = snappy_decode
_reader.lz4_decode = _bounded(cramjam.lz4.decompress_into)
_reader.zstd_decode = _bounded(cramjam.zstd.decompress_into)
fetcher.PartitionRecords = PartitionRecords
fetcher.FetchResult = FetchResult
