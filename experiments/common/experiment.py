"""The frame of a command that recomputes a paper: its options, its progress, its picture and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

Command = Callable[..., Any]
FAILED = 1
"""Exit code when a number did not come out."""
REQUIREMENTS = "experiments/requirements.txt"


@dataclass(frozen=True, slots=True)
class Claim:
    """Something the paper says, and whether it came out."""

    text: str
    holds: bool


def folder_option(command: Command) -> Command:
    """Add the option that says where the picture goes."""
    return click.option(
        "--folder",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("reproduced"),
        show_default=True,
        help="Where the picture goes, as PNG; made if it is missing.",
    )(command)


def data_option(files: str) -> Callable[[Command], Command]:
    """Return the option that names the folder of published data."""
    return click.option(
        "--data",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help=f"The folder of {files}. Otherwise data are made up.",
    )


@contextmanager
def matplotlib_needed() -> Iterator[None]:
    """Turn a missing matplotlib into a message; goes around the import of a picture.

    Raises:
        ClickException: something of it is missing, with what to do.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "a module").partition(".")[0]
        raise click.ClickException(f"{missing} is missing: run `pip install -r {REQUIREMENTS}`") from error


@contextmanager
def drawing(folder: Path, name: str) -> Iterator[Path]:
    """Make the folder and give the picture's file; goes around the drawing.

    Raises:
        ClickException: the file cannot be written.
    """
    file = folder / f"{name}.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield file
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror}") from error


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on the standard error while something runs; gives a function that moves it on by some steps."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda steps: progress.advance(task, steps)


def tell_verdict(console: Console, text: str, output: Path, *, reproduced: bool) -> None:
    """Print the last lines: whether it was reproduced, and where the picture is."""
    console.print(f"\n{text}", style="green" if reproduced else "bold red")
    console.print(f"Picture: {output}", soft_wrap=True, markup=False)


def plain_table(*headings: str) -> Table:
    """Return a table without lines, its first column to the left and the others to the right."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.add_column(headings[0], no_wrap=True)
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def tell_claims(console: Console, claims: Sequence[Claim], output: Path) -> None:
    """Print each claim of the paper, whether it came out, and the last lines."""
    console.print()
    for claim in claims:
        console.print(f"{'✓' if claim.holds else '✗'} {claim.text}", style=None if claim.holds else "bold red")
    held = sum(claim.holds for claim in claims)
    reproduced = held == len(claims)
    verdict = "Reproduced: all" if reproduced else f"NOT reproduced: {held} of"
    tell_verdict(console, f"{verdict} {len(claims)} claims came out again.", output, reproduced=reproduced)
