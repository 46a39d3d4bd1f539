from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from experiments.topk.pay_what_you_get import epsilon_per_draw, pay_what_you_get, single_call
from stream_dp.accounting import selection_cost
from stream_dp.errors import ParameterError
from stream_dp.select.gumbel import TopKParameters, threshold

ULP = 1 + Fraction(1, 2**63)


def close(bound: Fraction, expected: Fraction) -> bool:
    return -Fraction(1, 10**13) < bound / expected - 1 < Fraction(1, 10**9)


def test_one_call_by_theorem_1(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["single_call_thm1"]:
        statement = single_call(row["k"], row["eps"], row["delta"], Fraction(row["delta_prime"]))
        assert close(statement.printed.epsilon, row["eps_total"])
        assert close(statement.printed.delta, row["delta_total"])
        assert close(statement.hardened.epsilon, row["hard_eps_total"])
        assert close(statement.hardened.delta, row["hard_delta_total"])


def test_a_ledger_by_theorem_2(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["pwyg_totals_thm2"]:
        budgets = row["k_star"], row["ell_star"]
        statement = pay_what_you_get(*budgets, row["eps"], row["delta"], row["delta_prime"])
        assert close(statement.printed.epsilon, row["eps_star"])
        assert close(statement.printed.delta, row["delta_total"])
        assert close(statement.hardened.epsilon, row["hard_eps_star"])
        assert close(statement.hardened.delta, row["hard_delta_total"])


def test_the_guarantee_of_acceptance_test_6() -> None:
    statement = pay_what_you_get(500, 100, Fraction("0.05"), Fraction("1e-9"), Fraction("1e-7"))

    assert float(statement.printed.epsilon) == pytest.approx(3.798926555837257, rel=1e-12, abs=0)
    assert float(statement.hardened.epsilon) == pytest.approx(3.7989270558372565, rel=1e-12, abs=0)
    assert (statement.printed.delta, statement.hardened.delta) == (Fraction("3e-7"), Fraction("2e-7"))


@pytest.mark.slow
def test_the_epsilon_of_a_draw_for_a_target(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["inverse_eps_per_call"]:
        target, draws, slack = Fraction(row["target_eps_star"]), row["k_star"], row["delta_prime"]
        for tight, name in ((False, "eps_per_call"), (True, "hard_eps_per_call")):
            epsilon = epsilon_per_draw(target, draws, slack, tight_mean=tight)
            assert abs(epsilon / row[name] - 1) < Fraction(1, 10**12)
            kept, passed = (
                pay_what_you_get(draws, 1, e, Fraction("1e-9"), slack, tight_mean=tight).printed.epsilon
                for e in (epsilon, epsilon * ULP)
            )
            assert target * (1 - Fraction(1, 10**15)) < kept <= target < passed


def test_acceptance_test_7() -> None:
    epsilon = epsilon_per_draw(Fraction(3), 500, Fraction("1e-7"))

    assert float(epsilon) == pytest.approx(0.0407274500237791, rel=1e-12, abs=0)


def test_the_gaps_of_the_deployment_examples(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["deployment_examples_gap_above_h_next"]:
        slack, calls = row["delta_prime"], row["ell_star"]
        epsilon = epsilon_per_draw(Fraction(row["eps_star"]), row["k_star"], slack)
        delta = (row["delta_total"] - slack) / (2 * calls)
        assert close(epsilon * (1 + Fraction(1, 10**12)), row["eps_per_call"])
        assert abs(delta / row["delta_per_call"] - 1) < Fraction(1, 10**12)
        for items, name in ((None, "gap_alg1_unrestricted"), (1, "gap_alg1_Delta1")):
            gap = threshold(0, TopKParameters(row["k"], row["kbar"], epsilon, delta, items))[1]
            assert abs(gap / row[name] - 1) < Fraction(1, 10**9)


def test_what_was_charged_along_a_trace_is_never_more_than_what_the_ledger_promised(
    topk_vectors: dict[str, Any],
) -> None:
    epsilon, delta, slack = Fraction("0.2"), Fraction("1e-8"), Fraction("1e-3")
    for case in topk_vectors["ledger_traces"]:
        promised = pay_what_you_get(case["k_star"], case["ell_star"], epsilon, delta, slack)
        admitted = [row["cost"] for row in case["trace"] if row["admitted"]]
        used = pay_what_you_get(sum(admitted), len(admitted), epsilon, delta, slack)
        assert (used.printed <= promised.printed, used.hardened <= promised.hardened) == (True, True)
        assert case["trace"][-1]["k_star_after"] == case["k_star"] - sum(admitted)


def test_a_ledger_of_one_call_is_that_call_but_for_the_rounding_of_delta() -> None:
    epsilon, delta, slack = Fraction("0.3"), Fraction("1e-6"), Fraction("1e-4")
    call, ledger = single_call(7, epsilon, delta, slack), pay_what_you_get(7, 1, epsilon, delta, slack)

    assert call.hardened.epsilon == ledger.hardened.epsilon
    assert 0 < ledger.hardened.delta - call.hardened.delta < 2 * delta**2


def test_without_slack_a_call_costs_what_the_ledger_charges_for_it_in_short_numbers() -> None:
    for k, epsilon, delta in ((1, "0.1", "1e-8"), (10, "0.1", "1e-8"), (4, "1/3", "1/50")):
        charged = selection_cost(k, Fraction(epsilon), Fraction(delta))
        proved = single_call(k, Fraction(epsilon), Fraction(delta)).hardened
        assert proved <= charged
        assert charged.epsilon - proved.epsilon <= k * Fraction(delta) ** 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: single_call(0, Fraction(1), Fraction(1, 2)),
        lambda: single_call(1, Fraction(0), Fraction(1, 2)),
        lambda: single_call(1, Fraction(1), Fraction(0)),
        lambda: single_call(1, Fraction(1), Fraction(1)),
        lambda: single_call(1, Fraction(1), Fraction(1, 2), Fraction(1)),
        lambda: pay_what_you_get(0, 1, Fraction(1), Fraction(1, 2)),
        lambda: pay_what_you_get(1, 0, Fraction(1), Fraction(1, 2)),
        lambda: pay_what_you_get(1, 1, Fraction(1), Fraction(1, 2), Fraction(-1)),
        lambda: epsilon_per_draw(Fraction(0), 1, Fraction(0)),
        lambda: epsilon_per_draw(Fraction(1), 0, Fraction(0)),
    ],
)
def test_arguments_out_of_range_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ParameterError):
        call()
