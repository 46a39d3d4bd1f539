from __future__ import annotations

import json
from fractions import Fraction
from math import lcm
from pathlib import Path
from typing import Any

import pytest

from stream_dp.accounting import Cost, Ledger, Refusal, commit, encode, forfeit, release, reserve
from stream_dp.errors import StateError

TRACES = json.loads((Path(__file__).parents[2] / "vectors" / "topk.json").read_text())["ledger_traces"]


def cost(epsilon: str, delta: str = "0") -> Cost:
    return Cost(Fraction(epsilon), Fraction(delta))


def reserved(ledger: Ledger, call: str, asked: Cost) -> Ledger:
    outcome = reserve(ledger, call, asked)
    assert isinstance(outcome, Ledger)
    return outcome


@pytest.mark.parametrize("case", TRACES, ids=lambda case: case["name"])
def test_pay_what_you_get_traces(case: dict[str, Any]) -> None:
    epsilon, delta = Fraction("0.05"), Fraction("1e-9")
    ledger = Ledger(Cost(case["k_star"] * epsilon, case["ell_star"] * delta))
    for step, row in enumerate(case["trace"]):
        outcome = reserve(ledger, f"call {step}", Cost(row["k_i"] * epsilon, delta))
        assert isinstance(outcome, Ledger) == row["admitted"]
        if isinstance(outcome, Ledger):
            assert row["cost"] == len(row["output"])
            ledger = commit(outcome, f"call {step}", Cost(row["cost"] * epsilon, delta), {})
        assert ledger.left == Cost(row["k_star_after"] * epsilon, row["ell_star_after"] * delta)


def test_reserving_sets_the_worst_case_aside_and_committing_returns_the_rest() -> None:
    ledger = reserved(Ledger(cost("1", "1e-6")), "week 1", cost("0.5", "1e-7"))
    assert ledger.left == cost("0.5", "9e-7")
    assert ledger.spent == Cost.ZERO
    ledger = commit(ledger, "week 1", cost("0.2", "1e-7"), {})
    assert (ledger.left, ledger.spent, dict(ledger.reserved)) == (cost("0.8", "9e-7"), cost("0.2", "1e-7"), {})


def test_the_last_of_the_budget_can_be_reserved_and_not_a_hair_more() -> None:
    ledger = reserved(Ledger(cost("1", "1e-6")), "first", cost("0.7", "0"))
    assert isinstance(reserve(ledger, "second", cost("0.3", "1e-6")), Ledger)
    assert isinstance(reserve(ledger, "second", cost("3000000001/10000000000", "0")), Refusal)


@pytest.mark.parametrize("asked", [cost("1.1", "1e-9"), cost("0.1", "2e-6"), cost("2", "1")])
def test_a_call_is_refused_for_either_part_and_told_what_is_left(asked: Cost) -> None:
    ledger = Ledger(cost("1", "1e-6"))
    assert reserve(ledger, "call", asked) == Refusal(asked, cost("1", "1e-6"))


def test_an_open_reservation_counts_against_the_next_call() -> None:
    ledger = reserved(Ledger(cost("1")), "first", cost("0.6"))
    assert reserve(ledger, "second", cost("0.6")) == Refusal(cost("0.6"), cost("0.4"))


def test_no_more_than_five_of_a_hundred_concurrent_calls_fit() -> None:
    ledger = Ledger(cost("50"))
    for call in range(100):
        outcome = reserve(ledger, str(call), cost("10"))
        ledger = outcome if isinstance(outcome, Ledger) else ledger
    assert len(ledger.reserved) == 5
    for call, length in zip(list(ledger.reserved), (10, 1, 7, 3, 2), strict=True):
        ledger = commit(ledger, call, cost(str(length)), {})
    assert ledger.left == cost("27")


def test_reserving_again_after_a_crash_changes_nothing() -> None:
    ledger = reserved(Ledger(cost("1")), "call", cost("0.6"))
    assert reserve(ledger, "call", cost("0.6")) is ledger


@pytest.mark.parametrize("other", ["0.5", "0.7", "0"])
def test_reserving_again_at_another_cost_is_a_contradiction(other: str) -> None:
    ledger = reserved(Ledger(cost("1")), "call", cost("0.6"))
    with pytest.raises(StateError, match="now asks for"):
        reserve(ledger, "call", cost(other))


def test_committing_twice_is_a_contradiction() -> None:
    ledger = commit(reserved(Ledger(cost("1")), "call", cost("0.6")), "call", cost("0.6"), {})
    with pytest.raises(StateError, match="finished before"):
        commit(ledger, "call", cost("0.6"), {})


@pytest.mark.parametrize("came_to", [cost("0.7", "1e-9"), cost("0.1", "2e-9")])
def test_committing_more_than_reserved_is_refused_even_if_the_budget_would_hold_it(came_to: Cost) -> None:
    ledger = reserved(Ledger(cost("9", "1")), "call", cost("0.6", "1e-9"))
    with pytest.raises(StateError, match="had only"):
        commit(ledger, "call", came_to, {})


def test_finishing_a_call_that_is_not_reserved_is_a_contradiction() -> None:
    for finish in (forfeit, release):
        with pytest.raises(StateError, match="nothing reserved"):
            finish(Ledger(cost("1")), "call")


def test_forfeit_spends_everything_and_release_nothing() -> None:
    ledger = reserved(Ledger(cost("1"), readers={"staff": cost("0.1")}, spent=cost("0.1")), "call", cost("0.6"))
    assert forfeit(ledger, "call") == Ledger(cost("1"), spent=cost("0.7"), readers={"staff": cost("0.1")})
    assert release(ledger, "call") == Ledger(cost("1"), spent=cost("0.1"), readers={"staff": cost("0.1")})


def test_each_audience_is_told_its_own_total_while_the_sharpest_is_charged() -> None:
    ledger = Ledger(cost("1"))
    for week in ("1", "2"):
        shares = {"public": cost("0.1"), "partner": cost("0.2"), "staff": cost("0.4")}
        ledger = commit(reserved(ledger, week, cost("0.4")), week, cost("0.4"), shares)
    assert ledger.spent == cost("0.8")
    assert ledger.readers == {"public": cost("0.2"), "partner": cost("0.4"), "staff": cost("0.8")}


def test_sharpening_below_what_others_hold_is_free_even_when_nothing_is_left() -> None:
    ledger = Ledger(cost("1"), spent=cost("1"), readers={"partner": cost("0.2")})
    ledger = commit(reserved(ledger, "grant", Cost.ZERO), "grant", Cost.ZERO, {"partner": cost("0.2")})
    assert (ledger.left, ledger.spent) == (Cost.ZERO, cost("1"))
    assert ledger.readers == {"partner": cost("0.4")}


@pytest.mark.parametrize("spent", [cost("1.1"), cost("0.5", "1e-9"), cost("0.8")])
def test_an_overdrawn_ledger_cannot_be_built(spent: Cost) -> None:
    with pytest.raises(StateError, match="its budget is"):
        Ledger(cost("1"), spent=spent, reserved={"call": cost("0.3")})


def test_a_ledger_does_not_change_with_the_mapping_it_was_built_from() -> None:
    reservations = {"call": cost("0.3")}
    ledger = Ledger(cost("1"), reserved=reservations)
    reservations["call"] = Cost.ZERO
    assert ledger.left == cost("0.7")
    with pytest.raises(TypeError):
        ledger.reserved["call"] = Cost.ZERO  # type: ignore[index]


def test_a_ledger_is_as_small_after_a_thousand_windows_as_after_ten() -> None:
    costs = [cost("0.013", "1e-9"), cost("1/3"), cost("1/7", "3/8")]
    ledger, sizes = Ledger(cost("1000", "1000")), []
    for window in range(1_000):
        charge = costs[window % 3]
        ledger = commit(reserved(ledger, str(window), cost("1", "1")), str(window), charge, {"staff": charge})
        sizes.append(len(encode(ledger)))
    assert sizes[-1] <= sizes[9] + 40
    assert lcm(*(charge.epsilon.denominator for charge in costs)) % ledger.spent.epsilon.denominator == 0
    assert ledger.spent.epsilon == 334 * costs[0].epsilon + 333 * (costs[1].epsilon + costs[2].epsilon)
