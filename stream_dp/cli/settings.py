"""`stream-dp settings FILE`: the settings that hold and those that held, and how to go back to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from stream_dp.cli.command_line import command_line, hush_libraries
from stream_dp.cli.numbers import moment
from stream_dp.config.differences import Setting, differences
from stream_dp.config.models import ENTRIES
from stream_dp.config.plan import Plan
from stream_dp.config.planning import load_plan
from stream_dp.config.yaml_data import Data, escape, parse_yaml, write_yaml
from stream_dp.control.editions import Held, Posted, editions
from stream_dp.errors import BrokerError, ConfigError, Fault
from stream_dp.runtime.connecting import connect
from stream_dp.runtime.kafka.control_topic import read_history

SHOWN = 3
"""Changes of one record that are named in the table."""


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--show", "number", metavar="N", type=click.IntRange(1), help="Print settings N as a file to apply.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: everything, the sections too.")
def settings(file: Path, number: int | None, *, as_json: bool) -> None:
    """Show which settings of the application that FILE describes hold, and which held before.

    Every change stands in the control topic under a number, for ever: 1 is what the first worker's file said, the
    others came by `stream-dp apply` and `stream-dp tune`. Windows keep what they count and
    their noise: an edition of a view holds from one window of it on until another one does, and is in the view's
    records. Who sees what of all editions follows the newest settings.

    `--show N` prints settings N with what FILE says besides, as a file; put it beside FILE, whose folder the paths in
    it begin from. To go back:

    \b
    stream-dp settings app.yaml
    stream-dp settings app.yaml --show 3 > former.yaml
    stream-dp apply former.yaml

    Exit codes: 0 done; 1 the application was never started, or no broker is there; 2 there is no such number.
    """
    hush_libraries()
    plan = load_plan(file)
    known = asyncio.run(_history(plan))
    if not known:
        raise BrokerError(f"application {plan.id} was never started at {plan.broker.address}, so no settings hold yet")
    if number is not None:
        if number > len(known):
            raise ConfigError([Fault("--show", f"there are no settings {number}; the newest are {len(known)}")])
        click.echo(_as_file(file, known[number - 1]), nl=False)
    elif as_json:
        click.echo(json.dumps(_dumped(plan, known), indent=2, ensure_ascii=False))
    else:
        console = Console(highlight=False, markup=False)
        console.print(_numbers(known))
        console.print()
        console.print(_editions(editions(known)))
        console.print(f"\nTo go back: {command_line('settings', file)} --show N > former.yaml", soft_wrap=True)


async def _history(plan: Plan) -> list[Posted]:
    async with connect(plan.broker) as client:
        return await read_history(plan, client)


def _as_file(file: Path, posted: Posted) -> str:
    """Settings as a file: what is each machine's own is as the file has it, variables not put in."""
    own, _ = parse_yaml(file.read_text(encoding="utf-8"))
    data: dict[str, Data] = {key: value for key, value in own.items() if key not in ENTRIES}
    note = f", {' '.join(posted.note.split())}" if posted.note else ""
    head = f"# settings {posted.number}, posted {moment(posted.at_ms)}{note}\n"
    return head + write_yaml({**data, **{name: escape(entries) for name, entries in posted.sections.items()}})


def _changes(known: Sequence[Posted]) -> Iterator[list[Setting]]:
    """What each of the settings changed of those before."""
    yield []
    for former, latter in pairwise(known):
        yield differences(former.sections, latter.sections)


def _numbers(known: Sequence[Posted]) -> Table:
    table = _table("settings", "posted", "what changed", "note")
    for posted, changed in zip(known, _changes(known), strict=True):
        words = [str(setting) for setting in changed[:SHOWN]]
        words += [f"and {len(changed) - SHOWN} more"] if len(changed) > SHOWN else []
        newest = " (newest)" if posted is known[-1] else ""
        table.add_row(f"{posted.number}{newest}", moment(posted.at_ms), "\n".join(words), posted.note)
    return table


def _editions(held: Sequence[Held]) -> Table:
    table = _table("view", "edition", "settings", "from the window of", "until")
    for one in held:
        until = "" if one.until_ms is None else "never held" if one.never_holds else moment(one.until_ms)
        table.add_row(one.view, str(one.edition), str(one.settings), moment(one.from_ms), until)
    return table


def _dumped(plan: Plan, known: Sequence[Posted]) -> dict[str, Any]:
    return {
        "application": plan.id,
        "settings": [
            {
                "number": posted.number,
                "posted_ms": posted.at_ms,
                "posted": moment(posted.at_ms),
                "note": posted.note,
                "changed": [
                    {"path": one.path, "change": one.change, "before": one.before, "after": one.after}
                    for one in changed
                ],
                "begins_ms": posted.begins,
                "ends_ms": posted.ends,
                "sections": posted.sections,
            }
            for posted, changed in zip(known, _changes(known), strict=True)
        ],
        "editions": [
            {
                "view": one.view,
                "edition": one.edition,
                "settings": one.settings,
                "from_ms": one.from_ms,
                "until_ms": one.until_ms,
                "never_holds": one.never_holds,
            }
            for one in editions(known)
        ],
    }


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
