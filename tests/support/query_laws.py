"""Laws of counting queries as fractions, and bits that a test chose and counts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TypeVar

from stream_dp.histograms.counting_queries import Base, CountingQuery

Output = TypeVar("Output")
Law = Sequence[Fraction]


def thresholds(query: CountingQuery, count: int) -> list[int]:
    """The distribution function at 0..n, times `draws`."""
    return [query.cdf(count, z) for z in range(query.bound + 1)]


def law(query: CountingQuery, count: int) -> Law:
    """Probabilities of 0..n."""
    return [Fraction(b - a, query.draws) for a, b in pairwise([0, *thresholds(query, count)])]


def laws(query: CountingQuery) -> list[Law]:
    """One law for each count."""
    return [law(query, count) for count in range(query.bound + 1)]


def worst_ratio(of: Sequence[Law]) -> Fraction | None:
    """The largest factor between neighbouring counts; None if an output is impossible at one of them only."""
    pairs = [pair for one, other in pairwise(of) for pair in zip(one, other, strict=True) if any(pair)]
    return None if any(not all(pair) for pair in pairs) else max(max(Fraction(a, b), Fraction(b, a)) for a, b in pairs)


def clamped_geometric(n: int, base: Base, count: int) -> Law:
    """The closed form of clamped two-sided geometric noise."""
    a = Fraction(base.u, base.w)
    inner = [(1 - a) / (1 + a) * a ** abs(z - count) for z in range(1, n)]
    return [a**count / (1 + a), *inner, a ** (n - count) / (1 + a)]


def distance(one: Law, other: Law) -> Fraction:
    """The total variation distance."""
    return sum((abs(a - b) for a, b in zip(one, other, strict=True)), Fraction(0)) / 2


def excess(one: Mapping[Output, Fraction], other: Mapping[Output, Fraction], ratio: Fraction) -> Fraction:
    """The delta of one law against another at an epsilon of ln `ratio`."""
    return sum((max(Fraction(0), p - ratio * other.get(at, Fraction(0))) for at, p in one.items()), Fraction(0))


def digest(integers: Iterable[int]) -> str:
    """The hash that the vectors give of long lists."""
    return hashlib.sha256(",".join(f"{x:x}" for x in integers).encode()).hexdigest()


class ChosenIntegers:
    """A source of the given integers, one for each call; keeps how many bits were asked for."""

    def __init__(self, *integers: int) -> None:
        self._left = list(integers)
        self.asked: list[int] = []

    def bits(self, n: int) -> int:
        self.asked.append(n)
        value = self._left.pop(0)
        assert 0 <= value < 1 << n
        return value
