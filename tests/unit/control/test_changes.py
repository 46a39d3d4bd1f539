"""What a grant changes: each view of its audience, from the level it last had, for the exact difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from stream_dp.config.plan import Plan, PoolPlan
from stream_dp.control.grant_records import Change, Grant, Order, Scope, added, changes_of
from stream_dp.testing import plan_from

SHORT_LADDER = (
    ("ladders:", 'ladders:\n  short: [{level: overview, epsilon: "1/3"}, {level: standard, epsilon: "1"}]'),
    (
        "views:",
        "views:\n  NAME-clicks: {kind: histogram, source: visits, item: page, items_per_user: 1, window: {size: 1m}, "
        'delta: "1e-4", ledger: visitors, ladder: short, audiences: [public]}',
    ),
)


@pytest.fixture
def plan(visits: Callable[..., str], tmp_path: Path) -> Plan:
    """One view with three levels that everybody reads, one with two that the public reads."""
    return plan_from(visits(*SHORT_LADDER), tmp_path)


def orders(audience: str, last: str | None) -> list[Order]:
    """The grants before: none, or one of this level."""
    return [] if last is None else [Order(1, audience, last)]


def changes(plan: Plan, audience: str, level: str, last: str | None) -> dict[str, Change]:
    return {
        change.view.removeprefix(f"{plan.name}-"): change
        for change in changes_of(plan, Grant(audience=audience, level=level), orders(audience, last))
    }


def test_finer_level_costs_the_difference_and_a_coarser_one_nothing(plan: Plan) -> None:
    def pages(level: str) -> Change:
        return changes(plan, "partner", level, None)["pages"]

    name = f"{plan.name}-pages"
    assert pages("detailed") == Change(name, "standard", "detailed", "finer", "4")
    assert pages("overview") == Change(name, "standard", "overview", "coarser", "0")
    assert pages("standard") == Change(name, "standard", "standard", "same", "0")
    assert set(changes(plan, "partner", "detailed", None)) == {"pages"}, "the clicks are not the partner's"


def test_with_a_pool_windows_to_come_cost_the_difference_and_released_ones_a_step(plan: Plan) -> None:
    view = plan.views[f"{plan.name}-pages"]
    pool = PoolPlan(Fraction(1), Fraction(1, 10), Fraction(1))
    pooled = replace(view, ledger=replace(view.ledger, pool=pool))
    coarse, _, fine = view.levels
    assert added(pooled, 2, 0, Scope(windows="future")) == fine.rho - coarse.rho
    assert added(pooled, 2, 0, Scope(windows="retained")) == added(pooled, 2, 0, Scope()) == fine.step_rho
    assert added(pooled, 2, -1, Scope(windows="future")) == fine.rho
    assert added(pooled, 0, 1, Scope()) == 0
    assert added(view, 2, 0, Scope()) == added(view, 2, 0, Scope(windows="future")) == fine.epsilon - coarse.epsilon


def test_the_last_grant_is_what_a_new_one_starts_from(plan: Plan) -> None:
    assert changes(plan, "partner", "detailed", "overview")["pages"].difference == "5"
    assert changes(plan, "partner", "detailed", "detailed")["pages"].direction == "same"
    assert changes(plan, "partner", "standard", "detailed")["pages"].direction == "coarser"


def test_each_view_is_told_by_its_own_ladder(plan: Plan) -> None:
    """A level that a ladder does not have leaves the audience what it had."""
    found = changes(plan, "public", "standard", None)
    assert {view: change.difference for view, change in found.items()} == {"pages": "1", "clicks": "2/3"}

    found = changes(plan, "public", "detailed", "standard")
    assert (found["pages"].before, found["pages"].after, found["pages"].difference) == ("standard", "detailed", "4")
    assert (found["clicks"].before, found["clicks"].after, found["clicks"].direction) == (
        "standard",
        "standard",
        "same",
    )


def direction(plan: Plan, wanted: Grant, *known: Order) -> str:
    (change,) = [one for one in changes_of(plan, wanted, known, now_ms=100) if one.view.endswith("pages")]
    return f"{change.before} to {change.after}"


def test_what_was_before_is_what_the_newest_grant_of_such_windows_says(plan: Plan) -> None:
    pages = f"{plan.name}-pages"
    wanted = Grant(audience="partner", level="standard")
    assert direction(plan, wanted, Order(1, "partner", "detailed", Scope(windows="future"))) == "detailed to standard"
    assert direction(plan, wanted, Order(1, "partner", "detailed", Scope(("other",)))) == "standard to standard"
    assert direction(plan, wanted, Order(1, "partner", "detailed", Scope((pages,)))) == "detailed to standard"
    assert direction(plan, wanted, Order(1, "partner", "detailed", Scope(windows="retained"))) == "standard to standard"
    assert direction(plan, wanted, Order(1, "partner", "detailed", Scope(), 101)) == "standard to standard"
    newer, older = Order(2, "partner", "overview", Scope(), 50), Order(3, "partner", "detailed", Scope(), None, 60)
    assert direction(plan, wanted, newer, older) == "detailed to standard"
    some = Order(1, "partner", "detailed", Scope((), "all", 1000, 5000))
    assert direction(plan, wanted, some) == "standard to standard"
    within = wanted.model_copy(update={"start_from": "1970-01-01T00:00:02Z", "start_until": "1970-01-01T00:00:05Z"})
    assert direction(plan, within, some) == "detailed to standard"


def test_a_coarser_level_may_be_for_windows_that_were_released(plan: Plan) -> None:
    lower = Grant(audience="partner", level="overview", windows="retained")
    assert changes_of(plan, lower)[0].direction == "coarser"
    assert changes_of(plan, lower.model_copy(update={"windows": "future"}))[0].direction == "coarser"


def test_the_level_none_ends_every_view_and_the_next_grant_starts_from_nothing(plan: Plan) -> None:
    for level in ("overview", "detailed"):
        ended = changes(plan, "public", "none", level)["pages"]
        assert (ended.before, ended.after, ended.direction, ended.difference) == (level, "none", "ended", "0")
    again = changes(plan, "public", "overview", "none")["pages"]
    assert (again.before, again.after, again.direction, again.difference) == ("none", "overview", "finer", "1")
    Grant(audience="public", level="none").check(plan)
