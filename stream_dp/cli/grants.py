"""`stream-dp grants FILE`: which grants there are; `--withdraw ID` takes one back that waits for its time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from stream_dp.cli.command_line import hush_libraries
from stream_dp.cli.grant import control_topic, scope_words
from stream_dp.config.plan import Plan
from stream_dp.config.planning import load_plan
from stream_dp.control.grants import Order
from stream_dp.errors import ConfigError, Fault
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.connecting import connect
from stream_dp.runtime.kafka.control_topic import known_grants, withdraw_grant
from stream_dp.windows.durations import format_time


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--withdraw", metavar="ID", help="Take back the grant ID, which waits for its time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of words.")
def grants(file: Path, withdraw: str | None, *, as_json: bool) -> None:
    """List the grants of the application that FILE describes, oldest first, or take one back.

    Of grants of one audience with the same views, windows and time only the last one is listed. One that was carried
    out cannot be taken back, since what was released is known; a later one can lower the level for windows to come.

    Exit codes: 0 done, 1 the broker or the application's topics are not there, 2 no grant with this ID waits.
    """
    hush_libraries()
    plan = load_plan(file)
    now_ms = wall_clock_ms()
    orders = asyncio.run(_known(plan, withdraw, now_ms))
    if as_json:
        click.echo(json.dumps({"grants": [_fields(order, now_ms) for order in orders]}))
        return
    if withdraw is not None:
        click.echo(f"grant {withdraw} is withdrawn.")
    console = Console(highlight=False, markup=False)
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for heading in ("id", "audience", "level", "views", "", "when"):
        table.add_column(heading)
    for order in orders:
        waits = "waits for" if order.time_ms > now_ms else "since"
        table.add_row(
            order.id,
            order.audience,
            order.level,
            ", ".join(order.scope.views) or "all",
            scope_words(order.scope).removeprefix(", of ") or "all windows",
            f"{waits} {format_time(order.time_ms)}",
        )
    console.print(table if orders else "there is no grant: every audience sees what the configuration says")


async def _known(plan: Plan, withdrawn: str | None, now_ms: int) -> list[Order]:
    async with connect(plan.broker) as client:
        await control_topic(plan, client)
        orders = await known_grants(plan, client)
        if withdrawn is None:
            return orders
        chosen = [order for order in orders if order.id == withdrawn and order.time_ms > now_ms]
        if not chosen:
            done = any(order.id == withdrawn for order in orders)
            why = "was carried out; a later one can lower the level for windows to come" if done else "is not there"
            raise ConfigError([Fault("withdraw", f"grant {withdrawn} {why}")])
        for order in chosen:
            await withdraw_grant(plan, client, order)
        return [order for order in orders if order not in chosen]


def _fields(order: Order, now_ms: int) -> dict[str, object]:
    def time(time_ms: int | None) -> str | None:
        return None if time_ms is None else format_time(time_ms)

    scope = order.scope
    return {
        "id": order.id,
        "audience": order.audience,
        "level": order.level,
        "views": scope.views,
        "windows": scope.windows,
        "start_from": time(scope.from_ms),
        "start_until": time(scope.until_ms),
        "time": time(order.time_ms),
        "waits": order.time_ms > now_ms,
    }
