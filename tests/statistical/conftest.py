"""What statistical tests share: a chi-square test over any cells."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from math import exp, gamma

import pytest


@pytest.fixture(scope="session")
def chi_square() -> Callable[[Mapping[Hashable, int], Mapping[Hashable, float]], float]:
    """P(a chi-square statistic at least as large) for counts in cells against the probabilities of the cells.

    Cells that expect fewer than 5 counts, and whatever is in none, are one cell together.
    """

    def p_value(counts: Mapping[Hashable, int], law: Mapping[Hashable, float]) -> float:
        size = sum(counts.values())
        large = {cell: size * p for cell, p in law.items() if size * p >= 5}
        rest_expected = size - sum(large.values())
        rest_found = size - sum(counts.get(cell, 0) for cell in large)
        statistic = sum((counts.get(cell, 0) - e) ** 2 / e for cell, e in large.items())
        assert len(large) > 1
        if rest_expected >= 5:
            return _survival(statistic + (rest_found - rest_expected) ** 2 / rest_expected, len(large))
        assert rest_found <= 5 * rest_expected + 20  # too few to be a cell, and far too many would be a fault
        return _survival(statistic, len(large) - 1)

    return p_value


def _survival(statistic: float, freedom: int) -> float:
    """P(chi-square > statistic): the regularised upper incomplete gamma function, by its continued fraction."""
    a, x = freedom / 2, statistic / 2
    if x < a + 1:
        term = total = 1 / a
        n = 0
        while term > total * 1e-15:
            n += 1
            term *= x / (a + n)
            total += term
        return 1 - total * _scale(a, x)
    b = x + 1 - a
    c, d = 1e300, 1 / b
    value = d
    for i in range(1, 10_000):
        factor = -i * (i - a)
        b += 2
        d = 1 / (factor * d + b)
        c = b + factor / c
        value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return value * _scale(a, x)


def _scale(a: float, x: float) -> float:
    """x^a e^-x / gamma(a), in pieces that do not overflow."""
    if a > 100:
        return _scale(a - 1, x) * x / (a - 1)
    return x**a * exp(-x / 2) * exp(-x / 2) / gamma(a)
