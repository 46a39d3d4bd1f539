"""Samples of the shipped selection against its law. Every source of bits is keyed: a test that passes, passes again.

A test was to fail at a chance of fit below 1e-4: of all laws here together a right one would have failed with
probability below 1 in 100 when the keys were chosen. The mutants show what the same samples can tell apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from math import exp, floor, sqrt
from random import Random
from typing import Any

import numpy as np
import pytest

from stream_dp.exact.bits import KeyedBits
from stream_dp.select.lipschitz import Envelope, Layout, ScoreNoise, SubsetParameters, Variant, depth_of, lay_out
from stream_dp.select.top_k_subset import draw
from tests.support import subset_oracle as oracle
from tests.support.chance import pooled_p_value
from tests.support.chosen import spread

HALF = Fraction(1, 2)
SMALLEST = 1e-4
SMALL = ["A_g0.0_p", "A_g0.25_s", "A_g1.0_p", "C_unsorted_input", "I_hard"]


def sample(layout: Layout, p: SubsetParameters, size: int, key: bytes) -> Counter[tuple[int, ...]]:
    """Independent selections from one table, which is laid out once."""
    envelope, bits = Envelope(layout, p), KeyedBits(b"subset", key)
    return Counter(tuple(sorted(draw(layout, envelope, p, bits))) for _ in range(size))


def listed(row: dict[str, Any]) -> dict[tuple[int, ...], float]:
    return {tuple(int(i) for i in y.split(",")): float(q) for y, q in row["subset_prob"].items()}


def rows_of(vectors: dict[str, Any]) -> list[tuple[dict[str, Any], ScoreNoise]]:
    rows = [(row, ScoreNoise.GUMBEL) for row in vectors["em_small"] if row["name"] in SMALL]
    rows += [(row, ScoreNoise(row["noise"])) for row in vectors["noise_small"] if row["noise"] in set(ScoreNoise)]
    assert len(rows) == len(SMALL) + 6
    return rows


def assert_samples_fit(vectors: dict[str, Any], laws: Any, size: int) -> None:
    for index, (row, noise) in enumerate(rows_of(vectors)):
        p = laws.parameters(row, noise)
        found = sample(laws.laid_out(row["x"], 0, p), p, size, b"%d" % index)
        assert found.keys() <= listed(row).keys()
        assert pooled_p_value(found, listed(row)) > SMALLEST, row


def test_samples_with_either_noise_fit_the_listed_laws(subset_vectors: dict[str, Any], subset_laws: Any) -> None:
    assert_samples_fit(subset_vectors, subset_laws, 500)


@pytest.mark.slow
def test_large_samples_with_either_noise_fit_the_listed_laws(subset_vectors: dict[str, Any], subset_laws: Any) -> None:
    assert_samples_fit(subset_vectors, subset_laws, 20_000)


@pytest.mark.parametrize(
    ("width", "depth"), [(HALF, 40), pytest.param(Fraction(4), 40, marks=pytest.mark.slow), (Fraction(1), 1)]
)
@pytest.mark.parametrize("noise", list(ScoreNoise))
def test_samples_fit_whatever_the_blocks(noise: ScoreNoise, width: Fraction, depth: int) -> None:
    counts = [9, 8, 8, 7, 5, 3, 2]
    p = SubsetParameters(3, Fraction(1, 2), noise=noise)
    layout = lay_out(np.array(counts), 0, p, rate=p.rate_in / width, depth=depth)
    found = oracle.energies([Fraction(c) for c in counts], 3, p.epsilon, p.gamma, HALF, signed=True)
    law = oracle.gumbel_law(found) if noise is ScoreNoise.GUMBEL else oracle.exponential_law(found)
    assert pooled_p_value(sample(layout, p, 700, b"%s%d" % (noise.encode(), depth)), law) > SMALLEST


def test_a_sample_with_one_noise_does_not_fit_the_law_of_the_other() -> None:
    found = oracle.energies([Fraction(2), Fraction(0)], 1, Fraction(1), Fraction(1), HALF, signed=True)
    laws = {ScoreNoise.GUMBEL: oracle.gumbel_law(found), ScoreNoise.EXPONENTIAL: oracle.exponential_law(found)}
    for noise in ScoreNoise:
        p = SubsetParameters(1, Fraction(1), Fraction(1), noise=noise)
        layout = lay_out(np.array([2, 0]), 0, p, rate=p.rate_in, depth=depth_of(2, 1))
        drawn = sample(layout, p, 1500, b"power" + noise.encode())
        fits = {law_noise: pooled_p_value(drawn, law) for law_noise, law in laws.items()}
        assert fits.pop(noise) > SMALLEST
        assert max(fits.values()) < SMALLEST


def test_the_papers_own_algorithm_has_the_same_law(subset_vectors: dict[str, Any]) -> None:
    random = Random(11)
    for row, noise in rows_of(subset_vectors):
        arguments = row["k"], float(row["eps"]), float(row["gamma"]), float(row["delta"])
        signed = row["variant"] == "signed"
        drawn = Counter(
            oracle.algorithm_b(row["x"], *arguments, signed=signed, noise=noise.value, random=random)
            for _ in range(2000)
        )
        assert pooled_p_value(drawn, listed(row)) > SMALLEST, row


def test_every_rank_between_is_in_a_class_equally_often() -> None:
    counts = list(range(20, 11, -1))
    p = SubsetParameters(4, Fraction(1, 4))
    layout = lay_out(np.array(counts), 0, p, rate=p.rate_in, depth=depth_of(9, 4))
    cells: dict[tuple[int, int], Counter[int]] = {}
    for y, times in sample(layout, p, 1500, b"members").items():
        cell = oracle.class_of(y, range(9), 4)
        for i in y:
            cells.setdefault(cell, Counter())[i + 1] += times
    (h, t), most = max(cells.items(), key=lambda item: item[1].total() * (item[0][1] - item[0][0] > 4))
    body, members = range(h + 2, t), most.total() // 4
    share = (4 - 1 - h) / len(body)
    assert len(body) > 3
    assert set(most) == {*range(1, h + 1), *body, t}
    for rank in body:
        assert abs(most[rank] - members * share) < 4 * sqrt(members * share * (1 - share))


def shuffled(counts: list[int]) -> Any:
    return np.random.default_rng(12).permutation(np.array(counts, np.int64))


def hyper() -> Any:
    return shuffled([2_000_000 // (i + 999) for i in range(1, 10**6 + 1)])


def netflix_like() -> Any:
    return shuffled([floor(120300 * exp(-0.2203 * i**0.385)) for i in range(1, 17771)])


LARGE: list[tuple[Callable[[], Any], int, str, str, Variant, str]] = [
    (netflix_like, 10, "0.003", "0.5", Variant.PAPER, "large_netflix_like"),
    (netflix_like, 10, "0.003", "0.75", Variant.SIGNED, "large_netflix_like"),
    (netflix_like, 10, "0.003", "1", Variant.PAPER, "large_netflix_like"),
    (hyper, 100, "1", "0.75", Variant.SIGNED, "large_hyper_1e6"),
    (hyper, 100, "1", "0.5", Variant.PAPER, "large_hyper_1e6"),
    (hyper, 100, "1", "1", Variant.PAPER, "large_hyper_1e6"),
]


def assert_large_samples_fit(vectors: dict[str, Any], case: Any, size: int) -> None:
    table, k, epsilon, gamma, variant, key = case
    counts = table()
    p = SubsetParameters(k, Fraction(epsilon), Fraction(gamma), variant)
    layout = lay_out(counts, 0, p, rate=p.rate_in, depth=depth_of(len(counts), k))
    (row,) = (row for row in vectors[key]["rows"] if row["k"] == k and row["eps"] == Fraction(epsilon))
    law = row["paper_g1" if gamma == "1" else f"{variant}_g{gamma}"]
    drawn = sample(layout, p, size, f"{key}{gamma}".encode())
    assert drawn.total() == size
    worst = [int(counts[list(y)].min()) for y, times in drawn.items() for _ in range(times)]
    spread = sqrt(sum((w - sum(worst) / size) ** 2 for w in worst) / size)
    assert abs(sum(worst) / size - float(law["E_tail_score"])) < 4 * spread / sqrt(size) + 1e-9
    if table is netflix_like:  # the other table has ties at the edge: the listed chance is that of one of them
        top, chance = drawn[tuple(sorted(layout.top.tolist()))], float(law["TOP"])
        assert abs(top / size - chance) < 4 * sqrt(chance * (1 - chance) / size)


@pytest.mark.parametrize("case", spread(3, LARGE))
def test_samples_of_large_tables_reach_as_deep_as_listed(subset_vectors: dict[str, Any], case: Any) -> None:
    assert_large_samples_fit(subset_vectors, case, 40 if case[0] is hyper else 4000)


@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE)
def test_large_samples_of_large_tables_reach_as_deep_as_listed(subset_vectors: dict[str, Any], case: Any) -> None:
    assert_large_samples_fit(subset_vectors, case, 3000)


def test_with_exponential_noise_large_tables_give_the_top_k_as_often_as_listed(subset_vectors: dict[str, Any]) -> None:
    counts = netflix_like()
    for row in subset_vectors["exponential_noise_P_top"][2:]:
        p = SubsetParameters(row["k"], row["eps"], row["gamma"], Variant(row["variant"]), ScoreNoise.EXPONENTIAL)
        layout = lay_out(counts, 0, p, rate=p.rate_in, depth=depth_of(len(counts), p.k))
        drawn = sample(layout, p, 500, b"exponential%d" % p.k)
        chance = float(row["P_top_exponential"])
        found = drawn[tuple(sorted(layout.top.tolist()))] / 500
        assert abs(found - chance) < 4 * sqrt(chance * (1 - chance) / 500)


def test_the_oracles_dense_law_is_that_of_the_vectors(subset_vectors: dict[str, Any]) -> None:
    x = np.sort(netflix_like())[::-1] / 0.5
    for row in subset_vectors["large_netflix_like"]["rows"][:3]:
        for name, gamma, signed in (("paper_g0.5", 0.5, False), ("signed_g0.75", 0.75, True)):
            top, tail = oracle.dense(x, row["k"], float(row["eps"]), gamma, signed=signed)
            assert top == pytest.approx(float(row[name]["TOP"]), rel=1e-6)
            assert tail / 2 == pytest.approx(float(row[name]["E_tail_score"]), rel=1e-6)


def test_far_below_the_threshold_the_selection_is_nearly_uniform() -> None:
    counts = [50, 40] + [0] * 28
    p = SubsetParameters(2, Fraction(1, 1000))
    layout = lay_out(np.array(counts), 10**9, p, rate=p.rate_in, depth=depth_of(30 + 10**9, 2))
    assert not any(min(y) < 30 for y in sample(layout, p, 200, b"uniform"))
