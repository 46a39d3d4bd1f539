"""The law of sums of discrete Laplace noises against convolutions, and what is reported of it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest

from stream_dp.lossless.discrete_laplace import interval, mean_absolute, sum_interval, sum_mean_absolute, sum_tail
from stream_dp.lossless.levels import WORD, threshold_for
from tests.support.chosen import ordinarily
from tests.support.laplace_family import pmf
from tests.support.laplace_laws import tail

RATIOS = [Fraction(1, 5), Fraction(1, 2), Fraction(7, 10)]
REACH = 60


def convolved(a: Fraction, terms: int) -> Mapping[int, Fraction]:
    """P(S = d) for small d, each missing no more than what lies beyond the reach of one noise."""
    found = {0: Fraction(1)}
    one = [(k, pmf(a, k)) for k in range(-REACH, REACH + 1)]
    for _ in range(terms):
        sums: dict[int, Fraction] = {}
        for d, p in found.items():
            for k, q in one:
                if abs(d + k) <= REACH:
                    sums[d + k] = sums.get(d + k, Fraction(0)) + p * q
        found = {d: Fraction(int(p * 10**30), 10**30) for d, p in sums.items()}
    return found


@pytest.mark.parametrize("a", RATIOS)
@pytest.mark.parametrize("terms", ordinarily(2, [1, 2, 3, 5]))
def test_the_tail_and_the_mean_of_a_sum_are_those_of_its_convolution(a: Fraction, terms: int) -> None:
    law = convolved(a, terms)
    missing = 1 - sum(law.values())
    assert 0 <= missing < Fraction(1, 10**4)
    for t in range(12):
        assert 0 <= sum_tail(a, terms, t) - sum(p for d, p in law.items() if d >= t) <= missing
    far = sum(abs(d) * p for d, p in law.items())
    assert 0 <= sum_mean_absolute(a, terms) - far < Fraction(1, 100)


@pytest.mark.parametrize("a", RATIOS)
def test_a_sum_of_one_is_the_noise_itself(a: Fraction) -> None:
    assert [sum_tail(a, 1, t) for t in range(9)] == [tail(a, t) for t in range(9)]
    assert sum_mean_absolute(a, 1) == mean_absolute(a)
    for confidence in (Fraction(1, 2), Fraction(95, 100), Fraction(999, 1000)):
        assert sum_interval(a, 1, confidence) == interval(a, confidence)


@pytest.mark.parametrize("terms", [2, 12, 40])
@pytest.mark.parametrize("epsilon", [Fraction(1, 20), Fraction(1), Fraction(5)])
def test_the_interval_of_a_sum_is_the_smallest_that_holds_as_often_as_it_says(epsilon: Fraction, terms: int) -> None:
    a, confidence = Fraction(threshold_for(epsilon), WORD), Fraction(95, 100)
    t = sum_interval(a, terms, confidence)
    assert 1 - 2 * sum_tail(a, terms, t + 1) >= confidence
    assert t == 0 or 1 - 2 * sum_tail(a, terms, t) < confidence
