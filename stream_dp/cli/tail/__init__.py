"""`stream-dp tail FILE VIEW AUDIENCE`: a release topic as a live table, as lines, or as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from stream_dp.cli.command_line import hush_libraries
from stream_dp.cli.held import held
from stream_dp.cli.moments import MOMENT
from stream_dp.cli.tail.board import Board, record_line
from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planning import load_plan
from stream_dp.errors import BrokerError, ConfigError, Fault
from stream_dp.records.codec import decode, outline
from stream_dp.records.history import Joiner
from stream_dp.runtime.connecting import connect
from stream_dp.runtime.kafka.topics import Topics

REDRAW_SECONDS = 0.2


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("view")
@click.argument("audience")
@click.option(
    "--json", "as_json", is_flag=True, help="Print each record as one line of JSON, as it stands in the topic."
)
@click.option("--until-end", is_flag=True, help="End where the topic ends now, instead of waiting for more.")
@click.option(
    "--window",
    "at_ms",
    type=MOMENT,
    help="Show the window of this day or moment: on a terminal not the newest, in a pipe and as JSON no other.",
)
def tail(file: Path, view: str, audience: str, *, as_json: bool, until_end: bool, at_ms: int | None) -> None:
    """Follow what an AUDIENCE reads of a VIEW of the application that FILE describes.

    On a terminal: a table of one window, the newest if no other is asked for, with the 95 % interval of every count,
    and the windows before it. The interval of a key that its noise alone may have shown begins at 1. A sharper revision
    takes the place of the one before. Into a pipe: a line per release or refusal. A release in several records is shown
    when it is whole.

    Exit codes: 0 done, or ended with Ctrl-C; 1 the broker or the topic is not there; 2 no such view or audience.
    """
    hush_libraries()
    plan = held(load_plan(file))
    found = _readable(plan, view, audience)
    topic = Topics.of(plan).release(view, audience)
    start_ms = None if at_ms is None else found.window.released.start_of(at_ms)
    console = Console(highlight=False)
    with suppress(KeyboardInterrupt):
        if as_json:
            asyncio.run(_each(plan, topic, click.echo, start_ms=start_ms, until_end=until_end))
        elif not console.is_terminal:
            asyncio.run(_each(plan, topic, _lines(), start_ms=start_ms, until_end=until_end))
        else:
            asyncio.run(_show(plan, topic, Board(found, topic, at_ms), console, until_end=until_end))


def _readable(plan: Plan, view: str, audience: str) -> ViewPlan:
    """The view, if it exists and the audience reads it."""
    found = plan.views.get(view)
    if found is None:
        raise ConfigError([Fault("view", f"no view is named {view!r}; {unknown(view, plan.views)}")])
    if audience not in found.audiences:
        message = f"no audience of {view} is named {audience!r}; {unknown(audience, found.audiences)}"
        raise ConfigError([Fault("audience", message)])
    return found


async def _each(
    plan: Plan, topic: str, sink: Callable[[bytes], Any], *, start_ms: int | None = None, until_end: bool
) -> None:
    """Hand every record of a topic to a sink, as bytes; those of one window alone if its start is given."""
    async with connect(plan.broker) as client:
        if await client.partitions(topic) is None:
            raise BrokerError(f"{plan.broker} has no topic {topic}; a worker makes it: `stream-dp worker FILE`")
        async for record in client.follow([topic], until_end=until_end):
            value = record.value
            if value is not None and (start_ms is None or outline(value).window.start_ms == start_ms):
                sink(value)


def _lines() -> Callable[[bytes], None]:
    """Prints a line for each record, as soon as all its parts were there."""
    joiner = Joiner()

    def line(value: bytes) -> None:
        whole = joiner.take(decode(value))
        if whole is not None:
            click.echo(record_line(whole))

    return line


async def _show(plan: Plan, topic: str, board: Board, console: Console, *, until_end: bool) -> None:
    if until_end:
        await _each(plan, topic, lambda value: board.take(decode(value)), until_end=True)
        console.print(board.render(console.size))
        return
    with Live(console=console, auto_refresh=False) as live:
        redrawing = asyncio.create_task(_redraw(live, board, console))
        try:
            await _each(plan, topic, lambda value: board.take(decode(value)), until_end=False)
        finally:
            redrawing.cancel()
            live.update(board.render(console.size), refresh=True)


async def _redraw(live: Live, board: Board, console: Console) -> None:
    while True:
        live.update(board.render(console.size), refresh=True)
        await asyncio.sleep(REDRAW_SECONDS)
