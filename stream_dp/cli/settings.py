"""`stream-dp settings FILE`: the settings in effect, all earlier ones, and how to go back to them."""

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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the sections.")
def settings(file: Path, number: int | None, *, as_json: bool) -> None:
    """Show the settings in effect of the application that FILE describes, and all earlier ones.

    Every change is in the control topic under a number: 1 is the file of the first worker, the others come from
    `stream-dp apply` and `stream-dp tune`. An edition of a view is in effect from one of its windows on until the next
    edition; its number is in the view's records. Who sees what of all editions follows the newest settings.

    `--show N` prints settings N as a file, with the rest of FILE. Put it beside FILE, because paths in it are relative
    to that folder. To go back:

    \b
    stream-dp settings app.yaml
    stream-dp settings app.yaml --show 3 > former.yaml
    stream-dp apply former.yaml

    Exit codes: 0 done; 1 the application was never started, or the broker does not answer; 2 no such number.
    """
    plan = load_plan(file)
    history = run(plan, lambda client: read_settings(plan, client))
    if number is not None:
        click.echo(as_file(file, history.numbered(number)), nl=False)
    elif as_json:
        click.echo(json.dumps(history.as_json(), indent=2, ensure_ascii=False))
    else:
        console = Console(highlight=False, markup=False)
        newest = history.known[-1]
        note = f" ({newest.note})" if newest.note else ""
        console.print(f"Settings {newest.number} of {plan.id} are in effect, posted {moment(newest.at_ms)}{note}.\n")
        console.print(_numbers(history))
        console.print()
        console.print(_editions(history.editions))
        console.print("\nTo go back to settings N, apply what this writes:")
        console.print(f"  {command_line('settings', file)} --show N > former.yaml", soft_wrap=True)


def _numbers(history: SettingsHistory) -> Table:
    table = _table("settings", "posted", "changes", "note")
    for posted, changed in zip(history.known, history.changes, strict=True):
        words = [str(setting) for setting in changed[:SHOWN]]
        words += [f"and {len(changed) - SHOWN} more"] if len(changed) > SHOWN else []
        table.add_row(str(posted.number), moment(posted.at_ms), "\n".join(words), posted.note)
    return table


def _editions(held: Sequence[Held]) -> Table:
    table = _table("view", "edition", "settings", "from window", "until")
    for one in held:
        until = "" if one.until_ms is None else "never in effect" if one.never_holds else moment(one.until_ms)
        table.add_row(one.view, str(one.edition), str(one.settings), moment(one.from_ms), until)
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
