"""What a grant changes, view by view, before anybody has acted on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.control.grants import Grant

Direction = Literal["finer", "coarser", "same"]


@dataclass(frozen=True, slots=True)
class Change:
    """What a grant does to one view.

    Attributes:
        view: the view's name.
        before: the level its audience had.
        after: the level it has from now on.
        direction: what `after` is beside `before`.
        difference: exact epsilon that `after` costs beyond `before` for one window; "0" unless it is finer.
    """

    view: str
    before: str
    after: str
    direction: Direction
    difference: str


def changes_of(plan: Plan, wanted: Grant, last: str | None) -> list[Change]:
    """What a grant does to each view that its audience reads.

    Args:
        plan: the application.
        wanted: the grant, checked against the plan.
        last: the level of the audience's last grant, None if there was none.
    """
    return [_change(view, wanted, last) for view in plan.views.values() if wanted.audience in view.audiences]


def _change(view: ViewPlan, wanted: Grant, last: str | None) -> Change:
    names = [level.name for level in view.levels]
    start = view.audiences[wanted.audience]
    # A level that the view's ladder does not have leaves the audience where the configuration starts it.
    before, after = (names.index(level) if level in names else start for level in (last, wanted.level))
    direction: Direction = "finer" if after > before else "coarser" if after < before else "same"
    difference = view.levels[after].epsilon - view.levels[before].epsilon if after > before else 0
    return Change(view.name, names[before], names[after], direction, str(difference))
