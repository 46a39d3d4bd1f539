"""Batches of transactions as our reader filters them, records one by one and in columns."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dp.runtime.kafka.record_batches import Answer
from stream_dp.runtime.kafka.unpacking import BARE, PartitionRecords

PLACE = TopicPartition("visits", 0)
RECORDS = 3
ATTRIBUTES, CRC = slice(21, 23), slice(17, 21)
"""Bytes of the head of a batch."""
CONTROL = 0x20
DATA, COMMIT, ABORT = "data", "commit", "abort"


def batch(first: int, producer: int, codec: int, *, marker: int | None = None) -> bytes:
    """Return a transactional batch of a producer, or the marker at the end of its transaction."""
    builder = DefaultRecordBatchBuilder(2, codec, 1, producer, 0, 0, 1 << 20)
    if marker is None:
        for number in range(RECORDS):
            builder.append(number, timestamp=1000, key=b"u", value=b"%d" % (first + number), headers=[])
    else:
        builder.append(0, timestamp=1000, key=bytes([0, 0, 0, marker]), value=b"\0\0\0\0\0\0", headers=[])
    made = bytearray(builder.build())
    made[:8] = first.to_bytes(8, "big")
    if marker is not None:
        made[ATTRIBUTES] = (int.from_bytes(made[ATTRIBUTES], "big") | CONTROL).to_bytes(2, "big")
        made[CRC] = calc_crc32c(made[ATTRIBUTES.start :]).to_bytes(4, "big")
    return bytes(made)


def fetched(parts: list[bytes], aborted: list[tuple[int, int]], deserializer: Any) -> tuple[list[int], int]:
    """Return the offsets that a consumer is given of an answer, and where it fetches next."""
    answer = PartitionRecords(
        PLACE, Answer(b"".join(parts)), aborted, 0, deserializer, None, True, fetcher.READ_COMMITTED
    )
    if deserializer is None:
        return [record.offset for record in answer], answer.next_fetch_offset
    offsets: list[int] = []
    more = True
    while more:
        taken, more = answer.bare(2)
        offsets += taken.offsets
    return offsets, answer.next_fetch_offset


@pytest.mark.parametrize("deserializer", [None, BARE], ids=["records", "columns"])
@given(
    acts=st.lists(st.tuples(st.integers(1, 3), st.sampled_from([DATA, DATA, COMMIT, ABORT])), max_size=14),
    codec=st.sampled_from([DefaultRecordBatch.CODEC_NONE, DefaultRecordBatch.CODEC_GZIP]),
)
@example(acts=[(1, DATA), (1, ABORT)], codec=DefaultRecordBatch.CODEC_GZIP)
@example(acts=[(1, DATA), (2, DATA), (1, DATA), (1, ABORT), (1, DATA), (1, COMMIT), (2, COMMIT)], codec=0)
def test_only_committed_records_are_given(deserializer: Any, acts: list[tuple[int, str]], codec: int) -> None:
    """The next fetch begins after the answer, whatever the answer ends with."""
    parts: list[bytes] = []
    open_from: dict[int, list[int]] = {}
    committed: list[int] = []
    aborted: list[tuple[int, int]] = []
    end = 0
    for producer, act in [*acts, (1, ABORT), (2, ABORT), (3, ABORT)]:
        if act == DATA:
            parts.append(batch(end, producer, codec))
            open_from.setdefault(producer, []).extend(range(end, end + RECORDS))
            end += RECORDS
            continue
        parts.append(batch(end, producer, DefaultRecordBatch.CODEC_NONE, marker=int(act == COMMIT)))
        end += 1
        ended = open_from.pop(producer, [])
        if act == COMMIT:
            committed += ended
        elif ended:
            aborted.append((producer, ended[0]))

    assert fetched(parts, aborted, deserializer) == (sorted(committed), end)


@pytest.mark.parametrize("deserializer", [None, BARE], ids=["records", "columns"])
def test_aborted_batch_is_not_unpacked(deserializer: Any) -> None:
    """So an aborted batch may be damaged or need too much memory."""
    damaged = bytearray(batch(0, 1, DefaultRecordBatch.CODEC_GZIP))
    damaged[61:] = b"x" * len(damaged[61:])
    damaged[CRC] = calc_crc32c(damaged[ATTRIBUTES.start :]).to_bytes(4, "big")
    parts = [bytes(damaged), batch(RECORDS, 2, DefaultRecordBatch.CODEC_NONE), batch(6, 1, 0, marker=0)]
    parts.append(batch(7, 2, 0, marker=1))

    assert fetched(parts, [(1, 0)], deserializer) == ([3, 4, 5], 8)
