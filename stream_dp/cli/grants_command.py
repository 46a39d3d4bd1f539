"""`stream-dp grant FILE AUDIENCE --level LEVEL` raises, lowers or ends what an audience sees; `grants` lists grants."""

from __future__ import annotations

import json
from dataclasses import asdict
from fractions import Fraction
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from stream_dp.cli.command_line import FILE, MOMENT, command_line, run_effective
from stream_dp.cli.display import DIGITS, table
from stream_dp.config.file_schema import NO_LEVEL
from stream_dp.config.plan import ViewPlan
from stream_dp.control.grant_records import Change, Grant, Scope, added
from stream_dp.exact.rationals import decimal_up
from stream_dp.operations import grants as operations
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import format_duration, format_time

WINDOWS = {"all": "all", "retained": "released before it starts", "future": "released after it starts"}


@click.command()
@FILE
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

    With a finer level, every retained window is published again, sharper. The ledger pays the difference to the finest
    release that any audience has of the window; in a pool it pays for a step to the level. A coarser level applies to
    future windows. Retained windows stay as they are. They become finer only by `unlock` or `sharpen` in the settings,
    and not even then if the granted level is below the one that the audience starts with. With level none, nothing
    more is published for the audience until a newer grant. What was published stays in its topic. If several grants
    cover a window, the newest decides; without one, the configuration does.

    \b
    stream-dp grant app.yaml partner --level detailed
    stream-dp grant app.yaml partner --level detailed --view pages --windows retained
    stream-dp grant app.yaml public --level standard --from 2026-01-01 --until 2026-02-01
    stream-dp grant app.yaml public --level coarse --windows future --at 2026-07-01T06:00:00Z
    stream-dp grant app.yaml public --level none --windows retained

    Exit codes: 0 done; 1 the broker does not answer, or the application was never started; 2 no such audience, view or
    level, or a time in the past.
    """
    texts = {name: format_time(value) if isinstance(value, int) else value for name, value in wanted.items()}
    order = Grant.model_validate(texts)
    plan, changes = run_effective(file, lambda plan, client: operations.post_grant(plan, client, order))
    if as_json:
        body = order.model_dump(exclude={"type"}) | {"id": order.id, "topic": Topics.of(plan).control}
        click.echo(json.dumps(body | {"changes": [asdict(change) for change in changes]}))
        return
    console = Console(highlight=False, markup=False)
    when = "now" if order.at_ms is None else format_time(order.at_ms)
    seen = "sees nothing more" if order.level == NO_LEVEL else f"sees level {order.level}"
    console.print(f"Granted: {order.audience} {seen} from {when} on{scope_words(order.scope)}.")
    for change in changes:
        effect = explained(change, plan.newest[change.view], order.scope, order.audience)
        console.print(f"  {effect}", soft_wrap=not console.is_terminal)
    if order.at_ms is not None:
        console.print("To withdraw it before then:")
        console.print("  " + command_line("grants", file, "--withdraw", order.id), soft_wrap=True)
    elif finer := {change.before for change in changes if change.direction == "finer"}:
        level = finer.pop() if len(finer) == 1 else "LEVEL"
        console.print("It cannot be withdrawn. To lower the level of windows to come:")
        words = ("grant", file, order.audience, "--level", level, "--windows", "future")
        console.print("  " + command_line(*words), soft_wrap=True)
    console.print("To watch it:")
    for change in changes:
        console.print("  " + command_line("tail", file, change.view, order.audience), soft_wrap=True)


def scope_words(scope: Scope) -> str:
    """Return the windows of a grant in words; empty for all windows."""
    words = "" if scope.windows == "all" else f", for {scope.windows} windows"
    first = "" if scope.from_ms is None else f" at {format_time(scope.from_ms)} or later"
    until = "" if scope.until_ms is None else f" before {format_time(scope.until_ms)}"
    both = " and" if first and until else ""
    return words or (f", for windows that start{first}{both}{until}" if first or until else "")


def explained(change: Change, view: ViewPlan, scope: Scope, audience: str) -> str:
    """Return the effect of a grant on a view in a sentence.

    Args:
        change: what changes.
        view: the view.
        scope: the windows of the grant.
        audience: that it is for.
    """
    levels = {level.name: level for level in view.levels}
    if change.direction == "ended":
        return f"{change.view}: nothing more is published, until a newer grant. What was published stays in the topic."
    before, after = levels.get(change.before), levels[change.after]
    if change.direction == "same":
        again = "" if scope.windows == "future" else " Only windows at a coarser level are published again."
        return f"{change.view}: stays at {after.name}.{again}"
    had, has = (
        NO_LEVEL if level is None else f"{level.name} (±{level.interval_of(view.window.shape.summands)})"
        for level in (before, after)
    )
    steps = f"{change.view}: {had} -> {has}"
    if change.direction == "coarser":
        if scope.windows == "retained":
            return f"{steps}. These windows become no finer. What was published stays in the topic."
        return f"{steps} for windows to come. What was published stays in the topic and becomes no finer."
    if scope.windows == "future":
        return f"{steps} for windows to come. {_price(change, view, audience, scope)}"
    some = "" if scope == Scope(scope.views, scope.windows) else " in the scope"
    kept = format_duration(view.window.retention_ms)
    return (
        f"{steps}. Windows{some} that ended up to {kept} before the newest one are published again. "
        f"{_price(change, view, audience, scope)}"
    )


def _price(change: Change, view: ViewPlan, audience: str, scope: Scope) -> str:
    """Return what a grant of a finer level costs, beyond the finest level that another audience starts with."""
    ledger, unit = view.ledger.name, "epsilon" if view.ledger.pool is None else "rho"
    difference = decimal_up(Fraction(change.difference), DIGITS)
    if not Fraction(change.difference):
        return "It costs nothing more: all levels of a window are paid for with its first release."
    lasting = "See how long it lasts: `stream-dp ledger FILE`."
    others = {name: level for name, level in view.audiences.items() if name != audience}
    names = [level.name for level in view.levels]
    finest = max(others, key=others.__getitem__, default="")
    if not finest or others[finest] <= (names.index(change.before) if change.before in names else -1):
        return f"Each costs ledger {ledger} {unit} {difference} more. {lasting}"
    starts = f"{finest} has level {names[others[finest]]} (it starts with that), else {unit} {difference}"
    if others[finest] >= names.index(change.after):
        return f"Each costs ledger {ledger} nothing more if {starts}."
    less = decimal_up(added(view, names.index(change.after), others[finest], scope), DIGITS)
    return f"Each costs ledger {ledger} {unit} {less} more if {starts}. {lasting}"


@click.command()
@FILE
@click.option("--withdraw", metavar="ID", help="Withdraw the grant ID, which has not started.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of words.")
def grants(file: Path, withdraw: str | None, *, as_json: bool) -> None:
    """List the grants of the application that FILE describes, oldest first, or withdraw one.

    Of grants of one audience with the same views, windows and time only the last one is listed. A grant that has
    started cannot be withdrawn, because what was released is known. Grant a coarser level to lower windows to come.

    Exit codes: 0 done; 1 the broker does not answer, or the application was never started; 2 no grant with this ID is
    planned.
    """
    work = operations.read_grants if withdraw is None else partial(operations.withdraw, grant_id=withdraw)
    _, orders = run_effective(file, work)
    now_ms = wall_clock_ms()
    if as_json:
        click.echo(json.dumps({"grants": [operations.grant_json(order, now_ms) for order in orders]}))
        return
    if withdraw is not None:
        click.echo(f"Grant {withdraw} is withdrawn.")
    listed = table("id", "audience", "level", "views", "windows", "state")
    waiting = [order for order in orders if order.time_ms > now_ms]
    for order in orders:
        views, state = ", ".join(order.scope.views) or "all", "starts at" if order in waiting else "in effect since"
        state += f" {format_time(order.time_ms)}"
        listed.add_row(order.id, order.audience, order.level, views, _windows(order.scope), state)
    console = Console(highlight=False, markup=False)
    console.print(listed if orders else "No grants: every audience sees what the configuration says.")
    if waiting:
        console.print("\nTo withdraw a grant that has not started:")
        console.print("  " + command_line("grants", file, "--withdraw", "ID"), soft_wrap=True)


def _windows(scope: Scope) -> str:
    first = "" if scope.from_ms is None else f"from {format_time(scope.from_ms)}"
    until = "" if scope.until_ms is None else f"until {format_time(scope.until_ms)}"
    return " ".join(filter(None, [first, until])) or WINDOWS[scope.windows]
