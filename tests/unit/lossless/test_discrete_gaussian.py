"""Discrete Gaussian noise: the odd-ratio theorem, and exact laws of the ladder's kernels."""

from __future__ import annotations

from cmath import cos
from collections.abc import Callable
from fractions import Fraction
from math import pi
from typing import Any

import pytest

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact import coins
from stream_dp.exact.bits import KeyedBits
from stream_dp.exact.reals import exp_neg
from tests.support import discrete_gaussian
from tests.support.chosen import ordinarily
from tests.support.discrete_gaussian import (
    Marks,
    OddRatioLadder,
    discrete_gaussian_noise,
)
from tests.support.gaussian_laws import pmf

F = Fraction
PRECISION = 200
BITS = KeyedBits(b"unused", b"")
LADDER = OddRatioLadder(F(9, 5), (1, 3, 15))
SMALL_LADDER = OddRatioLadder(F(1), (1, 3))


def real(enclosure: tuple[int, int]) -> tuple[Fraction, Fraction]:
    return F(enclosure[0], 1 << PRECISION), F(enclosure[1], 1 << PRECISION)


def middle(enclosure: tuple[int, int], precision: int = PRECISION) -> Fraction:
    return F(sum(enclosure), 2 << precision)


def mark_probability(ladder: OddRatioLadder, m: int, precision: int) -> tuple[int, int]:
    """Enclose 2^precision P(B_m = 1) = q^m / (1 + q^m) for odd m, by at most 4 units."""
    lower, upper = exp_neg(F(m, 2 * ladder.variance), precision)
    one = 1 << precision
    return lower * one // (one + lower), -(-upper * one // (one + upper))


def would_be_bridge(fine: Fraction, coarse: Fraction) -> list[float]:
    """Fourier coefficients of the quotient of the two characteristic functions, whether a law or not."""
    points, reach = 256, 120

    def characteristic(variance: Fraction) -> list[complex]:
        law = [float(middle(pmf(variance, k, PRECISION))) for k in range(reach)]
        return [law[0] + 2 * sum(law[k] * cos(2 * pi * j * k / points) for k in range(1, reach)) for j in range(points)]

    quotient = [c / f for c, f in zip(characteristic(coarse), characteristic(fine), strict=True)]
    return [sum((quotient[j] * cos(2 * pi * j * k / points)).real for j in range(points)) / points for k in range(14)]


def marks_law(ladder: OddRatioLadder, marks: list[int]) -> dict[int, float]:
    """The law of the sum over some m of B_m - B'_m, by convolution."""
    law = {0: 1.0}
    for m in marks:
        p = float(middle(mark_probability(ladder, m, PRECISION)))
        for step in (1, -1):
            law = {
                k: law.get(k, 0.0) * (1 - p) + law.get(k - step, 0.0) * p
                for k in range(min(law) - 1, max(law) + 2)
                if abs(k) < 40
            }
    return law


def test_vector_dg1_a_bridge_exists_for_odd_ratios_only(vector: Callable[[str], Any]) -> None:
    for row in vector("DG1")["expected"]["rows"]:
        fine, ratio = F(row["sigma2_fine"]), F(row["ratio"])
        series = would_be_bridge(fine, fine * ratio)
        assert series == pytest.approx(row["would_be_bridge_0_to_13"], abs=vector("DG1")["tolerance"])
        odd = ratio.denominator == 1 and ratio % 2 == 1
        assert odd == row["bridge_exists"]
        if odd:
            n = int(ratio)
            ladder = OddRatioLadder(fine * ratio, (1, n))
            added = marks_law(ladder, [m for m in range(1, 300, 2) if m % n])
            assert [added[k] for k in range(14)] == pytest.approx(row["would_be_bridge_0_to_13"], abs=1e-12)
        else:
            assert min(series) < -1e-10  # no law has a negative probability
            if ratio.denominator == 1:
                with pytest.raises(ParameterError, match="no bridge"):
                    OddRatioLadder(fine * ratio, (1, int(ratio)))


def test_vector_dg2_marks_of_the_jacobi_product(vector: Callable[[str], Any]) -> None:
    """q = 1/2 is the variance 1 / (2 ln 2), which is no rational: one just below it, to 60 digits."""
    dg2 = vector("DG2")
    inverse_log = F(721347520444481703679962340177231, 10**33)  # 1 / (2 ln 2)
    ladder = OddRatioLadder(inverse_log, (1, 3))
    for m, expected in dg2["expected"]["p_m"].items():
        assert middle(mark_probability(ladder, int(m), PRECISION)) == pytest.approx(F(expected), rel=1e-25)
    law, finer = marks_law(ladder, list(range(1, 120, 2))), marks_law(ladder, list(range(3, 120, 6)))
    for k, expected in enumerate(dg2["expected"]["pmf_k0_to_4"]):
        assert law[k] == pytest.approx(expected, abs=dg2["tolerance"])
        assert float(middle(pmf(inverse_log, k, PRECISION))) == pytest.approx(expected, abs=dg2["tolerance"])
        assert float(middle(pmf(inverse_log / 3, k, PRECISION))) == pytest.approx(finer[k], abs=1e-15)
        # P(k) / P(0) = q^(k^2), and the finer level has q^3 = 1/8.
        ratio = middle(pmf(inverse_log / 3, k, PRECISION)) / middle(pmf(inverse_log / 3, 0, PRECISION))
        assert float(ratio) == pytest.approx(float(F(dg2["expected"]["finer_q"]) ** (k * k)), rel=1e-12)


@pytest.mark.parametrize("variance", ordinarily(3, [F(1, 10), F(1), F(7, 3), F(50)]))
def test_probabilities_are_enclosed_tightly_and_add_up(variance: Fraction) -> None:
    enclosed = [pmf(variance, k, PRECISION) for k in range(-150, 151)]

    assert all(0 <= high - low <= 4 for low, high in enclosed)
    low, high = (sum(ends) for ends in zip(*enclosed, strict=True))
    assert low - 301 <= 1 << PRECISION
    assert high + 301 >= 1 << PRECISION


# ------------------------------------------------------------------------------------- T1: every outcome of the coins
def probability_of_marks(ladder: OddRatioLadder, plus: tuple[int, ...], marks: list[int]) -> tuple[Fraction, Fraction]:
    """Of the set `plus` among `marks`; marks beyond have together less than 2^-100."""
    low = high = F(1)
    for m in marks:
        lower, upper = real(mark_probability(ladder, m, PRECISION))
        low, high = (low * lower, high * upper) if m in plus else (low * (1 - upper), high * (1 - lower))
    return low * (1 - F(1, 2**100)), high


@pytest.mark.parametrize("level", ordinarily(1, [3, 1]))
def test_the_set_of_marks_has_the_law_of_independent_coins(every_number: Callable[..., Any], level: int) -> None:
    """It is drawn by its size and its gaps, which is no independent coin at all."""
    law = every_number(lambda bits: SMALL_LADDER._marks(level, bits))

    possible = list(range(level, 200, 2 * level))
    assert law.agrees_with(lambda plus: probability_of_marks(SMALL_LADDER, plus, possible), [(), (level,)])
    assert law.missing < F(1, 10**4)


def test_large_sets_of_marks_come_from_the_next_block(
    every_number: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same law with blocks of two sizes instead of 64."""
    monkeypatch.setattr(discrete_gaussian, "_BLOCK", 2)
    monkeypatch.setattr(discrete_gaussian, "_size_weights", discrete_gaussian._size_weights.__wrapped__)
    monkeypatch.setattr(coins, "geometric_exp", lambda x, bits: 0)
    ladder = OddRatioLadder(F(5), (1,))
    law = every_number(lambda bits: len(ladder._marks(1, bits)), F(1, 10**4))

    assert law.missing < F(1, 100)
    for size, probability in marks_counted(ladder).items():
        found = law.decided.get(size, F(0))
        assert float(found) - 1e-12 <= probability <= float(found + law.missing) + 1e-12


def marks_counted(ladder: OddRatioLadder) -> dict[int, float]:
    law = {0: 1.0}
    for m in range(1, 700, 2):
        p = float(middle(mark_probability(ladder, m, PRECISION)))
        law = {k: law.get(k, 0.0) * (1 - p) + law.get(k - 1, 0.0) * p for k in range(len(law) + 1) if k < 40}
    return law


def test_fresh_noise_is_discrete_gaussian(every_number: Callable[..., Any]) -> None:
    law = every_number(lambda bits: int(SMALL_LADDER.fresh(3, bits)), F(1, 10**6))

    assert law.agrees_with(lambda k: real(pmf(F(1, 3), k, PRECISION)), range(-3, 4))
    assert law.missing < F(1, 100)


def test_coarsen_adds_the_marks_that_are_not_of_the_fine_level(every_number: Callable[..., Any]) -> None:
    fine = Marks(10, (3,), (9,))
    law = every_number(lambda bits: SMALL_LADDER.coarsen(fine, 3, 1, bits).plus, F(1, 10**6))
    others = [m for m in range(1, 200, 2) if m % 3]

    assert all(3 in plus and 9 not in plus for plus in law.decided)
    assert law.agrees_with(
        lambda plus: probability_of_marks(SMALL_LADDER, tuple(m for m in plus if m % 3), others), [(3,), (1, 3)]
    )
    assert law.missing < F(1, 1000)


@pytest.mark.parametrize("variance", [F(1, 4), F(1), F(5, 2)])
def test_single_draws_are_discrete_gaussian(
    every_number: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, variance: Fraction
) -> None:
    """Every attempt gives k with a probability proportional to the law, and what fails is tried again alike."""
    clock, attempts = coins.geometric_exp, [0]

    def once(x: Fraction, bits: Any) -> int:
        attempts[0] += 1
        if attempts[0] > 1:
            raise TimeoutError
        return clock(x, bits)

    def first_attempt(bits: Any) -> int | None:
        attempts[0] = 0
        try:
            return discrete_gaussian_noise(variance, bits)
        except TimeoutError:
            return None

    monkeypatch.setattr(coins, "geometric_exp", once)
    law = every_number(first_attempt, F(1, 10**9))
    succeeds = 1 - law.decided[None]

    assert law.missing < F(1, 10**5)
    for k in range(-6, 7):
        found, (low, high) = law.decided.get(k, F(0)), real(pmf(variance, k, PRECISION))
        assert found <= high * succeeds + law.rounding
        assert low * (succeeds - law.missing) <= found + law.missing + law.rounding
    assert succeeds > F(1, 3)


def test_readings_between_and_finer_are_decided_by_the_coarse_marks() -> None:
    coarse = Marks(7, (1, 3, 15, 45), (5, 9))
    fine = LADDER.sharpen(coarse, 1, 7, 15, BITS)

    assert fine == Marks(7, (15, 45), ())
    assert LADDER.between(fine, 15, coarse, 1, 3, BITS) == Marks(7, (3, 15, 45), (9,))
    assert LADDER.sharpen(coarse, 1, 7, 3, BITS) == Marks(7, (3, 15, 45), (9,))
    assert int(coarse + 2) == 7 + 2 + 4 - 2


def test_after_erasing_the_finest_marks_levels_between_are_still_decided() -> None:
    coarse = LADDER.coarsen(LADDER.zero + 20, 15, 1, KeyedBits(b"key", b"erased"))
    mid = LADDER.between(LADDER.zero + 20, 15, coarse, 1, 3, BITS)

    assert all(m % 15 for m in coarse.plus + coarse.minus)
    assert mid == Marks(20, tuple(m for m in coarse.plus if m % 3 == 0), tuple(m for m in coarse.minus if m % 3 == 0))
    with pytest.raises(StateError, match="forgotten"):
        LADDER.sharpen(coarse, 1, 18, 3, BITS)


@pytest.mark.parametrize(
    "coarse", [Marks(8, (1, 15), ()), Marks(7, (1,), ()), Marks(7, (1, 15, 45), ()), Marks(7, (1, 15), (15,))]
)
def test_marks_that_do_not_continue_the_finer_ones_are_corrupt_state(coarse: Marks) -> None:
    with pytest.raises(StateError, match="do not continue"):
        LADDER.between(Marks(7, (15,), ()), 15, coarse, 1, 3, BITS)


@pytest.mark.parametrize("divisors", [(1, 2), (1, 4), (1, 3, 5), (1, 3, 6), (1, 1), (3, 9), (1, 9, 3), ()])
def test_ladders_without_bridges_are_refused(divisors: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError):
        OddRatioLadder(F(1), divisors)


def test_levels_off_the_ladder_or_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ParameterError, match="not a level of the ladder"):
        LADDER.fresh(5, BITS)
    with pytest.raises(ParameterError, match="must be finer than"):
        LADDER.coarsen(LADDER.zero, 1, 3, BITS)
    with pytest.raises(ParameterError, match="must be finer than"):
        LADDER.between(LADDER.zero, 3, LADDER.zero, 1, 15, BITS)
    with pytest.raises(ParameterError, match="variance must be positive"):
        OddRatioLadder(F(0), (1,))
    with pytest.raises(ParameterError, match="variance must be positive"):
        discrete_gaussian_noise(F(0), BITS)
