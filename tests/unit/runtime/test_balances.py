"""What a ledger has left is told by the entries that have left, of its newest period and of no other partition's."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from stream_dp.accounting import Cost, Ledger
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.records.codec import encode, entry_key
from stream_dp.releases.accounts import Booking
from stream_dp.releases.publication import audience_charge, entry_record
from stream_dp.runtime.faust.delivery import Balances
from stream_dp.windows.effects import Message
from tests.support.views import balance

ACCOUNTS = "app-accounts"


@pytest.fixture
def plan(planned: Any) -> Plan:
    made: Plan = planned()
    return made


@pytest.fixture
def balances() -> Balances:
    return Balances(ACCOUNTS)


def entry(view: ViewPlan, start_ms: int, epsilon: Fraction, delta: Fraction, topic: str = ACCOUNTS) -> Message:
    """An entry of a window behind which so much of the ledger's epsilon and delta is left."""
    total = view.ledger.total
    left = Cost(total.epsilon * epsilon, total.delta * delta)
    booking = Booking(Ledger(left), balance(view, left), view.cost(0))
    made = entry_record(
        view, start_ms, "charge", [audience_charge(view, "public", 0, 1, Cost.ZERO, Cost.ZERO)], booking
    )
    return Message(topic, entry_key(made), encode(made))


HALF, THIRD, TENTH = Fraction(1, 2), Fraction(1, 3), Fraction(1, 10)


def test_nothing_is_told_before_an_entry_has_left_and_after_a_rebalance(plan: Plan, balances: Balances) -> None:
    view = plan.views["destinations"]
    start = view.window.shape.start_of(1_356_998_400_000)
    assert balances.ratios() == {}
    balances.take(
        [entry(view, start, HALF, HALF, topic="flights.releases.destinations.public"), Message(ACCOUNTS, b"k", None)]
    )
    assert balances.ratios() == {}
    balances.take([entry(view, start, HALF, HALF)])
    assert balances.ratios() == {view.ledger.name: 0.5}
    balances.forget()
    assert balances.ratios() == {}


def test_the_cap_that_has_the_least_counts(plan: Plan, balances: Balances) -> None:
    view = plan.views["destinations"]
    start = view.window.shape.start_of(1_356_998_400_000)
    balances.take([entry(view, start, HALF, TENTH)])
    assert balances.ratios() == {view.ledger.name: 0.1}


def test_an_older_window_that_is_sharpened_takes_nothing_back(plan: Plan, balances: Balances) -> None:
    view = plan.views["destinations"]
    shape, periods = view.window.shape, view.ledger.periods
    new = shape.start_of(periods.start_of(1_356_998_400_000) + 400 * 86_400_000)
    old = shape.start_of(1_356_998_400_000)
    assert periods.start_of(old) < periods.start_of(new)
    balances.take([entry(view, new, HALF, HALF), entry(view, old, TENTH, TENTH)])
    assert balances.ratios() == {view.ledger.name: 0.5}


def test_of_the_views_of_a_ledger_the_newest_period_counts_and_in_it_the_least(plan: Plan) -> None:
    one, other = plan.views["destinations"], plan.views["busiest"]
    assert one.ledger == other.ledger
    old = one.window.shape.start_of(1_356_998_400_000)
    new = one.window.shape.start_of(old + 400 * 86_400_000)
    of_old, of_new = entry(one, old, TENTH, TENTH), entry(other, new, HALF, HALF)
    for order in ([of_old, of_new], [of_new, of_old]):
        balances = Balances(ACCOUNTS)
        balances.take(order)
        assert balances.ratios() == {one.ledger.name: 0.5}
        balances.take([entry(one, new, THIRD, HALF)])
        assert balances.ratios() == {one.ledger.name: pytest.approx(1 / 3)}
