"""Discrete Laplace noise as two geometric clocks: exact laws of every kernel, vectors, and that clocks only grow."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.exact.reals import exp_neg
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
CLOCK = GeometricClock()


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


def test_two_sides_are_independent_and_the_exact_count_belongs_to_plus(every_coin: Callable[..., Any]) -> None:
    family = TwoClocks()
    law = every_coin(lambda bits: family.sharpen(Sides(12, 1), COARSE, 10, MID, bits), CUTOFF)

    def rows(sides: Sides) -> Fraction:
        return clock_sharpen_pmf(COARSE, MID, 2, sides.plus - 10) * clock_sharpen_pmf(COARSE, MID, 1, sides.minus)

    assert law.agrees_with(rows)
    assert law.missing < CUTOFF * 100
    assert Sides(3, 1) + 10 == Sides(13, 1)
    assert int(Sides(13, 1)) == 12


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


def test_a_larger_epsilon_is_the_finer_one() -> None:
    family = TwoSided(EpsilonClock())
    with pytest.raises(ParameterError, match="must be finer than"):
        family.coarsen(family.zero, F(1, 2), F(1), KeyedBits(b"", b""))


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
