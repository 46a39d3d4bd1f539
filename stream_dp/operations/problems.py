"""Problems of an application that an operator has to solve, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stream_dp.config.plan import Plan
from stream_dp.control.editions import presented
from stream_dp.operations.progress import BEHIND_MS, BudgetSummary, ViewSummary
from stream_dp.operations.reports import Reports
from stream_dp.records.models import WorkerStatus
from stream_dp.records.statement import LedgerStatement
from stream_dp.runtime.faust.membership import EMPTY, STABLE
from stream_dp.windows.durations import format_duration, moment

BEHIND_WINDOWS = 20
"""A view is behind if this many of its windows are closed and not released."""
MISSED_MS = 86_400_000
"""Records that were deleted before they were counted are a problem for this time after that was found."""
LEARNT_MS = 30_000
"""A worker that does not use settings this long after they were posted is a problem."""


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


def find_problems(
    plan: Plan,
    reports: Reports,
    unowned: Sequence[int],
    views: Mapping[str, ViewSummary],
    budgets: Mapping[str, BudgetSummary],
    times: Mapping[str, int],
) -> list[Problem]:
    """Return the problems of an application, the worst first.

    Args:
        plan: the application, with every definition of every view.
        reports: of its workers, group and ledgers.
        unowned: partitions without a worker.
        views: progress of each view.
        budgets: what is left in each ledger.
        times: of every view, as far as it is known.
    """
    topics = [words for worker in reports.running for words in worker.topic_problems]
    return [
        *_lost_records(plan, reports),
        *_refused(presented(plan), reports.statements, times),
        *_settings_problems(reports),
        *_worker_problems(reports, unowned),
        *(Problem("topic_settings", "", words) for words in dict.fromkeys(topics)),
        *_transaction_problems(reports),
        *_group_problems(plan, reports),
        *_view_problems(views, reports),
        *_watermark_problems(views),
        *(Problem("budget_exhausted", name, _exhausted(name, one)) for name, one in budgets.items() if one.spent),
    ]


def _refused(plan: Plan, statements: Sequence[LedgerStatement], times: Mapping[str, int]) -> Iterator[Problem]:
    """Yield the views whose newest windows are refused."""
    for statement in statements:
        period = statement.account.period
        found: dict[str, list[tuple[str, int]]] = {}
        for (view, audience), share in sorted(statement.shares.items()):
            if view in plan.views and audience in plan.views[view].audiences and share.refused_ms is not None:
                found.setdefault(view, []).append((audience, share.refused_ms))
        for view, since in found.items():
            if times.get(view, period.start_ms) < period.end_ms:
                audiences = ", ".join(audience for audience, _ in since)
                first = moment(min(at for _, at in since))
                words = (
                    f"Budget exhausted: ledger {statement.account.name} does not pay for view {view}; windows from "
                    f"{first} on are refused to {audiences}. See `stream-dp ledger FILE`."
                )
                yield Problem("budget_exhausted", view, words)


def _worker_problems(reports: Reports, unowned: Sequence[int]) -> Iterator[Problem]:
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
        yield from _single_worker_problems(worker, reports)
    if running and all(worker.clock_ahead_ms for worker in running):
        words = "No worker's clock agrees with the broker's; no window closes. Check the broker's clock."
        yield Problem("broker_clock", "", words)


def _transaction_problems(reports: Reports) -> Iterator[Problem]:
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


def _group_problems(plan: Plan, reports: Reports) -> Iterator[Problem]:
    silent = reports.members - len(reports.running)
    if reports.running and silent > 0:
        heard = ", ".join(one.instance for one in reports.running)
        words = f"Group {plan.id} has {reports.members} members; only {heard} reported. Read the logs of the others."
        yield Problem("member_silent", plan.id, words)
    if reports.group.state not in (STABLE, *EMPTY):
        yield Problem("rebalancing", plan.id, "The workers are rebalancing partitions. Wait.")


def _single_worker_problems(worker: WorkerStatus, reports: Reports) -> Iterator[Problem]:
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


def _settings_problems(reports: Reports) -> Iterator[Problem]:
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
    """Yield the sources whose records were recently deleted before they were counted."""
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


def _view_problems(views: Mapping[str, ViewSummary], reports: Reports) -> Iterator[Problem]:
    """Yield the views whose releases are late."""
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


def _watermark_problems(views: Mapping[str, ViewSummary]) -> Iterator[Problem]:
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
