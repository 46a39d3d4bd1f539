"""The picture of `python -m experiments topk` as a PNG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.topk.numbers import Month, Ratio


def draw(
    figure_1: Mapping[Fraction, Sequence[Ratio]], leads: Mapping[str, tuple[int | None, Sequence[Month]]], file: Path
) -> None:
    """Draw the ratios over the number of draws, and the lead an item needs over the number of windows.

    Args:
        figure_1: a curve for every epsilon of a draw.
        leads: by label, the bound on the items of a user and months with a growing number of windows.
        file: where the PNG goes; overwritten.

    Raises:
        OSError: the file cannot be written.
    """
    figure = Figure(figsize=(12, 5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _ratios(left, figure_1)
    _leads(right, leads)
    figure.savefig(file, format="png", dpi=150)


def _ratios(axes: Axes, figure_1: Mapping[Fraction, Sequence[Ratio]]) -> None:
    colours = colormaps["viridis"].resampled(len(figure_1) + 1)
    for index, (epsilon, curve) in enumerate(figure_1.items()):
        draws, values = [ratio.draws for ratio in curve], [float(ratio.value) for ratio in curve]
        axes.plot(draws, values, color=colours(index), linewidth=1, label=f"ε = {float(epsilon):g} a draw")
    axes.set(
        xlabel="draws k",
        ylabel="optimal ε for pure DP / ε for draws",
        title="What is saved because a draw has bounded range",
    )
    axes.legend(fontsize="small", loc=(0.68, 0.55))


def _leads(axes: Axes, leads: Mapping[str, tuple[int | None, Sequence[Month]]]) -> None:
    for label, (items, months) in leads.items():
        windows, values = [month.windows for month in months], [float(month.lead[items]) for month in months]
        axes.loglog(windows, values, ".-", linewidth=1, label=label)
    axes.set(
        xlabel="windows in 30 days",
        ylabel="lead for an even chance, users",
        title="(3, 1e-6)-DP for the whole month, k = 10, kbar = 1000",
    )
    axes.legend(fontsize="small")
