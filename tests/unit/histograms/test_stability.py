"""Histograms over the keys that occur: the least thresholds, and the exact delta of every pair of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from experiments.finite.samplers import ceil_times_ln, fast_sample, geo_sample
from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.histograms.basic import stability_histogram, stability_threshold
from stream_dp.histograms.counting_queries import Base, CountingQuery, ExactGeometric, GeometricTable, RawBits
from tests.support.query_laws import ChosenIntegers, excess, law

Shown = dict[int, Fraction]
"""The law of what a release shows of one key; 0 is nothing."""
View = Callable[[CountingQuery, int, int], Shown]
Counts = tuple[int, ...]


def shown(query: CountingQuery, count: int, b: int) -> Shown:
    """A key that does not occur is never shown, others above the threshold."""
    if count == 0:
        return {0: Fraction(1)}
    of = law(query, count)
    return {0: sum(of[: b + 1], Fraction(0))} | {z: of[z] for z in range(b + 1, query.bound + 1)}


def shown_at(query: CountingQuery, count: int, b: int) -> Shown:
    """The mutant with ">= b"."""
    return shown(query, count, b - 1)


def shown_always(query: CountingQuery, count: int, _b: int) -> Shown:
    """The mutant without a threshold: noise on the keys that occur."""
    return {0: Fraction(1)} if count == 0 else {z + 1: p for z, p in enumerate(law(query, count))}


def joint(query: CountingQuery, counts: Counts, b: int, view: View = shown) -> dict[Counts, Fraction]:
    """The law of a release of some keys."""
    found: dict[Counts, Fraction] = {(): Fraction(1)}
    for count in counts:
        of = view(query, count, b)
        found = {(*before, z): p * q for before, p in found.items() for z, q in of.items()}
    return found


def worst(
    pairs: Iterator[tuple[Counts, Counts]], query: CountingQuery, b: int, ratio: Fraction, view: View
) -> Fraction:
    """The largest delta of pairs of inputs, in either direction."""
    return max(
        excess(joint(query, one, b, view), joint(query, other, b, view), ratio)
        for pair in pairs
        for one, other in (pair, pair[::-1])
    )


def substitutions(n: int) -> Iterator[tuple[Counts, Counts]]:
    """One row of key 1 becomes one of key 2; the other keys are the same."""
    return (((a, c), (a - 1, c + 1)) for a in range(1, n + 1) for c in range(n) if a + c <= n)


def users(n: int, keys: int, items: int) -> Iterator[tuple[Counts, Counts]]:
    """A user with some items, one of each, joins; counts as they are without the user."""
    for counts in product(range(n), repeat=keys):
        yield counts, tuple(count + (key < items) for key, count in enumerate(counts))


def hidden(query: CountingQuery, b: int) -> Fraction:
    """Pr[M(1) > b]."""
    return sum(law(query, 1)[b + 1 :], Fraction(0))


# 15


@pytest.fixture(scope="module")
def listed(vectors: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in vectors["stability"] if "delta" in row]


def delta_of(row: dict[str, Any]) -> Fraction:
    one, power = row["delta"].split("/")
    return Fraction(int(one), 1 << int(power.removeprefix("2^")))


def test_the_least_thresholds_are_the_listed_ones(listed: list[dict[str, Any]]) -> None:
    for row in listed:
        n, e, delta = row["n"], row["inv_eps"], delta_of(row)
        geo, fast = geo_sample(n, e), fast_sample(n, e, int(row["thm5_6_inv_gamma"]))
        for query, name in ((geo, "exact_min_b_geosample"), (fast, "exact_min_b_fastsample")):
            b = stability_threshold(query, delta)
            assert b == row[name]
            assert 2 * (query.draws - query.cdf(1, b)) * delta.denominator <= query.draws
            assert 2 * (query.draws - query.cdf(1, b - 1)) * delta.denominator > query.draws


def test_the_thresholds_of_the_paper_are_the_listed_ones(listed: list[dict[str, Any]]) -> None:
    for row in listed:
        rate = Fraction(9 * row["inv_eps"], 2)
        assert 1 + ceil_times_ln(rate, 2 / delta_of(row)) == row["paper_b_geosample"]
        assert 1 + ceil_times_ln(rate, 4 / delta_of(row)) == row["paper_b_fastsample"]


def test_the_sharp_thresholds_are_the_listed_ones(vectors: dict[str, Any]) -> None:
    for row in vectors["derived_stability_b_tight"]:
        query = geo_sample(row["n"], row["inv_eps"])
        assert stability_threshold(query, delta_of(row), sharp=True) == row["b_geosample"]


def test_each_threshold_of_a_small_query_has_the_listed_delta(vectors: dict[str, Any]) -> None:
    query = geo_sample(6, 1)
    for b, delta in vectors["stability"][-1]["b_to_2Pr_M1_gt_b"]:
        assert 2 * hidden(query, b) == Fraction(delta)
        if Fraction(delta) < 1:
            assert stability_threshold(query, Fraction(delta)) == b
            assert stability_threshold(query, Fraction(delta) * Fraction(999, 1000)) == b + 1


def test_a_threshold_counts_the_uniform_outputs_of_a_table() -> None:
    """With a floor of delta / 4 they cost two steps; with one of delta the threshold is half the bound."""
    delta = Fraction(1, 1 << 40)
    base = Base.dyadic(1)
    assert stability_threshold(GeometricTable(16, base, 42), delta) == 71
    assert stability_threshold(GeometricTable(16, base, 40), delta) == (1 << 15) - 1


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1), 0.5])
def test_a_threshold_without_a_delta_between_0_and_1_is_refused(delta: Any) -> None:
    with pytest.raises(ParameterError, match="delta: must be an exact fraction between 0 and 1"):
        stability_threshold(geo_sample(6, 1), delta)


# 16, 17


def test_the_delta_of_a_substitution_is_the_chance_to_show_a_lone_row(vectors: dict[str, Any]) -> None:
    for row in vectors["stability_exact"]:
        query, b = geo_sample(row["n"], row["inv_eps"]), row["b"]
        p = hidden(query, b)
        found = worst(substitutions(row["n"]), query, b, query.ratio**2, shown)
        assert found == p == Fraction(row["worst_hockey_stick_at_(1+2^-k)^2"]) == Fraction(row["Pr_M1_gt_b"])
        assert found <= Fraction(row["paper_delta_2Pr"])


def test_a_threshold_that_is_reached_instead_of_exceeded_is_refused_by_the_check(vectors: dict[str, Any]) -> None:
    for row in vectors["stability_exact"]:
        query, b = geo_sample(row["n"], row["inv_eps"]), row["b"]
        if b:
            mutant = worst(substitutions(row["n"]), query, b, query.ratio**2, shown_at)
            assert mutant == Fraction(row["mutant_ge_hockey_stick"]) > hidden(query, b)


def test_keys_that_occur_with_noise_but_no_threshold_are_refused_by_the_check() -> None:
    query = geo_sample(4, 1)
    assert worst(substitutions(4), query, 3, query.ratio**2, shown_always) == 1 > 2 * hidden(query, 3)


BASES = [Base.dyadic(1), Base.dyadic(2), Base(1, 4), Base(9, 10)]


def test_the_sharp_delta_of_a_substitution_needs_no_condition_on_it() -> None:
    """The factor of a bin that fills is above the ratio where p > 1 - u / w; its excess is still at most p."""
    beyond = set()
    for base, b in product(BASES, range(4)):
        query = ExactGeometric(4, base)
        p = hidden(query, b)
        beyond.add(p > 1 - Fraction(base.u, base.w))
        assert worst(substitutions(4), query, b, query.ratio**2, shown) == p
    assert beyond == {True, False}


@pytest.mark.parametrize("base", BASES, ids=str)
@pytest.mark.parametrize(("keys", "n"), [(2, 3), (3, 2)])
def test_a_user_of_several_items_has_the_stated_delta_exactly(keys: int, n: int, base: Base) -> None:
    query = ExactGeometric(n, base)
    for b in range(n):
        p = hidden(query, b)
        for items in range(1, keys + 1):
            found = worst(users(n, keys, items), query, b, query.ratio**items, shown)
            assert found == 1 - (1 - p) ** items <= items * p


def test_a_user_of_several_items_exceeds_the_delta_of_one() -> None:
    query = ExactGeometric(3, Base.dyadic(1))
    p = hidden(query, 2)
    assert worst(users(3, 2, 2), query, 2, query.ratio**2, shown) > p


def test_the_law_of_a_release_is_the_one_enumerated_here() -> None:
    query = RawBits(ExactGeometric(2, Base(1, 2)), 5)
    for counts in product(range(3), repeat=2):
        occurring = {key: count for key, count in zip("ab", counts, strict=True) if count}
        for b in range(3):
            found: dict[Counts, Fraction] = {}
            for values in product(range(query.draws), repeat=len(occurring)):
                released = dict(stability_histogram(query, b, occurring, ChosenIntegers(*values)))
                assert set(released) <= set(occurring)
                output = released.get("a", 0), released.get("b", 0)
                found[output] = found.get(output, Fraction(0)) + Fraction(1, query.draws ** len(occurring))
            assert found == {output: p for output, p in joint(query, counts, b).items() if p}


# the release


@pytest.mark.parametrize("b", [0, 1, 4, 15])
def test_a_release_is_the_noisy_counts_above_the_threshold_in_the_order_of_the_keys(b: int) -> None:
    table = GeometricTable(4, Base.dyadic(3), 8)
    counts = {b"key-%d" % (i * 37 % 100): i % 9 for i in range(100)}
    bits = KeyedBits(b"stability", b"order")
    expected = [(key, table.draw(count, bits)) for key, count in sorted(counts.items()) if count]
    released = stability_histogram(table, b, counts, KeyedBits(b"stability", b"order"))
    assert released == [(key, noisy) for key, noisy in expected if noisy > b]
    assert any(noisy == b for _, noisy in expected)
    assert bool(released) == (b < 15)


def test_a_release_does_not_depend_on_the_order_of_the_table_or_on_its_zeros() -> None:
    table = GeometricTable(10, Base.dyadic(1), 30)
    counts = {key: 10 * key for key in range(1, 50)}
    turned = {0: 0, **dict(reversed(counts.items())), 99: 0}
    one, other = (stability_histogram(table, 20, each, KeyedBits(b"s", b"o")) for each in (counts, turned))
    assert one == other != []


def test_the_bits_of_a_release_are_those_of_the_keys_that_occur() -> None:
    table = GeometricTable(4, Base.dyadic(1), 8)
    source = ChosenIntegers(0)
    stability_histogram(table, 3, {b"a": 2, b"b": 0, b"c": 1, b"d": 9}, source)
    assert source.asked == [3 * table.bits]


@pytest.mark.parametrize("b", [-1, 16])
def test_a_threshold_outside_of_the_outputs_is_refused(b: int) -> None:
    with pytest.raises(ParameterError, match="b: must lie between 0 and 15"):
        stability_histogram(GeometricTable(4, Base.dyadic(1), 8), b, {b"a": 1}, ChosenIntegers())


def test_a_negative_count_is_refused_before_anything_is_drawn() -> None:
    with pytest.raises(StateError, match="at least 0, not -2"):
        stability_histogram(GeometricTable(4, Base.dyadic(1), 8), 3, {b"a": -2}, ChosenIntegers())


# 44


def measured(table: GeometricTable, b: int, beta: Fraction) -> int:
    """The least a such that every count is within a of what is shown, with probability 1 - beta.

    Counts of at most a may stay hidden. The hardest of the others is a + 1.
    """
    a = b
    while table.cdf(a + 1, 2 * a + 1) - table.cdf(a + 1, b) < (1 - beta) * table.draws:
        a += 1
    return a


def test_no_release_of_keys_that_occur_is_better_than_the_lower_bounds_allow(vectors: dict[str, Any]) -> None:
    for row in vectors["lower_bounds"]:
        delta = Fraction(1, 1 << int(row["delta"].removeprefix("2^-")))
        table = GeometricTable(24, Base.within(Fraction(1, 2 * row["inv_eps"])), 130)
        b = stability_threshold(table, delta, sharp=True)
        assert measured(table, b, Fraction(1, 20)) >= row["thm7_2_sparse_per_query"]


def test_a_release_without_a_threshold_is_found_by_the_lower_bounds(vectors: dict[str, Any]) -> None:
    row = vectors["lower_bounds"][1]
    table = GeometricTable(24, Base.within(Fraction(1, 20)), 130)
    assert measured(table, 0, Fraction(1, 20)) < row["thm7_2_sparse_per_query"]
