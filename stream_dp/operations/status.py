"""The status of an application, from the reports of its workers, its group and its accounts; problems come first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from stream_dp.config.forecast import forecast
from stream_dp.config.plan import Plan, SharpenPlan, Unlock, ViewPlan
from stream_dp.control.editions import Posted, editions, plan_holding, presented
from stream_dp.operations.numbers import moment
from stream_dp.operations.reports import Reports, look
from stream_dp.records.models import PartitionStatus, WorkerStatus
from stream_dp.records.statement import LedgerStatement
from stream_dp.releases.view_definitions import stream_ms
from stream_dp.runtime.faust.membership import EMPTY, STABLE
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import read_history
from stream_dp.windows.durations import format_duration
from stream_dp.windows.shapes.base import Interval
from stream_dp.windows.views import Clock

BEHIND_MS = 60_000
"""A view is behind if its next window was due so long ago."""
BEHIND_WINDOWS = 20
"""A view is behind if so many of its windows are closed and not released."""
MISSED_MS = 86_400_000
"""Records that were deleted before they were counted are a problem for so long after that was found."""
LEARNT_MS = 30_000
"""A worker that does not use settings so long after they were posted is a problem."""

Code = Literal[
    "budget_exhausted",
    "no_worker",
    "partition_without_worker",
    "worker_silent",
    "worker_clock",
    "worker_waits",
    "worker_refuses_settings",
    "worker_behind_settings",
    "broker_clock",
    "topic_settings",
    "records_missing",
    "member_silent",
    "rebalancing",
    "view_behind",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that an operator has to see to.

    Attributes:
        code: what it is.
        about: the worker, view, source, ledger or group; empty for the whole application.
        message: what is wrong, and what to do.
    """

    code: Code
    about: str
    message: str


@dataclass(frozen=True, slots=True)
class ViewSummary:
    """How far a view is.

    Attributes:
        edition: the number of the edition in effect by its clock; None where no settings were posted.
        clocks: by partition, what its clock shows.
        open: how many of its windows have begun and are not closed, and from when to when; None: it was never counted.
        released_to: up to when its windows are released or refused; None: nothing is known.
        next_due: when the next one is due; None where watermarks decide, or nothing is known.
        waiting: how many windows are closed in every partition, and neither released nor refused.
    """

    edition: int | None
    clocks: Mapping[int, int]
    open: tuple[int, Interval] | None
    released_to: int | None
    next_due: int | None
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """What a ledger has left.

    Attributes:
        words: the same in words.
        pays_until_ms: up to when it pays for every window of all its views; None where its period is over.
        period_end_ms: end of the newest period that was charged.
        is_spent: it does not pay for the next windows.
    """

    words: str
    pays_until_ms: int | None
    period_end_ms: int
    is_spent: bool = False


@dataclass(frozen=True, slots=True)
class ToCome:
    """Something that was decided and has not happened yet.

    Attributes:
        view: what it happens to.
        what: in words.
        at_ms: when, by the clock of the view; of settings, the start of the first window that they are about.
        clock: that clock: the wall clock, or the time of the stream.
    """

    view: str
    what: str
    at_ms: int
    clock: Clock = "wall"


@dataclass(frozen=True, slots=True)
class Summary:
    """How an application is.

    Attributes:
        reports: what it is made from.
        problems: what an operator has to see to, the worst first.
        unowned: partitions without a worker.
        lag: by source, records that are not counted, by partition.
        views: by name; one that was taken out as long as windows of it are to be released.
        to_come: what was decided and has not happened yet, and what becomes sharper next, soonest first.
        budgets: by ledger.
        totals: the counters over all partitions.
    """

    reports: Reports
    problems: list[Problem]
    unowned: list[int]
    lag: dict[str, dict[int, int]]
    views: dict[str, ViewSummary]
    to_come: list[ToCome]
    budgets: dict[str, Budget]
    totals: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        reports = self.reports
        return {
            "fine": not self.problems,
            "problems": [asdict(one) for one in self.problems],
            "at_ms": reports.now_ms,
            "settings": len(reports.settings),
            "workers": [
                {
                    "instance": one.instance,
                    "started_ms": one.started_ms,
                    "reported_ms": one.reported_ms,
                    "version": one.code_version,
                    "settings": one.settings,
                    "partitions": sorted(one.partitions),
                    "silent": reports.is_silent(one),
                    "waiting_for": one.waiting_for,
                    "settings_error": one.settings_error,
                    "topic_problems": list(one.topic_problems),
                    "clock_ahead_ms": one.clock_ahead_ms,
                }
                for one in reports.workers
            ],
            "partitions_without_a_worker": self.unowned,
            "lag": {source: {str(at): lag for at, lag in parts.items()} for source, parts in self.lag.items()},
            "views": {
                name: {
                    "edition": view.edition,
                    "clocks_ms": {str(at): clock for at, clock in view.clocks.items()},
                    "open_windows": view.open[0] if view.open else None,
                    "open_from_ms": view.open[1].start_ms if view.open else None,
                    "open_until_ms": view.open[1].end_ms if view.open else None,
                    "released_to_ms": view.released_to,
                    "next_due_ms": view.next_due,
                    "waiting_windows": view.waiting,
                }
                for name, view in self.views.items()
            },
            "to_come": [asdict(one) for one in self.to_come],
            "budgets": {
                name: {
                    "says": one.words,
                    "pays_until_ms": one.pays_until_ms,
                    "period_end_ms": one.period_end_ms,
                    "spent": one.is_spent,
                }
                for name, one in self.budgets.items()
            },
            "totals": self.totals,
        }


async def read_status(plan: Plan, client: Client) -> Summary:
    """Read the status of an application.

    Args:
        plan: of a file of it.
        client: of its broker.

    Raises:
        ConfigError: the settings in effect cannot be planned here.
        BrokerError: the cluster does not answer.
        StateError: a record cannot be read.
    """
    known = await read_history(plan, client)
    effective = await asyncio.to_thread(plan_holding, known, plan)
    return summary(effective, replace(await look(effective, client), settings=known))


def summary(plan: Plan, reports: Reports) -> Summary:
    """How an application is.

    Args:
        plan: the application, with every definition of every view.
        reports: what was read of it.
    """
    parts = reports.partitions
    definitions: dict[str, list[ViewPlan]] = {}
    for definition in plan.views.values():
        definitions.setdefault(definition.view, []).append(definition)
    views = {name: _view(name, asked, plan, parts, reports.now_ms) for name, asked in definitions.items()}
    views = {name: one for name, one in views.items() if not _is_over(definitions[name][-1], one)}
    lag: dict[str, dict[int, int]] = {}
    totals: Counter[str] = Counter()
    for number, part in sorted(parts.items()):
        totals.update(part.counters)
        for source, records in part.lag.items():
            lag.setdefault(source, {})[number] = records
    unowned = sorted(set(range(plan.partitions)) - reports.owners.keys())
    shown = presented(plan)
    times = _times(definitions, views, reports.now_ms)
    budgets = {one.account.name: _budget(shown, one, _of_ledger(shown, one, times)) for one in reports.statements}
    problems = [*_refused(shown, reports.statements, times), *_problems(plan, reports, views, unowned)]
    problems += [
        Problem("budget_exhausted", name, f"Budget of ledger {name}: {budget.words}. See `stream-dp ledger FILE`.")
        for name, budget in budgets.items()
        if budget.is_spent
    ]
    to_come = sorted(_to_come(definitions, views, reports), key=lambda one: (one.at_ms, one.view, one.what))
    return Summary(reports, problems, unowned, lag, views, to_come, budgets, dict(sorted(totals.items())))


def _times(
    definitions: Mapping[str, Sequence[ViewPlan]], views: Mapping[str, ViewSummary], now_ms: int
) -> dict[str, int]:
    """The time of each view, as far as it is known: that of the stream where watermarks move its clock."""
    known = {name: now_ms for name, asked in definitions.items() if asked[-1].window.clock == "wall"}
    streams = {name: max(view.clocks.values()) for name, view in views.items() if view.clocks}
    return {**streams, **known}


def _of_ledger(plan: Plan, statement: LedgerStatement, times: Mapping[str, int]) -> Sequence[int]:
    """The times of the views that a ledger pays for."""
    return [
        times[name] for name, view in plan.views.items() if view.ledger.name == statement.account.name and name in times
    ]


def _refused(plan: Plan, statements: Sequence[LedgerStatement], times: Mapping[str, int]) -> Iterator[Problem]:
    """Views whose newest windows are refused."""
    for statement in statements:
        period = statement.account.period
        found: dict[str, list[tuple[str, int]]] = {}
        for (view, audience), share in sorted(statement.shares.items()):
            if view in plan.views and audience in plan.views[view].audiences and share.refused_ms is not None:
                found.setdefault(view, []).append((audience, share.refused_ms))
        for view, since in found.items():
            if times.get(view, period.start_ms) < period.end_ms:
                audiences, first = ", ".join(audience for audience, _ in since), moment(min(at for _, at in since))
                yield Problem(
                    "budget_exhausted",
                    view,
                    f"Budget exhausted: ledger {statement.account.name} does not pay for view {view}; windows from "
                    f"{first} on are refused to {audiences}. See `stream-dp ledger FILE`.",
                )


def _to_come(
    definitions: Mapping[str, Sequence[ViewPlan]], views: Mapping[str, ViewSummary], reports: Reports
) -> Iterator[ToCome]:
    clocks = {name: max(view.clocks.values()) for name, view in views.items() if view.clocks}
    clocks |= {name: reports.now_ms for name, asked in definitions.items() if asked[-1].window.clock == "wall"}
    yield from settings_to_come(definitions, reports.settings, clocks)
    for name, asked in definitions.items():
        if asked[0].editions and (released := _released(name, reports.partitions)) is not None:
            yield from sharper_to_come(asked, released, reports.now_ms)


def _released(view: str, parts: Mapping[int, PartitionStatus]) -> int | None:
    """Up to when the windows of a view are released or refused, as far as that is known."""
    return max((part.next_windows_ms[view] for part in parts.values() if view in part.next_windows_ms), default=None)


def _problems(
    plan: Plan, reports: Reports, views: Mapping[str, ViewSummary], unowned: Sequence[int]
) -> Iterator[Problem]:
    running, members = reports.running, reports.members
    if not running and not members:
        yield Problem("no_worker", "", "No worker runs. Start one: `stream-dp worker FILE`.")
    elif unowned:
        one, numbers = len(unowned) == 1, ", ".join(map(str, unowned))
        yield Problem(
            "partition_without_worker",
            numbers,
            f"{'Partition' if one else 'Partitions'} {numbers} {'has' if one else 'have'} no worker; records there are "
            "not counted. Wait if a worker is starting, else start one: `stream-dp worker FILE`.",
        )
    for worker in reports.workers:
        yield from _of_worker(worker, reports)
    if running and all(worker.clock_ahead_ms for worker in running):
        yield Problem(
            "broker_clock",
            "",
            "No worker's clock agrees with the broker's; no window closes. Check the broker's clock.",
        )
    for words in dict.fromkeys(words for worker in running for words in worker.topic_problems):
        yield Problem("topic_settings", "", words)
    yield from _missing(reports)
    if running and members > len(running):
        yield Problem(
            "member_silent",
            plan.id,
            f"{members - len(running)} of {members} workers in group {plan.id} have not reported. Read their logs.",
        )
    if reports.group.state not in (STABLE, *EMPTY):
        yield Problem("rebalancing", plan.id, "The workers are rebalancing partitions. Wait.")
    for name, view in views.items():
        if running and view.next_due is not None and reports.now_ms > view.next_due + BEHIND_MS:
            late = _ago(reports.now_ms - view.next_due)
            yield Problem(
                "view_behind",
                name,
                f"View {name} is behind: a window was due {late} ago, at {moment(view.next_due)}. Read the worker "
                "logs.",
            )
        elif running and view.waiting >= BEHIND_WINDOWS:
            yield Problem(
                "view_behind",
                name,
                f"View {name} is behind: {view.waiting:,} windows are closed and not released. If that grows, read the "
                "worker logs; `stream-dp check FILE --explain` says how many windows a second a machine releases.",
            )


def _missing(reports: Reports) -> Iterator[Problem]:
    """Records of the sources that were deleted lately before they were counted."""
    for number, part in sorted(reports.partitions.items()):
        for source, gaps in sorted(part.deleted_records.items()):
            if recent := [gap for gap in gaps if gap.at_ms > reports.now_ms - MISSED_MS]:
                offsets = ", ".join(f"{gap.first} to {gap.last}" for gap in recent)
                yield Problem(
                    "records_missing",
                    source,
                    f"Source {source}, partition {number}: records {offsets} were deleted before they were counted "
                    f"(found at {moment(recent[-1].at_ms // 1000 * 1000)}). Windows that may lack some are refused as "
                    "lost. Keep the records of the source longer than workers may be down or behind.",
                )


def _of_worker(worker: WorkerStatus, reports: Reports) -> Iterator[Problem]:
    name = worker.instance
    if reports.is_silent(worker):
        silent = _ago(reports.now_ms - worker.reported_ms)
        yield Problem(
            "worker_silent", name, f"Worker {name} has not reported for {silent}. See if it runs, and read its log."
        )
    elif worker.clock_ahead_ms:
        yield Problem(
            "worker_clock", name, f"Worker {name} makes no ticks: its clock is {_apart(worker)} the broker's. Set it."
        )
    elif worker.waiting_for:
        yield Problem("worker_waits", name, f"Worker {name} is not ready. It waits for {worker.waiting_for}")
    newest = reports.settings[-1] if reports.settings else None
    if worker.settings_error:
        yield Problem(
            "worker_refuses_settings",
            name,
            f"Worker {name} cannot use newer settings and continues with settings {worker.settings}: "
            f"{worker.settings_error}",
        )
    elif newest is not None and worker.settings < newest.number and newest.at_ms < worker.reported_ms - LEARNT_MS:
        yield Problem(
            "worker_behind_settings",
            name,
            f"Worker {name} uses settings {worker.settings}; settings {newest.number} are in effect since "
            f"{moment(newest.at_ms // 1000 * 1000)}. Read its log.",
        )


def _ago(duration_ms: int) -> str:
    return format_duration(duration_ms // 1000 * 1000)


def _apart(worker: WorkerStatus) -> str:
    return f"{_ago(abs(worker.clock_ahead_ms) + 500)} {'ahead of' if worker.clock_ahead_ms > 0 else 'behind'}"


def _view(
    name: str, definitions: Sequence[ViewPlan], plan: Plan, parts: Mapping[int, PartitionStatus], now_ms: int
) -> ViewSummary:
    """How far a view is, whose windows from a time on may be another definition."""
    counted = {number: part.views[name] for number, part in sorted(parts.items()) if name in part.views}
    clocks = {number: one.clock_ms for number, one in counted.items()}
    released = _released(name, parts)
    by_wall = definitions[-1].window.clock == "wall"
    clock = now_ms if by_wall else max(clocks.values(), default=None)
    window = None
    if counted and clock is not None:
        start = min(one.open_from_ms for one in counted.values())
        window = _open(definitions, start, clock if by_wall else clock + 1)
    due = None
    if released is not None and by_wall and (asked := _at(definitions, released)) is not None:
        due = plan.slots.after(asked.window.shape.end(asked.windows.next(released)) + asked.window.grace_ms)
    edition = None
    if definitions[0].editions:
        held = definitions[0] if clock is None else _at(definitions, clock) or definitions[-1]
        edition = held.edition(held.begins_ms if clock is None else clock).number
    waiting = 0
    if len(counted) == plan.partitions:
        waiting = _waiting(definitions, released, min(one.open_from_ms for one in counted.values()))
    return ViewSummary(edition, clocks, window, released, due, waiting)


def _waiting(definitions: Sequence[ViewPlan], released: int | None, closed_ms: int) -> int:
    """How many windows begin before the first that is open somewhere, and are neither released nor refused."""
    number = 0
    for one in definitions:
        since = [at for at in (released, one.begins_ms if one.editions else None) if at is not None]
        if since:
            until_ms = closed_ms if one.until_ms is None else min(closed_ms, one.until_ms)
            number += one.windows.begun(one.windows.next(max(since)), until_ms)
    return number


def _at(definitions: Sequence[ViewPlan], time_ms: int) -> ViewPlan | None:
    """The definition whose windows a time is in; None: the view has ended by then."""
    found = (one for one in reversed(definitions) if not one.editions or one.begins_ms <= time_ms)
    one = next(found, definitions[0])
    return one if one.until_ms is None or time_ms < one.until_ms else None


def _open(definitions: Sequence[ViewPlan], start_ms: int, clock_ms: int) -> tuple[int, Interval]:
    """How many windows have begun from one on that is open, and from when to when they are."""
    number, end = 0, start_ms
    for one in definitions:
        first = max(start_ms, one.begins_ms) if one.editions else start_ms
        begun = one.window.shape.begun(first, clock_ms if one.until_ms is None else min(clock_ms, one.until_ms))
        if begun:
            number, end = number + begun, one.window.shape.end(one.window.shape.next(first, begun - 1))
    return number, Interval(start_ms, end)


def _is_over(newest: ViewPlan, found: ViewSummary) -> bool:
    """Whether a view was taken out, and every window of it is released."""
    until = newest.until_ms
    return until is not None and found.released_to is not None and until <= found.released_to


def _budget(plan: Plan, statement: LedgerStatement, times: Sequence[int]) -> Budget:
    """What is left of a ledger, and how far it reaches.

    Args:
        plan: the application.
        statement: of the ledger's newest period.
        times: of the views that it pays for, as far as they are known.
    """
    period = statement.account.period
    if times and period.end_ms <= min(times):
        words = f"new period since {moment(period.end_ms)}, nothing is charged yet"
        return Budget(words, None, period.end_ms)
    views, lasts_ms = forecast(plan, statement)
    shares = [(name, 100 * getattr(statement.left, name) // cap) for name, cap in statement.budget.entries() if cap]
    left = f"{', '.join(f'{share} % of {name}' for name, share in shares)} left until {moment(period.end_ms)}"
    if lasts_ms >= period.end_ms:
        return Budget(f"{left}, enough for all views", lasts_ms, period.end_ms)
    if any(view.paid for view in views.values()) and lasts_ms > max(times, default=lasts_ms - 1):
        words = f"{left}, enough for windows of all views that begin before {moment(lasts_ms)}"
        return Budget(words, lasts_ms, period.end_ms)
    return Budget(f"{left}, not enough for the next windows of all views", lasts_ms, period.end_ms, is_spent=True)


def settings_to_come(
    definitions: Mapping[str, Sequence[ViewPlan]], known: Sequence[Posted], clocks: Mapping[str, int]
) -> Iterator[ToCome]:
    """Editions that begin ahead of the clocks of their views, and ends of views that are taken out.

    Args:
        definitions: by view, its definitions, the newest last.
        known: the settings so far.
        clocks: by view, what its clock shows where it is ahead, as far as that is known.
    """
    for held in editions(known):
        if not held.never_holds and held.from_ms > clocks.get(held.view, held.from_ms):
            words = f"edition {held.edition} (settings {held.settings}) begins"
            yield ToCome(held.view, words, held.from_ms, definitions[held.view][-1].window.clock)
    for name, (*_, newest) in definitions.items():
        if newest.until_ms is not None and newest.until_ms > clocks.get(name, newest.until_ms):
            yield ToCome(name, "ends", newest.until_ms, newest.window.clock)


def sharper_to_come(definitions: Sequence[ViewPlan], released_to_ms: int, wall_ms: int) -> Iterator[ToCome]:
    """What becomes sharper next by itself: of every audience and level the next window that is unlocked, and when.

    Of windows that are released; and the next time at which what is left of a budget is spent.

    Args:
        definitions: the definitions of a view, the newest last.
        released_to_ms: start of its first window that is not released or refused.
        wall_ms: the wall clock.
    """
    ends = [released_to_ms if one.until_ms is None else min(released_to_ms, one.until_ms) for one in definitions]
    come_to = [*zip(definitions, ends, strict=True)]
    over = [(one, end_ms) for one, end_ms in come_to if not one.editions or one.begins_ms < end_ms]
    times: Mapping[Clock, int] = {"wall": wall_ms, "event": stream_ms(over or come_to[:1])}
    found: dict[tuple[str, str], ToCome] = {}

    def take(about: tuple[str, str], one: ToCome) -> None:
        if about not in found or one.at_ms < found[about].at_ms:
            found[about] = one

    for view, end_ms in come_to:
        clock, now_ms = view.window.clock, times[view.window.clock]
        for audience, steps in view.unlocks.items():
            for step in steps:
                words = f"unlocked to {view.levels[step.level].name} for {audience}"
                for at_ms, start_ms in _unlocked(view, audience, step, now_ms, end_ms):
                    take(("unlock", words), ToCome(view.view, f"window of {moment(start_ms)} {words}", at_ms, clock))
        if view.sharpen is not None and _is_sharpened(view, view.sharpen, now_ms):
            level, audience = view.levels[view.sharpen.level].name, view.sharpen.audience
            words = f"rest of the budget is spent on level {level} for {audience}"
            take(("sharpen", words), ToCome(view.view, words, view.sharpen.next_ms(now_ms), clock))
    yield from found.values()


def _unlocked(view: ViewPlan, audience: str, step: Unlock, now_ms: int, end_ms: int) -> Iterator[tuple[int, int]]:
    """Of every edition: when the next window is unlocked that is released, and its start."""
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
    """Whether it has windows in the periods that the next time is about."""
    since_ms = view.ledger.periods.start_of(sharpen.times.start_of(now_ms))
    return view.begins_ms < sharpen.next_ms(now_ms) and (view.until_ms is None or since_ms < view.until_ms)
