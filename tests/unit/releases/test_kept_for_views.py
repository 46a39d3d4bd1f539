"""A view's refusals do not depend on what the settings of other views became: what a period keeps is fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.accounting import Cost
from stream_dp.config.plan import ViewPlan
from stream_dp.releases.accounts import Accounts, Charge
from stream_dp.releases.rows import Call
from stream_dp.windows.effects import Commit
from tests.support.chosen import examples
from tests.support.machine import Machine
from tests.unit.config.test_shares import PERIOD_MS, of

Views = Mapping[str, ViewPlan]
Asked = Sequence[str]
"""The views whose next windows are released, in this order."""
DEAR = ('selection: {epsilon: "1"', 'selection: {epsilon: "9"'), ("coarse, staff: middle", "fine, staff: fine")
PLANS = [{view.name: view for view in of({}, *changes)} for changes in ((), DEAR[:1], DEAR[1:], DEAR)]
"""As they are, and with dearer selections, dearer levels, and both."""


def released(stages: Sequence[tuple[Views, Asked]], budget: Cost) -> list[tuple[str, bool]]:
    """Which windows are charged, if settings change in the middle of a period."""
    machine, taken = Machine(), dict.fromkeys({name for views, _ in stages for name in views}, 0)
    found = []
    for plans, names in stages:
        views = {name: replace(one, ledger=replace(one.ledger, budget=budget)) for name, one in plans.items()}
        accounts = Accounts(views)
        machine.carry_out(accounts.load(machine))
        for name in names:
            view = views.get(name)
            if view is None or taken[name] >= PERIOD_MS:
                continue
            start, cost = taken[name], view.cost(view.planned_level)
            taken[name] = view.window.shape.next(start)
            reserved = accounts.reserve(view, Call(name, start), cost)
            found.append((name, reserved))
            if reserved:
                accounts.charge(view, Call(name, start), Charge(cost, {}))
                machine.carry_out(iter([Commit(accounts.rows())]))
    return found


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, Views, Asked, Views, Asked, Asked, Cost]:
    """A view; all views, and with what becomes of the others; in which order windows are released, with the change."""
    before = dict(draw(st.sampled_from(PLANS)))
    name = draw(st.sampled_from(sorted(before)))
    shares = [Fraction(part, 8) or None for part in draw(st.lists(st.integers(0, 2), min_size=3, max_size=3))]
    before = {one.name: replace(one, share=share) for one, share in zip(before.values(), shares, strict=True)}
    others = draw(st.sampled_from(PLANS))
    then: dict[str, ViewPlan] = {}
    for other in before:
        if other == name:
            then[name] = before[name]
        elif draw(st.integers(0, 3)):
            then[other] = replace(others[other], share=draw(st.sampled_from([None, Fraction(1, 8), Fraction(3, 8)])))
    order = st.lists(st.sampled_from(sorted(before)), min_size=1, max_size=12)
    asked, behind, anew = draw(order), [name] * 12, draw(order)
    most = sum((view.scheduled(0, PERIOD_MS) for view in before.values()), Cost.ZERO)
    parts = [Fraction(draw(st.integers(6, 30)), 20) for _ in range(4)]
    return name, before, asked, then, [*anew, *behind], behind, Cost(*map(Fraction.__mul__, most, parts))


def differs(change: tuple[str, Views, Asked, Views, Asked, Asked, Cost]) -> bool:
    """Whether what becomes of the others' settings, and what they ask then, has a part in what a view is refused.

    Where a view is taken out the others may have more than before.
    """
    name, before, asked, then, behind, alone, budget = change
    changed = [one for one in released([(before, asked), (then, behind)], budget) if one[0] == name]
    same = [one for one in released([(before, asked), (before, alone)], budget) if one[0] == name]
    if then.keys() == before.keys():
        return changed != same
    return any(admitted and not now for (_, admitted), (_, now) in zip(same, changed, strict=True))


def test_what_a_view_got_that_another_left_stays_its_own_when_that_is_put_back() -> None:
    """Of 25, 24.08 would be kept for two views; without the other, pages have all of it."""
    all_views = {name: view for name, view in PLANS[0].items() if name != "towns"}
    pages = {"pages": replace(all_views["pages"])}
    budget = Cost(Fraction(13), Fraction(1, 2))
    alone = released([(all_views, ["pages"]), (pages, ["pages"] * 2), (pages, ["pages"] * 9)], budget)
    beside = released([(all_views, ["pages"]), (pages, ["pages"] * 2), (all_views, ["pages"] * 9 + ["tops"])], budget)
    assert beside[:-1] == alone
    assert sum(charged for _, charged in alone) == 6
    planned = released([(all_views, ["pages"] * 12)], budget)
    assert sum(charged for _, charged in planned) < 6


@examples(40, 150, given(changes()), derandomize=True)
def test_refusals_of_a_view_do_not_depend_on_what_the_settings_of_others_became(
    change: tuple[str, Views, Asked, Views, Asked, Asked, Cost],
) -> None:
    assert not differs(change)


def test_shares_that_are_worked_out_anew_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: what is kept follows the settings of the moment, in a period that has begun as well."""

    def anew(self: Accounts, key: bytes, _budget: Cost, _kept: Mapping[str, Cost]) -> object:
        return self._planned(key, next(iter(self._views.values())))

    monkeypatch.setattr(Accounts, "_stored", anew)
    found: list[bool] = []

    @settings(derandomize=True, max_examples=150, deadline=None)
    @given(changes())
    def collect(change: tuple[str, Views, Asked, Views, Asked, Asked, Cost]) -> None:
        found.append(differs(change))

    collect()
    assert any(found)
