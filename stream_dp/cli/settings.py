"""`stream-dp settings FILE`: the settings that hold and those that held, and how to go back to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from stream_dp.cli.command_line import command_line, run
from stream_dp.config.planning import load_plan
from stream_dp.control.editions import Held
from stream_dp.operations.numbers import moment
from stream_dp.operations.settings import SettingsHistory, as_file, read_settings

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
    plan = load_plan(file)
    history = run(plan, lambda client: read_settings(plan, client))
    if number is not None:
        click.echo(as_file(file, history.numbered(number)), nl=False)
    elif as_json:
        click.echo(json.dumps(history.as_json(), indent=2, ensure_ascii=False))
    else:
        console = Console(highlight=False, markup=False)
        console.print(_numbers(history))
        console.print()
        console.print(_editions(history.editions))
        console.print(f"\nTo go back: {command_line('settings', file)} --show N > former.yaml", soft_wrap=True)


def _numbers(history: SettingsHistory) -> Table:
    table = _table("settings", "posted", "what changed", "note")
    for posted, changed in zip(history.known, history.changes, strict=True):
        words = [str(setting) for setting in changed[:SHOWN]]
        words += [f"and {len(changed) - SHOWN} more"] if len(changed) > SHOWN else []
        newest = " (newest)" if posted is history.known[-1] else ""
        table.add_row(f"{posted.number}{newest}", moment(posted.at_ms), "\n".join(words), posted.note)
    return table


def _editions(held: Sequence[Held]) -> Table:
    table = _table("view", "edition", "settings", "from the window of", "until")
    for one in held:
        until = "" if one.until_ms is None else "never held" if one.never_holds else moment(one.until_ms)
        table.add_row(one.view, str(one.edition), str(one.settings), moment(one.from_ms), until)
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
