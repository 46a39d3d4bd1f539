"""Probabilities that are no rationals: enclosures at a precision, as numbers."""

from __future__ import annotations

from fractions import Fraction

PRECISION = 160


def real(enclosure: tuple[int, int]) -> tuple[Fraction, Fraction]:
    """The two ends."""
    return Fraction(enclosure[0], 1 << PRECISION), Fraction(enclosure[1], 1 << PRECISION)


def middle(enclosure: tuple[int, int]) -> float:
    """What lies between them."""
    return float(Fraction(sum(enclosure), 2 << PRECISION))
