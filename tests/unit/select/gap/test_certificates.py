"""What a gap certifies: listed thresholds, every rounding on the safe side, and claims that are seldom false."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.exact.bits import KeyedBits
from stream_dp.select.candidates import Neighbours
from stream_dp.select.top_k_with_gaps import GapParameters, margin, wrong_chance
from tests.support.chosen import kept_ordinary
from tests.support.gap_oracle import QuickBits
from tests.support.gap_shipped import gap_top_k_of_array


def parameters(row: dict[str, Any]) -> GapParameters:
    neighbours = Neighbours.ADD_OR_REMOVE if row["monotone"] else Neighbours.REPLACE
    resolution = int(1 / Fraction(row["gamma_star"]))
    return GapParameters(row["k"], Fraction(row["eps"]), resolution, bool(row["monotone"]), neighbours=neighbours)


def test_claims_begin_at_the_listed_gaps(vectors: dict[str, Any]) -> None:
    for row in vectors["certificates"]["cases"]:
        p, alpha = parameters(row), Fraction(row["alpha"])
        assert margin(row["m0"] - 1, alpha, p) is None
        claimed = margin(row["m0"], alpha, p)
        exact = Fraction(row["m0"], p.resolution) - Fraction(row["t_alpha"])
        assert claimed is not None
        assert 0 <= exact - claimed < Fraction(1, 10**10)
        assert wrong_chance(row["m0"], p) <= alpha < wrong_chance(row["m0"] - 1, p)


@pytest.mark.parametrize("gap", [0, 1, 7, 60, 461, 5000, 30_000])
def test_the_chance_is_rounded_up_and_the_margin_down(gap: int) -> None:
    p = GapParameters(1, Fraction(1), 10)
    with localcontext() as context:
        context.prec = 40
        exact = Fraction((-Decimal(gap) / 20).exp())
        behind = Fraction(gap, 10) - 2 * Fraction(Decimal(20).ln())
    told = wrong_chance(gap, p)
    assert exact * (1 - Fraction(1, 10**30)) <= told
    assert told <= exact * (1 + Fraction(2, 10**11)) or told == Fraction(wrong_chance(10**6, p))
    claimed = margin(gap, Fraction(1, 20), p)
    assert (claimed is None) == (behind < 0)
    if claimed is not None:
        assert behind * (1 - Fraction(1, 10**11)) <= claimed <= behind


def test_a_gap_beyond_measure_has_a_chance_that_is_still_above_0() -> None:
    assert Fraction(1, 1 << 1100) <= wrong_chance(10**12, GapParameters(1, Fraction(1), 10)) < Fraction(1, 10**300)


KEYS, SCALE = 200, 2
FIRST_OF_MANY = 11
"""About scale ln n: as far ahead as the largest of so many noises."""
TABLES = {
    "flat": [100] * KEYS,
    "one above": [100 + FIRST_OF_MANY] + [100] * (KEYS - 1),
    "ladder": list(range(100, 100 - KEYS, -1)),
    "pair": [130, 130] + [100] * (KEYS - 2),
    "clear": [160] + [100] * (KEYS - 1),
}


@pytest.mark.statistical
@pytest.mark.parametrize("runs", [700, pytest.param(30_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("table", kept_ordinary(["flat", "one above"], TABLES))
def test_false_claims_are_as_seldom_as_promised(table: str, runs: int) -> None:
    """Four deviations. False alarm: 1e-4 at most; and where all counts are equal nearly all of alpha is used."""
    p, alpha = GapParameters(1, Fraction(1), 10), Fraction(1, 10)
    assert p.scale == SCALE
    counts, bits = np.array(TABLES[table]), QuickBits(KeyedBits(b"claims", table.encode()))
    false = 0
    for _ in range(runs):
        (first,), (gap,) = gap_top_k_of_array(counts, 0, p, bits)
        claimed = margin(gap, alpha, p)
        if claimed is not None:
            others = np.delete(counts, first)
            false += bool(claimed > int(counts[first]) - int(others.max()))
    slack = 4 * (float(alpha * (1 - alpha)) / runs) ** 0.5
    assert false / runs <= float(alpha) + slack
    if table == "flat":
        assert false / runs >= float(alpha) * 0.9 - slack
