"""What a grant changes: each view of its audience, from the level it last had, for the exact difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dp.config.plan import Plan
from stream_dp.control.changes import Change, changes_of
from stream_dp.control.grants import Grant
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


def changes(plan: Plan, audience: str, level: str, last: str | None) -> dict[str, Change]:
    return {
        change.view.removeprefix(f"{plan.name}-"): change
        for change in changes_of(plan, Grant(audience=audience, level=level), last)
    }


def test_finer_level_costs_the_difference_and_a_coarser_one_nothing(plan: Plan) -> None:
    def pages(level: str) -> Change:
        return changes(plan, "partner", level, None)["pages"]

    name = f"{plan.name}-pages"
    assert pages("detailed") == Change(name, "standard", "detailed", "finer", "4")
    assert pages("overview") == Change(name, "standard", "overview", "coarser", "0")
    assert pages("standard") == Change(name, "standard", "standard", "same", "0")
    assert set(changes(plan, "partner", "detailed", None)) == {"pages"}, "the clicks are not the partner's"


def test_the_last_grant_is_what_a_new_one_starts_from(plan: Plan) -> None:
    assert changes(plan, "partner", "detailed", "overview")["pages"].difference == "5"
    assert changes(plan, "partner", "detailed", "detailed")["pages"].direction == "same"
    assert changes(plan, "partner", "standard", "detailed")["pages"].direction == "coarser"


def test_each_view_is_told_by_its_own_ladder(plan: Plan) -> None:
    """A level that a ladder does not have leaves the audience where the configuration starts it."""
    found = changes(plan, "public", "standard", None)
    assert {view: change.difference for view, change in found.items()} == {"pages": "1", "clicks": "2/3"}

    found = changes(plan, "public", "detailed", "standard")
    assert (found["pages"].before, found["pages"].after, found["pages"].difference) == ("standard", "detailed", "4")
    assert (found["clicks"].before, found["clicks"].after, found["clicks"].direction) == (
        "standard",
        "overview",
        "coarser",
    )
