"""The windows that are over when a view begins: what it would cost to release all of them at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from stream_dp.config.explanation import price_words
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import Fault
from stream_dp.records.models import Price
from stream_dp.windows.durations import format_duration, format_time

_DAY_MS = 86_400_000
_LONG_MS = 7 * _DAY_MS


def closed(view: ViewPlan, now_ms: int) -> int:
    """How many windows of a view with a configured start are due to be paid for; 0 for a view without.

    They are over, their grace too; of windows that are told of at every pane it is the first pane.
    """
    window = view.window
    if window.first_ms is None:
        return 0
    return view.charged.begun(window.first_ms, window.shape.first_open(now_ms - window.grace_ms))


def covered(view: ViewPlan, count: int) -> int:
    """How many of a view's first windows its ledger pays for, if nothing is spent and the view is alone.

    Every full period has as many of them.
    """
    windows, periods = view.charged, view.ledger.periods
    first_ms = view.window.first_ms or 0
    affords = view.ledger.budget.fits(view.cost(view.planned_level))
    in_first = min(count, windows.begun(first_ms, periods.end(periods.start_of(first_ms))))
    each = windows.shape.whole_in(periods.length_ms)
    full, in_last = divmod(count - in_first, each)
    return min(in_first, affords) + full * min(each, affords) + min(in_last, affords)


def withdrawn(view: ViewPlan, now_ms: int) -> int:
    """How many of the windows that are over a view withdraws as soon as it has released all of them."""
    return 0 if (first_ms := view.window.first_ms) is None else view.charged.begun(first_ms, _kept_from(view, now_ms))


def _kept_from(view: ViewPlan, now_ms: int) -> int:
    """The earliest start of a window that stays when the newest one that is over was released."""
    return _newest(view, now_ms) - view.window.kept_ms


def _newest(view: ViewPlan, now_ms: int) -> int:
    shape = view.window.shape
    return shape.next(shape.first_open(now_ms - view.window.grace_ms), -1)


def follows_the_stream(view: ViewPlan) -> bool:
    """Whether windows close by watermarks alone for so long that the wall clock says nothing of them."""
    return view.window.clock == "event" and view.window.idle_ms >= _LONG_MS


def withdrawal_faults(plan: Plan, begin: Collection[str], now_ms: int, stream_ms: int | None = None) -> Iterator[Fault]:
    """Views that would release and pay for windows that nobody can read for long, and what to do.

    Args:
        plan: the application.
        begin: the views that have not begun.
        now_ms: the wall clock.
        stream_ms: how far the watermarks come, None where that is not known.
    """
    for view in plan.views.values():
        at_ms = stream_ms if follows_the_stream(view) else now_ms
        count = withdrawn(view, at_ms) if view.name in begin and at_ms is not None else 0
        if count and at_ms is not None:
            yield Fault(
                f"views.{view.name}.retention",
                f"{count:,} of {closed(view, at_ms):,} windows that are over would be withdrawn as soon as they are "
                f"released, and stay paid for: {_lifetime(view, at_ms)}, or a later window.start",
            )


def _lifetime(view: ViewPlan, now_ms: int) -> str:
    """When windows are withdrawn, and the retention that keeps all that are over."""
    days = -(-(_newest(view, now_ms) - (view.window.first_ms or 0)) // _DAY_MS)
    return (
        f"a window is withdrawn when one is released that begins more than {format_duration(view.window.retention_ms)} "
        f"(retention) later; write retention: {days}d or more"
    )


AT_A_START = "start once with --backfill, after the history is in the topic (`stream-dp feed`)"


def backlog_faults(plan: Plan, begin: Collection[str], now_ms: int, if_meant: str = AT_A_START) -> Iterator[Fault]:
    """What is wrong with beginning views whose first windows are over, whoever means it, and what to do.

    Released one after another, they are charged to the ledger whether or not their events are there yet; a window that
    was released empty is not released again. A clock of watermarks only puts that off: where none come, a partition
    goes on with the wall clock.

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
        cost = Price.spent(view.cost(view.planned_level) * count)
        began = format_time(view.window.first_ms or 0)
        windows = "1 window is" if count == 1 else f"{count:,} windows are"
        windows += " over" if view.window.running is None else " under way or over"
        when = "at once"
        if view.window.clock == "event":
            idle = format_duration(view.window.idle_ms)
            when = f"as watermarks pass them, or {idle} after the start in partitions without any"
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
