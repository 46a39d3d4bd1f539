"""A ledger with a pool: what is charged where, what is returned, which entry refuses, what an older state becomes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from stream_dp.accounting import Cost, forfeit
from stream_dp.accounting.composition import zcdp_epsilon
from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError
from stream_dp.records.models import Refusal, Release
from stream_dp.releases.accounts import ledger_key
from stream_dp.releases.rows import AudienceState
from tests.support.panes import paned
from tests.support.releasing import COARSE, DELTA, FINE, MIDDLE, ONLY_PAGES, POOL, SHOP, Desk, add_reservations, plan
from tests.support.running import running

HOME = {"home": 40, "cart": 12, "rare": 1}
POOLED = plan(POOL)
VIEWS = POOLED.views
RHO = [level.rho for level in VIEWS["pages"].levels]
STEP_RHO = [level.step_rho for level in VIEWS["pages"].levels]
NOTHING = Fraction(0)
ONLY_TOPS = ("  pages:\n" + SHOP.partition("  pages:\n")[2].partition("  tops:\n")[0], "")
SCARCE = plan(ONLY_TOPS, (POOL[0], POOL[1].replace('"39"', '"16.6"').replace('"41"', '"18.6"')))
"""Rho up to 6.9: three windows of tops at worst, 1.77 each, or four that draw once but for one."""


def test_the_pool_and_the_rest_add_up_to_what_the_ledger_promises() -> None:
    ledger, slack = POOLED.ledgers["visitors"], Fraction(1, 100)
    assert ledger.total == Cost(Fraction(41), Fraction(1, 5))
    assert (ledger.budget.epsilon, ledger.budget.delta) == (Fraction(2), Fraction(1, 5) - slack)
    assert 0 <= 39 - zcdp_epsilon(ledger.budget.rho, slack) < Fraction(1, 10**9)


def test_counts_and_draws_are_charged_rho() -> None:
    desk = Desk(POOLED)
    desk.give("pages", 0, HOME)
    assert desk.ledger().spent == Cost(NOTHING, DELTA, rho=RHO[MIDDLE])
    desk.give("tops", 0, HOME)
    draws = Cost(2 * DELTA, DELTA, rho=Fraction(2, 8))
    assert desk.ledger().spent == Cost(NOTHING, DELTA, rho=2 * RHO[MIDDLE]) + draws
    record = desk.record("tops", "staff", 0)
    assert record.privacy.window.cost == Cost(NOTHING, NOTHING, rho=RHO[MIDDLE]) + draws
    assert desk.charged("tops", "staff", 0) == Cost(NOTHING, NOTHING, rho=RHO[MIDDLE] - RHO[COARSE])
    desk.auditor.settled()


def test_a_record_tells_the_pool_of_its_ledger_and_an_entry_what_is_left_of_it() -> None:
    desk = Desk(POOLED)
    desk.give("tops", 0, HOME)
    account, (entry,) = desk.record("tops", "public", 0).ledger, desk.entries()
    assert (account.budget.epsilon.exact, account.budget.delta.exact) == ("41", "1/5")
    assert entry.ledger == account
    assert entry.remaining.cost == desk.ledger().left
    pool = account.zcdp
    assert pool is not None
    assert (pool.epsilon.exact, pool.slack.exact) == ("39", "1/100")
    assert entry.remaining.cost.rho == Fraction(pool.budget.exact) - RHO[MIDDLE] - Fraction(2, 8)


def test_what_short_lists_return_lets_more_windows_through_than_the_worst_case() -> None:
    worst, short = Desk(SCARCE), Desk(SCARCE)
    for start in range(0, 4000, 1000):
        worst.give("tops", start, HOME)
        short.give("tops", start, {})
    assert [record.type for record in worst.records("tops", "staff")] == ["release"] * 3 + ["refusal"]
    assert [record.type for record in short.records("tops", "staff")] == ["release"] * 4
    assert worst.ledger(view="tops").spent.rho == 3 * (RHO[MIDDLE] + Fraction(2, 8))
    assert short.ledger(view="tops").spent.rho == 4 * (RHO[MIDDLE] + Fraction(1, 8))
    assert short.ledger(view="tops").spent.delta == 4 * DELTA, "delta is charged in full, whatever was drawn"
    for desk in (worst, short):
        desk.auditor.settled()


def test_the_rest_may_be_spent_while_the_pool_goes_on() -> None:
    """Each draw costs its delta in epsilon, of which 1/20 is left over: two windows of two draws at 1/100 each."""
    desk = Desk(plan((POOL[0], POOL[1].replace('"41"', '"39.05"'))))
    for start in range(0, 3000, 1000):
        desk.give("tops", start, HOME)
        desk.give("pages", start, HOME)
    assert [record.type for record in desk.records("tops", "staff")] == ["release", "release", "refusal"]
    assert [record.type for record in desk.records("pages", "staff")] == ["release"] * 3
    refusal = desk.records("tops", "staff")[-1]
    assert isinstance(refusal, Refusal)
    (entry,) = [entry for entry in desk.entries() if entry.type == "refusal"]
    assert refusal.requested == entry.requested
    assert refusal.requested.cost.epsilon == 2 * DELTA > entry.remaining.cost.epsilon
    desk.auditor.settled()


def test_an_empty_window_costs_a_draw_and_its_delta() -> None:
    """specs/topk test 16."""
    desk = Desk(POOLED)
    desk.give("tops", 0, {})
    assert desk.ledger().spent == Cost(DELTA, DELTA, rho=RHO[MIDDLE] + Fraction(1, 8))


def test_the_first_release_is_charged_at_its_finest_level_and_then_every_step_that_is_taken() -> None:
    """Public begins at coarse, staff at middle. A step that skips a level costs no less and no more."""
    desk = Desk(plan(POOL, ONLY_PAGES))
    desk.give("pages", 0, HOME)
    desk.grant(1, "partner", "middle")
    assert desk.ledger().spent.rho == RHO[MIDDLE]
    assert desk.charged("pages", "staff", 0).rho == RHO[MIDDLE] - RHO[COARSE]
    desk.grant(2, "partner", "fine")
    assert desk.ledger().spent == Cost(NOTHING, DELTA, rho=RHO[MIDDLE] + STEP_RHO[FINE])
    assert desk.charged("pages", "partner", 0) == Cost(NOTHING, NOTHING, rho=STEP_RHO[FINE])
    desk.grant(3, "public", "fine")
    assert desk.ledger().spent.rho == RHO[MIDDLE] + STEP_RHO[FINE]
    desk.auditor.settled()


def test_an_audience_alone_is_told_the_steps_that_it_took() -> None:
    desk = Desk(plan(POOL, ONLY_PAGES))
    desk.give("pages", 0, HOME)
    desk.grant(1, "public", "fine")
    desk.grant(2, "staff", "fine")
    keys = Cost(NOTHING, DELTA)
    told = [
        record.privacy.window.cost - keys for record in desk.records("pages", "public") if isinstance(record, Release)
    ]
    assert [cost.rho for cost in told] == [RHO[COARSE], RHO[COARSE] + STEP_RHO[FINE]]
    readers = desk.ledger().readers
    assert readers["public"].rho == RHO[COARSE] + STEP_RHO[FINE]
    assert readers["staff"].rho == RHO[MIDDLE] + STEP_RHO[FINE]
    desk.auditor.settled()


def test_steps_are_cut_where_a_level_is_taken_back_or_a_pane_has_a_coarser_one() -> None:
    state = AudienceState(2, FINE, steps=[COARSE, FINE])
    assert [state.steps_to(level) for level in (-1, COARSE, MIDDLE, FINE)] == [
        [],
        [COARSE],
        [COARSE, MIDDLE],
        [COARSE, FINE],
    ]
    assert state.back_at(COARSE) == AudienceState(2, COARSE, steps=[COARSE])
    assert state.back_at(-1) == AudienceState(2, -1)


def test_a_window_that_is_first_released_at_its_finest_level_costs_less_than_steps_to_it() -> None:
    """At 1, 2 and 4: 3.86 in place of 0.46 + 2 + 8."""
    desk = Desk(plan(POOL, ONLY_PAGES))
    desk.grant(1, "partner", "fine")
    desk.give("pages", 0, HOME)
    assert desk.ledger().spent == Cost(NOTHING, DELTA, rho=RHO[FINE])
    assert float(RHO[FINE]) == pytest.approx(3.856, abs=1e-3)
    assert float(desk.plan.views["pages"].at_worst.rho) == pytest.approx(10.462, abs=1e-3)
    desk.auditor.settled()


def test_late_buckets_change_neither_the_record_nor_the_ledger() -> None:
    """specs/topk test 43."""
    desk = Desk(POOLED)
    desk.give("tops", 0, HOME)
    rows, published = dict(desk.machine.rows), desk.published()
    desk.give("tops", 0, {"late": 4000})
    desk.reader.restart()
    desk.give("tops", 0, {"later": 4000})
    assert (desk.machine.rows, desk.published()) == (rows, published)


def test_restarts_reset_neither_draws_nor_calls() -> None:
    """specs/topk test 38, P22: with a restart before every window, the same windows are refused."""
    calm, restless = Desk(SCARCE), Desk(SCARCE)
    for start in range(0, 4000, 1000):
        calm.give("tops", start, HOME)
        restless.give("tops", start, HOME)
        restless.reader.restart()
    assert restless.published() == calm.published()
    assert restless.ledger(view="tops") == calm.ledger(view="tops")


# -- what was stored before -----------------------------------------------------------------------------------------

OLD = plan(ONLY_PAGES)
CALLS = ("pages 1000  -1 -1 -1", "gone 0  -1 -1 -1")


def reserved_besides(desk: Desk, *calls: str) -> None:
    """Add open reservations to what a desk has stored."""
    add_reservations(desk, ledger_key(OLD.views["pages"], 0), dict.fromkeys(calls, Cost(Fraction(2), DELTA)))


@pytest.mark.parametrize("cut", range(6))
def test_what_was_reserved_is_dropped_if_its_window_was_never_stored_and_kept_if_its_view_is_gone(cut: int) -> None:
    desk = Desk(OLD)
    desk.give("pages", 0, HOME)
    spent = desk.ledger().spent
    reserved_besides(desk, *CALLS)
    desk.machine.watch, desk.machine.cut_after = lambda: None, cut
    desk.reader.restart()
    desk.machine.cut_after = None
    ledger = desk.ledger()
    assert dict(ledger.reserved) == {CALLS[1]: Cost(Fraction(2), DELTA)}
    assert (ledger.spent, ledger.left.epsilon) == (spent, Fraction(40 - 2 - 2))
    desk.give("pages", 1000, HOME)
    assert desk.ledger().spent == spent + spent
    assert set(desk.ledger().reserved) == {CALLS[1]}


def test_a_reservation_of_a_view_that_is_gone_can_be_forfeited_for_good() -> None:
    desk = Desk(OLD)
    desk.give("pages", 0, HOME)
    reserved_besides(desk, CALLS[1])
    ledger = desk.ledger()
    assert forfeit(ledger, CALLS[1], view="tops").left == ledger.left


def test_a_pool_that_comes_or_goes_makes_another_view() -> None:
    desk = Desk(OLD)
    desk.give("pages", 0, HOME)
    with pytest.raises(ConfigError, match=r"views\.pages: .*new name"):
        desk.change(plan(ONLY_PAGES, POOL))


# -- windows of panes -----------------------------------------------------------------------------------------------


def pooled(changes: Callable[..., Plan], period: str) -> Plan:
    """A plan of windows of panes, of which the ledger has a pool."""
    whole, pool = (text.replace("period: 4s", f"period: {period}") for text in POOL)
    return changes((whole, pool.replace('"39"', '"99"').replace('"41"', '"101"')))


def told(desk: Desk, audience: str) -> dict[tuple[int, int, int], Fraction]:
    """By window and revision: the rho that an audience is told of it."""
    return {
        (record.window.start_ms, record.window.end_ms, record.revision): record.privacy.window.cost.rho
        for record in desk.records("pages", audience)
        if isinstance(record, Release)
    }


def test_a_running_total_is_charged_its_window_s_steps_and_its_later_panes_are_told_them() -> None:
    """Partner begins at coarse, staff at middle; partner gets fine when three of six panes are released."""
    desk = Desk(pooled(running, "12s"))
    coarse, middle, fine = desk.plan.views["pages"].levels
    for start in range(0, 3000, 1000):
        desk.give("pages", start, HOME)
    desk.grant(1, "partner", "fine")
    for start in range(3000, 6000, 1000):
        desk.give("pages", start, HOME)
    assert desk.ledger().spent.rho == middle.rho + fine.step_rho
    assert desk.ledger().readers["partner"].rho == coarse.rho + fine.step_rho
    found = told(desk, "partner")
    assert {found[0, end, 1] for end in range(1000, 4000, 1000)} == {coarse.rho}
    assert {found[0, end, 2] for end in range(1000, 4000, 1000)} == {coarse.rho + fine.step_rho}
    assert {found[0, end, 1] for end in range(4000, 7000, 1000)} == {coarse.rho + fine.step_rho}
    desk.auditor.settled()


def test_a_window_of_panes_is_told_the_steps_that_each_of_its_panes_took() -> None:
    desk = Desk(pooled(lambda change: paned(3, 1, change), "4s"))
    coarse, middle, fine = desk.plan.views["pages"].levels
    for start in range(0, 3000, 1000):
        desk.give("pages", start, HOME)
    desk.grant(1, "partner", "fine")
    desk.give("pages", 3000, HOME)
    steps = coarse.rho + fine.step_rho
    found = told(desk, "partner")
    assert (found[0, 3000, 1], found[0, 3000, 2], found[1000, 4000, 1]) == (
        3 * coarse.rho,
        3 * steps,
        2 * steps + fine.rho,
    )
    assert desk.ledger().spent.rho == 3 * (middle.rho + fine.step_rho) + fine.rho
    desk.auditor.settled()
