"""`stream-dp grant FILE AUDIENCE --level LEVEL`: raise, or for windows to come lower, what an audience may see."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click
from rich.console import Console

from stream_dp.cli.command_line import command_line, hush_libraries
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planning import load_plan
from stream_dp.control.grants import Grant, check_grant
from stream_dp.errors import BrokerError
from stream_dp.exact.rationals import decimal_up
from stream_dp.runtime.client import Client, Outgoing, connect
from stream_dp.runtime.topics import Topics
from stream_dp.windows.durations import format_duration

DIGITS = 6
Direction = Literal["finer", "coarser", "same"]


@dataclass(frozen=True, slots=True)
class Change:
    """What a grant does to one view.

    Attributes:
        view: the view's name.
        before: the level its audience had.
        after: the level it has from now on.
        direction: what `after` is beside `before`.
        difference: exact epsilon that `after` costs beyond `before` for one window; "0" unless it is finer.
    """

    view: str
    before: str
    after: str
    direction: Direction
    difference: str


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
    plan = load_plan(file)
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
        changes = changes_of(plan, wanted, await _last_grant(plan, client, wanted.audience))
        await write_grant(plan, client, wanted)
    return changes


async def write_grant(plan: Plan, client: Client, wanted: Grant) -> None:
    """Write a grant that was checked against the plan to the application's control topic."""
    record = Outgoing(Topics.of(plan).control, 0, wanted.key(), wanted.model_dump_json().encode())
    await client.publish([record])


async def _last_grant(plan: Plan, client: Client, audience: str) -> str | None:
    level = None
    async for record in client.follow([Topics.of(plan).control], until_end=True):
        order = check_grant(record.key, record.value, record.offset, plan)
        if order is not None and order.audience == audience:
            level = order.level
    return level


def changes_of(plan: Plan, wanted: Grant, last: str | None) -> list[Change]:
    """What a grant does to each view that its audience reads.

    Args:
        plan: the application.
        wanted: the grant, checked against the plan.
        last: the level of the audience's last grant, None if there was none.
    """
    return [_change(view, wanted, last) for view in plan.views.values() if wanted.audience in view.audiences]


def _change(view: ViewPlan, wanted: Grant, last: str | None) -> Change:
    names = [level.name for level in view.levels]
    start = view.audiences[wanted.audience]
    # A level that the view's ladder does not have leaves the audience where the configuration starts it.
    before, after = (names.index(level) if level in names else start for level in (last, wanted.level))
    direction: Direction = "finer" if after > before else "coarser" if after < before else "same"
    difference = view.levels[after].epsilon - view.levels[before].epsilon if after > before else 0
    return Change(view.name, names[before], names[after], direction, str(difference))


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
