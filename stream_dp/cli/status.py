"""`stream-dp status FILE`: the workers, the partitions, the views and the budgets of an application, for operators."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stream_dp.cli.command_line import run
from stream_dp.config.plan import Plan
from stream_dp.config.planning import load_plan
from stream_dp.operations.numbers import moment
from stream_dp.operations.status import Summary, read_status
from stream_dp.runtime.kafka.client import Client

LOOK_SECONDS = 5.0
"""Between two looks of `--watch`."""
UNKNOWN = "-"
OF_CLOCK = {"wall": "", "event": " of the stream"}


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch, one a line.")
@click.option("--watch", is_flag=True, help="Look again every 5 s, until it is interrupted.")
def status(file: Path, *, as_json: bool, watch: bool) -> None:
    """Show how the application that FILE describes is, and first what needs somebody.

    Every worker says every 10 s how it is, in the topic NAME-status, and what it says follows from what is stored: no
    number is lost by a crash, counted twice, or about a window that is open. It is for operators: this command needs
    READ on NAME-status and NAME-accounts and DESCRIBE on the group NAME, and no access to a worker. It shows

    \b
    * the workers: since when each runs, the number of the settings it goes by, its partitions, whether it is ready or
      what it waits for;
    * of every source, how many records stand in it and are not counted yet;
    * of every view, which edition of its settings holds, what its clock shows where it is furthest behind, which
      windows are open, up to when its windows are released or refused, and when the next one is due, where the wall
      clock decides that;
    * what is to come: settings that hold from a later window on; of every audience and level the next window that it
      is unlocked, of those that are released; when what is left of a budget is spent next. Where watermarks close the
      windows, that is the time of the stream. It is the schedule: where a grant lowered the audience, or it has the
      level, or the ledger cannot pay, that window is not published sharper;
    * what every ledger has left, and how far that reaches (`stream-dp ledger` says who spent it);
    * the counters over all partitions, since the first record.

    A worker that has said nothing for 30 s is silent, one that is silent for 5 minutes is not shown any more. A worker
    that stops says so; one that was killed is silent first.

    Exit codes: 0 all is well; 1 something needs somebody, or no broker is there; 2 wrong configuration.
    """
    plan = load_plan(file)
    with suppress(KeyboardInterrupt):
        sys.exit(run(plan, lambda client: _show(plan, client, as_json=as_json, watch=watch)))


async def _show(plan: Plan, client: Client, *, as_json: bool, watch: bool) -> int:
    """Show it, and return the exit code."""
    console = Console(highlight=False)
    live = Live(console=console, auto_refresh=False) if watch and not as_json and console.is_terminal else None
    with live or nullcontext():
        while True:
            found = await read_status(plan, client)
            if as_json:
                click.echo(json.dumps(found.as_json(), indent=None if watch else 2))
            elif live is not None:
                live.update(page(plan, found), refresh=True)
            else:
                console.print(page(plan, found))
            if not watch:
                return 1 if found.faults else 0
            await asyncio.sleep(LOOK_SECONDS)


def page(plan: Plan, found: Summary) -> RenderableType:
    """All of it; what needs somebody comes first.

    Args:
        plan: the application.
        found: how it is.
    """
    head = Text.assemble((plan.id, "bold"), f" at {moment(_second(found.reports.now_ms))}: ")
    head.append(*(("needs attention", "bold red") if found.faults else ("all is well", "bold green")))
    parts: list[RenderableType] = [Text(f"! {fault}", "red", overflow="fold") for fault in found.faults]
    parts += [table for table in _tables(found) if table.row_count]
    return Group(head, *(Padding(part, (0, 0, 1 if isinstance(part, Table) else 0, 2)) for part in parts))


def _tables(found: Summary) -> Iterator[Table]:
    reports = found.reports

    def at(time_ms: int) -> str:
        """To the second; of today only the time, for many columns stand side by side."""
        words = moment(_second(time_ms))
        day, _, time = words.partition("T")
        return time if time and moment(reports.now_ms).startswith(day) else words

    workers = _table("worker", "since", "version", "settings", "partitions", "")
    for one in reports.workers:
        state = "silent" if reports.is_silent(one) else f"waits for {one.waits_for}" if one.waits_for else "ready"
        owned = ", ".join(map(str, sorted(one.partitions))) or "none"
        workers.add_row(one.instance, at(one.since_ms), one.code_version, str(one.settings or UNKNOWN), owned, state)
    yield workers
    sources = _table("source", "records to be counted", "most in partition")
    for name, lags in found.lag.items():
        most = max(lags, key=lags.__getitem__)
        sources.add_row(name, f"{sum(lags.values()):,}", f"{most}: {lags[most]:,}" if lags[most] else UNKNOWN)
    yield sources
    views = _table("view", "edition", "clock", "windows open", "released up to", "next due")
    for name, view in found.views.items():
        windows = UNKNOWN
        if view.open is not None:
            number, stretch = view.open
            windows = f"{number}, {at(stretch.start_ms)} to {at(stretch.end_ms)}" if number else "none"
        due = UNKNOWN if view.next_due is None else at(view.next_due)
        released = UNKNOWN if view.released_to is None else at(view.released_to)
        edition = UNKNOWN if view.edition is None else str(view.edition)
        views.add_row(name, edition, _clocks(view.clocks, at), windows, released, due)
    yield views
    to_come = _table("to come", "view", "")
    for change in found.to_come:
        to_come.add_row(f"{at(change.at_ms)}{OF_CLOCK[change.clock]}", change.view, change.what)
    yield to_come
    budgets = _table("ledger", "")
    for ledger, budget in found.budgets.items():
        budgets.add_row(ledger, budget.words)
    yield budgets
    totals = _table("total since the beginning", "")
    for line, amount in found.totals.items():
        totals.add_row(line, f"{amount:,}")
    yield totals


def _clocks(clocks: Mapping[int, int], at: Callable[[int], str]) -> str:
    """What the clock of a view shows in the partition that is furthest behind, and where that is."""
    if not clocks:
        return UNKNOWN
    behind = min(clocks, key=clocks.__getitem__)
    ahead = max(clocks.values())
    where = f" in partition {behind}" if _second(clocks[behind]) != _second(ahead) else ""
    return f"{at(clocks[behind])}{where}"


def _second(time_ms: int) -> int:
    return time_ms // 1000 * 1000


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
