"""What a ladder costs in zCDP: exact two-point laws of the losses, level by level and step by step."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import exp, log, sinh, tanh

import pytest

from stream_dp.accounting.composition import discrete_laplace_rho, ladder_rho
from stream_dp.accounting.rounding import log_up
from tests.support.laplace_family import pmf
from tests.support.laplace_laws import bridge_pmf

LADDERS = [
    [Fraction(9, 10), Fraction(4, 5), Fraction(3, 5)],
    [Fraction(1, 2), Fraction(1, 20)],
    [Fraction(999, 1000), Fraction(99, 100), Fraction(1, 3)],
    [Fraction(1, 100), Fraction(1, 10**6)],
]
ORDERS = [1 + 10**-6, 1.01, 1.5, 2, 3, 8, 40, 200]


def epsilon(a: Fraction) -> float:
    return -log(a)


def step_law(coarse: float, fine: float, sign: int) -> list[tuple[float, float]]:
    """What sharpening adds to a loss that was sign * coarse: (addition, probability), from E[exp(-addition)] = 1."""
    down = (exp(-sign * coarse) - exp(-fine)) / (2 * sinh(fine))
    return [(fine - sign * coarse, 1 - down), (-fine - sign * coarse, down)]


def renyi(law: list[tuple[float, float]], alpha: float) -> float:
    top = max(loss for loss, _ in law)
    return (log(sum(p * exp((alpha - 1) * (loss - top)) for loss, p in law)) + (alpha - 1) * top) / (alpha - 1)


def test_given_the_coarse_reading_the_loss_of_the_finer_one_takes_two_values_with_these_chances() -> None:
    """The law that the price of a step rests on, against the bridge of the discrete Laplace laws itself."""
    coarse, fine = Fraction(4, 5), Fraction(3, 5)
    for reading in (-9, -1, 0, 3, 12):
        # loss of a reading y of a count 0 against 1: + where y <= 0, - where y >= 1
        sign = 1 if reading <= 0 else -1
        total = pmf(coarse, reading)
        below = sum(pmf(fine, z) * excess(fine, coarse, reading - z) for z in range(-400, 1))
        law = step_law(epsilon(coarse), epsilon(fine), sign)
        (p,) = (p for addition, p in law if abs(addition - (epsilon(fine) - sign * epsilon(coarse))) < 1e-12)
        assert float(below / total) == pytest.approx(p, rel=1e-9, abs=0)


def excess(fine: Fraction, coarse: Fraction, k: int) -> Fraction:
    return bridge_pmf(fine, coarse, k)


@pytest.mark.parametrize("ladder", LADDERS)
@pytest.mark.parametrize("moved", [1, 5])
def test_a_step_covers_what_it_adds_whatever_the_coarser_level_showed(ladder: list[Fraction], moved: int) -> None:
    costs = ladder_rho(ladder, moved, Fraction(0))
    first = epsilon(ladder[0])
    for alpha in ORDERS:
        law = [(first, 1 / (1 + exp(-first))), (-first, 1 / (1 + exp(first)))]
        assert moved * renyi(law, alpha) <= alpha * float(costs[0][0]) * (1 + 1e-6)
    for low in range(len(ladder)):
        for high in range(low + 1, len(ladder)):
            paid = float(costs[high][1])
            for sign in (1, -1):
                law = step_law(epsilon(ladder[low]), epsilon(ladder[high]), sign)
                assert all(moved * renyi(law, alpha) <= alpha * paid * (1 + 1e-6) for alpha in ORDERS)


def test_the_difference_of_the_levels_own_rhos_would_not_pay_for_a_chosen_step() -> None:
    """The mutant: a reader who sharpens where the coarser loss was -1 gains 1.58 for the 1.06 between the levels."""
    coarse, fine = 1.0, 2.0
    mean = renyi(step_law(coarse, fine, -1), 1 + 1e-9)
    difference = fine * tanh(fine / 2) - coarse * tanh(coarse / 2)
    assert mean == pytest.approx(1.5756, rel=1e-3, abs=0)
    assert difference == pytest.approx(1.0611, rel=1e-3, abs=0)


@pytest.mark.parametrize("ladder", LADDERS)
def test_both_prices_rise_with_the_level_and_lie_within_a_trillionth(ladder: list[Fraction]) -> None:
    costs = ladder_rho(ladder, 3, Fraction(0))
    assert all(coarse[at] < fine[at] for coarse, fine in pairwise(costs) for at in (0, 1))
    for (first, step), a in zip(costs, ladder, strict=True):
        assert 0 <= first - 3 * discrete_laplace_rho(a) <= Fraction(1, 10**12)
        assert 0 <= step - 3 * log_up(1 / a) ** 2 / 2 <= Fraction(1, 10**12)
        assert first <= step, "a first release is never dearer than steps to its level"
        assert all(10**12 % cost.denominator == 0 for cost in (first, step))


def test_a_key_that_one_user_alone_has_costs_at_least_its_not_being_shown() -> None:
    shown = Fraction(1, 10)
    (costs,) = ladder_rho([Fraction(99, 100)], 2, shown)
    assert float(costs[0]) >= -2 * log(1 - shown)
    assert costs == (Fraction(-(-2 * 10**12 // 9), 10**12),) * 2
