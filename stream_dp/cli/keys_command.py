"""`stream-dp keys FILE`: the keys of an application; `keys rotate` adds one, `keys retire` deletes a secret."""

from __future__ import annotations

import os
from pathlib import Path

import click

from stream_dp.cli.command_line import FILE, short_path
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.operations import keys as operations
from stream_dp.runtime.key_file import load_keys, read_keys, read_lines


class _Keys(click.Group):
    """Takes a file in place of a command as the file whose keys are listed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Keys, subcommand_metavar="[list|new|rotate|retire] FILE")
def keys() -> None:
    """List and change the keys of the application that FILE describes.

    The `key_file` of an application has secrets. The noise of coarser levels is locked with one of them and a secret
    of each window, which workers store. Every window keeps the key that it was sealed with; new windows use the newest
    key. The first key names the application on its cluster for ever.

    \b
    stream-dp keys app.yaml             list ids, when they were made, and which is in use; never a secret
    stream-dp keys new app.yaml         make the key file before the first worker does, to hand it to all of them
    stream-dp keys rotate app.yaml      add a key; new windows use it
    stream-dp keys retire app.yaml ID   delete the secret of an earlier key; its windows are never sharpened again

    Exit codes: 0 done; 1 not confirmed; 2 wrong usage, no key file, or one that cannot be read or changed.
    """


@keys.command("list")
@FILE
def list_keys(file: Path) -> None:
    """List ids, when the keys were made, and which is in use. `stream-dp keys FILE` does the same."""
    path = load_plan(file).key_file
    lines, (newest, _) = read_lines(path), read_keys(path).newest
    click.echo(f"keys in {short_path(path)}, oldest first")
    for line in lines:
        former = "retired" if line.key.secret is None else "for windows sealed with it"
        state = "in use" if line.key.id == newest else former
        click.echo(f"  {line.key.id}  made {line.made or 'at an unknown time   '}  {state}")


@keys.command()
@FILE
def new(file: Path) -> None:
    """Make the key file. Without this the first worker makes it; all workers need the same one."""
    path = load_plan(file).key_file
    if os.path.lexists(path):
        raise ConfigError(f"{path} is there already; nothing was changed", "key_file")
    click.echo(
        f"Key {load_keys(path).newest[0]} was made in {short_path(path)}. Give every worker this file, and back it up."
    )


@keys.command()
@FILE
def rotate(file: Path) -> None:
    """Add a key; restarted workers seal new windows with it.

    Released windows keep their key, which the file keeps as long as they can be sharpened. Whoever has that key and
    what workers store of such a window can read every level of it. So a rotation protects new windows only.
    """
    path = load_plan(file).key_file
    click.echo(f"Key {operations.rotate(path)} was added to {short_path(path)}. Next:")
    click.echo("  1. Copy the file to every machine with a worker, and to your backup.")
    click.echo("  2. Restart the workers, one by one or all at once. Workers with the new file wait until the last one")
    click.echo("     with the old file has ended. Windows sealed from then on use the new key.")


@keys.command()
@FILE
@click.argument("key_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
def retire(file: Path, key_id: str, *, yes: bool) -> None:
    """Delete the secret of the key ID, which must not be in use; its id stays in the file.

    Its windows are never sharpened again: grants and new audiences skip them. What was released stays. A key that is
    not in the file is recorded as lost, with the same effect; do that if a worker does not start because it lacks a key
    that nobody has any more. If the whole file is lost, this makes a new one with a new key.
    """
    path = load_plan(file).key_file
    is_lost = not os.path.lexists(path)
    known = None if is_lost else operations.retirable(read_lines(path), key_id)
    what = f"deletes the secret of key {key_id} from" if known else f"records key {key_id} as lost in"
    anew = " a new file with a new key:" if is_lost else ""
    click.echo(f"This {what}{anew} {short_path(path)}. Windows sealed with it are never sharpened again.")
    click.echo("What was released of them stays. Only a copy of the file can undo this.")
    if not yes:
        click.confirm("Retire it?", abort=True)
    (operations.replace_lost if is_lost else operations.retire)(path, key_id)
    click.echo("Done. Copy the file to every machine with a worker, restart the workers, and delete old copies of it.")
