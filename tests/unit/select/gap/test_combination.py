"""Measured counts made better by gaps: the listed estimates, least squares, what is gained and what is biased."""

from __future__ import annotations

from fractions import Fraction
from math import exp
from random import Random
from typing import Any

import numpy as np
import pytest

from stream_dp.accounting.rounding import exp_up
from stream_dp.exact.bits import KeyedBits
from stream_dp.select.candidates import Neighbours
from stream_dp.select.top_k_with_gaps import GapParameters, combine, gaps_between, variance_ratio
from tests.support.gap_oracle import QuickBits
from tests.support.gap_shipped import gap_top_k_of_array


def test_the_estimates_are_the_listed_ones(vectors: dict[str, Any]) -> None:
    for row in vectors["blue"]["cases"]:
        measured, gaps = [int(one) for one in row["alpha"]], [Fraction(one) for one in row["gaps"]]
        assert combine(measured, gaps, Fraction(row["lam"])) == [Fraction(one) for one in row["beta"]]


def solved(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(len(rows)):
        pivot = next(j for j in range(i, len(rows)) if rows[j][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(len(rows)):
            if j != i:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i], strict=True)]
    return [row[-1] for row in rows]


@pytest.mark.parametrize("k", range(1, 9))
def test_the_estimates_are_generalised_least_squares_exactly(k: int, vectors: dict[str, Any]) -> None:
    """Unknown: the counts, and one shift that all noisy values of the selection share."""
    random = Random(k)
    lam = Fraction(random.randint(1, 9), random.randint(1, 9))
    measured = [random.randint(-50, 50) for _ in range(k)]
    gaps = [Fraction(random.randint(0, 40), 3) for _ in range(k - 1)]
    behind = [sum(gaps[:i], Fraction(0)) for i in range(k)]
    # Minimise sum (x - measured)^2 + sum (x - shift + behind)^2 / lam.
    matrix = [[(1 + 1 / lam) * (i == j) for j in range(k)] + [-1 / lam] for i in range(k)]
    matrix.append([Fraction(-1)] * k + [Fraction(k)])
    right = [alpha - back / lam for alpha, back in zip(measured, behind, strict=True)] + [sum(behind, Fraction(0))]
    assert combine(measured, gaps, lam) == solved(matrix, right)[:-1]
    # The variance of an estimate: coefficients of independent noises, by unit vectors.
    coefficients = [combine([int(i == j) for j in range(k)], [Fraction(0)] * (k - 1), lam)[0] for i in range(k)]
    of_gaps = [combine([0] * k, [Fraction(int(i == j)) for j in range(k - 1)], lam)[0] for i in range(k - 1)]
    steps = [Fraction(0), *of_gaps, Fraction(0)]
    noise = [steps[i + 1] - steps[i] for i in range(k)]
    variance = sum(c * c for c in coefficients) + lam * sum(c * c for c in noise)
    assert variance == (1 + lam * k) / (k + lam * k)
    for name, listed in vectors["blue"]["reduction"].items():
        of_k, of_lam = name.split(",")
        if of_k == f"k={k}":
            ratio = Fraction(of_lam.split("=")[1])
            assert 1 - (1 + ratio * k) / (k + ratio * k) == Fraction(listed)


def split(k: int, resolution: int = 10, *, monotone: bool) -> tuple[GapParameters, Fraction]:
    """A budget of 1 for the selection and 1 for measuring k counts that one user moves together."""
    neighbours = Neighbours.ADD_OR_REMOVE if monotone else Neighbours.REPLACE
    return GapParameters(k, Fraction(1), resolution, monotone, neighbours=neighbours), Fraction(1, k)


def variance_of(x: Fraction) -> Fraction:
    """Of noise z with a probability proportional to e^(-x |z|)."""
    a = exp_up(-x)
    return Fraction(2 * a, (1 - a) ** 2)


def test_the_ratio_of_the_variances_is_that_of_the_discrete_laws(vectors: dict[str, Any]) -> None:
    for monotone, name in ((True, "Exp monotone"), (False, "Exp general eps_s=eps_m")):
        for k in (1, 10, 100):
            p, x = split(k, monotone=monotone)
            found = variance_ratio(p, variance_of(x))
            rho, of_measured = exp(-float(p.exponent)), exp(-float(x))
            selection = rho / (1 - rho) ** 2 / p.resolution**2
            assert float(found) == pytest.approx(selection / (2 * of_measured / (1 - of_measured) ** 2), rel=1e-9)
            if k == 100:
                assert float(found) == pytest.approx(float(Fraction(vectors["blue"]["lam_table"][name])), rel=1e-4)


def test_gaps_lose_half_a_step_to_rounding_and_the_last_is_not_between_two_of_the_selected() -> None:
    p = GapParameters(3, Fraction(1), 10)
    assert gaps_between([4, 0, 9], p) == [Fraction(45, 100), Fraction(5, 100)]


def errors(counts: list[int], k: int, runs: int, seed: bytes) -> tuple[Any, Any, GapParameters, Fraction]:
    """Of measurements alone and of estimates, rank by rank."""
    p, x = split(k, monotone=True)
    lam, rng = variance_ratio(p, variance_of(x)), np.random.default_rng(len(seed))
    table, bits = np.array(counts), QuickBits(KeyedBits(b"combination", seed))
    alone, better = [], []
    for _ in range(runs):
        places, gaps = gap_top_k_of_array(table, 0, p, bits)
        of_noise = 1 - exp(-float(x))
        noise = rng.geometric(of_noise, k) - rng.geometric(of_noise, k)
        true = table[places]
        estimates = combine((true + noise).tolist(), gaps_between(gaps, p), lam)
        alone.append(noise)
        better.append([float(estimate) - count for estimate, count in zip(estimates, true.tolist(), strict=True)])
    return np.array(alone), np.array(better), p, lam


@pytest.mark.statistical
@pytest.mark.parametrize(("k", "gained"), [pytest.param(10, 0.60, marks=pytest.mark.slow), (25, 0.64)])
def test_counts_that_are_well_apart_gain_as_much_as_promised(k: int, gained: float) -> None:
    """A reduction within 0.02 of the variance ratio. False alarm: about 1e-2, decided by the seed once and for all."""
    counts = [10_000 * (k + 1 - i) for i in range(k + 1)]
    alone, better, _, _ = errors(counts, k, 800 if k == 10 else 400, b"apart")
    assert 1 - (better**2).mean() / (alone**2).mean() == pytest.approx(gained, abs=0.02)
    assert abs(better.mean()) < 4 * better.mean(axis=1).std() / len(better) ** 0.5


@pytest.mark.statistical
def test_where_all_counts_are_equal_the_first_estimate_is_too_high_by_as_much_as_is_said() -> None:
    """Four deviations. False alarm: 1e-4."""
    k = 10
    _, better, p, lam = errors([50] * 30, k, 700, b"equal")
    harmonic = sum(Fraction(1, i) for i in range(1, k + 1))
    bias = float(p.scale * (harmonic - 1) / (1 + lam))
    assert abs(better[:, 0].mean() - bias) < 4 * better[:, 0].std() / len(better) ** 0.5 + 0.05
    assert bias > 1.2 * float(p.scale)
