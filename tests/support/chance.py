"""How well a sample fits a law: Pearson's chi-square, from which a test takes its false-alarm rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import exp

from stream_dp.lossless.discrete_laplace import pmf, tail


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
    statistic = sum((cells[z] - e) ** 2 / e for z, e in expected.items())
    return _survival(statistic, len(law) - 1)


def _survival(statistic: float, freedom: int) -> float:
    """P(chi-square > statistic) for an even number of degrees of freedom: a Poisson sum."""
    assert freedom % 2 == 0
    term = total = 1.0
    for i in range(1, freedom // 2):
        term *= statistic / 2 / i
        total += term
    return exp(-statistic / 2) * total
