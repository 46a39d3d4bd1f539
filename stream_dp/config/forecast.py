"""Forecast of a ledger: the windows that its remaining budget affords, at the costs of the plan."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stream_dp.accounting import Cost
from stream_dp.config.explanation import price_words
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.shares import Shares, most_of
from stream_dp.errors import Fault
from stream_dp.records.models import PrivacyCost
from stream_dp.records.statement import LedgerStatement
from stream_dp.windows.durations import DAY_MS, format_duration, format_time
from stream_dp.windows.shapes.shape import Interval, Schedule
from stream_dp.windows.shapes.tumbling import Tiling


@dataclass(frozen=True, slots=True)
class Forecast:
    """Number of further windows of a view that the ledger affords, at its present level and at worst.

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


def present_level(view: ViewPlan, statement: LedgerStatement) -> int:
    """The finest level that an audience's newest window has, starts with or is unlocked."""
    index = {level.name: at for at, level in enumerate(view.levels)}
    levels = [view.planned_level] if view.unlocks else []
    for audience, start in view.audiences.items():
        share = statement.shares.get((view.name, audience))
        levels.append(start if share is None else index.get(share.level, start))
    return max(levels)


def _worst(view: ViewPlan, level: int) -> Cost:
    """Return the worst-case cost of a window that comes to a present level: as planned, by a grant or sharpened."""
    if view.sharpen is not None and level == view.sharpen.level:
        return view.planned + view.counts(level, view.planned_level)
    return view.planned.most(view.cost(level))


def forecast(
    plan: Plan, statement: LedgerStatement, begins: Mapping[str, int] = MappingProxyType({})
) -> tuple[dict[str, Forecast], int]:
    """Return the number of windows that a ledger still affords.

    Args:
        plan: the application.
        statement: of the ledger and period.
        begins: of views that are as the plan has them from a time on only: the start of their first window.

    Returns:
        By view, but for those that were taken out; and the time up to which it affords every window of all its views,
        at most the end of the period.
    """
    views = [one for one in plan.views.values() if one.ledger.name == statement.account.name and not one.is_removed]
    levels = [present_level(view, statement) for view in views]
    costs = [_worst(view, level) for view, level in zip(views, levels, strict=True)]
    starts = [max(_next_start(view, statement), begins.get(view.name, 0)) for view in views]
    owed = [_owed(view, statement) for view in views]
    period, taken = statement.account.period, statement.taken
    end = period.end_ms

    kept = {one.view: one.budget.cost for one in statement.view_shares}
    shares = Shares(statement.budget, kept, most_of(statement.budget, views))
    periods = Tiling.of(Interval(period.start_ms, end))
    windows = [Schedule(view.charged.shape, periods) for view in views]

    def begun(at: int, time_ms: int) -> int:
        return windows[at].begun(starts[at], time_ms)

    def further(at: int, number: int) -> Cost:
        """Return the cost of some further windows; with `windows_per_user`, a user pays for only some of them."""
        view, whole = views[at], costs[at] * number
        if view.windows_per_user is None:
            return whole
        spent = taken.get(view.name, Cost.ZERO)
        return whole.least((costs[at] * view.windows_per_user).most(spent) - spent)

    def is_unpaid(time_ms: int) -> bool:
        asked = {view.name: owed[at] + further(at, begun(at, time_ms)) for at, view in enumerate(views)}
        return not (sum(asked.values(), Cost.ZERO) <= statement.left and shares.covers(taken, asked))

    first = min(starts, default=end)
    paid_ms = first + bisect_left(range(first + 1, end + 1), True, key=is_unpaid)
    found = {}
    for at, view in enumerate(views):
        left = shares.room(view.name, taken).least(statement.left)
        afforded = (left - owed[at]).fits(costs[at]) if owed[at] <= left else 0
        to_come = begun(at, end)
        if afforded < to_come and owed[at] + further(at, to_come) <= left:
            afforded = to_come
        found[view.name] = Forecast(
            level=view.levels[levels[at]].name,
            cost=costs[at],
            kept=kept.get(view.name, Cost.ZERO),
            spent=taken.get(view.name, Cost.ZERO),
            left=left,
            windows=afforded,
            to_come=to_come,
            until_ms=end if afforded >= to_come else windows[at].after(starts[at], afforded),
            paid=begun(at, paid_ms),
        )
    return found, paid_ms


def _newest(view: ViewPlan, statement: LedgerStatement) -> int | None:
    """Start of the newest window of a view that an entry tells of."""
    newest = [share.last_ms for (name, _), share in statement.shares.items() if name == view.name]
    return max((start for start in newest if start is not None), default=None)


def _next_start(view: ViewPlan, statement: LedgerStatement) -> int:
    """Start of the first window of a view that no entry tells of yet."""
    last = _newest(view, statement)
    if last is not None:
        return view.charged.shape.next(last)
    return max([statement.account.period.start_ms, *(one.first_ms for one in view.editions[:1])])


def _owed(view: ViewPlan, statement: LedgerStatement) -> Cost:
    """Return the cost of scheduled unlocks of released windows that are not due yet."""
    last = _newest(view, statement)
    after = [step.after_ms for steps in view.unlocks.values() for step in steps]
    if last is None or not after:
        return Cost.ZERO
    shape, period = view.charged.shape, statement.account.period
    first = max(shape.first_from(period.start_ms), view.window.first_younger(max(after), shape.end(last)))
    waiting = Schedule(shape, Tiling.of(Interval(period.start_ms, period.end_ms))).begun(first, shape.next(last))
    return view.unlocks_beyond(view.start_level) * view.most_paid(waiting)


_LONG_MS = 7 * DAY_MS


def closed(view: ViewPlan, now_ms: int) -> int:
    """Return the number of windows that a view with a configured start has to pay for by now; 0 without one.

    They are over, their grace too; of windows that are told of at every pane it is the first pane.
    """
    window = view.window
    open_ms = window.shape.first_open(now_ms - window.grace_ms)
    return 0 if window.first_ms is None else view.charged.begun(window.first_ms, open_ms)


def covered(view: ViewPlan, count: int) -> int:
    """Return the number of first windows that an unspent ledger pays for, if the view is alone."""
    windows, periods = view.charged, view.ledger.periods
    first_ms = view.window.first_ms or 0
    affords = view.ledger.budget.fits(view.planned)
    found = in_period = min(count, windows.begun(first_ms, periods.end(periods.start_of(first_ms))))
    paid, rest, period = view.covered(found, affords), count - in_period, periods.interval(first_ms)
    if periods.shortest_ms == periods.longest.length_ms:  # every full period has as many of them
        each = windows.shape.whole_in(period)
        full, in_last = divmod(rest, each)
        return paid + full * view.covered(each, affords) + view.covered(in_last, affords)
    while rest:
        period = periods.interval(period.end_ms)
        in_period = min(rest, windows.shape.whole_in(period))
        paid, rest = paid + view.covered(in_period, affords), rest - in_period
    return paid


def withdrawn(view: ViewPlan, now_ms: int) -> int:
    """Return the number of windows that expire as soon as a view has released all that are over."""
    kept_from = _newest_window(view, now_ms) - view.window.kept_ms
    return 0 if view.window.first_ms is None else view.charged.begun(view.window.first_ms, kept_from)


def _newest_window(view: ViewPlan, now_ms: int) -> int:
    """Start of the newest window that is over."""
    shape = view.window.shape
    return shape.next(shape.first_open(now_ms - view.window.grace_ms), -1)


def follows_the_stream(view: ViewPlan) -> bool:
    """Return True if windows close by watermarks alone for so long that the wall clock says nothing of them."""
    return view.window.clock == "event" and view.window.idle_ms >= _LONG_MS


def withdrawal_faults(plan: Plan, begin: Collection[str], now_ms: int, stream_ms: int | None = None) -> Iterator[Fault]:
    """Views that would release and pay for windows that nobody can read for long, and what to do.

    Args:
        plan: the application.
        begin: the views that have not begun.
        now_ms: the wall clock.
        stream_ms: how far the watermarks come, None where that is not known.
    """
    for view in (view for view in plan.views.values() if view.name in begin):
        at_ms = stream_ms if follows_the_stream(view) else now_ms
        if at_ms is not None and (count := withdrawn(view, at_ms)):
            yield Fault(
                f"views.{view.name}.retention",
                f"{count:,} of {closed(view, at_ms):,} windows that are over would be withdrawn as soon as they are "
                f"released, and stay paid for: {_lifetime(view, at_ms)}, or a later window.start",
            )


def _lifetime(view: ViewPlan, now_ms: int) -> str:
    """When windows are withdrawn, and the retention that keeps all that are over."""
    days = -(-(_newest_window(view, now_ms) - (view.window.first_ms or 0)) // DAY_MS)
    return (
        f"a window is withdrawn when one is released that begins more than {format_duration(view.window.retention_ms)} "
        f"(retention) later; write retention: {days}d or more"
    )


AT_A_START = "start once with --backfill, after the history is in the topic (`stream-dp feed`)"


def backlog_faults(plan: Plan, begin: Collection[str], now_ms: int, if_meant: str = AT_A_START) -> Iterator[Fault]:
    """Yield the faults of beginning views whose first windows are over, with their remedies.

    Released one after another, they are charged to the ledger whether or not their events are there yet; a window that
    was released empty is not released again. A clock of watermarks only puts that off: without any, the
    time of a partition advances as fast as the wall clock.

    Args:
        plan: the application.
        begin: the views that have not begun.
        now_ms: the wall clock.
        if_meant: what to do where it is meant.
    """
    for view in plan.views.values():
        count = closed(view, now_ms) if view.name in begin else 0
        if not count:
            continue
        cost = PrivacyCost.spent(view.planned * count)
        began = format_time(view.window.first_ms or 0)
        windows = "1 window is" if count == 1 else f"{count:,} windows are"
        windows += f" {view.window.shape.due_words}"
        when = "at once"
        if view.window.clock == "event":
            idle = format_duration(view.window.idle_ms)
            when = f"as watermarks pass them; without watermarks for {idle}, as fast as the wall clock"
        gone = 0 if follows_the_stream(view) else withdrawn(view, now_ms)
        withdrawals = f"{gone:,} of them would be withdrawn at once: {_lifetime(view, now_ms)}. " if gone else ""
        yield Fault(
            f"views.{view.name}.window.start",
            f"the first window began {began}, so {windows} already; they would be released {when}, empty or not, "
            f"and charged {price_words(cost)} at worst to ledger {view.ledger.name}, which pays for "
            f"{covered(view, count):,} of them if nothing is spent and the view is alone. {withdrawals}Where that is "
            f"meant, {if_meant}; else write a later start, or none: then the view begins with the window of its first "
            "start",
        )
