"""The byte layouts: order of keys, prefixes, and what is not a row."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import StateError
from stream_dp.releases.rows import BUCKET
from stream_dp.windows.count_rows import JOURNAL, JournalRow, Marker, ViewMark, journal_key
from stream_dp.windows.encoding import (
    after,
    bucket_key,
    bucket_of,
    cut,
    decode,
    encode,
    in_order,
    spans,
    text,
    window_key,
    window_start,
)
from stream_dp.windows.merging import MergedBucket, Partial
from tests.support.phases import PHASES

TIMES = st.integers(-(2**62), 2**62)
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?", fullmatch=True)


@settings(derandomize=True, max_examples=100, deadline=None, phases=PHASES)
@given(NAMES, TIMES, TIMES)
def test_keys_of_a_view_are_in_the_order_of_time_before_and_after_1970(name: str, one: int, other: int) -> None:
    keys = [journal_key(name, start, 0) for start in (one, other)]
    assert (keys[0] < keys[1]) == (one < other)
    assert window_start(JOURNAL, name, keys[0]) == one


@settings(derandomize=True, max_examples=100, deadline=None, phases=PHASES)
@given(NAMES, NAMES, TIMES, st.integers(0, 65535))
def test_the_rows_of_a_view_are_those_behind_its_prefix(name: str, other: str, start: int, bucket: int) -> None:
    first, last = BUCKET + text(name), after(BUCKET + text(name))
    assert first <= bucket_key(BUCKET, name, start, bucket) < last
    assert (first <= bucket_key(BUCKET, other, start, bucket) < last) == (other == name)


@settings(derandomize=True, max_examples=50, deadline=None, phases=PHASES)
@given(TIMES, *[st.integers(0, 65535)] * 3)
def test_the_rows_of_a_window_are_those_behind_its_prefix(start: int, bucket: int, partition: int, part: int) -> None:
    key = Partial("pages", start, bucket, partition, 0, part, part + 1, {}).key
    for at, inside in ((start, True), (start + 1, False), (start - 1, False)):
        prefix = window_key(b"p", "pages", at)
        assert (prefix <= key < after(prefix)) is inside


def test_buckets_never_change() -> None:
    """Where an item is counted must be the same on every worker and after every upgrade."""
    assert [bucket_of(item, 4096) for item in ("", "a", "é", "\U0001f600")] == [0, 3651, 3390, 1348]


def test_rows_are_read_back() -> None:
    rows = [
        JournalRow(5, [b"\xff", b""], ["a", "é"]),
        Marker(-1, 6, views={"pages": ViewMark(b"finger", -5, None, 7, 9, 11, [(0, 3)])}),
        Partial("pages", -1000, 3, 2, 17, 4, 5, {"a": 1}),
        MergedBucket("pages", -1000, 3, 17, 4, 5, {"a": 1}),
    ]
    assert [decode(type(row), encode(row)) for row in rows] == rows


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x93\x01\x02\x03"])
def test_bytes_that_are_no_row_stop_the_worker(value: bytes) -> None:
    with pytest.raises(StateError, match="a stored Marker cannot be read"):
        decode(Marker, value)


def test_a_name_that_does_not_fit_its_length_byte_is_refused() -> None:
    assert text("a" * 255)[0] == 255
    with pytest.raises(StateError, match="longer than 255"):
        text("a" * 256)


@settings(derandomize=True, max_examples=200, deadline=None, phases=PHASES)
@given(st.lists(st.integers(0, 12)), st.integers(1, 30))
def test_many_entries_are_cut_by_their_sizes_as_each_by_itself(sizes: list[int], most: int) -> None:
    assert [sizes[first:behind] for first, behind in spans(sizes, most)] == list(cut(sizes, int, most))


@pytest.mark.parametrize("another", ["a", "a\0", "a" * 1024])
def test_keys_of_any_number_are_in_the_order_of_their_bytes(another: str) -> None:
    """More keys than are sorted at once, with characters beyond each other's planes; their number hides their order.

    Beside them stands one that ends like the bytes that keys are padded with, or is too long to pad others to it.
    """
    for number in (0, 1, 255, 257, 70_000):
        keys = [
            f"{chr(0xFFF0 + at % 7)}{at * 7919 % 70_001:x}" if at % 3 else chr(0x10000 + at) for at in range(number)
        ]
        keys += dict.fromkeys([another, "a"])
        places, raw = in_order(keys)
        assert [keys[at] for at in places] == [key.decode() for key in raw] == sorted(keys, key=str.encode)
