"""Published records: `tail` shows a release topic, `lookup` the counts of some keys, `schema` the JSON Schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stream_dp.cli.command_line import FILE, MOMENT, run_effective
from stream_dp.cli.display import (
    NOT_SHOWN,
    STYLE,
    Bars,
    Row,
    cost_words,
    count_words,
    full_width,
    level_price,
    level_words,
    price,
    printable,
    rest,
)
from stream_dp.cli.output import write_data
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import BrokerError
from stream_dp.operations import check_topic, named
from stream_dp.records.codec import SCHEMA_NAMES, AnyRecord, outline, parse
from stream_dp.records.codec import schema as json_schema
from stream_dp.records.history import History, Joiner, Seen
from stream_dp.records.models import ItemCount, Refusal, Release
from stream_dp.records.view_record import ViewRecord
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import format_duration, moment

REDRAW_SECONDS = 0.2
SHARPER = "green"
FEWEST_ROWS, WINDOW_ROWS, FRAME_ROWS = 3, 6, 10
KEYS_IN_A_LINE = 5


@click.command()
@FILE
@click.argument("view")
@click.argument("audience")
@click.option("--json", "as_json", is_flag=True, help="Print each record as one line of JSON, as it is in the topic.")
@click.option("--until-end", is_flag=True, help="End at the present end of the topic; do not wait for more.")
@click.option("--window", "at_ms", type=MOMENT, help="Show only the window of this day or moment.")
def tail(file: Path, view: str, audience: str, *, as_json: bool, until_end: bool, at_ms: int | None) -> None:
    """Follow what an AUDIENCE reads of a VIEW of the application that FILE describes.

    On a terminal: the newest window (or that of --window) with the 95 % interval of every count, and the windows before
    it. If a key may be shown because of its noise alone, its interval begins at 1. A sharper revision replaces the one
    before. In a pipe: a line for each release or refusal. A release in several records is shown when all are there. A
    line above says what is counted, from the record of the view.

    Exit codes: 0 done, or ended with Ctrl-C; 1 the broker does not answer, or there is no such topic or, with
    --until-end, no such window; 2 no such view or audience.
    """
    console = Console(highlight=False)

    async def follow(plan: Plan, client: Client) -> None:
        found, topic, start_ms = await _topic(view, audience, at_ms, plan, client)
        board = None if as_json or not console.is_terminal else Screen(found, topic, at_ms)
        joiner, records = Joiner(), 0
        with _shown(board, console, once=until_end):
            async for record in client.follow([topic], until_end=until_end):
                value = record.value
                if value is None:
                    continue
                what = None if start_ms is None else outline(value)
                is_chosen = start_ms is None or (what is not None and what.window.start_ms == start_ms)
                records += is_chosen
                if as_json:
                    if is_chosen:
                        click.echo(value)
                    continue
                found_here = parse(value)
                if board is not None:
                    board.history.take(found_here)
                elif isinstance(found_here, ViewRecord):
                    click.echo(view_line(found_here))
                elif is_chosen and (whole := joiner.take(found_here)) is not None:
                    click.echo(record_line(whole))
        if start_ms is not None and not records:
            raise BrokerError(
                f"topic {topic} has no release of the window of {moment(start_ms)}. The window may be open, too old, "
                "or before the first one: `stream-dp status FILE` says up to when windows are released"
            )

    with suppress(KeyboardInterrupt):
        run_effective(file, follow)


async def _topic(
    view: str, audience: str, at_ms: int | None, plan: Plan, client: Client
) -> tuple[ViewPlan, str, int | None]:
    """Return a view, the topic of its releases for an audience, and the start of the window of a moment, if given."""
    found, topic = named("view", view, plan.views, "view"), Topics.of(plan).release(view, audience)
    named(f"audience of {view}", audience, found.audiences, "audience")
    await check_topic(topic, plan, client)
    return found, topic, None if at_ms is None else found.window.shape.released.start_of(at_ms)


@contextmanager
def _shown(board: Screen | None, console: Console, *, once: bool) -> Iterator[None]:
    """Show a board, if there is one: all the time while records are read, or once at the end."""
    if board is None:
        yield
    elif once:
        yield
        console.print(board.render(console.size))
    else:
        with Live(console=console, auto_refresh=False) as live:
            redrawing = asyncio.create_task(_redraw(live, board, console))
            try:
                yield
            finally:
                redrawing.cancel()
                live.update(board.render(console.size), refresh=True)


async def _redraw(live: Live, board: Screen, console: Console) -> None:
    while True:
        live.update(board.render(console.size), refresh=True)
        await asyncio.sleep(REDRAW_SECONDS)


@dataclass
class Screen:
    """State of the screen: takes records and renders them.

    Attributes:
        view: the view.
        topic: the topic that is read.
        at_ms: show the window of this moment; None for the newest.
        history: the records.
    """

    view: ViewPlan
    topic: str
    at_ms: int | None = None
    history: History = field(default_factory=History)

    def render(self, size: ConsoleDimensions) -> RenderableType:
        """Return the screen for a terminal of a size."""
        newest, about = self.history.newest, [*self.history.views.values()]
        words = [Text(view_line(about[0]), "dim")] if about else []
        if newest is None:
            return Group(*words, Text(f"{self.topic}: no release yet. Ctrl-C ends.", "dim"))
        windows = self.history.windows(self.view.name, newest.audience)
        shape = self.view.window.shape.released
        start = max(windows) if self.at_ms is None else shape.start_of(self.at_ms)
        chosen = windows.get(start)
        rows = max(FEWEST_ROWS, size.height - FRAME_ROWS - min(WINDOW_ROWS, len(windows)))
        head = Text.assemble((self.topic, "bold"), ("    Ctrl-C ends", "dim"))
        body = Text("no release of this window yet", "dim") if chosen is None else _body(chosen, rows)
        newer = None if chosen is None else chosen.release or chosen.refusal
        end = shape.end(start) if newer is None else newer.window.end_ms
        title = f"{moment(start)} to {moment(end)}"
        panel = Panel(body, title=title, border_style=STYLE, padding=(0, 1))
        return Group(head, *words, panel, _list(windows, start), _account(newest))


def view_line(record: ViewRecord) -> str:
    """Return the record of a view as one line: what is counted, and from when on."""
    item = f" An item is {printable(record.item_meaning)}." if record.item_meaning else ""
    every_ms = record.window.every_ms
    every = "" if every_ms in (None, record.window.size_ms) else f" every {format_duration(every_ms)}"
    return (
        f"{printable(record.title)}: counts {printable(record.unit)}, {record.kind} of windows of {record.window.size}"
        f"{every}, edition {record.edition.number} from {moment(record.edition.first_window_ms)} on.{item}"
    )


def record_line(record: AnyRecord) -> str:
    """Return a record as one line, for a pipe."""
    until = "" if record.blocks is None else f" to {moment(record.window.end_ms)}"
    head = f"{moment(record.window.start_ms)}{until} revision {record.revision}"
    total = f"period total {price(record.privacy.period)}"
    if isinstance(record, Refusal) and record.reason == "lost":
        return f"{head}: lost before it was released; {total}"
    if isinstance(record, Refusal):
        return f"{head}: refused, {record.level.name} would cost {price(record.requested)}; {total}"
    keys = [
        printable(entry.item)
        + ("" if entry.count is None else f" {entry.count}")
        + (f" ({remark})" if (remark := record.remark(entry)) else "")
        for entry in record.items[:KEYS_IN_A_LINE]
    ]
    more = rest(record, KEYS_IN_A_LINE)
    found = ", ".join(keys) + (f", {more}" if more else "")
    return f"{head}: {level_words(record)}{_describe_interruption(record)}; {found or record.empty}; {total}"


def _describe_interruption(release: Release) -> str:
    return ", interrupted by outages" if release.interrupted else ""


def _body(seen: Seen, rows: int) -> RenderableType:
    """Return one window: its level, the replaced level, its keys."""
    parts: list[RenderableType] = []
    if seen.refusal is not None:
        parts.append(_refused(seen.refusal))
    release = seen.release
    if release is None:
        return Group(*parts)
    parts.append(
        Text.assemble((level_words(release), "bold"), f"   {release.extent()}{_describe_interruption(release)}")
    )
    if release.revision > 1:
        parts.append(_replaced(release, seen.before))
    parts.append(_keys(release, seen.before, rows))
    if more := rest(release, rows):
        parts.append(Text(more, "dim"))
    return Group(*parts)


def _keys(release: Release, before: Release | None, rows: int) -> Bars:
    lines = []
    for entry in release.items[:rows]:
        ends, words = None, ""
        if isinstance(entry, ItemCount):
            ends, words = release.interval(entry), count_words(release, entry)
        label = [words, release.remark(entry), _was(entry.item, before)]
        lines.append(Row(entry.item, ends, "   ".join(filter(None, label))))
    return Bars(lines, full_width(release))


def _was(key: str, before: Release | None) -> str:
    """Return the count of a key in the replaced release."""
    if before is None:
        return ""
    entry = before.entry(key)
    return f"{NOT_SHOWN} before" if entry is None else f"was {count_words(before, entry)}"


def _replaced(release: Release, before: Release | None) -> Text:
    words = f"revision {release.revision}"
    if before is not None:
        words += f" replaces revision {before.revision}: {level_words(before)}, {before.extent()}"
    return Text(words, SHARPER)


def _refused(refusal: Refusal) -> Text:
    words = f"refused: {refusal.level.name} would cost {price(refusal.requested)}, more than the ledger has left"
    return Text("lost by a failure of the system before it was released" if refusal.reason == "lost" else words, "red")


def _list(windows: dict[int, Seen], chosen: int) -> Table:
    """Return a table of the newest windows, newest first."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=True)
    for heading in ("window", "revision", "level"):
        table.add_column(heading, no_wrap=heading == "window", overflow="fold")
    releases = [seen.release for seen in windows.values() if seen.release is not None]
    unit = "rho" if any(release.level.epsilon is None for release in releases) else "epsilon"
    for heading in (unit, "95 %", "shown", "period total"):
        table.add_column(heading, justify="right", overflow="fold")
    for start in sorted(windows, reverse=True)[:WINDOW_ROWS]:
        seen, style = windows[start], "bold" if start == chosen else ""
        release = seen.release
        if release is None:
            table.add_row(moment(start), "", Text("refused", "red"), style=style)
            continue
        is_sharper = release.revision > 1
        revision = Text(f"{release.revision}, sharper", SHARPER) if is_sharper else Text(str(release.revision))
        refused = (", sharper one refused", "red") if seen.refusal is not None else ""
        noise = (level_price(release), f"±{release.noise_interval_95}")
        shown, total = str(len(release.items)), cost_words(release.privacy.period)
        level = Text.assemble(release.level.name, refused)
        table.add_row(moment(start), revision, level, *noise, shown, total, style=style)
    return table


def _account(newest: AnyRecord) -> Text:
    ledger = newest.ledger
    return Text(
        f"Ledger {ledger.name} ({ledger.population}), period until {moment(ledger.period.end_ms)}: {newest.audience} "
        f"has seen {price(newest.privacy.period)}; the budget of all views and audiences is {price(ledger.budget)}",
        "dim",
    )


@click.command()
@FILE
@click.argument("view")
@click.argument("audience")
@click.argument("keys", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--window", "at_ms", type=MOMENT, help="Of the window of this day or moment; by default the newest.")
def lookup(file: Path, view: str, audience: str, keys: Sequence[str], *, as_json: bool, at_ms: int | None) -> None:
    """Show the counts of KEYS in a release of VIEW for AUDIENCE, with 95 % intervals.

    A view of kind `lookup` answers for every key, also for one that nobody has: such a key gets a small count by noise
    alone. Asking costs no budget. Views of other kinds show the keys that they release; others are "not shown".

    Exit codes: 0 done; 1 the broker does not answer, or there is no such topic, window or release; 2 no such view or
    audience.
    """

    async def find(plan: Plan, client: Client) -> Release:
        _, topic, start_ms = await _topic(view, audience, at_ms, plan, client)
        history = History()
        async for record in client.follow([topic], until_end=True):
            if record.value is not None:
                history.take(parse(record.value))
        windows = history.windows(view, audience)
        released = {start: seen.release for start, seen in windows.items() if seen.release is not None}
        release = released.get(max(released, default=0) if start_ms is None else start_ms)
        if release is None:
            which = "has no release yet" if start_ms is None else f"has no release of the window of {moment(start_ms)}"
            raise BrokerError(f"topic {topic} {which}; `stream-dp status FILE` says up to when windows are released")
        return release

    _, release = run_effective(file, find)
    entries = {key: release.entry(key) for key in dict.fromkeys(keys)}
    counts = {key: None if entry is None else entry.count for key, entry in entries.items()}
    ends = {key: None if entry is None else release.interval(entry) for key, entry in entries.items()}
    if as_json:
        found = [{"item": key, "count": count, "interval": ends[key]} for key, count in counts.items()]
        click.echo(json.dumps({"window": release.window.model_dump(), "revision": release.revision, "items": found}))
        return
    table = Table("key", "count", "95 % interval", box=None, header_style="dim")
    for key, count in counts.items():
        least, most = ends[key] or (0, 0)
        words = ["shown" if release.shows(key) else NOT_SHOWN, ""]
        table.add_row(printable(key), *(words if count is None else [f"{count:,}", f"{least:,} to {most:,}"]))
    console = Console(highlight=False)
    console.print(
        f"{moment(release.window.start_ms)} to {moment(release.window.end_ms)}: {level_words(release)}", style="dim"
    )
    console.print(table)


@click.command()
@click.argument("name", type=click.Choice(SCHEMA_NAMES), default="record")
@click.option("--json", "as_json", is_flag=True, help="Print the bare JSON, also on a terminal.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write every schema to this folder, one file each, instead of printing one.",
)
def schema(name: str, *, as_json: bool, output: Path | None) -> None:
    """Print the JSON Schema of the public records, and of the operators' accounts.

    NAME is `record` (any record of a topic <application>.releases.<view>.<audience>), `view`, `refusal`, a kind of
    release, or `entry` (the internal topic <application>-accounts). Unknown fields are valid: a later stream-dp may add
    some. Readers must ignore them.

    Exit codes: 0 done, 1 the folder cannot be written, 2 wrong usage.
    """
    if output is not None:
        _write_schemas(output)
        return
    if as_json:
        write_data(_schema_text(name))
    else:
        Console().print_json(_schema_text(name))


def _write_schemas(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in SCHEMA_NAMES:
            file = folder / f"{name}.schema.json"
            file.write_text(_schema_text(name) + "\n", encoding="utf-8")
            click.echo(str(file))
    except OSError as error:
        raise click.ClickException(f"cannot write to {folder}: {error.strerror}") from error


def _schema_text(name: str) -> str:
    return json.dumps(json_schema(name), indent=2, ensure_ascii=False)
