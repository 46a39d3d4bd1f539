"""The kernels of discrete Laplace noise, with the integer alone and with two clocks: exact laws and vectors."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.exact.reals import exp_neg
from stream_dp.lossless.families.discrete_laplace import (
    DiscreteLaplace,
    between_pmf,
    bridge_atom,
    bridge_pmf,
    clocks_behind,
    pmf,
    sharpen_pmf,
    tail,
    variance,
)
from stream_dp.lossless.families.two_clocks import (
    EpsilonClock,
    GeometricClock,
    TwoClocks,
    clock_between_pmf,
    clock_bridge_pmf,
    clock_pmf,
    clock_sharpen_pmf,
)
from stream_dp.lossless.kernels import Sides, TwoSided

F = Fraction
FINE, MID, COARSE = F(1, 5), F(1, 3), F(1, 2)
CUTOFF = F(1, 10**6)
SMALL = F(1, 100)
LAPLACE, CLOCK = DiscreteLaplace(), GeometricClock()


# --------------------------------------------------------------------------------------------------- closed forms
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


def test_vector_d08_between_clocks(vector: Callable[[str], Any]) -> None:
    d08 = vector("D08")
    levels = F(d08["inputs"]["a_fine"]), F(d08["inputs"]["a_new"]), F(d08["inputs"]["a_coarse"])
    for row in d08["expected"]["rows"]:
        k = row["difference"]
        assert [clock_between_pmf(*levels, k, w) for w in range(k + 1)] == list(map(F, row["pmf"]))
        assert clock_between_pmf(*levels, k, 0) == (F(d08["expected"]["stay"]) if k else 1)


def test_vector_d09_coarsen_and_sharpen_a_clock(vector: Callable[[str], Any]) -> None:
    d09 = vector("D09")
    fine, coarse = F(d09["inputs"]["a_fine"]), F(d09["inputs"]["a_coarse"])
    bridge = [clock_bridge_pmf(fine, coarse, k) for k in range(6)]

    assert bridge == list(map(F, d09["expected"]["coarsen_pmf_0_to_5"]))
    assert bridge[0] == F(d09["expected"]["coarsen_stay"])
    for z, row in d09["expected"]["sharpen_rows"].items():
        assert [clock_sharpen_pmf(coarse, fine, int(z), w) for w in range(int(z) + 1)] == list(map(F, row))


# ------------------------------------------------------------------------------------- T1: every outcome of the coins
def test_fresh_noise_has_its_law(every_coin: Callable[..., Any]) -> None:
    law = every_coin(lambda bits: LAPLACE.fresh(MID, bits), CUTOFF)

    assert law.agrees_with(lambda z: pmf(MID, z), range(-8, 9))
    assert law.missing < SMALL


def test_coarsen_adds_the_bridge(every_coin: Callable[..., Any]) -> None:
    law = every_coin(lambda bits: LAPLACE.coarsen(7, MID, COARSE, bits) - 7, CUTOFF)

    assert law.agrees_with(lambda w: bridge_pmf(MID, COARSE, w), range(-8, 9))
    assert law.missing < SMALL


@pytest.mark.parametrize("z", [0, 1, 3, -2])
def test_sharpen_has_the_rows_of_vector_d04(every_coin: Callable[..., Any], z: int) -> None:
    law = every_coin(lambda bits: LAPLACE.sharpen(40 + z, COARSE, 40, MID, bits) - 40, CUTOFF)

    assert law.agrees_with(lambda w: sharpen_pmf(COARSE, MID, z, w), range(-6, 7))
    assert law.missing < SMALL


@pytest.mark.parametrize("k", [0, 1, 3, -2])
def test_between_has_the_rows_of_vector_d05(every_coin: Callable[..., Any], k: int) -> None:
    law = every_coin(lambda bits: LAPLACE.between(5, FINE, 5 + k, COARSE, MID, bits) - 5, CUTOFF)

    assert law.agrees_with(lambda w: between_pmf(FINE, MID, COARSE, k, w), range(-6, 7))
    assert law.missing < SMALL


def test_the_continuous_rule_that_equal_neighbours_stay_equal_is_wrong_here(every_coin: Callable[..., Any]) -> None:
    """Negative control (lossless 5, no. 12): the row k = 0 refuses an atom of 1."""
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


def test_fresh_clocks_have_their_law(every_coin: Callable[..., Any]) -> None:
    law = every_coin(lambda bits: CLOCK.fresh(COARSE, bits))

    assert law.agrees_with(lambda k: clock_pmf(COARSE, k), range(12))


def test_coarsened_clocks_have_the_rows_of_vector_d09(every_coin: Callable[..., Any]) -> None:
    law = every_coin(lambda bits: CLOCK.coarsen(2, MID, COARSE, bits) - 2)

    assert law.agrees_with(lambda k: clock_bridge_pmf(MID, COARSE, k), range(12))
    assert law.missing < CUTOFF * 10


@pytest.mark.parametrize("z", range(5))
def test_sharpened_clocks_have_the_rows_of_vector_d09(every_coin: Callable[..., Any], z: int) -> None:
    law = every_coin(lambda bits: CLOCK.sharpen(10 + z, COARSE, 10, MID, bits) - 10)

    assert law.agrees_with(lambda w: clock_sharpen_pmf(COARSE, MID, z, w), range(z + 1))
    assert law.missing < CUTOFF * 10


@pytest.mark.parametrize("k", range(6))
def test_clocks_between_have_the_rows_of_vector_d08(every_coin: Callable[..., Any], k: int) -> None:
    law = every_coin(lambda bits: CLOCK.between(2, FINE, 2 + k, COARSE, MID, bits) - 2)

    assert law.agrees_with(lambda w: clock_between_pmf(FINE, MID, COARSE, k, w), range(k + 1))
    assert law.missing < CUTOFF * 10


def test_two_clocks_given_that_their_difference_is_large_have_the_conditional_law(
    every_coin: Callable[..., Any],
) -> None:
    law = every_coin(lambda bits: TwoClocks().above(MID, 2, bits), CUTOFF)

    def conditional(sides: Sides) -> Fraction:
        inside = int(sides) >= 2
        return inside * clock_pmf(MID, sides.plus) * clock_pmf(MID, sides.minus) / TwoClocks().tail(MID, 2)

    assert law.agrees_with(conditional)
    assert law.missing < SMALL


def test_noise_given_that_it_is_large_has_the_conditional_law(every_coin: Callable[..., Any]) -> None:
    for t in (0, 3):
        law = every_coin(lambda bits, t=t: LAPLACE.above(MID, t, bits), CUTOFF)
        assert law.agrees_with(lambda z, t=t: pmf(MID, z) / LAPLACE.tail(MID, t) if z >= t else 0, range(12))


def test_two_sides_are_independent_and_the_exact_count_belongs_to_plus(every_coin: Callable[..., Any]) -> None:
    family = TwoClocks()
    law = every_coin(lambda bits: family.sharpen(Sides(12, 1), COARSE, 10, MID, bits), CUTOFF)

    def rows(sides: Sides) -> Fraction:
        return clock_sharpen_pmf(COARSE, MID, 2, sides.plus - 10) * clock_sharpen_pmf(COARSE, MID, 1, sides.minus)

    assert law.agrees_with(rows)
    assert law.missing < CUTOFF * 100
    assert Sides(3, 1) + 10 == Sides(13, 1)
    assert int(Sides(13, 1)) == 12


# ------------------------------------------------------------------------------------------- rational epsilon
PRECISION = 200
EPSILONS = F(1, 2), F(1), F(5, 3)  # coarse, mid, fine


def through(enclosed: Callable[[Fraction, Fraction, Fraction], Fraction]) -> tuple[Fraction, Fraction]:
    """A monotone or not, smooth function of the three a = e^-epsilon, within 2^-150."""
    a = [F(sum(exp_neg(epsilon, PRECISION)), 2 << PRECISION) for epsilon in EPSILONS]
    value = enclosed(a[2], a[1], a[0])
    return value - F(1, 2**150), value + F(1, 2**150)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_clocks_of_a_rational_epsilon_have_the_laws_of_their_parameter(every_coin: Callable[..., Any], k: int) -> None:
    coarse, mid, fine = EPSILONS
    clock = EpsilonClock()
    runs: list[tuple[Callable[[Any], int], Callable[[int], Any]]] = [
        (lambda bits: clock.fresh(mid, bits), lambda w: through(lambda f, m, c: clock_pmf(m, w))),
        (
            lambda bits: clock.coarsen(1, fine, mid, bits) - 1,
            lambda w: through(lambda f, m, c: clock_bridge_pmf(f, m, w)),
        ),
        (
            lambda bits: clock.sharpen(k, coarse, 0, mid, bits),
            lambda w: through(lambda f, m, c: clock_sharpen_pmf(c, m, k, w)),
        ),
        (
            lambda bits: clock.between(1, fine, 1 + k, coarse, mid, bits) - 1,
            lambda w: through(lambda f, m, c: clock_between_pmf(f, m, c, k, w)),
        ),
    ]
    for run, law_of in runs:
        law = every_coin(run, F(1, 10**5))
        assert law.agrees_with(law_of, range(k + 1))
        assert law.missing < F(1, 20)


# -------------------------------------------------------------------------------------- T10 and what is refused
LADDERS = st.lists(st.integers(1, 99), min_size=3, max_size=3, unique=True).map(sorted)


@given(ladder=LADDERS, seed=st.binary(max_size=8), count=st.integers(0, 5))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_clocks_are_monotone_on_every_ladder(ladder: list[int], seed: bytes, count: int) -> None:
    fine, mid, coarse = (F(a, 100) for a in ladder)
    bits = KeyedBits(b"clocks", seed)
    first = CLOCK.fresh(fine, bits) + count
    last = CLOCK.coarsen(first, fine, coarse, bits)

    assert first <= CLOCK.between(first, fine, last, coarse, mid, bits) <= last
    assert count <= CLOCK.sharpen(last, coarse, count, mid, bits) <= last


@given(ladder=LADDERS, seed=st.binary(max_size=8), count=st.integers(0, 5))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_clocks_of_a_rational_epsilon_are_monotone_too(ladder: list[int], seed: bytes, count: int) -> None:
    coarse, mid, fine = (F(epsilon, 20) for epsilon in ladder)
    bits, clock = KeyedBits(b"clocks", seed), EpsilonClock()
    first = clock.fresh(fine, bits) + count
    last = clock.coarsen(first, fine, coarse, bits)

    assert first <= clock.between(first, fine, last, coarse, mid, bits) <= last


@pytest.mark.parametrize("family", [LAPLACE, CLOCK, TwoClocks()])
def test_levels_in_the_wrong_order_are_refused(family: Any) -> None:
    bits, zero = KeyedBits(b"", b""), family.zero
    for fine, mid, coarse in permutations((FINE, MID, COARSE)):
        if not fine < mid < coarse:
            with pytest.raises(ParameterError, match="must be finer than"):
                family.between(zero, fine, zero, coarse, mid, bits)
    for fine, coarse in combinations((COARSE, MID, FINE), 2):
        with pytest.raises(ParameterError, match="must be finer than"):
            family.coarsen(zero, fine, coarse, bits)
        with pytest.raises(ParameterError, match="must be finer than"):
            family.sharpen(zero, coarse, 0, fine, bits)
    with pytest.raises(ParameterError, match="must be finer than"):
        family.coarsen(zero, MID, MID, bits)


def test_a_larger_epsilon_is_the_finer_one() -> None:
    family = TwoSided(EpsilonClock())
    with pytest.raises(ParameterError, match="must be finer than"):
        family.coarsen(family.zero, F(1, 2), F(1), KeyedBits(b"", b""))


@pytest.mark.parametrize("a", [F(0), F(1), F(3, 2), F(-1, 2)])
@pytest.mark.parametrize("family", [LAPLACE, CLOCK, TwoClocks()])
def test_what_is_no_noise_parameter_is_refused(family: Any, a: Fraction) -> None:
    with pytest.raises(ParameterError, match="noise parameter"):
        family.fresh(a, KeyedBits(b"", b""))


def test_clocks_that_run_backwards_are_corrupt_state() -> None:
    bits = KeyedBits(b"", b"")
    with pytest.raises(StateError, match="below the finer one"):
        CLOCK.between(3, FINE, 2, COARSE, MID, bits)
    with pytest.raises(StateError, match="below the finer one"):
        CLOCK.sharpen(3, COARSE, 4, MID, bits)
    with pytest.raises(StateError, match="below the finer one"):
        TwoClocks().between(Sides(1, 2), FINE, Sides(1, 1), COARSE, MID, bits)
    with pytest.raises(StateError, match="below the finer one"):
        EpsilonClock().between(3, F(2), 2, F(1, 2), F(1), bits)
