"""Order statistics: the published algorithms against their vectors, and the shipped one against the exact law."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import accumulate, product
from math import comb
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.finite.samplers import geo_sample
from experiments.finite.sparse import (
    OrderLaw,
    binomial_counts,
    binomial_sample,
    convolution,
    convolution_power,
    distance,
    exact_step,
    jump_order_law,
    order_law,
    order_sample,
    rounded_step,
)
from stream_dp.exact.bits import KeyedBits
from stream_dp.histograms import order
from stream_dp.histograms.counting_queries import Base, CountingQuery, GeometricTable, ceil_log2
from stream_dp.histograms.order import largest_values, rounding_units
from tests.support.chosen import ordinarily
from tests.support.order_laws import first_true, law_of_largest, runs


class Listed(CountingQuery):
    """A query whose distribution function at 0 is a list."""

    def __init__(self, cdf: Sequence[int]) -> None:
        self.listed = list(cdf)
        self.bound, self.draws = len(cdf) - 1, cdf[-1]

    def cdf(self, count: int, z: int) -> int:
        return self.listed[z] if z >= 0 else 0


def at_zero(query: CountingQuery) -> list[int]:
    return [query.cdf(0, z) for z in range(query.bound + 1)]


def law_of(rows: dict[str, str]) -> OrderLaw:
    """A law of a vector: outcomes are spelled as lists."""
    return {tuple(int(z) for z in text.strip("[]").split(",")): Fraction(p) for text, p in rows.items()}


def withdrawn_law(cdf: Sequence[int], m: int, places: int) -> OrderLaw:
    """The next value by (F(z) / F(v))^(m - k): right for continuous noise, withdrawn by the authors."""
    states: OrderLaw = {(): Fraction(1)}
    for place in range(places):
        reached: OrderLaw = {}
        for values, chance in states.items():
            top = values[-1] if values else len(cdf) - 1
            powers = [Fraction(0)] + [Fraction(cdf[z], cdf[top]) ** (m - place) for z in range(top + 1)]
            for z in range(top + 1):
                reached[(*values, z)] = chance * (powers[z + 1] - powers[z])
        states = reached
    return states


def always(u: int) -> Callable[[int], int]:
    return lambda _: u


# The published algorithms.


def test_powers_are_those_of_the_vectors_and_shorter_ones_are_their_beginnings(vectors: dict[str, Any]) -> None:
    assert len(vectors["approx_conv_exp"]) == 4
    for row in vectors["approx_conv_exp"]:
        s, t, a, i = row["s"], row["t"], row["a"], row["i"]
        assert convolution_power(s, a, i) == row["out"]
        assert [convolution_power(s, a[:n], i) for n in range(1, t)] == [row["out"][:n] for n in range(1, t)]
        exact = [1] + [0] * (t - 1)
        for _ in range(i):
            exact = convolution(exact, a, t)
        errors = [abs(x * s ** (i - 1) - y) for x, y in zip(row["out"], exact, strict=True)]
        assert sum(errors) <= t * (i - 1) * s ** (i - 1)


def test_rounding_between_the_two_products_gives_other_powers(vectors: dict[str, Any]) -> None:
    def twice_rounded(s: int, a: list[int], i: int) -> list[int]:
        if i == 1:
            return a
        half = twice_rounded(s, a, i // 2)
        square = [x // s for x in convolution(half, half, len(a))]
        return square if i % 2 == 0 else [x // s for x in convolution(a, square, len(a))]

    assert any(twice_rounded(r["s"], r["a"], r["i"]) != r["out"] for r in vectors["approx_conv_exp"])


def test_binomial_numbers_are_those_of_the_vectors(vectors: dict[str, Any]) -> None:
    assert len(vectors["approx_bin_sample"]) == 5
    for row in vectors["approx_bin_sample"]:
        s, t, m, p, q = (row[name] for name in "stmpq")
        counts = binomial_counts(s, t, m, p, q)
        assert counts == row["counts_out_of_s"]
        for u, number in row["u_to_output"]:
            assert binomial_sample(s, t, m, p, q, always(u)) == number
        rounded, exact = (dict(enumerate(law)) for law in (rounded_step(s)(m, p, q, t), exact_step(m, p, q, t)))
        assert distance(rounded, exact) <= Fraction(m * (t + 1) - t, s)


@pytest.mark.parametrize("t", [0, 1, 3, 4, 5])
def test_a_binomial_number_is_found_for_every_uniform_number(t: int) -> None:
    found = Counter(binomial_sample(256, t, 9, 1, 3, always(u)) for u in range(1, 257))

    assert [found[number] for number in range(t + 1)] == binomial_counts(256, t, 9, 1, 3)


def test_laws_of_order_statistics_are_those_of_the_vectors_and_of_all_draws(vectors: dict[str, Any]) -> None:
    rows = vectors["order_statistics"]
    assert len(rows) == 5
    for row in rows[:-1]:
        cdf, m, places = row["F"], row["m"], row["n"] + 1
        exact = order_law(cdf, m, places)
        assert cdf == at_zero(geo_sample(row["n"], row["inv_eps"]))
        assert exact == law_of(row["exact_top_n_plus_1"]) == all_draws(cdf, m, places) == jump_order_law(cdf, m, places)
        wrong = withdrawn_law(cdf, m, places)
        assert wrong == law_of(row["withdrawn_formula"])
        assert distance(wrong, exact) == Fraction(row["tv_withdrawn_vs_exact"]) > Fraction(9, 100)
        s = row["approx_s"]
        rounded = order_law(cdf, m, places, rounded_step(s))
        assert 0 < distance(rounded, exact) <= Fraction(m * (row["n"] ** 2 + 2 * row["n"]), s)
    coin = rows[-1]
    assert all_draws(coin["F"], 2, 2) == jump_order_law(coin["F"], 2, 2) == law_of(coin["exact"])
    assert withdrawn_law(coin["F"], 2, 2) == law_of(coin["withdrawn"])


def all_draws(cdf: Sequence[int], m: int, places: int) -> OrderLaw:
    pmf = [Fraction(after - before, cdf[-1]) for before, after in zip([0, *cdf], cdf, strict=False)]
    law: OrderLaw = {}
    for values in product(range(len(cdf)), repeat=m):
        chance = Fraction(1)
        for z in values:
            chance *= pmf[z]
        top = tuple(sorted(values, reverse=True)[:places])
        law[top] = law.get(top, Fraction(0)) + chance
    return law


# The shipped one.


@given(
    precision=st.integers(1, 70),
    exponent=st.integers(1, 1 << 70),
    length=st.integers(1, 9),
    shares=st.tuples(st.fractions(0, 1), st.fractions(0, 1)),
)
@settings(max_examples=60, deadline=None)
def test_packed_sums_are_those_of_the_published_power(
    precision: int, exponent: int, length: int, shares: tuple[Fraction, Fraction]
) -> None:
    s = 1 << precision
    lower = int(shares[0] * s)
    here = int(shares[1] * (s - lower))
    terms = convolution_power(s, [lower, here, *[0] * length][:length], exponent)

    assert order._sums(lower, here, exponent, precision, length) == list(accumulate(terms))


@pytest.mark.parametrize(("precision", "doubtful"), [(8, 0), (9, 2), (9, 5)])
def test_every_uniform_number_leads_where_the_changes_say(
    monkeypatch: pytest.MonkeyPatch, precision: int, doubtful: int
) -> None:
    if doubtful:  # a coarse search of few bits
        units = rounding_units(2, 4, 2)
        monkeypatch.setattr(order, "_COARSE", doubtful - ceil_log2(units))
    query = geo_sample(2, 1)
    all_u = range(1, 1 + (1 << precision))
    firsts = [largest_values(query, 4, [u, 1], precision) for u in all_u]
    changes = [u for _, u in runs(query, 4, [], 2, precision)]

    assert changes[-1] == 1 << precision
    assert [u for u in all_u[:-1] if step(firsts[u - 1]) != step(firsts[u])] == changes[:-1]
    assert [step(values) for values in firsts] == sorted(step(values) for values in firsts)


def step(values: list[int]) -> list[int]:
    """The first level and the number of values there."""
    return [values[0], values.count(values[0])]


QUERIES = [(1, 1), (2, 1), (2, 2), (3, 1), (4, 3)]


@pytest.mark.parametrize(("bound", "e"), QUERIES)
@pytest.mark.parametrize(("m", "places"), [(1, 1), (3, 2), pytest.param(3, 3, marks=pytest.mark.slow), (6, 2)])
def test_the_law_is_within_its_bound_of_the_exact_one(bound: int, e: int, m: int, places: int) -> None:
    query = geo_sample(bound, e)
    exact = order_law(at_zero(query), m, places)

    for precision in (10, 100):
        law = law_of_largest(query, m, places, precision)
        assert sum(law.values()) == 1
        assert law.keys() <= exact.keys()
        assert distance(law, exact) <= Fraction(rounding_units(bound, m, places), 1 << precision)


def test_the_law_of_a_table_with_a_uniform_part_is_within_its_bound() -> None:
    table = GeometricTable(3, Base(2, 5), 3)

    law = law_of_largest(table, 5, 3, 60)

    assert distance(law, order_law(at_zero(table), 5, 3)) <= Fraction(rounding_units(7, 5, 3), 1 << 60)


@pytest.mark.parametrize("mutant", ["withdrawn", "same number left", "cap not lowered", "independent"])
def test_laws_of_wrong_steps_are_far_outside_the_bound(mutant: str) -> None:
    cdf, m, places = [9, 11, 15], 4, 2
    exact, limit = order_law(cdf, m, places), Fraction(rounding_units(2, m, places), 1 << 24)
    wrong: OrderLaw
    if mutant == "withdrawn":
        wrong = withdrawn_law(cdf, m, places)
    elif mutant == "same number left":
        wrong = order_law(cdf, m, places, lambda left, p, q, t: exact_step(m, p, q, t))
    elif mutant == "cap not lowered":  # the last number of a level comes out too large
        wrong = {}
        for values, chance in order_law(cdf, m, places + 1).items():
            top = (values[0], values[2])
            wrong[top] = wrong.get(top, Fraction(0)) + chance
    else:
        wrong = {}
        for values in product(range(3), repeat=places):
            chance = Fraction(1)
            for z in values:
                chance *= Fraction(cdf[z] - ([0, *cdf][z]), cdf[-1])
            top = (max(values), min(values))
            wrong[top] = wrong.get(top, Fraction(0)) + chance

    assert sum(wrong.values()) == 1
    assert distance(wrong, exact) > 1000 * limit
    assert distance(law_of_largest(Listed(cdf), m, places, 24), exact) <= limit


HUGE = GeometricTable(10, Base.dyadic(1), 80)
PRECISION = 200


def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Precisions of the searches, as they are made."""
    made: list[int] = []
    search = order._first_pair

    def noted(*words: Any) -> tuple[int, int, int]:
        made.append(words[-1])
        return search(*words)

    monkeypatch.setattr(order, "_first_pair", noted)
    return made


@pytest.mark.parametrize("coarse", [-20, -10, 64])
def test_two_precisions_give_the_values_of_one(monkeypatch: pytest.MonkeyPatch, coarse: int) -> None:
    source = KeyedBits(b"order", b"%d" % coarse)
    tapes = [[source.bits(PRECISION) + 1 for _ in range(9)] for _ in range(12)]
    monkeypatch.setattr(order, "_COARSE", PRECISION)
    whole = [largest_values(HUGE, 1 << 64, tape, PRECISION) for tape in tapes]
    monkeypatch.setattr(order, "_COARSE", coarse)
    made = searches(monkeypatch)

    assert [largest_values(HUGE, 1 << 64, tape, PRECISION) for tape in tapes] == whole
    assert len(set(made)) == (1 if coarse > 0 else 2)  # the others are in doubt, often
    if coarse > 0:
        assert max(made) < PRECISION


def test_at_a_change_the_search_is_repeated_and_the_coarse_one_alone_would_be_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order, "_COARSE", PRECISION)
    changes = [first_true(partial(reaches, level), 1, 1 << PRECISION) for level in (100, 104, 111)]
    near = [u + by for u in changes for by in (-1, 0, 1, 2)]
    whole = [largest(u) for u in near]
    monkeypatch.undo()
    made = searches(monkeypatch)

    assert [largest(u) for u in near] == whole
    assert made.count(PRECISION) >= len(changes)
    coarse = min(made)
    rough = [-(-u >> PRECISION - coarse) for u in near]
    assert [largest_values(HUGE, 1 << 64, [u], coarse) for u in rough] != whole


def reaches(level: int, u: int) -> bool:
    return largest(u)[0] >= level


def largest(u: int) -> list[int]:
    return largest_values(HUGE, 1 << 64, [max(u, 1)], PRECISION)


def test_changes_in_a_huge_universe_are_those_of_high_precision_decimals() -> None:
    m, cap = (1 << 64) - 12345, 3
    unit = 1 << 150

    def is_beyond(pair: list[int], u: int) -> bool:
        return step(largest_values(HUGE, m, [u, 1, 1], 150)) > pair

    with localcontext() as context:
        context.prec = 120
        one = Decimal(HUGE.draws)
        for level in (99, 112):
            below, here = HUGE.cdf(0, level - 1), HUGE.cdf(0, level) - HUGE.cdf(0, level - 1)
            true = Decimal(0)
            for number in range(cap):
                true += comb(m, number) * (here / one) ** number * (below / one) ** (m - number)
                last = first_true(partial(is_beyond, [level, number]), 1, unit + 1) - 1
                assert 0 <= true * unit - last <= (cap + 2) * m


def test_all_values_are_found_where_no_more_exist_than_are_wanted() -> None:
    assert largest_values(geo_sample(3, 1), 0, [], 10) == []
    law = law_of_largest(geo_sample(1, 1), 2, 2, 60)
    assert max(abs(law[top] - p) for top, p in order_law([3, 5], 2, 2).items()) < Fraction(1, 1 << 50)


# Statistical.

RUNS = 100_000


@pytest.mark.statistical
@pytest.mark.parametrize("draw", ordinarily(1, ["shipped", "published"]))
def test_two_fair_coins_are_both_one_in_a_quarter_of_the_runs(draw: str) -> None:
    """False alarm: 0.01 is more than 7 standard deviations, below 10^-12. The withdrawn formula gives 3/8."""
    source = KeyedBits(b"coins", draw.encode())
    coin = Listed([1, 2])
    draws: dict[str, Callable[[], list[int]]] = {
        "shipped": lambda: largest_values(coin, 2, [source.bits(20) + 1, source.bits(20) + 1], 20),
        "published": lambda: order_sample([1, 2], 2, 2, 1 << 16, lambda _: source.bits(16) + 1),
    }

    share = Fraction(sum(draws[draw]() == [1, 1] for _ in range(RUNS)), RUNS)

    assert abs(share - Fraction(1, 4)) < Fraction(1, 100)
    assert abs(withdrawn_law([1, 2], 2, 2)[1, 1] - Fraction(1, 4)) > Fraction(1, 100)
