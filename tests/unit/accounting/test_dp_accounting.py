"""The curves beside those of the PyPI package dp-accounting, whose values `make_dp_accounting.py` stored."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stream_dp.accounting.curves import (
    RenyiCurve,
    approximate_epsilon,
    discrete_laplace_renyi,
    gaussian_rho,
    laplace_renyi,
    zcdp_curve,
)
from stream_dp.accounting.rounding import exp_up

PACKAGE = json.loads((Path(__file__).parents[2] / "vectors" / "dp_accounting.json").read_text())
ORDERS = [Fraction(order) for order in PACKAGE["orders"]]
DOUBLE = 1e-12  # what rounding in doubles may have cost the package


def curve_of(row: dict[str, Any]) -> RenyiCurve:
    windows, parameter = row["windows"], Fraction(row["parameter"])
    match row["noise"]:
        case "gaussian" | "discrete gaussian":
            return zcdp_curve(windows * gaussian_rho(parameter**2, Fraction(1)))
        case "laplace":
            return lambda alpha: windows * laplace_renyi(parameter, alpha)
        case _:
            return lambda alpha: windows * discrete_laplace_renyi(exp_up(-parameter), alpha)


@pytest.mark.parametrize("row", PACKAGE["curves"]["gaussian"], ids=lambda row: str(row["noise_multiplier"]))
def test_gaussian_curve_agrees(row: dict[str, Any]) -> None:
    curve = zcdp_curve(gaussian_rho(Fraction(row["noise_multiplier"]) ** 2, Fraction(1)))

    assert [float(curve(alpha)) for alpha in ORDERS] == pytest.approx(row["renyi"], rel=DOUBLE, abs=0)


@pytest.mark.parametrize("row", PACKAGE["curves"]["laplace"], ids=lambda row: str(row["epsilon"]))
def test_laplace_curve_agrees(row: dict[str, Any]) -> None:
    epsilon = Fraction(row["epsilon"])

    assert [float(laplace_renyi(epsilon, alpha)) for alpha in ORDERS] == pytest.approx(row["renyi"], rel=DOUBLE, abs=0)


@pytest.mark.parametrize("row", PACKAGE["sums"], ids=lambda row: f"{row['noise']} {row['windows']} windows")
def test_epsilon_of_many_windows_agrees(row: dict[str, Any]) -> None:
    epsilon = approximate_epsilon(curve_of(row), Fraction(PACKAGE["delta"]))

    assert float(epsilon) == pytest.approx(row["epsilon"], rel=1e-9, abs=0)


@pytest.mark.parametrize("row", PACKAGE["deltas"], ids=lambda row: f"{row['noise']} {row['windows']} windows")
def test_epsilon_by_curves_lies_a_little_above_the_numerically_tight_one(row: dict[str, Any]) -> None:
    epsilon = approximate_epsilon(curve_of(row), Fraction(row["delta"]))

    assert row["epsilon"] <= epsilon < row["epsilon"] * Fraction(3, 2)
