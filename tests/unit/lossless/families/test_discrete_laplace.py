from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.lossless.families.discrete_laplace import bridge_pmf, interval, mean_absolute, pmf, tail, variance

PARAMETERS = [Fraction(1, 5), Fraction(1, 2), Fraction(9, 10), Fraction(2**64 - 1, 2**64)]


def atom(a_fine: Fraction, a_coarse: Fraction) -> Fraction:
    """Weight of the point mass: P(W = 0) less what the coarse law puts there, seen through P(W = 1)."""
    smooth = bridge_pmf(a_fine, a_coarse, 1) / pmf(a_coarse, 1)
    return bridge_pmf(a_fine, a_coarse, 0) - smooth * pmf(a_coarse, 0)


def test_vector_d01_bridges(vector: Callable[[str], Any]) -> None:
    for row in vector("D01")["expected"]["rows"]:
        a_fine, a_coarse = Fraction(row["a_fine"]), Fraction(row["a_coarse"])

        assert [bridge_pmf(a_fine, a_coarse, k) for k in range(5)] == list(map(Fraction, row["bridge_pmf_0_to_4"]))
        assert [bridge_pmf(a_fine, a_coarse, -k) for k in range(5)] == list(map(Fraction, row["bridge_pmf_0_to_4"]))
        assert atom(a_fine, a_coarse) == Fraction(row["atom"])
        assert variance(a_coarse) - variance(a_fine) == Fraction(row["bridge_variance"])


def test_vector_d02_atoms_multiply_along_a_ladder(vector: Callable[[str], Any]) -> None:
    fine, mid, coarse = map(Fraction, vector("D02")["inputs"]["a"])
    expected = vector("D02")["expected"]

    assert atom(fine, mid) == Fraction(expected["atom_fine_mid"])
    assert atom(mid, coarse) == Fraction(expected["atom_mid_coarse"])
    assert atom(fine, coarse) == Fraction(expected["atom_fine_coarse"])
    assert atom(fine, mid) * atom(mid, coarse) == atom(fine, coarse)


def test_fine_noise_plus_its_bridge_has_the_coarse_law_up_to_the_truncated_tail() -> None:
    fine, coarse, reach = Fraction(1, 3), Fraction(1, 2), 60
    for k in range(-6, 7):
        total = sum(pmf(fine, j) * bridge_pmf(fine, coarse, k - j) for j in range(-reach, reach + 1))
        assert 0 <= pmf(coarse, k) - total <= 2 * tail(fine, reach + 1)


def test_vector_h02_tails(vector: Callable[[str], Any]) -> None:
    h02 = vector("H02")
    tails = [
        tail(Fraction(a), t) for a, t in zip(h02["inputs"]["ladder_a"], h02["inputs"]["thresholds_ge"], strict=True)
    ]

    assert tails == list(map(Fraction, h02["expected"]["tail_exact"]))


@pytest.mark.parametrize("a", PARAMETERS)
def test_the_tail_steps_down_by_the_probabilities(a: Fraction) -> None:
    assert tail(a, 0) + tail(a, 1) == 1  # by symmetry
    for t in range(-5, 6):
        assert tail(a, t) - tail(a, t + 1) == pmf(a, t)


@pytest.mark.parametrize("a", PARAMETERS[:3])
def test_moments_agree_with_the_law_up_to_the_truncated_tail(a: Fraction) -> None:
    reach = 600
    error = Fraction(1, 10**9)

    assert abs(sum(k * k * pmf(a, k) for k in range(-reach, reach + 1)) - variance(a)) < error
    assert abs(sum(abs(k) * pmf(a, k) for k in range(-reach, reach + 1)) - mean_absolute(a)) < error


@pytest.mark.parametrize("a", PARAMETERS[:3])
@pytest.mark.parametrize("confidence", ["0", "1/2", "19/20", "999999/1000000"])
def test_the_interval_is_the_smallest_that_covers(a: Fraction, confidence: str) -> None:
    wanted = Fraction(confidence)
    t = interval(a, wanted)

    assert 1 - 2 * tail(a, t + 1) >= wanted
    assert t == 0 or 1 - 2 * tail(a, t) < wanted


def test_the_interval_decides_a_confidence_that_is_met_exactly() -> None:
    a = Fraction(1, 2)
    for t in range(12):
        covered = 1 - 2 * tail(a, t + 1)
        assert interval(a, covered) == t
        assert interval(a, covered + Fraction(1, 10**40)) == t + 1


def test_the_interval_of_very_coarse_noise_is_found_at_once() -> None:
    a = PARAMETERS[-1]
    t = interval(a, Fraction(19, 20))

    assert 55 * 10**18 < t < 56 * 10**18  # ln(20) 2^64


@pytest.mark.parametrize(("a", "confidence"), [("1", "1/2"), ("0", "1/2"), ("1/2", "1"), ("1/2", "-1/2")])
def test_an_interval_outside_its_domain_is_refused(a: str, confidence: str) -> None:
    with pytest.raises(ParameterError, match="an interval needs"):
        interval(Fraction(a), Fraction(confidence))
