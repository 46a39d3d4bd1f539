"""`python -m experiments lossless`: Figure 2 of Private Lossless Multiple Release, recomputed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.common.chart import Line, log_log_chart
from experiments.common.experiment import FAILED, drawing, folder_option, matplotlib_needed, progress_bar, tell_verdict
from experiments.lossless import figure2
from experiments.lossless.figure2 import Series

_SEED = 1
_STYLES = ("blue", "cyan", "green", "yellow", "magenta", "red")


@click.command()
@click.option(
    "--runs",
    type=click.IntRange(min=100),
    default=1_000_000,
    show_default=True,
    help="Repetitions; fewer are faster and widen the tolerance.",
)
@click.option("--seed", type=click.IntRange(min=0), default=_SEED, show_default=True, help="Of the noise.")
@folder_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every variance instead of words.")
@click.pass_context
def lossless(context: click.Context, *, runs: int, seed: int, folder: Path, as_json: bool) -> None:
    """Figure 2 of Private Lossless Multiple Release: noise variance against budget.

    n releases at budgets from 0.001 to 5, lossless in three orders, and independent ones under the same total budget.
    Takes about half a minute. The tolerance is four standard errors of a variance, 0.57 % for a million runs; with
    another seed one number of the table falls outside in one of three hundred runs of this command.

    Exit codes: 0 reproduced, 1 a number of the table is outside the tolerance or the picture cannot be written, 2 wrong
    usage.
    """
    with matplotlib_needed():
        from experiments.lossless import picture  # noqa: PLC0415 - matplotlib may be missing

    series = _simulate(runs, np.random.default_rng(seed))
    tolerance = figure2.tolerance(runs)
    with drawing(folder, "lossless") as output:
        picture.draw(series, tolerance, output)
    reproduced = all(abs(deviation) <= tolerance for one in series for deviation in _table_deviations(one))
    if as_json:
        click.echo(json.dumps(_as_json(series, runs, seed, tolerance, output, reproduced=reproduced), indent=2))
    else:
        _tell(series, runs, tolerance, output, reproduced=reproduced)
    if not reproduced:
        context.exit(FAILED)


def _simulate(runs: int, rng: np.random.Generator) -> list[Series]:
    with progress_bar(f"Figure 2, {runs} runs", figure2.work(runs)) as advance:
        return figure2.simulate(runs, rng, progress=advance)


def _table_deviations(one: Series) -> list[float]:
    """Return the errors of the table: independent at the second and last budget, lossless at both ends."""
    independent = one.independent.deviations
    ends = [curve.deviations[index] for curve in one.lossless.values() for index in (0, -1)]
    return [float(deviation) for deviation in (independent[1], independent[-1], *ends)]


def _tell(series: list[Series], runs: int, tolerance: float, output: Path, *, reproduced: bool) -> None:
    console = Console(highlight=False)
    console.print("Noise variance over budget rho: lossless, and n independent releases\n")
    console.print(_picture(series))
    console.print()
    console.print(_table(series))
    curves = [curve for one in series for curve in (*one.lossless.values(), one.independent)]
    widest = max(float(abs(curve.deviations).max()) for curve in curves)
    verdict = "Reproduced: all" if reproduced else "NOT reproduced: not all"
    text = (
        f"{verdict} numbers of the table are within ±{tolerance:.2%} of the closed forms, four standard errors at "
        f"{runs:,} runs. The widest deviation of all {sum(len(curve.measured) for curve in curves)} variances is "
        f"{widest:.2%}."
    )
    tell_verdict(console, text, output, reproduced=reproduced)


def _picture(series: list[Series]) -> Text:
    lines = [
        Line(f"n={len(one.budgets)}", style, list(zip(one.budgets, one.independent.measured, strict=True)))
        for one, style in zip(series, _STYLES, strict=True)
    ]
    most = series[-1]
    lossless = Line("lossless", "bold", list(zip(most.budgets, most.lossless["shuffled"].measured, strict=True)))
    return log_log_chart([*reversed(lines), lossless], width=54, height=20)


def _table(series: list[Series]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=True)
    lossless = ("lossless\nincreasing", "off by\ndecreasing", "at most\nshuffled")
    for heading in ("n", "\npenalty", "indep.\n2nd", "\nmeasured", "indep.\nlast", "\nmeasured", *lossless):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in series:
        expected, measured = one.independent.expected, one.independent.measured
        ends = [max(curve.deviations[[0, -1]], key=abs) for curve in one.lossless.values()]
        table.add_row(
            str(len(one.budgets)),
            f"{one.penalty:.5g}",
            *(f"{value:.6g}" for value in (expected[1], measured[1], expected[-1], measured[-1])),
            *(f"{deviation:+.2%}" for deviation in ends),
        )
    return table


def _as_json(
    series: list[Series], runs: int, seed: int, tolerance: float, output: Path, *, reproduced: bool
) -> dict[str, Any]:
    return {
        "reproduced": reproduced,
        "runs": runs,
        "seed": seed,
        "tolerance": tolerance,
        "picture": str(output),
        "series": [
            {
                "releases": len(one.budgets),
                "ratio": one.ratio,
                "penalty": one.penalty,
                "budgets": one.budgets.tolist(),
                "lossless": {
                    "expected": next(iter(one.lossless.values())).expected.tolist(),
                    **{order: curve.measured.tolist() for order, curve in one.lossless.items()},
                },
                "independent": {
                    "expected": one.independent.expected.tolist(),
                    "measured": one.independent.measured.tolist(),
                },
            }
            for one in series
        ],
    }
