"""Laws too large to enumerate: order of requests, levels and their differences, sparse histograms, realistic noise.

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
from types import SimpleNamespace
from typing import Any

import pytest

from stream_dp.exact import coins
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.exact.reals import exp_neg
from stream_dp.lossless.families import discrete_gaussian, skellam
from stream_dp.lossless.families.discrete_gaussian import OddRatioLadder, discrete_gaussian_noise
from stream_dp.lossless.families.discrete_laplace import DiscreteLaplace, bridge_pmf, pmf, tail, variance
from stream_dp.lossless.families.negative_binomial import agent_share
from stream_dp.lossless.families.popcount import PrefixPopcount
from stream_dp.lossless.families.skellam import Skellam
from stream_dp.lossless.families.two_clocks import EpsilonClock, TwoClocks
from stream_dp.lossless.kernels import TwoSided
from stream_dp.lossless.multiple_release import MultipleRelease
from stream_dp.lossless.sparse import LadderSparse, SparseRounds
from tests.support.chance import pooled_p_value

pytestmark = pytest.mark.statistical

F = Fraction
FALSE_ALARM = 1e-5
SIZES = [pytest.param(1, id="short"), pytest.param(12, id="long", marks=pytest.mark.slow)]


def keyed(*context: object) -> BitSource:
    return KeyedBits(b"lossless families", repr(context).encode())


# ------------------------------------------------------------------------------------------------ T2: order of requests
LEVELS = F(1, 2), F(1, 3), F(1, 5)  # coarse, mid, fine
VARIANCES = F(8), F(4), F(2)
ORDERS = list(permutations(range(3)))


@cache
def laplace_joint() -> dict[tuple[int, ...], float]:
    coarse, mid, fine = LEVELS
    return {
        (c, m, f): float(pmf(fine, f) * bridge_pmf(fine, mid, m - f) * bridge_pmf(mid, coarse, c - m))
        for c, m, f in product(range(-5, 6), repeat=3)
    }


@cache
def skellam_joint() -> dict[tuple[int, ...], float]:
    steps = VARIANCES[2], VARIANCES[1] - VARIANCES[2], VARIANCES[0] - VARIANCES[1]
    laws = [[sum(skellam.pmf(step, k, 80)) / 2**81 for k in range(19)] for step in steps]
    box = list(product(range(-6, 7), repeat=3))
    return {(c, m, f): laws[0][abs(f)] * laws[1][abs(m - f)] * laws[2][abs(c - m)] for c, m, f in box}


def drawn(family: Any, levels: tuple[Fraction, ...], order: tuple[int, ...], paths: int, name: str) -> Counter[Any]:
    release = MultipleRelease(family, dict.fromkeys(range(paths), 0))
    bits = keyed("order", name, order, paths)
    columns = {i: release.release(levels[i], bits) for i in order}
    return Counter(zip(*(columns[i].values() for i in range(3)), strict=True))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(
    ("family", "levels", "joint"),
    [
        pytest.param(DiscreteLaplace(), LEVELS, laplace_joint, id="discrete Laplace"),
        pytest.param(TwoClocks(), LEVELS, laplace_joint, id="two clocks"),
        pytest.param(agent_share(1), LEVELS, laplace_joint, id="one share"),
        pytest.param(Skellam(), VARIANCES, skellam_joint, id="Skellam"),
    ],
)
def test_t2_three_levels_have_their_joint_law_in_every_order(
    family: Any, levels: Any, joint: Any, order: tuple[int, ...], size: int
) -> None:
    counts = drawn(family, levels, order, 3_000 * size, str(family))

    assert pooled_p_value(counts, joint()) > FALSE_ALARM


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


def test_t2_the_shares_of_three_agents_sum_to_one_clock_path() -> None:
    paths = 3_000
    agents = [MultipleRelease(agent_share(3), dict.fromkeys(range(paths), 0)) for _ in range(3)]
    bits = keyed("agents")
    columns = {}
    for i in (1, 2, 0):  # the middle level first, then finer, then coarser
        shares = [agent.release(LEVELS[i], bits) for agent in agents]
        columns[i] = [sum(share[path] for share in shares) for path in range(paths)]

    assert pooled_p_value(Counter(zip(*(columns[i] for i in range(3)), strict=True)), laplace_joint()) > FALSE_ALARM


# --------------------------------------------------------------------------------------------------- T11: variances
def fourth_moment(law: Sequence[float]) -> float:
    """Of a law that is even, by its probabilities of 0, 1, 2, ..."""
    return 2 * sum(k**4 * p for k, p in enumerate(law))


PARAMETERS = F(19, 20), F(9, 10), F(4, 5), F(13, 20)
EPSILONS = F(1, 20), F(1, 10), F(1, 4), F(1, 2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("family", "levels", "ladder"),
    [
        pytest.param(DiscreteLaplace(), PARAMETERS, PARAMETERS, id="integers"),
        pytest.param(TwoClocks(), PARAMETERS, PARAMETERS, id="clocks"),
        pytest.param(
            TwoSided(EpsilonClock()), EPSILONS, [F(sum(exp_neg(e, 80)), 1 << 81) for e in EPSILONS], id="epsilon clocks"
        ),
    ],
)
def test_t11_levels_and_their_differences_have_their_variances(
    family: Any, levels: Sequence[Fraction], ladder: Sequence[Fraction], size: int
) -> None:
    paths = 4_000 * size
    release = MultipleRelease(family, dict.fromkeys(range(paths), 0))
    bits = keyed("variance", str(family))
    columns = {i: list(release.release(levels[i], bits).values()) for i in (1, 3, 0, 2)}

    for i, a in enumerate(ladder):
        expected = float(variance(a))
        law = [float(pmf(a, k)) for k in range(800)]
        error = sqrt((fourth_moment(law) - expected**2) / paths)
        assert abs(sum(z * z for z in columns[i]) / paths - expected) < 4.5 * error
    for i, (coarse, fine) in enumerate(pairwise(ladder)):
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
        lambda bits, off: int(Skellam().fresh(F(20) * off, bits)),
        lambda: cells(lambda k: skellam.pmf(F(20), k, 80), 25),
        id="Skellam of variance 20",
    ),
    pytest.param(
        lambda bits, off: int(OddRatioLadder(F(30) * off, (1, 3, 15)).fresh(1, bits)),
        lambda: cells(lambda k: discrete_gaussian.pmf(F(30), k, 80), 30),
        id="all marks of a ladder of variance 30",
    ),
    pytest.param(
        lambda bits, off: int(GAUSSIAN.coarsen(GAUSSIAN.fresh(15, bits), 15, 3 if off == 1 else 1, bits)),
        lambda: cells(lambda k: discrete_gaussian.pmf(F(10), k, 80), 30),
        id="a ladder's level from a finer one",
    ),
    pytest.param(
        lambda bits, off: discrete_gaussian_noise(F(30) * off, bits),
        lambda: cells(lambda k: discrete_gaussian.pmf(F(30), k, 80), 30),
        id="discrete Gaussian of variance 30",
    ),
    pytest.param(
        lambda bits, off: PrefixPopcount().fresh(int(400 * off), bits) - int(200 * off),
        lambda: {k: float(PrefixPopcount().pmf(400, k + 200)) for k in range(-60, 61)},
        id="popcount of 400 bits",
    ),
    pytest.param(
        lambda bits, off: DiscreteLaplace().fresh(1 - F(1, 100) / off, bits) // 40,
        lambda: {j: float(sum(pmf(F(99, 100), 40 * j + i) for i in range(40))) for j in range(-8, 8)},
        id="discrete Laplace by inverted clocks",
    ),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("draw", "law"), MARGINALS)
def test_noise_of_realistic_size_has_its_law(draw: Any, law: Any, size: int) -> None:
    bits = keyed("marginal", size)
    counts = Counter(draw(bits, F(1)) for _ in range(2_000 * size))

    assert pooled_p_value(counts, law()) > FALSE_ALARM


@pytest.mark.parametrize(("draw", "law"), MARGINALS)
def test_noise_of_twice_the_variance_is_rejected(draw: Any, law: Any) -> None:
    bits = keyed("mutant")
    counts = Counter(draw(bits, F(2)) for _ in range(2_000))

    assert pooled_p_value(counts, law()) < FALSE_ALARM


# ------------------------------------------------------------------------------------------------ T9: sparse and dense
RATES = F(9, 10), F(4, 5), F(3, 5)  # coarse to fine
THRESHOLDS = 20, 9, 5
BINS = 2_000
Pattern = tuple[bool, ...]


@cache
def dense_patterns() -> tuple[dict[Pattern, float], dict[int, float]]:
    """Of an empty bin, drawn densely: where it is shown, and its fine reading if it is shown there alone."""
    box = range(-70, 110)
    laws = [{z: float(pmf(a, z)) for z in box} for a in RATES]
    bridges = [[float(bridge_pmf(fine, coarse, k)) for k in range(181)] for coarse, fine in pairwise(RATES)]
    states: dict[Pattern, dict[int, float]] = {(): {}}
    states = {(shown,): {z: p for z, p in laws[0].items() if (z >= THRESHOLDS[0]) is shown} for shown in (False, True)}
    for i, bridge in enumerate(bridges, start=1):
        moved: dict[Pattern, dict[int, float]] = {}
        for pattern, weights in states.items():
            share = {z: p / laws[i - 1][z] for z, p in weights.items()}
            for w in box:
                p = laws[i][w] * sum(s * bridge[abs(z - w)] for z, s in share.items())
                moved.setdefault((*pattern, w >= THRESHOLDS[i]), {})[w] = p
        states = moved
    fine_alone = states[(False, False, True)]
    total = sum(fine_alone.values())
    patterns = {pattern: sum(weights.values()) for pattern, weights in states.items() if any(pattern)}
    return patterns, {z: p / total for z, p in fine_alone.items()}


def shown_patterns(readings: list[tuple[int, ...]], bins: int) -> tuple[Counter[Pattern], Counter[int]]:
    patterns = Counter(tuple(y >= t for y, t in zip(row, THRESHOLDS, strict=True)) for row in readings)
    patterns[(False, False, False)] = bins - len(readings)
    return patterns, Counter(row[2] for row in readings if row[0] < THRESHOLDS[0] and row[1] < THRESHOLDS[1])


def by_rounds(order: tuple[int, ...], repetition: int, family: Any) -> list[tuple[int, ...]]:
    sparse = SparseRounds(family, {}, BINS)
    bits = keyed("sparse", order, repetition)
    for i in order:
        sparse.release(RATES[i], THRESHOLDS[i], bits)
    return [tuple(int(path[a]) for a in RATES) for path in sparse.paths.values()]


def by_ladder(order: tuple[int, ...], repetition: int, family: Any) -> list[tuple[int, ...]]:
    ladder = list(zip(RATES, THRESHOLDS, strict=True))
    return list(LadderSparse.close(family, {}, BINS, ladder, keyed("ladder", repetition)).table.values())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("draw", "order"),
    [
        pytest.param(by_rounds, (0, 1, 2), id="gradual"),
        pytest.param(by_rounds, (1, 2, 0), id="shuffled"),
        pytest.param(by_rounds, (2, 1, 0), id="backwards"),
        pytest.param(by_ladder, (), id="ladder"),
    ],
)
@pytest.mark.parametrize("family", [DiscreteLaplace(), TwoClocks()], ids=["integers", "clocks"])
def test_t9_sparse_releases_show_what_dense_ones_would(
    draw: Any, order: tuple[int, ...], size: int, family: Any
) -> None:
    repetitions = 5 * size
    readings = [row for repetition in range(repetitions) for row in draw(order, repetition, family)]
    patterns, values = shown_patterns(readings, repetitions * BINS)
    dense, dense_values = dense_patterns()

    assert pooled_p_value(patterns, dense | {(False, False, False): 1 - sum(dense.values())}) > FALSE_ALARM
    assert pooled_p_value(values, dense_values) > FALSE_ALARM


def test_t9_the_same_check_rejects_candidates_that_are_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: not with probability 1 / c. The kernels keep their own coins."""
    always = SimpleNamespace(**vars(coins) | {"bernoulli": lambda p, bits: True})
    monkeypatch.setattr("stream_dp.lossless.sparse.coins", always)
    repetitions = 5
    readings = [row for repetition in range(repetitions) for row in by_ladder((), repetition, TwoClocks())]
    patterns, _ = shown_patterns(readings, repetitions * BINS)
    dense, _ = dense_patterns()

    assert pooled_p_value(patterns, dense | {(False, False, False): 1 - sum(dense.values())}) < FALSE_ALARM


def test_vector_h07_phantoms_of_a_million_empty_bins() -> None:
    """1657 expected (h02, h07), standard error 41; the tails of every level, each within 4.5 standard errors."""
    ladder = [(F(9, 10), 60), (F(4, 5), 32), (F(3, 5), 15)]
    table = LadderSparse.close(TwoClocks(), {}, 10**6, ladder, keyed("a million")).table

    assert abs(len(table) - 1656.7) < 4.5 * sqrt(1656.7)
    for place, (a, threshold) in enumerate(ladder):
        expected = 10**6 * float(tail(a, threshold))
        assert abs(sum(row[place] >= threshold for row in table.values()) - expected) < 4.5 * sqrt(expected)


# ------------------------------------------------------------------------------------------------------ T7: hidden keys
@pytest.mark.slow
def test_t7_a_million_paths_hide_alike_whatever_the_count() -> None:
    """P(hidden at the coarse level | fine reading) against the bridge's, which knows no count."""
    coarse, fine, threshold = F(1, 2), F(1, 3), 1
    hidden_given = {
        y: float(1 - sum(bridge_pmf(fine, coarse, w) for w in range(threshold - y, 80))) for y in range(-8, 17)
    }
    for count in range(8):
        release = MultipleRelease(TwoClocks(), dict.fromkeys(range(125_000), count))
        bits = keyed("hidden", count)
        coarse_column, fine_column = release.release(coarse, bits), release.release(fine, bits)
        counts = Counter((coarse_column[key] < threshold, y) for key, y in fine_column.items())
        law = {}
        for y, hidden in hidden_given.items():
            law[True, y] = float(pmf(fine, y - count)) * hidden
            law[False, y] = float(pmf(fine, y - count)) * (1 - hidden)
        assert pooled_p_value(counts, law) > FALSE_ALARM
