from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import StateError
from stream_dp.select import candidates

ITEMS = st.binary(max_size=2)
# Few distinct counts, so that ties cross shards and the edge at kbar.
TABLES = st.dictionaries(ITEMS, st.integers(0, 4), max_size=30)


def test_the_order_is_count_descending_and_then_item_ascending() -> None:
    counts = {b"b": 7, b"\xff": 7, b"az": 7, b"": 7, b"z": 9, b"a": 3}
    assert candidates(counts, 3) == ([(b"z", 9), (b"", 7), (b"az", 7)], 7)
    assert candidates(counts, 5) == ([(b"z", 9), (b"", 7), (b"az", 7), (b"b", 7), (b"\xff", 7)], 3)


@pytest.mark.parametrize("counts", [{}, {b"gone": 0}, {b"a": 2, b"gone": 0}])
def test_items_nobody_has_are_not_there_and_missing_rows_leave_h_next_at_zero(counts: dict[bytes, int]) -> None:
    rows, h_next = candidates(counts, 5)
    assert (b"gone", 0) not in rows
    assert len(rows) == len(counts) - (b"gone" in counts)
    assert h_next == 0


@pytest.mark.parametrize("count", [-1, 1.0, float("nan"), "1"])
def test_a_count_that_is_no_number_of_users_is_refused(count: Any) -> None:
    with pytest.raises(StateError, match="whole number of users; item 62"):
        candidates({b"a": 1, b"b": count}, 1)


@settings(derandomize=True, max_examples=300)
@given(TABLES, st.integers(1, 8), st.randoms(use_true_random=False))
def test_insertion_order_changes_nothing(counts: dict[bytes, int], kbar: int, random: Any) -> None:
    items = list(counts.items())
    random.shuffle(items)
    assert candidates(dict(items), kbar) == candidates(counts, kbar)


@settings(derandomize=True, max_examples=500)
@given(TABLES, st.integers(1, 8), st.integers(1, 5), st.data())
def test_merged_shards_give_the_single_shard_answer(
    counts: dict[bytes, int], kbar: int, shards: int, data: st.DataObject
) -> None:
    parts: list[dict[bytes, int]] = [{} for _ in range(shards)]
    for item, count in counts.items():
        parts[data.draw(st.integers(0, shards - 1))][item] = count
    sent = {item: count for part in parts for item, count in candidates(part, kbar + 1)[0]}
    assert candidates(sent, kbar) == candidates(counts, kbar)


def test_shards_that_send_only_kbar_rows_lose_h_next() -> None:
    counts = {b"a": 9, b"b": 8, b"c": 8}
    sent = dict(candidates(counts, 2)[0])
    assert candidates(counts, 2)[1] == 8
    assert candidates(sent, 2)[1] == 0


@settings(derandomize=True, max_examples=500)
@given(TABLES, st.integers(1, 8), st.sets(ITEMS, max_size=6))
def test_one_user_moves_h_next_by_at_most_one_and_few_items_in_or_out(
    counts: dict[bytes, int], kbar: int, theirs: set[bytes]
) -> None:
    more = counts | {item: counts.get(item, 0) + 1 for item in theirs}
    (rows, h_next), (more_rows, more_next) = candidates(counts, kbar), candidates(more, kbar)
    assert 0 <= more_next - h_next <= 1
    for table, inside, outside, after in (
        (counts, dict(rows), dict(more_rows), h_next),
        (more, dict(more_rows), dict(rows), more_next),
    ):
        moved = inside.keys() - outside.keys()
        assert len(moved) <= min(len(theirs), kbar)
        assert all(table[item] <= after + 1 for item in moved)
