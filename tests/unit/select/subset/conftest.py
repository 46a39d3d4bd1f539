"""What the shipped code does with every subset of a small table, cell by cell and outcome by outcome: enclosures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.exact.coins import Real
from stream_dp.select.lipschitz import (
    Cell,
    Envelope,
    Layout,
    Pool,
    ScoreNoise,
    SubsetParameters,
    Variant,
    depth_of,
    lay_out,
    proposal,
)
from stream_dp.select.top_k_subset import ArrivalClock, chance
from tests.support.tapes import RecordedBits

PRECISION = 160
Subset = tuple[int, ...]
Enclosure = tuple[Fraction, Fraction]
ONE = 1 << PRECISION


def parameters(row: Mapping[str, Any], noise: ScoreNoise = ScoreNoise.GUMBEL) -> SubsetParameters:
    """The parameters of a row of the vectors."""
    epsilon = Fraction(row["eps"]) / (2 * Fraction(row["delta"]))  # of counts that one user moves in half a unit
    return SubsetParameters(row["k"], epsilon, Fraction(row["gamma"]), Variant(row["variant"]), noise)


def laid_out(counts: Sequence[int], zeros: int, p: SubsetParameters) -> Layout:
    return lay_out(np.array(counts, np.int64), zeros, p, rate=p.rate_in, depth=depth_of(len(counts) + zeros, p.k))


def cells(envelope: Envelope) -> Iterator[tuple[Cell | None, Fraction]]:
    """Every cell and its envelope; every number below `units` stands for the cell that its range says."""
    unit = envelope.total / envelope.units
    number = 0
    while number < envelope.units:
        cell = envelope.at(number)
        size = (1 << envelope.excess) / unit if cell is None else cell.mass * Fraction(2) ** cell.exponent / unit
        assert size.denominator == 1
        assert envelope.at(number + size.numerator - 1) == cell
        yield cell, size * unit
        number += size.numerator
    assert number == envelope.units


def accepted(
    layout: Layout,
    p: SubsetParameters,
    shares: Callable[[Any], tuple[int, int]] | None = None,
) -> dict[Subset, Enclosure]:
    """For every subset how often it is proposed and accepted, times the sum of all envelopes.

    Args:
        layout: of the counts.
        p: the selection's parameters.
        shares: the chance of a proposal at `PRECISION`; the product's with Gumbel noise where none is given.
    """
    found: dict[Subset, Enclosure] = {tuple(sorted(layout.top.tolist())): (Fraction(1), Fraction(1))}
    envelope = Envelope(layout, p)
    for cell, mass in cells(envelope):
        if cell is None:
            assert mass == 1 << envelope.excess
            continue
        pool = Pool.of(layout, cell, p.k)
        total = 0
        for things in combinations(range(pool.above + pool.inside), pool.need):
            ways = pool.ways(frozenset(things))
            proposed = proposal(layout, cell, p, frozenset(things))
            assert (proposed is None) == (ways == 0)
            if proposed is None:
                continue
            total += ways
            y = tuple(sorted(proposed.positions))
            assert len(set(y)) == p.k
            assert y not in found  # cells do not overlap
            low, high = shares(proposed) if shares else proposed.share(PRECISION)
            assert 0 <= low <= high <= ONE + 1
            assert proposed.ways == ways
            drawn = mass * ways / proposed.outcomes / ONE
            found[y] = drawn * low, drawn * high
        assert total <= pool.outcomes
        assert 2 * total >= pool.outcomes  # what is counted instead of the cell is less than e / (e - 1) of it
    return found


def law(
    counts: Sequence[int], zeros: int, p: SubsetParameters, layout: Layout | None = None
) -> dict[Subset, Enclosure]:
    """The law of the shipped selection with Gumbel noise: what is accepted, over all of it."""
    weights = accepted(layout or laid_out(counts, zeros, p), p)
    least, most = sum(low for low, _ in weights.values()), sum(high for _, high in weights.values())
    return {y: (Fraction(low, most), Fraction(high, least)) for y, (low, high) in weights.items()}


def rates(layout: Layout, p: SubsetParameters, time: Real) -> dict[Subset, Enclosure]:
    """The rates at which subsets succeed at a time, with exponential noise; the top-k always at 1."""

    class At(ArrivalClock):
        def enclose(self, precision: int) -> Enclosure:
            return time.enclose(precision)

    clock = At(Fraction(1), RecordedBits(b""))
    return accepted(layout, p, lambda proposed: chance(proposed, clock, ScoreNoise.EXPONENTIAL)(PRECISION))


@dataclass(frozen=True)
class Laws:
    """What the tests call."""

    parameters = staticmethod(parameters)
    laid_out = staticmethod(laid_out)
    cells = staticmethod(cells)
    accepted = staticmethod(accepted)
    law = staticmethod(law)
    rates = staticmethod(rates)


@pytest.fixture(scope="session")
def subset_laws() -> Laws:
    return Laws()


@pytest.fixture(scope="session")
def subset_vectors() -> dict[str, Any]:
    """Decimals are read as the exact rationals they spell."""
    text = (Path(__file__).parents[3] / "vectors" / "subset.json").read_text()
    loaded: dict[str, Any] = json.loads(text, parse_float=Fraction)
    return loaded
