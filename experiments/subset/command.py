"""`python -m experiments subset`: the figures of the canonical Lipschitz mechanism for private top-k."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from experiments.common.chart import Line, log_log_chart
from experiments.common.experiment import (
    FAILED,
    data_option,
    drawing,
    folder_option,
    matplotlib_needed,
    plain_table,
    progress_bar,
    tell_claims,
)
from experiments.subset import numbers
from experiments.subset.numbers import Comparison, Curve, NoiseRow, Study, Sweep
from stream_dp.errors import ConfigError

FIGURES = tuple(range(1, 11))
_STYLES = ("blue", "cyan", "green", "yellow", "magenta")


@click.command()
@data_option("the authors' tables (NETFLIX.n17770.npy and so on, github.com/shekelyan/dptopk)")
@click.option(
    "--figure",
    "figures",
    type=click.IntRange(FIGURES[0], FIGURES[-1]),
    multiple=True,
    help="Only this figure; may be given several times. Otherwise all.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=10),
    default=500,
    show_default=True,
    help="Simulated selections behind the shares of great and good ones of peeling and one-shot; the rest is exact.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the simulated selections.")
@folder_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every number instead of words.")
@click.pass_context
def subset(
    context: click.Context,
    *,
    data: Path | None,
    figures: tuple[int, ...],
    runs: int,
    seed: int,
    folder: Path,
    as_json: bool,
) -> None:
    """Figures 1 to 10 of the canonical Lipschitz mechanism: what an exact top-k costs.

    The canonical mechanism chooses one of all k-subsets with the whole budget; peeling and one-shot mechanisms pay
    epsilon / k for every item. Figures 1 and 5 to 10 are the chances of the exact top-k, of a great selection (the best
    tenth in, nothing a tenth of k behind) and of a good one (the best hundredth, half of k) over epsilon, for one table
    each. Figure 2 has them at epsilon 1 over how steeply Zipf scores fall, Figure 3 over epsilon, and Figure 4 compares
    five noises.

    Chances are sums and integrals, not simulations, but for great and good selections of peeling and one-shot.

    Without --data tables are made up by formula: one like Netflix in Figures 1, 4 and 5, two of a million items in 6
    and 7, and none in 8 to 10. Takes about a minute, with --data two.

    Exit codes: 0 reproduced, 1 a claim of the paper did not come out or the picture cannot be written, 2 wrong usage.
    """
    with matplotlib_needed():
        from experiments.subset import picture  # noqa: PLC0415 - matplotlib may be missing

    wanted = figures or FIGURES
    with progress_bar("Subsets", numbers.steps(wanted, data)) as advance:
        try:
            study = numbers.study(wanted, data, runs, seed, advance)
        except ConfigError as error:
            raise click.ClickException(str(error)) from error
    with drawing(folder, "subset") as output:
        picture.draw(study, output)
    if as_json:
        click.echo(json.dumps(_as_json(study, runs, seed, output), indent=2))
    else:
        _tell(study, output)
    if not all(claim.holds for claim in study.claims):
        context.exit(FAILED)


def _tell(study: Study, output: Path) -> None:
    console = Console(highlight=False)
    if study.comparisons:
        name, lines = _budgets(study)
        console.print(f"ε for the exact top-k at 99.9 % over k, table {name}\n")
        console.print(log_log_chart(lines, width=54, height=12))
        console.print("\nε for the exact top-k at 99.9 %, and how many times less than item by item\n")
        console.print(_comparison_table(study))
    if study.noises:
        console.print("\nFigure 4: ε for the exact top-k at 99.9 %, one-shot, by noise\n")
        console.print(_noise_table(study))
    if study.sweeps:
        console.print("\nFigure 2: chance of the exact top-k at ε = 1, scores rank^-s, 10,000 items\n")
        console.print(_sweep_table(study))
    tell_claims(console, study.claims, output)


def _budgets(study: Study) -> tuple[str, list[Line]]:
    """A line for each selection over k, of the first table."""
    name = study.comparisons[0].table
    points: dict[str, list[tuple[float, float]]] = {}
    for one in study.comparisons:
        for selection, epsilon in one.almost_sure.items():
            if one.table == name and epsilon is not None:
                points.setdefault(selection, []).append((one.k, epsilon))
    return name, [
        Line(selection, style, found) for (selection, found), style in zip(points.items(), _STYLES, strict=False)
    ]


def _comparison_table(study: Study) -> Table:
    names = ("canonical\nγ=1/2", "\nγ=1", "signed\nγ=3/4", "one-\nshot", "\npeeling")
    table = plain_table("table", "k", *names, "times\nless", "by its\nrule", "known")
    for index, one in enumerate(study.comparisons):
        again = index and study.comparisons[index - 1].table == one.table
        table.add_row(
            "" if again else one.table,
            str(one.k),
            *("tie" if value is None else _short(value) for value in one.almost_sure.values()),
            "" if one.factor is None else _short(one.factor),
            "" if one.label is None else str(one.label),
            "" if one.expected is None else str(one.expected),
        )
    return table


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _noise_table(study: Study) -> Table:
    table = plain_table("k", *study.noises[0].almost_sure)
    for row in study.noises:
        table.add_row(str(row.k), *(f"{value:.4g}" for value in row.almost_sure.values()))
    return table


def _sweep_table(study: Study) -> Table:
    curves = next(iter(study.sweeps)).curves
    exponents = next(iter(curves.values())).at.tolist()
    table = plain_table("k", "", *(f"{exponent:g}" for exponent in exponents))
    for sweep in study.sweeps:
        for index, (name, curve) in enumerate(sweep.curves.items()):
            chances = (f"{value:.3f}" if value >= 0.0005 else "0" for value in curve.top.tolist())
            table.add_row("" if index else str(sweep.k), name, *chances)
    return table


def _as_json(study: Study, runs: int, seed: int, output: Path) -> dict[str, Any]:
    return {
        "reproduced": all(claim.holds for claim in study.claims),
        "published_tables": study.published,
        "runs": runs,
        "seed": seed,
        "picture": str(output),
        "claims": [asdict(claim) for claim in study.claims],
        "tables": [_comparison_json(one) for one in study.comparisons],
        "noises": [_noise_json(row) for row in study.noises],
        "exponents": [_sweep_json(sweep) for sweep in study.sweeps],
    }


def _comparison_json(one: Comparison) -> dict[str, Any]:
    return {
        "table": one.table,
        "k": one.k,
        "critical_epsilon": one.critical,
        "epsilon_even": dict(one.even),
        "epsilon_almost_sure": dict(one.almost_sure),
        "factor": one.factor,
        "label": one.label,
        "paper": one.expected,
        "curves": {name: _curve_json(curve) for name, curve in one.curves.items()},
    }


def _noise_json(row: NoiseRow) -> dict[str, Any]:
    return {"k": row.k, "epsilon_almost_sure": dict(row.almost_sure)}


def _sweep_json(sweep: Sweep) -> dict[str, Any]:
    return {"k": sweep.k, "curves": {name: _curve_json(curve) for name, curve in sweep.curves.items()}}


def _curve_json(curve: Curve) -> dict[str, list[float]]:
    return {
        "at": curve.at.tolist(),
        "top": curve.top.tolist(),
        "great": curve.great.tolist(),
        "good": curve.good.tolist(),
    }
