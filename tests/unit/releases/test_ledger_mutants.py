"""What goes wrong with ledgers (specs/topk 6, P15 to P18, P21, P22), done on purpose: it has to be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

import pytest

from stream_dp.accounting import Cost, Ledger, commit, reserve, selection_cost
from stream_dp.accounting.composition import zcdp_epsilon
from stream_dp.config.plan import ViewPlan
from stream_dp.errors import StateError
from stream_dp.exact.bits import BitSource
from stream_dp.kinds.sealing import SealedTable
from stream_dp.releases import accounts
from tests.support.releasing import DELTA, POOL, Desk, keyed, plan
from tests.support.sealing import found, topk_table

HOME = {"home": 40, "cart": 12, "rare": 1}
PLANS = {"one account": plan(), "pool": plan(POOL)}
either = pytest.mark.parametrize("name", PLANS)
Sealed = Callable[[ViewPlan, SealedTable, int], Cost]


def mispriced(monkeypatch: pytest.MonkeyPatch, price: Callable[[Sealed], Sealed]) -> None:
    monkeypatch.setattr(ViewPlan, "spent", price(ViewPlan.spent))


@either
def test_a_bottom_that_goes_free_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P15, P16: a list of one key and a bottom is charged for the key."""

    def free(right: Sealed) -> Sealed:
        return lambda view, table, level: right(view, replace_draws(table, len(table.items) or 1), level)

    desk = Desk(PLANS[name])
    desk.give("tops", 0, {"home": 50})
    desk.auditor.settled()
    assert desk.record("tops", "staff", 0).type == "release"
    mispriced(monkeypatch, free)
    with pytest.raises(AssertionError, match="more was published than is charged"):
        desk.give("tops", 1000, {"home": 50})


def replace_draws(table: SealedTable, draws: int) -> SealedTable:
    complete, _ = found(table)
    return topk_table(table.digest, table.items, table.values, complete=complete, draws=draws)


@either
def test_a_delta_that_is_returned_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P18: an empty list returns its delta, so that lone bottoms would never end."""
    mispriced(monkeypatch, lambda right: lambda *args: right(*args) - Cost(Fraction(0), DELTA))
    desk = Desk(PLANS[name])
    with pytest.raises(StateError, match="delta is never returned"):
        desk.give("tops", 0, {})


@either
def test_a_draw_before_its_reservation_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P17: at the moment of a draw, its worst case has to be in the stored ledger."""
    desk = Desk(PLANS[name])

    def watchful(context: bytes) -> BitSource:
        assert desk.ledger(view="tops").reserved, "something is drawn that nobody reserved for"
        return keyed(context)

    desk.entropy = watchful
    desk.give("tops", 0, HOME)
    monkeypatch.setattr(accounts.Accounts, "rows", lambda _: [])
    with pytest.raises(AssertionError, match="nobody reserved for"):
        desk.give("tops", 1000, HOME)


@either
def test_a_ledger_that_a_restart_forgets_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P22: draws and calls begin anew with the process."""
    desk = Desk(PLANS[name])
    desk.give("tops", 0, HOME)

    def forgetful(_rows: Iterable[tuple[bytes, bytes]]) -> dict[bytes, Ledger]:
        return {}

    monkeypatch.setattr(accounts, "read_ledgers", forgetful)
    desk.reader.restart()
    with pytest.raises(AssertionError, match="was published for another"):
        desk.give("tops", 1000, HOME)


def test_a_call_that_is_tested_by_what_it_drew_overspends() -> None:
    """P17: two draws are left and five are wanted; whoever runs first and tests behind cannot put them back."""
    price = [selection_cost(draws, Fraction(1), Fraction("1e-9"), pooled=True) for draws in range(1, 6)]
    ledger = Ledger(Cost(Fraction(1), Fraction(1), rho=Fraction(1, 4)))
    assert not isinstance(reserve(ledger, "honest", price[4]), Ledger)
    careless = reserve(ledger, "careless", price[0])
    assert isinstance(careless, Ledger)
    with pytest.raises(StateError, match="had only"):
        commit(careless, "careless", price[4], {}, view="pages")


def test_draws_whose_epsilon_grows_with_what_they_show_do_not_fit_a_count_of_draws() -> None:
    """P21: a limit of 100 draws sized for 0.1 admits 100 draws at 1; the filter on rho admits one."""
    slack = Fraction("1e-7")
    ledger = Ledger(Cost(Fraction(1), Fraction(1), rho=100 * Fraction(1, 10) ** 2 / 8))
    dear = selection_cost(1, Fraction(1), Fraction("1e-9"), pooled=True)
    admitted = 0
    while isinstance(found := reserve(ledger, str(admitted), dear), Ledger):
        ledger, admitted = commit(found, str(admitted), dear, {}, view="pages"), admitted + 1
    assert admitted == 1
    assert zcdp_epsilon(ledger.budget.rho, slack) < 3 < 39 < zcdp_epsilon(Fraction(100, 8), slack)
