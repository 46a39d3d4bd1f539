from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import comb
from typing import Any

import pytest

from experiments.topk.composition import NO_STEPS, compose
from experiments.topk.optimal import optimal_composition, optimal_curve
from stream_dp.accounting.rounding import log_down, log_up
from stream_dp.errors import ParameterError

DELTA = Fraction("1e-6")


def test_ratios_of_figure_1(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["appendixA_ratio_delta_le_1e-6"]:
        epsilon, k = Fraction(row["eps"]), row["k"]
        point = optimal_composition(epsilon, k, DELTA)
        assert (point.index, point.epsilon) == (row["i"], (k - 2 * row["i"]) * epsilon)
        assert abs(point.delta - row["delta_i"]) <= row["delta_i"] * Fraction(1, 10**9)
        ours = compose({epsilon: k}, NO_STEPS, point.delta)
        assert abs(point.epsilon / ours.epsilon / row["ratio_opt_over_br"] - 1) < Fraction(1, 10**9)
        if row["hard_ratio"] is not None:
            tight = compose({epsilon: k}, NO_STEPS, point.delta, tight_mean=True).epsilon
            assert abs(point.epsilon / tight / row["hard_ratio"] - 1) < Fraction(1, 10**9)


@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_the_curve_is_the_divergence_of_randomized_response_rounded_up(k: int) -> None:
    """With e^epsilon = 3/2 everything is rational: j of k answers are truthful with a binomial chance."""
    ratio = Fraction(3, 2)
    for point in optimal_curve(log_down(ratio), k):
        allowed = ratio ** (k - 2 * point.index)
        chances = [comb(k, j) * ratio**j / (1 + ratio) ** k for j in range(k + 1)]
        exact = sum(max(Fraction(0), p - allowed * q) for p, q in zip(chances, reversed(chances), strict=True))
        assert abs(point.delta - exact) < Fraction(1, 2**200)
    for below, above in zip(optimal_curve(log_down(ratio), k), optimal_curve(log_up(ratio), k), strict=True):
        assert below.delta <= above.delta * (1 + Fraction(1, 2**200))


def test_no_delta_leaves_basic_composition() -> None:
    assert optimal_composition(Fraction(1, 10), 50, Fraction(0)).epsilon == 5


def test_the_curve_grows_in_delta_and_ends_at_the_total_variation() -> None:
    points = list(optimal_curve(Fraction(1, 4), 9))

    assert [point.epsilon for point in points] == [Fraction(9 - 2 * i, 4) for i in range(5)]
    assert all(one.delta < other.delta for one, other in pairwise(points))


@pytest.mark.parametrize(("epsilon", "k", "delta"), [("0", 1, "0"), ("1", 0, "0"), ("1", 1, "-1")])
def test_arguments_out_of_range_are_refused(epsilon: str, k: int, delta: str) -> None:
    with pytest.raises(ParameterError):
        optimal_composition(Fraction(epsilon), k, Fraction(delta))
