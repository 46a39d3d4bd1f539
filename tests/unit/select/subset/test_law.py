"""The exact law of the shipped selection, every cell and every outcome enumerated, against every subset listed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise, permutations
from math import exp, expm1
from random import Random
from typing import Any

import numpy as np
import pytest

from stream_dp.exact.reals import exp_neg
from stream_dp.select.lipschitz import ScoreNoise, SubsetParameters, Variant, lay_out
from stream_dp.select.one_shot import Exact
from tests.support import subset_oracle as oracle

CLOSE = Fraction("1e-12")
NARROW = Fraction(1, 1 << 120)
HALF = Fraction(1, 2)
GAMMAS = [Fraction(0), Fraction(1, 4), HALF, Fraction(3, 4), Fraction(1)]


def expected(counts: Sequence[int], p: SubsetParameters) -> dict[tuple[int, ...], Fraction]:
    """How far every subset scores below the best one, from the definition."""
    return oracle.energies(
        [Fraction(count) for count in counts],
        p.k,
        p.epsilon,
        p.gamma,
        HALF,
        signed=p.variant is Variant.SIGNED,
    )


def assert_exact(found: dict[tuple[int, ...], tuple[Fraction, Fraction]], energies: dict[Any, Fraction]) -> None:
    """Every subset is accepted as often as it weighs, to a hundred and twenty binary places of that."""
    assert found.keys() == energies.keys()
    for y, energy in energies.items():
        precision = 200 + energy.numerator // energy.denominator * 2
        weight = Fraction(exp_neg(energy, precision)[0], 1 << precision)
        low, high = found[y]
        assert low <= weight * (1 + NARROW)
        assert weight <= high * (1 + NARROW)
        assert high - low <= NARROW


def random_table(random: Random) -> tuple[list[int], SubsetParameters]:
    d = random.randint(2, 7)
    counts = [random.choice([random.randint(0, 4), random.randint(0, 60)]) for _ in range(d)]
    p = SubsetParameters(
        random.randint(1, d - 1),
        Fraction(random.choice(["0.05", "0.3", "1", "2.7", "9"])),
        random.choice(GAMMAS),
        random.choice(list(Variant)),
    )
    return counts, p


def test_the_small_laws_of_the_vectors(subset_vectors: dict[str, Any], subset_laws: Any) -> None:
    assert len(subset_vectors["em_small"]) == 22
    for row in subset_vectors["em_small"]:
        # Quarters below zero are moved up to counts, which does not move the law.
        counts, delta = list(row["x"]), row["delta"]
        if row["name"] == "H_negative_scores":
            counts, delta = [4 * x + 16 for x in counts], 4 * delta
        p = subset_laws.parameters(row | {"delta": delta})
        law = subset_laws.law([int(count) for count in counts], 0, p)
        listed = {tuple(int(i) for i in y.split(",")): q for y, q in row["subset_prob"].items()}
        assert law.keys() == listed.keys()
        order = oracle.order_of(row["x"])
        classes = dict.fromkeys(row.get("class_prob", {}), Fraction(0))
        for y, (low, high) in law.items():
            assert low - CLOSE <= Fraction(listed[y]) <= high + CLOSE, (row["name"], y)
            if classes:
                h, t = oracle.class_of(y, order, p.k)
                classes[f"{h},{t}"] += low
        for cell, q in row.get("class_prob", {}).items():
            assert abs(classes[cell] - Fraction(q)) < CLOSE, (row["name"], cell)


def test_random_tables_are_selected_from_exactly_as_defined(subset_laws: Any) -> None:
    random = Random(1)
    for _ in range(60):
        counts, p = random_table(random)
        assert_exact(subset_laws.accepted(subset_laws.laid_out(counts, 0, p), p), expected(counts, p))


@pytest.mark.slow
def test_many_random_tables_are_selected_from_exactly_as_defined(subset_laws: Any) -> None:
    random = Random(2)
    for _ in range(1500):
        counts, p = random_table(random)
        assert_exact(subset_laws.accepted(subset_laws.laid_out(counts, 0, p), p), expected(counts, p))


@pytest.mark.parametrize("width", [HALF, Fraction(1), Fraction(4), Fraction(1000)])
@pytest.mark.parametrize("depth", [0, 1, 3, 100])
def test_the_layout_of_the_blocks_does_not_change_the_law(subset_laws: Any, width: Fraction, depth: int) -> None:
    counts = [31, 30, 27, 26, 26, 25, 22, 3]
    for k, variant in ((1, Variant.PAPER), (3, Variant.SIGNED), (6, Variant.SIGNED)):
        p = SubsetParameters(k, Fraction(1, 3), variant=variant)
        layout = lay_out(np.array(counts, np.int64), 0, p, rate=p.rate_in / width, depth=depth)
        assert_exact(subset_laws.accepted(layout, p), expected(counts, p))


def test_zeros_that_are_not_stored_are_as_likely_as_zeros_that_are(subset_laws: Any) -> None:
    for counts, zeros, k in (([9, 7, 3], 5, 2), ([4], 6, 3), ([], 5, 2), ([5, 0, 2, 0], 4, 1), ([3, 1], 1, 2)):
        for variant in Variant:
            p = SubsetParameters(k, Fraction(1, 2), variant=variant)
            found = subset_laws.accepted(subset_laws.laid_out(counts, zeros, p), p)
            assert_exact(found, expected(counts + [0] * zeros, p))


def test_counts_that_tie_are_as_likely_whichever_is_ranked_first(subset_laws: Any) -> None:
    p = SubsetParameters(2, Fraction(1), HALF)
    law = subset_laws.law([7, 4, 4, 1, 0], 0, p)
    for order in permutations(range(5)):
        moved = subset_laws.law([[7, 4, 4, 1, 0][i] for i in order], 0, p)
        for y, (low, _) in moved.items():
            assert abs(low - law[tuple(sorted(order[i] for i in y))][0]) < NARROW


def test_a_constant_added_to_all_counts_and_a_common_scale_change_nothing(subset_laws: Any) -> None:
    p = SubsetParameters(3, Fraction(6, 5))
    law = subset_laws.law([6, 5, 5, 3, 2, 2], 0, p)
    assert subset_laws.law([10**12 + c for c in (6, 5, 5, 3, 2, 2)], 0, p) == law
    scaled = SubsetParameters(3, Fraction(6, 35))
    assert subset_laws.law([7 * c for c in (6, 5, 5, 3, 2, 2)], 0, scaled) == law


def test_at_epsilon_zero_all_subsets_are_as_likely(subset_laws: Any) -> None:
    law = subset_laws.law([50, 3, 3, 0], 2, SubsetParameters(3, Fraction(0)))
    assert all(low <= Fraction(1, 20) <= high for low, high in law.values())
    assert len(law) == 20


def test_one_item_by_the_worst_count_is_the_softmax(subset_laws: Any) -> None:
    law = subset_laws.law([4, 2, 1], 0, SubsetParameters(1, Fraction(1), Fraction(1)))
    weights = [exp(count) for count in (4, 2, 1)]
    assert [float(law[(i,)][0]) for i in range(3)] == pytest.approx([w / sum(weights) for w in weights], rel=1e-12)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**300), Fraction(10**6)])
def test_the_law_holds_for_the_smallest_and_the_largest_epsilon(subset_laws: Any, epsilon: Fraction) -> None:
    counts, p = [2**61, 2**61 - 1, 5, 1, 1], SubsetParameters(2, epsilon)
    found = subset_laws.accepted(subset_laws.laid_out(counts, 0, p), p)
    assert found.keys() == set(combinations(range(5), 2))
    if epsilon < 1:
        assert all(1 - NARROW <= low <= high <= 1 + NARROW for low, high in found.values())
    else:
        assert [y for y, (_, high) in found.items() if high > NARROW] == [(0, 1)]


def test_signed_finds_the_top_k_at_least_as_often(subset_laws: Any) -> None:
    random = Random(3)
    for _ in range(20):
        counts, p = random_table(random)
        best = tuple(subset_laws.laid_out(counts, 0, p).top.tolist())
        paper, signed = (
            subset_laws.law(counts, 0, SubsetParameters(p.k, p.epsilon, p.gamma, variant))[tuple(sorted(best))]
            for variant in (Variant.PAPER, Variant.SIGNED)
        )
        assert signed[1] >= paper[0]


def test_a_larger_epsilon_finds_the_top_k_at_least_as_often(subset_laws: Any) -> None:
    counts = [9, 7, 5, 4, 4, 1]
    for gamma in GAMMAS:
        shares = [subset_laws.law(counts, 0, SubsetParameters(3, Fraction(e, 4), gamma))[0, 1, 2] for e in range(8)]
        assert all(one[0] <= other[1] for one, other in pairwise(shares))


def test_the_same_epsilon_for_the_worst_count_is_better_spent_at_a_smaller_gamma(subset_laws: Any) -> None:
    """With gamma epsilon held the top-k is at least as likely, and the worst rank stochastically no worse (3.6)."""
    random = Random(4)
    for _ in range(25):
        counts, p = random_table(random)
        small, large = Fraction(1, 2), Fraction(9, 10)
        laws = [
            subset_laws.law(counts, 0, SubsetParameters(p.k, p.epsilon / gamma, gamma, p.variant))
            for gamma in (small, large)
        ]
        order = subset_laws.laid_out(counts, 0, p).top.tolist()
        order += sorted(set(range(len(counts))) - set(order), key=lambda i: -counts[i])
        for t in range(p.k, len(counts) + 1):
            within = [sum(q[0] for y, q in law.items() if max(order.index(i) for i in y) < t) for law in laws]
            assert within[0] >= within[1] - NARROW


def test_a_member_of_a_class_is_uniform_and_the_head_given_the_worst_rank_as_listed(
    subset_vectors: dict[str, Any], subset_laws: Any
) -> None:
    for row in subset_vectors["head_given_tail_gamma1"]:
        k, t = row["k"], row["t"]
        counts = list(range(20, 20 - t - 1, -1))
        law = subset_laws.law(counts, 0, SubsetParameters(k, Fraction(1), Fraction(1)))
        heads = dict.fromkeys(row["pmf_h"], Fraction(0))
        for y, (low, _) in law.items():
            h, worst = oracle.class_of(y, range(t + 1), k)
            if worst == t:
                heads[str(h)] += low
        total = sum(heads.values())
        for h, q in row["pmf_h"].items():
            assert abs(heads[h] / total - Fraction(q)) < CLOSE
    law = subset_laws.law([20, 17, 12, 11, 9, 4, 1], 0, SubsetParameters(3, Fraction(1, 2)))
    for h, t in oracle.classes(7, 3):
        members = [q for y, q in law.items() if oracle.class_of(y, range(7), 3) == (h, t)]
        assert len(members) == (1 if t == 3 else oracle.class_size(h, t, 3))
        assert max(low for low, _ in members) <= min(high for _, high in members)


def test_the_recall_of_a_class_is_as_listed(subset_vectors: dict[str, Any]) -> None:
    for row in subset_vectors["recall_given_class"]:
        k, h, t = row["k"], row["h"], row["t"]
        if t - h - 2 > 16:
            continue
        bodies = list(combinations(range(h + 2, t), k - 1 - h))
        hits = sum(sum(rank <= k for rank in body) for body in bodies)
        assert h + Fraction(hits, len(bodies)) == pytest.approx(k * float(row["recall"]), rel=1e-12)


def test_with_exponential_noise_subsets_succeed_at_the_rates_of_permute_and_flip(subset_laws: Any) -> None:
    random = Random(5)
    for time in (Fraction(0), Fraction(1, 3), Fraction(4)):
        for _ in range(8):
            counts, p = random_table(random)
            energies = expected(counts, p)
            found = subset_laws.rates(subset_laws.laid_out(counts, 0, p), p, Exact(time))
            assert found.keys() == energies.keys()
            for y, energy in energies.items():
                chance = exp(-energy)
                rate = chance * exp(-time) / (1 + chance * expm1(-time))
                low, high = found[y]
                assert high - low < Fraction(1, 1 << 90)
                if y != tuple(sorted(subset_laws.laid_out(counts, 0, p).top.tolist())):
                    assert float(low) == pytest.approx(rate, rel=1e-9, abs=1e-25)


def test_the_law_of_permute_and_flip_is_as_listed(subset_vectors: dict[str, Any]) -> None:
    """Success at these rates, integrated: the law that the race has."""
    rows = [row for row in subset_vectors["noise_small"] if row["noise"] == "exponential"]
    assert len(rows) == 3
    for row in rows:
        found = oracle.exponential_law(
            oracle.energies(
                [Fraction(x) for x in row["x"]],
                row["k"],
                Fraction(row["eps"]),
                Fraction(row["gamma"]),
                Fraction(row["delta"]),
                signed=row["variant"] == "signed",
            )
        )
        for y, q in row["subset_prob"].items():
            assert found[tuple(int(i) for i in y.split(","))] == pytest.approx(float(q), abs=1e-9)
    for row in subset_vectors["exponential_noise_P_top"][:2]:
        energies = oracle.energies(
            [Fraction(x) for x in row["x"]],
            row["k"],
            Fraction(row["eps"]),
            Fraction(row["gamma"]),
            Fraction(row["delta"]),
            signed=row["variant"] == "signed",
        )
        assert oracle.exponential_law(energies)[0, 1, 2] == pytest.approx(float(row["P_top_exponential"]), abs=1e-9)
        assert oracle.gumbel_law(energies)[0, 1, 2] == pytest.approx(float(row["P_top_gumbel"]), abs=1e-12)


def test_losses_are_as_listed(subset_vectors: dict[str, Any]) -> None:
    first, *rest = subset_vectors["loss_examples"]
    y = tuple(i - 1 for i in first["y_items_1based"])
    assert oracle.score(y, first["x"], HALF, signed=False) == Fraction(first["canonical_gamma_half"])
    names = {"paper_gamma_half": (HALF, False), "signed_gamma_half": (HALF, True), "paper_gamma1": (Fraction(1), False)}
    names |= {"paper_gamma0": (Fraction(0), False), "paper_gamma_0.25": (Fraction(1, 4), False)}
    for row in rest:
        for name, (gamma, signed) in names.items():
            if name in row:
                assert oracle.score(tuple(row["y"]), row["x"], gamma, signed=signed) == Fraction(row[name])


def test_every_noise_is_one_of_two() -> None:
    assert set(ScoreNoise) == {"gumbel", "exponential"}
