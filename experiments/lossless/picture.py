"""The picture of Figure 2 as a PNG file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.lossless.figure2 import Series

_MARKERS = {"increasing": "o", "decreasing": "x", "shuffled": "+"}


def draw(series: Sequence[Series], tolerance: float, file: Path) -> None:
    """Draw the variances over the budgets, and how far each is from its closed form.

    Args:
        series: what `figure2.simulate` returned.
        tolerance: half height of the band in which the deviations should lie, relative.
        file: where the PNG goes; overwritten.

    Raises:
        OSError: the file cannot be written.
    """
    figure = Figure(figsize=(12, 5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _variances(left, series)
    _deviations(right, series, tolerance)
    figure.savefig(file, format="png", dpi=150)


def _variances(axes: Axes, series: Sequence[Series]) -> None:
    colours = colormaps["viridis"].resampled(len(series) + 1)
    for index, one in reversed(list(enumerate(series))):
        label = f"{len(one.budgets)} independent releases"
        axes.loglog(one.budgets, one.independent.measured, ".-", color=colours(index), linewidth=1, label=label)
    most = series[-1]
    for order, curve in most.lossless.items():
        label = f"lossless, {order}"
        axes.loglog(most.budgets, curve.measured, _MARKERS[order], color="crimson", markersize=4, label=label)
    axes.set(xlabel="privacy budget ρ (zCDP)", ylabel="noise variance", title="n releases under one total budget")
    axes.legend(fontsize="small")


def _deviations(axes: Axes, series: Sequence[Series], tolerance: float) -> None:
    axes.axhspan(-100 * tolerance, 100 * tolerance, color="0.9", label="four standard errors")
    for one in series:
        axes.semilogx(one.budgets, 100 * one.independent.deviations, ".", color="0.5", markersize=3)
        for order, curve in one.lossless.items():
            axes.semilogx(one.budgets, 100 * curve.deviations, _MARKERS[order], color="crimson", markersize=3)
    axes.set(
        xlabel="privacy budget ρ (zCDP)", ylabel="deviation from the closed form, %", title="Measured against expected"
    )
    axes.legend(fontsize="small")
