from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import log, sqrt, tanh
from typing import Any

import pytest

from experiments.topk.composition import NO_STEPS, Bounds, azuma_hoeffding, compose, general_cost
from stream_dp.accounting import Cost
from stream_dp.accounting.composition import rho_within, zcdp_epsilon
from stream_dp.accounting.rounding import exp_up
from stream_dp.errors import ParameterError
from tests.support.chosen import ordinarily

SLACKS = [Fraction(1, 2), Fraction("1e-6"), Fraction("1e-12")]
TARGETS = [Fraction(1, 1000), Fraction(1, 20), Fraction(1), Fraction(3), Fraction(100)]
ULP = 1 + Fraction(1, 2**63)
"""The step from a number with 64 significant bits to the next, at most."""


def close(bound: Fraction | None, expected: Fraction) -> bool:
    """A bound agrees with a double within 1e-9, and does not lie below it by more than doubles are wrong."""
    return bound is not None and -Fraction(1, 10**13) < bound / expected - 1 < Fraction(1, 10**9)


def agree(bounds: Bounds, row: dict[str, Any]) -> None:
    assert close(bounds.basic, row["basic"])
    for name in ("advanced", "bounded_range"):
        term = getattr(bounds, name)
        assert term is None if row[name] is None else close(term, row[name])
    assert close(bounds.epsilon, row["eps_prime"])


def test_terms_of_equations_2_and_3(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["composition_eq2_eq3"]:
        steps = {Fraction(row["eps"]): row["k"]}
        bounds = compose(steps, NO_STEPS, Fraction(row["delta_prime"]))
        agree(bounds, row)
        assert bounds.epsilon == getattr(bounds, row["argmin"])
        tight = compose(steps, NO_STEPS, Fraction(row["delta_prime"]), tight_mean=True).bounded_range
        expected = row["hard_bounded_range_mean_eps2_over_8"]
        assert tight is None if expected is None else close(tight, expected)


def test_the_named_examples_of_acceptance_test_5() -> None:
    def terms(epsilon: str, k: int) -> list[float]:
        bounds = compose({Fraction(epsilon): k}, NO_STEPS, Fraction("1e-6"))
        return [float(term) for term in (bounds.basic, bounds.advanced, bounds.bounded_range) if term is not None]

    assert terms("0.1", 100) == pytest.approx([10, 5.756105519335732, 3.128260884878466], rel=1e-12, abs=0)
    assert min(terms("0.1", 10)) == pytest.approx(0.8811290681345552, rel=1e-12, abs=0)
    assert min(terms("3", 10_000)) == pytest.approx(28731.404140273073, rel=1e-12, abs=0) == terms("3", 10_000)[1]


def test_draws_of_different_epsilons(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["composition_heterogeneous_lemma44"]:
        steps = {Fraction(epsilon): count for epsilon, count in row["eps_list"]}
        agree(compose(steps, NO_STEPS, row["delta_prime"]), row)


def test_selections_with_measured_counts(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["selection_plus_laplace_counts_derived"]:
        bounds = compose({row["eps_sel"]: row["k_star"]}, {row["eps_cnt"]: row["n_cnt"]}, row["delta_prime"])
        assert close(bounds.basic, row["basic"])
        assert close(bounds.bounded_range, row["bounded_range_mix"])


def test_pure_mechanisms_alone_are_theorem_3() -> None:
    row = {Cost(Fraction("0.1"), Fraction("1e-9")): 300, Cost(Fraction("0.3"), Fraction("2e-9")): 20}
    slack = Fraction("1e-6")
    cost = general_cost(row, slack)
    mean = 300 * 0.1 * tanh(0.05) + 20 * 0.3 * tanh(0.15)

    assert cost.delta == 300 * Fraction("1e-9") + 20 * Fraction("2e-9") + slack
    assert float(cost.epsilon) == pytest.approx(mean + sqrt(2 * (300 * 0.01 + 20 * 0.09) * log(1e6)), rel=1e-12, abs=0)
    assert general_cost(row, Fraction(0)) == Cost(Fraction(36), cost.delta - slack)


def test_costs_of_one_epsilon_and_several_deltas_are_all_counted() -> None:
    one, other = Cost(Fraction(1), Fraction("1e-9")), Cost(Fraction(1), Fraction("2e-9"))

    assert general_cost({one: 2, other: 3}, Fraction(0)) == Cost(Fraction(5), Fraction("8e-9"))


def test_no_steps_cost_nothing() -> None:
    assert compose(NO_STEPS, NO_STEPS, Fraction("1e-6")).epsilon == 0
    assert zcdp_epsilon(Fraction(0), Fraction("1e-6")) == 0


@pytest.mark.parametrize("slack", SLACKS[1:])
def test_the_pool_promises_less_for_its_draws_than_every_term_for_fixed_ones(slack: Fraction) -> None:
    draws = {Fraction("0.1"): 100, Fraction(1, 3): 7}
    rho = sum(count * epsilon**2 for epsilon, count in draws.items()) * Fraction(1, 8)

    assert zcdp_epsilon(rho, slack) < compose(draws, NO_STEPS, slack, tight_mean=True).epsilon


@pytest.mark.parametrize("slack", SLACKS)
@pytest.mark.parametrize("target", ordinarily(1, TARGETS))
def test_parameters_found_for_a_target_keep_it_and_the_next_ones_do_not(target: Fraction, slack: Fraction) -> None:
    rho = rho_within(target, slack)

    assert zcdp_epsilon(rho, slack) <= target < zcdp_epsilon(rho * ULP, slack)
    odd = rho.numerator >> (rho.numerator & -rho.numerator).bit_length() - 1
    assert odd.bit_length() <= 64
    assert rho.denominator & rho.denominator - 1 == 0


@pytest.mark.parametrize("slack", SLACKS)
@pytest.mark.parametrize("rho", [Fraction(1, 10**9), Fraction(1, 100), Fraction(1), Fraction(40)])
def test_zcdp_is_converted_at_the_best_order_and_below_the_usual_formula(rho: Fraction, slack: Fraction) -> None:
    epsilon = zcdp_epsilon(rho, slack)
    usual = float(rho) + 2 * sqrt(float(rho) * log(1 / slack))

    assert 0 <= epsilon < usual

    def at(order: float) -> float:
        return float(rho) * order + log(1 - 1 / order) - log(order * float(slack)) / (order - 1)

    best = sqrt(log(1 / slack) / float(rho))
    dense = min(at(1 + best * n / 4000) for n in range(1, 4001))
    assert float(epsilon) == pytest.approx(max(dense, 0), rel=1e-5, abs=1e-15)


def test_every_epsilon_is_rounded_up() -> None:
    """A term whose exact value is known: squared ranges of 2 ln(1/slack) x^2 deviate by ln(1/slack) x."""
    slack = 1 / exp_up(Fraction(1))  # ln(1/slack) is just above 1
    assert azuma_hoeffding(Fraction(1), Fraction(2), slack) > 2
    assert azuma_hoeffding(Fraction(1), Fraction(2), slack) - 2 < Fraction(1, 2**240)


@pytest.mark.parametrize(
    "call",
    [
        lambda: zcdp_epsilon(Fraction(-1), Fraction(1, 2)),
        lambda: zcdp_epsilon(Fraction(1), Fraction(0)),
        lambda: zcdp_epsilon(Fraction(1), Fraction(1)),
        lambda: zcdp_epsilon(1.0, Fraction(1, 2)),  # type: ignore[arg-type]
        lambda: rho_within(Fraction(0), Fraction(1, 2)),
        lambda: rho_within(Fraction(1), Fraction(2)),
        lambda: zcdp_epsilon(Fraction(1), 0.5),  # type: ignore[arg-type]
        lambda: rho_within(Fraction(-1), Fraction(1, 2)),
        lambda: rho_within(Fraction(1), Fraction(0)),
        lambda: compose({Fraction(1): -1}, NO_STEPS, Fraction(0)),
        lambda: compose({Fraction(-1): 1}, NO_STEPS, Fraction(0)),
        lambda: compose(NO_STEPS, {0.1: 1}, Fraction(0)),  # type: ignore[dict-item]
        lambda: compose({Fraction(1): 1}, NO_STEPS, Fraction(-1)),
        lambda: compose({Fraction(1): 1}, NO_STEPS, Fraction(1)),
        lambda: general_cost({Cost.ZERO: 1}, Fraction(1)),
    ],
)
def test_arguments_out_of_range_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ParameterError):
        call()
