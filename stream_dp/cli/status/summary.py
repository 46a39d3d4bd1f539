"""How an application is, from what its workers say, its group and its accounts; what needs somebody comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stream_dp.cli.numbers import moment
from stream_dp.config.forecast import forecast
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.records.statement import Statement
from stream_dp.records.status import PartitionStatus, WorkerStatus
from stream_dp.runtime.client import Group
from stream_dp.runtime.membership import EMPTY, STABLE
from stream_dp.windows.durations import format_duration
from stream_dp.windows.shape import Stretch

SILENT_MS = 30_000
"""A worker that has not said for so long how it is needs somebody: three of its records are missing."""
GONE_MS = 300_000
"""One that is silent for so long is no worker any more."""
BEHIND_MS = 60_000
"""A window that is not released so long after its turn."""


@dataclass(frozen=True, slots=True)
class Reports:
    """What was read.

    Attributes:
        now_ms: when.
        said: by instance, what each worker said last.
        partitions: by number, what was said last of each partition, by whomever.
        stopped: instances that have said that they stop.
        group: the group of the workers.
        statements: of the newest period of each ledger that entries tell of.
    """

    now_ms: int
    said: Mapping[str, WorkerStatus]
    partitions: Mapping[int, PartitionStatus]
    stopped: frozenset[str]
    group: Group
    statements: Sequence[Statement] = ()

    @property
    def workers(self) -> list[WorkerStatus]:
        """The workers that run, or that have fallen silent lately."""
        running = [one for name, one in sorted(self.said.items()) if name not in self.stopped]
        return [one for one in running if self.now_ms - one.at_ms <= GONE_MS]

    @property
    def members(self) -> int:
        """How many members the group has that have not stopped: who stops stays one for another minute, by its name."""
        stopped = tuple(f"{name}-" for name in self.stopped)
        return sum(not member.startswith(stopped) for member in self.group.owned)

    def is_silent(self, worker: WorkerStatus) -> bool:
        """Whether a worker has not said how it is for too long."""
        return self.now_ms - worker.at_ms > SILENT_MS

    @property
    def owners(self) -> dict[int, str]:
        """By partition, the worker that has it, the one that said so last."""
        running = sorted((one for one in self.workers if not self.is_silent(one)), key=lambda one: one.at_ms)
        return {partition: one.instance for one in running for partition in one.partitions}


@dataclass(frozen=True, slots=True)
class ViewSummary:
    """How far a view is.

    Attributes:
        clocks: by partition, what its clock shows.
        open: how many of its windows have begun and are not closed, and from when to when; None: it was never counted.
        released_to: up to when its windows are released or refused; None: nothing is known.
        next_due: when the next one is due; None where watermarks decide, or nothing is known.
    """

    clocks: Mapping[int, int]
    open: tuple[int, Stretch] | None
    released_to: int | None
    next_due: int | None


@dataclass(frozen=True, slots=True)
class Summary:
    """How an application is.

    Attributes:
        reports: what it is made from.
        faults: what needs somebody, in sentences.
        unowned: partitions without a worker.
        lag: by source, records that are not counted, by partition.
        views: by name.
        budgets: by ledger, a sentence.
        totals: the counters over all partitions.
    """

    reports: Reports
    faults: list[str]
    unowned: list[int]
    lag: dict[str, dict[int, int]]
    views: dict[str, ViewSummary]
    budgets: dict[str, str]
    totals: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        reports = self.reports
        return {
            "fine": not self.faults,
            "needs_attention": self.faults,
            "at_ms": reports.now_ms,
            "workers": [
                {
                    "instance": one.instance,
                    "since_ms": one.since_ms,
                    "said_ms": one.at_ms,
                    "version": one.code_version,
                    "partitions": sorted(one.partitions),
                    "silent": reports.is_silent(one),
                    "waits_for": one.waits_for,
                }
                for one in reports.workers
            ],
            "partitions_without_a_worker": self.unowned,
            "lag": {source: {str(at): lag for at, lag in parts.items()} for source, parts in self.lag.items()},
            "views": {
                name: {
                    "clocks_ms": {str(at): clock for at, clock in view.clocks.items()},
                    "open_windows": view.open[0] if view.open else None,
                    "open_from_ms": view.open[1].start_ms if view.open else None,
                    "open_until_ms": view.open[1].end_ms if view.open else None,
                    "released_to_ms": view.released_to,
                    "next_due_ms": view.next_due,
                }
                for name, view in self.views.items()
            },
            "budgets": self.budgets,
            "totals": self.totals,
        }


def summary(plan: Plan, reports: Reports) -> Summary:
    """How an application is.

    Args:
        plan: the application.
        reports: what was read of it.
    """
    parts = reports.partitions
    views = {name: _view(view, plan, parts, reports.now_ms) for name, view in plan.views.items()}
    lag: dict[str, dict[int, int]] = {}
    totals: Counter[str] = Counter()
    for number, part in sorted(parts.items()):
        totals.update(part.totals)
        for source, records in part.lag.items():
            lag.setdefault(source, {})[number] = records
    unowned = sorted(set(range(plan.partitions)) - reports.owners.keys())
    faults = [*_faults(plan, reports, views, unowned)]
    budgets = {}
    for statement in reports.statements:
        budgets[statement.account.name], is_spent = _budget(plan, statement, reports.now_ms)
        if is_spent:
            faults.append(f"ledger {statement.account.name} {budgets[statement.account.name]}")
    return Summary(reports, faults, unowned, lag, views, budgets, dict(sorted(totals.items())))


def _faults(plan: Plan, reports: Reports, views: Mapping[str, ViewSummary], unowned: Sequence[int]) -> Iterator[str]:
    running = [one for one in reports.workers if not reports.is_silent(one)]
    members = reports.members
    if not running and not members:
        yield "no worker runs: start one with `stream-dp worker`"
    elif unowned:
        one = len(unowned) == 1
        yield (
            f"partition{'' if one else 's'} {', '.join(map(str, unowned))} {'has' if one else 'have'} no worker, and "
            "nothing of it is counted: wait for workers that start or recover, or start more"
        )
    for worker in reports.workers:
        if reports.is_silent(worker):
            silent = _ago(reports.now_ms - worker.at_ms)
            yield f"worker {worker.instance} has said nothing for {silent}: see whether it runs, and its log"
        elif worker.waits_for:
            yield f"worker {worker.instance} is not ready: it waits for {worker.waits_for}"
    if running and members > len(running):
        yield f"of {members} members of the group {plan.id} only {len(running)} have said how they are"
    if reports.group.state not in (STABLE, *EMPTY):
        yield "the workers are sharing the partitions anew"
    for name, view in views.items():
        if running and view.next_due is not None and reports.now_ms > view.next_due + BEHIND_MS:
            late = _ago(reports.now_ms - view.next_due)
            yield f"view {name} is behind: its next window was due at {moment(view.next_due)}, {late} ago"


def _ago(duration_ms: int) -> str:
    return format_duration(duration_ms // 1000 * 1000)


def _view(view: ViewPlan, plan: Plan, parts: Mapping[int, PartitionStatus], now_ms: int) -> ViewSummary:
    counted = {number: part.views[view.name] for number, part in sorted(parts.items()) if view.name in part.views}
    clocks = {number: one.clock_ms for number, one in counted.items()}
    released = max((part.released[view.name] for part in parts.values() if view.name in part.released), default=None)
    shape, by_wall = view.window.shape, view.window.clock == "wall"
    window = due = None
    if counted:
        start = min(one.open_from_ms for one in counted.values())
        number = shape.begun(start, now_ms if by_wall else max(clocks.values()) + 1)
        window = number, Stretch(start, shape.end(shape.next(start, number - 1)))
    if released is not None and by_wall:
        due = plan.slots.after(shape.end(view.windows.next(released)) + view.window.grace_ms)
    return ViewSummary(clocks, window, released, due)


def _budget(plan: Plan, statement: Statement, now_ms: int) -> tuple[str, bool]:
    """What is left of a ledger, and how far it reaches; whether it pays for nothing more."""
    period = statement.account.period
    if period.end_ms <= now_ms:
        return f"has begun a new period on {moment(period.end_ms)}, of which no window is charged yet", False
    views, lasts_ms = forecast(plan, statement)
    shares = [(name, 100 * getattr(statement.left, name) // cap) for name, cap in statement.budget.entries() if cap]
    left = f"has {', '.join(f'{share} % of {name}' for name, share in shares)} left until {moment(period.end_ms)}"
    if lasts_ms >= period.end_ms:
        return f"{left}: it pays for all views until then", False
    if any(view.paid for view in views.values()):
        return f"{left}: it pays for all views for windows that begin before {moment(lasts_ms)}", False
    return f"{left}: it does not pay for the next windows of all views", True
