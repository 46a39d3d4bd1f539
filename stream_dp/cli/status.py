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
OF_CLOCK = {"wall": "", "event": " (stream)"}
MOST_PROBLEMS = 4
"""Above the tables; the others are below them."""


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch, one a line.")
@click.option("--watch", is_flag=True, help="Look again every 5 s, until it is interrupted.")
def status(file: Path, *, as_json: bool, watch: bool) -> None:
    """Show the status of the application that FILE describes: problems first, each with its remedy, or OK.

    Workers report every 10 s to the topic NAME-status. This command needs READ on NAME-status and NAME-accounts and
    DESCRIBE on the group NAME, and no access to a worker. Below the problems it shows

    \b
    * the workers: since when each runs, the settings it uses, its partitions, and whether it is ready;
    * of every source, how many records are not counted yet;
    * of every view, the edition in effect, its clock where it is furthest behind, the open windows, up to when its
      windows are released or refused, and when the next one is due (with clock: wall);
    * what is planned: settings that begin with a later window; the next window that is unlocked to each level; when
      the rest of a budget is spent next. Times of views with clock: event are times of the stream. A grant or an
      exhausted budget may prevent a planned release;
    * what every ledger has left and how long that lasts (`stream-dp ledger` says who spent it);
    * the counters of all partitions since the first record.

    A worker without a report for 30 s is silent; after 5 minutes it is not shown any more.

    Exit codes: 0 OK; 1 there are problems, or the broker does not answer; 2 wrong configuration.
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
                return 1 if found.problems else 0
            await asyncio.sleep(LOOK_SECONDS)


def page(plan: Plan, found: Summary) -> RenderableType:
    """All of it: first the problems with their remedies, or that there is none.

    Args:
        plan: the application.
        found: its status.
    """
    problems = [Text(f"! {one.message}", "red", overflow="fold") for one in found.problems]
    head = Text.assemble((plan.id, "bold"), f" at {moment(_second(found.reports.now_ms))}: ")
    if problems:
        head.append(f"{len(problems)} problem{'' if len(problems) == 1 else 's'}", "bold red")
    else:
        head.append("OK", "bold green")
    first, more = problems[:MOST_PROBLEMS], problems[MOST_PROBLEMS:]
    if more:
        first[-1:] = [Text(f"... and {len(more) + 1} more, below", "red")]
        more = problems[MOST_PROBLEMS - 1 :]
    parts: list[RenderableType] = [
        Group(*(first or _summary(found))),
        *(table for table in _tables(found) if table.row_count),
    ]
    return Group(
        head, *(Padding(part, (0, 0, 1, 2), expand=False) for part in [*parts, *([Group(*more)] if more else [])])
    )


def _summary(found: Summary) -> Iterator[Text]:
    """Where nothing is wrong: who works, how far they are, what is left."""
    running = len(found.reports.running)
    lag = sum(records for lags in found.lag.values() for records in lags.values())
    yield Text(f"{running} worker{'' if running == 1 else 's'} ready; {lag:,} records to be counted")
    released = [view.released_to for view in found.views.values() if view.released_to is not None]
    if released:
        yield Text(f"All views are released up to {moment(min(released))}")
    for ledger, budget in list(found.budgets.items())[: MOST_PROBLEMS - 2]:
        yield Text(f"Ledger {ledger}: {budget.words}")


def _tables(found: Summary) -> Iterator[Table]:
    reports = found.reports

    def at(time_ms: int) -> str:
        """To the second; of today only the time, because there are many columns."""
        words = moment(_second(time_ms))
        day, _, time = words.partition("T")
        return time if time and moment(reports.now_ms).startswith(day) else words

    workers = _table("worker", "since", "version", "settings", "partitions", "state")
    for one in reports.workers:
        state = "silent" if reports.is_silent(one) else f"waits for {one.waiting_for}" if one.waiting_for else "ready"
        owned = ", ".join(map(str, sorted(one.partitions))) or "none"
        workers.add_row(one.instance, at(one.started_ms), one.code_version, str(one.settings or UNKNOWN), owned, state)
    yield workers
    sources = _table("source", "records to be counted", "most in partition")
    for name, lags in found.lag.items():
        most = max(lags, key=lags.__getitem__)
        sources.add_row(name, f"{sum(lags.values()):,}", f"{most}: {lags[most]:,}" if lags[most] else UNKNOWN)
    yield sources
    views = _table("view", "edition", "clock", "open windows", "released up to", "next due")
    for name, view in found.views.items():
        windows = UNKNOWN
        if view.open is not None:
            number, interval = view.open
            windows = f"{number}, {at(interval.start_ms)} to {at(interval.end_ms)}" if number else "none"
        due = UNKNOWN if view.next_due is None else at(view.next_due)
        released = UNKNOWN if view.released_to is None else at(view.released_to)
        edition = UNKNOWN if view.edition is None else str(view.edition)
        views.add_row(name, edition, _clocks(view.clocks, at), windows, released, due)
    yield views
    to_come = _table("planned", "view", "what")
    for change in found.to_come:
        to_come.add_row(f"{at(change.at_ms)}{OF_CLOCK[change.clock]}", change.view, change.what)
    yield to_come
    budgets = _table("ledger", "budget")
    for ledger, budget in found.budgets.items():
        budgets.add_row(ledger, budget.words)
    yield budgets
    totals = _table("total", "since the first record")
    for line, amount in found.totals.items():
        totals.add_row(line, f"{amount:,}")
    yield totals


def _clocks(clocks: Mapping[int, int], at: Callable[[int], str]) -> str:
    """Return the clock of a view in the partition that is furthest behind, and which that is."""
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
