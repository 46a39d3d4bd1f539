"""The laws of the counting queries: every output of every count, as integers, against the vectors and closed forms."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from experiments.finite.samplers import fast_sample, geo_sample, k_for, paper_cutoff
from stream_dp.errors import ParameterError
from stream_dp.exact.reals import exp_neg, smallest_power
from stream_dp.histograms.counting_queries import (
    Base,
    CountingQuery,
    ExactGeometric,
    GeometricTable,
    RawBits,
    TruncatedGeometric,
    ceil_log2,
    interval,
    least_cutoff,
    mean_absolute,
    miss,
)
from tests.support.query_laws import (
    ChosenIntegers,
    Law,
    clamped_geometric,
    digest,
    law,
    laws,
    thresholds,
    worst_ratio,
)

BASES = [Base.dyadic(1), Base.dyadic(5), Base(607, 1000), Base(9, 10), Base(1, 3), Base.within(Fraction(1, 3))]
HALF = Fraction(1, 2)


def is_at_most_exp(ratio: Fraction, epsilon: Fraction) -> bool:
    """Certified: ratio <= e^epsilon."""
    _, upper = exp_neg(epsilon, 200)
    return ratio * upper <= 1 << 200


def rises_strictly(query: CountingQuery) -> bool:
    rows = [[0, *thresholds(query, count)] for count in range(query.bound + 1)]
    return all(a < b for row in rows for a, b in pairwise(row)) and all(row[-1] == query.draws for row in rows)


def small(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "F" in row]


# 1


def test_the_rate_of_an_epsilon_is_the_listed_power_of_two(vectors: dict[str, Any]) -> None:
    for row in vectors["eps_rounding"]:
        assert k_for(row["inv_eps"]) == row["k"]
        assert Base.dyadic(row["k"]).ratio == Fraction(row["exp_half_eps_tilde"])


def test_the_rate_is_the_least_power_of_two_for_every_unit_fraction() -> None:
    assert all(1 << k_for(e) >= 2 * e > 1 << k_for(e) - 1 for e in range(1, 10**5 + 1))


def test_a_base_within_an_epsilon_never_exceeds_it_and_loses_less_than_a_millionth() -> None:
    for epsilon in (Fraction(1, 1000), Fraction(1, 7), HALF, Fraction(1), Fraction("2.3"), Fraction(8), Fraction(40)):
        base = Base.within(epsilon)
        assert is_at_most_exp(base.ratio, epsilon)
        assert not is_at_most_exp(base.ratio, epsilon * (1 - Fraction(1, 1 << 31)))
        assert not is_at_most_exp(Fraction(base.w + 1, base.u), epsilon)


def test_a_base_keeps_its_relative_precision_for_tiny_and_for_huge_epsilons() -> None:
    for epsilon in (Fraction(1, 10**9), Fraction(100)):
        base = Base.within(epsilon)
        _, upper = exp_neg(epsilon, 1000)
        assert base.ratio * upper <= 1 << 1000
        _, upper = exp_neg(epsilon * (1 - Fraction(1, 1 << 31)), 1000)
        assert base.ratio * upper > 1 << 1000


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1), 0.5, 1])
def test_a_base_is_refused_for_an_epsilon_that_is_no_exact_fraction_above_0(epsilon: Any) -> None:
    with pytest.raises(ParameterError, match="epsilon: must be an exact fraction above 0"):
        Base.within(epsilon)


@pytest.mark.parametrize(("u", "w", "name"), [(0, 1, "u"), (3, 3, "w"), (3, 2, "w"), (True, 2, "u")])
def test_a_base_that_is_no_ratio_above_1_is_refused(u: int, w: int, name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Base(u, w)
    assert [fault.path for fault in caught.value.faults] == [name]


# 2 to 5


def test_the_geometric_distribution_functions_are_the_listed_integers(vectors: dict[str, Any]) -> None:
    for row in small(vectors["geosample"]):
        query = geo_sample(row["n"], row["inv_eps"])
        assert query.draws == int(row["d"])
        assert {str(c): [str(x) for x in thresholds(query, c)] for c in range(row["n"] + 1)} == row["F"]


@pytest.mark.parametrize("n", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_long_geometric_distribution_functions_have_the_listed_hashes(n: int, vectors: dict[str, Any]) -> None:
    row = next(row for row in vectors["geosample"] if row["n"] == n)
    query = geo_sample(n, row["inv_eps"])
    assert query.draws.bit_length() == row["d_bit_length"]
    places = range(0, n + 1, 1 if n == 1000 else 97)
    for count, expected in row["sha256_of_hexcsv_F_c"].items():
        assert digest(query.cdf(int(count), z) for z in places) == expected


def test_every_random_integer_gives_the_listed_output(vectors: dict[str, Any]) -> None:
    for row in small(vectors["geosample"]):
        query = geo_sample(row["n"], row["inv_eps"])
        for count, u, z in row["samples"]:
            assert query.sample(count, int(u)) == z


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_all_random_integers_together_give_the_law(n: int) -> None:
    query = geo_sample(n, 1)
    for count in range(n + 1):
        outputs = [query.sample(count, u) for u in range(1, query.draws + 1)]
        assert [Fraction(outputs.count(z), query.draws) for z in range(n + 1)] == law(query, count)
        assert outputs == sorted(outputs)


def test_the_worst_ratio_of_geometric_noise_is_that_of_its_base_exactly(vectors: dict[str, Any]) -> None:
    for row in small(vectors["geosample"]):
        query = geo_sample(row["n"], row["inv_eps"])
        assert worst_ratio(laws(query)) == Fraction(row["max_neighbour_ratio"]) == query.ratio


def test_a_general_base_has_the_listed_law_and_its_own_ratio(vectors: dict[str, Any]) -> None:
    for row in vectors["derived_general_base"]:
        query = ExactGeometric(row["n"], Base(row["u"], row["w"]))
        assert query.draws == row["d"]
        assert [thresholds(query, count) for count in range(row["n"] + 1)] == row["F"]
        assert worst_ratio(laws(query)) == Fraction(row["max_ratio"]) == query.ratio


@pytest.mark.parametrize("base", BASES)
def test_geometric_noise_has_the_clamped_closed_form(base: Base) -> None:
    for n in (1, 2, 5, 8):
        query = ExactGeometric(n, base)
        assert [law(query, c) for c in range(n + 1)] == [clamped_geometric(n, base, c) for c in range(n + 1)]


def test_the_cut_is_clamped_to_the_ends_and_not_conditioned_on() -> None:
    """Pitfall 9: conditioning on 0..n costs more than the base and than e^(epsilon / 2); the check refuses it."""
    conditioned = [[Fraction(2, 3) ** abs(z - c) for z in range(11)] for c in range(11)]
    mutant = [[p / sum(row) for p in row] for row in conditioned]
    assert worst_ratio(mutant) == Fraction(640323, 350198)
    assert not is_at_most_exp(Fraction(640323, 350198), HALF)
    assert worst_ratio(laws(geo_sample(10, 1))) == Fraction(3, 2)


def test_a_clamp_at_the_size_of_the_data_is_refused_by_the_check() -> None:
    private_clamp: list[Law] = [[*law(geo_sample(3, 1), 3), Fraction(0)], law(geo_sample(4, 1), 4)]
    assert worst_ratio(private_clamp) is None


# 6


def test_the_chance_to_miss_is_that_of_the_worst_count(vectors: dict[str, Any]) -> None:
    for row in small(vectors["geosample"]):
        query = geo_sample(row["n"], row["inv_eps"])
        for a, hit in row["accuracy_exact_min_over_c"].items():
            assert miss(query, int(a)) == 1 - Fraction(hit)


@pytest.mark.parametrize(
    "query",
    [
        ExactGeometric(9, Base(9, 10)),
        TruncatedGeometric(9, Base.dyadic(1), 2, 10),
        GeometricTable(3, Base.dyadic(2), 3),
        GeometricTable(3, Base(1, 1000), 1),
        GeometricTable(4, Base(607, 1000), 2),
    ],
)
def test_two_counts_are_enough_to_find_the_worst_chance_to_miss(
    query: ExactGeometric | TruncatedGeometric | GeometricTable,
) -> None:
    for a in range(query.bound + 1):
        missed = [sum(p for z, p in enumerate(law(query, c)) if abs(z - c) > a) for c in range(query.bound + 1)]
        assert miss(query, a) == max(missed)


def test_the_accuracy_of_the_theorem_holds_and_the_interval_is_no_wider() -> None:
    for e in (1, 2, 7):
        query = geo_sample(40, e)
        for beta in (HALF, Fraction(1, 20)):
            a = smallest_power(1 / query.ratio, beta)
            assert miss(query, a) <= beta
            assert interval(query, 1 - beta) <= a


def test_an_interval_is_the_smallest_that_holds_for_every_count() -> None:
    table = GeometricTable(24, Base.within(Fraction(1, 10)), 40)
    for confidence in (Fraction(1, 2), Fraction(95, 100), 1 - Fraction(1, 1 << 30)):
        a = interval(table, confidence)
        assert miss(table, a) <= 1 - confidence < miss(table, a - 1)
        alpha = 1 / table.ratio
        assert miss(table, a) <= Fraction(1, 1 << 40) + 2 * alpha ** (a + 1) / (1 + alpha) + Fraction(
            4, 1 << table.point
        )


def test_the_uniform_outputs_widen_an_interval_that_promises_more_than_they_allow() -> None:
    table = GeometricTable(10, Base.dyadic(1), 4)
    assert interval(table, Fraction(9, 10)) < 10
    assert interval(table, Fraction(99, 100)) > 500
    assert interval(table, Fraction(1)) == table.bound
    with pytest.raises(ParameterError, match="confidence"):
        interval(table, Fraction(2))


@pytest.mark.parametrize("base", BASES)
def test_the_mean_error_is_that_of_the_law(base: Base) -> None:
    table = GeometricTable(4, base, 3)
    for count in range(16):
        assert mean_absolute(table, count) == sum(abs(z - count) * p for z, p in enumerate(law(table, count)))


# 7 to 9


def test_the_truncated_distribution_functions_are_the_listed_integers(vectors: dict[str, Any]) -> None:
    for row in vectors["fastsample"]:
        n, g = row["n"], int(row["inv_gamma"])
        query = fast_sample(n, row["inv_eps"], g)
        assert (query.t, query.draws.bit_length()) == (row["t"], row["d_bits"])
        assert query.ratio == Fraction(row["ledger_ratio_per_count"])
        if n <= 200:
            assert query.draws == int(row["d"])
            for count, expected in row["sha256_of_hexcsv_F_c"].items():
                assert digest(thresholds(query, int(count))) == expected
        if n <= 10:
            assert {c: [str(x) for x in thresholds(query, int(c))] for c in row["F"]} == row["F"]
            assert worst_ratio(laws(query)) == Fraction(row["max_neighbour_ratio"])


def truncated_by_definition(n: int, base: Base, g: int, t: int, count: int) -> Law:
    """Lemma 4.12: tails to the centre, then the clamp, then a uniform output with probability 1 / g."""
    a = Fraction(base.u, base.w)
    found = [Fraction(1, g * (n + 1))] * (n + 1)
    for noise in range(-t, t + 1):
        p = (1 - a) / (1 + a) * a ** abs(noise) + (2 * a ** (t + 1) / (1 + a) if noise == 0 else 0)
        found[min(max(count + noise, 0), n)] += (1 - Fraction(1, g)) * p
    return found


def test_truncated_noise_is_the_mixture_of_its_definition() -> None:
    for n, e, g in ((4, 1, 2), (7, 2, 8), (10, 4, 100)):
        query = fast_sample(n, e, g)
        assert laws(query) == [truncated_by_definition(n, query.base, g, query.t, c) for c in range(n + 1)]
    for base in BASES:
        query = TruncatedGeometric(9, base, 3, least_cutoff(9, base, 3))
        assert laws(query) == [truncated_by_definition(9, base, 3, query.t, c) for c in range(10)]


def test_truncated_noise_rises_and_keeps_to_its_ratio_over_the_listed_grid() -> None:
    for n in (1, 2, 3, 5, 9):
        for e in (1, 2, 3, 4, 5, 7, 10):
            for g in (2, 3, 10, 1000):
                query = fast_sample(n, e, g)
                worst = worst_ratio(laws(query))
                assert worst is not None
                assert worst <= query.ratio
                assert is_at_most_exp(query.ratio, Fraction(1, 2 * e))
                assert rises_strictly(query)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("g", [2, 10])
def test_truncated_noise_keeps_to_its_ratio_with_the_shortest_tails_allowed(base: Base, g: int) -> None:
    query = TruncatedGeometric(9, base, g, least_cutoff(9, base, g))
    worst = worst_ratio(laws(query))
    assert worst is not None
    assert worst <= query.ratio
    assert rises_strictly(query)


def test_without_its_uniform_outputs_truncated_noise_is_refused_by_the_check(vectors: dict[str, Any]) -> None:
    row = vectors["broken_variants"]["gamma_omitted_fastsample"]
    query = fast_sample(row["n"], 1, 2)
    floor = Fraction(1, 2 * (row["n"] + 1))
    mutant = [[2 * (p - floor) for p in law(query, count)] for count in (60, 61)]
    for one, listed in zip(mutant, (row["support_c60"], row["support_c61"]), strict=True):
        support = [z for z, p in enumerate(one) if p]
        assert [support[0], support[-1]] == listed
    assert worst_ratio(mutant) is None
    assert worst_ratio([law(query, count) for count in (60, 61)]) is not None


def test_a_distribution_function_in_doubles_is_refused_by_the_check(vectors: dict[str, Any]) -> None:
    row = vectors["broken_variants"]["double_cdf_collapses"]
    exact = [Fraction(x, geo_sample(row["n"], 1).draws) for x in thresholds(geo_sample(row["n"], 1), 0)]
    doubles = [float(p) for p in exact]
    stuck = [z for z in range(row["n"]) if doubles[z] == 1.0]
    assert (len(stuck), stuck[0]) == (row["number_of_z<n_whose_double_CDF_rounds_to_1.0"], row["first_such_z"])
    assert all(a < b for a, b in pairwise(exact))


def test_the_cutoff_of_the_paper_is_two_to_three_times_the_least(vectors: dict[str, Any]) -> None:
    for row in vectors["derived_minimal_t"]:
        n, e, g = row["n"], row["inv_eps"], int(row["inv_gamma"])
        base = Base.dyadic(k_for(e))
        least = least_cutoff(n, base, g)
        assert paper_cutoff(n, e, g) == row["paper_t"]
        # The listed one spends epsilon / 2, by tanh x >= x - x^3 / 3, and not just what the base costs.
        x, steps = Fraction(1, 4 * e), Fraction(base.u, base.w)
        nominal = (x - x**3 / 3) / ((g - 1) * (n + 1))
        assert smallest_power(steps, nominal * (1 + steps) / (2 * steps)) == row["minimal_t_by_eq1"] <= least
        assert 2 * least < row["paper_t"] < 3 * least


# 11, with D2


def test_raw_bits_are_dealt_out_as_listed(vectors: dict[str, Any]) -> None:
    for row in vectors["derived_rawbit_geosample"]:
        inner = geo_sample(row["n"], row["inv_eps"])
        k = k_for(row["inv_eps"])
        query = RawBits(inner, ceil_log2(inner.draws) + 2 * k + 2)
        assert query.bits == row["bits"]
        found = {str(c): [str(x) for x in thresholds(query, c)] for c in range(row["n"] + 1)}
        assert found == row["thresholds_T_c"]
        assert worst_ratio(laws(query)) == Fraction(row["max_ratio"])
        q = int(row["q"])
        assert Fraction(row["max_ratio"]) <= query.ratio == inner.ratio * Fraction(q + 1, q)
        assert query.ratio <= Fraction(row["bound_1+x+x^2/2"])


def test_as_many_raw_bits_as_the_integer_needs_give_a_sound_ratio_and_fewer_are_refused() -> None:
    for n in (1, 2, 4):
        inner = geo_sample(n, 1)
        needed = ceil_log2(inner.draws)
        query = RawBits(inner, needed)
        worst = worst_ratio(laws(query))
        assert worst is not None
        assert worst <= query.ratio
        assert rises_strictly(query)
        with pytest.raises(ParameterError, match=f"bits: must be at least {needed}"):
            RawBits(inner, needed - 1)


def test_raw_bits_cost_nothing_where_the_integer_is_a_power_of_two() -> None:
    table = GeometricTable(2, Base.dyadic(1), 2)
    query = RawBits(table, table.bits + 3)
    assert query.ratio == table.ratio
    assert laws(query) == laws(table)


def test_bits_modulo_the_integer_are_refused_by_the_check(vectors: dict[str, Any]) -> None:
    """Pitfall 6: three bits modulo five."""
    query = geo_sample(1, 1)
    mutant = []
    for count in (0, 1):
        outputs = [query.sample(count, value % query.draws + 1) for value in range(8)]
        mutant.append([Fraction(outputs.count(z), 8) for z in range(2)])
    worst = worst_ratio(mutant)
    assert worst == Fraction(vectors["broken_variants"]["modulo_bias_3bits_mod_5"]["max_ratio"])
    assert not is_at_most_exp(worst, HALF)
    worst = worst_ratio(laws(RawBits(query, 7)))
    assert worst is not None
    assert is_at_most_exp(worst, HALF)


@pytest.mark.parametrize(
    "query", [GeometricTable(2, Base.dyadic(1), 2), RawBits(geo_sample(1, 1), 7), RawBits(geo_sample(4, 1), 12)]
)
def test_every_draw_takes_the_same_bits_and_all_of_them_give_the_law(query: GeometricTable | RawBits) -> None:
    for count in range(query.bound + 1):
        source = ChosenIntegers(*range(1 << query.bits))
        outputs = [query.draw(count, source) for _ in range(1 << query.bits)]
        assert set(source.asked) == {query.bits}
        assert [Fraction(outputs.count(z), query.draws) for z in range(query.bound + 1)] == law(query, count)


# 45


def test_the_bits_of_a_draw_are_those_declared(vectors: dict[str, Any]) -> None:
    for row in vectors["random_bits_per_release"]:
        n, e = row["n"], row["inv_eps"]
        stability, universe = 4 << 40, 2 * (1 << row["log2_X"]) * 20
        assert ceil_log2(geo_sample(n, e).draws) == row["per_bin_GeoSample"]
        assert ceil_log2(fast_sample(n, e, stability).draws) == row["per_bin_FastSample_stability_gamma"]
        assert ceil_log2(fast_sample(n, e, universe).draws) == row["per_bin_FastSample_universe_gamma"]
    for row in vectors["bit_budgets"]:
        n, e, g = row["n"], row["inv_eps"], int(row["inv_gamma"])
        table = GeometricTable(ceil_log2(n + 1), Base.dyadic(k_for(e)), ceil_log2(g))
        source = ChosenIntegers(0)
        table.draw(0, source)
        assert source.asked == [table.bits] == [row["derived_dyadic_R"]]
        if n <= 10**4:
            query = RawBits(fast_sample(n, e, g), row["FastSample_log2_d_ceil"])
            source = ChosenIntegers(0)
            query.draw(0, source)
            assert source.asked == [row["FastSample_log2_d_ceil"]]


# parameters


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: ExactGeometric(0, Base(1, 2)), ["bound"]),
        (lambda: TruncatedGeometric(0, Base(1, 2), 0, 9), ["bound", "g"]),
        (lambda: TruncatedGeometric(4, Base(1, 2), 1, 9), ["g"]),
        (lambda: TruncatedGeometric(4, Base(1, 2), 2, 2), ["t"]),
        (lambda: GeometricTable(0, Base(1, 2), 0), ["h", "g"]),
        (lambda: RawBits(ExactGeometric(1, Base(1, 2)), 0), ["bits"]),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(make: Any, names: list[str]) -> None:
    with pytest.raises(ParameterError) as caught:
        make()
    assert [fault.path for fault in caught.value.faults] == names
