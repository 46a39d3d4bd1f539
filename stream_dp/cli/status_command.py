"""`stream-dp status FILE`: problems, workers, partitions, views and budgets of an application, for operators."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stream_dp.cli.command_line import FILE, run, short_path
from stream_dp.cli.display import indented, many, table
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.operations.progress import BEHIND_MS
from stream_dp.operations.status import Summary, read_status
from stream_dp.runtime.kafka.client import Client
from stream_dp.windows.durations import moment

LOOK_SECONDS = 5.0
"""Time between two looks of `--watch`."""
UNKNOWN = "-"
OF_CLOCK = {"wall": "", "event": " (stream)"}
_COMMAND = re.compile("`stream-dp ([a-z]+) FILE")
MOST_PROBLEMS = 4
"""Problems above the tables; the others are below."""


@click.command()
@FILE
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch, one a line.")
@click.option("--watch", is_flag=True, help="Look again every 5 s, until it is interrupted.")
def status(file: Path, *, as_json: bool, watch: bool) -> None:
    """Show the status of the application that FILE describes: problems first, each with its remedy, or OK.

    Workers report every 10 s to the topic NAME-status. This command needs READ on NAME-status and NAME-accounts and
    DESCRIBE on the group NAME, and no access to a worker. Below the problems it shows

    \b
    * the workers: since when each runs, the settings it uses, its partitions, and whether it is ready;
    * of every source, how many records are not counted yet;
    * of every view, its edition (the number of its settings in effect, see `stream-dp settings`), its clock where it is
      furthest behind, the open windows, up to when its windows are released or refused, and when the next one is due
      (with clock: wall);
    * what is planned: settings that begin with a later window; the next window that is unlocked to each level; when
      leftover budget is spent next. Times of views with clock: event are times of the stream. A grant or an
      exhausted budget may prevent a planned release;
    * what every ledger has left and how long that lasts (`stream-dp ledger` says who spent it);
    * the counters of all partitions since the first record.

    A worker without a report for 30 s is silent; after 5 minutes it is not shown any more.

    Exit codes: 0 OK; 1 there are problems, or the broker does not answer; 2 wrong configuration.
    """
    plan = load_plan(file)
    with suppress(KeyboardInterrupt):
        sys.exit(run(plan, lambda client: _show(plan, client, file, as_json=as_json, watch=watch)))


async def _show(plan: Plan, client: Client, file: Path, *, as_json: bool, watch: bool) -> int:
    """Show the status, and return the exit code."""
    console = Console(highlight=False)
    live = Live(console=console, auto_refresh=False) if watch and not as_json and console.is_terminal else None
    with live or nullcontext():
        while True:
            found = await read_status(plan, client)
            if as_json:
                click.echo(json.dumps(found.as_json(), indent=None if watch else 2))
            elif live is not None:
                live.update(page(plan, found, file), refresh=True)
            else:
                console.print(page(plan, found, file))
            if not watch:
                return 1 if found.problems else 0
            await asyncio.sleep(LOOK_SECONDS)


def page(plan: Plan, found: Summary, file: Path) -> RenderableType:
    """Return the page: first the problems with their remedies, or OK.

    Args:
        plan: the application.
        found: its status.
        file: of the application, for the commands of the remedies.
    """
    messages = [
        _COMMAND.sub(lambda one: f"`stream-dp {one[1]} {short_path(file)}", one.message) for one in found.problems
    ]
    problems = [Text(f"! {words}", "red", overflow="fold") for words in messages]
    outcome = (many(len(problems), "problem"), "bold red") if problems else ("OK", "bold green")
    head = Text.assemble((plan.id, "bold"), f" at {moment(_second(found.reports.now_ms))}: ", outcome)
    shown, more = problems, []
    if len(problems) > MOST_PROBLEMS:
        shown, more = problems[: MOST_PROBLEMS - 1], problems[MOST_PROBLEMS - 1 :]
        shown.append(Text(f"... and {len(more)} more, below", "red"))
    tables = [one for one in _tables(found) if one.row_count]
    rest = [Group(*more)] if more else []
    return Group(head, indented(Group(*(shown or _summary(found))), *tables, *rest, below=1))


def _summary(found: Summary) -> Iterator[Text]:
    """Yield a few lines without problems: workers, progress, budgets."""
    lag = sum(records for lags in found.lag.values() for records in lags.values())
    yield Text(f"{many(len(found.reports.running), 'worker')} ready; {lag:,} records to be counted")
    released = [view.released_to_ms for view in found.views.values() if view.released_to_ms is not None]
    if released:
        yield Text(f"All views are released up to {moment(min(released))}")
    for ledger, budget in list(found.budgets.items())[: MOST_PROBLEMS - 2]:
        yield Text(f"Ledger {ledger}: {budget.says}")


def _tables(found: Summary) -> Iterator[Table]:
    reports = found.reports

    def at(time_ms: int) -> str:
        """Return a time in seconds; without the date if that is today, because there are many columns."""
        words = moment(_second(time_ms))
        day, _, time = words.partition("T")
        return time if time and moment(reports.now_ms).startswith(day) else words

    workers = table("worker", "since", "version", "settings", "partitions", "state")
    for one in reports.workers:
        state = f"waits for {one.waiting_for}" if one.waiting_for else "ready"
        owned = ", ".join(map(str, sorted(one.partitions))) or "none"
        if reports.is_silent(one):
            state, owned = f"silent since {at(one.reported_ms)}", f"had {owned}"
        workers.add_row(one.instance, at(one.started_ms), one.code_version, str(one.settings or UNKNOWN), owned, state)
    yield workers
    lags = [(name, f"{sum(each.values()):,}", _most(each)) for name, each in found.lag.items()]
    yield table("source", "records to be counted", "most in", rows=lags)
    views = table("view", "edition", "clock", "open windows", "released up to", "next due")
    for name, view in found.views.items():
        windows = UNKNOWN if view.open_windows is None else "none"
        if view.open_windows and view.open_from_ms is not None and view.open_until_ms is not None:
            windows = f"{view.open_windows}, {at(view.open_from_ms)} to {at(view.open_until_ms)}"
        released, due = (UNKNOWN if time is None else at(time) for time in (view.released_to_ms, view.next_due_ms))
        if view.next_due_ms is not None and view.next_due_ms + BEHIND_MS < reports.now_ms:
            due = f"overdue since {due}"
        edition = UNKNOWN if view.edition is None else str(view.edition)
        views.add_row(name, edition, _clocks(view.clocks_ms, at), windows, released, due)
    yield views
    to_come = [(f"{moment(_second(one.at_ms))}{OF_CLOCK[one.clock]}", one.view, one.what) for one in found.to_come]
    yield table("planned", "view", "what", rows=to_come)
    yield table("ledger", "budget", rows=((ledger, budget.says) for ledger, budget in found.budgets.items()))
    totals = ((name, f"{amount:,}") for name, amount in found.totals.items())
    yield table("total", "since the first record", rows=totals)


def _most(lags: Mapping[int, int]) -> str:
    """Return the partition with the most records to be counted."""
    most = max(lags, key=lags.__getitem__)
    return f"partition {most} ({lags[most]:,})" if lags[most] else UNKNOWN


def _clocks(clocks: Mapping[int, int], at: Callable[[int], str]) -> str:
    """Return the clock of a view in the partition that is furthest behind, and that partition."""
    if not clocks:
        return UNKNOWN
    behind = min(clocks, key=clocks.__getitem__)
    where = f" in partition {behind}" if _second(clocks[behind]) != _second(max(clocks.values())) else ""
    return f"{at(clocks[behind])}{where}"


def _second(time_ms: int) -> int:
    return time_ms // 1000 * 1000
