"""What makes no sense is refused by every family: orders of levels, what is no level, corrupt readings."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, permutations
from typing import Any

import pytest

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.lossless.families.discrete_laplace import (
    DiscreteLaplace,
)
from stream_dp.lossless.families.negative_binomial import NegativeBinomial, agent_share
from stream_dp.lossless.families.poisson import Poisson, points_below
from stream_dp.lossless.families.popcount import PrefixPopcount, ones_among_first
from stream_dp.lossless.families.skellam import Skellam
from stream_dp.lossless.families.two_clocks import (
    GeometricClock,
    TwoClocks,
)
from stream_dp.lossless.kernels import Sides

F = Fraction
FINE, MID, COARSE = F(1, 5), F(1, 3), F(1, 2)
LAPLACE, CLOCK = DiscreteLaplace(), GeometricClock()
POISSON, SKELLAM, POPCOUNT = Poisson(), Skellam(), PrefixPopcount()
QUARTER = NegativeBinomial(F(1, 4))
BITS = KeyedBits(b"unused", b"")


def test_a_coarser_reading_below_the_finer_one_is_corrupt_state() -> None:
    with pytest.raises(StateError, match="below the finer one"):
        POISSON.between(25, F(4), 20, F(10), F(6), BITS)
    with pytest.raises(StateError, match="below the finer one"):
        POISSON.sharpen(6, F(6), 7, F(4), BITS)
    with pytest.raises(StateError, match="below the finer one"):
        SKELLAM.between(Sides(3, 3), F(4), Sides(4, 2), F(10), F(6), BITS)
    with pytest.raises(StateError, match="below the finer one"):
        QUARTER.between(3, FINE, 2, COARSE, MID, BITS)
    with pytest.raises(StateError, match="below the finer one"):
        POPCOUNT.between(3, 2, 2, 7, 4, BITS)


@pytest.mark.parametrize(
    ("family", "levels"),
    [
        (POISSON, (F(1), F(2), F(3))),
        (SKELLAM, (F(1), F(2), F(3))),
        (POPCOUNT, (1, 2, 3)),
        (QUARTER, (FINE, MID, COARSE)),
    ],
)
def test_levels_in_the_wrong_order_are_refused(family: Any, levels: tuple[Any, Any, Any]) -> None:
    fine, mid, coarse = levels
    zero = family.zero
    for wrong in ((mid, fine, coarse), (fine, coarse, mid), (coarse, mid, fine)):
        with pytest.raises(ParameterError, match="must be finer than"):
            family.between(zero, wrong[0], zero, wrong[2], wrong[1], BITS)
    with pytest.raises(ParameterError, match="must be finer than"):
        family.coarsen(zero, coarse, fine, BITS)
    with pytest.raises(ParameterError, match="must be finer than"):
        family.sharpen(zero, fine, 0, coarse, BITS)


@pytest.mark.parametrize("family", [LAPLACE, CLOCK, TwoClocks()])
def test_levels_of_discrete_laplace_noise_in_the_wrong_order_are_refused(family: Any) -> None:
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


def test_what_is_no_level_is_refused() -> None:
    for refused in (
        lambda: POISSON.fresh(F(0), BITS),
        lambda: SKELLAM.fresh(F(-1), BITS),
        lambda: POPCOUNT.fresh(0, BITS),
        lambda: ones_among_first([3, 0], BITS),
        lambda: points_below(F(1), [0], BITS),
        lambda: QUARTER.fresh(F(1), BITS),
        lambda: NegativeBinomial(F(0)),
        lambda: NegativeBinomial(F(5, 4)),
        lambda: agent_share(0),
    ):
        with pytest.raises(ParameterError):
            refused()


@pytest.mark.parametrize("a", [F(0), F(1), F(3, 2), F(-1, 2)])
@pytest.mark.parametrize("family", [LAPLACE, CLOCK, TwoClocks()])
def test_what_is_no_noise_parameter_is_refused(family: Any, a: Fraction) -> None:
    with pytest.raises(ParameterError, match="noise parameter"):
        family.fresh(a, KeyedBits(b"", b""))
