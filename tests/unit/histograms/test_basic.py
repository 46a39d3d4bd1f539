"""Histograms over a public list of keys: the search for many keys is the search for one, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from experiments.finite.samplers import geo_sample
from stream_dp.errors import StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.histograms.basic import basic_histogram
from stream_dp.histograms.counting_queries import (
    Base,
    BitQuery,
    ExactGeometric,
    GeometricTable,
    RawBits,
    interval,
    mean_absolute,
    miss,
)
from tests.support.query_laws import ChosenIntegers, law, laws
from tests.support.tapes import RecordedBits

TABLES = [
    GeometricTable(2, Base.dyadic(1), 2),  # 13 bits, fewer than a lead has
    GeometricTable(3, Base(607, 1000), 1),  # every second output is uniform
    GeometricTable(6, Base.dyadic(8), 10),  # no tail ends before the bound
    GeometricTable(10, Base.within(Fraction(40)), 30),  # no noise at all but the uniform outputs
    GeometricTable(20, Base.dyadic(1), 40),  # the shift of a count is a whole lead
    GeometricTable(24, Base.within(Fraction(1, 10)), 60),  # the shift of a count is less than a lead
    GeometricTable(31, Base.within(Fraction(1)), 64),
]
NAMES = ["short", "flat", "whole", "quiet", "dyadic", "fine", "long"]

each_table = pytest.mark.parametrize("table", TABLES, ids=NAMES)


class Watched(GeometricTable):
    """A table that counts how often the search for one key is asked, and errs there on purpose."""

    asked = 0

    def sample(self, count: int, u: int) -> int:
        self.asked += 1
        return super().sample(count, u) ^ 1


def tape(values: Sequence[int], bits: int) -> RecordedBits:
    """One integer after another, without gaps."""
    size, joined = len(values) * bits, 0
    for value in values:
        joined = joined << bits | value
    return RecordedBits((joined << -size % 8).to_bytes((size + 7) // 8, "big"))


def counts_of(table: GeometricTable, size: int) -> list[int]:
    """Small counts, large ones, and all between."""
    top = table.bound
    return [min(top, (0, 1, i % 50, i * i, top, max(0, top - i % 50))[i % 6]) for i in range(size)]


def near_thresholds(table: GeometricTable, count: int) -> list[int]:
    """Draws on either side of where the output changes, near the count, near both ends, and where the tails end."""
    reach = len(table.tails)
    at = {0, 1, table.bound - 1, *(count + way * (reach + i) for i in range(-2, 4) for way in (-1, 1))}
    at |= {count + i for i in range(-40, 40)}
    values = {table.cdf(count, z) + i for z in at if 0 <= z < table.bound for i in (-1, 0, 1)}
    return sorted({0, table.draws - 1, *values})


def one_by_one(table: BitQuery, counts: Sequence[int], values: Sequence[int]) -> list[int]:
    return [table.sample(count, value + 1) for count, value in zip(counts, values, strict=True)]


# the search


def test_every_draw_of_a_small_table_is_that_of_the_search_for_one_key() -> None:
    table = TABLES[0]
    counts, values = zip(*product(range(table.bound + 1), range(table.draws)), strict=True)
    assert basic_histogram(table, counts, tape(values, table.bits)) == one_by_one(table, counts, values)


@each_table
def test_draws_at_the_thresholds_are_those_of_the_search_for_one_key(table: GeometricTable) -> None:
    for count in sorted({0, 1, 2, 17 % table.bound, table.bound // 2, table.bound - 1, table.bound}):
        values = near_thresholds(table, count)
        found = basic_histogram(table, [count] * len(values), tape(values, table.bits))
        assert found == one_by_one(table, [count] * len(values), values)


@each_table
@pytest.mark.parametrize("size", [0, 1, 7, 8, 1023, 1024, 1025, 2500])
def test_the_same_bits_give_the_same_outputs_as_draws_key_after_key(table: GeometricTable, size: int) -> None:
    counts = counts_of(table, size)
    one, other = (KeyedBits(b"basic", str(size).encode()) for _ in range(2))
    assert basic_histogram(table, counts, one) == [table.draw(count, other) for count in counts]
    assert one.bits(64) == other.bits(64)


@pytest.mark.parametrize("table", TABLES[4:6], ids=NAMES[4:6])
def test_only_a_tie_of_leads_is_left_to_the_search_for_one_key(table: GeometricTable) -> None:
    watched = Watched(table.h, table.base, table.g)
    counts = counts_of(table, 3000)
    basic_histogram(watched, counts, KeyedBits(b"basic", b"ties"))
    assert watched.asked == 0

    values = [table.cdf(5, z) + i for z in range(3, 9) for i in (-1, 0, 1)]
    found = basic_histogram(watched, [5] * len(values), tape(values, table.bits))
    assert watched.asked >= 12
    assert found != one_by_one(table, [5] * len(values), values)


@pytest.mark.slow
@each_table
def test_many_draws_are_those_of_the_search_for_one_key(table: GeometricTable) -> None:
    counts = counts_of(table, 100_000)
    one, other = (KeyedBits(b"basic", b"many") for _ in range(2))
    assert basic_histogram(table, counts, one) == [table.draw(count, other) for count in counts]


# 11, 45


@pytest.mark.parametrize("query", [*TABLES, RawBits(geo_sample(4, 1), 12)], ids=[*NAMES, "raw"])
@pytest.mark.parametrize("counts", [[], [0], [1] * 1500], ids=len)
def test_a_release_takes_the_declared_bits_whatever_the_counts_are(query: BitQuery, counts: list[int]) -> None:
    for size in (0, 1):
        source = ChosenIntegers(*[0] * max(1, len(counts)))
        basic_histogram(query, [count * size for count in counts], source)
        assert sum(source.asked) == len(counts) * query.bits


def test_counts_above_the_bound_are_those_of_the_bound() -> None:
    for query in (*TABLES, RawBits(geo_sample(4, 1), 12)):
        high = [query.bound, query.bound + 1, 1 << 70]
        one, other = (KeyedBits(b"basic", b"clamp") for _ in range(2))
        assert basic_histogram(query, high, one) == basic_histogram(query, [query.bound] * 3, other)


def test_a_negative_count_is_refused_before_anything_is_drawn() -> None:
    source = ChosenIntegers()
    with pytest.raises(StateError, match="at least 0, not -1"):
        basic_histogram(TABLES[0], [3, -1], source)
    assert source.asked == []


def test_the_values_of_a_mapping_are_counts_in_its_order() -> None:
    counts = {b"b": 900, b"a": 0, b"c": 300}
    one, other = (KeyedBits(b"basic", b"mapping") for _ in range(2))
    assert basic_histogram(TABLES[4], counts.values(), one) == basic_histogram(TABLES[4], [900, 0, 300], other)


# 14


def joint(query: BitQuery, counts: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
    """The law of a release of two keys, over all tapes."""
    found: dict[tuple[int, ...], Fraction] = {}
    for values in product(range(query.draws), repeat=2):
        output = tuple(basic_histogram(query, counts, ChosenIntegers(*values)))
        found[output] = found.get(output, Fraction(0)) + Fraction(1, query.draws**2)
    return found


def test_keys_are_drawn_independently_each_by_the_law_of_its_count() -> None:
    query = RawBits(ExactGeometric(2, Base(1, 2)), 5)
    for counts in product(range(3), repeat=2):
        one, other = (law(query, count) for count in counts)
        assert joint(query, counts) == {(a, b): one[a] * other[b] for a, b in product(range(3), repeat=2)}


def test_the_ratio_of_two_keys_is_that_of_the_counts_that_move(vectors: dict[str, Any]) -> None:
    row = vectors["neighbour_relations"]
    query = geo_sample(row["N_cap"], 1)
    of = laws(query)
    tables = [counts for counts in product(range(4), repeat=2) if sum(counts) <= row["N_cap"]]

    def worst(moved: int, *, in_all: int) -> Fraction:
        pairs = [
            (a, b)
            for a, b in product(tables, repeat=2)
            if sum(abs(x - y) for x, y in zip(a, b, strict=True)) == moved and abs(sum(a) - sum(b)) == in_all
        ]
        outputs = list(product(range(4), repeat=2))
        return max(
            of[a[0]][x] * of[a[1]][y] / (of[b[0]][x] * of[b[1]][y])
            for a, b in pairs
            if max(abs(p - q) for p, q in zip(a, b, strict=True)) == 1
            for x, y in outputs
        )

    assert worst(2, in_all=0) == Fraction(row["substitution_ratio"]) == query.ratio**2
    assert worst(1, in_all=1) == Fraction(row["add_remove_ratio_with_padding"]) == query.ratio
    # A user who brings one of each: as dear as a substitution.
    assert worst(2, in_all=2) == query.ratio**2


# 41


def test_the_clamp_gives_an_empty_key_the_listed_mean(vectors: dict[str, Any]) -> None:
    for row in vectors["clamp_bias_at_zero"]:
        table = GeometricTable(16, Base.dyadic(row["k"]), 64)
        listed = Fraction(row["mean_output_for_c0_n_infinite"])
        assert abs(mean_absolute(table, 0) - listed) < Fraction(1, 10**6)
    mean = sum(z * p for z, p in enumerate(law(geo_sample(40, 1), 0)))
    assert abs(mean - Fraction(6, 5)) < Fraction(1, 10**6)


# 44


def simultaneous(table: GeometricTable, keys: int, beta: Fraction) -> int:
    """At most the least a that all of so many keys keep to with probability 1 - beta.

    (1 - m)^keys >= 1 - beta makes keys m at most -ln (1 - beta), which is below beta + beta^2 for beta <= 1/2.
    """
    return interval(table, 1 - (beta + beta**2) / keys)


def test_no_accuracy_is_better_than_the_lower_bounds_allow(vectors: dict[str, Any]) -> None:
    beta = Fraction(1, 20)
    for row in vectors["lower_bounds"]:
        keys = 1 << row["log2_X"]
        table = GeometricTable(24, Base.within(Fraction(1, 2 * row["inv_eps"])), row["log2_X"] + 40)
        assert interval(table, 1 - beta) >= row["thm7_1_per_query"]
        assert simultaneous(table, keys, beta) >= row["thm7_1_simultaneous"]


def test_noise_for_a_larger_epsilon_is_found_by_the_lower_bounds(vectors: dict[str, Any]) -> None:
    row = vectors["lower_bounds"][1]
    mutant = GeometricTable(24, Base.within(Fraction(1)), 104)
    assert interval(mutant, Fraction(19, 20)) < row["thm7_1_per_query"]
    assert simultaneous(mutant, 1 << row["log2_X"], Fraction(1, 20)) < row["thm7_1_simultaneous"]


def test_the_simultaneous_error_of_a_catalogue_is_the_listed_one(vectors: dict[str, Any]) -> None:
    """Section 3.4, "tight": 8 and 42 for a catalogue of 2^20 keys at epsilon 1; the floor of 2^-64 changes nothing."""
    for row in vectors["figures_3_to_6_numeric"]:
        per_query, all_keys = row["fig3_basic"]["GeoSample_tight_eps_tilde"]
        query = geo_sample(row["n"], row["inv_eps"])
        assert miss(query, per_query) <= Fraction(1, 20)
        assert miss(query, all_keys) * (1 << row["log2_X"]) <= Fraction(1, 20)


def test_counts_beyond_a_machine_word_are_noised_one_by_one() -> None:
    """Such a table is not for `numpy`: its counts would overflow."""
    query = GeometricTable(63, Base.within(Fraction(20)), 8)
    near = basic_histogram(query, [query.bound], KeyedBits(b"wide", b""))
    assert near == [query.sample(query.bound, KeyedBits(b"wide", b"").bits(query.bits) + 1)]
    assert query.bound - near[0] < 100
