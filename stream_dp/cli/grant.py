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
@click.option("--level", required=True, help="A level of the views that the audience reads, or none.")
@click.option("--view", "views", multiple=True, help="Only this view; may be repeated. [default: all]")
@click.option(
    "--windows",
    type=click.Choice(["all", "retained", "future"]),
    default="all",
    show_default=True,
    help="Windows that are released and retained, windows to come, or both.",
)
@click.option("--from", "start_from", type=MOMENT, help="Only windows that start at this time or later.")
@click.option("--until", "start_until", type=MOMENT, help="Only windows that start before this time.")
@click.option(
    "--at",
    type=MOMENT,
    help="When the grant starts. Until then `stream-dp grants` lists it and can withdraw it. [default: now]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of words.")
def grant(file: Path, *, as_json: bool, **wanted: object) -> None:
    """Let an AUDIENCE of the application that FILE describes see a LEVEL.

    A finer level: every retained window is published again, sharper. The ledger pays the difference to the finest
    release that any audience has of the window. A coarser level is for windows to come; retained windows stay as they
    are and become no finer, except where `unlock` or `sharpen` of the settings says so and the level is not below the
    one that the audience starts with. Level none: nothing more is published for the audience, until a newer grant. What
    was published stays in its topic. Of several grants for a window the newest decides; without one, the configuration
    does.

    \b
    stream-dp grant app.yaml partner --level detailed
    stream-dp grant app.yaml partner --level detailed --view pages --windows retained
    stream-dp grant app.yaml public --level standard --from 2026-01-01 --until 2026-02-01
    stream-dp grant app.yaml public --level coarse --windows future --at 2026-07-01T06:00:00Z
    stream-dp grant app.yaml public --level none --windows retained

    Exit codes: 0 done; 1 the broker does not answer, or the application was never started; 2 no such audience, view or
    level, or a time in the past.
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
    seen = "sees nothing more" if order.level == NO_LEVEL else f"sees level {order.level}"
    console.print(f"Granted: {order.audience} {seen} from {when} on{scope_words(order.scope)}.")
    for change in changes:
        console.print(
            f"  {explained(change, plan.newest[change.view], order.scope)}", soft_wrap=not console.is_terminal
        )
    if order.at_ms is not None:
        console.print("To withdraw it before then:")
        console.print("  " + command_line("grants", file, "--withdraw", order.id), soft_wrap=True)
    console.print("To watch it:")
    for change in changes:
        console.print("  " + command_line("tail", file, change.view, order.audience), soft_wrap=True)


def scope_words(scope: Scope) -> str:
    """Say which windows a grant is about; nothing where it is all of them."""
    words = "" if scope.windows == "all" else f", for {scope.windows} windows"
    first = "" if scope.from_ms is None else f" at {format_time(scope.from_ms)} or later"
    until = "" if scope.until_ms is None else f" before {format_time(scope.until_ms)}"
    both = " and" if first and until else ""
    return words or (f", for windows that start{first}{both}{until}" if first or until else "")


def explained(change: Change, view: ViewPlan, scope: Scope) -> str:
    """Say what a grant changes of a view.

    Args:
        change: what changes.
        view: the view.
        scope: the windows of the grant.
    """
    levels = {level.name: level for level in view.levels}
    if change.direction == "ended":
        return f"{change.view}: nothing more is published, until a newer grant. What was published stays in the topic."
    before, after = levels.get(change.before), levels[change.after]
    if change.direction == "same":
        again = "" if scope.windows == "future" else " Only windows at a coarser level are published again."
        return f"{change.view}: stays at {after.name}.{again}"
    had, coarse = (NO_LEVEL, "") if before is None else (before.name, f" (±{before.interval_of(view.window.summands)})")
    steps = f"{change.view}: {had}{coarse} -> {after.name} (±{after.interval_of(view.window.summands)})"
    if change.direction == "coarser":
        if scope.windows == "retained":
            return f"{steps}. These windows become no finer. What was published stays in the topic."
        return f"{steps} for windows to come. What was published stays in the topic and becomes no finer."
    difference = decimal_up(Fraction(change.difference), DIGITS)
    if scope.windows == "future":
        return f"{steps} for windows to come. Each costs ledger {view.ledger.name} epsilon {difference} more."
    some = "" if scope == Scope(scope.views, scope.windows) else " in the scope"
    kept = format_duration(view.window.retention_ms)
    return (
        f"{steps}. Windows{some} that ended up to {kept} before the newest one are published again. Each costs ledger "
        f"{view.ledger.name} epsilon {difference} if no audience has more than {had}, nothing if one has {after.name}."
    )
