"""Draws docs/figures/budgets.svg: the lead an item needs over the number of windows that share a month's budget.

Run from the root of the repository:

    python -m docs.figures.budgets
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from pathlib import Path

from experiments.topk.numbers import K, Month, laplace_month, month

WINDOWS = (1, 2, 4, 8, 15, 30, 60, 120, 240, 480, 720, 1440, 2880, 5760, 8640)
SCHEDULES = {1: "one", 4: "weekly", 30: "daily", 720: "hourly", 8640: "5 min"}

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 56, 64
LOWEST, HIGHEST = 5, 120_000


@dataclass(frozen=True)
class Curve:
    """One way to spend the budget."""

    labels: tuple[str, str]
    colour: str
    items: int | None
    size: Callable[[int], Month]
    label_shift: float


CURVES = (
    Curve(("10 outputs a window,", "any number of items"), "#1565c0", None, lambda n: month(n, K * n), -14),
    Curve(
        ("2 outputs a window,", "any number of items"),
        "#c2185b",
        None,
        lambda n: month(n, min(2 * n + K, K * n)),
        22,
    ),
    Curve(("Laplace noise,", "one item per user"), "#2e7d32", 1, laplace_month, -10),
)


def x(windows: int) -> float:
    """Where a number of windows stands."""
    return round(LEFT + log(windows) / log(WINDOWS[-1]) * (WIDTH - LEFT - RIGHT), 1)


def y(users: float) -> float:
    """Where a lead stands."""
    share = log(users / LOWEST) / log(HIGHEST / LOWEST)
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def text(x: float, y: float, words: str, *, anchor: str = "middle", fill: str = "#333", size: int = 13) -> str:
    """A line of text."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{words}</text>'


def axes() -> list[str]:
    """Ticks, and what the axes mean."""
    base, end = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [f'<path d="M{LEFT} {TOP}V{base}H{end}" fill="none" stroke="#333"/>']
    for windows, name in SCHEDULES.items():
        parts.append(f'<path d="M{x(windows)} {TOP}V{base + 5}" stroke="#ccc"/>')
        parts.append(text(x(windows), base + 19, name))
    for users in (10, 100, 1000, 10_000, 100_000):
        parts.append(f'<path d="M{LEFT - 5} {y(users)}H{end}" stroke="#ccc"/>')
        parts.append(text(LEFT - 9, y(users) + 4, f"{users:,}", anchor="end"))
    parts.append(text((LEFT + end) / 2, base + 46, "windows in 30 days under one budget of (3, 1e-6)"))
    parts.append(text(LEFT - 50, 42, "users an item needs above the item of rank kbar + 1", anchor="start"))
    parts.append(text(WIDTH / 2, 20, "More releases under one budget: every one sees less", size=16))
    return parts


def curve(one: Curve) -> list[str]:
    """A curve with its label."""
    points = [(x(windows), y(float(one.size(windows).lead[one.items]))) for windows in WINDOWS]
    line = "L".join(f"{across} {up}" for across, up in points)
    across, up = points[-1][0] + 8, round(points[-1][1] + one.label_shift, 1)
    return [
        f'<path d="M{line}" fill="none" stroke="{one.colour}" stroke-width="2"/>',
        *(f'<circle cx="{a}" cy="{b}" r="2.5" fill="{one.colour}"/>' for a, b in points),
        text(across, up, one.labels[0], anchor="start", fill=one.colour),
        text(across, round(up + 16, 1), one.labels[1], anchor="start", fill=one.colour),
    ]


def picture() -> str:
    """The whole file."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
            "<title>The lead an item needs over the number of windows in a month</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            *axes(),
            *(part for one in CURVES for part in curve(one)),
            "</svg>",
            "",
        ]
    )


def main() -> None:
    """Write the file beside this script, or where the argument says."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("budgets.svg")
    file.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
