from __future__ import annotations

import json
import tracemalloc
from fractions import Fraction
from functools import partial
from math import lcm
from pathlib import Path
from typing import Any

import pytest
from rpds import HashTrieMap

from stream_dp.accounting import (
    Cost,
    Ledger,
    Overdraft,
    cancel,
    commit,
    encode,
    forfeit,
    reserve,
    selection_cost,
    write_off,
)
from stream_dp.accounting.cost import ENTRIES
from stream_dp.errors import StateError

TRACES = json.loads((Path(__file__).parents[2] / "vectors" / "topk.json").read_text())["ledger_traces"]


def cost(epsilon: str, delta: str = "0") -> Cost:
    return Cost(Fraction(epsilon), Fraction(delta))


def reserved(ledger: Ledger, call: str, asked: Cost) -> Ledger:
    outcome = reserve(ledger, call, asked)
    assert isinstance(outcome, Ledger)
    return outcome


@pytest.mark.parametrize("case", TRACES, ids=lambda case: case["name"])
@pytest.mark.parametrize("pooled", [False, True])
def test_pay_what_you_get_traces(case: dict[str, Any], pooled: bool) -> None:
    """specs/topk tests 8 and 9, with k* draws as epsilon or as rho, and l* calls as delta."""
    epsilon, delta = Fraction("0.05"), Fraction("1e-9")
    private = "alg6" in case["name"]

    def account(draws: int, calls: int) -> Cost:
        each = selection_cost(1, epsilon, delta, pooled=pooled)
        return Cost(draws * each.epsilon, calls * delta, rho=draws * each.rho)

    ledger = Ledger(account(case["k_star"], case["ell_star"]))
    for step, row in enumerate(case["trace"]):
        if private and row["k_i"] < 2:  # no draw is left for a key: the mechanism does not ask
            assert not row["admitted"]
            continue
        outcome = reserve(ledger, f"call {step}", selection_cost(row["k_i"], epsilon, delta, pooled=pooled))
        assert isinstance(outcome, Ledger) == row["admitted"]
        if isinstance(outcome, Ledger):
            assert row["cost"] == len(row["output"]) + private
            cost = selection_cost(row["cost"], epsilon, delta, pooled=pooled)
            ledger = commit(outcome, f"call {step}", cost, {}, view="pages")
        assert ledger.left == account(row["k_star_after"], row["ell_star_after"])


def test_a_call_that_shows_nothing_still_costs_a_draw_and_a_call() -> None:
    """specs/topk test 16, P15, P18: a lone bottom."""
    price = partial(selection_cost, epsilon=Fraction("0.1"), delta=Fraction("1e-8"), pooled=True)
    ledger = Ledger(Cost(Fraction(1), Fraction("3e-8"), rho=Fraction(1)))
    for call in range(3):
        ledger = commit(reserved(ledger, str(call), price(10)), str(call), price(1), {}, view="pages")
    assert ledger.spent == Cost(Fraction("3e-8"), Fraction("3e-8"), rho=Fraction("0.00375"))
    assert isinstance(reserve(ledger, "one more", price(1)), Overdraft), "calls are limited, however little they draw"


def test_draws_of_different_epsilon_share_one_filter() -> None:
    """specs/topk 3.5, P21: 3 draws at 0.2 and 4 at 0.1 come to an eighth of 0.16."""
    ledger = Ledger(Cost(Fraction(1), Fraction(1), rho=Fraction("0.025")))
    for call, draws, epsilon in (("a", 3, "0.2"), ("b", 4, "0.1")):
        cost = selection_cost(draws, Fraction(epsilon), Fraction("1e-9"), pooled=True)
        ledger = commit(reserved(ledger, call, cost), call, cost, {}, view="pages")
    assert ledger.left.rho == Fraction("0.005")
    ask = partial(selection_cost, delta=Fraction("1e-9"), pooled=True)
    assert isinstance(reserve(ledger, "c", ask(1, Fraction("0.2"))), Ledger)
    assert isinstance(reserve(ledger, "c", ask(5, Fraction("0.1"))), Overdraft)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_part_refuses_by_itself(entry: str) -> None:
    tenth = Cost(*[Fraction(1, 10)] * 3)
    ledger = Ledger(Cost(*(Fraction(1 if name == entry else 100) for name in ENTRIES)))
    for call in range(10):
        ledger = commit(reserved(ledger, str(call), tenth), str(call), tenth, {}, view="pages")
    assert getattr(ledger.left, entry) == 0
    assert reserve(ledger, "more", tenth) == Overdraft(tenth, ledger.left)
    free = Cost(*(Fraction(0) if name == entry else Fraction(1, 10) for name in ENTRIES))
    assert isinstance(reserve(ledger, "free of it", free), Ledger)


def test_reserving_sets_the_worst_case_aside_and_committing_returns_the_rest() -> None:
    ledger = reserved(Ledger(cost("1", "1e-6")), "week 1", cost("0.5", "1e-7"))
    assert ledger.left == cost("0.5", "9e-7")
    assert ledger.spent == Cost.ZERO
    ledger = commit(ledger, "week 1", cost("0.2", "1e-7"), {}, view="pages")
    assert (ledger.left, ledger.spent, dict(ledger.reserved)) == (cost("0.8", "9e-7"), cost("0.2", "1e-7"), {})


def test_the_last_of_the_budget_can_be_reserved_and_not_a_hair_more() -> None:
    ledger = reserved(Ledger(cost("1", "1e-6")), "first", cost("0.7", "0"))
    assert isinstance(reserve(ledger, "second", cost("0.3", "1e-6")), Ledger)
    assert isinstance(reserve(ledger, "second", cost("3000000001/10000000000", "0")), Overdraft)


@pytest.mark.parametrize("asked", [cost("1.1", "1e-9"), cost("0.1", "2e-6"), cost("2", "1")])
def test_a_call_is_refused_for_either_part_and_told_what_is_left(asked: Cost) -> None:
    ledger = Ledger(cost("1", "1e-6"))
    assert reserve(ledger, "call", asked) == Overdraft(asked, cost("1", "1e-6"))


def test_a_call_may_have_less_room_than_the_ledger_has_left_and_takes_as_much_of_it() -> None:
    ledger, room = Ledger(cost("3", "1")), cost("2", "1/2")
    assert reserve(ledger, "dear", cost("5/2"), room) == Overdraft(cost("5/2"), room)
    held = reserve(ledger, "call", cost("2", "1/2"), room)
    assert isinstance(held, Ledger)
    assert held.left == cost("1", "1/2")
    assert reserve(held, "call", cost("2", "1/2"), Cost.ZERO) is held


def test_an_open_reservation_counts_against_the_next_call() -> None:
    ledger = reserved(Ledger(cost("1")), "first", cost("0.6"))
    assert reserve(ledger, "second", cost("0.6")) == Overdraft(cost("0.6"), cost("0.4"))


def test_no_more_than_five_of_a_hundred_concurrent_calls_fit() -> None:
    ledger = Ledger(cost("50"))
    for call in range(100):
        outcome = reserve(ledger, str(call), cost("10"))
        ledger = outcome if isinstance(outcome, Ledger) else ledger
    assert len(ledger.reserved) == 5
    for admitted, length in zip(list(ledger.reserved), (10, 1, 7, 3, 2), strict=True):
        ledger = commit(ledger, admitted, cost(str(length)), {}, view="pages")
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
    ledger = commit(reserved(Ledger(cost("1")), "call", cost("0.6")), "call", cost("0.6"), {}, view="pages")
    with pytest.raises(StateError, match="finished before"):
        commit(ledger, "call", cost("0.6"), {}, view="pages")


def test_delta_is_never_returned() -> None:
    """The chance of the bad event was taken when the call was run (specs/topk 3.5)."""
    ledger = reserved(Ledger(cost("9", "1")), "call", cost("0.6", "1e-9"))
    with pytest.raises(StateError, match="delta is never returned"):
        commit(ledger, "call", cost("0.6", "0"), {}, view="pages")


@pytest.mark.parametrize("came_to", [cost("0.7", "1e-9"), cost("0.1", "2e-9")])
def test_committing_more_than_reserved_is_refused_even_if_the_budget_would_hold_it(came_to: Cost) -> None:
    ledger = reserved(Ledger(cost("9", "1")), "call", cost("0.6", "1e-9"))
    with pytest.raises(StateError, match="had only"):
        commit(ledger, "call", came_to, {}, view="pages")


def test_finishing_a_call_that_is_not_reserved_is_a_contradiction() -> None:
    for finish in (partial(forfeit, view="pages"), cancel):
        with pytest.raises(StateError, match="nothing reserved"):
            finish(Ledger(cost("1")), "call")


def test_forfeit_spends_everything_and_cancel_nothing() -> None:
    ledger = reserved(Ledger(cost("1"), readers={"staff": cost("0.1")}, spent=cost("0.1")), "call", cost("0.6"))
    spent = Ledger(cost("1"), spent=cost("0.7"), readers={"staff": cost("0.1")}, views={"pages": cost("0.6")})
    assert forfeit(ledger, "call", view="pages") == spent
    assert cancel(ledger, "call") == Ledger(cost("1"), spent=cost("0.1"), readers={"staff": cost("0.1")})


def test_what_was_paid_and_forgotten_is_spent_up_to_what_is_left_entry_by_entry() -> None:
    ledger = reserved(Ledger(cost("1", "1/2"), spent=cost("0.1")), "other", cost("0.2", "1/4"))
    written = write_off(ledger, cost("0.5", "1/3"), view="pages")
    assert (written.spent, written.left) == (cost("0.6", "1/4"), cost("0.2"))
    assert (written.reserved, written.readers) == (ledger.reserved, ledger.readers)
    assert write_off(written, cost("9", "9"), view="pages").left == Cost.ZERO


def test_each_audience_is_told_its_own_total_while_the_sharpest_is_charged() -> None:
    ledger = Ledger(cost("1"))
    for week in ("1", "2"):
        shares = {"public": cost("0.1"), "partner": cost("0.2"), "staff": cost("0.4")}
        ledger = commit(reserved(ledger, week, cost("0.4")), week, cost("0.4"), shares, view="pages")
    assert ledger.spent == cost("0.8")
    assert ledger.readers == {"public": cost("0.2"), "partner": cost("0.4"), "staff": cost("0.8")}


def test_sharpening_below_what_others_hold_is_free_even_when_nothing_is_left() -> None:
    ledger = Ledger(cost("1"), spent=cost("1"), readers={"partner": cost("0.2")})
    ledger = commit(reserved(ledger, "grant", Cost.ZERO), "grant", Cost.ZERO, {"partner": cost("0.2")}, view="pages")
    assert (ledger.left, ledger.spent) == (Cost.ZERO, cost("1"))
    assert ledger.readers == {"partner": cost("0.4")}


@pytest.mark.parametrize("spent", [cost("1.1"), cost("0.5", "1e-9"), cost("0.8")])
def test_an_overdrawn_ledger_cannot_be_built(spent: Cost) -> None:
    with pytest.raises(StateError, match="its budget is"):
        Ledger(cost("1"), spent=spent, reserved=HashTrieMap({"call": cost("0.3")}))


def test_a_ledger_does_not_change_with_the_mapping_it_was_built_from() -> None:
    shares = {"staff": cost("0.3")}
    ledger = Ledger(cost("1"), reserved=HashTrieMap({"call": cost("0.3")}), readers=shares)
    shares["staff"] = Cost.ZERO
    assert ledger.readers == {"staff": cost("0.3")}
    with pytest.raises(TypeError):
        ledger.reserved["call"] = Cost.ZERO  # type: ignore[index]
    with pytest.raises(TypeError):
        ledger.readers["staff"] = Cost.ZERO  # type: ignore[index]


def test_a_step_copies_neither_the_open_reservations_nor_anything_else_that_grows() -> None:
    """Ten thousand calls are open; a step of one more takes a few nodes of a tree, not ten thousand entries."""
    each = cost("1/7", "1e-9")
    ledger = Ledger(cost("100000", "1"))
    for call in range(10_000):
        ledger = reserved(ledger, str(call), each)
    tracemalloc.start()
    try:
        kept = [ledger]
        for call in range(100):
            kept.append(reserved(kept[-1], f"new {call}", each))
            kept.append(commit(kept[-1], str(call), each, {}, view="pages"))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200 * 8_000
    assert kept[-1].left == Ledger(ledger.budget, kept[-1].spent, kept[-1].reserved).left


def test_a_ledger_is_as_small_after_a_thousand_windows_as_after_ten() -> None:
    costs = [cost("0.013", "1e-9"), cost("1/3"), cost("1/7", "3/8")]
    ledger, sizes = Ledger(cost("1000", "1000")), []
    for window in range(1_000):
        charge = costs[window % 3]
        worst = Cost(Fraction(1), charge.delta)
        ledger = commit(reserved(ledger, str(window), worst), str(window), charge, {"staff": charge}, view="pages")
        sizes.append(len(encode(ledger)))
    assert sizes[-1] <= sizes[9] + 40
    assert lcm(*(charge.epsilon.denominator for charge in costs)) % ledger.spent.epsilon.denominator == 0
    assert ledger.spent.epsilon == 334 * costs[0].epsilon + 333 * (costs[1].epsilon + costs[2].epsilon)
