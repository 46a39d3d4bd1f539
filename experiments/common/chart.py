"""Curves drawn with the dots of Braille characters, on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from rich.text import Text

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a Braille character by row and column of its dots."""


@dataclass(frozen=True, slots=True)
class Line:
    """A curve.

    Attributes:
        label: written at its right end.
        style: of rich.
        points: (x, y), positive where the axis is logarithmic, at least one, joined in their order.
    """

    label: str
    style: str
    points: Sequence[tuple[float, float]]


def log_log_chart(lines: Sequence[Line], *, width: int, height: int) -> Text:
    """Draw curves over decades; where curves meet, the last one gives the colour.

    Args:
        lines: the curves, at least one.
        width: columns of the plot, without the labels around it.
        height: rows of the plot.

    Returns:
        `height` rows and two more for the axis, marked at the powers of ten.
    """
    vertical = _Decades.around([y for line in lines for _, y in line.points], 4 * height)
    return _chart(lines, _decades(lines, width), vertical, width, height)


def log_linear_chart(lines: Sequence[Line], *, width: int, height: int) -> Text:
    """Draw the same over decades from left to right and an even scale upwards, marked at round numbers."""
    vertical = _Even.around([y for line in lines for _, y in line.points], 4 * height)
    return _chart(lines, _decades(lines, width), vertical, width, height)


def _decades(lines: Sequence[Line], width: int) -> _Decades:
    return _Decades.around([x for line in lines for x, _ in line.points], 2 * width)


def _chart(lines: Sequence[Line], horizontal: _Axis, vertical: _Axis, width: int, height: int) -> Text:
    cells: dict[tuple[int, int], tuple[int, str]] = {}
    labels: dict[int, list[tuple[str, str]]] = {}
    for line in lines:
        dots = [(horizontal.dot(x), vertical.dot(y)) for x, y in line.points]
        for x, y in [dots[0], *(dot for start, end in pairwise(dots) for dot in _segment(start, end))]:
            place = (height - 1 - y // 4, x // 2)
            mask = cells.get(place, (0, ""))[0]
            cells[place] = (mask | _DOTS[3 - y % 4][x % 2], line.style)
        labels.setdefault(height - 1 - dots[-1][1] // 4, []).append((line.label, line.style))
    marks = {height - 1 - dot // 4: name for dot, name in vertical.marks()}
    margin = max(map(len, marks.values()))
    chart = Text()
    for row in range(height):
        chart.append(f"{marks.get(row, ''):>{margin}} {'┤' if row in marks else '│'}")
        for column in range(width):
            mask, style = cells.get((row, column), (0, ""))
            chart.append(chr(_BRAILLE + mask) if mask else " ", style)
        for index, (label, style) in enumerate(labels.get(row, [])):
            chart.append(", " if index else " ")
            chart.append(label, style)
        chart.append("\n")
    return chart.append(_bottom(horizontal, margin, width))


def _bottom(axis: _Axis, margin: int, width: int) -> str:
    rule, names = ["─"] * width, [" "] * (width + 24)
    for dot, name in axis.marks():
        rule[dot // 2] = "┴"
        names[dot // 2 : dot // 2 + len(name)] = name
    return f"{'':{margin}} └{''.join(rule)}\n{'':{margin}}  {''.join(names).rstrip()}"


class _Axis(Protocol):
    """Where values stand, counted in dots, and which of them are named."""

    def dot(self, value: float) -> int: ...

    def marks(self) -> list[tuple[int, str]]: ...


@dataclass(frozen=True, slots=True)
class _Decades:
    low: float
    high: float
    dots: int

    @classmethod
    def around(cls, values: Sequence[float], dots: int) -> _Decades:
        low, high = math.log10(min(values)), math.log10(max(values))
        return cls(low, max(high, low + 1), dots)

    def dot(self, value: float) -> int:
        return round((math.log10(value) - self.low) / (self.high - self.low) * (self.dots - 1))

    def marks(self) -> list[tuple[int, str]]:
        powers = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1)
        return [(self.dot(10.0**power), f"{10.0**power:g}") for power in powers]


_MOST_MARKS = 8


@dataclass(frozen=True, slots=True)
class _Even:
    step: float
    first: int
    last: int
    dots: int

    @classmethod
    def around(cls, values: Sequence[float], dots: int) -> _Even:
        low, high = min(values), max(values)
        power = 10.0 ** math.floor(math.log10(max(high - low, 1e-9)) - 1)
        step = next(step for step in (power, 2 * power, 5 * power, 10 * power, 20 * power) if _fits(low, high, step))
        first = math.floor(low / step + 1e-9)
        return cls(step, first, max(math.ceil(high / step - 1e-9), first + 1), dots)

    def dot(self, value: float) -> int:
        return round((value / self.step - self.first) / (self.last - self.first) * (self.dots - 1))

    def marks(self) -> list[tuple[int, str]]:
        return [(self.dot(n * self.step), f"{n * self.step:g}") for n in range(self.first, self.last + 1)]


def _fits(low: float, high: float, step: float) -> bool:
    return math.ceil(high / step) - math.floor(low / step) < _MOST_MARKS


def _segment(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (
            start[0] + round((end[0] - start[0]) * step / steps),
            start[1] + round((end[1] - start[1]) * step / steps),
        )
        for step in range(1, steps + 1)
    ]
