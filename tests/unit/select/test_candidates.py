from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.errors import StateError
from stream_dp.select.candidates import Candidates, Domain, Row, candidates, rank
from tests.support.chosen import examples

ITEMS = st.binary(max_size=2)
# Few distinct counts, so that ties cross shards and the edge at kbar.
TABLES = st.dictionaries(ITEMS, st.integers(0, 4), max_size=30)


def kept(counts: dict[bytes, int], kbar: int) -> dict[bytes, int]:
    return cast("dict[bytes, int]", dict(candidates(counts, kbar)[0]))


def test_the_order_is_count_descending_and_then_item_ascending() -> None:
    counts = {b"b": 7, b"\xff": 7, b"az": 7, b"": 7, b"z": 9, b"a": 3}
    first: list[Row] = [(b"z", 9), (b"", 7), (b"az", 7)]
    more: list[Row] = [*first, (b"b", 7), (b"\xff", 7)]
    for kbar, rows, h_next in ((3, first, 7), (5, more, 3)):
        found, following = candidates(counts, kbar)
        assert (list(found), following) == (rows, h_next)


@pytest.mark.parametrize("counts", [{}, {b"gone": 0}, {b"a": 2, b"gone": 0}])
def test_items_nobody_has_are_not_there_and_missing_rows_leave_h_next_at_zero(counts: dict[bytes, int]) -> None:
    rows, h_next = candidates(counts, 5)
    assert (b"gone", 0) not in rows
    assert len(rows) == len(counts) - (b"gone" in counts)
    assert h_next == 0


@pytest.mark.parametrize("count", [-1, 1.0, float("nan"), "1", 1 << 62, 1 << 63])
def test_a_count_that_is_no_number_of_users_is_refused(count: Any) -> None:
    with pytest.raises(StateError, match="whole number of users below 2\\^62; one of them is not"):
        candidates({b"a": 1, b"b": count}, 1)


@examples(75, 300, given(TABLES, st.integers(1, 8), st.randoms(use_true_random=False)), derandomize=True)
def test_insertion_order_changes_nothing(counts: dict[bytes, int], kbar: int, random: Any) -> None:
    items = list(counts.items())
    random.shuffle(items)
    assert candidates(dict(items), kbar) == candidates(counts, kbar)


@examples(120, 500, given(TABLES, st.integers(1, 8), st.integers(1, 5), st.data()), derandomize=True)
def test_merged_shards_give_the_single_shard_answer(
    counts: dict[bytes, int], kbar: int, shards: int, data: st.DataObject
) -> None:
    parts: list[dict[bytes, int]] = [{} for _ in range(shards)]
    for item, count in counts.items():
        parts[data.draw(st.integers(0, shards - 1))][item] = count
    sent = {item: count for part in parts for item, count in kept(part, kbar + 1).items()}
    assert candidates(sent, kbar) == candidates(counts, kbar)


def test_shards_that_send_only_kbar_rows_lose_h_next() -> None:
    counts = {b"a": 9, b"b": 8, b"c": 8}
    sent = kept(counts, 2)
    assert candidates(counts, 2)[1] == 8
    assert candidates(sent, 2)[1] == 0


@examples(120, 500, given(TABLES, st.integers(1, 8), st.sets(ITEMS, max_size=6)), derandomize=True)
def test_one_user_moves_h_next_by_at_most_one_and_few_items_in_or_out(
    counts: dict[bytes, int], kbar: int, theirs: set[bytes]
) -> None:
    more = counts | {item: counts.get(item, 0) + 1 for item in theirs}
    h_next, more_next = candidates(counts, kbar)[1], candidates(more, kbar)[1]
    rows, more_rows = kept(counts, kbar), kept(more, kbar)
    assert 0 <= more_next - h_next <= 1
    for table, inside, outside, after in (
        (counts, rows, more_rows, h_next),
        (more, more_rows, rows, more_next),
    ):
        moved = inside.keys() - outside.keys()
        assert len(moved) <= min(len(theirs), kbar)
        assert all(table[item] <= after + 1 for item in moved)


TIED = {b"%05d" % (i * 7919 % 2003): 1 + (i % 3) * (i % 5 == 0) for i in range(2003)} | {b"zero": 0}
"""Long ties, among them the last one of every kbar tried, in no order."""


@pytest.mark.parametrize("domain", list(Domain))
@pytest.mark.parametrize("kbar", [1, 60, 130, 131, 132, 500, 1999, 2003, 2004, 5000])
def test_every_place_holds_the_item_that_a_sort_of_all_rows_puts_there(kbar: int, domain: Domain) -> None:
    ranked = sorted(TIED.items(), key=rank)
    h_next = ranked[kbar][1] if kbar < len(ranked) else 0
    least = {Domain.WHOLE: 0, Domain.POSITIVE: 1, Domain.STRICT: h_next + 1}[domain]
    expected = [row for row in ranked[:kbar] if row[1] >= least]
    rows, found = candidates(TIED, kbar, domain)
    assert (list(rows), found) == (expected, h_next)
    assert rows.counts.tolist() == [count for _, count in expected]
    places = sorted({0, 1, len(expected) // 2, len(expected) - 1} & set(range(len(expected))), reverse=True)
    assert rows.items_at(places) == [expected[place][0] for place in places]


def test_counts_that_agree_in_their_low_bits_are_told_apart() -> None:
    counts = {b"%d" % i: 5 + (i << 16) for i in range(600)}
    rows, _ = candidates(counts, 1000)
    assert rows.items_at([0, 599, 300]) == [b"599", b"0", b"299"]


def test_a_long_tie_that_agrees_in_its_low_bits_with_a_single_count_is_not_named_twice() -> None:
    counts = {b"%03d" % i: 5 for i in range(400)} | {b"up": 5 + (1 << 16), b"down": 1}
    rows, _ = candidates(counts, 1000)
    assert rows.items_at([0, 1, 2, 400, 401]) == [b"up", b"000", b"001", b"399", b"down"]


def test_rows_that_are_compared_are_compared_one_by_one() -> None:
    rows, _ = candidates({b"a": 3, b"b": 2}, 2)
    assert rows == [(b"a", 3), (b"b", 2)]
    assert rows == Candidates.of([(b"a", 3), (b"b", 2)])
    assert rows != [(b"a", 3), (b"b", 1)]
    assert rows != 5


def test_the_first_of_the_candidates_are_those_of_a_smaller_kbar() -> None:
    rows, _ = candidates(TIED, 700)
    assert rows.first(130) == candidates(TIED, 130)
