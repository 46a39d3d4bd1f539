"""`python -m experiments finite`: Figures 3 to 6 of "Differential Privacy on Finite Computers" beside this code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from experiments.common.experiment import (
    FAILED,
    drawing,
    folder_option,
    matplotlib_needed,
    plain_table,
    progress_bar,
    tell_verdict,
)
from experiments.finite import numbers
from experiments.finite.numbers import SLOPES, Row


@click.command()
@folder_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every number instead of words.")
@click.pass_context
def finite(context: click.Context, *, folder: Path, as_json: bool) -> None:
    """Errors of histograms on finite computers: what the paper promises and what this code achieves.

    The paper has no experiments; its Figures 3 to 6 are tables of formulas. They are evaluated here for 10,000 rows,
    beta 1/20 and delta 2^-40, each beside the exact number of the code: how far a noisy count may be off, and from
    which count on a key is shown. The code has the smaller numbers, since it spends epsilon whole and computes
    thresholds exactly.

    The picture is of times that grow: that of a pure top-k with the largest count and with K, and that of a compact
    histogram with its rows, each with a universe of 2^64 keys or more. Takes a quarter of a minute. docs/choosing.md
    says what follows.

    Exit codes: 0 no number is above that of the paper, 1 one is or the picture cannot be written, 2 wrong usage.
    """
    with matplotlib_needed():
        from experiments.finite import picture  # noqa: PLC0415 - matplotlib may be missing

    found = list(numbers.rows())
    with progress_bar("times", sum(len(sizes) for _, sizes in SLOPES.values())) as advance:
        slopes = numbers.slopes(advance)
    with drawing(folder, "finite") as output:
        picture.draw(slopes, output)
    reproduced = all(row.holds for row in found)
    if as_json:
        body = {"reproduced": reproduced, "figures": [asdict(row) for row in found], "seconds": slopes}
        click.echo(json.dumps(body | {"picture": str(output)}, indent=2))
    else:
        _tell(found, output, reproduced=reproduced)
    if not reproduced:
        context.exit(FAILED)


def _tell(found: Sequence[Row], output: Path, *, reproduced: bool) -> None:
    console = Console(highlight=False)
    table = plain_table("figure", "number", "epsilon", "keys", "paper", "here")
    for row in found:
        table.add_row(str(row.figure), row.what, row.epsilon, f"2^{row.universe}", f"{row.printed:,}", f"{row.found:,}")
    console.print(table)
    text = "every error and threshold is at most that of the paper" if reproduced else "a number is above the paper's"
    tell_verdict(console, text, output, reproduced=reproduced)
