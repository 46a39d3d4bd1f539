"""The law of sealed and read counts, by a chi-square test that has to reject noise whose scale is off by 30 %.

Randomness is keyed, so a run repeats. With a fresh key a correct implementation falls below the line with a
probability of `FALSE_ALARM` per p-value (cells expect at least 50 counts, so chi-square is a good fit); mutants are
30 % off in the scale 1/epsilon and must be rejected at the same level.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.exact.bits import KeyedBits
from stream_dp.lossless.bulk import bulk_noise
from stream_dp.lossless.levels import noise_parameter, threshold_for
from stream_dp.lossless.sealed import laplace_excess, seal
from tests.support.chance import laplace_cells, p_value
from tests.support.chosen import ordinarily
from tests.support.laplace_laws import bridge_pmf
from tests.support.readings import read_rows_lmr1, rows_of

pytestmark = pytest.mark.statistical

FALSE_ALARM = 1e-6
KEYS = [b"%d" % i for i in range(20_000)]
FINE, COARSE = Fraction(1), Fraction(1, 2)
OFF = [Fraction(13, 10), Fraction(7, 10)]  # of the scale
SEED = b"seal, one draw per test"


def cells(epsilon: Fraction, m: int) -> dict[int, Fraction]:
    return laplace_cells(noise_parameter(threshold_for(epsilon)), m)


def sealed(epsilon: Fraction) -> dict[bytes, int]:
    noise = seal(np.zeros(len(KEYS), np.int64), threshold_for(epsilon), KeyedBits(SEED, str(epsilon).encode()))
    return dict(zip(sorted(KEYS), noise.tolist(), strict=True))


def read_lmr1(fine: dict[bytes, int], epsilon: Fraction) -> list[int]:
    rows = read_rows_lmr1(
        fine,
        prf_key=bytes(range(32)),
        window=b"window",
        digest=bytes(32),
        thresholds=[threshold_for(epsilon)],
        finest=threshold_for(FINE),
    )
    return [value for (value,) in rows.values()]


def read(fine: dict[bytes, int], epsilon: Fraction) -> list[int]:
    ladder = [threshold_for(epsilon), threshold_for(FINE)]
    return [value for value, _ in rows_of(fine, ladder, KeyedBits(SEED, b"beyond")).values()]


Construction = Callable[[dict[bytes, int], Fraction], list[int]]
both = pytest.mark.parametrize("construction", [read_lmr1, read], ids=["LMR1", "shipped"])


def test_sealed_noise_is_discrete_laplace() -> None:
    assert p_value(sealed(FINE).values(), cells(FINE, 4)) > FALSE_ALARM


@pytest.mark.parametrize("scale", OFF)
def test_sealed_noise_of_another_scale_is_rejected(scale: Fraction) -> None:
    assert p_value(sealed(FINE / scale).values(), cells(FINE, 4)) < FALSE_ALARM


@both
def test_a_coarser_reading_is_discrete_laplace_at_its_own_level(construction: Construction) -> None:
    assert p_value(construction(sealed(FINE), COARSE), cells(COARSE, 8)) > FALSE_ALARM


@pytest.mark.slow
@both
@pytest.mark.parametrize("scale", OFF)
def test_a_coarser_reading_of_another_scale_is_rejected(scale: Fraction, construction: Construction) -> None:
    assert p_value(construction(sealed(FINE), COARSE / scale), cells(COARSE, 8)) < FALSE_ALARM


def bridge_cells(m: int) -> dict[int, Fraction]:
    """The law of coarse less fine, on its own."""
    fine, coarse = (noise_parameter(threshold_for(epsilon)) for epsilon in (FINE, COARSE))
    law = {z: bridge_pmf(fine, coarse, z) for z in range(-m + 1, m)}
    rest = (1 - sum(law.values(), Fraction(0))) / 2
    return law | {-m: rest, m: rest}


@both
def test_what_a_coarser_level_adds_has_the_law_of_the_bridge_whatever_the_sealed_noise_is(
    construction: Construction,
) -> None:
    """Checked apart where the sealed noise is positive, zero and negative: that is what independence says."""
    fine = sealed(FINE)
    added = {key: up - fine[key] for key, up in zip(fine, construction(fine, COARSE), strict=True)}
    for sign in (-1, 0, 1):
        part = [added[key] for key, value in fine.items() if (value > 0) - (value < 0) == sign]
        assert p_value(part, bridge_cells(4)) > FALSE_ALARM


def test_adding_fresh_coarse_noise_instead_of_the_bridge_is_rejected() -> None:
    fresh = seal(np.zeros(len(KEYS), np.int64), threshold_for(COARSE), KeyedBits(SEED, b"fresh"))

    assert p_value(fresh.tolist(), bridge_cells(4)) < FALSE_ALARM


# ------------------------------------------------------------------------------------------------- a million at once
MILLION = 1_000_000
SMALL, LARGE = Fraction(1, 10), Fraction(3, 2)  # epsilon per count: with binary digits apart from 1/32 down


@pytest.mark.parametrize(
    ("epsilon", "m"),
    [(Fraction(1, 50), 200), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((SMALL, 60), (LARGE, 6)))],
)
def test_a_million_draws_are_discrete_laplace(epsilon: Fraction, m: int) -> None:
    noise = bulk_noise(threshold_for(epsilon), MILLION, KeyedBits(SEED, b"million"))

    assert p_value(noise.tolist(), cells(epsilon, m)) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("off", [Fraction(102, 100), Fraction(98, 100)])
def test_a_million_draws_tell_a_scale_that_is_two_percent_off(off: Fraction) -> None:
    noise = bulk_noise(threshold_for(SMALL / off), MILLION, KeyedBits(SEED, b"million"))

    assert p_value(noise.tolist(), cells(SMALL, 60)) < FALSE_ALARM


def of_steps(off: Fraction = Fraction(1)) -> list[int]:
    """A million numbers of a fine level and the steps to one that is nearly twice as coarse, and to a coarse one."""
    ladder, bits = [threshold_for(epsilon) for epsilon in (SMALL / off, Fraction(1, 6), LARGE)], KeyedBits(SEED, b"all")
    fine = bulk_noise(ladder[-1], MILLION, bits)
    noise: list[int] = (fine + laplace_excess(ladder, MILLION, bits)[:, 0]).tolist()
    return noise


@pytest.mark.slow
def test_a_million_numbers_of_two_steps_are_discrete_laplace() -> None:
    assert p_value(of_steps(), cells(SMALL, 60)) > FALSE_ALARM


@pytest.mark.parametrize("off", ordinarily(1, [Fraction(98, 100), Fraction(102, 100)]))
def test_steps_of_a_scale_that_is_two_percent_off_are_rejected(off: Fraction) -> None:
    assert p_value(of_steps(off), cells(SMALL, 60)) < FALSE_ALARM
