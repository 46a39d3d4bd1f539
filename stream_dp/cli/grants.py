"""`stream-dp grants FILE`: list the grants; `--withdraw ID` withdraws one that has not started."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from stream_dp.cli.command_line import effective, run
from stream_dp.config.planning import load_plan
from stream_dp.control.grants import Order, Scope
from stream_dp.operations.grants import grant_json, read_grants
from stream_dp.operations.grants import withdraw as withdraw_grant
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client
from stream_dp.windows.durations import format_time


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--withdraw", metavar="ID", help="Withdraw the grant ID, which has not started.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of words.")
def grants(file: Path, withdraw: str | None, *, as_json: bool) -> None:
    """List the grants of the application that FILE describes, oldest first, or withdraw one.

    Of grants of one audience with the same views, windows and time only the last one is listed. A grant that has
    started cannot be withdrawn, because what was released is known. Grant a coarser level to lower windows to come.

    Exit codes: 0 done; 1 the broker does not answer, or the application was never started; 2 no grant with this ID is
    planned.
    """
    file_plan = load_plan(file)

    async def read(client: Client) -> list[Order]:
        plan = (await effective(file_plan, client)).plan
        return await (read_grants(plan, client) if withdraw is None else withdraw_grant(plan, client, withdraw))

    orders, now_ms = run(file_plan, read), wall_clock_ms()
    if as_json:
        click.echo(json.dumps({"grants": [grant_json(order, now_ms) for order in orders]}))
        return
    if withdraw is not None:
        click.echo(f"Grant {withdraw} is withdrawn.")
    console = Console(highlight=False, markup=False)
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for heading in ("id", "audience", "level", "views", "windows", "state"):
        table.add_column(heading)
    for order in orders:
        state = "starts at" if order.time_ms > now_ms else "since"
        table.add_row(
            order.id,
            order.audience,
            order.level,
            ", ".join(order.scope.views) or "all",
            _windows(order.scope),
            f"{state} {format_time(order.time_ms)}",
        )
    console.print(table if orders else "No grants: every audience sees what the configuration says.")


def _windows(scope: Scope) -> str:
    first = "" if scope.from_ms is None else f"from {format_time(scope.from_ms)}"
    until = "" if scope.until_ms is None else f"until {format_time(scope.until_ms)}"
    return " ".join(filter(None, [first, until])) or scope.windows
