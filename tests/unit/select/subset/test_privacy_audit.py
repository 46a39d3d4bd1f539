"""Neighbouring tables, every subset of both: what one user moves stays within epsilon, and mutants do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product
from math import log
from random import Random
from typing import Any

import pytest

from stream_dp.select.lipschitz import ScoreNoise, SubsetParameters, Variant
from tests.support import subset_oracle as oracle

HALF = Fraction(1, 2)
GAMMAS = (Fraction(0), Fraction(1, 4), HALF, Fraction(3, 4), Fraction(1))
ROUNDING = 1e-9


def shipped(subset_laws: Any, counts: Sequence[int], p: SubsetParameters) -> oracle.Law:
    """The enumerated law of the shipped code, as numbers."""
    return {y: float(low) for y, (low, _) in subset_laws.law(list(counts), 0, p).items()}


def permuted_and_flipped(counts: Sequence[int], p: SubsetParameters) -> oracle.Law:
    """With exponential noise: the law that the enumerated rates integrate to."""
    signed = p.variant is Variant.SIGNED
    x = [Fraction(count) for count in counts]
    return oracle.exponential_law(oracle.energies(x, p.k, p.epsilon, p.gamma, Fraction(1, 2), signed=signed))


def test_neighbours_of_the_vectors_are_as_far_apart_as_listed(subset_vectors: dict[str, Any], subset_laws: Any) -> None:
    for row in subset_vectors["dp_audit"]:
        p = subset_laws.parameters(row)
        apart = oracle.farthest(*(shipped(subset_laws, row[x], p) for x in ("x", "x_neighbour")))
        assert apart == pytest.approx(float(row["max_abs_log_ratio"]), rel=1e-9)
        wrong = "WRONG" in row["name"]
        assert (apart > row["eps"] + ROUNDING) == wrong
        if "tight" in row["name"]:
            assert apart >= Fraction("0.99") * row["eps"]
        if not wrong:
            apart = oracle.farthest(*(permuted_and_flipped(row[x], p) for x in ("x", "x_neighbour")))
            assert apart <= row["eps"] + ROUNDING


def test_the_printed_algorithm_is_flagged_and_the_shipped_one_is_not(
    subset_vectors: dict[str, Any], subset_laws: Any
) -> None:
    binomials, top = subset_vectors["mutants"]
    for row in (binomials, top):
        x, beside = row["x"], row["x_neighbour"]
        k, epsilon, gamma, delta = row["k"], float(row["eps"]), float(row["gamma"]), float(row["delta"])
        if row is binomials:
            wrong = oracle.farthest(*(oracle.printed_binomials(c, k, epsilon, gamma, delta) for c in (x, beside)))
        else:
            wrong = oracle.farthest(*(oracle.unscaled_top(c, k, epsilon, delta) for c in (x, beside)))
        assert wrong == pytest.approx(float(row["mutant_max_abs_log_ratio"]), rel=1e-9)
        assert wrong > epsilon
        p = subset_laws.parameters(row | {"variant": "paper"})
        laws = [shipped(subset_laws, c, p) for c in (x, beside)]
        for law, c in zip(laws, (x, beside), strict=True):
            counted = oracle.counted_binomials(c, k, epsilon, gamma, delta)
            assert all(law[y] == pytest.approx(counted[y], rel=1e-9) for y in law)
        assert oracle.farthest(*laws) == pytest.approx(float(row["correct_max_abs_log_ratio"]), rel=1e-9)


def test_random_neighbours_are_within_epsilon_with_both_noises(subset_laws: Any) -> None:
    random = Random(9)
    largest = 0.0
    for _ in range(150):
        counts = [random.randint(0, 9) for _ in range(5)]
        more = [count + random.randint(0, 1) for count in counts]
        epsilon = Fraction(random.choice(["0.2", "1", "3"]))
        p = SubsetParameters(random.randint(1, 4), epsilon, random.choice(GAMMAS), random.choice(list(Variant)))
        apart = oracle.farthest(shipped(subset_laws, counts, p), shipped(subset_laws, more, p))
        assert apart <= epsilon + ROUNDING, (counts, more, p)
        largest = max(largest, apart / epsilon)
        apart = oracle.farthest(permuted_and_flipped(counts, p), permuted_and_flipped(more, p))
        assert apart <= epsilon + ROUNDING, (counts, more, p)
    assert largest > 0.9  # the audit comes near the bound


@pytest.mark.slow
def test_all_neighbours_of_all_tables_of_five_counts_up_to_five_are_within_epsilon(subset_laws: Any) -> None:
    """Any table is one of these, sorted: the law moves with the order of the counts."""
    largest: dict[Variant, float] = {}
    for gamma, variant in product(GAMMAS, Variant):
        p = SubsetParameters(2, Fraction(1), gamma, variant)

        @cache
        def law(counts: tuple[int, ...], p: SubsetParameters = p) -> Mapping[tuple[int, ...], float]:
            order = sorted(range(5), key=lambda i: -counts[i])
            ranked = sorted_law(tuple(counts[i] for i in order), p)
            return {tuple(sorted(order[rank] for rank in y)): q for y, q in ranked.items()}

        @cache
        def sorted_law(counts: tuple[int, ...], p: SubsetParameters) -> oracle.Law:
            return shipped(subset_laws, counts, p)

        for counts in combinations_with_replacement(range(5, -1, -1), 5):
            for moves in product((0, 1), repeat=5):
                more = tuple(count + move for count, move in zip(counts, moves, strict=True))
                one, other = law(counts), law(more)
                apart = max(abs(log(one[y] / other[y])) for y in one)
                assert apart <= 1 + ROUNDING, (counts, more, p)
                largest[variant] = max(largest.get(variant, 0), apart)
    assert largest[Variant.SIGNED] > 0.97
    assert largest[Variant.PAPER] > 0.97


def test_exponential_noise_has_no_bounded_range_and_gumbel_noise_has(subset_vectors: dict[str, Any]) -> None:
    row = subset_vectors["bounded_range"]
    for noise, law in ((ScoreNoise.EXPONENTIAL, oracle.exponential_law), (ScoreNoise.GUMBEL, oracle.gumbel_law)):
        one, other = (
            law(oracle.energies(row[x], 1, Fraction(1), Fraction(1), Fraction(1), signed=True))
            for x in ("x", "x_neighbour")
        )
        ratios = [log(one[y] / other[y]) for y in one]
        spread = max(ratios) - min(ratios)
        assert spread == pytest.approx(float(row[f"{noise}{'_noise' if noise == 'exponential' else ''}"]["range"]))
        assert (spread > 1 + ROUNDING) == (noise is ScoreNoise.EXPONENTIAL)
