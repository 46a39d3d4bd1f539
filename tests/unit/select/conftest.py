"""Exact output laws, of the shipped draws and of the plain peeling form, and the divergence of two laws: enclosures."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stream_dp.exact.reals import exp_neg
from stream_dp.select.candidates import Item, Row, candidates
from stream_dp.select.gumbel import GumbelTopK, TopKParameters, checked
from stream_dp.select.peeling import BOTTOM, Bottom, Peeling
from tests.support.tapes import RecordedBits

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
Law = Mapping[GumbelTopK, Enclosure]


def law_of_draws(k: int, draws: Callable[[tuple[int, ...]], Mapping[int, Enclosure]], names: Sequence[Item]) -> Law:
    """The law of up to k draws, each with the shares that `draws` gives after the places drawn before; -1 ends."""
    law: dict[GumbelTopK, Enclosure] = {}
    open_ends: list[tuple[tuple[int, ...], Enclosure]] = [((), ONE)]
    while open_ends:
        places, probability = open_ends.pop()
        if len(places) == k or places[-1:] == (BOTTOM,):
            output = GumbelTopK(tuple(names[place] for place in places if place != BOTTOM), places[-1:] == (BOTTOM,))
            assert output not in law
            law[output] = probability
            continue
        open_ends += [((*places, place), probability.times(share)) for place, share in draws(places).items()]
    assert abs(sum((x.upper for x in law.values()), Fraction(0)) - 1) < Fraction(1, 10**30)
    return law


def shares(weights: Mapping[int, Enclosure]) -> dict[int, Enclosure]:
    least, most = sum(x.lower for x in weights.values()), sum(x.upper for x in weights.values())
    return {place: Enclosure(Fraction(x.lower, most), Fraction(x.upper, least)) for place, x in weights.items()}


def oracle_of_rows(given: Iterable[Row], h_next: int, p: TopKParameters, plus: int = 1) -> Law:
    """The plain peeling form (Algorithm 3): weights of the exponential mechanism, whatever the rows are."""
    rows, floor = list(given), h_next + plus
    reference = max([floor, *(count for _, count in rows)])

    def draws(places: tuple[int, ...]) -> dict[int, Enclosure]:
        left = [place for place in range(len(rows)) if place not in places]
        weights = {place: powers(p.epsilon * (reference - rows[place][1])) for place in left}
        weights[BOTTOM] = powers(p.epsilon * (reference - floor)).times(Enclosure(p.odds, p.odds))
        return shares(weights)

    return law_of_draws(p.k, draws, [item for item, _ in rows])


def proposed(peeling: Peeling, taken: Collection[int]) -> dict[int, tuple[Enclosure, int]]:
    """What a draw accepts, with the mass of its proposals times its coin, and its level; every number is looked at."""
    proposal, found = peeling.proposal, dict[int, tuple[Enclosure, int]]()
    bounds = [*proposal.starts, proposal.total]
    for (start, end), level in zip(pairwise(bounds), proposal.levels, strict=True):
        number = start
        while number < end:
            place, at_level = proposal.at(number)
            assert at_level == level
            mass = proposal.units << proposal.top - level if place != BOTTOM else end - number
            assert proposal.at(number + mass - 1) == (place, level)
            assert place not in found
            number += mass
            if place in taken:
                continue
            lower, upper = peeling.coin(place, level, PRECISION)
            assert upper <= 1 << PRECISION
            found[place] = (
                Enclosure(Fraction(mass * lower, 1 << PRECISION), Fraction(mass * upper, 1 << PRECISION)),
                level,
            )
        assert number == end
    return found


def law_of_rows(rows: Iterable[Row], h_next: int, p: TopKParameters) -> Law:
    """The law of the shipped draws: what they propose and accept, state by state."""
    given = checked(rows, h_next, p.kbar, p.domain)

    def draws(places: tuple[int, ...]) -> dict[int, Enclosure]:
        peeling = Peeling(given, p.epsilon, Bottom(h_next + 1, p.odds), RecordedBits(b""))
        for i, place in enumerate(places):
            peeling.take(place, proposed(peeling, places[:i])[place][1])
        return shares({place: mass for place, (mass, _) in proposed(peeling, places).items()})

    return law_of_draws(p.k, draws, [item for item, _ in given])


def law_of_counts(counts: Mapping[bytes, int], p: TopKParameters) -> Law:
    return law_of_rows(*candidates(counts, p.kbar, p.domain), p)


def powers(exponent: Fraction) -> Enclosure:
    """e^-exponent, the same for the same exponent: built once."""
    if exponent not in _powers:
        lower, upper = exp_neg(exponent, PRECISION)
        _powers[exponent] = Enclosure(Fraction(lower, 1 << PRECISION), Fraction(upper, 1 << PRECISION))
    return _powers[exponent]


_powers: dict[Fraction, Enclosure] = {}


def power_of_e(exponent: Fraction) -> Enclosure:
    lower, upper = exp_neg(exponent, PRECISION)
    return Enclosure(Fraction(1 << PRECISION, upper), Fraction(1 << PRECISION, lower))


def divergence(one: Law, other: Law, epsilon: Callable[[GumbelTopK], Fraction]) -> Enclosure:
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
    oracle_of_rows = staticmethod(oracle_of_rows)
    proposed = staticmethod(proposed)
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
