"""What a grant changes, view by view, before anybody has acted on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.control.grants import Grant, Order, Scope
from stream_dp.errors import ConfigError, Fault

Direction = Literal["finer", "coarser", "same"]


@dataclass(frozen=True, slots=True)
class Change:
    """What a grant does to one view.

    Attributes:
        view: the view's name.
        before: the level its audience had, of windows to come where the grant is about those.
        after: the level it has from then on.
        direction: what `after` is beside `before`.
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

    Raises:
        ConfigError: it would lower what was released before, and that cannot be taken back.
    """
    until_ms = now_ms if wanted.at_ms is None else wanted.at_ms
    before = [order for order in known if order.audience == wanted.audience and order.time_ms <= until_ms]
    before.sort(key=lambda order: (order.time_ms, order.number))
    changes = [_change(view, wanted, before) for view in wanted.concerned(plan)]
    lowered = [change for change in changes if change.direction == "coarser"]
    if wanted.windows == "retained" and lowered:
        each = ", ".join(f"{change.before} of {change.view}" for change in lowered)
        raise ConfigError(
            [
                Fault(
                    "level",
                    f"{wanted.audience} sees {each}, which is finer than {wanted.level}; what was released is not "
                    "taken back: a coarser level can be for windows to come only, --windows future",
                )
            ]
        )
    return changes


def _change(view: ViewPlan, wanted: Grant, known: Sequence[Order]) -> Change:
    names = [level.name for level in view.levels]
    start = view.audiences[wanted.audience]
    had = [order.level for order in known if _decided(order.scope, wanted.scope, view) and order.level in names]
    # A level that the view's ladder does not have leaves the audience what it had.
    before = names.index(had[-1] or "") if had else start
    after = names.index(wanted.level) if wanted.level in names else before
    direction: Direction = "finer" if after > before else "coarser" if after < before else "same"
    difference = view.levels[after].epsilon - view.levels[before].epsilon if after > before else 0
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
