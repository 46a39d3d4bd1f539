"""`python -m experiments gap`: what the published secure Noisy Top-k with Gap draws, and how long it takes."""

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
from experiments.gap import numbers
from experiments.gap.numbers import PRINTED, PRINTED_CALLS, PRINTED_KS, PRINTED_PARTS, Measured, Study
from stream_dp.errors import ConfigError

_STYLES = ("red", "yellow", "cyan", "green")
_MILLI = 1000


@click.command()
@data_option("the published transactions (kosarak.dat, T40I10D100K.dat, BMS-POS.dat, or .dat.gz; from FIMI)")
@click.option(
    "--runs", type=click.IntRange(min=1), default=10, show_default=True, help="Of each mechanism, table and k."
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the noise that is measured.")
@folder_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every number instead of words.")
@click.pass_context
def gap(context: click.Context, *, data: Path | None, runs: int, seed: int, folder: Path, as_json: bool) -> None:
    """Tables 4 to 6 of the secure Noisy Top-k with Gap: what exactness costs.

    The published mechanism draws exact noise key by key and draws more digits for all keys while there are ties among
    the best k + 2, or, pruned, for those that can still be among them. Table 4 is how long that takes beside insecure
    floating-point noise, Table 5 how long its parts take, Table 6 how many numbers it draws.

    What has to come out again are ratios and shapes: a machine has its own milliseconds, and those printed are of the
    paper's. Times are of the processor. Without --data the tables are made up with the published numbers of
    transactions and items. Takes about half a minute.

    Exit codes: 0 reproduced, 1 a claim of the paper did not come out or the picture cannot be written, 2 wrong usage.
    """
    with matplotlib_needed():
        from experiments.gap import picture  # noqa: PLC0415 - matplotlib may be missing

    with progress_bar("Gaps", numbers.steps(runs)) as advance:
        try:
            study = numbers.study(data, runs, seed, advance)
        except ConfigError as error:
            raise click.ClickException(str(error)) from error
    with drawing(folder, "gap") as output:
        picture.draw(study, output)
    if as_json:
        click.echo(json.dumps(_as_json(study, runs, seed, output), indent=2))
    else:
        _tell(study, output)
    if not all(claim.holds for claim in study.claims):
        context.exit(FAILED)


def _tell(study: Study, output: Path) -> None:
    console = Console(highlight=False)
    largest = study.tables[-1]
    console.print(f"Milliseconds over k, {_named(largest)}\n")
    console.print(log_log_chart(_lines(largest), width=54, height=12))
    console.print("\nTable 4: milliseconds, printed in brackets\n")
    console.print(_times(study))
    console.print("\nTable 5: milliseconds of the pruned mechanism by part; refinements of a run, keys in one\n")
    console.print(_parts(study))
    console.print(f"\nTable 6: calls of one pruned run, {_named(largest)}, k = {largest.cells[-1].k}\n")
    console.print(_calls(study))
    tell_claims(console, study.claims, output)


def _named(table: Measured) -> str:
    return f"{table.name} ({'published' if table.published else 'made up'}, {table.items:,} items)"


def _lines(table: Measured) -> list[Line]:
    return [
        Line(name, style, [(cell.k, _MILLI * cell.seconds[name]) for cell in table.cells])
        for name, style in zip(table.cells[0].seconds, _STYLES, strict=False)
    ]


def _times(study: Study) -> Table:
    names = list(study.tables[0].cells[0].seconds)
    table = plain_table("items", "k", *names)
    for one in study.tables:
        for index, cell in enumerate(one.cells):
            printed = {name: dict(zip(PRINTED_KS, values, strict=True)) for name, values in PRINTED[one.name].items()}
            times = (_milliseconds(cell.seconds[name], printed.get(name, {}).get(cell.k)) for name in names)
            table.add_row("" if index else f"{one.items:,}", str(cell.k), *times)
    return table


def _milliseconds(seconds: float, printed: float | None) -> str:
    return f"{_MILLI * seconds:.3g}" if printed is None else f"{_MILLI * seconds:.3g} ({printed:.3g})"


def _parts(study: Study) -> Table:
    table = plain_table("items", "k", "candidates", "ties", "gaps", "refinements", "keys")
    for one in study.tables:
        for index, cell in enumerate(one.cells):
            printed = PRINTED_PARTS[one.name].get(cell.k, (None, None, None))
            parts = (_milliseconds(seconds, value) for seconds, value in zip(cell.parts, printed, strict=True))
            keys = f"{sum(cell.refined) / len(cell.refined):.0f}" if cell.refined else ""
            table.add_row("" if index else f"{one.items:,}", str(cell.k), *parts, f"{cell.levels:.1f}", keys)
    return table


def _calls(study: Study) -> Table:
    table = plain_table("call", "found", "for each draw", "printed", "for each draw")
    for name, calls in study.calls.items():
        shares = (f"{one[name] / one['geometric']:.2f}" for one in (study.calls, PRINTED_CALLS))
        found, printed = shares if name in ("Bernoulli", "uniform") else ("", "")
        table.add_row(name, f"{calls:,}", found, f"{PRINTED_CALLS[name]:,}", printed)
    return table


def _as_json(study: Study, runs: int, seed: int, output: Path) -> dict[str, Any]:
    return {
        "reproduced": all(claim.holds for claim in study.claims),
        "runs": runs,
        "seed": seed,
        "picture": str(output),
        "claims": [asdict(claim) for claim in study.claims],
        "ratios": [
            {
                "call": ratio.name,
                "expected": ratio.expected,
                "printed": ratio.printed,
                "found": ratio.found,
                "standard_error": ratio.standard_error,
            }
            for ratio in study.ratios
        ],
        "calls": dict(study.calls),
        "tables": [
            {
                "table": table.name,
                "published": table.published,
                "items": table.items,
                "cells": [
                    {
                        "k": cell.k,
                        "seconds": dict(cell.seconds),
                        "parts": dict(zip(("candidates", "ties", "gaps"), cell.parts, strict=True)),
                        "refinements": cell.levels,
                        "refined": list(cell.refined),
                        "draws_per_item": dict(cell.draws),
                    }
                    for cell in table.cells
                ],
            }
            for table in study.tables
        ],
    }
