from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.lossless.levels import WORD, epsilon_bound, noise_parameter, threshold_for
from tests.support.laplace_laws import variance


def effective_epsilon(threshold: int) -> Fraction:
    with localcontext(prec=80):
        return Fraction((Decimal(WORD) / Decimal(threshold)).ln())


def test_vector_d12_thresholds_and_what_they_cost(vector: Callable[[str], Any]) -> None:
    for row in vector("D12")["expected"]["rows"]:
        nominal, threshold = Fraction(row["eps_per_unit"]), int(row["A"])

        assert threshold_for(nominal) == threshold
        excess = effective_epsilon(threshold) - nominal
        assert float(excess) == pytest.approx(row["effective_eps_minus_nominal"], rel=1e-9)
        assert float(variance(noise_parameter(threshold))) == pytest.approx(row["variance"], rel=1e-14)
        a = noise_parameter(threshold)
        assert float(a / (1 - a)) == pytest.approx(row["mean_clock"], rel=1e-14)


@pytest.mark.parametrize("epsilon", ["1/1000000", "1/3", "7/5", "44", "45", "3000"])
def test_a_threshold_costs_at_most_its_epsilon_and_the_next_finer_one_more(epsilon: str) -> None:
    nominal = Fraction(epsilon)
    threshold = threshold_for(nominal)

    assert effective_epsilon(threshold) <= nominal
    assert threshold == 1 or effective_epsilon(threshold - 1) > nominal


@pytest.mark.parametrize("threshold", [1, 2, 10**9, 2**63, 2**63 + 1, 2**64 - 1])
def test_the_epsilon_bound_is_never_too_small_and_close(threshold: int) -> None:
    bound, true = epsilon_bound(threshold), effective_epsilon(threshold)

    assert true <= bound < true + Fraction(1, 2**60)


@pytest.mark.parametrize("epsilon", ["0", "-1", "1/100000000000000000000"])
def test_an_epsilon_without_a_level_is_refused(epsilon: str) -> None:
    with pytest.raises(ParameterError, match="epsilon per count must be"):
        threshold_for(Fraction(epsilon))


@pytest.mark.parametrize("threshold", [0, -1, 2**64])
def test_a_level_without_noise_or_without_end_is_refused(threshold: int) -> None:
    with pytest.raises(ParameterError, match="from 1 to 2\\^64 - 1"):
        noise_parameter(threshold)
    with pytest.raises(ParameterError, match="from 1 to 2\\^64 - 1"):
        epsilon_bound(threshold)
