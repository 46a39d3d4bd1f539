from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stream_dp.accounting import Cost, selection_cost
from stream_dp.accounting.composition import general_cost
from stream_dp.accounting.pay_what_you_get import single_call
from stream_dp.accounting.selection import fixed_threshold_cost, laplace_selection_cost, laplace_selection_delta
from stream_dp.errors import ConfigError

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


@pytest.mark.parametrize(
    ("draws", "epsilon", "delta"),
    [(0, "0.1", "1e-8"), (1, "0", "1e-8"), (1, "-1", "1e-8"), (1, "0.1", "0"), (1, "0.1", "1")],
)
def test_prices_outside_the_theorem_are_refused(draws: int, epsilon: str, delta: str) -> None:
    with pytest.raises(ConfigError):
        selection_cost(draws, Fraction(epsilon), Fraction(delta))


def close(bound: Fraction, expected: Fraction) -> bool:
    return -Fraction(1, 10**13) < bound / expected - 1 < Fraction(1, 10**9)


def test_what_the_laplace_selection_delivers(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["laplace_delta"]:
        cost = laplace_selection_cost(row["Delta"], row["eps"], row["delta"])
        assert abs(cost.epsilon - row["eps_total"]) < Fraction("1e-15")
        assert close(cost.delta, row["delta_total"])


def test_the_delta_of_a_laplace_threshold_is_solved_for(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["laplace_inverse_delta"]:
        parameters = row["Delta"], row["eps"]
        delta = laplace_selection_delta(row["target_delta_total"], *parameters)
        assert abs(delta / row["delta_param"] - 1) < Fraction(1, 10**9)
        assert laplace_selection_cost(*parameters, delta).delta <= row["target_delta_total"]
        assert laplace_selection_cost(*parameters, delta * (1 + Fraction(1, 2**63))).delta > row["target_delta_total"]


def test_which_noise_is_cheaper_for_one_call(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["gumbel_vs_laplace_choice"]:
        gumbel, epsilon = single_call(row["k"], row["eps"], Fraction("1e-12"), Fraction("1e-7")).printed, row["eps"]
        assert close(gumbel.epsilon, row["gumbel_eps_adv_dp1e7"])
        laplace = laplace_selection_cost(row["Delta"], epsilon, Fraction("1e-8"))
        assert abs(laplace.epsilon - row["laplace_eps"]) < Fraction("1e-14")


def test_many_laplace_calls_add_up_by_theorem_3() -> None:
    call = laplace_selection_cost(2, Fraction("0.01"), Fraction("1e-12"))
    month = general_cost({call: 720}, Fraction("1e-7"))

    assert month.delta == 720 * call.delta + Fraction("1e-7")
    assert month.epsilon < 720 * call.epsilon / 3


def test_a_threshold_without_noise_costs_what_theorem_5_says() -> None:
    epsilon, delta, slack = Fraction("0.1"), Fraction("1e-9"), Fraction("1e-6")

    assert fixed_threshold_cost(100, epsilon, delta) == Cost(Fraction(10), 100 * delta)
    advanced = fixed_threshold_cost(100, epsilon, delta, slack)
    assert advanced.delta == 100 * delta + slack
    assert float(advanced.epsilon) == pytest.approx(5.756105519335732, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: laplace_selection_cost(0, Fraction(1), Fraction(1, 2)),
        lambda: laplace_selection_cost(1, Fraction(0), Fraction(1, 2)),
        lambda: laplace_selection_cost(1, Fraction(1), Fraction(1)),
        lambda: laplace_selection_delta(Fraction(0), 1, Fraction(1)),
        lambda: laplace_selection_delta(Fraction(1), 1, Fraction(1)),
        lambda: laplace_selection_delta(Fraction(1, 2), 0, Fraction(1)),
        lambda: fixed_threshold_cost(0, Fraction(1), Fraction(1, 2)),
        lambda: fixed_threshold_cost(1, Fraction(1), Fraction(2, 3)),
        lambda: fixed_threshold_cost(1, Fraction(1), Fraction(1, 2), Fraction(1)),
    ],
)
def test_arguments_out_of_range_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        call()
