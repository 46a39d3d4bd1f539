"""Compressed batches, unpacked up to a bound: a megabyte of gzip may hold a gigabyte of blanks.

The Kafka client unpacks a batch whole. It does so here once this module is imported. Of a batch that would take more
than `MOST_BYTES`, each record becomes one that is refused as `batch_too_large`: counted, with a dead letter that tells
its offset, and nothing of it is in memory.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import cramjam
from aiokafka import codec
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record import default_records

from stream_dp.windows.events import TOO_LARGE_HEADER

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


class UnpackedBatch:
    """A batch as the client reads it, or its records as refused ones."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        batch = self._batch
        try:
            return iter(batch)
        except TooLargeError:
            offsets = range(batch.base_offset, batch.next_offset)
            return (Refused(offset, batch.max_timestamp, batch.timestamp_type) for offset in offsets)


class Batches:
    """The batches of one answer of a broker."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def next_batch(self) -> UnpackedBatch:
        """The next one."""
        return UnpackedBatch(self._records.next_batch())


class PartitionRecords(fetcher.PartitionRecords):
    """The records of a partition, batch by batch."""

    def __init__(self, tp: Any, records: Any, *rest: Any) -> None:
        super().__init__(tp, Batches(records), *rest)


class FetchResult(fetcher.FetchResult):
    """Records of one answer for a partition, handed out `MOST_BYTES` at a time: it may have many small batches."""

    _partition_records: Any

    def getall(self, max_records: int | None = None) -> list[Any]:
        """See `aiokafka`; the rest is handed out by the next call."""
        taken: list[Any] = []
        if not self.check_assignment(self._topic_partition) or not self.has_more():
            return taken
        size = 0
        for record in self._partition_records:
            taken.append(record)
            size += record.serialized_key_size + record.serialized_value_size
            if size >= MOST_BYTES or len(taken) == max_records:
                self._update_position()
                return taken
        self._update_position()
        self._partition_records = None
        return taken


_reader: Any = import_module(default_records.DefaultRecordBatch.__module__)
_reader.gzip_decode = gzip_decode
_reader.snappy_decode = snappy_decode
_reader.lz4_decode = _bounded(cramjam.lz4.decompress_into)
_reader.zstd_decode = _bounded(cramjam.zstd.decompress_into)
fetcher.PartitionRecords = PartitionRecords
fetcher.FetchResult = FetchResult
