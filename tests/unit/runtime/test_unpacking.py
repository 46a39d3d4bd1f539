"""A batch that unpacks to more than a worker has room for is refused record by record; all others are read as ever."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from stream_dp.runtime.kafka import cluster, unpacking
from stream_dp.windows.events import TOO_LARGE_HEADER
from tests.support.chosen import kept_ordinary

CODECS = {
    "none": DefaultRecordBatch.CODEC_NONE,
    "gzip": DefaultRecordBatch.CODEC_GZIP,
    "snappy": DefaultRecordBatch.CODEC_SNAPPY,
    "lz4": DefaultRecordBatch.CODEC_LZ4,
    "zstd": DefaultRecordBatch.CODEC_ZSTD,
}
PLACE = TopicPartition("visits", 0)
BLANK = b" " * (1 << 20)


def batch(codec: int, first: int, values: list[bytes]) -> bytes:
    """A batch as a producer sends it, with the offsets that a broker gives it."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for number, value in enumerate(values):
        builder.append(number, timestamp=1000, key=b"u", value=value, headers=[])
    made = bytearray(builder.build())
    made[:8] = first.to_bytes(8, "big")
    return bytes(made)


def records(*batches: bytes, begins: int = 0, how: Any = None) -> Any:
    """What the client reads of the answer of a broker."""
    return fetcher.PartitionRecords(PLACE, MemoryRecords(b"".join(batches)), [], begins, how, None, True, 0)


@pytest.mark.parametrize("name", kept_ordinary(["none", "snappy", "zstd"], CODECS))
def test_a_batch_within_the_bound_is_read_as_ever(name: str) -> None:
    values = [b"%d" % number * 50 for number in range(2000)] + [BLANK] * 30
    found = list(records(batch(CODECS[name], 0, values)))
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(len(values)))


@pytest.mark.parametrize("name", kept_ordinary(["snappy", "zstd"], ["gzip", "snappy", "lz4", "zstd"]))
def test_a_batch_beyond_the_bound_becomes_refused_records_and_what_follows_is_read(name: str) -> None:
    codec = CODECS[name]
    parts = [batch(codec, 0, [b"a"]), batch(codec, 1, [BLANK] * 40), batch(codec, 41, [b"b", b"c"])]
    answer = records(*parts)
    found = list(answer)
    assert [record.offset for record in found] == list(range(43))
    assert [record.value for record in found] == [b"a", *[None] * 40, b"b", b"c"]
    refused = found[1:41]
    assert all(record.headers == ((TOO_LARGE_HEADER, b""),) and record.key is None for record in refused)
    assert answer.next_fetch_offset == 43


@pytest.mark.slow
def test_gzip_is_given_no_more_memory_than_the_bound() -> None:
    bomb = batch(CODECS["gzip"], 0, [BLANK] * 300)
    tracemalloc.start()
    try:
        assert len(list(records(bomb))) == 300
        assert tracemalloc.get_traced_memory()[1] < 3 * unpacking.MOST_BYTES
    finally:
        tracemalloc.stop()


class _Assignment:
    """That of a consumer that has the partition."""

    active, paused, position = True, False, 0

    def state_value(self, _tp: TopicPartition) -> _Assignment:
        return self

    def consumed_to(self, position: int) -> None:
        self.position = position


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_a_small_batch_is_given_little_memory(name: str) -> None:
    """Room for the most that a batch may take would have to be written to for each of thousands of small ones."""
    made = batch(CODECS[name], 0, [b"a" * 100])
    list(records(made))
    tracemalloc.start()
    try:
        list(records(made))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_many_small_batches_of_one_answer_are_handed_out_a_bound_at_a_time() -> None:
    parts = [batch(CODECS["gzip"], 20 * number, [BLANK] * 20) for number in range(5)]
    result = fetcher.FetchResult(PLACE, assignment=_Assignment(), partition_records=records(*parts), backoff=0)
    counts = []
    while result.has_more():
        counts.append(len(result.getall(10_000)))
    assert counts == [32, 32, 32, 4]
    assert vars(cluster)["unpacking"] is unpacking  # whoever connects reads like this


@pytest.mark.parametrize("most", [1, 7, 999, 1000, 1001, 4000, 100_000])
@pytest.mark.parametrize("begins", [0, 1, 1500, 3999])
def test_bare_records_are_those_of_the_client_however_many_are_asked_for(begins: int, most: int) -> None:
    sizes = [1, 999, 1000, 1001, 3, 996, 2500]
    parts, first = [], 0
    for size in sizes:
        if first + size > begins:  # brokers begin with the batch that is asked for
            parts.append(batch(CODECS["lz4"], first, [b"%d" % number for number in range(first, first + size)]))
        first += size
    plain = [(one.offset, one.timestamp, one.key, one.value) for one in records(*parts, begins=begins)]
    assert [offset for offset, *_ in plain] == list(range(begins, first))
    assignment = _Assignment()
    assignment.position = begins
    answer = records(*parts, begins=begins, how=unpacking.BARE)
    result = fetcher.FetchResult(PLACE, assignment=assignment, partition_records=answer, backoff=0)
    found: list[Any] = []
    while result.has_more():
        some = result.getall(most)
        assert len(some) <= most
        found += some
        assert assignment.position == (found[-1].offset + 1)
    assert [(one.offset, one.timestamp, one.key, one.value) for one in found] == plain


def test_bare_records_of_a_batch_beyond_the_bound_are_refused_one_by_one() -> None:
    parts = [batch(CODECS["zstd"], 0, [b"a"]), batch(CODECS["zstd"], 1, [BLANK] * 40), batch(0, 41, [b"b"])]
    answer = records(*parts, how=unpacking.BARE)
    result = fetcher.FetchResult(PLACE, assignment=_Assignment(), partition_records=answer, backoff=0)
    found = result.getall(None)
    assert [one.value for one in found] == [b"a", *[None] * 40, b"b"]
    assert all(one.headers == ((TOO_LARGE_HEADER, b""),) for one in found[1:41])


def test_many_small_batches_are_handed_out_bare_a_bound_at_a_time() -> None:
    parts = [batch(CODECS["gzip"], 20 * number, [BLANK] * 20) for number in range(5)]
    answer = records(*parts, how=unpacking.BARE)
    result = fetcher.FetchResult(PLACE, assignment=_Assignment(), partition_records=answer, backoff=0)
    counts = []
    while result.has_more():
        counts.append(len(result.getall(10_000)))
    assert counts == [40, 40, 20]
