"""The exact law of the shipped pure top-k, put together from its parts for all their random numbers, and its ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import pytest

from experiments.finite.sparse import Law, distance, fallback_law, keep_heavy_law, mixed_law, worst_ratio
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.histograms.counting_queries import Base, CountingQuery, GeometricTable
from stream_dp.histograms.order import largest_values
from stream_dp.histograms.pure_top_k import Cell, PureTopK, distinct_absent, scaled, strictly_above_next
from tests.support.order_laws import first_true, law_of_largest
from tests.support.tapes import RecordedBits

SLOW = "one of four keys, fallback 1 in 8"
Table = tuple[int, ...]
"""Counts of the keys 1, 2, ..."""
Cut = Callable[[Sequence[Cell], int], Iterable[Cell]]


def small(h: int, k: int, universe: int, items: int, fallback_bits: int) -> PureTopK:
    return PureTopK(GeometricTable(h, Base.dyadic(1), 11), k, universe, items, fallback_bits)


ONE_KEY = small(2, 1, 3, 1, 1)
CASES = {
    "one of three keys": ONE_KEY,
    "one of three keys, two items per user": small(2, 1, 3, 2, 1),
    SLOW: small(2, 1, 4, 2, 3),
    "two of four keys": small(1, 2, 4, 2, 1),
    "two of three keys": small(2, 2, 3, 1, 2),
    "two of five keys, one bit each": small(1, 2, 5, 2, 2),
}


EVERY = [pytest.param(name, marks=pytest.mark.slow if name == SLOW else ()) for name in CASES]


@cache
def pmf(query: CountingQuery) -> list[list[Fraction]]:
    everything = range(query.bound + 1)
    return [[Fraction(query.cdf(c, z) - query.cdf(c, z - 1), query.draws) for z in everything] for c in everything]


@cache
def choices(bits: int, n: int) -> dict[int, Fraction]:
    """The law of `scaled`, which rises with its bits."""
    ends = [first_true(lambda r, z=z: scaled(r, bits, n) > z, 0, 1 << bits) for z in range(n + 1)]  # type: ignore[misc]
    assert (scaled(0, bits, n), scaled((1 << bits) - 1, bits, n)) == (1, n)
    return {z: Fraction(ends[z] - ends[z - 1], 1 << bits) for z in range(1, n + 1)}


@cache
def names(p: PureTopK, held: Table) -> list[tuple[list[int], Fraction]]:
    left = p.universe - len(held)
    laws = [choices(p.choice_bits, left - i) for i in range(min(p.k + 1, left))]
    found = []
    for drawn in product(*laws):
        chance = Fraction(1)
        for law, z in zip(laws, drawn, strict=True):
            chance *= law[z]
        found.append((distinct_absent(held, drawn), chance))
    return found


@cache
def orders(query: CountingQuery, left: int, places: int, precision: int) -> list[tuple[Table, Fraction]]:
    return list(law_of_largest(query, left, places, precision).items())


def simulated(
    p: PureTopK, counts: Table, *, order_bits: int = 0, slots: Table = (), cut: Cut = strictly_above_next
) -> Law:
    """The law of the branch that depends on the data; `slots`: keys that are observed with no count."""
    held = tuple(key for key, count in enumerate(counts, 1) if count or key in slots)
    left, rows, law = p.universe - len(held), pmf(p.query), Law()
    for noisy in product(range(p.query.bound + 1), repeat=len(held)):
        chance = Fraction(1)
        for key, z in zip(held, noisy, strict=True):
            chance *= rows[counts[key - 1]][z]
        for values, share in orders(p.query, left, min(p.k + 1, left), order_bits or p.order_bits):
            for keys, part in names(p, held):
                release = tuple(cut([*zip(held, noisy, strict=True), *zip(keys, values, strict=True)], p.k))
                law[release] = law.get(release, Fraction(0)) + chance * share * part
    return law


@cache
def fallback(p: PureTopK) -> Law:
    """The law of the other branch: all its tapes."""
    size, law = p.k * (p.key_bits + p.query.h), Law()
    for tape in range(1 << size):
        release = tuple(p._draw_fallback(RecordedBits((tape << -size % 8).to_bytes((size + 7) // 8, "big"))))
        law[release] = law.get(release, Fraction(0)) + Fraction(1, 1 << size)
    return law


def gamma(p: PureTopK) -> Fraction:
    return Fraction(1, 1 << p.fallback_bits)


def tables(p: PureTopK) -> list[Table]:
    return list(product(range(p.query.bound + 1), repeat=p.universe))


def moved(counts: Table, bound: int, items: int, by: int) -> Iterator[Table]:
    """Every table in which one user's items have been added (`by` 1) or removed (-1)."""
    for change in product((0, by), repeat=len(counts)):
        other = tuple(c + d for c, d in zip(counts, change, strict=True))
        if 0 < sum(map(abs, change)) <= items and all(0 <= c <= bound for c in other):
            yield other


def worst(p: PureTopK, laws: dict[Table, Law], *, substituted: bool = False) -> Fraction | None:
    """The largest ratio over all neighbours and releases; None if one of two neighbours cannot have a release."""
    largest = Fraction(1)
    for counts, law in laws.items():
        others = list(moved(counts, p.query.bound, p.items_per_user, -1))
        if substituted:
            others = [y for x in others for y in moved(x, p.query.bound, p.items_per_user, 1) if y > counts]
        for other in others:
            ratio = worst_ratio(law, laws[other])
            if ratio is None:
                return None
            largest = max(largest, ratio)
    return largest


def released(p: PureTopK, **words: Any) -> dict[Table, Law]:
    return {counts: mixed_law(simulated(p, counts, **words), fallback(p), gamma(p)) for counts in tables(p)}


@pytest.mark.parametrize("name", EVERY)
def test_the_simulation_is_within_its_error_of_noise_on_every_key(name: str) -> None:
    p = CASES[name]
    for counts in tables(p):
        if counts == tuple(sorted(counts, reverse=True)) or counts == tuple(sorted(counts)):
            assert distance(simulated(p, counts), keep_heavy_law(pmf(p.query), counts, p.k)) <= p.error


@pytest.mark.parametrize("name", EVERY)
def test_the_fallback_has_every_release_and_none_below_its_minimum(name: str) -> None:
    p = CASES[name]

    assert fallback(p).keys() == fallback_law(p.universe, p.query.bound, p.k).keys()
    assert min(fallback(p).values()) >= p.fallback_minimum
    if p.universe & (p.universe - 1) == 0 or p.k == 1:
        assert min(fallback(p).values()) == p.fallback_minimum


@pytest.mark.parametrize("name", EVERY)
def test_no_release_is_more_likely_than_the_price_allows_for_a_user_more_or_less(name: str) -> None:
    p = CASES[name]
    laws = released(p)

    ratio = worst(p, laws)

    assert all(sum(law.values()) == 1 for law in laws.values())
    assert ratio is not None
    assert 1 < ratio <= p.ratio == Fraction(3, 2) ** p.items_per_user


@pytest.mark.parametrize("name", ["one of three keys", "two of four keys", "two of three keys"])
def test_a_user_replaced_costs_two_users(name: str) -> None:
    p = CASES[name]

    ratio = worst(p, released(p), substituted=True)

    assert ratio is not None
    assert ratio <= p.ratio**2


@pytest.mark.parametrize("slots", [(1,), (2, 3), (1, 2, 3)])
def test_observed_keys_without_a_count_change_nothing_but_the_rounding(slots: Table) -> None:
    for counts in ((0, 0, 0), (0, 2, 0), (3, 0, 1)):
        law, ideal = simulated(ONE_KEY, counts, slots=slots), keep_heavy_law(pmf(ONE_KEY.query), counts, 1)
        assert distance(law, ideal) <= ONE_KEY.error


# What goes wrong without the parts that make it pure.


@pytest.mark.parametrize("name", ["one of three keys", "two of four keys", "two of three keys"])
def test_without_the_fallback_a_release_costs_more_than_the_price(name: str) -> None:
    p = CASES[name]
    ratio = worst(p, {counts: simulated(p, counts) for counts in tables(p)})

    assert ratio is not None
    assert ratio > p.ratio


def test_without_the_fallback_few_bits_make_a_release_impossible_for_one_of_two_neighbours() -> None:
    assert worst(ONE_KEY, {counts: simulated(ONE_KEY, counts, order_bits=3) for counts in tables(ONE_KEY)}) is None


def test_too_few_bits_for_the_order_statistics_cost_more_than_the_price() -> None:
    p = small(2, 1, 3, 1, 12)
    ratio = worst(p, released(p, order_bits=4))

    assert ratio is not None
    assert ratio > p.ratio


def test_a_cut_at_the_kth_and_a_cut_with_ties_are_not_the_ideal_mechanism() -> None:
    def kth(cells: Sequence[Cell], k: int) -> list[Cell]:
        cut = sorted((count for _, count in cells), reverse=True)[k - 1]
        return sorted(cell for cell in cells if cell[1] > cut)

    def with_ties(cells: Sequence[Cell], k: int) -> list[Cell]:
        cut = sorted((count for _, count in cells), reverse=True)[k]
        return sorted(cell for cell in cells if cell[1] >= max(cut, 1))[:k]

    ideal = keep_heavy_law(pmf(ONE_KEY.query), (2, 0, 0), 1)

    assert all(distance(simulated(ONE_KEY, (2, 0, 0), cut=cut), ideal) > Fraction(1, 100) for cut in (kth, with_ties))


# The draw puts the same parts together.


@pytest.mark.parametrize("name", EVERY)
def test_a_draw_is_made_of_these_parts(name: str) -> None:
    p = CASES[name]
    for run in range(60):
        counts = {1: 2, p.universe: 1} if run % 2 else dict.fromkeys(range(1, p.universe + 1 - run % 3), 1)

        one, other = (KeyedBits(name.encode(), b"%d" % run) for _ in range(2))

        assert p.draw(counts, one) == by_parts(p, counts, other)


def by_parts(p: PureTopK, counts: dict[int, int], source: BitSource) -> list[Cell]:
    is_fallback = source.bits(p.fallback_bits) == 0
    other = p._draw_fallback(source)
    held = sorted(counts)
    noisy = [(key, p.query.draw(min(counts[key], p.query.bound), source)) for key in held]
    left = p.universe - len(held)
    places = min(p.k + 1, left)
    drawn = [source.bits(p.choice_bits) for _ in range(p.k + 1)]
    uniforms = [source.bits(p.order_bits) + 1 for _ in range(p.k + 1)]
    keys = distinct_absent(held, [scaled(r, p.choice_bits, left - i) for i, r in enumerate(drawn[:places])])
    values = largest_values(p.query, left, uniforms[:places], p.order_bits)
    return other if is_fallback else strictly_above_next([*noisy, *zip(keys, values, strict=True)], p.k)
