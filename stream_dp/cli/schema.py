"""`stream-dp schema [NAME]`: the JSON Schema of what is published."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.syntax import Syntax

from stream_dp.records import codec as records


@click.command()
@click.argument("name", type=click.Choice(records.SCHEMA_NAMES), default="record")
@click.option("--json", "as_json", is_flag=True, help="Print the bare JSON, also on a terminal.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write every schema to this folder, one file each, instead of printing one.",
)
def schema(name: str, *, as_json: bool, output: Path | None) -> None:
    """Print the JSON Schema of the public records, and of the operators' accounts.

    NAME is `record` (anything on a topic <application>.releases.<view>.<audience>), `refusal`, a kind of release, or
    `entry` (the internal topic <application>-accounts). They admit fields that they do not name: a later stream-dp may
    add some, and readers pass over what they do not know.

    Exit codes: 0 done, 1 the folder cannot be written, 2 wrong usage.
    """
    if output is not None:
        _write(output)
        return
    text = _text(name)
    console = Console()
    if as_json or not console.is_terminal:
        click.echo(text)
    else:
        console.print(Syntax(text, "json", background_color="default"))


def _write(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in records.SCHEMA_NAMES:
            file = folder / f"{name}.schema.json"
            file.write_text(_text(name) + "\n", encoding="utf-8")
            click.echo(str(file))
    except OSError as error:
        raise click.ClickException(f"cannot write to {folder}: {error.strerror}") from error


def _text(name: str) -> str:
    return json.dumps(records.schema(name), indent=2, ensure_ascii=False)
