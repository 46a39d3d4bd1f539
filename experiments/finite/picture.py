"""The picture of `python -m experiments finite` as a PNG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.finite.numbers import SLOPES


def draw(slopes: Mapping[str, Sequence[tuple[int, float]]], file: Path) -> None:
    """Draw times over sizes, both in logarithms, a panel for each mechanism.

    Args:
        slopes: by mechanism, sizes and seconds.
        file: where the PNG goes; overwritten.

    Raises:
        OSError: the file cannot be written.
    """
    figure = Figure(figsize=(12, 4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, points) in zip(figure.subplots(1, len(slopes), sharey=True), slopes.items(), strict=True):
        sizes = [size for size, _ in points]
        axes.loglog(sizes, [1000 * seconds for _, seconds in points], ".-", linewidth=1)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set(xlabel=SLOPES[name][0], ylabel="milliseconds", title=name)
    figure.savefig(file, format="png", dpi=150)
