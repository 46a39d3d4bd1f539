"""Public numbers: what is missed at most, and from which epsilon on the top-k outweighs everything far from it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb, exp, floor, log
from random import Random
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.select.lipschitz import SubsetParameters, Variant
from stream_dp.select.top_k_subset import critical_epsilon, worst_miss
from tests.support import subset_oracle as oracle

HALF = Fraction(1, 2)


def netflix_like() -> list[int]:
    return [floor(120300 * exp(-0.2203 * i**0.385)) for i in range(1, 17771)]


def steps(counts: Sequence[int]) -> list[tuple[int, int]]:
    return [(i + 1, count) for i, count in enumerate(counts) if i == 0 or counts[i - 1] != count]


def by_all_classes(counts: Sequence[int], d: int, p: SubsetParameters) -> float:
    """The definition: the most that a class outside GOOD needs, over all classes."""
    s = [*counts, *[counts[-1]] * (d - len(counts))]
    k, gamma, found = p.k, float(p.gamma), 0.0
    head = s[k] if p.variant is Variant.SIGNED else s[k - 1]
    for h, t in oracle.classes(d, k)[1:]:
        gap = (1 - gamma) * (s[h] - head) + gamma * (s[k - 1] - s[t - 1])
        if (h < -(-k // 100) or t > k + k // 2) and gap > 1e-12:
            found = max(found, log(oracle.class_size(h, t, k)) / gap)
    return found


def test_critical_epsilons_of_the_vectors(subset_vectors: dict[str, Any]) -> None:
    counts = netflix_like()
    rows = [row for row in subset_vectors["eps_crit"]["rows"] if row["dataset"] == "netflix_like" and row["k"] < 1000]
    assert len(rows) == 4
    for row in rows:
        p = SubsetParameters(row["k"], Fraction(1), Fraction(row["gamma"]), Variant(row["variant"]))
        found = critical_epsilon(steps(counts), 17770, p)
        assert float(found) == pytest.approx(float(row["eps_crit"]), rel=1e-6)
        assert found >= row["eps_crit"] * (1 - Fraction("1e-12"))  # rounded up


@pytest.mark.slow
def test_critical_epsilons_of_a_thousand_items(subset_vectors: dict[str, Any]) -> None:
    rows = [row for row in subset_vectors["eps_crit"]["rows"] if row["dataset"] == "netflix_like" and row["k"] == 1000]
    assert len(rows) == 2
    for row in rows:
        p = SubsetParameters(1000, Fraction(1), Fraction(row["gamma"]), Variant(row["variant"]))
        assert float(critical_epsilon(steps(netflix_like()), 17770, p)) == pytest.approx(
            float(row["eps_crit"]), rel=1e-6
        )


def test_steps_are_as_good_as_all_classes() -> None:
    random = Random(10)
    for _ in range(200):
        d = random.randint(2, 40)
        counts = sorted((random.randint(0, random.choice([3, 50])) for _ in range(random.randint(1, d))), reverse=True)
        gamma = random.choice([Fraction(0), HALF, Fraction(3, 4), Fraction(1)])
        variant = random.choice(list(Variant))
        p = SubsetParameters(random.randint(1, d), Fraction(1), gamma, variant)
        expected = 0.0 if p.k == d else by_all_classes(counts, d, p)
        assert float(critical_epsilon(steps(counts), d, p)) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_a_critical_epsilon_grows_with_the_domain_and_a_tie_needs_none() -> None:
    p = SubsetParameters(10, Fraction(1))
    profile = [(1, 1000), (11, 500), (16, 90), (1000, 0)]
    assert 0 < critical_epsilon(profile, 10**6, p) < critical_epsilon(profile, 10**12, p)
    assert critical_epsilon([(1, 7)], 10**6, p) == 0, "any ten are a top ten"


def test_what_is_missed_is_bounded_as_listed(subset_vectors: dict[str, Any]) -> None:
    for row in subset_vectors["theory_numbers"]:
        p = SubsetParameters(row["k"], Fraction(3, 2))
        miss = worst_miss(row["d"], p, Fraction(row["alpha"]))
        assert float(miss * p.epsilon) == pytest.approx(float(row["E_canonical_exact_binom"]), rel=1e-12)
        assert log(comb(row["d"], row["k"])) < row["E_canonical_thm5.6"]


@pytest.mark.parametrize("variant", list(Variant))
def test_more_is_missed_no_more_often_than_stated(subset_vectors: dict[str, Any], variant: Variant) -> None:
    """The joint bound, and that of Theorem 5.6 for the worst count alone, by enumeration, with both noises."""
    assert len(subset_vectors["theorem_tail_bound"]) == 3
    for row in subset_vectors["theorem_tail_bound"]:
        x, k, gamma, alpha = row["x"], row["k"], Fraction(row["gamma"]), Fraction(row["alpha"])
        for epsilon in (Fraction(row["eps"]), Fraction(5)):
            p = SubsetParameters(k, epsilon, gamma, variant)
            found = oracle.energies(x, k, epsilon, gamma, HALF, signed=variant is Variant.SIGNED)
            miss = worst_miss(len(x), p, alpha)
            for law in (oracle.gumbel_law(found), oracle.exponential_law(found)):
                outside = {y: max(x[i] for i in range(len(x)) if i not in y) for y in law}
                joint = {
                    y: (1 - gamma) * (outside[y] - x[k - 1]) + gamma * (x[k - 1] - min(x[i] for i in y)) for y in law
                }
                assert sum(q for y, q in law.items() if joint[y] > miss) <= alpha
        if variant is Variant.PAPER:
            law = oracle.gumbel_law(oracle.energies(x, k, Fraction(row["eps"]), gamma, HALF, signed=False))
            limit = row["threshold_on_normalised_score_gap"] / 2
            beyond = sum(q for y, q in law.items() if x[k - 1] - min(x[i] for i in y) >= limit)
            assert beyond == pytest.approx(float(row["exact_P_violation"]), rel=1e-9)


@pytest.mark.parametrize(
    ("profile", "d", "path"),
    [
        ([], 9, "profile"),
        ([(2, 5)], 9, "profile"),
        ([(1, 5), (1, 4)], 9, "profile"),
        ([(1, 5), (10, 4)], 9, "profile"),
        ([(1, 5), (3, 6)], 9, "profile"),
        ([(1, 5), (3, -1)], 9, "profile"),
    ],
)
def test_a_profile_that_does_not_fall_is_refused(profile: list[tuple[int, int]], d: int, path: str) -> None:
    with pytest.raises(ParameterError) as raised:
        critical_epsilon(profile, d, SubsetParameters(3, Fraction(1)))
    assert [fault.path for fault in raised.value.faults] == [path]
