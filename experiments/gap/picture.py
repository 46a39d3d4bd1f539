"""The picture of `python -m experiments gap` as a PNG file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.gap.numbers import PRINTED, PRINTED_KS, Measured, Study

_COLOURS = ("#c2185b", "#ef6c00", "#00838f", "#2e7d32")
_PARTS = ("best candidates", "ties", "gaps")
_MILLI = 1000


def draw(study: Study, file: Path) -> None:
    """Draw times over k for every table, how they grow beside those printed, and the parts of the pruned mechanism.

    Args:
        study: what `gap_numbers.study` returned.
        file: where the PNG goes; overwritten.

    Raises:
        OSError: the file cannot be written.
    """
    figure = Figure(figsize=(15, 4 * len(study.tables)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(study.tables), 3, squeeze=False)
    for (times, growth, parts), table in zip(grid, study.tables, strict=True):
        _times(times, table)
        _growth(growth, table)
        _parts(parts, table)
    figure.savefig(file, format="png", dpi=80)


def _times(axes: Axes, table: Measured) -> None:
    ks = [cell.k for cell in table.cells]
    for name, colour in zip(table.cells[0].seconds, _COLOURS, strict=False):
        axes.loglog(ks, [_MILLI * cell.seconds[name] for cell in table.cells], ".-", color=colour, label=name)
    _mark(axes, ks)
    axes.set(xlabel="k", ylabel="processor time, ms", title=f"{table.name}, {table.items:,} items")
    axes.legend(fontsize="small")


def _growth(axes: Axes, table: Measured) -> None:
    ks = [cell.k for cell in table.cells]
    for (name, printed), colour in zip(PRINTED[table.name].items(), _COLOURS, strict=False):
        found = [cell.seconds[name] / table.cells[0].seconds[name] for cell in table.cells]
        axes.semilogx(ks, found, ".-", color=colour, label=name)
        axes.semilogx(
            PRINTED_KS, [value / printed[0] for value in printed], "--", color=colour, label=f"{name}, printed"
        )
    _mark(axes, ks)
    axes.set(xlabel="k", ylabel=f"time over that of k = {ks[0]}", title="What more selected keys cost")
    axes.legend(fontsize="small")


def _mark(axes: Axes, ks: Sequence[int]) -> None:
    """Ticks at the k that were measured, and nowhere else."""
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.set_xticks([], minor=True)


def _parts(axes: Axes, table: Measured) -> None:
    bottom = [0.0] * len(table.cells)
    labels = [str(cell.k) for cell in table.cells]
    for part, (name, colour) in enumerate(zip(_PARTS, _COLOURS[1:], strict=True)):
        heights = [_MILLI * cell.parts[part] for cell in table.cells]
        axes.bar(labels, heights, bottom=bottom, color=colour, label=name)
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    axes.set(xlabel="k", ylabel="ms of the pruned mechanism", title="Its parts")
    axes.legend(fontsize="small", loc="lower right")
