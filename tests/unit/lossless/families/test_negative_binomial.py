"""Shares of a geometric clock: exact laws of every kernel, what shares sum to, vectors."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from stream_dp.exact.bits import KeyedBits
from stream_dp.lossless.families.negative_binomial import NegativeBinomial, agent_share
from stream_dp.lossless.families.two_clocks import (
    clock_between_pmf,
    clock_bridge_pmf,
    clock_pmf,
    clock_sharpen_pmf,
)
from tests.support.enclosures import PRECISION, middle, real

F = Fraction
FINE, MID, COARSE = F(1, 5), F(1, 3), F(1, 2)
QUARTER, WHOLE = NegativeBinomial(F(1, 4)), NegativeBinomial(F(1))


def test_vector_n01_bridge_of_a_quarter_share(vector: Callable[[str], Any]) -> None:
    n01 = vector("N01")
    fine, coarse, share = MID, COARSE, F(n01["inputs"]["r"])
    assert [float(fine), float(coarse)] == [n01["inputs"]["a_fine"], n01["inputs"]["a_coarse"]]
    family = NegativeBinomial(share)
    bridge = [real(family.bridge_pmf(fine, coarse, k, PRECISION)) for k in range(6)]

    assert [float(low) for low, _ in bridge] == pytest.approx(n01["expected"]["bridge_pmf_0_to_5"], abs=1e-14)
    # Panjer's recursion of a compound Poisson law with clusters of size j at rate share (coarse^j - fine^j) / j.
    rates = [share * (coarse**j - fine**j) / j for j in range(1, 6)]
    assert [float(rate) for rate in rates[:4]] == pytest.approx(
        n01["expected"]["compound_poisson_rates_j1_to_4"], abs=1e-14
    )
    for k in range(1, 6):
        low, high = (sum(j * rates[j - 1] * bridge[k - j][end] for j in range(1, k + 1)) / k for end in (0, 1))
        assert low <= bridge[k][1]
        assert bridge[k][0] <= high


def test_four_quarter_shares_sum_to_the_clock_and_its_bridge() -> None:
    for laws, whole in (
        ([middle(QUARTER.bridge_pmf(MID, COARSE, k, PRECISION)) for k in range(12)], clock_bridge_pmf),
        ([middle(QUARTER.pmf(COARSE, k, PRECISION)) for k in range(12)], None),
    ):
        for k in range(12):
            total = sum(
                laws[i] * laws[j] * laws[m] * laws[k - i - j - m]
                for i, j, m in product(range(k + 1), repeat=3)
                if i + j + m <= k
            )
            expected = clock_pmf(COARSE, k) if whole is None else whole(MID, COARSE, k)
            assert total == pytest.approx(float(expected), rel=1e-12)


def test_a_whole_share_is_a_geometric_clock() -> None:
    for k in range(6):
        for w in range(k + 1):
            assert WHOLE.between_pmf(FINE, MID, COARSE, k, w) == clock_between_pmf(FINE, MID, COARSE, k, w)
            assert WHOLE.sharpen_pmf(COARSE, MID, k, w) == clock_sharpen_pmf(COARSE, MID, k, w)
        assert real(WHOLE.pmf(MID, k, PRECISION))[0] <= clock_pmf(MID, k) <= real(WHOLE.pmf(MID, k, PRECISION))[1]


@pytest.mark.parametrize("share", [F(1, 4), F(2, 3), F(1)])
def test_shares_have_their_law(every_coin: Callable[..., Any], share: Fraction) -> None:
    family = NegativeBinomial(share)
    fresh = every_coin(lambda bits: family.fresh(MID, bits), F(1, 10**7))
    coarsened = every_coin(lambda bits: family.coarsen(2, FINE, MID, bits) - 2, F(1, 10**7))

    assert fresh.agrees_with(lambda k: real(family.pmf(MID, k, PRECISION)), range(10))
    assert coarsened.agrees_with(lambda k: real(family.bridge_pmf(FINE, MID, k, PRECISION)), range(10))
    assert max(fresh.missing, coarsened.missing) < F(1, 1000)
    assert family.bridge_pmf(FINE, MID, -1, PRECISION) == (0, 0)


@pytest.mark.parametrize("share", [F(1, 4), F(1)])
@pytest.mark.parametrize("k", range(5))
def test_kernels_of_shares_have_their_rational_laws(every_coin: Callable[..., Any], share: Fraction, k: int) -> None:
    family = NegativeBinomial(share)
    between = every_coin(lambda bits: family.between(1, FINE, 1 + k, COARSE, MID, bits) - 1)
    sharpen = every_coin(lambda bits: family.sharpen(5 + k, COARSE, 5, MID, bits) - 5)

    assert between.missing == sharpen.missing == 0
    assert between.agrees_with(lambda w: family.between_pmf(FINE, MID, COARSE, k, w), range(k + 1))
    assert sharpen.agrees_with(lambda w: family.sharpen_pmf(COARSE, MID, k, w), range(k + 1))
    # By definition: the joint law of the two increments, over that of their sum.
    for w in range(k + 1):
        first, second, both = (
            middle(family.bridge_pmf(a, b, n, PRECISION))
            for a, b, n in ((FINE, MID, w), (MID, COARSE, k - w), (FINE, COARSE, k))
        )
        assert first * second / both == pytest.approx(float(family.between_pmf(FINE, MID, COARSE, k, w)), rel=1e-12)


def test_an_agents_share_has_two_sides() -> None:
    family = agent_share(3)
    noise = family.fresh(COARSE, KeyedBits(b"agent", b"1"))

    assert family.side == NegativeBinomial(F(1, 3))
    assert int(noise + 5) == 5 + noise.plus - noise.minus
