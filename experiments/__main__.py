"""`python -m experiments`: published tables and figures, recomputed and compared with the print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from experiments.common.experiment import FAILED, folder_option
from experiments.finite.command import finite
from experiments.gap.command import gap
from experiments.lossless.command import lossless
from experiments.subset.command import subset
from experiments.topk.command import topk

PAPERS: Sequence[click.Command] = (lossless, topk, gap, subset, finite)


@click.group()
def experiments() -> None:
    """Recompute the tables and figures of a paper and compare them with what was published.

    \b
    One paper:        python -m experiments topk
    Its options:      python -m experiments topk --help
    All five papers:  python -m experiments all --folder /tmp/pictures
    The same by make: make reproduce, make reproduce PAPER=topk FOLDER=/tmp/pictures

    Every command prints its numbers beside the published ones and writes one picture, PAPER.png, into --folder.
    Pictures need matplotlib, which `make reproduce` installs.

    Exit codes: 0 reproduced, 1 a number did not come out or a picture cannot be written, 2 wrong usage.
    """


@click.command("all")
@folder_option
@click.pass_context
def every(context: click.Context, *, folder: Path) -> None:
    """All five papers, one after the other. Takes about three minutes."""
    failed = []
    for paper in PAPERS:
        click.echo(f"\n== {paper.name}: {paper.get_short_help_str(120)}\n")
        try:
            with paper.make_context(paper.name, ["--folder", str(folder)], parent=context) as run:
                paper.invoke(run)
        except click.exceptions.Exit:
            failed.append(paper.name or "")
    if failed:
        click.secho(f"\nNOT reproduced: {', '.join(failed)}", fg="red", bold=True)
        context.exit(FAILED)


for one in (*PAPERS, every):
    experiments.add_command(one)

if __name__ == "__main__":
    experiments(prog_name="python -m experiments")
