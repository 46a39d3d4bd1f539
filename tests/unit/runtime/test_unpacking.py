"""The readable records of any batch are read, the others are refused, and the position advances."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from typing import Any

import pytest
from aiokafka.consumer import fetcher

from stream_dp.config.access import Broker
from stream_dp.runtime.kafka import record_batches, unpacking
from stream_dp.runtime.kafka.cluster import Cluster
from tests.support.batches import (
    CODECS,
    PLACE,
    Assignment,
    Log,
    Row,
    answer_of,
    batch_of,
    told,
    values_batch,
    with_bad_header_name,
    with_checksum,
)
from tests.support.chosen import kept_ordinary

BLANK = b" " * (1 << 20)
ROWS: list[Row] = [
    (b"u", b"plain", ()),
    (None, b"no key", [("h", b"1"), ("h", None)]),
    (b"u", None, [("tombstone", b"")]),
    (b"", b"", ()),
    (b"u", b"x" * 5000, [("größe", b"\xff")]),
]
VALUES = [row[1] for row in ROWS]
COUNT_AT = 57
LAST_DELTA_AT = 23


def log_of(*batches: bytes, ends: list[int] | None = None, **options: Any) -> Log:
    """A partition whose batches have 5 records each, unless `ends` says otherwise."""
    return Log(batches, ends or [5 * number for number in range(1, len(batches) + 1)], **options)


@pytest.mark.parametrize("name", kept_ordinary(["none", "snappy", "zstd"], CODECS))
def test_ordinary_batch_is_read_whole(name: str) -> None:
    values = [b"%d" % number * 50 for number in range(2000)] + [BLANK] * 30
    found = list(answer_of(values_batch(CODECS[name], 0, values)))
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(len(values)))


@pytest.mark.parametrize("name", kept_ordinary(["none", "lz4"], CODECS))
def test_large_batch_is_counted(name: str) -> None:
    """It unpacks to 40 MiB: no record of it is too large."""
    batches = [values_batch(CODECS[name], 0, [b"a"]), values_batch(CODECS[name], 1, [BLANK] * 40)]
    found = Log(batches, [1, 41]).read()
    assert told(found) == list(enumerate([b"a", *[BLANK] * 40]))


@pytest.mark.parametrize("name", kept_ordinary(["gzip", "zstd"], CODECS))
def test_too_large_record_is_refused_alone(name: str) -> None:
    values = [b"a", b"b" * (33 << 20), b"c"]
    found = log_of(values_batch(CODECS[name], 7, values), ends=[10]).read(7)
    assert told(found) == [(7, b"a"), (8, "record_too_large"), (9, b"c")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd"])
def test_memory_is_bounded_by_a_record(name: str) -> None:
    bomb = values_batch(CODECS[name], 0, [b"a", b" " * (100 << 20), *[BLANK] * 50])
    tracemalloc.start()
    try:
        read = 0
        answer = answer_of(bomb)
        for record in answer:
            read += len(record.value or b"")
        assert read == 1 + 50 * len(BLANK)
        assert tracemalloc.get_traced_memory()[1] < 3 * record_batches.MAX_RECORD_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", kept_ordinary(["none", "lz4"], CODECS))
def test_bad_header_name_refuses_its_record_alone(name: str) -> None:
    """The others have the same content as in a batch without it."""
    bad = with_bad_header_name(CODECS[name], 5, ROWS, 2)
    found = log_of(batch_of(0, 0, ROWS), bad, batch_of(0, 10, ROWS)).read()
    assert told(found)[5:10] == [(5, b"plain"), (6, b"no key"), (7, "bad_header"), (8, b""), (9, ROWS[4][1])]
    assert [one.headers for one in found[5:7]] == [one.headers for one in found[:2]]
    assert [one.timestamp for one in found[8:10]] == [one.timestamp for one in found[3:5]]
    assert len(found) == 15


def test_lying_field_refuses_its_record_alone() -> None:
    plain = batch_of(0, 0, [(b"u", b"value%d" % number, ()) for number in range(3)])
    at = plain.index(b"\x0cvalue1")
    found = log_of(with_checksum(plain[:at] + b"\x7e" + plain[at + 1 :]), ends=[3]).read()
    assert told(found) == [(0, b"value0"), (1, "damaged_record"), (2, b"value2")]


@pytest.mark.parametrize("name", kept_ordinary(["none", "gzip"], CODECS))
def test_wrong_checksum_refuses_the_batch(name: str) -> None:
    bad = bytearray(batch_of(CODECS[name], 5, ROWS))
    bad[-1] ^= 1
    log = log_of(batch_of(0, 0, ROWS), bytes(bad), batch_of(0, 10, ROWS))
    assert told(log.read())[5:-5] == [(9, "damaged_batch")]
    assert log.fetches == 3, "a damaged batch is fetched once more"


def test_refused_batch_is_refused_once() -> None:
    """A reader that continues after the refused batch does not meet it again."""
    bad = bytearray(batch_of(0, 0, ROWS))
    bad[-1] ^= 1
    log = log_of(bytes(bad), batch_of(0, 5, ROWS))
    (offset, _), *_ = told(log.read())
    assert told(log.read(offset + 1)) == [(5 + at, value) for at, value in enumerate(VALUES)]


@pytest.mark.parametrize(("cut_at", "kept"), [(b"xxx", 4), (b"no key", 1)])
def test_records_before_a_cut_are_counted(cut_at: bytes, kept: int) -> None:
    """The checksum is right, so the producer sent the batch without its end."""
    plain = batch_of(0, 0, ROWS)
    cut_off = bytearray(plain[: plain.index(cut_at)])
    cut_off[8:12] = struct.pack("!i", len(cut_off) - 12)
    found = told(log_of(with_checksum(cut_off), batch_of(0, 5, ROWS)).read())
    assert [value for _, value in found[:kept]] == VALUES[:kept]
    assert found[kept:] == [(4, "damaged_batch"), *((5 + at, value) for at, value in enumerate(VALUES))]


@pytest.mark.parametrize("count", [-1, 0, 4, 6, 2**31 - 1])
def test_lying_count_does_not_reach_the_next_batch(count: int) -> None:
    bad = bytearray(batch_of(0, 0, ROWS))
    bad[COUNT_AT : COUNT_AT + 4] = struct.pack("!i", count)
    found = told(log_of(with_checksum(bad), batch_of(0, 5, ROWS)).read())
    assert found[-5:] == [(5 + at, value) for at, value in enumerate(VALUES)]
    assert found[-6] == (4, "damaged_batch")


@pytest.mark.parametrize("delta", [-1, 2, 1000, 2**31 - 1])
def test_lying_last_offset_does_not_reach_the_next_batch(delta: int) -> None:
    bad = bytearray(batch_of(0, 0, ROWS))
    bad[LAST_DELTA_AT : LAST_DELTA_AT + 4] = struct.pack("!i", delta)
    found = told(log_of(with_checksum(bad), batch_of(0, 5, ROWS)).read())
    assert found[-5:] == [(5 + at, value) for at, value in enumerate(VALUES)]


@pytest.mark.parametrize("length", [-1, 0, 13, 48, 200, 2**31 - 1])
def test_lying_length_does_not_reach_the_next_batch(length: int) -> None:
    bad = batch_of(0, 0, ROWS)
    bad = bad[:8] + struct.pack("!i", length) + bad[12:]
    found = told(log_of(bad, batch_of(4, 5, ROWS)).read())
    assert found == [(4, "damaged_batch"), *((5 + at, value) for at, value in enumerate(VALUES))]


def test_unknown_codec_is_refused() -> None:
    bad = bytearray(batch_of(0, 0, ROWS))
    bad[22] |= 7
    found = told(log_of(with_checksum(bad), batch_of(0, 5, ROWS)).read())
    assert found[0] == (4, "unsupported_format")
    assert len(found) == 6


def test_old_and_unknown_formats_are_refused() -> None:
    old = b"\x01\x00" + struct.pack("!qii", 1, -1, 1) + b"v"
    old = struct.pack("!qi", 0, len(old) + 4) + struct.pack("!I", zlib.crc32(old)) + old
    new = bytearray(batch_of(0, 1, ROWS))
    new[16] = 9
    found = told(log_of(old, bytes(new), batch_of(0, 6, ROWS), ends=[1, 6, 11]).read())
    assert found[:2] == [(0, "unsupported_format"), (5, "unsupported_format")]
    assert len(found) == 7


def test_cut_compression_keeps_what_came_before() -> None:
    values = [struct.pack("!I", number) * 1000 for number in range(2000)]
    bad = bytearray(values_batch(CODECS["gzip"], 0, values)[:-200])
    bad[8:12] = struct.pack("!i", len(bad) - 12)
    found = told(Log([with_checksum(bad), values_batch(0, 2000, [b"next"])], [2000, 2001]).read())
    assert found[-2:] == [(1999, "damaged_batch"), (2000, b"next")]
    assert found[:-2] == [(number, values[number]) for number in range(len(found) - 2)]
    assert len(found) > 100


@pytest.mark.parametrize("how", [None, unpacking.BARE], ids=["records", "bare"])
def test_aborted_batches_are_left_out(how: Any) -> None:
    """So are damaged ones; and a committed transaction of the same producer is read."""
    marker = bytearray(batch_of(0, 15, [(b"\0\0\0\0", b"", ())], producer=7))
    marker[22] |= 0x20
    damaged = with_bad_header_name(4, 5, ROWS, 2)
    damaged = damaged[:22] + bytes([damaged[22] | 0x10]) + damaged[23:43] + struct.pack("!q", 7) + damaged[51:]
    cut = bytearray(batch_of(0, 10, ROWS, producer=7))
    cut[-1] ^= 1
    batches = [
        batch_of(0, 0, ROWS),
        with_checksum(damaged),
        bytes(cut),
        with_checksum(marker),
        batch_of(0, 16, ROWS, producer=7),
    ]
    ends = [5, 10, 15, 16, 21]
    committed = Log(batches, ends, aborted=[(7, 5, 15)]).read(how=how, committed=True)
    assert [one.offset for one in committed] == [*range(5), *range(16, 21)]
    every = told(Log(batches, ends, aborted=[(7, 5, 15)]).read(how=how))
    assert [one[0] for one in every] == [*range(10), 14, *range(16, 21)]
    assert (7, "bad_header") in every
    assert (14, "damaged_batch") in every


def test_last_records_taken_by_compaction_move_the_position() -> None:
    short = bytearray(batch_of(0, 0, ROWS[:3]))
    short[LAST_DELTA_AT : LAST_DELTA_AT + 4] = struct.pack("!i", 4)
    empty = bytearray(batch_of(0, 5, ROWS))[:61]
    empty[8:12] = struct.pack("!i", len(empty) - 12)
    empty[COUNT_AT : COUNT_AT + 4] = bytes(4)
    log = log_of(with_checksum(short), with_checksum(empty), batch_of(0, 10, ROWS))
    assert [one.offset for one in log.read()] == [0, 1, 2, *range(10, 15)]
    assert log.fetches == 1


@pytest.mark.parametrize("name", kept_ordinary(["none", "snappy", "zstd"], CODECS))
def test_streamed_records_are_those_of_the_client(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a record is refused does not depend on other records that cause its batch to be read as a stream."""
    monkeypatch.setattr(record_batches, "GROUP_RECORDS", 2)
    log = log_of(*[batch_of(CODECS[name], 5 * at, ROWS) for at in range(4)])
    plain = log.read()
    monkeypatch.setattr(record_batches.Batch, "parse_records", lambda _self: None)
    streamed = log.read()
    monkeypatch.setattr(record_batches, "_are_rising", lambda *_: False)
    assert plain == streamed == log.read()


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_small_batch_is_given_little_memory(name: str) -> None:
    """Room for the most that a batch may take would have to be written to for each of thousands of small ones."""
    made = values_batch(CODECS[name], 0, [b"a" * 100])
    list(answer_of(made))
    tracemalloc.start()
    try:
        list(answer_of(made))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_records_are_handed_out_a_bound_at_a_time() -> None:
    parts = [values_batch(CODECS["gzip"], 20 * number, [BLANK] * 20) for number in range(5)]
    for how, expected in ((None, [32, 32, 32, 4]), (unpacking.BARE, [40, 40, 20])):
        result: Any = unpacking.FetchResult(
            PLACE, assignment=Assignment(), partition_records=answer_of(*parts, how=how), backoff=0
        )
        counts = []
        while result.has_more():
            counts.append(len(result.getall(10_000)))
        assert counts == expected


@pytest.mark.parametrize("most", [1, 7, 999, 1000, 1001, 4000, 100_000])
@pytest.mark.parametrize("begins", [0, 1, 1500, 3999])
def test_bare_records_are_those_of_the_client(begins: int, most: int) -> None:
    sizes = [1, 999, 1000, 1001, 3, 996, 2500]
    parts, first = [], 0
    for size in sizes:
        if first + size > begins:  # brokers begin with the batch that is asked for
            parts.append(values_batch(CODECS["lz4"], first, [b"%d" % number for number in range(first, first + size)]))
        first += size
    plain = [(one.offset, one.timestamp, one.key, one.value) for one in answer_of(*parts, begin=begins)]
    assert [offset for offset, *_ in plain] == list(range(begins, first))
    assignment = Assignment(begins)
    answer = answer_of(*parts, begin=begins, how=unpacking.BARE)
    result: Any = unpacking.FetchResult(PLACE, assignment=assignment, partition_records=answer, backoff=0)
    found: list[Any] = []
    while result.has_more():
        some = result.getall(most)
        assert len(some) <= most
        found += some
        assert assignment.position == (found[-1].offset + 1)
    assert [(one.offset, one.timestamp, one.key, one.value) for one in found] == plain


def test_connecting_installs_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import alone changes nothing of aiokafka."""
    monkeypatch.setattr(fetcher, "PartitionRecords", None)
    Cluster.of(Broker("kafka://localhost:9092"))
    assert fetcher.PartitionRecords is unpacking.PartitionRecords


@pytest.mark.parametrize("name", kept_ordinary(["gzip", "zstd"], CODECS))
@pytest.mark.parametrize("number", [1, 8000])
def test_records_of_one_user_change_no_others_of_a_batch(name: str, number: int) -> None:
    """One record of 33 MiB, or many small ones: both batches are larger than what is decompressed whole."""
    others = [(b"u%d" % at, b"value %d" % at, ()) for at in range(100)]
    value = b" " * (33 << 20) if number == 1 else b" " * 4200
    batch = batch_of(CODECS[name], 0, [*others[:50], *[(b"X", value, ())] * number, *others[50:]])
    found = Log([batch], [100 + number]).read(how=unpacking.BARE)
    kept = [(record.key, record.value) for record in found if record.key not in (b"X", None)]
    assert kept == [(key, value) for key, value, _ in others]
