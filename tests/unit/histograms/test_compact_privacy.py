"""The guarantee of the compact histogram, by exact enumeration; every broken variant must break it.

A polynomial and its values at as many places as it has coefficients determine each other. So the worst ratio over all
polynomials is the product, over the keys, of the worst ratio over all elements that a key may get.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache, cached_property
from itertools import combinations, permutations, product
from math import prod
from typing import Any

import pytest

from stream_dp.histograms.compact import Compact, truncated
from stream_dp.histograms.counting_queries import (
    Base,
    CountingQuery,
    ExactGeometric,
    GeometricTable,
    RawBits,
    ceil_log2,
)
from stream_dp.histograms.galois_fields import Field

INFINITE = Fraction(10**9)
"""An output that only one of two tables can give."""


def ratio(one: Fraction, other: Fraction) -> Fraction:
    if one == other == 0:
        return Fraction(1)
    return max(one / other, other / one) if one and other else INFINITE


def probability(query: CountingQuery, count: int, noisy: int) -> Fraction:
    return Fraction(query.cdf(count, noisy) - query.cdf(count, noisy - 1), query.draws)


# The law of a polynomial, for any laws of the elements.

QUARTERS = [Fraction(1, 4)] * 4
LAWS = {
    0: QUARTERS,
    1: [Fraction(n, 16) for n in (7, 3, 4, 2)],
    2: [Fraction(n, 16) for n in (8, 1, 2, 5)],
}
"""Of the element of GF(4) that a key with a count gets; uniform for an absent key."""


def law_of_polynomials(counts: Mapping[int, int], fill: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
    """By interpolation of all values at the kept keys and at the places that fill them up."""
    field, law = Field(0), dict[tuple[int, ...], Fraction]()
    places = (*counts, *fill)
    for values in product(range(4), repeat=len(places)):
        polynomial = tuple(field.interpolated(list(zip(places, values, strict=True))))
        chance = prod((LAWS[counts.get(x, 0)][y] for x, y in zip(places, values, strict=True)), start=Fraction(1))
        law[polynomial] = law.get(polynomial, Fraction(0)) + chance
    return law


@pytest.mark.parametrize("coefficients", [2, 3])
def test_the_law_of_a_polynomial_is_a_product_over_all_keys_whatever_places_fill_it_up(coefficients: int) -> None:
    for number in range(coefficients + 1):
        for keys in combinations(range(4), number):
            counts = {key: 1 + key % 2 for key in keys}
            others = [x for x in range(4) if x not in keys]
            laws = [law_of_polynomials(counts, fill) for fill in combinations(others, coefficients - number)]
            assert all(law == laws[0] for law in laws)
            for polynomial, chance in laws[0].items():
                values = [value_at(polynomial, x) for x in range(4)]
                factors = (4 * LAWS[counts.get(x, 0)][y] for x, y in enumerate(values))
                assert chance == prod(factors, start=Fraction(1)) / 4**coefficients


def value_at(polynomial: tuple[int, ...], x: int) -> int:
    total, field = 0, Field(0)
    for coefficient in reversed(polynomial):
        total = field.product(total, x) ^ coefficient
    return total


def test_as_many_coefficients_as_kept_keys_are_enough_for_the_guarantee() -> None:
    """Specs/finite pitfall 18 asks for |A union A'|: here that is 4, each table has 2 keys, and 2 coefficients."""
    one, other = law_of_polynomials({0: 1, 1: 1}, ()), law_of_polynomials({2: 1, 3: 1}, ())
    per_key = max(ratio(f, Fraction(1, 4)) for f in LAWS[1])

    assert set(one) == set(other)
    assert max(ratio(one[p], other[p]) for p in one) <= per_key**4


# The vectors: uniform elements of level sets, queries whose number of draws does not divide the size of the field.


def test_worst_ratios_over_all_polynomials_are_those_of_the_vectors(vectors: dict[str, Any]) -> None:
    for entry in vectors["compact_exact_privacy"]:
        bound, keys, k = entry["n"], entry["X"], ceil_log2(2 * entry["inv_eps1"])
        query = ExactGeometric(bound, Base.dyadic(k))
        absent = RawBits(query, entry["log2_d0"])
        level = [absent.cdf(0, v) - absent.cdf(0, v - 1) for v in range(bound + 1)]
        laws = [[Fraction(1, absent.draws)] * (bound + 1)]
        laws += [[probability(query, c, v) / level[v] for v in range(bound + 1)] for c in range(1, bound + 1)]

        tables = [table for table in product(range(bound + 1), repeat=keys) if sum(table) == bound]
        worst = max(
            prod(
                max(one / other for one, other in zip(laws[a], laws[b], strict=True)) for a, b in zip(x, y, strict=True)
            )
            for x, y in permutations(tables, 2)
            if sum(abs(a - b) for a, b in zip(x, y, strict=True)) == 2
        )

        assert query.draws == entry["d"]
        assert level == entry["S_sizes"]
        assert worst == Fraction(entry["worst_ratio_over_polynomials"])
        each, more = divmod(absent.draws, query.draws)
        limit = query.ratio**2 * Fraction(each + 1, each)
        assert more
        assert worst <= limit == Fraction(entry["derived_ledger_ratio_(1+2^-k)^2*(q+1)/q"])


# The product: elements of level sets from raw bits.


class Element:
    """The law of the element that a key gets, from `Compact.element` itself, near the ends of the level sets."""

    def __init__(self, compact: Compact) -> None:
        self.compact, self.bound = compact, compact.query.bound
        absent = RawBits(compact.query, compact.field.degree)
        starts = [absent.cdf(0, v) for v in range(-1, self.bound + 1)]
        near = {start + offset for start in starts for offset in range(-2, 3)}
        self.elements = sorted(element for element in near if 0 <= element < absent.draws)
        self.chance, self.worst = cache(self._chance), cache(self._worst)

    def places(self, noisy: int, element: int) -> int:
        """How many of the equally likely places lead to an element: `element` rises with the place."""

        def first(wanted: int) -> int:
            low, high = 0, 1 << self.compact.place_bits
            while low < high:
                middle = (low + high) // 2
                is_below = self.compact.element(noisy, middle) < wanted
                low, high = (middle + 1, high) if is_below else (low, middle)
            return low

        return first(element + 1) - first(element)

    def _chance(self, count: int, element: int) -> Fraction:
        if count == 0:
            return Fraction(1, 1 << self.compact.field.degree)
        return sum(
            (
                probability(self.compact.query, count, v)
                * Fraction(self.places(v, element), 1 << self.compact.place_bits)
                for v in range(self.bound + 1)
            ),
            Fraction(0),
        )

    def _worst(self, count: int, other: int) -> Fraction:
        clamped, against = min(count, self.bound), min(other, self.bound)
        return max(ratio(self.chance(clamped, e), self.chance(against, e)) for e in self.elements)


def compact(h: int, base: Base, g: int, rows: int = 2, items_per_user: int = 1) -> Compact:
    return Compact(GeometricTable(h, base, g), rows, 1, items_per_user)


QUERIES = [
    (1, Base(1, 7), 1),
    (1, Base(1, 2), 3),
    (2, Base(1, 2), 1),
    (2, Base(2, 3), 2),
    (2, Base(607, 1000), 1),
    (3, Base.dyadic(5), 1),
    (2, Base(1, 1000), 4),
]


@pytest.mark.parametrize("parameters", QUERIES)
def test_one_count_costs_the_ratio_of_the_query_and_the_level_sets_nothing(parameters: tuple[int, Base, int]) -> None:
    element = Element(compact(*parameters))

    for count in range(element.bound):
        assert 1 < element.worst(count, count + 1) <= element.compact.query.ratio


@pytest.mark.parametrize("parameters", QUERIES)
def test_the_first_element_of_a_level_set_is_the_most_likely_and_the_last_the_least(
    parameters: tuple[int, Base, int],
) -> None:
    """So the ends show the worst ratio: places that cannot be shared out evenly go to some elements, one to each."""
    element = Element(compact(*parameters))
    absent = RawBits(element.compact.query, element.compact.field.degree)

    for v in range(element.bound + 1):
        start, end = absent.cdf(0, v - 1), absent.cdf(0, v)
        each, more = divmod(1 << element.compact.place_bits, end - start)
        assert element.places(v, start) == each + bool(more)
        assert element.places(v, end - 1) == each
        assert all(each <= element.places(v, start + (end - start) * at // 7) <= each + 1 for at in range(7))


@pytest.mark.parametrize("h", [1, 2, 3, 5])
@pytest.mark.parametrize("g", [1, 2, 9])
def test_the_room_in_the_table_is_larger_than_what_the_choice_of_elements_needs(h: int, g: int) -> None:
    """The inequality of the module's proof, with its e at the bound, for coarse, fine and odd bases."""
    for base in (Base(1, 2), Base(1, 1000), Base(32, 33), Base(607, 1000), Base(999, 1000), Base(2**20, 2**20 + 1)):
        query = GeometricTable(h, base, g)
        most = Fraction(base.w - base.u, 4 * base.w << h + g)
        for v in range(query.bound + 1):
            absent, present = probability(query, 0, v), probability(query, 1, v)
            assert present * (1 + most * absent) <= query.ratio * absent
            assert absent <= query.ratio * (1 - most * absent) * present


KEYS = (1, 2, 3, 4)
SALTS = (b"", b"a", b"b")


def neighbours(items_per_user: int) -> Iterator[tuple[dict[int, int], dict[int, int]]]:
    """All tables with counts up to 2, and the same with one user more."""
    for counts in product(range(3), repeat=len(KEYS)):
        table = dict(zip(KEYS, counts, strict=True))
        for number in range(1, items_per_user + 1):
            for keys in combinations(KEYS, number):
                yield table, {key: count + (key in keys) for key, count in table.items()}


def worst_over_tables(element: Element, items_per_user: int) -> tuple[Fraction, Fraction]:
    """The worst ratio over all pairs of tables and all polynomials where contributions are cut off, and elsewhere."""
    rows, worst = element.compact.rows, [Fraction(1), Fraction(1)]
    for (table, other), salt in product(neighbours(items_per_user), SALTS):
        kept, others = truncated(table, rows, salt), truncated(other, rows, salt)
        found = prod((element.worst(kept.get(key, 0), others.get(key, 0)) for key in KEYS), start=Fraction(1))
        is_whole = sum(other.values()) <= rows
        worst[is_whole] = max(worst[is_whole], found)
    return worst[0], worst[1]


@pytest.mark.parametrize("items_per_user", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("parameters", [(1, Base(1, 7), 1), (2, Base(2, 3), 2), (2, Base(1, 2), 6)])
def test_a_user_costs_no_more_than_the_ratio_and_its_root_where_nothing_is_cut_off(
    parameters: tuple[int, Base, int], rows: int, items_per_user: int
) -> None:
    element = Element(compact(*parameters, rows, items_per_user))

    cut, whole = worst_over_tables(element, items_per_user)

    query = element.compact.query
    assert element.compact.ratio == query.base.ratio ** (2 * items_per_user)
    assert cut <= element.compact.ratio
    assert whole <= query.base.ratio**items_per_user


def test_half_the_price_would_be_too_little_where_contributions_are_cut_off() -> None:
    element = Element(compact(2, Base(1, 2), 6))

    cut, _ = worst_over_tables(element, 1)

    assert cut > element.compact.query.ratio


# Broken variants: each must break the guarantee.


class StartsLate(Compact):
    """Level sets begin one element late."""

    def element(self, noisy: int, place: int) -> int:
        return super().element(noisy, place) + 1


class EndsEarly(Compact):
    """Level sets end one element early."""

    def element(self, noisy: int, place: int) -> int:
        absent = RawBits(self.query, self.field.degree)
        start = absent.cdf(0, noisy - 1)
        return start + ((absent.cdf(0, noisy) - start - 1) * place >> self.place_bits)


class SavesBits(Compact):
    """Places have no more bits than elements."""

    @cached_property
    def place_bits(self) -> int:
        return self.field.degree


@pytest.mark.parametrize("broken", [StartsLate, EndsEarly, SavesBits])
def test_a_broken_choice_of_elements_costs_more_than_the_ratio(broken: type[Compact]) -> None:
    right = compact(2, Base.dyadic(5), 6)
    element = Element(broken(right.query, right.rows, right.key_bytes, right.items_per_user))

    assert Element(right).worst(0, 1) <= right.query.ratio < element.worst(0, 1)
