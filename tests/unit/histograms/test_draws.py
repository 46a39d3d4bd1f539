"""Draws against the exact laws, on keyed bits: the same on every run.

A chi-square test refuses a right sampler with probability 10^-6; with the bits fixed that is decided once and for all.
Each refuses the law of a base whose exponent is smaller by half. The long form of 200,000 draws runs with `make slow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import pytest

from experiments.finite.samplers import fast_sample, geo_sample, paper_cutoff
from stream_dp.exact.bits import KeyedBits
from stream_dp.exact.coins import uniform
from stream_dp.histograms.basic import basic_histogram
from stream_dp.histograms.counting_queries import (
    Base,
    CountingQuery,
    ExactGeometric,
    GeometricTable,
    TruncatedGeometric,
)
from tests.support.chance import pooled_p_value
from tests.support.query_laws import law

pytestmark = pytest.mark.statistical

FALSE_ALARM = 1e-6
sizes = pytest.mark.parametrize("size", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])


def fits(outputs: Sequence[int], of: Sequence[Fraction]) -> bool:
    return pooled_p_value(Counter(outputs), {z: float(p) for z, p in enumerate(of)}) > FALSE_ALARM


def draws(query: CountingQuery, count: int, size: int) -> list[int]:
    """By a uniform integer of 1..d, as the paper draws it."""
    bits = KeyedBits(b"draws", f"{query.draws}, {count}, {size}".encode())
    return [query.sample(count, uniform(query.draws, bits) + 1) for _ in range(size)]


@sizes
@pytest.mark.parametrize("count", [0, 2, 8])
def test_geometric_draws_have_their_law_and_not_that_of_half_the_exponent(count: int, size: int) -> None:
    outputs = draws(geo_sample(8, 3), count, size)
    assert fits(outputs, law(geo_sample(8, 3), count))
    assert not fits(outputs, law(ExactGeometric(8, Base.dyadic(4)), count))


@sizes
@pytest.mark.parametrize("count", [0, 100])
def test_truncated_draws_have_their_law_and_not_that_of_half_the_exponent(count: int, size: int) -> None:
    query = fast_sample(200, 1, 2)
    outputs = draws(query, count, size)
    assert fits(outputs, law(query, count))
    assert not fits(outputs, law(TruncatedGeometric(200, Base.dyadic(2), 2, 2 * paper_cutoff(200, 1, 2)), count))


@sizes
@pytest.mark.parametrize("count", [0, 2, 8, 255])
def test_draws_of_a_table_have_their_law_and_not_that_of_half_the_exponent(count: int, size: int) -> None:
    table = GeometricTable(8, Base.dyadic(3), 6)
    outputs = basic_histogram(table, [count] * size, KeyedBits(b"draws", b"table, %d, %d" % (count, size)))
    assert fits(outputs, law(table, count))
    assert not fits(outputs, law(GeometricTable(8, Base.dyadic(4), 6), count))
