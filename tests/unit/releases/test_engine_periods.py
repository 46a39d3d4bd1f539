"""A budget that is changed in mid-period: the period keeps the caps and the promise that it began with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from stream_dp.errors import StateError
from stream_dp.records.models import Refusal
from stream_dp.releases.accounts import PeriodRow, Promise, ledger_key, promise_key
from stream_dp.releases.rows import LEDGER, PROMISE
from stream_dp.windows.encoding import decode, encode
from stream_dp.windows.shapes.shape import Interval
from stream_dp.windows.shapes.tumbling import Tiling
from tests.support.chosen import every
from tests.support.releasing import ONLY_PAGES, POOL, Desk, plan, promise_of

HOME = {"home": 40, "cart": 12, "rare": 1}
BUDGET = 'epsilon: "40", delta: "1/5", period: 4s'


def budget(epsilon: str, delta: str) -> Plan:
    return plan(ONLY_PAGES, (BUDGET, f'epsilon: "{epsilon}", delta: "{delta}", period: 4s'))


def pooled(epsilon: str, zcdp: str) -> Plan:
    """A plan with other sizes than those of `POOL`, 41 and 39."""
    pool = POOL[1].replace('"41"', f'"{epsilon}"').replace('"39"', f'"{zcdp}"')
    return plan(ONLY_PAGES, (POOL[0], pool))


WHOLE, POOLED = budget("40", "1/5"), pooled("41", "39")
CHANGES = {
    "lowered": (WHOLE, budget("3", "1/50")),
    "raised": (WHOLE, budget("400", "2/5")),
    "lower in epsilon and higher in delta": (WHOLE, budget("3", "2/5")),
    "pool lowered": (POOLED, pooled("15", "13")),
    "pool raised": (POOLED, pooled("101", "99")),
    "another pool": (POOLED, pooled("45", "44")),
    "another pool under another total": (POOLED, pooled("60", "37")),
}
changed = pytest.mark.parametrize(("former", "latter"), CHANGES.values(), ids=CHANGES)


def caps(planned: Plan) -> Cost:
    return planned.ledgers["visitors"].budget


def promise(planned: Plan) -> Promise:
    return Promise.of(planned.ledgers["visitors"])


def said(desk: Desk, period: int) -> list[Promise]:
    """What the records of a period say of its budget."""
    audiences = desk.plan.views["pages"].audiences
    records = [record for audience in audiences for record in desk.records("pages", audience)]
    return [promise_of(record) for record in records if record.ledger.period.start_ms == period]


@changed
def test_a_period_keeps_the_caps_and_the_promise_it_began_with(former: Plan, latter: Plan) -> None:
    """Restarted twice: what the first restart made of the stored budget must not be what the second goes on with."""
    desk = Desk(former)
    desk.give("pages", 0, HOME)
    desk.change(latter)
    assert desk.ledger().budget == caps(former)
    desk.give("pages", 1000, HOME)
    desk.change(latter)
    desk.give("pages", 2000, HOME)
    desk.grant(1, "public", "middle")
    assert desk.ledger().budget == caps(former)
    assert said(desk, 0) == [promise(former)] * 12
    desk.auditor.settled()


@changed
def test_the_next_period_begins_with_what_is_configured_then(former: Plan, latter: Plan) -> None:
    desk = Desk(former)
    desk.give("pages", 0, HOME)
    desk.change(latter)
    for start in (1000, 2000, 3000, 4000):
        desk.give("pages", start, HOME)
    desk.change(former)
    desk.give("pages", 5000, HOME)
    assert (desk.ledger().budget, desk.ledger(4000).budget) == (caps(former), caps(latter))
    assert set(map(encode, said(desk, 0))) == {encode(promise(former))}
    assert set(map(encode, said(desk, 4000))) == {encode(promise(latter))}
    desk.auditor.settled()


def test_a_lowered_budget_refuses_nothing_before_the_period_ends_and_a_raised_one_affords_nothing() -> None:
    """A period pays for three windows at 2 of a budget of 6, for one of a budget of 3."""
    low, high = budget("3", "1/5"), budget("6", "1/5")
    for first, second, types in (
        (high, low, ["release", "release", "release", "refusal", "release", "refusal"]),
        (low, high, ["release", "refusal", "refusal", "refusal", "release", "release"]),
    ):
        desk = Desk(first)
        desk.give("pages", 0, HOME)
        desk.change(second)
        for start in range(1000, 6000, 1000):
            desk.give("pages", start, HOME)
            desk.reader.restart()
        records = desk.records("pages", "public")
        assert [record.type for record in records] == types
        assert [promise_of(record) for record in records] == [promise(first)] * 4 + [promise(second)] * 2
        desk.auditor.settled()


def test_a_refused_sharpening_says_what_its_period_began_with() -> None:
    desk = Desk(budget("3", "1/5"))
    desk.give("pages", 0, HOME)
    desk.change(WHOLE)
    desk.grant(1, "public", "fine")
    refused = desk.records("pages", "public")[-1]
    assert isinstance(refused, Refusal)
    assert promise_of(refused) == promise(budget("3", "1/5"))


def test_a_period_begins_with_its_first_reservation_and_not_with_a_refusal() -> None:
    """Before it nothing is drawn that a raised budget could react to."""
    low = budget("3", "1/5")
    desk = Desk(low)
    desk.grant(1, "staff", "fine")
    desk.give("pages", 0, HOME)
    assert not [key for key in desk.machine.rows if key.startswith((PROMISE, LEDGER))]
    desk.change(WHOLE)
    desk.give("pages", 1000, HOME)
    refused, released = desk.records("pages", "staff")
    assert (refused.type, promise_of(refused)) == ("refusal", promise(low))
    assert (released.type, promise_of(released)) == ("release", promise(WHOLE))
    desk.auditor.settled()


# -- crashes --------------------------------------------------------------------------------------------------------


class ProcessEndedError(Exception):
    """The process ended, and is started again with another configuration."""


def ended(former: Plan, point: int) -> Desk | None:
    """A desk whose process ended at a point of the first window of its second period; None if there are fewer."""
    desk = Desk(former)
    for start in range(0, 4000, 1000):
        desk.give("pages", start, HOME)
    last = desk.machine.points + point

    def watch() -> None:
        desk.auditor()
        if desk.machine.points >= last:
            raise ProcessEndedError

    desk.machine.watch = watch
    try:
        desk.give("pages", 4000, HOME)
    except ProcessEndedError:
        desk.machine.watch = desk.auditor
        return desk
    return None


@every(4)
@pytest.mark.parametrize(
    ("former", "latter"),
    [
        pytest.param(*plans, id=name, marks=() if name == "another pool" else pytest.mark.slow)
        for name, plans in CHANGES.items()
    ],
)
def test_a_crash_around_the_first_reservation_leaves_the_former_promise_or_nothing_of_it(
    former: Plan, latter: Plan, step: int
) -> None:
    """At every point: once the ledger is stored the period has begun; a promise that stands alone binds nobody."""
    key, seen = ledger_key(former.views["pages"], 4000), set()
    point = 1
    while (desk := ended(former, point)) is not None:
        stored = promise_key(key) in desk.machine.rows, key in desk.machine.rows
        assert stored != (False, True), "a ledger stands without what its period promises"
        seen.add(stored)
        desk.change(latter)
        desk.give("pages", 5000, HOME)
        begun = former if stored[1] else latter
        assert desk.ledger(4000).budget == caps(begun)
        assert decode(PeriodRow, desk.machine.rows[promise_key(key)]).promise == promise(begun)
        records = [record for record in desk.records("pages", "public") if record.window.start_ms >= 4000]
        assert [promise_of(record) for record in records if record.type == "release"][-1] == promise(begun)
        desk.auditor.settled()
        point += step if {(False, False), (True, False), (True, True)} == seen else 1
    assert seen == {(False, False), (True, False), (True, True)}
    assert point > 10


def test_a_ledger_without_what_its_period_promises_stops_the_engine() -> None:
    desk = Desk(WHOLE)
    desk.give("pages", 0, HOME)
    desk.machine.watch = lambda: None
    del desk.machine.rows[promise_key(ledger_key(WHOLE.views["pages"], 0))]
    with pytest.raises(StateError, match="not what its period promises"):
        desk.reader.restart()


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\x92\x93\xa240\xa31/5", b"\x92\x93\xa240\xa31/0\x80\x80", b"\x92\x94\xa240\xa31/5\x80\x80\x80"],
)
def test_a_damaged_promise_stops_the_engine(damaged: bytes) -> None:
    desk = Desk(WHOLE)
    desk.give("pages", 0, HOME)
    desk.machine.watch = lambda: None
    desk.machine.rows[promise_key(ledger_key(WHOLE.views["pages"], 0))] = damaged
    with pytest.raises(StateError, match="PeriodRow cannot be read"):
        desk.reader.restart()


@pytest.mark.parametrize("planned", [WHOLE, POOLED], ids=["one account", "pool"])
def test_a_promise_is_read_as_the_plan_it_was_written_of(planned: Plan) -> None:
    ledger = planned.ledgers["visitors"]
    other = plan(ONLY_PAGES, ('"40"', '"50"')).ledgers["visitors"]
    row = decode(Promise, encode(Promise.of(ledger)))
    assert row.plan(other, Interval(0, 4000), ledger.budget) == ledger
    moved = replace(ledger, periods=Tiling(3000, 2000))
    assert row.plan(other, Interval(2000, 5000), ledger.budget) == moved
