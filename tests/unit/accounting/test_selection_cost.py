from __future__ import annotations

import json
from fractions import Fraction
from math import log, sqrt
from pathlib import Path
from typing import Any

import pytest

from stream_dp.accounting import Cost, selection_cost
from stream_dp.accounting.composition import zcdp_epsilon
from stream_dp.errors import ParameterError

TOTALS = json.loads((Path(__file__).parents[2] / "vectors" / "topk.json").read_text(), parse_float=Fraction)[
    "pwyg_totals_thm2"
]


def test_one_call_of_one_draw_costs_what_theorem_2_says_with_the_basic_term() -> None:
    row = next(row for row in TOTALS if row["k_star"] == 1)
    cost = selection_cost(1, row["eps"], row["delta"])
    # The row adds delta' = 1e-7 for the terms that do not win here; the basic term needs none.
    assert cost.delta == row["ell_star"] * row["delta"]
    assert abs(cost.delta + row["delta_prime"] - row["hard_delta_total"]) < Fraction("1e-20")
    assert 0 <= cost.epsilon - row["hard_eps_star"] + Fraction("1e-15") < Fraction("2e-15")


@pytest.mark.parametrize("row", TOTALS, ids=lambda row: f"k*={row['k_star']}")
def test_a_whole_ledger_is_never_priced_below_the_hardened_bound(row: dict[str, Any]) -> None:
    calls = [selection_cost(1, row["eps"], row["delta"]) for _ in range(row["ell_star"] - 1)]
    last = selection_cost(row["k_star"] - row["ell_star"] + 1, row["eps"], row["delta"])
    total = sum(calls, start=last)
    assert total.epsilon == row["k_star"] * (row["eps"] + row["delta"])
    assert total.epsilon >= row["hard_eps_star"] - Fraction("1e-15")
    assert abs(total.delta - (row["hard_delta_total"] - row["delta_prime"])) < Fraction("1e-20")


def test_a_shorter_output_is_cheaper_in_epsilon_and_pays_the_same_delta() -> None:
    bottom, full = (selection_cost(draws, Fraction("0.1"), Fraction("1e-8")) for draws in (1, 10))
    assert bottom == Cost(Fraction("0.10000001"), Fraction("1e-8"))
    assert full == Cost(Fraction("1.0000001"), Fraction("1e-8"))


def test_a_ledger_with_a_pool_is_charged_rho_and_the_hardened_term_in_epsilon() -> None:
    cost = selection_cost(7, Fraction("0.1"), Fraction("1e-8"), pooled=True)
    assert cost == Cost(Fraction("7e-8"), Fraction("1e-8"), rho=Fraction("0.00875"))


@pytest.mark.parametrize("row", TOTALS, ids=lambda row: f"k*={row['k_star']}")
def test_a_pool_promises_less_than_the_third_term_of_theorem_2(row: dict[str, Any]) -> None:
    """specs/topk 3.3 and 3.4: less than k* eps^2 / 8 + eps sqrt(k* L / 2), and k* delta for the hardened draws."""
    total = selection_cost(row["k_star"], row["eps"], row["delta"], pooled=True)
    k, eps, log_slack = row["k_star"], float(row["eps"]), -log(row["delta_prime"])
    assert float(total.epsilon) == pytest.approx(k * float(row["delta"]), rel=1e-12, abs=0)
    assert float(zcdp_epsilon(total.rho, row["delta_prime"])) < k * eps**2 / 8 + eps * sqrt(k * log_slack / 2)


@pytest.mark.parametrize(
    ("draws", "epsilon", "delta"),
    [(0, "0.1", "1e-8"), (1, "0", "1e-8"), (1, "-1", "1e-8"), (1, "0.1", "-1"), (1, "0.1", "1")],
)
def test_prices_outside_the_theorem_are_refused(draws: int, epsilon: str, delta: str) -> None:
    with pytest.raises(ParameterError):
        selection_cost(draws, Fraction(epsilon), Fraction(delta))
