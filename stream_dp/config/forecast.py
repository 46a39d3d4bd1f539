"""How far a ledger reaches: what its statement leaves, at the prices of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.shares import Shares, most_of
from stream_dp.records.statement import Statement
from stream_dp.windows.shape import Schedule, Tiling


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many more windows of a view the ledger affords, at its present level and at worst.

    Attributes:
        level: name of the finest level that an audience has now.
        cost: of one window.
        kept: what no other view may take of the period's budget (`stream_dp.config.shares`).
        spent: what it has spent.
        left: what it may still take.
        windows: how many that affords, beside what the schedule of unlocks still asks for those that were released.
        to_come: how many begin before the period ends.
        until_ms: start of the first that it does not afford, or the end of the period.
        paid: how many of those to come it affords with the other views at their schedule.
    """

    level: str
    cost: Cost
    kept: Cost
    spent: Cost
    left: Cost
    windows: int
    to_come: int
    until_ms: int
    paid: int


def present_level(view: ViewPlan, statement: Statement) -> int:
    """The finest level that an audience's newest window has, starts with or is unlocked."""
    index = {level.name: at for at, level in enumerate(view.levels)}

    def of(audience: str) -> int:
        share = statement.shares.get((view.name, audience))
        return view.audiences[audience] if share is None else index.get(share.level, view.audiences[audience])

    return max(view.planned_level, *map(of, view.audiences)) if view.unlocks else max(map(of, view.audiences))


def forecast(
    plan: Plan, statement: Statement, begins: Mapping[str, int] = MappingProxyType({})
) -> tuple[dict[str, Forecast], int]:
    """What a ledger still affords.

    Args:
        plan: the application.
        statement: of the ledger and period.
        begins: of views that are as the plan has them from a time on only: the start of their first window.

    Returns:
        By view; and the time up to which it affords every window of all its views, at most the end of the period.
    """
    views = [view for view in plan.views.values() if view.ledger.name == statement.account.name]
    levels = [present_level(view, statement) for view in views]
    costs = [view.cost(level) for view, level in zip(views, levels, strict=True)]
    starts = [max(_next_start(view, statement), begins.get(view.name, 0)) for view in views]
    owed = [_owed(view, statement) for view in views]
    period, taken = statement.account.period, statement.taken
    end = period.end_ms

    kept = {one.view: one.price.cost for one in statement.kept}
    shares = Shares(statement.budget, kept, most_of(statement.budget, views))
    periods = Tiling(end - period.start_ms, period.start_ms)
    windows = [Schedule(view.charged.shape, periods) for view in views]

    def begun(at: int, time_ms: int) -> int:
        return windows[at].begun(starts[at], time_ms)

    low, high = min(starts, default=end), end
    while low < high:
        middle = (low + high + 1) // 2
        asked = {view.name: owed[at] + costs[at] * begun(at, middle) for at, view in enumerate(views)}
        paid = sum(asked.values(), Cost.ZERO) <= statement.left and shares.covers(taken, asked)
        low, high = (middle, high) if paid else (low, middle - 1)
    found = {}
    for at, view in enumerate(views):
        left = shares.room(view.name, taken).least(statement.left)
        afforded = (left - owed[at]).fits(costs[at]) if owed[at] <= left else 0
        to_come = begun(at, end)
        found[view.name] = Forecast(
            level=view.levels[levels[at]].name,
            cost=costs[at],
            kept=kept.get(view.name, Cost.ZERO),
            spent=taken.get(view.name, Cost.ZERO),
            left=left,
            windows=afforded,
            to_come=to_come,
            until_ms=end if afforded >= to_come else windows[at].after(starts[at], afforded),
            paid=begun(at, low),
        )
    return found, low


def _newest(view: ViewPlan, statement: Statement) -> int | None:
    """Start of the newest window of a view that an entry tells of."""
    newest = [share.last_ms for (name, _), share in statement.shares.items() if name == view.name]
    return max((start for start in newest if start is not None), default=None)


def _next_start(view: ViewPlan, statement: Statement) -> int:
    """Start of the first window of a view that no entry tells of yet."""
    last = _newest(view, statement)
    if last is not None:
        return view.charged.shape.next(last)
    return max([statement.account.period.start_ms, *(one.first_ms for one in view.editions[:1])])


def _owed(view: ViewPlan, statement: Statement) -> Cost:
    """What the schedule of unlocks asks for windows that are not so old yet, beyond what those at the start cost."""
    last = _newest(view, statement)
    after = [step.after_ms for steps in view.unlocks.values() for step in steps]
    if last is None or not after:
        return Cost.ZERO
    shape, period = view.charged.shape, statement.account.period
    first = max(shape.first_from(period.start_ms), view.window.first_younger(max(after), shape.end(last)))
    waiting = Schedule(shape, Tiling(period.end_ms - period.start_ms, period.start_ms)).begun(first, shape.next(last))
    return (view.counts(view.planned_level) - view.counts(view.start_level)) * waiting
