"""Curves and compositions beside those of the PyPI package dp-accounting, as stored by `make_dp_accounting.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from experiments.topk.composition import NO_STEPS, compose, general_cost
from experiments.topk.optimal import optimal_curve
from stream_dp.accounting import Cost
from stream_dp.accounting.composition import renyi_epsilon, zcdp_epsilon
from stream_dp.accounting.rounding import exp_up
from tests.support.laplace_laws import discrete_laplace_renyi

PACKAGE = json.loads((Path(__file__).parents[2] / "vectors" / "dp_accounting.json").read_text())
ORDERS = [Fraction(order) for order in PACKAGE["orders"]]
GRID = [1 + Fraction(n, 10) for n in range(1, 100)] + [*map(Fraction, (*range(11, 64), 128, 256, 512, 1024))]
"""That of `make_dp_accounting.py`."""
COMPOSITIONS = PACKAGE["compositions"]
DOUBLE = 1e-12  # what rounding in doubles may have cost the package


def curve_of(row: dict[str, Any]) -> Callable[[Fraction], Fraction]:
    """From an order to the divergence of that order."""
    windows, parameter = row["windows"], Fraction(row["parameter"])
    match row["noise"]:
        case "gaussian" | "discrete gaussian":
            return lambda alpha: alpha * windows / (2 * parameter**2)
        case _:
            return lambda alpha: windows * discrete_laplace_renyi(exp_up(-parameter), alpha)


def epsilon_of(row: dict[str, Any], delta: Fraction) -> Fraction:
    curve = curve_of(row)
    return min(renyi_epsilon(curve(alpha), alpha, delta) for alpha in GRID)


@pytest.mark.parametrize("row", PACKAGE["curves"]["gaussian"], ids=lambda row: str(row["noise_multiplier"]))
def test_gaussian_curve_agrees(row: dict[str, Any]) -> None:
    curve = curve_of({"noise": "gaussian", "windows": 1, "parameter": row["noise_multiplier"]})

    assert [float(curve(alpha)) for alpha in ORDERS] == pytest.approx(row["renyi"], rel=DOUBLE, abs=0)


@pytest.mark.parametrize("row", PACKAGE["sums"], ids=lambda row: f"{row['noise']} {row['windows']} windows")
def test_epsilon_of_many_windows_agrees(row: dict[str, Any]) -> None:
    epsilon = epsilon_of(row, Fraction(PACKAGE["delta"]))

    assert float(epsilon) == pytest.approx(row["epsilon"], rel=1e-9, abs=0)


@pytest.mark.parametrize("row", PACKAGE["deltas"], ids=lambda row: f"{row['noise']} {row['windows']} windows")
def test_epsilon_by_curves_lies_a_little_above_the_numerically_tight_one(row: dict[str, Any]) -> None:
    epsilon = epsilon_of(row, Fraction(row["delta"]))

    assert row["epsilon"] <= epsilon < row["epsilon"] * Fraction(3, 2)


@pytest.mark.parametrize("row", COMPOSITIONS["zcdp"], ids=lambda row: f"rho {row['rho']}")
def test_epsilon_of_zcdp_agrees_with_a_dense_search_over_orders(row: dict[str, Any]) -> None:
    epsilon = zcdp_epsilon(Fraction(row["rho"]), Fraction(row["slack"]))

    assert float(epsilon) == pytest.approx(row["epsilon"], rel=1e-6, abs=0)
    assert epsilon <= row["epsilon"] * (1 + Fraction(DOUBLE))


@pytest.mark.parametrize("row", COMPOSITIONS["optimal"], ids=lambda row: f"{row['k']} at {row['epsilon']}")
def test_the_optimal_curve_agrees(row: dict[str, Any]) -> None:
    deltas = [float(point.delta) for point in optimal_curve(Fraction(row["epsilon"]), row["k"])]

    assert deltas == pytest.approx(row["deltas"], rel=1e-9, abs=1e-15)  # its transforms are no more exact than that


@pytest.mark.parametrize("row", COMPOSITIONS["general"], ids=lambda row: f"{row['k']} at {row['epsilon']}")
def test_theorem_3_lies_above_the_best_possible_composition(row: dict[str, Any]) -> None:
    cost = Cost(Fraction(row["epsilon"]), Fraction(row["delta"]))
    total = general_cost({cost: row["k"]}, Fraction(row["slack"]))

    assert row["total"] < total.epsilon < row["total"] * Fraction(5, 4)


@pytest.mark.parametrize("row", COMPOSITIONS["selections"], ids=lambda row: f"{row['draws']} {row['counts']}")
def test_bounded_range_lies_above_what_draws_of_an_item_against_bottom_cost(row: dict[str, Any]) -> None:
    draws, counts = ({Fraction(e): n for e, n in row[name].items()} for name in ("draws", "counts"))
    slack = Fraction(row["slack"])
    bounds = compose(draws, counts, slack)
    tight = compose(draws, counts, slack, tight_mean=True)

    assert row["total"] < tight.epsilon < bounds.epsilon == bounds.bounded_range < row["total"] * Fraction(8, 5)
    if counts:
        assert row["total"] > compose(draws, NO_STEPS, slack, tight_mean=True).epsilon
