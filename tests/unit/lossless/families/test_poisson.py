"""Poisson noise: exact laws of every kernel, one stream read at several levels, vectors."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from stream_dp.exact import coins
from stream_dp.exact.bits import KeyedBits
from stream_dp.exact.laws import poisson_pmf
from stream_dp.lossless.families.poisson import Poisson, points_below
from tests.support.enclosures import PRECISION, middle, real

F = Fraction
POISSON, BITS = Poisson(), KeyedBits(b"unused", b"")


def test_vector_p01_between_is_binomial(every_number: Callable[..., Any], vector: Callable[[str], Any]) -> None:
    p01 = vector("P01")
    coarse, new, fine = (F(p01["inputs"][f"lambda_{name}"]) for name in ("coarse", "new", "fine"))
    y_coarse, y_fine = int(F(p01["inputs"]["Y_coarse"])), int(F(p01["inputs"]["Y_fine"]))
    expected = list(map(F, p01["expected"]["pmf_W1"]))
    n = p01["expected"]["N"]

    law = every_number(lambda bits: POISSON.between(y_fine, fine, y_coarse, coarse, new, bits) - y_fine)

    assert n == y_coarse - y_fine
    assert [POISSON.between_pmf(fine, new, coarse, n, w) for w in range(n + 1)] == expected
    assert law.agrees_with(expected.__getitem__, range(n + 1))
    assert law.missing == 0


def test_vector_p02_sharpen_is_binomial(every_number: Callable[..., Any], vector: Callable[[str], Any]) -> None:
    p02 = vector("P02")
    old, new, z = F(p02["inputs"]["lambda_old"]), F(p02["inputs"]["lambda_new"]), p02["inputs"]["z_old"]
    expected = list(map(F, p02["expected"]["pmf"]))

    law = every_number(lambda bits: POISSON.sharpen(100 + z, old, 100, new, bits) - 100)

    assert [POISSON.sharpen_pmf(old, new, z, w) for w in range(z + 1)] == expected
    assert law.agrees_with(expected.__getitem__, range(z + 1))
    assert law.missing == 0


def test_vector_p03_coarsen_adds_a_poisson_number(
    monkeypatch: pytest.MonkeyPatch, vector: Callable[[str], Any]
) -> None:
    p03 = vector("P03")
    fine, new = F(p03["inputs"]["lambda_fine"]), F(p03["inputs"]["lambda_new"])
    monkeypatch.setattr(coins, "poisson", lambda rate, bits: f"Poisson({rate})")

    class Shown(int):
        def __add__(self, law: object) -> str:  # type: ignore[override]
            return f"Y_fine + {law}"

    assert POISSON.coarsen(Shown(), fine, new, BITS) == p03["expected"]["law"]


def test_fresh_and_coarser_poisson_noise_has_its_law(every_number: Callable[..., Any]) -> None:
    fine, coarse = F(1, 3), F(4, 3)
    fresh = every_number(lambda bits: POISSON.fresh(fine, bits))
    coarsened = every_number(lambda bits: POISSON.coarsen(3, fine, coarse, bits) - 3)

    assert fresh.agrees_with(lambda k: real(POISSON.pmf(fine, k, PRECISION)), range(8))
    assert coarsened.agrees_with(lambda k: real(POISSON.bridge_pmf(fine, coarse, k, PRECISION)), range(8))
    assert max(fresh.missing, coarsened.missing) < F(1, 10**5)


def test_poisson_probabilities_compose_along_a_ladder() -> None:
    fine, mid, coarse = F(1, 2), F(4, 3), F(3)
    for z, k in product(range(4), range(6)):
        w_total = sum(POISSON.between_pmf(fine, mid, coarse, k, w) for w in range(k + 1))
        assert w_total == 1
        summed = sum(
            middle(POISSON.pmf(fine, z - w, PRECISION)) * middle(POISSON.bridge_pmf(fine, mid, w, PRECISION))
            for w in range(z + 1)
        )
        assert summed == pytest.approx(middle(POISSON.pmf(mid, z, PRECISION)), rel=1e-12)
    assert poisson_pmf(F(2), -1, PRECISION) == (0, 0)
    low, high = poisson_pmf(F(40), 40, PRECISION)
    assert 0 < high - low <= 2


@pytest.mark.parametrize("thresholds", [(3 << 62, 1 << 62), (1 << 63,)])
def test_points_read_from_one_stream_have_the_joint_law_of_the_levels(
    every_number: Callable[..., Any], thresholds: tuple[int, ...]
) -> None:
    """Marks of two random bits; each level read on its own stream gives the same number again."""

    class TwoBitMarks:
        def __init__(self, source: Any) -> None:
            self.source = source

        def choose(self, weights: list[Fraction]) -> int:
            return int(self.source.choose(weights))

        def bits(self, n: int) -> int:
            return int(self.source.bits(2)) << (n - 2)

    most = F(1)

    def run(bits: Any) -> tuple[int, ...]:
        return points_below(most, thresholds, TwoBitMarks(bits))

    law = every_number(run, F(1, 10**5))

    def joint(found: tuple[int, ...]) -> tuple[Fraction, Fraction]:
        rates = [most * F(t, 1 << 64) for t in thresholds]
        low, high = real(poisson_pmf(rates[-1], found[-1], PRECISION))
        if len(rates) == 2:
            step = real(poisson_pmf(rates[0] - rates[1], found[0] - found[1], PRECISION))
            low, high = low * step[0], high * step[1]
        return low, high

    assert law.agrees_with(joint)
    assert law.missing < F(1, 50)


def test_points_of_a_stream_do_not_depend_on_what_is_asked_together() -> None:
    levels = [1 << 60, 1 << 63, (1 << 64) - 1]
    for window in range(20):
        context = b"%d" % window
        together = points_below(F(30), levels, KeyedBits(b"key", context))
        alone = tuple(points_below(F(30), [level], KeyedBits(b"key", context))[0] for level in levels)
        assert together == alone
        assert list(together) == sorted(together)


def test_the_mean_to_subtract_is_the_rate() -> None:
    assert POISSON.mean(F(7, 2)) == F(7, 2)
    assert Poisson(F(1, 2)).mean(F(7)) == F(7, 2)
