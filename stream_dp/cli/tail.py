"""`stream-dp tail FILE VIEW AUDIENCE`: a release topic as a live table, as lines, or as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stream_dp.cli.command_line import MOMENT, effective, run
from stream_dp.cli.live_table import (
    NOT_SHOWN,
    Bars,
    Row,
    count_words,
    full_width,
    level_words,
    rest,
)
from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planning import load_plan
from stream_dp.errors import BrokerError, ConfigError, Fault
from stream_dp.operations.numbers import moment, price, printable, spent
from stream_dp.records.codec import AnyRecord, decode, outline
from stream_dp.records.history import History, Joiner, Seen
from stream_dp.records.models import ItemCount, Refusal, Release
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics

REDRAW_SECONDS = 0.2
STYLE = "cyan"
SHARPER = "green"
FEWEST_ROWS, WINDOW_ROWS, FRAME_ROWS = 3, 6, 10
KEYS_IN_A_LINE = 5


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("view")
@click.argument("audience")
@click.option("--json", "as_json", is_flag=True, help="Print each record as one line of JSON, as it is in the topic.")
@click.option("--until-end", is_flag=True, help="End at the present end of the topic; do not wait for more.")
@click.option(
    "--window",
    "at_ms",
    type=MOMENT,
    help="Show only the window of this day or moment.",
)
def tail(file: Path, view: str, audience: str, *, as_json: bool, until_end: bool, at_ms: int | None) -> None:
    """Follow what an AUDIENCE reads of a VIEW of the application that FILE describes.

    On a terminal: the newest window (or that of --window) with the 95 % interval of every count, and the windows before
    it. If a key may be shown because of its noise alone, its interval begins at 1. A sharper revision replaces the one
    before. In a pipe: a line for each release or refusal. A release in several records is shown when all are there.

    Exit codes: 0 done, or ended with Ctrl-C; 1 the broker does not answer, or there is no such topic or, with
    --until-end, no such window; 2 no such view or audience.
    """
    file_plan, console = load_plan(file), Console(highlight=False)

    async def follow(client: Client) -> None:
        plan = (await effective(file_plan, client)).plan
        found = _readable(plan, view, audience)
        topic = Topics.of(plan).release(view, audience)
        if await client.partitions(topic) is None:
            raise BrokerError(f"{plan.broker} has no topic {topic}. Start a worker: `stream-dp worker FILE`")
        start_ms = None if at_ms is None else found.window.released.start_of(at_ms)
        if as_json or not console.is_terminal:
            sink = click.echo if as_json else _lines()
            records = await _each(client, topic, sink, start_ms=start_ms, until_end=until_end)
        else:
            records = await _show(client, topic, Board(found, topic, at_ms), console, start_ms, until_end=until_end)
        if start_ms is not None and not records:
            raise BrokerError(
                f"topic {topic} has no release of the window of {moment(start_ms)}. The window may be open, too old, "
                "or before the first one: `stream-dp status FILE` says up to when windows are released"
            )

    with suppress(KeyboardInterrupt):
        run(file_plan, follow)


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
    client: Client, topic: str, sink: Callable[[bytes], Any], *, start_ms: int | None = None, until_end: bool
) -> int:
    """Hand every record of a topic to a sink, as bytes; those of one window alone if its start is given.

    Returns:
        How many were handed on.
    """
    records = 0
    async for record in client.follow([topic], until_end=until_end):
        value = record.value
        if value is not None and (start_ms is None or outline(value).window.start_ms == start_ms):
            records += 1
            sink(value)
    return records


def _lines() -> Callable[[bytes], None]:
    """Prints a line for each record, as soon as all its parts were there."""
    joiner = Joiner()

    def line(value: bytes) -> None:
        whole = joiner.take(decode(value))
        if whole is not None:
            click.echo(record_line(whole))

    return line


async def _show(
    client: Client, topic: str, board: Board, console: Console, start_ms: int | None, *, until_end: bool
) -> int:
    """Show the board, and return how many records of the chosen window there are."""
    records = 0

    def take(value: bytes) -> None:
        nonlocal records
        record = decode(value)
        records += start_ms in (None, record.window.start_ms)
        board.take(record)

    if until_end:
        await _each(client, topic, take, until_end=True)
        console.print(board.render(console.size))
        return records
    with Live(console=console, auto_refresh=False) as live:
        redrawing = asyncio.create_task(_redraw(live, board, console))
        try:
            await _each(client, topic, take, until_end=False)
        finally:
            redrawing.cancel()
            live.update(board.render(console.size), refresh=True)
    return records


async def _redraw(live: Live, board: Board, console: Console) -> None:
    while True:
        live.update(board.render(console.size), refresh=True)
        await asyncio.sleep(REDRAW_SECONDS)


class Board:
    """The state of the screen: takes records, renders what it knows."""

    def __init__(self, view: ViewPlan, topic: str, at_ms: int | None = None) -> None:
        """Set up an empty board.

        Args:
            view: the view.
            topic: the topic that is read.
            at_ms: show the window of this moment; None for the newest.
        """
        self._view = view
        self._topic = topic
        self._at_ms = at_ms
        self._history = History()

    def take(self, record: AnyRecord) -> None:
        """Add a record of the topic."""
        self._history.take(record)

    def render(self, size: ConsoleDimensions) -> RenderableType:
        """The screen, to fit a terminal of a size."""
        newest = self._history.newest
        if newest is None:
            return Text(f"{self._topic}: no release yet. Ctrl-C ends.", "dim")
        windows = self._history.windows(self._view.name, newest.audience)
        start = self._chosen(windows)
        chosen = windows.get(start)
        rows = max(FEWEST_ROWS, size.height - FRAME_ROWS - min(WINDOW_ROWS, len(windows)))
        head = Text.assemble((self._topic, "bold"), ("    Ctrl-C ends", "dim"))
        body = Text("no release of this window yet", "dim") if chosen is None else _body(chosen, rows)
        newer = None if chosen is None else chosen.release or chosen.refusal
        end = self._view.window.released.end(start) if newer is None else newer.window.end_ms
        title = f"{moment(start)} to {moment(end)}"
        panel = Panel(body, title=title, border_style=STYLE, padding=(0, 1))
        return Group(head, panel, _list(windows, start), _account(newest))

    def _chosen(self, windows: dict[int, Seen]) -> int:
        if self._at_ms is None:
            return max(windows)
        return self._view.window.released.start_of(self._at_ms)


def record_line(record: AnyRecord) -> str:
    """A record in one line, for a pipe."""
    until = "" if record.blocks is None else f" to {moment(record.window.end_ms)}"
    head = f"{moment(record.window.start_ms)}{until} revision {record.revision}"
    total = f"period total {price(record.privacy.period)}"
    if isinstance(record, Refusal) and record.reason == "lost":
        return f"{head}: lost before it was released; {total}"
    if isinstance(record, Refusal):
        return f"{head}: refused, {record.level.name} would cost {price(record.requested)}; {total}"
    keys = [
        f"{printable(entry.item)} {entry.count}" + (f" ({remark})" if (remark := record.remark(entry)) else "")
        for entry in record.items[:KEYS_IN_A_LINE]
    ]
    more = rest(record, KEYS_IN_A_LINE)
    found = ", ".join(keys) + (f", {more}" if more else "")
    return f"{head}: {level_words(record)}; {found or 'nothing shown'}; {total}"


def _body(seen: Seen, rows: int) -> RenderableType:
    """One window: its level, what it replaced, its keys."""
    parts: list[RenderableType] = []
    if seen.refusal is not None:
        parts.append(_refused(seen.refusal))
    release = seen.release
    if release is None:
        return Group(*parts)
    parts.append(Text.assemble((level_words(release), "bold"), f"   {release.extent()}"))
    if release.revision > 1:
        parts.append(_replaced(release, seen.before))
    parts.append(_keys(release, seen.before, rows))
    if more := rest(release, rows):
        parts.append(Text(more, "dim"))
    return Group(*parts)


def _keys(release: Release, before: Release | None, rows: int) -> Bars:
    lines = [
        Row(
            entry.item,
            entry.count,
            count_words(release, entry.count) + _remark(release, entry) + _was(entry.item, before),
        )
        for entry in release.items[:rows]
    ]
    return Bars(lines, release.interval, full_width([release]), STYLE)


def _remark(release: Release, entry: ItemCount) -> str:
    """What the release says of a key beside its count."""
    remark = release.remark(entry)
    return f"   {remark}" if remark else ""


def _was(key: str, before: Release | None) -> str:
    """What the replaced release said of a key."""
    if before is None:
        return ""
    count = next((entry.count for entry in before.items if entry.item == key), None)
    return f"   {NOT_SHOWN} before" if count is None else f"   was {count_words(before, count)}"


def _replaced(release: Release, before: Release | None) -> Text:
    words = f"revision {release.revision}"
    if before is not None:
        words += f" replaces revision {before.revision}: {level_words(before)}, {before.extent()}"
    return Text(words, SHARPER)


def _refused(refusal: Refusal) -> Text:
    if refusal.reason == "lost":
        return Text("lost by a failure of the system before it was released", "red")
    return Text(
        f"refused: {refusal.level.name} would cost {price(refusal.requested)}, more than the ledger has left", "red"
    )


def _list(windows: dict[int, Seen], chosen: int) -> Table:
    """The newest windows, newest first."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=True)
    for heading in ("window", "revision", "level"):
        table.add_column(heading, no_wrap=heading == "window", overflow="fold")
    for heading in ("epsilon", "95 %", "shown", "period total"):
        table.add_column(heading, justify="right", overflow="fold")
    for start in sorted(windows, reverse=True)[:WINDOW_ROWS]:
        seen, style = windows[start], "bold" if start == chosen else ""
        release = seen.release
        if release is None:
            table.add_row(moment(start), "", Text("refused", "red"), style=style)
            continue
        revision = Text(str(release.revision))
        if release.revision > 1:
            revision = Text(f"{release.revision}, sharper", SHARPER)
        table.add_row(
            moment(start),
            revision,
            Text.assemble(release.level.name, (", sharper one refused", "red") if seen.refusal is not None else ""),
            spent(release.level.epsilon),
            f"±{release.noise_interval_95}",
            str(len(release.items)),
            spent(release.privacy.period.epsilon),
            style=style,
        )
    return table


def _account(newest: AnyRecord) -> Text:
    ledger = newest.ledger
    return Text(
        f"Ledger {ledger.name} ({ledger.population}), period until {moment(ledger.period.end_ms)}: {newest.audience} "
        f"has seen {price(newest.privacy.period)}; the budget of all views and audiences is {price(ledger.budget)}",
        "dim",
    )
