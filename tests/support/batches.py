"""Record batches made by hand, and an answer of a broker read to its end."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka import TopicPartition, codec
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from stream_dp.runtime.kafka import unpacking
from stream_dp.runtime.kafka.record_batches import Answer
from stream_dp.windows.events import unreadable_reason

PLACE = TopicPartition("visits", 0)
CODECS = {
    "none": DefaultRecordBatch.CODEC_NONE,
    "gzip": DefaultRecordBatch.CODEC_GZIP,
    "snappy": DefaultRecordBatch.CODEC_SNAPPY,
    "lz4": DefaultRecordBatch.CODEC_LZ4,
    "zstd": DefaultRecordBatch.CODEC_ZSTD,
}
_PLACEHOLDER = "nameless"
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_HEADER_BYTES = 61
_ENCODERS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: codec.gzip_encode,
    2: codec.snappy_encode,
    3: codec.lz4_encode,
    4: codec.zstd_encode,
}

Row = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def batch_of(kind: int, base_offset: int, rows: Sequence[Row], *, producer: int = -1, time_ms: int = 1000) -> bytes:
    """Return a batch as a producer sends it, with the offsets that a broker gives it."""
    builder = DefaultRecordBatchBuilder(2, kind, int(producer >= 0), producer, 0, 0, 1 << 30)
    for number, (key, value, headers) in enumerate(rows):
        builder.append(number, timestamp=time_ms + number, key=key, value=value, headers=list(headers))
    made = bytearray(builder.build())
    made[:8] = base_offset.to_bytes(8, "big")
    return bytes(made)


def values_batch(kind: int, base_offset: int, values: Sequence[bytes]) -> bytes:
    """Return a batch of records of one user."""
    return batch_of(kind, base_offset, [(b"u", value, ()) for value in values])


def with_checksum(batch: bytes | bytearray) -> bytes:
    """Return a batch with the checksum of its present bytes."""
    made = bytearray(batch)
    made[_CRC_AT:_ATTRIBUTES_AT] = struct.pack("!I", calc_crc32c(bytes(made[_ATTRIBUTES_AT:])))
    return bytes(made)


def recompressed(batch: bytes, kind: int) -> bytes:
    """Return a plain batch, its records compressed as they are."""
    records = _ENCODERS[kind](batch[_HEADER_BYTES:])
    made = bytearray(batch[:_HEADER_BYTES] + records)
    made[8:12] = struct.pack("!i", len(made) - 12)
    made[22] |= kind
    return with_checksum(made)


def with_bad_header_name(kind: int, base_offset: int, rows: Sequence[Row], bad: int, **options: int) -> bytes:
    """Return a batch in which a header name of one record is not UTF-8."""
    marked = list(rows)
    marked[bad] = (*marked[bad][:2], [(_PLACEHOLDER, b"x")])
    plain = batch_of(0, base_offset, marked, **options)
    assert plain.count(_PLACEHOLDER.encode()) == 1
    return recompressed(plain.replace(_PLACEHOLDER.encode(), b"\xff" * len(_PLACEHOLDER)), kind)


def answer_of(*batches: bytes, begin: int = 0, how: Any = None, aborted: Any = (), committed: bool = False) -> Any:
    """Return what the client reads of an answer of a broker."""
    level = fetcher.READ_COMMITTED if committed else fetcher.READ_UNCOMMITTED
    data = b"".join(batches)
    return unpacking.PartitionRecords(PLACE, Answer(data), list(aborted), begin, how, None, True, level)


@dataclass
class Assignment:
    """That of a consumer that has the partition."""

    position: int = 0
    active: bool = True
    paused: bool = False

    def state_value(self, _tp: TopicPartition) -> Assignment:
        return self

    def consumed_to(self, position: int) -> None:
        self.position = position


@dataclass
class Log:
    """A partition of a broker: its batches, some of them damaged, and where each of them ends in truth."""

    batches: Sequence[bytes]
    ends: Sequence[int]
    aborted: Sequence[tuple[int, int, int]] = ()
    """Producer, first offset and offset of the end of each aborted transaction."""
    fetches: int = field(default=0, init=False)

    def read(self, begin: int = 0, *, how: Any = None, committed: bool = False) -> list[Any]:
        """Read as a consumer does, answer by answer; checks that the position rises with each of them."""
        found: list[Any] = []
        assignment = Assignment(begin)
        while assignment.position < self.ends[-1]:
            position = assignment.position
            rest = [batch for batch, end in zip(self.batches, self.ends, strict=True) if end > position]
            aborted = [(producer, first) for producer, first, end in self.aborted if end >= position]
            records = answer_of(*rest, begin=position, how=how, aborted=aborted, committed=committed)
            result: Any = unpacking.FetchResult(PLACE, assignment=assignment, partition_records=records, backoff=0)
            while result.has_more():
                found += result.getall(500)
            self.fetches += 1
            assert assignment.position > position
        return found


def told(records: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return by record its offset and its value, or why it was refused."""
    return [(one.offset, unreadable_reason(one) or one.value) for one in records]
