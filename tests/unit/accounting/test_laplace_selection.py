from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from experiments.topk.composition import general_cost
from experiments.topk.pay_what_you_get import single_call
from stream_dp.accounting import Cost
from stream_dp.accounting.selection import fixed_threshold_cost, laplace_selection_cost, laplace_selection_delta
from stream_dp.errors import ParameterError


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
    advanced = general_cost({Cost(epsilon, delta): 100}, slack)
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
        lambda: general_cost({Cost(Fraction(1), Fraction(1, 2)): 1}, Fraction(1)),
    ],
)
def test_arguments_out_of_range_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ParameterError):
        call()
