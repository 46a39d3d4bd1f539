"""Skellam noise: exact laws of its halves, its probabilities, vectors."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.exact import coins
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.lossless.families import skellam
from stream_dp.lossless.families.skellam import Skellam
from stream_dp.lossless.kernels import Sides
from tests.support.enclosures import PRECISION, middle, real

F = Fraction
SKELLAM, BITS = Skellam(), KeyedBits(b"unused", b"")


def test_vector_s01_between_is_two_independent_binomials(
    every_number: Callable[..., Any], vector: Callable[[str], Any]
) -> None:
    s01 = vector("S01")
    fine, new, coarse = (F(s01["inputs"][f"var_{name}"]) for name in ("fine", "new", "coarse"))
    plus, minus = s01["inputs"]["plus_half_difference"], s01["inputs"]["minus_half_difference"]
    expected_plus, expected_minus = (list(map(F, s01["expected"][f"pmf_{side}"])) for side in ("plus", "minus"))
    start, end = Sides(20, 5), Sides(20 + plus, 5 + minus)

    law = every_number(lambda bits: SKELLAM.between(start, fine, end, coarse, new, bits))

    assert law.agrees_with(
        lambda sides: expected_plus[sides.plus - 20] * expected_minus[sides.minus - 5],
        [Sides(20 + w, 5 + v) for w in range(plus + 1) for v in range(minus + 1)],
    )
    assert law.missing == 0
    assert (new - fine) / (coarse - fine) == F(s01["expected"]["p"])


def test_vector_s02_probabilities(vector: Callable[[str], Any]) -> None:
    s02 = vector("S02")
    for variance, expected in s02["expected"]["pmf_k0_to_4"].items():
        for k, probability in enumerate(expected):
            low, high = skellam.pmf(F(variance), k, PRECISION)
            assert 0 <= high - low <= 4
            assert middle((low, high)) == pytest.approx(probability, abs=s02["tolerance"])
            assert skellam.pmf(F(variance), -k, PRECISION) == (low, high)


def test_skellam_noise_is_closed_under_its_bridge() -> None:
    for k in range(-3, 4):
        total = sum(
            middle(skellam.pmf(F(4), j, PRECISION)) * middle(skellam.pmf(F(2), k - j, PRECISION))
            for j in range(-40, 41)
        )
        assert total == pytest.approx(middle(skellam.pmf(F(6), k, PRECISION)), rel=1e-12)


def test_skellam_halves_have_half_the_variance_as_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Fraction] = []

    def poisson(rate: Fraction, bits: BitSource) -> int:
        asked.append(rate)
        return 1

    monkeypatch.setattr(coins, "poisson", poisson)

    noise = SKELLAM.fresh(F(5), BITS)
    coarser = SKELLAM.coarsen(noise + 7, F(5), F(8), BITS)

    assert asked == [F(5, 2), F(5, 2), F(3, 2), F(3, 2)]
    assert (noise, coarser) == (Sides(1, 1), Sides(9, 2))
    assert int(coarser) == 7
    assert SKELLAM.variance(F(5)) == 5


def test_small_skellam_noise_has_its_law(every_number: Callable[..., Any]) -> None:
    law = every_number(lambda bits: int(SKELLAM.fresh(F(2), bits)))

    assert law.agrees_with(lambda k: real(skellam.pmf(F(2), k, PRECISION)), range(-4, 5))
    assert law.missing < F(1, 10**4)
