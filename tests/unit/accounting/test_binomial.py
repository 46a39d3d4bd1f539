from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import comb
from typing import Any

import pytest

from stream_dp.accounting.binomial import (
    Sensitivity,
    binomial_epsilon,
    poisson_delta,
    poisson_epsilon,
    poisson_epsilon_simple,
    variance_needed,
)
from stream_dp.accounting.rounding import exp_down, exp_up
from stream_dp.errors import ParameterError

MILLIONTH = Fraction(1, 10**6)


def test_vector_p04_poisson_theorem_and_corollary(analysis_vector: Callable[[str], Any]) -> None:
    for row in analysis_vector("P04")["expected"]["rows"]:
        mean, dimensions, delta = Fraction(row["lam"]), row["d"], Fraction(str(row["delta"]))

        assert float(variance_needed(dimensions, delta)) == pytest.approx(row["lambda_min"], rel=1e-12, abs=0)
        assert float(poisson_epsilon(mean, dimensions, delta)) == pytest.approx(row["eps_E2"], rel=1e-12, abs=0)
        assert float(poisson_epsilon_simple(mean, dimensions, delta)) == pytest.approx(row["eps_E3"], rel=1e-12, abs=0)
        assert poisson_epsilon(mean, dimensions, delta) <= poisson_epsilon_simple(mean, dimensions, delta)


def test_vector_p05_exact_poisson_delta_in_both_directions(analysis_vector: Callable[[str], Any]) -> None:
    for row in analysis_vector("P05")["expected"]["rows"]:
        exact = poisson_delta(Fraction(row["lam"]), Fraction(str(row["eps"])))

        assert float(exact.low) == pytest.approx(row["delta_low_side"], rel=1e-12, abs=0)
        assert float(exact.high) == pytest.approx(row["delta_high_side"], rel=1e-12, abs=0)
        assert float(exact.delta) == pytest.approx(row["delta"], rel=1e-12, abs=0)


def test_vector_b02_binomial_theorem_at_fair_coins(analysis_vector: Callable[[str], Any]) -> None:
    b02 = analysis_vector("B02")
    bits, dimensions, delta = b02["inputs"]["N"], b02["inputs"]["d"], Fraction(str(b02["inputs"]["delta"]))
    epsilon = binomial_epsilon(bits, Fraction(1, 2), dimensions, delta)

    assert float(epsilon) == pytest.approx(b02["expected"]["eps"], rel=1e-12, abs=0)
    assert float(variance_needed(dimensions, delta)) == pytest.approx(
        b02["expected"]["variance_needed"], rel=1e-12, abs=0
    )


def test_the_binomial_theorem_tends_to_the_poisson_theorem() -> None:
    for bits, error in ((10**7, Fraction(1, 10**3)), (10**12, Fraction(1, 10**8))):
        rare = binomial_epsilon(bits, Fraction(5000, bits), 100, MILLIONTH)
        assert abs(rare / poisson_epsilon(Fraction(5000), 100, MILLIONTH) - 1) < error


def test_counting_heads_or_tails_costs_the_same() -> None:
    heads, tails = (binomial_epsilon(10**5, p, 10, MILLIONTH) for p in (Fraction(1, 10), Fraction(9, 10)))
    assert heads == tails


@pytest.mark.parametrize("mean", [500, 1000, 5000])
def test_the_poisson_theorem_holds_for_one_count(mean: int) -> None:
    epsilon = poisson_epsilon(Fraction(mean), 1, MILLIONTH)

    assert poisson_delta(Fraction(mean), epsilon).delta < MILLIONTH


@pytest.mark.parametrize("bits", [2_000, 20_000])
def test_the_binomial_theorem_holds_for_one_count(bits: int) -> None:
    epsilon = binomial_epsilon(bits, Fraction(1, 2), 1, MILLIONTH)
    factor = exp_down(epsilon)
    ways = [comb(bits, k) for k in range(0, bits // 2)] if bits <= 2_000 else _ways(bits)

    excess = sum(max(Fraction(0), one - factor * before) for before, one in zip([0, *ways], ways, strict=False))
    assert excess / 2**bits < MILLIONTH


def _ways(bits: int) -> list[int]:
    ways = [1]
    for k in range(bits // 2):
        ways.append(ways[-1] * (bits - k) // (k + 1))
    return ways


@pytest.mark.parametrize(("mean", "epsilon"), [("1", "0"), ("7/2", "1/3"), ("40", "1/10"), ("40", "2")])
def test_the_poisson_delta_agrees_with_a_plain_sum_over_the_law(mean: str, epsilon: str) -> None:
    rate, eps = Fraction(mean), Fraction(epsilon)
    law = [exp_up(-rate)]
    for k in range(1, 300):
        law.append(law[-1] * rate / k)
    low = sum(max(Fraction(0), x - exp_up(eps) * y) for y, x in zip([Fraction(0), *law], law, strict=False))
    high = sum(max(Fraction(0), x - exp_up(eps) * y) for x, y in pairwise(law))
    exact = poisson_delta(rate, eps)

    assert abs(exact.low - low) < Fraction(1, 10**50)
    assert abs(exact.high - high) < Fraction(1, 10**50)


def test_poisson_noise_is_never_pure() -> None:
    assert poisson_delta(Fraction(10), Fraction(50)).delta >= exp_down(Fraction(-10))


def test_more_epsilon_and_more_noise_both_need_less_delta() -> None:
    deltas = [poisson_delta(Fraction(1000), Fraction(n, 20)).delta for n in range(5)]
    assert deltas == sorted(deltas, reverse=True)
    assert poisson_delta(Fraction(2000), Fraction(1, 10)).delta < poisson_delta(Fraction(1000), Fraction(1, 10)).delta


def test_moving_more_counts_costs_more() -> None:
    several = Sensitivity.of_items(9)
    one, nine = (poisson_epsilon(Fraction(5000), 100, MILLIONTH, moved) for moved in (Sensitivity(), several))

    assert several == Sensitivity(Fraction(9), Fraction(9), Fraction(1))
    assert one < nine < 9 * one


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: poisson_epsilon(Fraction(300), 1, MILLIONTH), "variance above 371, not 300"),
        (lambda: poisson_epsilon_simple(Fraction(300), 1, MILLIONTH), "variance above 371"),
        (lambda: poisson_epsilon_simple(Fraction(10**4), 1, Fraction(1, 50)), "delta < 1/100"),
        (lambda: binomial_epsilon(1000, Fraction(1, 2), 1, MILLIONTH), "variance above 371, not 250"),
        (lambda: binomial_epsilon(1000, Fraction(1), 1, MILLIONTH), "between 0 and 1"),
        (lambda: variance_needed(0, MILLIONTH), "at least one count"),
        (lambda: variance_needed(1, Fraction(1)), "delta in"),
        (lambda: poisson_delta(Fraction(1, 2), Fraction(1)), "lambda >= 1"),
        (lambda: poisson_delta(Fraction(1), Fraction(-1)), "epsilon >= 0"),
    ],
)
def test_noise_too_small_for_the_theorem_and_arguments_out_of_range_are_refused(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        call()
