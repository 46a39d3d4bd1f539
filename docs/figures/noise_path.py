"""Draws docs/figures/noise-path.svg: the noise path of one count, and three audiences that read it.

The path is a real one, drawn as releases draw it, from bits of a fixed key. Run from the root of the repository:

    python -m docs.figures.noise_path
"""

from __future__ import annotations

import sys
from fractions import Fraction
from math import log, sqrt
from pathlib import Path

import numpy as np

from stream_dp.exact.bits import KeyedBits
from stream_dp.lossless.levels import noise_parameter, threshold_for
from stream_dp.lossless.sealed import laplace_excess, seal

COUNT = 40
KEY, WINDOW = bytes(range(32)), b"docs/17"
COARSEST, FINEST, POINTS = Fraction(1, 20), Fraction(4), 400
AUDIENCES = {"public": Fraction(1, 10), "partner": Fraction(1, 2), "internal": Fraction(2)}

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 60, 24, 56, 64
LOWEST, HIGHEST = 0, 80


def levels() -> list[Fraction]:
    """Epsilons from coarse to fine, even on a log scale, each a short rational, and those of the audiences."""
    steps = (float(COARSEST) * float(FINEST / COARSEST) ** (i / (POINTS - 1)) for i in range(POINTS))
    return sorted({*(Fraction(round(epsilon * 10**6), 10**6) for epsilon in steps), *AUDIENCES.values()})


def path(epsilons: list[Fraction]) -> list[int]:
    """The count with the noise of every level."""
    thresholds, bits = [threshold_for(epsilon) for epsilon in epsilons], KeyedBits(KEY, WINDOW)
    (fine,) = seal(np.array([COUNT]), thresholds[-1], bits).tolist()
    return [*(fine + laplace_excess(thresholds, 1, bits)[0]).tolist(), fine]


def deviation(epsilon: Fraction) -> float:
    """The standard deviation of the noise at a level."""
    a = float(noise_parameter(threshold_for(epsilon)))
    return sqrt(2 * a) / (1 - a)


def x(epsilon: Fraction) -> float:
    """Where a level stands."""
    share = log(epsilon / COARSEST) / log(FINEST / COARSEST)
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def y(value: float) -> float:
    """Where a value stands; what is outside the picture is moved to its edge."""
    share = (min(max(value, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def text(x: float, y: float, words: str, *, anchor: str = "middle", fill: str = "#333", size: int = 13) -> str:
    """A line of text."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{words}</text>'


def staircase(epsilons: list[Fraction], values: list[int]) -> str:
    """The path as an SVG path with a corner wherever the value changes."""
    corners = [f"M{x(epsilons[0])} {y(values[0])}"]
    for epsilon, before, value in zip(epsilons[1:], values, values[1:], strict=False):
        if value != before:
            corners.append(f"H{x(epsilon)}V{y(value)}")
    return "".join([*corners, f"H{x(epsilons[-1])}"])


def band(epsilons: list[Fraction]) -> str:
    """One standard deviation around the count."""
    some = epsilons[::13] + epsilons[-1:]
    upper = [f"{x(epsilon)} {y(COUNT + deviation(epsilon))}" for epsilon in some]
    lower = [f"{x(epsilon)} {y(COUNT - deviation(epsilon))}" for epsilon in reversed(some)]
    return "M" + "L".join(upper + lower) + "Z"


def axes() -> list[str]:
    """Ticks, and what the directions mean."""
    base = HEIGHT - BOTTOM
    parts = [f'<path d="M{LEFT} {TOP}V{base}H{WIDTH - RIGHT}" fill="none" stroke="#333"/>']
    for epsilon in ("0.05", "0.1", "0.2", "0.5", "1", "2", "4"):
        parts.append(f'<path d="M{x(Fraction(epsilon))} {base}v5" stroke="#333"/>')
        parts.append(text(x(Fraction(epsilon)), base + 19, epsilon))
    for value in range(LOWEST, HIGHEST + 1, 20):
        parts.append(f'<path d="M{LEFT} {y(value)}h-5" stroke="#333"/>')
        parts.append(text(LEFT - 9, y(value) + 4, str(value), anchor="end"))
    parts.append(text(LEFT, base + 44, "← coarser: add noise that has nothing to do with the data", anchor="start"))
    parts.append(text(WIDTH - RIGHT, base + 44, "finer: read on, and pay the difference →", anchor="end"))
    parts.append(
        text((LEFT + WIDTH - RIGHT) / 2, 22, "One noise path per count: every audience reads it at its own ε", size=16)
    )
    return parts


def readings(values: dict[Fraction, int]) -> list[str]:
    """What each audience sees."""
    parts = []
    for name, epsilon in AUDIENCES.items():
        value = values[epsilon]
        parts.append(f'<path d="M{x(epsilon)} {TOP}V{HEIGHT - BOTTOM}" stroke="#999" stroke-dasharray="2 4"/>')
        parts.append(f'<circle cx="{x(epsilon)}" cy="{y(value)}" r="5" fill="#c2185b"/>')
        parts.append(text(x(epsilon), TOP - 8, f"{name}: {value}", fill="#c2185b"))
    return parts


def picture() -> str:
    """The whole file."""
    epsilons = levels()
    values = path(epsilons)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
            "<title>The noise path of one count over the privacy parameter and three audiences</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            f'<path d="{band(epsilons)}" fill="#cfd8dc" opacity="0.7"/>',
            f'<path d="M{LEFT} {y(COUNT)}H{WIDTH - RIGHT}" stroke="#333" stroke-dasharray="8 5"/>',
            text(WIDTH - RIGHT, y(COUNT) - 12, "dashed: the exact count, erased", anchor="end"),
            text(LEFT + 8, y(COUNT - 16), "grey: one standard deviation", anchor="start", fill="#546e7a"),
            f'<path d="{staircase(epsilons, values)}" fill="none" stroke="#1565c0" stroke-width="2"/>',
            *axes(),
            *readings(dict(zip(epsilons, values, strict=True))),
            "</svg>",
            "",
        ]
    )


def main() -> None:
    """Write the file beside this script, or where the argument says."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("noise-path.svg")
    file.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
