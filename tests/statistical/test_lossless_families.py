"""Laws too large to enumerate: order of requests, levels and their differences, realistic noise.

Randomness is keyed, so a run repeats. With a fresh key a correct implementation falls below the line with a
probability of `FALSE_ALARM` per p-value, and leaves the 4.5 standard errors of the other checks with one below 10^-5
each. Every kind of check rejects a mutant. The short form runs always, the long one with `make slow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations, product
from math import sqrt
from typing import Any

import pytest

from stream_dp.exact.bits import BitSource, KeyedBits
from tests.support import gaussian_laws
from tests.support.chance import pooled_p_value
from tests.support.chosen import kept_ordinary
from tests.support.discrete_gaussian import OddRatioLadder, discrete_gaussian_noise
from tests.support.laplace_family import DiscreteLaplace, pmf
from tests.support.laplace_laws import bridge_pmf, variance
from tests.support.multiple_release import MultipleRelease

pytestmark = pytest.mark.statistical

F = Fraction
FALSE_ALARM = 1e-5
SIZES = [pytest.param(1, id="short"), pytest.param(12, id="long", marks=pytest.mark.slow)]


def keyed(*context: object) -> BitSource:
    return KeyedBits(b"lossless families", repr(context).encode())


# ------------------------------------------------------------------------------------------------ T2: order of requests
LEVELS = F(1, 2), F(1, 3), F(1, 5)  # coarse, mid, fine
ORDERS = list(permutations(range(3)))


@cache
def laplace_joint() -> dict[tuple[int, ...], float]:
    coarse, mid, fine = LEVELS
    return {
        (c, m, f): float(pmf(fine, f) * bridge_pmf(fine, mid, m - f) * bridge_pmf(mid, coarse, c - m))
        for c, m, f in product(range(-5, 6), repeat=3)
    }


def drawn(family: Any, levels: tuple[Fraction, ...], order: tuple[int, ...], paths: int, name: str) -> Counter[Any]:
    release = MultipleRelease(family, dict.fromkeys(range(paths), 0))
    bits = keyed("order", name, order, paths)
    columns = {i: release.release(levels[i], bits) for i in order}
    return Counter(zip(*(columns[i].values() for i in range(3)), strict=True))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("order", kept_ordinary([(1, 2, 0), (2, 1, 0)], ORDERS), ids=str)
def test_t2_three_levels_have_their_joint_law_in_every_order(order: tuple[int, ...], size: int) -> None:
    counts = drawn(DiscreteLaplace(), LEVELS, order, 3_000 * size, "discrete Laplace")

    assert pooled_p_value(counts, laplace_joint()) > FALSE_ALARM


class Independent(DiscreteLaplace):
    """Mutant: every level has noise of its own."""

    def coarsen(self, value_fine: int, fine: Fraction, level: Fraction, bits: BitSource) -> int:
        return self.fresh(level, bits)


class StaysWhereNeighboursAreEqual(DiscreteLaplace):
    """Mutant: the rule of continuous noise, for integers."""

    def between(
        self, value_fine: int, fine: Fraction, value_coarse: int, coarse: Fraction, level: Fraction, bits: BitSource
    ) -> int:
        if value_fine == value_coarse:
            return value_fine
        return super().between(value_fine, fine, value_coarse, coarse, level, bits)


class AddsFreshNoise(DiscreteLaplace):
    """Mutant: the bridge without its atom."""

    def coarsen(self, value_fine: int, fine: Fraction, level: Fraction, bits: BitSource) -> int:
        return value_fine + self.fresh(level, bits)


@pytest.mark.parametrize(
    ("family", "order"),
    [
        (Independent(), (2, 1, 0)),
        (StaysWhereNeighboursAreEqual(), (0, 2, 1)),
        (AddsFreshNoise(), (2, 1, 0)),
    ],
    ids=["independent noise", "equal neighbours", "no atom"],
)
def test_t2_the_same_check_rejects_mutants(family: Any, order: tuple[int, ...]) -> None:
    assert pooled_p_value(drawn(family, LEVELS, order, 3_000, str(family)), laplace_joint()) < FALSE_ALARM


# --------------------------------------------------------------------------------------------------- T11: variances
def fourth_moment(law: Sequence[float]) -> float:
    """Of a law that is even, by its probabilities of 0, 1, 2, ..."""
    return 2 * sum(k**4 * p for k, p in enumerate(law))


PARAMETERS = F(19, 20), F(9, 10), F(4, 5), F(13, 20)


@pytest.mark.parametrize("size", SIZES)
def test_t11_levels_and_their_differences_have_their_variances(size: int) -> None:
    paths = 4_000 * size
    release = MultipleRelease(DiscreteLaplace(), dict.fromkeys(range(paths), 0))
    bits = keyed("variance", "discrete Laplace")
    columns = {i: list(release.release(PARAMETERS[i], bits).values()) for i in (1, 3, 0, 2)}

    for i, a in enumerate(PARAMETERS):
        expected = float(variance(a))
        law = [float(pmf(a, k)) for k in range(800)]
        error = sqrt((fourth_moment(law) - expected**2) / paths)
        assert abs(sum(z * z for z in columns[i]) / paths - expected) < 4.5 * error
    for i, (coarse, fine) in enumerate(pairwise(PARAMETERS)):
        expected = float(variance(coarse) - variance(fine))
        law = [float(bridge_pmf(fine, coarse, k)) for k in range(800)]
        error = sqrt((fourth_moment(law) - expected**2) / paths)
        difference = sum((c - f) ** 2 for c, f in zip(columns[i], columns[i + 1], strict=True)) / paths
        assert abs(difference - expected) < 4.5 * error
        # Power: noise drawn anew would have the sum of the variances, far outside.
        assert float(variance(coarse) + variance(fine)) - expected > 9 * error


# ------------------------------------------------------------------------------------------ marginals, realistic noise
def cells(law: Callable[[int], tuple[int, int]], reach: int) -> dict[int, float]:
    return {k: sum(law(k)) / 2**81 for k in range(-reach, reach + 1)}


GAUSSIAN = OddRatioLadder(F(30), (1, 3, 15))
MARGINALS: list[Any] = [
    pytest.param(
        lambda bits, off: int(OddRatioLadder(F(30) * off, (1, 3, 15)).fresh(1, bits)),
        lambda: cells(lambda k: gaussian_laws.pmf(F(30), k, 80), 30),
        id="all marks of a ladder of variance 30",
    ),
    pytest.param(
        lambda bits, off: int(GAUSSIAN.coarsen(GAUSSIAN.fresh(15, bits), 15, 3 if off == 1 else 1, bits)),
        lambda: cells(lambda k: gaussian_laws.pmf(F(10), k, 80), 30),
        id="a ladder's level from a finer one",
    ),
    pytest.param(
        lambda bits, off: discrete_gaussian_noise(F(30) * off, bits),
        lambda: cells(lambda k: gaussian_laws.pmf(F(30), k, 80), 30),
        id="discrete Gaussian of variance 30",
    ),
    pytest.param(
        lambda bits, off: DiscreteLaplace().fresh(1 - F(1, 100) / off, bits) // 40,
        lambda: {j: float(sum(pmf(F(99, 100), 40 * j + i) for i in range(40))) for j in range(-8, 8)},
        id="discrete Laplace by inverted clocks",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("draw", "law"), MARGINALS)
def test_noise_of_realistic_size_has_its_law(draw: Any, law: Any, size: int) -> None:
    bits = keyed("marginal", size)
    counts = Counter(draw(bits, F(1)) for _ in range(2_000 * size))

    assert pooled_p_value(counts, law()) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize(("draw", "law"), MARGINALS)
def test_noise_of_twice_the_variance_is_rejected(draw: Any, law: Any) -> None:
    bits = keyed("mutant")
    counts = Counter(draw(bits, F(2)) for _ in range(2_000))

    assert pooled_p_value(counts, law()) < FALSE_ALARM


# ------------------------------------------------------------------------------------------------------ T7: hidden keys
@pytest.mark.slow
def test_t7_a_million_paths_hide_alike_whatever_the_count() -> None:
    """P(hidden at the coarse level | fine reading) against the bridge's, which knows no count."""
    coarse, fine, threshold = F(1, 2), F(1, 3), 1
    hidden_given = {
        y: float(1 - sum(bridge_pmf(fine, coarse, w) for w in range(threshold - y, 80))) for y in range(-8, 17)
    }
    for count in range(8):
        release = MultipleRelease(DiscreteLaplace(), dict.fromkeys(range(125_000), count))
        bits = keyed("hidden", count)
        coarse_column, fine_column = release.release(coarse, bits), release.release(fine, bits)
        counts = Counter((coarse_column[key] < threshold, y) for key, y in fine_column.items())
        law = {}
        for y, hidden in hidden_given.items():
            law[True, y] = float(pmf(fine, y - count)) * hidden
            law[False, y] = float(pmf(fine, y - count)) * (1 - hidden)
        assert pooled_p_value(counts, law) > FALSE_ALARM
