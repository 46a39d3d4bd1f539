"""`stream-dp grant FILE AUDIENCE --level LEVEL`: raise, lower or end what an audience may see."""

from __future__ import annotations

import json
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import click
from rich.console import Console

from stream_dp.cli.command_line import MOMENT, command_line, effective, run
from stream_dp.config.models import NO_LEVEL
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planning import load_plan
from stream_dp.control.grants import Change, Grant, Scope
from stream_dp.exact.rationals import decimal_up
from stream_dp.operations.grants import post_grant
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import format_duration, format_time

DIGITS = 6


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("audience")
@click.option("--level", required=True, help="A level of the views that the audience reads; none ends it.")
@click.option("--view", "views", multiple=True, help="Only this view; may be given several times. Without it: all.")
@click.option(
    "--windows",
    type=click.Choice(["all", "retained", "future"]),
    default="all",
    show_default=True,
    help="Which windows: those that were released before and are retained, those to come, or both.",
)
@click.option("--from", "start_from", type=MOMENT, help="Only windows that start at this time or later.")
@click.option("--until", "start_until", type=MOMENT, help="Only windows that start before this time.")
@click.option(
    "--at",
    type=MOMENT,
    help="When it is carried out. Without it: now. Until then `stream-dp grants` lists it, and takes it back.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of words.")
def grant(file: Path, *, as_json: bool, **wanted: object) -> None:
    """Let an AUDIENCE of the application that FILE describes see a LEVEL, of the windows and views that you name.

    A finer level: every retained window is published again, sharper, and the ledger is charged what that tells beyond
    the finest release that any audience has of the window. A coarser one holds for windows to come, and retained
    windows become no finer, except where `unlock` or `sharpen` of the settings says so and the level is not below the
    one that the audience starts with. With the level none, nothing more is published for the audience of the windows
    that you name, until a newer grant. What was published stays in its topic. Of several grants for a window the newest
    decides; where there is none, the configuration does.

    \b
    stream-dp grant app.yaml partner --level detailed
    stream-dp grant app.yaml partner --level detailed --view pages --windows retained
    stream-dp grant app.yaml public --level standard --from 2026-01-01 --until 2026-02-01
    stream-dp grant app.yaml public --level coarse --windows future --at 2026-07-01T06:00:00Z
    stream-dp grant app.yaml public --level none --windows retained

    Exit codes: 0 written, 1 the broker or the application's topics are not there, 2 no such audience, view or level, or
    a time that is over.
    """
    file_plan = load_plan(file)
    order = Grant.model_validate(
        {name: format_time(value) if isinstance(value, int) else value for name, value in wanted.items()}
    )

    async def post(client: Client) -> tuple[Plan, list[Change]]:
        plan = (await effective(file_plan, client)).plan
        return plan, await post_grant(plan, client, order)

    plan, changes = run(file_plan, post)
    if as_json:
        body = order.model_dump(exclude={"type"}) | {"id": order.id, "topic": Topics.of(plan).control}
        click.echo(json.dumps(body | {"changes": [asdict(change) for change in changes]}))
        return
    console = Console(highlight=False, markup=False)
    when = "now" if order.at_ms is None else format_time(order.at_ms)
    if order.level == NO_LEVEL:
        console.print(f"{order.audience} gets nothing more from {when} on{scope_words(order.scope)}.")
    else:
        console.print(f"{order.audience} may see level {order.level} from {when} on{scope_words(order.scope)}.")
    for change in changes:
        console.print(
            f"  {explained(change, plan.newest[change.view], order.scope)}", soft_wrap=not console.is_terminal
        )
    if order.at_ms is not None:
        console.print("It waits for its time. Take it back:")
        console.print("  " + command_line("grants", file, "--withdraw", order.id), soft_wrap=True)
    console.print("Watch it:")
    for change in changes:
        console.print("  " + command_line("tail", file, change.view, order.audience), soft_wrap=True)


def scope_words(scope: Scope) -> str:
    """Which windows a grant is about, in words; nothing where it is all of them."""
    words = "" if scope.windows == "all" else f", of {scope.windows} windows"
    first = "" if scope.from_ms is None else f" from {format_time(scope.from_ms)} on"
    until = "" if scope.until_ms is None else f" before {format_time(scope.until_ms)}"
    return words or (f", of windows that start{first}{until}" if first or until else "")


def explained(change: Change, view: ViewPlan, scope: Scope) -> str:
    """A change in words."""
    levels = {level.name: level for level in view.levels}
    if change.direction == "ended":
        return f"{change.view}: ends. What was published stays in the topic; a newer grant begins it again"
    before, after = levels.get(change.before), levels[change.after]
    if change.direction == "same":
        again = "" if scope.windows == "future" else "; only windows that have less are published again"
        return f"{change.view}: stays at {after.name}{again}"
    had, coarse = (NO_LEVEL, "") if before is None else (before.name, f" (±{before.interval_of(view.window.summands)})")
    steps = f"{change.view}: from {had}{coarse} to {after.name} (±{after.interval_of(view.window.summands)})"
    if change.direction == "coarser":
        if scope.windows == "retained":
            return f"{steps}; what was published stays in the topic, and none of these windows becomes finer"
        return f"{steps} for windows to come; what was published stays in the topic, and becomes no finer"
    difference = decimal_up(Fraction(change.difference), DIGITS)
    if scope.windows == "future":
        return f"{steps} for windows to come; one costs ledger {view.ledger.name} epsilon {difference} more"
    some = "" if scope == Scope(scope.views, scope.windows) else ", if they are among those,"
    kept = format_duration(view.window.retention_ms)
    return (
        f"{steps}; windows that ended up to {kept} before the newest one{some} are "
        f"published again. Ledger {view.ledger.name} pays the difference to the finest release that anyone has of a "
        f"window: epsilon {difference} if that is {had}, nothing if it is {after.name}"
    )
