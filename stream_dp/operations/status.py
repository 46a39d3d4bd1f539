"""Status of an application: its problems first, then its workers, views, budgets and what is planned."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.control.editions import plan_holding, presented
from stream_dp.operations import plain
from stream_dp.operations.problems import Problem, find_problems
from stream_dp.operations.progress import (
    BudgetSummary,
    ToCome,
    ViewSummary,
    budget_left,
    is_over,
    released_to,
    settings_to_come,
    sharper_to_come,
    view_progress,
)
from stream_dp.operations.reports import Reports, look
from stream_dp.operations.settings_history import plannable_accepted
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import read_history


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
    views = {name: view_progress(name, each, plan, reports) for name, each in definitions.items()}
    views = {name: one for name, one in views.items() if not is_over(definitions[name][-1], one)}
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
    budgets = {one.account.name: budget_left(shown, one, times) for one in reports.statements}
    problems = find_problems(plan, reports, unowned, views, budgets, times)
    to_come = [*settings_to_come(definitions, reports.settings.accepted, times)]
    for name, each in definitions.items():
        if each[0].editions and (released := released_to(name, reports.partitions)) is not None:
            to_come += sharper_to_come(each, released, reports.now_ms)
    to_come.sort(key=lambda one: (one.at_ms, one.view, one.what))
    return Summary(reports, problems, unowned, lag, views, to_come, budgets, dict(sorted(totals.items())))
