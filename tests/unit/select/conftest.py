"""The exact output law of the shipped peeling form, and the divergence of two laws, as rigorous enclosures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stream_dp.exact.reals import exp_neg
from stream_dp.select import Row, TopK, TopKParameters, candidates
from stream_dp.select.limited_domain import Weights, peel

PRECISION = 160


@dataclass(frozen=True)
class Enclosure:
    """A real number between two rationals."""

    lower: Fraction
    upper: Fraction

    def times(self, other: Enclosure) -> Enclosure:
        return Enclosure(self.lower * other.lower, self.upper * other.upper)

    def minus_floored(self, other: Enclosure) -> Enclosure:
        """max(0, self - other)."""
        return Enclosure(max(Fraction(0), self.lower - other.upper), max(Fraction(0), self.upper - other.lower))


ONE = Enclosure(Fraction(1), Fraction(1))
Law = Mapping[TopK, Enclosure]


def law_of_rows(rows: Sequence[Row], h_next: int, p: TopKParameters) -> Law:
    """Follow every sequence of choices `peel` can make; each is as likely as the product of its draws' shares."""
    law: dict[TopK, Enclosure] = {}
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        script, taken, shares = scripts.pop(), list[int](), [ONE]

        def pick(
            weights: Weights,
            script: tuple[int, ...] = script,
            taken: list[int] = taken,
            shares: list[Enclosure] = shares,
        ) -> int:
            enclosed = weights(PRECISION)
            if len(taken) < len(script):
                index = script[len(taken)]
            else:
                index = 0
                scripts.extend((*taken, other) for other in range(1, len(enclosed)))
            taken.append(index)
            least, most = (sum(bounds) for bounds in zip(*enclosed, strict=True))
            lower, upper = enclosed[index]
            shares.append(shares[-1].times(Enclosure(Fraction(lower, most), Fraction(upper, least))))
            return index

        output = peel(rows, h_next, p, pick)
        assert output not in law
        law[output] = shares[-1]
    assert abs(sum(x.upper for x in law.values()) - 1) < Fraction(1, 10**30)
    return law


def law_of_counts(counts: Mapping[bytes, int], p: TopKParameters) -> Law:
    return law_of_rows(*candidates(counts, p.kbar), p)


def power_of_e(exponent: Fraction) -> Enclosure:
    lower, upper = exp_neg(exponent, PRECISION)
    return Enclosure(Fraction(1 << PRECISION, upper), Fraction(1 << PRECISION, lower))


def divergence(one: Law, other: Law, epsilon: Callable[[TopK], Fraction]) -> Enclosure:
    """The largest excess, over both directions, of a law over the other's e^epsilon(output) multiple."""
    zero = Enclosure(Fraction(0), Fraction(0))
    excess = []
    for p, q in ((one, other), (other, one)):
        parts = [x.minus_floored(power_of_e(epsilon(o)).times(q.get(o, zero))) for o, x in p.items()]
        excess.append((sum(x.lower for x in parts), sum(x.upper for x in parts)))
    return Enclosure(*(Fraction(max(bounds)) for bounds in zip(*excess, strict=True)))


@dataclass(frozen=True)
class Laws:
    """What the tests call."""

    of_rows = staticmethod(law_of_rows)
    of_counts = staticmethod(law_of_counts)
    divergence = staticmethod(divergence)
    power_of_e = staticmethod(power_of_e)


@pytest.fixture(scope="session")
def laws() -> Laws:
    return Laws()


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    """Decimals are read as the exact rationals they spell."""
    text = (Path(__file__).parents[2] / "vectors" / "topk.json").read_text()
    loaded: dict[str, Any] = json.loads(text, parse_float=Fraction)
    return loaded
