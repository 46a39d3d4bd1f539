"""Mutated batches: the reader raises no exception, and every record of the other batches is read."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from stream_dp.runtime.kafka import record_batches, unpacking
from stream_dp.windows.events import unreadable_reason
from tests.support.batches import CODECS, Log, Row, batch_of, recompressed, with_checksum

BATCHES = 3
ROWS = 3
VARIANTS = 12
"""Contents of a batch; few, so that most of them are made once."""
HEADER_BYTES = 61
CONTROL = 0x20
MEMORY_BYTES = 4 << 20

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def _bytes_or_none(chance: random.Random) -> bytes | None:
    return chance.choice([None, b"", b"u", chance.randbytes(chance.randrange(200)), b"ab" * chance.randrange(300)])


def _row(chance: random.Random) -> Row:
    names = [chance.choice(["h", "größe", "stream-dp-watermark", ""]) for _ in range(chance.randrange(3))]
    return _bytes_or_none(chance), _bytes_or_none(chance), [(name, _bytes_or_none(chance)) for name in names]


@cache
def _valid_batch(codec: int, base_offset: int, seed: int) -> tuple[bytes, list[Content]]:
    """Return a batch, and what it holds."""
    chance = random.Random(seed)
    rows = [_row(chance) for _ in range(ROWS)]
    producer = chance.choice([-1, 3])
    content = [(base_offset + at, key, value, tuple(headers)) for at, (key, value, headers) in enumerate(rows)]
    return batch_of(codec, base_offset, rows, producer=producer), content


def _flip(bad: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 1, 1, 8])):
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)


def _overwrite(bad: bytearray, chance: random.Random) -> None:
    size = chance.choice([1, 2, 4, 8])
    at = chance.choice([chance.randrange(len(bad)), chance.randrange(HEADER_BYTES)])
    bad[at : at + size] = chance.choice(
        [b"\0" * size, b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), chance.randbytes(size)]
    )


def _set_field(bad: bytearray, chance: random.Random) -> None:
    at = chance.choice([8, 23, 57])  # the length, the last offset, the number of records
    bad[at : at + 4] = struct.pack("!i", chance.choice([-(2**31), -1, 0, 1, 2, 60, 70, 2**20, 2**31 - 1]))


def _cut(bad: bytearray, chance: random.Random) -> None:
    del bad[chance.randrange(1, len(bad)) :]
    _mend_length(bad)


def _insert(bad: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(bad))
    bad[at:at] = chance.randbytes(chance.choice([1, 3, 50]))
    _mend_length(bad)


def _repeat(bad: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(bad))
    bad += bad[at : at + 40]
    _mend_length(bad)


def _mend_length(bad: bytearray) -> None:
    if len(bad) >= 12:
        bad[8:12] = struct.pack("!i", len(bad) - 12)


MUTATIONS: Sequence[Callable[[bytearray, random.Random], None]] = [
    _flip,
    _overwrite,
    _set_field,
    _cut,
    _insert,
    _repeat,
]


def _mutated(codec: int, base_offset: int, seed: int, chance: random.Random) -> bytes:
    """Return a batch with something wrong: as it is sent, or below its compression; its checksum may be right."""
    is_inside = codec != 0 and chance.random() < 0.5
    bad = bytearray(_valid_batch(0 if is_inside else codec, base_offset, seed)[0])
    chance.choice(MUTATIONS)(bad, chance)
    if len(bad) < HEADER_BYTES:
        return bytes(bad)
    if is_inside:
        bad[22] &= 0xF8
        return recompressed(bytes(bad), codec)
    return with_checksum(bad) if chance.random() < 0.6 else bytes(bad)


def _content(one: Any) -> Content:
    return one.offset, one.key, one.value, tuple(one.headers)


def _check(seed: int) -> None:
    """Read a partition in which one batch is mutated."""
    chance = random.Random(seed)
    bad_one = chance.randrange(BATCHES)
    begin = chance.choice([0, 5, 2**33])
    first = begin + ROWS * bad_one
    # A broker believes what the header of the last batch says of its end, and goes on there.
    behind = first + ROWS if bad_one < BATCHES - 1 else 2**63
    batches: list[bytes] = []
    kept: list[Content] = []
    for number in range(BATCHES):
        codec = chance.choice(list(CODECS.values()))
        variant = chance.randrange(VARIANTS)
        offset = begin + ROWS * number
        valid, content = _valid_batch(codec, offset, variant)
        if number == bad_one:
            batches.append(_mutated(codec, offset, variant, chance))
        else:
            batches.append(valid)
            kept += content
    ends = [begin + ROWS * (number + 1) for number in range(BATCHES)]
    found = Log(batches, ends).read(begin, how=None if seed % 2 else unpacking.BARE)
    offsets = [one.offset for one in found]
    assert offsets == sorted(set(offsets))
    own = [one for one in found if first <= one.offset < behind]
    others = [_content(one) for one in found if not first <= one.offset < behind]
    header = batches[bad_one][:23].ljust(23, b"\0")
    is_moved = header[:8] != first.to_bytes(8, "big")  # nothing protects the offset of a batch
    if is_moved:
        others = [one for one in others if one in kept]
    if seed % 2:
        assert others == kept
    else:  # columns leave headers out where nobody asks for them
        assert [one[:3] for one in others] == [one[:3] for one in kept]
    is_refused = any(unreadable_reason(one) is not None for one in own)
    is_whole = [one.offset for one in own] == [*range(first, first + ROWS)]
    is_claimed_end = bool(header[22] & CONTROL)
    assert is_refused or is_whole or is_claimed_end or is_moved


def test_mutated_batches_harm_no_other() -> None:
    for seed in range(3000):
        _check(seed)


@pytest.mark.slow
def test_many_mutated_batches_harm_no_other() -> None:
    for seed in range(3000, 100_000):
        _check(seed)


@pytest.mark.slow
def test_mutated_batches_take_little_memory() -> None:
    tracemalloc.start()
    try:
        for seed in range(1500):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            _check(seed)
            assert tracemalloc.get_traced_memory()[1] - before < MEMORY_BYTES, seed
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", CODECS)
def test_mutated_record_harms_no_other_of_its_batch(name: str) -> None:
    """The record's length is right, so the other records can be told apart."""
    for seed in range(200):
        chance = random.Random(f"{name} {seed}")
        rows = [_row(chance) for _ in range(5)]
        bad_one = chance.randrange(5)
        whole = batch_of(0, 0, rows)
        begin = len(batch_of(0, 0, rows[:bad_one]))
        end = len(batch_of(0, 0, rows[: bad_one + 1]))
        at = begin + (1 if whole[begin] < 0x80 else 2)
        bad = bytearray(whole)
        bad[at:end] = chance.randbytes(end - at)
        found = [_content(one) for one in Log([recompressed(bytes(bad), CODECS[name])], [5]).read()]
        assert [one for one in found if one[0] != bad_one] == [
            (number, key, value, tuple(headers))
            for number, (key, value, headers) in enumerate(rows)
            if number != bad_one
        ]
        assert [one[0] for one in found] == [*range(5)]


def test_valid_batches_are_read_alike_on_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record's content does not depend on what makes its batch be read as a stream: its size, or a bad record."""
    for codec in CODECS.values():
        logs = [Log([_valid_batch(codec, 7, variant)[0]], [7 + ROWS]) for variant in range(60)]
        at_once = [log.read(7) for log in logs]
        assert [[_content(one) for one in found] for found in at_once] == [
            _valid_batch(codec, 7, variant)[1] for variant in range(60)
        ]
        with monkeypatch.context() as patched:
            patched.setattr(record_batches.Batch, "parse_records", lambda _batch: None)
            assert [log.read(7) for log in logs] == at_once
            patched.setattr(record_batches, "_are_rising", lambda *_: False)
            assert [log.read(7) for log in logs] == at_once


def test_reader_that_does_not_stream_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: what cannot be parsed at once is refused whole."""

    def refuse_all(_batch: record_batches.Batch, last: int) -> Any:
        yield [record_batches.make_refusal(last, record_batches.DAMAGED_BATCH)]

    monkeypatch.setattr(record_batches.Batch, "stream_records", refuse_all)
    with pytest.raises(AssertionError):
        test_mutated_record_harms_no_other_of_its_batch("zstd")


def test_reader_that_trusts_headers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: the position moves to where a batch says that it ends."""
    monkeypatch.setattr(
        unpacking.PartitionRecords, "_find_end", lambda self, batch: max(batch.next_offset, self.next_fetch_offset + 1)
    )
    with pytest.raises(AssertionError):
        test_mutated_batches_harm_no_other()
