"""The cap on contributions moves with a user by no more than is charged, whatever the table is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from itertools import combinations, product

import pytest

from stream_dp.histograms.compact import truncated

KEYS = (1, 2, 3, 4)
SALTS = (b"", b"a", b"salt of a window", bytes(16))
Truncation = Callable[[Mapping[int, int], int, bytes], dict[int, int]]
Table = dict[int, int]


def tables(most: int) -> Iterator[Table]:
    for counts in product(range(most + 1), repeat=len(KEYS)):
        yield dict(zip(KEYS, counts, strict=True))


def with_user(table: Table, keys: tuple[int, ...]) -> Table:
    return {key: count + (key in keys) for key, count in table.items()}


def distance(one: Mapping[int, int], other: Mapping[int, int]) -> int:
    return sum(abs(one.get(key, 0) - other.get(key, 0)) for key in KEYS)


def worst_distances(cut: Truncation, items_per_user: int, most: int) -> tuple[int, int]:
    """The worst over all pairs of neighbours, and over those where nothing is cut off."""
    worst = [0, 0]
    for table, rows, salt in product(tables(most), range(1, 7), SALTS):
        for number in range(1, items_per_user + 1):
            for keys in combinations(KEYS, number):
                other = with_user(table, keys)
                moved = distance(cut(table, rows, salt), cut(other, rows, salt))
                is_whole = sum(other.values()) <= rows
                worst[is_whole] = max(worst[is_whole], moved)
    return worst[0], worst[1]


def first_keys(table: Mapping[int, int], rows: int, salt: bytes) -> Table:
    """Mutant: `rows` keys are kept instead of `rows` contributions (specs/finite, pitfall 19)."""
    return dict(sorted(((key, count) for key, count in table.items() if count))[: max(rows // 2, 1)])


def in_the_order_of_counts(table: Mapping[int, int], rows: int, salt: bytes) -> Table:
    """Mutant: the data decide which keys come first."""
    left, kept = rows, {}
    for key in sorted(table, key=lambda key: (-table[key], key)):
        if take := min(table[key], left):
            kept[key], left = take, left - take
    return kept


@pytest.mark.parametrize("items_per_user", [1, 2])
def test_a_user_moves_the_kept_counts_by_twice_their_bound_and_by_the_bound_where_nothing_is_cut(
    items_per_user: int,
) -> None:
    assert worst_distances(truncated, items_per_user, 2) == (2 * items_per_user, items_per_user)


@pytest.mark.parametrize("mutant", [first_keys, in_the_order_of_counts])
def test_an_unstable_cut_moves_more_than_is_charged(mutant: Truncation) -> None:
    assert worst_distances(mutant, 1, 3)[0] > 2


def test_as_many_contributions_are_kept_as_there_are_up_to_the_cap_and_no_count_grows() -> None:
    for table, rows, salt in product(tables(2), range(1, 10), SALTS):
        kept = truncated(table, rows, salt)

        assert sum(kept.values()) == min(rows, sum(table.values()))
        assert all(0 < count <= table[key] for key, count in kept.items())
        assert sum(count < table[key] for key, count in kept.items()) <= 1


def test_what_is_kept_is_the_front_of_the_sorted_contributions() -> None:
    table, salt = {1: 3, 2: 1, 77: 4, 10**30: 2}, b"window"
    contributions = [key for key, count in table.items() for _ in range(count)]
    contributions.sort(key=lambda key: sha256(salt + format(key, "x").encode()).digest())

    for rows in range(1, 12):
        assert truncated(table, rows, salt) == Counter(contributions[:rows])


def test_the_order_of_the_rows_that_came_in_does_not_matter() -> None:
    table = {1: 2, 2: 3, 3: 1}

    assert truncated(table, 4, b"s") == truncated(dict(reversed(table.items())), 4, b"s")


def favoured(cut: Truncation) -> int:
    """How many of 400 salts keep the smallest of four keys, of which one can stay; 100 by chance, deviation 8.7."""
    table = dict.fromkeys(KEYS, 1)
    return sum(1 in cut(table, 1, b"salt %d" % number) for number in range(400))


def test_no_key_is_favoured_by_its_name() -> None:
    assert abs(favoured(truncated) - 100) < 40
    assert favoured(in_the_order_of_counts) == 400  # of equal counts the smallest key is first
