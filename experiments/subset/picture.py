"""The picture of `python -m experiments subset` as a PNG file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.subset.numbers import Comparison, NoiseRow, Study, Sweep

_COLUMNS = 3
_COLOURS = {
    "canonical γ=1/2": "#1565c0",
    "canonical γ=1": "#00838f",
    "signed γ=3/4": "#2e7d32",
    "one-shot": "#ef6c00",
    "peeling": "#c2185b",
}


def draw(study: Study, file: Path) -> None:
    """Draw chances over epsilon for every table and k, over the exponent of Zipf scores, and budgets by noise.

    Args:
        study: what `subset_numbers.study` returned.
        file: where the PNG goes; overwritten.

    Raises:
        OSError: the file cannot be written.
    """
    panels: list[Callable[[Axes], None]] = [
        *(partial(_comparison, one=one) for one in study.comparisons),
        *(partial(_sweep, sweep=sweep) for sweep in study.sweeps),
    ]
    if study.noises:
        panels.append(partial(_noises, rows=study.noises))
    rows = max(1, -(-len(panels) // _COLUMNS))
    figure = Figure(figsize=(5 * _COLUMNS, 3.4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        panel(axes)
    for axes in grid[len(panels) :]:
        axes.axis("off")
    figure.savefig(file, format="png", dpi=80)


def _comparison(axes: Axes, one: Comparison) -> None:
    for name, curve in one.curves.items():
        axes.semilogx(curve.at, curve.top, "-", color=_COLOURS[name], linewidth=1.3, label=name)
        axes.semilogx(curve.at, curve.great, "--", color=_COLOURS[name], linewidth=0.8)
        axes.semilogx(curve.at, curve.good, ":", color=_COLOURS[name], linewidth=1)
    label = "" if one.label is None else f", {one.label} times less"
    axes.set(xlabel="ε", ylabel="chance: top, great (dashed), good (dotted)", title=f"{one.table}, k = {one.k}{label}")
    axes.legend(fontsize="x-small")


def _sweep(axes: Axes, sweep: Sweep) -> None:
    for name, curve in sweep.curves.items():
        axes.plot(range(len(curve.at)), curve.top, "-", color=_COLOURS[name], linewidth=1.3, label=name)
        axes.plot(range(len(curve.at)), curve.good, ":", color=_COLOURS[name], linewidth=1)
    exponents = next(iter(sweep.curves.values())).at.tolist()
    axes.set_xticks(range(len(exponents)), [f"{exponent:g}" for exponent in exponents], fontsize="x-small")
    axes.set(xlabel="exponent s of scores rank^-s", ylabel="chance at ε = 1", title=f"Zipf, k = {sweep.k}")
    axes.legend(fontsize="x-small")


def _noises(axes: Axes, rows: Sequence[NoiseRow]) -> None:
    for name in rows[0].almost_sure:
        ratios = [row.almost_sure[name] / row.almost_sure["exponential"] for row in rows]
        axes.semilogx([row.k for row in rows], ratios, ".-", linewidth=1, label=name)
    axes.set(xlabel="k", ylabel="ε for 99.9 % over that of exponential noise", title="Noises, one-shot")
    axes.legend(fontsize="x-small")
