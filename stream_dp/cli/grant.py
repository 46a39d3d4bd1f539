"""`stream-dp grant FILE AUDIENCE --level LEVEL`: raise, or for windows to come lower, what an audience may see."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from stream_dp.cli.command_line import command_line, hush_libraries
from stream_dp.cli.held import held
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planning import load_plan
from stream_dp.control.changes import Change, changes_of
from stream_dp.control.grants import Grant
from stream_dp.errors import BrokerError
from stream_dp.exact.rationals import decimal_up
from stream_dp.runtime.connecting import connect
from stream_dp.runtime.grants import last_grant, write_grant
from stream_dp.runtime.topics import Topics
from stream_dp.windows.durations import format_duration

DIGITS = 6


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("audience")
@click.option("--level", required=True, help="A level of the ladder of the views that the audience reads.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of words.")
def grant(file: Path, audience: str, level: str, *, as_json: bool) -> None:
    """Let an AUDIENCE of the application that FILE describes see a LEVEL from now on.

    A finer level: every retained window is published again, sharper, and the ledger is charged what that tells beyond
    the finest release that any audience has of the window. A coarser one holds for windows to come.

    Exit codes: 0 written, 1 the broker or the application's topics are not there, 2 no such audience or level.
    """
    hush_libraries()
    plan = held(load_plan(file))
    wanted = Grant(audience=audience, level=level)
    wanted.check(plan)
    changes = asyncio.run(_written(plan, wanted))
    if as_json:
        topic = Topics.of(plan).control
        body = {"audience": audience, "level": level, "topic": topic, "views": [asdict(change) for change in changes]}
        click.echo(json.dumps(body))
        return
    console = Console(highlight=False, markup=False)
    console.print(f"{audience} may see level {level} from now on.")
    for change in changes:
        console.print(f"  {explained(change, plan.views[change.view])}", soft_wrap=not console.is_terminal)
    console.print("Watch it:")
    for change in changes:
        console.print("  " + command_line("tail", file, change.view, audience), soft_wrap=True)


async def _written(plan: Plan, wanted: Grant) -> list[Change]:
    async with connect(plan.broker) as client:
        topic = Topics.of(plan).control
        if await client.partitions(topic) is None:
            raise BrokerError(f"{plan.broker} has no topic {topic}; a worker makes it: `stream-dp worker FILE`")
        changes = changes_of(plan, wanted, await last_grant(plan, client, wanted.audience))
        await write_grant(plan, client, wanted)
    return changes


def explained(change: Change, view: ViewPlan) -> str:
    """A change in words."""
    levels = {level.name: level for level in view.levels}
    before, after = levels[change.before], levels[change.after]
    if change.direction == "same":
        return f"{change.view}: stays at {after.name}; only windows that have less are published again"
    steps = f"{change.view}: from {before.name} (±{before.noise_interval}) to {after.name} (±{after.noise_interval})"
    if change.direction == "coarser":
        return f"{steps} for windows to come; what was published stays"
    difference = decimal_up(after.epsilon - before.epsilon, DIGITS)
    return (
        f"{steps}; windows that ended up to {format_duration(view.window.retention_ms)} before the newest one are "
        f"published again. Ledger {view.ledger.name} pays the difference to the finest release that anyone has of a "
        f"window: epsilon {difference} if that is {before.name}, nothing if it is {after.name}"
    )
