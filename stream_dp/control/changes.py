"""What a grant changes, view by view, before anybody has acted on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from stream_dp.config.models import NO_LEVEL
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.control.grants import Grant, Order, Scope

Direction = Literal["finer", "coarser", "same", "ended"]


@dataclass(frozen=True, slots=True)
class Change:
    """What a grant does to one view.

    Attributes:
        view: the view's name.
        before: the level its audience had, of windows to come where the grant is about those; `none` where it had none.
        after: the level it has from then on, or `none`.
        direction: what `after` is beside `before`; `ended` where that is `none`.
        difference: exact epsilon that `after` costs beyond `before` for one window; "0" unless it is finer.
    """

    view: str
    before: str
    after: str
    direction: Direction
    difference: str


def changes_of(plan: Plan, wanted: Grant, known: Sequence[Order] = (), now_ms: int = 0) -> list[Change]:
    """What a grant does to each view that it is about.

    Args:
        plan: the application.
        wanted: the grant, checked against the plan.
        known: the grants that were written before and not withdrawn, oldest first.
        now_ms: the time.
    """
    until_ms = now_ms if wanted.at_ms is None else wanted.at_ms
    before = [order for order in known if order.audience == wanted.audience and order.time_ms <= until_ms]
    before.sort(key=lambda order: (order.time_ms, order.number))
    return [_change(view, wanted, before) for view in wanted.concerned(plan)]


def _change(view: ViewPlan, wanted: Grant, known: Sequence[Order]) -> Change:
    names = [NO_LEVEL, *(level.name for level in view.levels)]
    costs = [Fraction(0), *(level.epsilon for level in view.levels)]
    start = view.audiences[wanted.audience] + 1
    had = [order.level for order in known if _decided(order.scope, wanted.scope, view) and order.level in names]
    # A level that the view's ladder does not have leaves the audience what it had.
    before = names.index(had[-1] or "") if had else start
    after = names.index(wanted.level) if wanted.level in names else before
    direction: Direction = "finer" if after > before else "coarser" if after < before else "same"
    direction = "ended" if after == 0 else direction
    difference = costs[after] - costs[before] if after > before else 0
    return Change(view.view, names[before], names[after], direction, str(difference))


def _decided(former: Scope, wanted: Scope, view: ViewPlan) -> bool:
    """Whether a former grant is about the windows of a view that a wanted one is about; of all, those to come."""
    if former.views and view.view not in former.views:
        return False
    if former.windows != "all":
        return former.windows == wanted.windows or (former.windows == "future" and wanted.windows == "all")
    begins = former.from_ms is None or (wanted.from_ms is not None and former.from_ms <= wanted.from_ms)
    ends = former.until_ms is None or (wanted.until_ms is not None and wanted.until_ms <= former.until_ms)
    return begins and ends
