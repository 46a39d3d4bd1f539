"""Progress of an application: its views, the budgets that are left, and what is planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stream_dp.config.forecast import forecast
from stream_dp.config.plan import Plan, SharpenPlan, Unlock, ViewPlan
from stream_dp.control.editions import Posted, editions
from stream_dp.operations.reports import Reports
from stream_dp.records.models import PartitionStatus, ViewStatus
from stream_dp.records.statement import LedgerStatement
from stream_dp.releases.partition_state import stream_ms
from stream_dp.windows.durations import moment
from stream_dp.windows.views import Clock

BEHIND_MS = 60_000
"""A view is behind if its next window was due this long ago."""

Definitions = Mapping[str, Sequence[ViewPlan]]
"""The definitions of every view, oldest first."""


@dataclass(frozen=True, slots=True)
class SlowPartition:
    """Partition of a source that holds up the windows of a view, because its watermarks are behind.

    Attributes:
        source: name of the source.
        partition: the partition.
        clock_ms: the time that its watermarks have reached.
        fastest_ms: the time that the watermarks of the fastest partition have reached.
        windows: number of windows that would close if this partition caught up.
        idle_ms: `window.idle` of the view.
    """

    source: str
    partition: int
    clock_ms: int
    fastest_ms: int
    windows: int
    idle_ms: int


@dataclass(frozen=True, slots=True)
class ViewSummary:
    """Progress of a view.

    Attributes:
        edition: the number of the edition in effect by its clock; None if no settings were posted.
        clocks_ms: its clock, by partition.
        open_windows: number of open windows; None if it was never counted.
        open_from_ms: start of the first open window.
        open_until_ms: end of the last open window.
        released_to_ms: windows before this time are released or refused; None if that is unknown.
        next_due_ms: when the next release is due; None if watermarks decide, or it is unknown.
        waiting_windows: number of windows that are closed in every partition, and neither released nor refused.
        held_up_by: the partition whose watermarks hold up its windows; None if there is none.
    """

    edition: int | None
    clocks_ms: Mapping[int, int]
    open_windows: int | None
    open_from_ms: int | None
    open_until_ms: int | None
    released_to_ms: int | None
    next_due_ms: int | None
    waiting_windows: int = 0
    held_up_by: SlowPartition | None = None


@dataclass(frozen=True, slots=True)
class BudgetSummary:
    """Remaining budget of a ledger.

    Attributes:
        says: the same in words.
        pays_until_ms: windows of all views that begin before this are paid for; None after the end of its period.
        period_end_ms: end of the newest period that was charged.
        spent: it does not pay for the next windows.
    """

    says: str
    pays_until_ms: int | None
    period_end_ms: int
    spent: bool = False


@dataclass(frozen=True, slots=True)
class ToCome:
    """Something that is planned.

    Attributes:
        view: the view that it changes.
        what: in words.
        at_ms: when, by the clock of the view; of settings, the start of their first window.
        clock: that clock: the wall clock, or the time of the stream.
    """

    view: str
    what: str
    at_ms: int
    clock: Clock = "wall"


def released_to(view: str, parts: Mapping[int, PartitionStatus]) -> int | None:
    """Return the time up to which the windows of a view are released or refused, as far as it is known."""
    return max((part.next_windows_ms[view] for part in parts.values() if view in part.next_windows_ms), default=None)


def view_progress(name: str, definitions: Sequence[ViewPlan], plan: Plan, reports: Reports) -> ViewSummary:
    """Return the progress of a view; its definition may change from one window to the next."""
    parts = reports.partitions
    newest = definitions[-1]
    counted = {number: part.views[name] for number, part in sorted(parts.items()) if name in part.views}
    clocks = {number: one.clock_ms for number, one in counted.items()}
    open_from = [one.open_from_ms for one in counted.values()]
    released = released_to(name, parts)
    by_wall = newest.window.clock == "wall"
    clock = reports.now_ms if by_wall else max(clocks.values(), default=None)
    opened = first_ms = last_ms = None
    if counted and clock is not None:
        first_ms = min(open_from)
        opened, last_ms = _open(definitions, first_ms, clock if by_wall else clock + 1)
    due = None
    if released is not None and by_wall and (one := _at(definitions, released)) is not None:
        due = plan.slots.after(one.window.shape.end(one.windows.next(released)) + one.window.grace_ms)
    edition = None
    if definitions[0].editions:
        held = definitions[0] if clock is None else _at(definitions, clock) or newest
        edition = held.edition(held.begins_ms if clock is None else clock).number
    waiting = _waiting(definitions, released, min(open_from)) if len(counted) == plan.partitions else 0
    held_up_by = None if by_wall else _slow_partition(newest, counted, parts)
    return ViewSummary(edition, clocks, opened, first_ms, last_ms, released, due, waiting, held_up_by)


def _slow_partition(
    view: ViewPlan, counted: Mapping[int, ViewStatus], parts: Mapping[int, PartitionStatus]
) -> SlowPartition | None:
    """Return the partition whose watermarks hold up windows although all its records are counted.

    Args:
        view: a view with `clock: event`.
        counted: its progress, by partition.
        parts: reports of the partitions.
    """
    clocks: dict[int, int] = {}
    for number, one in counted.items():
        for at, clock_ms in (one.source_clocks_ms or {number: one.clock_ms}).items():
            clocks[at] = max(clock_ms, clocks.get(at, clock_ms))
    if not clocks:
        return None
    slow = min(clocks, key=clocks.__getitem__)
    fastest_ms = max(clocks.values())
    lag = parts[slow].lag.get(view.source.name, 0) if slow in parts else 0
    if lag or fastest_ms - clocks[slow] < BEHIND_MS:
        return None
    shape = view.window.shape
    grace_ms = view.window.grace_ms
    open_from_ms = min(one.open_from_ms for one in counted.values())
    waiting_from_ms = max(open_from_ms, shape.first_open(clocks[slow] - grace_ms))
    windows = shape.begun(waiting_from_ms, shape.first_open(fastest_ms - grace_ms))
    if not windows:
        return None
    return SlowPartition(view.source.name, slow, clocks[slow], fastest_ms, windows, view.window.idle_ms)


def _until(definition: ViewPlan, time_ms: int) -> int:
    """Return a time, or the end of a definition if that is earlier."""
    return time_ms if definition.until_ms is None else min(time_ms, definition.until_ms)


def _waiting(definitions: Sequence[ViewPlan], released: int | None, closed_ms: int) -> int:
    """Count the windows that begin before the first open one, and are neither released nor refused."""
    number = 0
    for one in definitions:
        since = [at for at in (released, one.begins_ms if one.editions else None) if at is not None]
        if since:
            number += one.windows.begun(one.windows.next(max(since)), _until(one, closed_ms))
    return number


def _at(definitions: Sequence[ViewPlan], time_ms: int) -> ViewPlan | None:
    """Return the definition of the windows at a time; None if the view has ended by then."""
    found = (one for one in reversed(definitions) if not one.editions or one.begins_ms <= time_ms)
    one = next(found, definitions[0])
    return one if one.until_ms is None or time_ms < one.until_ms else None


def _open(definitions: Sequence[ViewPlan], start_ms: int, clock_ms: int) -> tuple[int, int]:
    """Return the number of windows that have begun since the first open one, and the end of the last."""
    number = 0
    end = start_ms
    for one in definitions:
        first = max(start_ms, one.begins_ms) if one.editions else start_ms
        begun = one.window.shape.begun(first, _until(one, clock_ms))
        if begun:
            number += begun
            end = one.window.shape.end(one.window.shape.next(first, begun - 1))
    return number, end


def is_over(newest: ViewPlan, found: ViewSummary) -> bool:
    """Return True if a view was removed and all its windows are released."""
    until = newest.until_ms
    return until is not None and found.released_to_ms is not None and until <= found.released_to_ms


def budget_left(plan: Plan, statement: LedgerStatement, times: Mapping[str, int]) -> BudgetSummary:
    """Return the remaining budget of a ledger, and how long it lasts.

    Args:
        plan: the application.
        statement: of the ledger's newest period.
        times: of every view, as far as it is known.
    """
    name = statement.account.name
    period = statement.account.period
    own = [times[view.name] for view in plan.views.values() if view.ledger.name == name and view.name in times]
    if own and period.end_ms <= min(own):
        return BudgetSummary(f"new period since {moment(period.end_ms)}, nothing is charged yet", None, period.end_ms)
    views, lasts_ms = forecast(plan, statement)
    shares = [(entry, 100 * getattr(statement.left, entry) // cap) for entry, cap in statement.budget.entries() if cap]
    left = f"{', '.join(f'{share} % of {entry}' for entry, share in shares)} left until {moment(period.end_ms)}"
    spent = False
    enough = "enough for all views"
    if lasts_ms < period.end_ms:
        spent = not any(view.paid for view in views.values()) or lasts_ms <= max(own, default=lasts_ms - 1)
        enough = f"enough for windows of all views that begin before {moment(lasts_ms)}"
    if spent:
        enough = "not enough for the next windows of all views"
    return BudgetSummary(f"{left}, {enough}", lasts_ms, period.end_ms, spent)


def settings_to_come(definitions: Definitions, known: Sequence[Posted], clocks: Mapping[str, int]) -> Iterator[ToCome]:
    """Yield the editions that begin later than the clocks of their views, and the ends of removed views.

    Args:
        definitions: of every view.
        known: the accepted settings.
        clocks: by view, as far as that is known.
    """
    for held in editions(known):
        if not held.never_holds and held.from_ms > clocks.get(held.view, held.from_ms):
            words = f"edition {held.edition} begins: the view uses settings {held.settings}"
            yield ToCome(held.view, words, held.from_ms, definitions[held.view][-1].window.clock)
    for name, (*_, newest) in definitions.items():
        if newest.until_ms is not None and newest.until_ms > clocks.get(name, newest.until_ms):
            yield ToCome(name, "ends", newest.until_ms, newest.window.clock)


def sharper_to_come(definitions: Sequence[ViewPlan], released_to_ms: int, wall_ms: int) -> Iterator[ToCome]:
    """Yield the next sharper releases of a view: the next unlock of each level, and the next spending of a rest.

    Only released windows are unlocked.

    Args:
        definitions: of the view, the newest last.
        released_to_ms: start of its first window that is not released or refused.
        wall_ms: the wall clock.
    """
    come_to = [(one, _until(one, released_to_ms)) for one in definitions]
    over = [(one, end_ms) for one, end_ms in come_to if not one.editions or one.begins_ms < end_ms]
    times: Mapping[Clock, int] = {"wall": wall_ms, "event": stream_ms(over or come_to[:1])}
    found: dict[str, ToCome] = {}
    for view, end_ms in come_to:
        clock = view.window.clock
        now_ms = times[clock]
        for audience, steps in view.unlocks.items():
            for step in steps:
                words = f"unlocked to {view.levels[step.level].name} for {audience}"
                for at_ms, start_ms in _unlocked(view, audience, step, now_ms, end_ms):
                    one = ToCome(view.view, f"window of {moment(start_ms)} {words}", at_ms, clock)
                    found[words] = min(found.get(words, one), one, key=lambda each: each.at_ms)
        if view.sharpen is not None and _is_sharpened(view, view.sharpen, now_ms):
            level = view.levels[view.sharpen.level].name
            audience = view.sharpen.audience
            words = (
                f"newest windows unlocked to {level} for {audience}, from leftover budget; remove `sharpen` to stop it"
            )
            one = ToCome(view.view, words, view.sharpen.next_ms(now_ms), clock)
            found[words] = min(found.get(words, one), one, key=lambda each: each.at_ms)
    yield from found.values()


def _unlocked(view: ViewPlan, audience: str, step: Unlock, now_ms: int, end_ms: int) -> Iterator[tuple[int, int]]:
    """Yield, for every edition, the time of the next unlock of a released window, and the start of that window."""
    first_ms = view.window.first_younger(step.after_ms, now_ms)
    for edition in view.editions:
        start_ms = last_ms = view.charged.next(max(first_ms, edition.first_ms))
        if edition.shape.is_sum:  # it is unlocked with the pane that it ends with
            windows = edition.shape.released
            start_ms = max(windows.first_open(start_ms), windows.first_from(view.begins_ms))
            last_ms = view.window.shape.start_of(windows.end(start_ms) - 1)
        is_its_own = last_ms < end_ms and view.edition(last_ms) == edition
        if is_its_own and edition.audiences.get(audience, -1) < step.level:
            yield view.window.at_age(last_ms, step.after_ms), start_ms


def _is_sharpened(view: ViewPlan, sharpen: SharpenPlan, now_ms: int) -> bool:
    """Return True if the view has windows in the periods of the next spending of a rest."""
    since_ms = view.ledger.periods.start_of(sharpen.times.start_of(now_ms))
    return view.begins_ms < sharpen.next_ms(now_ms) and (view.until_ms is None or since_ms < view.until_ms)
