"""Figures 3 to 6, the lower bounds and Theorem 8.6, against the vectors of specs/finite."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from experiments.finite.figures import (
    Errors,
    Heavy,
    Stable,
    error_constant,
    figure_3,
    figure_3_tight,
    figure_4,
    figure_5,
    figure_6,
    lower_bounds,
    theorem_8_6,
)
from stream_dp.histograms.counting_queries import Base, GeometricTable, interval, miss

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "finite.json").read_text())
BETA, DELTA = Fraction(1, 20), Fraction(1, 2**40)


def pairs(errors: Mapping[str, Errors]) -> dict[str, list[int]]:
    return {noise: [one.per_query, one.simultaneous] for noise, one in errors.items()}


def heavy(one: Heavy) -> dict[str, int]:
    threshold = {"b": one.threshold} if isinstance(one, Stable) else {}
    return threshold | {"a": one.per_query, "t": one.above, "simul": one.simultaneous}


@pytest.mark.parametrize("entry", VECTORS["figures_3_to_6_numeric"], ids=lambda entry: f"{entry['inv_eps']}")
def test_the_formulas_of_the_figures_give_the_numbers_of_the_vectors(entry: dict[str, Any]) -> None:
    e, universe, n = entry["inv_eps"], 1 << entry["log2_X"], entry["n"]
    assert (Fraction(entry["beta"]), entry["delta"]) == (BETA, "1/2^40")

    tight = figure_3_tight(e, universe, BETA)
    assert pairs(figure_3(e, universe, BETA) | {"GeoSample_tight_eps_tilde": tight}) == entry["fig3_basic"]
    assert {noise: heavy(one) for noise, one in figure_4(e, n, BETA, DELTA).items()} == entry["fig4_stability"]
    assert {noise: heavy(one) for noise, one in figure_5(e, universe, BETA).items()} == entry["fig5_puresparse"]
    assert pairs(figure_6(e, universe, BETA)) == entry["fig6_compact"]


@pytest.mark.parametrize("entry", VECTORS["lower_bounds"])
def test_lower_bounds_are_those_of_the_vectors(entry: dict[str, Any]) -> None:
    delta = Fraction(1, 1 << int(entry["delta"].removeprefix("2^-")))
    given = (entry["inv_eps"], 1 << entry["log2_X"], entry["n"], Fraction(entry["beta"]))

    bounds = [lower_bounds(*given, delta, entry["n_prime"]), lower_bounds(*given, Fraction(0), entry["n_prime"])]

    names = ("thm7_1_per_query", "thm7_1_simultaneous", "thm7_2_sparse_per_query")
    expected = [*(entry[name] for name in names), entry["thm7_2_sparse_per_query_pure"]]
    found = [*astuple(bounds[0]), bounds[1].sparse]
    assert all(abs(one - Fraction(other)) < Fraction(1, 10**12) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(("e", "k"), [(1, 1), (10, 5), (64, 7)])
def test_no_error_of_a_figure_or_of_the_noise_itself_is_below_a_lower_bound(e: int, k: int) -> None:
    n, universe = (1 << 14) - 1, 1 << 64
    bounds = lower_bounds(e, universe, n, BETA, Fraction(0), n)
    query = GeometricTable(14, Base.dyadic(k), 80)
    simultaneous = interval(query, 1 - BETA / universe)

    assert all(one.per_query >= bounds.per_query for one in figure_6(e, universe, BETA).values())
    assert all(one.simultaneous >= bounds.simultaneous for one in figure_6(e, universe, BETA).values())
    assert all(one.above >= bounds.sparse for one in figure_5(e, universe, BETA).values())
    assert bounds.per_query <= interval(query, 1 - BETA) <= min(one.per_query for one in figure_6(e, 2, BETA).values())
    assert bounds.simultaneous <= simultaneous
    assert miss(query, simultaneous) <= BETA / universe < miss(query, simultaneous - 1)


@pytest.mark.parametrize("entry", VECTORS["thm8_6_parameters"], ids=lambda entry: f"{entry['n']}-{entry['inv_eps']}")
def test_the_parameters_of_theorem_8_6_are_those_of_the_vectors(entry: dict[str, Any]) -> None:
    beta = Fraction(1, entry["inv_beta0"])

    found = theorem_8_6(entry["n"], entry["inv_eps"], 1 << entry["log2_X"], beta)

    assert (found.e, found.g) == (entry["inv_eps_prime"], int(entry["inv_gamma"]))
    assert (found.k, found.t, found.draw_bits) == (entry["k"], entry["t"], entry["log2_d_ceil"])
    assert (found.exponent, found.field_bits) == (entry["ell"], entry["log2_d0"])
    assert found.size_bytes == entry["representation_bytes"]
    printed = Fraction(entry["two_over_eps_tilde_prime_times_eps"])
    assert abs(error_constant(entry["inv_eps"]) - printed) < Fraction(1, 10**7)


def test_the_constant_of_theorem_8_6_is_at_most_5() -> None:
    entry = VECTORS["thm8_6_constant_check"]

    largest = max(error_constant(e) for e in range(1, 20001))

    assert largest <= entry["must_be_le"] == 5
    printed = Fraction(entry["max over 1/eps in 1..20000 of (2/eps_tilde')*eps"])
    assert abs(largest - printed) < Fraction(1, 10**11)
