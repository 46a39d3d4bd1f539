"""How well a sample fits a law: Pearson's chi-square, from which a test takes its false-alarm rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from fractions import Fraction
from typing import TypeVar

from scipy.stats import chi2

from tests.support.laplace_family import pmf
from tests.support.laplace_laws import tail

Cell = TypeVar("Cell", bound=Hashable)


def laplace_cells(a: Fraction, reach: int) -> dict[int, Fraction]:
    """The discrete Laplace law on the cells -reach..reach, whose ends hold the tails."""
    law = {z: pmf(a, z) for z in range(-reach + 1, reach)}
    return law | {-reach: tail(a, reach), reach: tail(a, reach)}


def p_value(sample: Iterable[int], law: Mapping[int, Fraction]) -> float:
    """The chance of a sample that fits the law no better, if the law holds; every cell must expect 50 or more."""
    reach = max(law)
    cells = Counter(max(-reach, min(reach, z)) for z in sample)
    size = cells.total()
    assert sum(law.values()) == 1
    expected = {z: float(size * p) for z, p in law.items()}
    assert min(expected.values()) >= 50
    return survival(sum((cells[z] - e) ** 2 / e for z, e in expected.items()), len(law) - 1)


def pooled_p_value(counts: Mapping[Cell, int], law: Mapping[Cell, float]) -> float:
    """The chance of counts that fit the law no better, over any cells.

    Cells that expect fewer than 5 counts, and whatever is in none, are one cell together.
    """
    size = sum(counts.values())
    large = {cell: size * p for cell, p in law.items() if size * p >= 5}
    rest_expected = size - sum(large.values())
    rest_found = size - sum(counts.get(cell, 0) for cell in large)
    statistic = sum((counts.get(cell, 0) - e) ** 2 / e for cell, e in large.items())
    assert len(large) > 1
    if rest_expected >= 5:
        return survival(statistic + (rest_found - rest_expected) ** 2 / rest_expected, len(large))
    assert rest_found <= 5 * rest_expected + 20  # too few to be a cell, and far too many would be a fault
    return survival(statistic, len(large) - 1)


def survival(statistic: float, freedom: int) -> float:
    """P(chi-square > statistic)."""
    return float(chi2.sf(statistic, freedom))
