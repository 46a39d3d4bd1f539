"""Status of an application, from the reports of its workers, its consumer group and its ledgers; problems first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stream_dp.config.forecast import forecast
from stream_dp.config.plan import Plan, SharpenPlan, Unlock, ViewPlan
from stream_dp.control.acceptance import SettingsHistory
from stream_dp.control.editions import Posted, editions, plan_holding, presented
from stream_dp.operations import plain
from stream_dp.operations.budgets import newest_statements
from stream_dp.operations.settings_history import plannable_accepted
from stream_dp.records.models import PartitionStatus, ViewStatus, WorkerStatus, decode_status
from stream_dp.records.statement import LedgerStatement
from stream_dp.releases.partition_state import stream_ms
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.faust.membership import EMPTY, STABLE
from stream_dp.runtime.kafka.client import Client, Group
from stream_dp.runtime.kafka.control_topic import read_history
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import format_duration, moment
from stream_dp.windows.views import Clock

SILENT_MS = 30_000
"""A worker is silent after this time without a report; it reports every 10 s."""
GONE_MS = 300_000
"""A worker is not shown after this time without a report."""
BEHIND_MS = 60_000
"""A view is behind if its next window was due this long ago."""
BEHIND_WINDOWS = 20
"""A view is behind if this many of its windows are closed and not released."""
MISSED_MS = 86_400_000
"""Records that were deleted before they were counted are a problem for this time after that was found."""
LEARNT_MS = 30_000
"""A worker that does not use settings this long after they were posted is a problem."""

Definitions = Mapping[str, Sequence[ViewPlan]]
"""The definitions of every view, oldest first."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports of the workers, the group and the ledgers of an application.

    Attributes:
        now_ms: time at which they were read.
        said: last report of each worker, by instance.
        partitions: last report about each partition, from any worker.
        stopped: instances that have reported that they stop.
        group: the consumer group of the workers.
        statements: of the newest charged period of each ledger.
        settings: all posted settings and the verdicts on them.
    """

    now_ms: int
    said: Mapping[str, WorkerStatus]
    partitions: Mapping[int, PartitionStatus]
    stopped: frozenset[str]
    group: Group
    statements: Sequence[LedgerStatement] = ()
    settings: SettingsHistory = field(default_factory=SettingsHistory)

    @property
    def workers(self) -> list[WorkerStatus]:
        """The workers that run, or fell silent less than 5 minutes ago."""
        running = [one for name, one in sorted(self.said.items()) if name not in self.stopped]
        return [one for one in running if self.now_ms - one.reported_ms <= GONE_MS]

    @property
    def running(self) -> list[WorkerStatus]:
        """The workers that run and are not silent."""
        return [one for one in self.workers if not self.is_silent(one)]

    @property
    def members(self) -> int:
        """Number of group members that have not stopped. A stopped worker stays a member for a minute, by its name."""
        stopped = tuple(f"{name}-" for name in self.stopped)
        return sum(not member.startswith(stopped) for member in self.group.owned)

    def is_silent(self, worker: WorkerStatus) -> bool:
        """Return True if the last report of a worker is too old."""
        return self.now_ms - worker.reported_ms > SILENT_MS


async def look(plan: Plan, client: Client, *, accounts: bool = True) -> Reports:
    """Read the reports once.

    Args:
        plan: the application.
        client: of its broker.
        accounts: read the ledgers, too.

    Raises:
        BrokerError: the broker does not answer.
        StateError: a record cannot be read.
    """
    topics = Topics.of(plan)
    present = await client.describe([topics.status, topics.accounts])
    said: dict[str, WorkerStatus] = {}
    partitions: dict[int, PartitionStatus] = {}
    stopped: set[str] = set()
    if topics.status in present:
        async for record in client.follow([topics.status], until_end=True):
            if record.value is None:
                stopped.add(record.key.decode())
            else:
                one = decode_status(record.value)
                said[one.instance] = one
                partitions.update(one.partitions)
                stopped.discard(one.instance)
    statements = await newest_statements(plan, client) if accounts and topics.accounts in present else []
    now_ms = wall_clock_ms()
    return Reports(now_ms, said, partitions, frozenset(stopped), await client.group(plan.id), statements)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that an operator has to solve.

    Attributes:
        code: its kind, for machines: "worker_silent".
        about: the worker, view, source, ledger or group; empty for the whole application.
        message: what is wrong, and the remedy.
    """

    code: str
    about: str
    message: str


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


@dataclass(frozen=True, slots=True)
class Summary:
    """Status of an application.

    Attributes:
        reports: its source.
        problems: to be solved by an operator, the worst first.
        unowned: partitions without a worker.
        lag: by source, records that are not counted, by partition.
        views: by name; a removed one until all its windows are released.
        to_come: planned changes and the next sharper releases, soonest first.
        budgets: by ledger.
        totals: the counters over all partitions.
    """

    reports: Reports
    problems: list[Problem]
    unowned: list[int]
    lag: dict[str, dict[int, int]]
    views: dict[str, ViewSummary]
    to_come: list[ToCome]
    budgets: dict[str, BudgetSummary]
    totals: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        reports, renamed = self.reports, {"schema_version", "code_version", "partitions"}
        return {
            "fine": not self.problems,
            "problems": plain(self.problems),
            "at_ms": reports.now_ms,
            "settings": reports.settings.accepted[-1].number if reports.settings.accepted else 0,
            "settings_posted": {one.number: reports.settings.state(one.number) for one in reports.settings.posted},
            "workers": [
                one.model_dump(mode="json", exclude=renamed)
                | {"version": one.code_version, "partitions": sorted(one.partitions), "silent": reports.is_silent(one)}
                for one in reports.workers
            ],
            "partitions_without_a_worker": self.unowned,
            **plain({name: getattr(self, name) for name in ("lag", "views", "to_come", "budgets", "totals")}),
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
    history = await read_history(plan, client)
    effective = await asyncio.to_thread(plan_holding, plannable_accepted(history, plan), plan)
    return summary(effective, replace(await look(effective, client), settings=history))


def summary(plan: Plan, reports: Reports) -> Summary:
    """Return the status of an application.

    Args:
        plan: the application, with every definition of every view.
        reports: of its workers, group and ledgers.
    """
    definitions: dict[str, list[ViewPlan]] = {}
    for definition in plan.views.values():
        definitions.setdefault(definition.view, []).append(definition)
    views = {name: _view(name, each, plan, reports) for name, each in definitions.items()}
    views = {name: one for name, one in views.items() if not _is_over(definitions[name][-1], one)}
    lag: dict[str, dict[int, int]] = {}
    totals: Counter[str] = Counter()
    for number, part in sorted(reports.partitions.items()):
        totals.update(part.counters)
        for source, records in part.lag.items():
            lag.setdefault(source, {})[number] = records
    owned = {partition for worker in reports.running for partition in worker.partitions}
    unowned = sorted(set(range(plan.partitions)) - owned)
    shown = presented(plan)
    # The time of a view is the clock of its stream, or else the wall clock.
    times = {name: max(view.clocks_ms.values()) for name, view in views.items() if view.clocks_ms}
    times |= {name: reports.now_ms for name, each in definitions.items() if each[-1].window.clock == "wall"}
    budgets = {one.account.name: _budget(shown, one, times) for one in reports.statements}
    topics = [words for worker in reports.running for words in worker.topic_problems]
    problems = [
        *_lost_records(plan, reports),
        *_refused(shown, reports.statements, times),
        *_of_settings(reports),
        *_of_workers(reports, unowned),
        *(Problem("topic_settings", "", words) for words in dict.fromkeys(topics)),
        *_of_transactions(reports),
        *_of_group(plan, reports),
        *_of_views(views, reports),
        *_of_watermarks(views),
        *(Problem("budget_exhausted", name, _exhausted(name, one)) for name, one in budgets.items() if one.spent),
    ]
    to_come = [*settings_to_come(definitions, reports.settings.accepted, times)]
    for name, each in definitions.items():
        if each[0].editions and (released := _released(name, reports.partitions)) is not None:
            to_come += sharper_to_come(each, released, reports.now_ms)
    to_come.sort(key=lambda one: (one.at_ms, one.view, one.what))
    return Summary(reports, problems, unowned, lag, views, to_come, budgets, dict(sorted(totals.items())))


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
                words = (
                    f"Budget exhausted: ledger {statement.account.name} does not pay for view {view}; windows from "
                    f"{first} on are refused to {audiences}. See `stream-dp ledger FILE`."
                )
                yield Problem("budget_exhausted", view, words)


def _of_workers(reports: Reports, unowned: Sequence[int]) -> Iterator[Problem]:
    running = reports.running
    if not running and not reports.members:
        yield Problem("no_worker", "", "No worker runs. Start one: `stream-dp worker FILE`.")
    elif unowned:
        numbers = ", ".join(map(str, unowned))
        those = f"Partition {numbers} has" if len(unowned) == 1 else f"Partitions {numbers} have"
        gone = [
            one.instance for one in reports.workers if reports.is_silent(one) and one.partitions.keys() & {*unowned}
        ]
        last = f" since {' and '.join(gone)} fell silent" if gone else ""
        words = (
            f"{those} no worker{last}: no records are counted there, and windows wait. Wait if a worker is starting, "
            "else start one: `stream-dp worker FILE`."
        )
        yield Problem("partition_without_worker", numbers, words)
    for worker in reports.workers:
        yield from _of_worker(worker, reports)
    if running and all(worker.clock_ahead_ms for worker in running):
        words = "No worker's clock agrees with the broker's; no window closes. Check the broker's clock."
        yield Problem("broker_clock", "", words)


def _of_transactions(reports: Reports) -> Iterator[Problem]:
    """Yield the open transactions that block workers; several workers may report the same one."""
    open_ms: dict[tuple[str, int, int], int] = {}
    for worker in reports.running:
        for one in worker.open_transactions:
            place = one.topic, one.partition, one.offset
            open_ms[place] = max(one.open_ms, open_ms.get(place, 0))
    for (topic, partition, offset), age_ms in sorted(open_ms.items()):
        words = (
            f"A transaction has been open for {_ago(age_ms)} in topic {topic}, partition {partition}, since offset "
            f"{offset}. Until it ends, later records are not read and windows wait. Let its producer commit or abort "
            "it. If the producer is gone, use `kafka-transactions.sh find-hanging` and `abort`."
        )
        yield Problem("open_transaction", topic, words)


def _of_group(plan: Plan, reports: Reports) -> Iterator[Problem]:
    silent = reports.members - len(reports.running)
    if reports.running and silent > 0:
        heard = ", ".join(one.instance for one in reports.running)
        words = f"Group {plan.id} has {reports.members} members; only {heard} reported. Read the logs of the others."
        yield Problem("member_silent", plan.id, words)
    if reports.group.state not in (STABLE, *EMPTY):
        yield Problem("rebalancing", plan.id, "The workers are rebalancing partitions. Wait.")


def _of_worker(worker: WorkerStatus, reports: Reports) -> Iterator[Problem]:
    name = worker.instance
    if reports.is_silent(worker):
        silent = _ago(reports.now_ms - worker.reported_ms)
        words = f"Worker {name} has not reported for {silent}. See if it runs, and read its log."
        yield Problem("worker_silent", name, words)
    elif worker.clock_ahead_ms:
        apart = _ago(abs(worker.clock_ahead_ms) + 500) + (" ahead of" if worker.clock_ahead_ms > 0 else " behind")
        words = (
            f"The clock of worker {name} is {apart} the broker's. It makes no ticks: windows wait unless another "
            "worker makes them. Let NTP set the clock of its machine."
        )
        yield Problem("worker_clock", name, words)
    elif worker.waiting_for:
        yield Problem("worker_waits", name, f"Worker {name} is not ready. It waits for {worker.waiting_for}")
    accepted = reports.settings.accepted
    newest = accepted[-1] if accepted else None
    if newest is not None and worker.settings < newest.number and newest.at_ms < worker.reported_ms - LEARNT_MS:
        since = f"settings {newest.number} are in effect since {moment(newest.at_ms // 1000 * 1000)}"
        words = f"Worker {name} uses settings {worker.settings}; {since}. Read its log."
        yield Problem("worker_behind_settings", name, words)


def _of_settings(reports: Reports) -> Iterator[Problem]:
    """Yield the settings that have waited long for a worker, and the newest ones if they are refused."""
    history = reports.settings
    for one in history.waiting:
        if one.at_ms < reports.now_ms - LEARNT_MS:
            since = moment(one.at_ms // 1000 * 1000)
            yield Problem(
                "settings_waiting", "", f"Settings {one.number}, posted {since}, wait for a worker to accept them."
            )
    for one in history.accepted[-1:]:
        if one.number > history.used and one.accepted_ms < reports.now_ms - LEARNT_MS:
            since = moment(one.accepted_ms // 1000 * 1000)
            words = (
                f"Settings {one.number}, accepted {since}, are used by no worker. Start a worker, or read the workers' "
                "logs. If they cannot use these settings, apply a corrected file or the former one."
            )
            yield Problem("settings_unused", "", words)
    newest = history.posted[-1] if history.posted else None
    if newest is not None and history.state(newest.number) == "refused":
        words = f"Settings {newest.number} were refused and never take effect: {history.reason(newest.number)}."
        yield Problem("settings_refused", "", f"{words} Apply a corrected file, or the file in effect.")


def _lost_records(plan: Plan, reports: Reports) -> Iterator[Problem]:
    """Records that were deleted lately before they were counted."""
    topics = {view.source.name: view.source.topic for view in plan.views.values()}
    for number, part in sorted(reports.partitions.items()):
        for source, gaps in sorted(part.deleted_records.items()):
            if recent := [gap for gap in gaps if gap.at_ms > reports.now_ms - MISSED_MS]:
                offsets = ", ".join(f"{gap.first} to {gap.last}" for gap in recent)
                words = (
                    f"Data lost: source {source}, partition {number}: records {offsets} were deleted before they were "
                    f"counted (found at {moment(recent[-1].at_ms // 1000 * 1000)}). Windows that may lack some are "
                    f"refused. Raise retention.ms of topic {topics.get(source, source)}: it must keep records longer "
                    "than workers may be down or behind."
                )
                yield Problem("records_missing", source, words)


def _of_views(views: Mapping[str, ViewSummary], reports: Reports) -> Iterator[Problem]:
    """Views whose releases are late."""
    for name, view in views.items() if reports.running else ():
        if view.next_due_ms is not None and reports.now_ms > view.next_due_ms + BEHIND_MS:
            late = f"{_ago(reports.now_ms - view.next_due_ms)} ago, at {moment(view.next_due_ms)}"
            words = f"View {name} is behind: a window was due {late}. Read the worker logs."
            yield Problem("view_behind", name, words)
        elif view.waiting_windows >= BEHIND_WINDOWS:
            words = (
                f"View {name} is behind: {view.waiting_windows:,} windows are closed and not released. If that grows, "
                "read the worker logs; `stream-dp check FILE --explain` says how many windows a second a machine "
                "releases."
            )
            yield Problem("view_behind", name, words)


def _of_watermarks(views: Mapping[str, ViewSummary]) -> Iterator[Problem]:
    """Yield the views whose windows wait for the watermarks of a partition."""
    for name, view in views.items():
        if (slow := view.held_up_by) is not None:
            windows = "1 window waits" if slow.windows == 1 else f"{slow.windows:,} windows wait"
            words = (
                f"View {name} waits for watermarks in partition {slow.partition} of source {slow.source}: they have "
                f"reached {moment(slow.clock_ms)}, but another partition has reached {moment(slow.fastest_ms)}. "
                f"{windows}. Write watermarks to every partition. After "
                f"{format_duration(slow.idle_ms)} (window.idle) without one, the time of a partition advances as fast "
                "as the wall clock."
            )
            yield Problem("watermarks_missing", name, words)


def _exhausted(name: str, budget: BudgetSummary) -> str:
    return f"Budget of ledger {name}: {budget.says}. See `stream-dp ledger FILE`."


def _ago(duration_ms: int) -> str:
    return format_duration(duration_ms // 1000 * 1000)


def _released(view: str, parts: Mapping[int, PartitionStatus]) -> int | None:
    """Return the time up to which the windows of a view are released or refused, as far as it is known."""
    return max((part.next_windows_ms[view] for part in parts.values() if view in part.next_windows_ms), default=None)


def _view(name: str, definitions: Sequence[ViewPlan], plan: Plan, reports: Reports) -> ViewSummary:
    """Return the progress of a view; its definition may change from one window to the next."""
    parts, newest = reports.partitions, definitions[-1]
    counted = {number: part.views[name] for number, part in sorted(parts.items()) if name in part.views}
    clocks = {number: one.clock_ms for number, one in counted.items()}
    open_from = [one.open_from_ms for one in counted.values()]
    released, by_wall = _released(name, parts), newest.window.clock == "wall"
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
    number, end = 0, start_ms
    for one in definitions:
        first = max(start_ms, one.begins_ms) if one.editions else start_ms
        begun = one.window.shape.begun(first, _until(one, clock_ms))
        if begun:
            number, end = number + begun, one.window.shape.end(one.window.shape.next(first, begun - 1))
    return number, end


def _is_over(newest: ViewPlan, found: ViewSummary) -> bool:
    """Return True if a view was removed and all its windows are released."""
    until = newest.until_ms
    return until is not None and found.released_to_ms is not None and until <= found.released_to_ms


def _budget(plan: Plan, statement: LedgerStatement, times: Mapping[str, int]) -> BudgetSummary:
    """Return the remaining budget of a ledger, and how long it lasts.

    Args:
        plan: the application.
        statement: of the ledger's newest period.
        times: of every view, as far as it is known.
    """
    name, period = statement.account.name, statement.account.period
    own = [times[view.name] for view in plan.views.values() if view.ledger.name == name and view.name in times]
    if own and period.end_ms <= min(own):
        return BudgetSummary(f"new period since {moment(period.end_ms)}, nothing is charged yet", None, period.end_ms)
    views, lasts_ms = forecast(plan, statement)
    shares = [(entry, 100 * getattr(statement.left, entry) // cap) for entry, cap in statement.budget.entries() if cap]
    left = f"{', '.join(f'{share} % of {entry}' for entry, share in shares)} left until {moment(period.end_ms)}"
    spent, enough = False, "enough for all views"
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
        clock, now_ms = view.window.clock, times[view.window.clock]
        for audience, steps in view.unlocks.items():
            for step in steps:
                words = f"unlocked to {view.levels[step.level].name} for {audience}"
                for at_ms, start_ms in _unlocked(view, audience, step, now_ms, end_ms):
                    one = ToCome(view.view, f"window of {moment(start_ms)} {words}", at_ms, clock)
                    found[words] = min(found.get(words, one), one, key=lambda each: each.at_ms)
        if view.sharpen is not None and _is_sharpened(view, view.sharpen, now_ms):
            level, audience = view.levels[view.sharpen.level].name, view.sharpen.audience
            words = (
                f"newest windows unlocked to {level} for {audience}, from leftover budget; remove `sharpen` to stop it"
            )
            one = ToCome(view.view, words, view.sharpen.next_ms(now_ms), clock)
            found[words] = min(found.get(words, one), one, key=lambda each: each.at_ms)
    yield from found.values()


def _unlocked(view: ViewPlan, audience: str, step: Unlock, now_ms: int, end_ms: int) -> Iterator[tuple[int, int]]:
    """Of every edition: the time of the next unlock of a released window, and the start of that window."""
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
