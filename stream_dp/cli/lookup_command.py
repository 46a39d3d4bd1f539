"""`stream-dp lookup`: the counts of some keys in the newest release of a view, or in that of a chosen window."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from stream_dp.cli.command_line import FILE, MOMENT, run_effective
from stream_dp.cli.display import level_words, printable
from stream_dp.config.plan import Plan
from stream_dp.errors import BrokerError
from stream_dp.operations import check_topic, named
from stream_dp.records.codec import parse
from stream_dp.records.history import History
from stream_dp.records.models import Release
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import moment


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
        found, topic = named("view", view, plan.views, "view"), Topics.of(plan).release(view, audience)
        named(f"audience of {view}", audience, found.audiences, "audience")
        await check_topic(topic, plan, client)
        start_ms = None if at_ms is None else found.window.shape.released.start_of(at_ms)
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
    counts = {key: release.count_of(key) for key in dict.fromkeys(keys)}
    ends = {key: None if count is None else release.interval(count) for key, count in counts.items()}
    if as_json:
        found = [{"item": key, "count": count, "interval": ends[key]} for key, count in counts.items()]
        click.echo(json.dumps({"window": release.window.model_dump(), "revision": release.revision, "items": found}))
        return
    table = Table("key", "count", "95 % interval", box=None, header_style="dim")
    for key, count in counts.items():
        least, most = ends[key] or (0, 0)
        table.add_row(
            printable(key), *(["not shown", ""] if count is None else [f"{count:,}", f"{least:,} to {most:,}"])
        )
    console = Console(highlight=False)
    console.print(
        f"{moment(release.window.start_ms)} to {moment(release.window.end_ms)}: {level_words(release)}", style="dim"
    )
    console.print(table)
