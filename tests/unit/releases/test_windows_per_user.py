"""What a ledger is charged for a view whose users are in few of its windows, whatever is sharpened, cut or lost.

The auditor works it out anew from the records and entries that were published: of every view and period the sum of as
many of the dearest windows as a user may be in, against all audiences together and against each alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.accounting import Cost, Dearest
from stream_dp.config.forecast import forecast
from stream_dp.config.plan import Plan
from stream_dp.control.grant_records import Scope
from stream_dp.errors import StateError
from stream_dp.records.models import Refusal
from stream_dp.records.statement import read_statements
from stream_dp.releases import accounts
from stream_dp.releases.accounts import period_of, read_ledgers
from stream_dp.releases.rows import Call
from tests.support.chosen import every
from tests.support.releasing import COARSE, DELTA, FINE, MIDDLE, ONLY_PAGES, POOL, Desk, plan

CROWD = {f"page {n}": 40 + n for n in range(12)}
WEEK = ("period: 4s", "period: 20s")
TWO = ("    delta: ", "    windows_per_user: 2\n    delta: ")


def cost(epsilon: int, windows: int = 1) -> Cost:
    return Cost(Fraction(epsilon), windows * DELTA)


def desk(*changes: tuple[str, str], **options: Any) -> Desk:
    return Desk(plan(ONLY_PAGES, *changes, WEEK, TWO), **options)


def poor(epsilon: int) -> tuple[str, str]:
    return 'epsilon: "40", delta: "1/5"', f'epsilon: "{epsilon}", delta: "1/50"'


def release(one: Desk, *starts: int) -> None:
    for start in starts:
        one.give("pages", start, CROWD)


def scope(start: int) -> Scope:
    return Scope(("pages",), from_ms=start, until_ms=start + 1000)


def levels(one: Desk, audience: str) -> dict[int, str]:
    """The newest level of every window that was released to an audience."""
    return {r.window.start_ms: r.level.name for r in one.records("pages", audience) if not isinstance(r, Refusal)}


# -- what is admitted -------------------------------------------------------------------------------------------------


def test_a_ledger_that_pays_for_two_windows_releases_every_window_of_the_period() -> None:
    one = desk(poor(4))
    release(one, *range(0, 20_000, 1000))
    assert len(levels(one, "staff")) == 20
    assert one.ledger().spent == cost(4, 2)
    assert one.ledger().readers == {"staff": cost(4, 2), "partner": cost(2, 2), "public": cost(2, 2)}
    assert [entry.remaining.cost for entry in one.entries()] == [cost(2), *[Cost.ZERO] * 19]
    one.auditor.settled()


def test_a_window_that_would_be_dearer_than_the_budget_allows_is_refused_and_one_that_is_as_dear_is_not() -> None:
    one = desk(poor(7))
    release(one, 0, 1000, 2000)
    one.grant(1, "partner", "fine", scope=scope(0))  # two windows cost 4 + 2 then, and no third is dearer than 2
    assert levels(one, "partner")[0] == "fine"
    one.grant(2, "partner", "fine", scope=scope(1000))
    assert levels(one, "partner") == {0: "fine", 1000: "coarse", 2000: "coarse"}, "two of 4 are 8"
    release(one, 3000)
    assert one.ledger().spent == cost(6, 2)
    one.auditor.settled()


def test_a_window_that_was_none_of_the_dearest_pays_from_what_it_had_when_it_is_sharpened() -> None:
    """Three windows, of 2 each; the third is sharpened to 4 beside one of 4: two of them are 8, not 8 and more."""
    one = desk(poor(8))
    release(one, 0, 1000, 2000)
    one.grant(1, "partner", "fine", scope=scope(0))
    assert one.ledger().spent == cost(6, 2)
    one.grant(2, "partner", "fine", scope=scope(2000))
    assert one.ledger().spent == cost(8, 2)
    one.grant(3, "partner", "fine", scope=scope(1000))
    assert set(levels(one, "partner").values()) == {"fine"}
    assert one.ledger().spent == cost(8, 2)
    one.auditor.settled()


def test_every_period_has_a_bound_of_its_own_and_so_has_every_view() -> None:
    both = Desk(plan(WEEK, TWO, ("    k: 2\n", "    k: 2\n    windows_per_user: 3\n")))
    for start in range(0, 40_000, 1000):
        for view in ("pages", "tops"):
            both.give(view, start, CROWD)
    for start in (0, 20_000):
        ledger = both.ledger(start)
        assert ledger.views["pages"] == cost(4, 2)
        dearest = ledger.dearest[f"tops {start} "]
        assert (dearest.most, sum(dearest.amounts[0].values())) == (3, 3)
        assert ledger.views["tops"] == dearest.total
        assert ledger.spent == ledger.views["pages"] + ledger.views["tops"]
    both.auditor.settled()


def test_in_a_pool_steps_and_draws_are_charged_for_the_dearest_windows() -> None:
    one = desk(POOL)
    release(one, 0, 1000, 2000)
    one.grant(1, "partner", "fine", scope=scope(1000))
    view = one.plan.views["pages"]
    first, step = view.levels[MIDDLE].rho, view.levels[FINE].step_rho
    assert one.ledger().spent == Cost(Fraction(0), 2 * DELTA, rho=2 * first + step)
    one.auditor.settled()


# -- whatever happens -------------------------------------------------------------------------------------------------


def story(seed: int, cuts: list[int], back: int) -> Desk:
    """Windows of two periods and grants of windows and of all, some of which are not paid for."""
    chance = random.Random(seed)
    one = desk(poor(chance.choice([6, 7, 8, 9])), cuts=cuts, back=back)
    starts, number = [*range(0, 26_000, 1000)], 0
    while starts:
        if chance.random() < 0.6:
            release(one, starts.pop(0))
        else:
            number += 1
            level, where = chance.choice(["middle", "fine"]), chance.randrange(0, 26_000, 1000)
            of = scope(where) if chance.random() < 0.7 else Scope(("pages",))
            one.grant(number, chance.choice(["partner", "public"]), level, scope=of)
    return one


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_a_story_costs_what_its_dearest_windows_do_wherever_it_is_cut(seed: int) -> None:
    whole = story(seed, [], 0)
    whole.auditor.settled()
    chance = random.Random(seed)
    for _ in range(3):
        cuts = [chance.randrange(whole.machine.points // 3) for _ in range(4)]
        again = story(seed, cuts, chance.randrange(3))
        again.auditor.settled()
        assert again.ledger() == whole.ledger() or again.ledger().spent == whole.ledger().spent


@every(9)
def test_a_run_that_is_cut_anywhere_ends_with_the_ledger_of_an_uncut_one(step: int) -> None:
    def run(cuts: list[int]) -> Desk:
        one = desk(poor(8), cuts=cuts)
        release(one, 0, 1000, 2000)
        one.grant(1, "partner", "fine", scope=scope(2000))
        one.grant(2, "public", "middle", scope=scope(0))
        release(one, 3000)
        return one

    whole = run([])
    for cut in range(0, whole.machine.points, step):
        again = run([cut])
        again.auditor.settled()
        assert (again.ledger().spent, again.ledger().dearest) == (whole.ledger().spent, whole.ledger().dearest)


def test_what_is_unlocked_and_withdrawn_and_given_again_costs_what_its_steps_do() -> None:
    one = desk(poor(9), until_ms=0)
    release(one, 0, 1000, 2000)
    one.slot(10_000)
    one.grant(1, "partner", "fine", scope=scope(0))
    one.grant(2, "partner", "coarse", now_ms=1, scope=scope(0))
    one.slot(20_000)
    one.grant(3, "partner", "fine", now_ms=2, scope=scope(0))
    one.grant(4, "public", "fine", now_ms=3, scope=scope(0))
    one.slot(30_000)
    assert one.ledger().spent == cost(6, 2)
    assert one.ledger().readers["partner"] == cost(5, 2)


@pytest.mark.parametrize("known", [1, 2, 3])
def test_windows_that_were_lost_are_charged_as_dear_as_they_can_be_but_no_more_than_a_user_is_in(known: int) -> None:
    """Of five windows that were published, the tables know some: two lost ones cost two of the finest at most."""
    whole = desk()
    release(whole, *range(0, 1000 * known, 1000))
    rows = dict(whole.machine.rows)
    release(whole, *range(1000 * known, 5000, 1000))
    lost = desk(accepts_loss=True, audit=False)
    lost.machine.rows, lost.machine.sent = rows, whole.machine.sent
    lost.reader.load()
    view = lost.plan.views["pages"]
    assert lost.ledger().spent == view.at_worst * 2
    release(lost, *range(5000, 20_000, 1000))
    assert lost.ledger().spent == view.at_worst * 2


@pytest.mark.parametrize("known", [0, 3])
def test_a_crash_while_lost_windows_are_charged_charges_them_again_and_no_less(known: int) -> None:
    """A window is half known: it was sharpened, and that was lost. Its row may be left behind its charge."""
    whole = desk()
    release(whole, 0)
    rows = dict(whole.machine.rows)
    whole.grant(1, "partner", "fine", scope=scope(0))
    release(whole, *range(1000, 1000 + 1000 * known, 1000))

    def loaded(rows: dict[bytes, bytes], cut: int | None) -> Desk:
        again = desk(accepts_loss=True, audit=False, cuts=[] if cut is None else [cut])
        again.machine.rows, again.machine.sent = dict(rows), list(whole.machine.sent)
        again.reader.load()
        return again

    uncut = loaded(rows, None)
    for cut in range(uncut.machine.points):
        assert uncut.ledger().spent <= loaded(rows, cut).ledger().spent <= uncut.plan.views["pages"].at_worst * 2


# -- periods that change -----------------------------------------------------------------------------------------------


def changed(first: str, second: str, at_ms: int, *, bounded: bool = True) -> tuple[Plan, Plan]:
    """A plan, and the same when other periods hold from a time on: with the bound they begin another definition."""
    changes = [ONLY_PAGES, *([TWO] if bounded else [])]
    before, after = (plan(*changes, ("period: 4s", f"period: {period}")) for period in (first, second))
    old, new = before.views["pages"].begun(0), after.views["pages"]
    assert (old.fingerprint != new.fingerprint) is bounded
    held = {"pages": replace(old, until_ms=at_ms, later=((2, at_ms),)), "pages@2": replace(new, name="pages@2")}
    held["pages@2"] = held["pages@2"].begun(at_ms, 2)
    return replace(before, views={"pages": old}), replace(after, views=held)


def test_a_window_that_a_former_period_paid_for_can_be_sharpened_when_another_pays() -> None:
    """Periods of 4 s become periods of 5 s at 10 s; [8, 12) pays for those of 10 and 11 s, then [10, 15) does."""
    before, after = changed("4s", "5s", 10_000)
    one = Desk(before, audit=False)
    release(one, *range(0, 10_000, 1000))
    one.change(after)
    for start in (10_000, 11_000, 12_000):
        one.give("pages@2", start, CROWD)
    for number, start in enumerate((10_000, 12_000, 11_000)):
        one.grant(number, "partner", "fine", now_ms=number, scope=scope(start))
    ledgers = read_ledgers(one.machine.rows.items())
    of_all = (named for ledger in ledgers.values() for named in ledger.dearest.items())
    totals = [found.total for name, found in of_all if name == "pages@2 10000 "]
    assert {start: level for start, level in levels(one, "partner").items() if start >= 10_000} == dict.fromkeys(
        (10_000, 11_000, 12_000), "fine"
    )
    assert cost(8, 2) <= sum(totals, Cost.ZERO), "two windows of 4, whichever period paid"


@pytest.mark.parametrize("bounded", [False, True])
def test_what_was_lost_of_a_window_is_charged_to_the_period_that_paid_for_it(*, bounded: bool) -> None:
    """The window of 9 s is in the period [8, 12) that has begun, though by now periods are of 5 s."""
    before, after = changed("4s", "5s", 9_000, bounded=bounded)
    one = Desk(before, audit=False)
    release(one, *range(0, 9_000, 1000))
    one.change(after)
    one.give("pages@2", 9_000, CROWD)
    rows = dict(one.machine.rows)
    one.grant(1, "partner", "fine", scope=scope(9_000))
    lost = Desk(after, audit=False, accepts_loss=True)
    lost.machine.rows, lost.machine.sent = rows, one.machine.sent
    lost.reader.load()
    found = {period_of(key).start_ms: ledger.spent for key, ledger in read_ledgers(lost.machine.rows.items()).items()}
    true = {period_of(key).start_ms: ledger.spent for key, ledger in read_ledgers(one.machine.rows.items()).items()}
    assert found[4_000] == true[4_000]
    assert true[8_000] <= found[8_000]


# -- what operators are told -------------------------------------------------------------------------------------------


def test_entries_add_up_to_what_the_ledger_spent_and_a_forecast_knows_the_bound() -> None:
    one = desk(poor(4))
    release(one, *range(0, 10_000, 1000))
    (statement,) = read_statements(list(enumerate(one.entries()))).values()
    assert statement.spent == sum(statement.taken.values(), Cost.ZERO) == cost(4, 2)
    assert {name: statement.loss(name) for name in ("partner", "public", "staff")} == dict(one.ledger().readers)
    view = one.plan.views["pages"].begun(0)
    found, until_ms = forecast(replace(one.plan, views={"pages": view}), statement)
    assert (found["pages"].windows, found["pages"].paid, found["pages"].until_ms) == (10, 10, 20_000)
    assert until_ms == 20_000


def test_what_is_left_is_not_kept_for_more_unlocks_than_a_user_is_in() -> None:
    """Unlocks to come of 20 windows would cost 40; of two windows they cost 4, so the rest is there to sharpen."""
    unlocked = ("staff: middle}", "staff: {level: middle, unlock: [{level: fine, after: 100s}]}}")
    retention = "    retention: 1h\n"
    sharpened = retention, f"{retention}    sharpen: {{audience: partner, level: fine, every: 30s}}\n"
    one = desk(unlocked, sharpened, ('epsilon: "40"', 'epsilon: "12"'))
    release(one, *range(0, 20_000, 1000))
    one.tell(30_000)
    release(one, *range(20_000, 40_000, 1000))
    one.tell(60_000)
    assert "fine" in levels(one, "partner").values()


# -- mutants ----------------------------------------------------------------------------------------------------------


def _forgets_what_a_window_had(patch: pytest.MonkeyPatch) -> None:
    right = accounts.price
    patch.setattr("stream_dp.releases.releasing.price", lambda *given: right(*given)._replace(before=Cost.ZERO, had={}))


def _keeps_too_few(patch: pytest.MonkeyPatch) -> None:
    right = Dearest.raised
    patch.setattr(Dearest, "raised", lambda self, before, more: right(Dearest(1, self.amounts), before, more))


def _charges_what_is_reserved_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accounts, "_bounded_by", lambda view, start, audience="": f"{view.name} {start} {audience}")


@pytest.mark.parametrize("mutant", [_forgets_what_a_window_had, _keeps_too_few, _charges_what_is_reserved_only])
def test_a_ledger_that_charges_something_else_is_found_out(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises((AssertionError, StateError)):
            test_a_window_that_was_none_of_the_dearest_pays_from_what_it_had_when_it_is_sharpened()


def test_calls_name_what_was_paid_before() -> None:
    call = Call("pages", 1000, "partner", COARSE, FINE, MIDDLE)
    assert Call.parse(str(call)) == call
