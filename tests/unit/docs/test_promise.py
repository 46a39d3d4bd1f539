"""The numbers of docs/promise.md are those of the definition and of the mechanisms."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from stream_dp import mechanisms

TEXT = (Path(__file__).parents[3] / "docs" / "promise.md").read_text(encoding="utf-8")


def test_the_guesses_after_are_the_odds_before_times_e_to_the_epsilon() -> None:
    heading, rows = re.findall(r"(?m)^\| guess before \|(.*)\|\n\|.*\n((?:\|.*\n)+)", TEXT)[0]
    epsilons = [float(number) for number in re.findall(r"epsilon ([\d.]+)", heading)]
    guesses = [[float(number) for number in re.findall(r"([\d.]+) %", row)] for row in rows.splitlines()]

    assert len(epsilons) == len(guesses) == 3
    for before, *after in guesses:
        odds = [before / (100 - before) * math.exp(epsilon) for epsilon in epsilons]
        assert after == [float(f"{100 * one / (1 + one):.2g}") for one in odds]


@pytest.mark.parametrize("row", re.findall(r"(?m)^\| \**(?:public|partner|internal|all of them together).*$", TEXT))
def test_the_noise_of_a_level_is_that_of_the_demo(row: str) -> None:
    """Its aircraft count for three destinations in a window."""
    epsilon, half = re.findall(r"(\d/\d)\** \| \**±(\d+)", row)[0]

    assert mechanisms.discrete_laplace_counts({"ORD": 400}, epsilon=epsilon, items_per_user=3).interval_95 == int(half)
