"""`stream-dp keys FILE`: the keys of an application; `keys rotate` adds one, `keys retire` deletes a secret."""

from __future__ import annotations

import os
from pathlib import Path

import click

from stream_dp.cli.command_line import short_path
from stream_dp.config.planning import load_plan
from stream_dp.operations import keys as key_operations
from stream_dp.runtime.key_file import read_keys, read_lines


class _Keys(click.Group):
    """Takes a file where the name of a command would stand as the file whose keys are listed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


_file = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group(cls=_Keys, subcommand_metavar="[list|rotate|retire] FILE")
def keys() -> None:
    """List and change the keys of the application that FILE describes.

    The `key_file` of an application holds secrets that the noise of coarser levels is derived from, each together with
    a secret of the window's own, which workers store. Every window is sealed with one of them, for ever; windows to
    come with the newest. The first names the application on its cluster, for ever.

    \b
    stream-dp keys app.yaml             ids, when they were made, which is in use; never a secret
    stream-dp keys rotate app.yaml      add a key: a stolen one is no part of windows to come
    stream-dp keys retire app.yaml ID   delete the secret of a former one: its windows are never sharpened again

    Exit codes: 0 done, 1 not agreed to, 2 wrong usage, no key file, or one that cannot be read or changed.
    """


@keys.command("list")
@_file
def list_keys(file: Path) -> None:
    """Show ids, when the keys were made, and which is in use; this is what `stream-dp keys FILE` does."""
    path = load_plan(file).key_file
    lines, (newest, _) = read_lines(path), read_keys(path).newest
    click.echo(f"keys in {short_path(path)}, oldest first")
    for line in lines:
        former = "retired" if line.key.secret is None else "for the windows that were sealed with it"
        state = "in use" if line.key.id == newest else former
        click.echo(f"  {line.key.id}  made {line.made or 'at an unknown time   '}  {state}")


@keys.command()
@_file
def rotate(file: Path) -> None:
    """Add a key; workers that are started with it seal windows to come with it.

    Windows that were released stay under their own key, which the file keeps for as long as they can be sharpened.
    Somebody who has that key and what workers store of such a window can read every level of it: a rotation protects
    windows to come, no others.
    """
    path = load_plan(file).key_file
    click.echo(f"key {key_operations.rotate(path)} was added to {short_path(path)}. Now:")
    click.echo("  1. Copy the file to every machine with a worker, and to where you keep a copy.")
    click.echo(
        "  2. Restart the workers, one after another or all at once. Those with the new file wait until the last"
    )
    click.echo("     one with the former has ended; windows that are sealed from then on are sealed with the new key.")


@keys.command()
@_file
@click.argument("key_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
def retire(file: Path, key_id: str, *, yes: bool) -> None:
    """Delete the secret of the key ID, which must not be the one in use; its id stays in the file.

    Windows that were sealed with it are never sharpened again: grants and new audiences pass over them. What was
    released stays. A key that the file does not hold is written down as lost, with the same consequence: that is the
    way on where a worker does not start because it lacks a key that nobody has any more. Where the whole file is lost,
    this makes a new one, with a new key.
    """
    path = load_plan(file).key_file
    is_lost = not os.path.lexists(path)
    known = None if is_lost else key_operations.retirable(read_lines(path), key_id)
    what = f"deletes the secret of key {key_id} from" if known else f"writes key {key_id} down as lost in"
    anew = " a new file, with a new key:" if is_lost else ""
    click.echo(f"This {what}{anew} {short_path(path)}. Windows that were sealed with it are never sharpened again;")
    click.echo("what was released of them stays. It cannot be undone but by a copy of the file.")
    if not yes:
        click.confirm("Retire it?", abort=True)
    (key_operations.replace_lost if is_lost else key_operations.retire)(path, key_id)
    click.echo(
        "Done. Copy the file to every machine with a worker and restart the workers; delete former copies of it."
    )
