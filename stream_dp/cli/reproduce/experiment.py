"""What the commands that run a published experiment again have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Command = Callable[..., Any]


def output_option(default: str) -> Callable[[Command], Command]:
    """The option that says where the picture goes."""
    return click.option(
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        default=Path(default),
        show_default=True,
        help="Where the picture goes, as PNG.",
    )


@contextmanager
def extra_needed() -> Iterator[None]:
    """Around imports of what only the extra `analysis` installs.

    Raises:
        ClickException: something of it is missing, with what to do.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'stream-dp[analysis]'") from error


@contextmanager
def drawing(output: Path) -> Iterator[None]:
    """Around the drawing of the picture.

    Raises:
        ClickException: the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from error


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on the standard error while something runs; gives what moves it on by some steps."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda steps: progress.advance(task, steps)


def tell_verdict(console: Console, text: str, output: Path, *, reproduced: bool) -> None:
    """The last lines: whether it was reproduced, and where the picture is."""
    console.print(f"\n{text}", style="green" if reproduced else "bold red")
    console.print(f"Picture: {output}", soft_wrap=True, markup=False)
