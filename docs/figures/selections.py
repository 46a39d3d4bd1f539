"""Draws docs/figures/selections.svg: what an exact top-k costs, and what refinements of exact noise cost.

Run from the root of the repository:

    python -m docs.figures.selections
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import log
from pathlib import Path

from experiments.gap.numbers import PRUNED, UNPRUNED, SeededBits, scale
from experiments.gap.secure_gap import CountedCoins, secure_gap_top_k
from experiments.gap.transactions import PUBLISHED, stand_in
from experiments.subset import canonical, one_shot
from experiments.subset.canonical import class_law
from experiments.subset.noises import EXPONENTIAL, GUMBEL
from experiments.subset.profiles import Profile
from experiments.subset.score_sets import netflix_like
from experiments.subset.solving import epsilon_at

SUBSET_KS = (10, 20, 50, 100, 200)
GAP_KS = (25, 50, 100, 200, 400, 800)
GAP_TABLE = PUBLISHED[1]
RUNS = 8
WIDTH, HEIGHT = 860, 380
TOP, BOTTOM = 60, 60
LEFT_PANEL, RIGHT_PANEL = (60, 340), (510, 760)

Points = Sequence[tuple[float, float]]


def budgets() -> dict[str, Points]:
    """Epsilon for the exact top-k at 99.9 %, by selection and k."""
    profiles = {k: Profile.of(netflix_like(), k) for k in SUBSET_KS}
    chances = {
        "peeling": lambda profile, epsilon: one_shot.top(profile, GUMBEL, epsilon),
        "one-shot": lambda profile, epsilon: one_shot.top(profile, EXPONENTIAL, epsilon),
        "canonical, γ=1/2": lambda profile, epsilon: class_law(profile, canonical.PAPER, epsilon).top,
        "signed, γ=3/4": lambda profile, epsilon: class_law(profile, canonical.SIGNED, epsilon).top,
    }
    return {
        name: [(k, epsilon_at(0.999, lambda e: chance(profile, e), 0.01) or 0.0) for k, profile in profiles.items()]  # noqa: B023
        for name, chance in chances.items()
    }


def draws() -> dict[str, Points]:
    """Exact noises drawn for every key, by mechanism and k."""
    steps = [10 * count for count in stand_in(GAP_TABLE)]
    found: dict[str, list[tuple[float, float]]] = {UNPRUNED: [], PRUNED: [], "released": []}
    for k in GAP_KS:
        for name in (UNPRUNED, PRUNED):
            coins = CountedCoins(SeededBits(name, k))
            for _ in range(RUNS):
                secure_gap_top_k(steps, k, scale(k), coins, pruned=name == PRUNED)
            found[name].append((k, coins.geometrics / RUNS / len(steps)))
        found["released"].append((k, 1.0))
    return found


def text(x: float, y: float, words: str, *, anchor: str = "middle", fill: str = "#333", size: int = 12) -> str:
    """A line of text."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{words}</text>'


def panel(
    ends: tuple[int, int],
    curves: dict[str, Points],
    *,
    ticks: Sequence[float],
    logarithmic: bool,
    title: str,
    unit: str,
) -> list[str]:
    """Curves over k on a logarithmic axis, with marks at `ticks` upwards and labels at the right."""
    left, right = ends
    ks = [k for k, _ in next(iter(curves.values()))]
    scaled = log if logarithmic else float

    def x(k: float) -> float:
        return round(left + log(k / ks[0]) / log(ks[-1] / ks[0]) * (right - left), 1)

    def y(value: float) -> float:
        share = (scaled(value) - scaled(ticks[0])) / (scaled(ticks[-1]) - scaled(ticks[0]))
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    base = HEIGHT - BOTTOM
    parts = [f'<path d="M{left} {TOP}V{base}H{right}" fill="none" stroke="#333"/>']
    for k in ks:
        parts.append(f'<path d="M{x(k)} {TOP}V{base + 5}" stroke="#ddd"/>')
        parts.append(text(x(k), base + 19, f"{k:g}"))
    for tick in ticks:
        parts.append(f'<path d="M{left - 5} {y(tick)}H{right}" stroke="#ddd"/>')
        parts.append(text(left - 9, y(tick) + 4, f"{tick:g}", anchor="end"))
    parts.append(text((left + right) / 2, base + 42, "k"))
    parts.append(text(left - 40, 24, title, anchor="start", size=14))
    parts.append(text(left - 40, 44, unit, anchor="start"))
    for (name, points), colour in zip(curves.items(), ("#c2185b", "#ef6c00", "#1565c0", "#2e7d32"), strict=False):
        line = "L".join(f"{x(k)} {y(value)}" for k, value in points)
        parts.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        shift = 12 if name in ("one-shot", "signed, γ=3/4", "released") else -2
        parts.append(text(right + 6, round(y(points[-1][1]) + shift, 1), name, anchor="start", fill=colour))
    return parts


def picture() -> str:
    """The whole file."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
            "<title>What an exact top-k costs, and what refinements of exact noise cost</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            *panel(
                LEFT_PANEL,
                budgets(),
                ticks=(0.001, 0.01, 0.1, 1, 10, 100),
                logarithmic=True,
                title="A subset at once, or item by item",
                unit="ε for the exact top-k at 99.9 %",
            ),
            *panel(
                RIGHT_PANEL,
                draws(),
                ticks=(0, 1, 2, 3, 4),
                logarithmic=False,
                title="Secure gaps: refine all, some or none",
                unit=f"exact noises for each of {GAP_TABLE.items:,} keys",
            ),
            "</svg>",
            "",
        ]
    )


def main() -> None:
    """Write the file beside this script, or where the argument says."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("selections.svg")
    file.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
