"""The discrete Laplace law, its intervals, and its kernels on the integer alone: exact laws and vectors."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.exact.bits import KeyedBits
from stream_dp.lossless.discrete_laplace import bridge_atom, interval, mean_absolute
from tests.support.chosen import ordinarily
from tests.support.laplace_family import DiscreteLaplace, clocks_behind, pmf
from tests.support.laplace_laws import between_pmf, bridge_pmf, sharpen_pmf, tail, variance

F = Fraction
FINE, MID, COARSE = F(1, 5), F(1, 3), F(1, 2)
CUTOFF = F(1, 10**6)
SMALL = F(1, 100)
LAPLACE = DiscreteLaplace()
PARAMETERS = [F(1, 5), F(1, 2), F(9, 10), F(2**64 - 1, 2**64)]


def atom(a_fine: Fraction, a_coarse: Fraction) -> Fraction:
    """Weight of the point mass: P(W = 0) less what the coarse law puts there, seen through P(W = 1)."""
    smooth = bridge_pmf(a_fine, a_coarse, 1) / pmf(a_coarse, 1)
    return bridge_pmf(a_fine, a_coarse, 0) - smooth * pmf(a_coarse, 0)


def test_vector_d01_bridges(vector: Callable[[str], Any]) -> None:
    for row in vector("D01")["expected"]["rows"]:
        a_fine, a_coarse = F(row["a_fine"]), F(row["a_coarse"])

        assert [bridge_pmf(a_fine, a_coarse, k) for k in range(5)] == list(map(F, row["bridge_pmf_0_to_4"]))
        assert [bridge_pmf(a_fine, a_coarse, -k) for k in range(5)] == list(map(F, row["bridge_pmf_0_to_4"]))
        assert atom(a_fine, a_coarse) == F(row["atom"])
        assert variance(a_coarse) - variance(a_fine) == F(row["bridge_variance"])


def test_vector_d02_atoms_multiply_along_a_ladder(vector: Callable[[str], Any]) -> None:
    fine, mid, coarse = map(F, vector("D02")["inputs"]["a"])
    expected = vector("D02")["expected"]

    assert atom(fine, mid) == F(expected["atom_fine_mid"])
    assert atom(mid, coarse) == F(expected["atom_mid_coarse"])
    assert atom(fine, coarse) == F(expected["atom_fine_coarse"])
    assert atom(fine, mid) * atom(mid, coarse) == atom(fine, coarse)


def test_fine_noise_plus_its_bridge_has_the_coarse_law_up_to_the_truncated_tail() -> None:
    fine, coarse, reach = F(1, 3), F(1, 2), 60
    for k in range(-6, 7):
        total = sum(pmf(fine, j) * bridge_pmf(fine, coarse, k - j) for j in range(-reach, reach + 1))
        assert 0 <= pmf(coarse, k) - total <= 2 * tail(fine, reach + 1)


def test_vector_h02_tails(vector: Callable[[str], Any]) -> None:
    h02 = vector("H02")
    tails = [tail(F(a), t) for a, t in zip(h02["inputs"]["ladder_a"], h02["inputs"]["thresholds_ge"], strict=True)]

    assert tails == list(map(F, h02["expected"]["tail_exact"]))


@pytest.mark.parametrize("a", PARAMETERS)
def test_the_tail_steps_down_by_the_probabilities(a: Fraction) -> None:
    assert tail(a, 0) + tail(a, 1) == 1  # by symmetry
    for t in range(-5, 6):
        assert tail(a, t) - tail(a, t + 1) == pmf(a, t)


@pytest.mark.parametrize("a", PARAMETERS[:3])
def test_moments_agree_with_the_law_up_to_the_truncated_tail(a: Fraction) -> None:
    reach = 600
    error = F(1, 10**9)

    assert abs(sum(k * k * pmf(a, k) for k in range(-reach, reach + 1)) - variance(a)) < error
    assert abs(sum(abs(k) * pmf(a, k) for k in range(-reach, reach + 1)) - mean_absolute(a)) < error


@pytest.mark.parametrize("a", PARAMETERS[:3])
@pytest.mark.parametrize("confidence", ["0", "1/2", "19/20", "999999/1000000"])
def test_the_interval_is_the_smallest_that_covers(a: Fraction, confidence: str) -> None:
    wanted = F(confidence)
    t = interval(a, wanted)

    assert 1 - 2 * tail(a, t + 1) >= wanted
    assert t == 0 or 1 - 2 * tail(a, t) < wanted


def test_the_interval_decides_a_confidence_that_is_met_exactly() -> None:
    a = F(1, 2)
    for t in range(12):
        covered = 1 - 2 * tail(a, t + 1)
        assert interval(a, covered) == t
        assert interval(a, covered + F(1, 10**40)) == t + 1


def test_the_interval_of_very_coarse_noise_is_found_at_once() -> None:
    a = PARAMETERS[-1]
    t = interval(a, F(19, 20))

    assert 55 * 10**18 < t < 56 * 10**18  # ln(20) 2^64


@pytest.mark.parametrize(("a", "confidence"), [("1", "1/2"), ("0", "1/2"), ("1/2", "1"), ("1/2", "-1/2")])
def test_an_interval_outside_its_domain_is_refused(a: str, confidence: str) -> None:
    with pytest.raises(ParameterError, match="an interval needs"):
        interval(F(a), F(confidence))


def test_vector_d01_atoms_and_variances(vector: Callable[[str], Any]) -> None:
    for row in vector("D01")["expected"]["rows"]:
        fine, coarse = F(row["a_fine"]), F(row["a_coarse"])
        assert bridge_atom(fine, coarse) == F(row["atom"]) == 1 - F(row["dlap_weight"])
        assert (1 - bridge_atom(fine, coarse)) * variance(coarse) == F(row["bridge_variance"])


def test_vector_d03_the_convolution_of_two_laws_behind_the_bridge(vector: Callable[[str], Any]) -> None:
    """fine * bridge = coarse says (fine * coarse)(k) = (coarse(k) - atom fine(k)) / (1 - atom)."""
    d03 = vector("D03")
    a, b = F(d03["inputs"]["a"]), F(d03["inputs"]["b"])
    atom, reach = bridge_atom(a, b), 90
    for k, expected in enumerate(d03["expected"]["pmf_0_to_6"]):
        assert (pmf(b, k) - atom * pmf(a, k)) / (1 - atom) == F(expected)
        summed = sum(pmf(a, j) * pmf(b, k - j) for j in range(-reach, reach + 1))
        assert 0 <= F(expected) - summed <= 2 * tail(a, reach + 1)


def test_vector_d04_rows_of_sharpen(vector: Callable[[str], Any]) -> None:
    d04 = vector("D04")
    old, new = F(d04["inputs"]["a_old"]), F(d04["inputs"]["a_new"])
    for z, row in d04["expected"]["rows"].items():
        for w, expected in row["pmf"].items():
            assert sharpen_pmf(old, new, int(z), int(w)) == F(expected)
        # The row is an atom at w = z over three geometric pieces of these weights.
        n, ratio, both = abs(int(z)), new / old, new * old
        keep = bridge_atom(new, old) * pmf(new, n) / pmf(old, n)
        assert keep == F(row["keep_probability"]) == ratio ** (n + 1) * (1 - old**2) / (1 - new**2)
        left, mid, right = both / (1 - both), (1 - ratio ** (n + 1)) / (1 - ratio), ratio**n * both / (1 - both)
        assert [left, mid, right] == list(map(F, row["piece_weights_A_M_C"]))
        assert sharpen_pmf(old, new, n, -1) == (1 - keep) * both / (left + mid + right)


def test_vector_d05_rows_of_between_and_its_row_of_equal_neighbours(vector: Callable[[str], Any]) -> None:
    d05 = vector("D05")
    levels = F(d05["inputs"]["a_fine"]), F(d05["inputs"]["a_new"]), F(d05["inputs"]["a_coarse"])
    for k, row in d05["expected"]["rows"].items():
        for w, expected in row["pmf"].items():
            assert between_pmf(*levels, int(k), int(w)) == F(expected)
        # Staying with probability alpha and else sharpening the difference is the same law.
        alpha = F(row["alpha"])
        for w in range(-6, 7):
            mixture = (alpha if w == 0 else 0) + (1 - alpha) * sharpen_pmf(levels[2], levels[1], int(k), w)
            assert mixture == between_pmf(*levels, int(k), w)
    assert between_pmf(*levels, 0, 0) == F(17, 18)


def joint_in_order(order: tuple[int, ...], readings: tuple[int, ...]) -> Fraction:
    """The probability that the kernels, used in this order of coarse, mid, fine = 0, 1, 2, give these readings."""
    levels = (COARSE, MID, FINE)
    probability, done = F(1), list[int]()
    for i in order:
        coarser, finer = [j for j in done if j < i], [j for j in done if j > i]
        if not done:
            probability *= pmf(levels[i], readings[i])
        elif not finer:
            probability *= sharpen_pmf(levels[max(coarser)], levels[i], readings[max(coarser)], readings[i])
        elif not coarser:
            probability *= bridge_pmf(levels[min(finer)], levels[i], readings[i] - readings[min(finer)])
        else:
            fine, coarse = min(finer), max(coarser)
            steps = readings[coarse] - readings[fine], readings[i] - readings[fine]
            probability *= between_pmf(levels[fine], levels[i], levels[coarse], *steps)
        done.append(i)
    return probability


def test_vector_d06_the_joint_law_is_the_same_in_all_six_orders(vector: Callable[[str], Any]) -> None:
    for point in vector("D06")["expected"]["points"]:
        readings = tuple(point["z_coarse_mid_fine"])
        found = {joint_in_order(order, readings) for order in permutations(range(3))}
        assert found == {F(point["joint_probability"])}


def test_the_joint_law_is_the_same_in_all_orders_on_a_whole_box() -> None:
    for readings in product(range(-3, 4), repeat=3):
        assert len({joint_in_order(order, readings) for order in permutations(range(3))}) == 1


def test_fresh_noise_has_its_law(every_coin: Callable[..., Any]) -> None:
    law = every_coin(lambda bits: LAPLACE.fresh(MID, bits), CUTOFF)

    assert law.agrees_with(lambda z: pmf(MID, z), range(-8, 9))
    assert law.missing < SMALL


def test_coarsen_adds_the_bridge(every_coin: Callable[..., Any]) -> None:
    law = every_coin(lambda bits: LAPLACE.coarsen(7, MID, COARSE, bits) - 7, CUTOFF)

    assert law.agrees_with(lambda w: bridge_pmf(MID, COARSE, w), range(-8, 9))
    assert law.missing < SMALL


@pytest.mark.parametrize("z", ordinarily(2, [0, -2, 1, 3]))
def test_sharpen_has_the_rows_of_vector_d04(every_coin: Callable[..., Any], z: int) -> None:
    law = every_coin(lambda bits: LAPLACE.sharpen(40 + z, COARSE, 40, MID, bits) - 40, CUTOFF)

    assert law.agrees_with(lambda w: sharpen_pmf(COARSE, MID, z, w), range(-6, 7))
    assert law.missing < SMALL


@pytest.mark.parametrize("k", ordinarily(2, [0, -2, 1, 3]))
def test_between_has_the_rows_of_vector_d05(every_coin: Callable[..., Any], k: int) -> None:
    law = every_coin(lambda bits: LAPLACE.between(5, FINE, 5 + k, COARSE, MID, bits) - 5, CUTOFF)

    assert law.agrees_with(lambda w: between_pmf(FINE, MID, COARSE, k, w), range(-6, 7))
    assert law.missing < SMALL


def test_the_continuous_rule_that_equal_neighbours_stay_equal_is_wrong_here(every_coin: Callable[..., Any]) -> None:
    """Negative control (specs/lossless 5, no. 12): the row k = 0 refuses an atom of 1."""
    law = every_coin(lambda bits: LAPLACE.between(0, FINE, 0, COARSE, MID, bits), CUTOFF)

    assert not law.agrees_with(lambda w: F(w == 0))


@pytest.mark.parametrize("z", [0, 2, -1])
def test_vector_d10_the_clocks_behind_a_difference(
    every_coin: Callable[..., Any], vector: Callable[[str], Any], z: int
) -> None:
    d10 = vector("D10")
    a = F(d10["inputs"]["a"])
    law = every_coin(lambda bits: clocks_behind(a, z, bits), CUTOFF)

    assert all(plus - minus == z for plus, minus in law.decided)
    for m, expected in enumerate(d10["expected"]["pmf_m_0_to_4"]):
        found = law.decided[max(z, 0) + m, max(-z, 0) + m]
        assert found <= F(expected) <= found + law.missing
    assert law.missing < CUTOFF * 10


def test_levels_in_the_wrong_order_are_refused() -> None:
    bits = KeyedBits(b"", b"")
    for fine, mid, coarse in permutations((FINE, MID, COARSE)):
        if not fine < mid < coarse:
            with pytest.raises(ParameterError, match="must be finer than"):
                LAPLACE.between(0, fine, 0, coarse, mid, bits)
    for fine, coarse in combinations((COARSE, MID, FINE), 2):
        with pytest.raises(ParameterError, match="must be finer than"):
            LAPLACE.coarsen(0, fine, coarse, bits)
        with pytest.raises(ParameterError, match="must be finer than"):
            LAPLACE.sharpen(0, coarse, 0, fine, bits)
    with pytest.raises(ParameterError, match="must be finer than"):
        LAPLACE.coarsen(0, MID, MID, bits)


@pytest.mark.parametrize("a", [F(0), F(1), F(3, 2), F(-1, 2)])
def test_what_is_no_noise_parameter_is_refused(a: Fraction) -> None:
    with pytest.raises(ParameterError, match="noise parameter"):
        LAPLACE.fresh(a, KeyedBits(b"", b""))
