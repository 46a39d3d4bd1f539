"""`python -m experiments topk`: what composition saves, and what a month of selections needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from experiments.common.chart import Line, log_linear_chart
from experiments.common.experiment import FAILED, drawing, folder_option, matplotlib_needed, progress_bar, tell_verdict
from experiments.topk import numbers
from experiments.topk.numbers import RATIOS, Month, Ratio, agreements

_STYLES = ("blue", "cyan", "green", "yellow", "magenta")
_PRINTED = "printed, 10 a window"
PICTURE_WINDOWS: Sequence[int] = (1, 2, 4, 8, 15, 30, 60, 120, 240, 480, 720, 1440, 2880, 5760, 8640)

Figure = dict[Fraction, list[Ratio]]


@click.command()
@folder_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every number instead of words.")
@click.pass_context
def topk(context: click.Context, *, folder: Path, as_json: bool) -> None:
    """Figure 1 of pay-what-you-get top-k, and what a month of windows needs.

    A draw of a selection tells less than an arbitrary mechanism of the same epsilon: its privacy loss lies in an
    interval of length epsilon, not of twice that. Figure 1 is the factor that this saves over k draws, against the
    best that holds for arbitrary mechanisms. Above 1 it is the better account; at 1 nothing is saved, because so few
    draws just add up.

    The second table is the size of a month: 30 days under epsilon 3 and delta 1e-6 in all, ten items wanted a window.
    It says how many users more than the item of rank kbar + 1 an item must have to be returned half of the time, where
    users have any number of items and where they have one: as the theorem is printed, in a ledger with a pool, there if
    the budget is for two outputs a window instead of ten (bottom counts as one), and with Laplace noise.

    Both are compared with numbers that were computed beforehand, in other ways, in floating point; every number here is
    exact but for a rounding to the safe side. Takes a quarter of a minute. docs/budgets.md says what follows from it.

    Exit codes: 0 reproduced, 1 a number differs in the digits given or the picture cannot be written, 2 wrong usage.
    """
    with matplotlib_needed():
        from experiments.topk import picture  # noqa: PLC0415 - matplotlib may be missing

    with progress_bar("Figure 1", len(RATIOS) * len(numbers.DRAWS)) as advance:
        figure = {epsilon: numbers.figure_1(epsilon, advance) for epsilon in RATIOS}
    sizes = {
        _PRINTED: numbers.printed_months(),
        "pool, 10 a window": numbers.pooled_months(pay_what_you_get=False),
        "pool, 2 a window": numbers.pooled_months(pay_what_you_get=True),
        "Laplace": numbers.laplace_months(),
    }
    with drawing(folder, "topk") as output:
        picture.draw(figure, _leads(), output)
    agreed = agreements(figure, sizes[_PRINTED])
    if as_json:
        click.echo(json.dumps(_as_json(figure, sizes, output, reproduced=all(agreed)), indent=2))
    else:
        _tell(figure, sizes, agreed, output)
    if not all(agreed):
        context.exit(FAILED)


def _leads() -> dict[str, tuple[int | None, list[Month]]]:
    """The curves of the picture's right half."""
    full = [numbers.month(windows, 10 * windows) for windows in PICTURE_WINDOWS]
    short = [numbers.month(windows, min(2 * windows + 10, 10 * windows)) for windows in PICTURE_WINDOWS]
    laplace = [numbers.laplace_month(windows) for windows in PICTURE_WINDOWS]
    return {
        "any items, 10 outputs a window": (None, full),
        "any items, 2 outputs a window": (None, short),
        "one item, 10 outputs a window": (1, full),
        "one item, 2 outputs a window": (1, short),
        "one item, Laplace noise": (1, laplace),
    }


def _tell(figure: Figure, sizes: dict[str, list[Month]], agreed: Sequence[bool], output: Path) -> None:
    console = Console(highlight=False)
    console.print("Figure 1: optimal ε for pure DP over ε for draws, by the number of draws k\n")
    lines = [
        Line(f"ε {float(epsilon):g}", style, [(ratio.draws, float(ratio.value)) for ratio in curve])
        for (epsilon, curve), style in zip(figure.items(), _STYLES, strict=True)
    ]
    console.print(log_linear_chart(lines, width=54, height=16))
    console.print()
    console.print(_ratio_table(figure))
    console.print("\nA month under (3, 1e-6): users needed above rank kbar + 1; k = 10, kbar = 1000\n")
    console.print(_size_table(sizes))
    verdict = "Reproduced: all" if all(agreed) else f"NOT reproduced: {sum(agreed)} of"
    text = f"{verdict} {len(agreed)} numbers that were computed before are found again, in every digit given."
    tell_verdict(console, text, output, reproduced=all(agreed))


def _ratio_table(figure: Figure) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=True)
    columns = list(next(iter(RATIOS.values())))
    for heading in ("ε", *(f"k={draws}" for draws in columns), "off by at most"):
        table.add_column(heading, justify="right", no_wrap=True)
    for epsilon, curve in figure.items():
        values = {ratio.draws: ratio.value for ratio in curve}
        widest = max((values[draws] - Fraction(printed) for draws, printed in RATIOS[epsilon].items()), key=abs)
        table.add_row(
            f"{float(epsilon):g}", *(f"{float(values[draws]):.3f}" for draws in columns), f"{float(widest):+.5f}"
        )
    return table


def _size_table(sizes: dict[str, list[Month]]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.add_column("outputs", no_wrap=True)
    table.add_column("")
    for heading in ("calls", "draws", "ε each", "δ each", "any items", "one item"):
        table.add_column(heading, justify="right", no_wrap=True)
    for title, months in sizes.items():
        for index, month in enumerate(months):
            table.add_row(
                "" if index else title,
                month.schedule,
                str(month.windows),
                "" if month.draws is None else str(month.draws),
                f"{float(month.parameters.epsilon):.4g}",
                f"{float(month.parameters.delta):.2e}",
                *(f"{float(month.lead[items]):.0f}" if items in month.lead else "" for items in (None, 1)),
            )
    return table


def _as_json(figure: Figure, sizes: dict[str, list[Month]], output: Path, *, reproduced: bool) -> dict[str, Any]:
    return {
        "reproduced": reproduced,
        "picture": str(output),
        "figure_1": [
            {
                "epsilon": float(epsilon),
                "points": [
                    {
                        "draws": ratio.draws,
                        "index": ratio.optimal.index,
                        "delta": float(ratio.optimal.delta),
                        "optimal": float(ratio.optimal.epsilon),
                        "bounded_range": float(ratio.bounded_range),
                        "ratio": float(ratio.value),
                    }
                    for ratio in curve
                ],
            }
            for epsilon, curve in figure.items()
        ],
        "sizes": [
            {
                "statement": title,
                "schedule": month.schedule,
                "calls": month.windows,
                "draws": month.draws,
                "epsilon": float(month.parameters.epsilon),
                "delta": float(month.parameters.delta),
                "lead_any_items": float(month.lead[None]) if None in month.lead else None,
                "lead_one_item": float(month.lead[1]),
            }
            for title, months in sizes.items()
            for month in months
        ],
    }
