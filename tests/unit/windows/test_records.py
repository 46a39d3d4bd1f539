"""Records in columns are the records one by one, however they are put together and cut."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.windows.records import OneRecord, Records
from tests.support.chosen import examples
from tests.support.phases import PHASES

TEXT = st.none() | st.binary(max_size=3)
HEADERS = st.lists(st.tuples(st.just("x"), st.binary(max_size=1)), max_size=1).map(tuple)


def numbered(drawn: Sequence[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]]) -> list[OneRecord]:
    return [OneRecord(2 * at, 100 + at, *one) for at, one in enumerate(drawn)]


def bytes_of(records: Sequence[OneRecord]) -> int:
    return sum(len(one.key or b"") + len(one.value or b"") for one in records)


@examples(
    75,
    300,
    given(st.lists(st.tuples(TEXT, TEXT, HEADERS), max_size=9), st.integers(0, 10), st.integers(0, 10), st.booleans()),
    derandomize=True,
    phases=PHASES,
)
def test_columns_are_the_records_they_were_made_of(
    drawn: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]], cut: int, kept: int, counted: bool
) -> None:
    """Where one lacks a key or a value; of others nobody asks for headers."""
    plain = [OneRecord(-1, 0, None, None, (("y", b""),)), *numbered(drawn)]
    made = Records.of(plain[: cut + 1])
    if counted:  # what is known of the size may not outlive a change
        assert made.size_bytes == bytes_of(plain[: cut + 1])
    rest = Records.of([OneRecord(-2, 0, None, None), *plain[cut + 1 :]])[1:]
    made.extend(rest)
    assert list(made) == plain == [made[at] for at in range(len(made))]
    assert made.size_bytes == bytes_of(plain)

    left = made.leave(kept)
    assert (list(made), list(left)) == (plain[:kept], plain[kept:])
    assert (made.size_bytes, left.size_bytes) == (bytes_of(plain[:kept]), bytes_of(plain[kept:]))
    assert Records.of(made) is made
    assert Records.of(list(made)) == made[:]


@pytest.mark.parametrize(("key", "value", "kept"), [(b"u", b"v", False), (None, b"v", True), (b"u", b"", True)])
def test_headers_are_kept_where_they_may_say_what_a_record_is(key: bytes | None, value: bytes, kept: bool) -> None:
    (record,) = Records.of([OneRecord(3, 0, key, value, (("x", b""),))])
    assert bool(record.headers) == kept
