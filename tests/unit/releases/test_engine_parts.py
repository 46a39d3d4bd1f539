"""A ledger with parts: what is charged where, what is returned, which part refuses, what an older state becomes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stream_dp.accounting import Cost, encode_cost, forfeit
from stream_dp.accounting.composition import squares_epsilon, zcdp_epsilon
from stream_dp.errors import ConfigError, StateError
from stream_dp.records.models import Refusal
from stream_dp.releases.accounts import ledger_key, read_ledgers, reservation_key
from stream_dp.releases.rows import LEDGER, RESERVATION
from tests.support.releasing import COARSE, DELTA, FINE, MIDDLE, ONLY_PAGES, PARTS, Desk, plan

HOME = {"home": 40, "cart": 12, "rare": 1}
PARTED = plan(PARTS)
VIEWS = PARTED.views
RHO = [level.rho for level in VIEWS["pages"].levels]
NOTHING = Fraction(0)
GENEROUS = (PARTS[0], PARTS[1].replace('zcdp: {epsilon: "39"', 'zcdp: {epsilon: "1000"').replace('"47"', '"1008"'))
"""Rho for everything: what a period can run out of is squares, 5.13."""


def test_the_parts_of_a_ledger_add_up_to_what_it_promises() -> None:
    ledger = PARTED.ledgers["visitors"]
    slack = Fraction(1, 100)
    assert ledger.total == Cost(Fraction(47), Fraction(1, 5))
    assert (ledger.budget.epsilon, ledger.budget.delta) == (Fraction(2), Fraction(1, 5) - 2 * slack)
    parts = squares_epsilon(ledger.budget.squares, slack), zcdp_epsilon(ledger.budget.rho, slack)
    assert all(0 <= cap - part < Fraction(1, 10**9) for cap, part in zip((6, 39), parts, strict=True))
    assert ledger.budget.epsilon + sum(parts) <= ledger.total.epsilon


def test_counts_are_charged_rho_and_draws_squares() -> None:
    desk = Desk(PARTED)
    desk.give("pages", 0, HOME)
    assert desk.ledger().spent == Cost(NOTHING, DELTA, rho=RHO[MIDDLE])
    desk.give("tops", 0, HOME)
    draws = Cost(2 * DELTA, DELTA, squares=Fraction(2))
    assert desk.ledger().spent == Cost(NOTHING, DELTA, rho=2 * RHO[MIDDLE]) + draws
    record = desk.record("tops", "staff", 0)
    assert record.privacy.window.cost == Cost(NOTHING, NOTHING, rho=RHO[MIDDLE]) + draws
    assert desk.charged("tops", "staff", 0) == Cost(NOTHING, NOTHING, rho=RHO[MIDDLE] - RHO[COARSE])
    desk.auditor.settled()


@pytest.mark.parametrize(("part", "entries"), [("selection", ("squares",)), ("zcdp", ("rho",))])
def test_one_part_alone_leaves_the_rest_as_it_was(part: str, entries: tuple[str, ...]) -> None:
    other = {
        "selection": ', zcdp: {epsilon: "39", slack: "1/100"}',
        "zcdp": 'selection: {epsilon: "6", slack: "1/100"}, ',
    }
    view = plan((PARTS[0], PARTS[1].replace(other[part], ""))).views["tops"]
    whole, parted = plan().views["tops"].cost(MIDDLE), view.cost(MIDDLE)
    assert {name for name, _ in parted.entries()} == {"epsilon", "delta", *entries}
    assert parted.delta == whole.delta
    assert parted.epsilon == (2 + 2 * DELTA if part == "selection" else 2 * (1 + DELTA))


def test_a_record_tells_the_parts_of_its_ledger_and_an_entry_what_is_left_of_each() -> None:
    desk = Desk(PARTED)
    desk.give("tops", 0, HOME)
    account, (entry,) = desk.record("tops", "public", 0).ledger, desk.entries()
    assert (account.budget.epsilon.exact, account.budget.delta.exact) == ("47", "1/5")
    assert account.parts is not None
    assert entry.ledger == account
    assert entry.remaining.cost == desk.ledger().left
    selection, zcdp = account.parts.selection, account.parts.zcdp
    assert selection is not None
    assert zcdp is not None
    assert (selection.epsilon.exact, selection.slack.exact) == ("6", "1/100")
    assert entry.remaining.cost.squares == Fraction(selection.budget.exact) - 2
    assert entry.remaining.cost.rho == Fraction(zcdp.budget.exact) - RHO[MIDDLE]


def test_what_short_lists_return_lets_more_windows_through_than_the_worst_case() -> None:
    """Squares 5.13: two windows of two draws each, or, with a lone bottom each, four, and a fifth that draws one of two
    and is not asked for more than is left."""
    worst, short = Desk(plan(GENEROUS)), Desk(plan(GENEROUS))
    for start in range(0, 4000, 1000):
        worst.give("tops", start, HOME)
        short.give("tops", start, {})
    assert [record.type for record in worst.records("tops", "staff")] == ["release"] * 2 + ["refusal"] * 2
    assert [record.type for record in short.records("tops", "staff")] == ["release"] * 4
    assert worst.ledger().spent.squares == short.ledger().spent.squares == 4
    assert short.ledger().spent.delta == 4 * DELTA, "delta is charged in full, whatever was drawn"
    for desk in (worst, short):
        desk.auditor.settled()


def test_a_part_that_is_spent_refuses_while_the_others_go_on() -> None:
    """Two views of one population: the draws of one are spent, the counts of the other are still paid."""
    desk = Desk(plan(GENEROUS))
    for start in range(0, 3000, 1000):
        desk.give("tops", start, HOME)
        desk.give("pages", start, HOME)
    assert [record.type for record in desk.records("tops", "staff")] == ["release", "release", "refusal"]
    assert [record.type for record in desk.records("pages", "staff")] == ["release"] * 3
    refusal = desk.records("tops", "staff")[-1]
    assert isinstance(refusal, Refusal)
    (entry,) = [entry for entry in desk.entries() if entry.type == "refusal"]
    assert refusal.requested == entry.requested
    assert refusal.requested.cost.squares == 2 > entry.remaining.cost.squares
    desk.auditor.settled()


def test_an_empty_window_costs_a_draw_and_its_delta() -> None:
    """specs/topk test 16."""
    desk = Desk(PARTED)
    desk.give("tops", 0, {})
    assert desk.ledger().spent == Cost(DELTA, DELTA, squares=Fraction(1), rho=RHO[MIDDLE])


def test_steps_of_a_ladder_are_charged_as_its_levels_differ_and_add_up_to_the_finest() -> None:
    desk = Desk(plan(PARTS, ONLY_PAGES))
    desk.give("pages", 0, HOME)
    desk.grant(1, "partner", "middle")
    assert desk.ledger().spent.rho == RHO[MIDDLE]
    desk.grant(2, "partner", "fine")
    assert desk.ledger().spent == Cost(NOTHING, DELTA, rho=RHO[FINE])
    assert desk.charged("pages", "partner", 0) == Cost(NOTHING, NOTHING, rho=RHO[FINE] - RHO[MIDDLE])
    desk.grant(3, "public", "fine")
    assert desk.ledger().spent.rho == RHO[FINE]
    desk.auditor.settled()


def test_late_buckets_change_neither_the_record_nor_the_ledger() -> None:
    """specs/topk test 43."""
    desk = Desk(PARTED)
    desk.give("tops", 0, HOME)
    rows, published = dict(desk.machine.rows), desk.published()
    desk.give("tops", 0, {"late": 4000})
    desk.reader.restart()
    desk.give("tops", 0, {"later": 4000})
    assert (desk.machine.rows, desk.published()) == (rows, published)


def test_restarts_reset_neither_draws_nor_calls() -> None:
    """specs/topk test 38, P22: with a restart before every window, the same windows are refused."""
    calm, restless = Desk(plan(GENEROUS)), Desk(plan(GENEROUS))
    for start in range(0, 4000, 1000):
        calm.give("tops", start, HOME)
        restless.give("tops", start, HOME)
        restless.reader.restart()
    assert restless.published() == calm.published()
    assert restless.ledger() == calm.ledger()


# -- what was stored before -----------------------------------------------------------------------------------------

OLD = plan(ONLY_PAGES)
CALLS = ("pages 1000  -1 -1", "gone 0  -1 -1")


def reserved_besides(desk: Desk, *calls: str) -> bytes:
    """Add open reservations to what a desk has stored; the key of its ledger."""
    key = ledger_key(OLD.views["pages"], 0)
    desk.machine.rows |= {reservation_key(key, call): encode_cost(Cost(Fraction(2), DELTA)) for call in calls}
    return key


@pytest.mark.parametrize("cut", range(6))
def test_what_was_reserved_is_dropped_if_its_window_was_never_stored_and_kept_if_its_view_is_gone(cut: int) -> None:
    desk = Desk(OLD)
    desk.give("pages", 0, HOME)
    spent, key = desk.ledger().spent, reserved_besides(desk, *CALLS)
    desk.machine.watch, desk.machine.cut_after = lambda: None, cut
    desk.reader.restart()
    desk.machine.cut_after = None
    ledger = desk.ledger()
    assert dict(ledger.reserved) == {CALLS[1]: Cost(Fraction(2), DELTA)}
    assert (ledger.spent, ledger.left.epsilon) == (spent, Fraction(40 - 2 - 2))
    assert reservation_key(key, CALLS[1]) in desk.machine.rows
    desk.give("pages", 1000, HOME)
    assert desk.ledger().spent == spent + spent
    assert set(desk.ledger().reserved) == {CALLS[1]}


def test_a_reservation_of_a_view_that_is_gone_can_be_forfeited_for_good() -> None:
    desk = Desk(OLD)
    desk.give("pages", 0, HOME)
    reserved_besides(desk, CALLS[1])
    ledger = desk.ledger()
    assert forfeit(ledger, CALLS[1], view="tops").left == ledger.left


def test_a_reservation_without_a_ledger_stops_the_engine() -> None:
    desk = Desk(OLD)
    desk.give("pages", 0, HOME)
    rows = {key: value for key, value in desk.machine.rows.items() if not key.startswith(LEDGER)}
    key = ledger_key(OLD.views["pages"], 0)
    rows[RESERVATION + key[1:] + b"pages 0  -1 -1"] = b"\x94\xa12\xa10\xa10\xa10"
    with pytest.raises(StateError, match="a ledger that is not stored"):
        read_ledgers(rows.items())


def test_parts_that_come_or_go_make_another_view() -> None:
    desk = Desk(OLD)
    desk.give("pages", 0, HOME)
    with pytest.raises(ConfigError, match=r"views\.pages: .*new name"):
        desk.change(plan(ONLY_PAGES, PARTS))
