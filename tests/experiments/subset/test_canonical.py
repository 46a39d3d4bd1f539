from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from experiments.subset import score_sets
from experiments.subset.canonical import (
    PAPER,
    PAPER_TAIL,
    SIGNED,
    Canonical,
    ClassLaw,
    class_law,
    top_with_exponential_noise,
)
from experiments.subset.noises import NOISES
from experiments.subset.profiles import Profile, log_choose
from tests.experiments.subset.small_laws import argmax_law, class_law_under, joint_loss, loss

NAMED = {
    "paper_g0.5": PAPER,
    "paper_g1": PAPER_TAIL,
    "signed_g0.5": Canonical(0.5, signed=True),
    "signed_g0.75": SIGNED,
}
MADE_UP = {
    "large_netflix_like": score_sets.netflix_like,
    "large_hyper_1e6": score_sets.hyperbolic,
    "large_hyper_big_1e6": score_sets.steep_hyperbolic,
}


def mechanism(row: Mapping[str, Any]) -> Canonical:
    return Canonical(row["gamma"], row["variant"] == "signed")


def brute_force(
    scores: Sequence[float], k: int, one: Canonical, epsilon: float, sensitivity: float
) -> dict[Any, float]:
    """The exponential mechanism over all subsets, by the definition of the loss."""
    subsets = list(combinations(range(len(scores)), k))
    exponents = np.array([-epsilon * loss(subset, scores, one) / (2 * sensitivity) for subset in subsets])
    weights = np.exp(exponents - exponents.max())
    return dict(zip(subsets, (weights / weights.sum()).tolist(), strict=True))


def by_class(law: Mapping[Any, float], scores: Sequence[float], k: int) -> dict[tuple[int, int], float]:
    """Added up by leading ranks held and worst rank, in one fixed order of ties."""
    ranked = sorted(range(len(scores)), key=lambda item: -scores[item])
    rank = {item: place + 1 for place, item in enumerate(ranked)}
    classes: dict[tuple[int, int], float] = {}
    for subset, chance in law.items():
        ranks = {rank[item] for item in subset}
        held = next(place for place in range(k + 1) if place + 1 not in ranks)
        key = (min(held, k - 1), max(ranks))
        classes[key] = classes.get(key, 0) + chance
    return classes


def chance(law: ClassLaw, held: int, worst: int) -> float:
    k = law.profile.k
    return law.top if worst == k else float(law.cells[held, worst - k - 1])


def test_class_probabilities_are_the_known_ones(subset_vectors: Mapping[str, Any]) -> None:
    for row in subset_vectors["em_small"]:
        law = class_law(Profile.of(row["x"], row["k"], merged=False), mechanism(row), row["eps"], row["delta"])
        for key, probability in row["class_prob"].items():
            assert chance(law, *map(int, key.split(","))) == pytest.approx(probability, abs=1e-12), row["name"]


def test_class_probabilities_are_sums_over_all_subsets() -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        domain = int(rng.integers(2, 9))
        k = int(rng.integers(1, domain))
        scores = [float(score) for score in rng.integers(-3, 6, domain)]
        one = Canonical(float(rng.choice([0, 0.25, 0.5, 0.75, 1])), signed=bool(rng.integers(2)))
        epsilon = float(rng.choice([0, 0.3, 1, 4]))
        expected = by_class(brute_force(scores, k, one, epsilon, 0.5), scores, k)
        law = class_law(Profile.of(scores, k, merged=False), one, epsilon)

        found = {key: chance(law, *key) for key in expected}
        assert found == pytest.approx(expected, abs=1e-12)
        assert law.top + law.cells.sum() == pytest.approx(1, abs=1e-12)


def test_runs_of_equal_scores_say_the_same_as_their_ranks_one_by_one() -> None:
    rng = np.random.default_rng(6)
    for k in (1, 4, 30):
        scores = rng.integers(0, 12, 80)
        for one in NAMED.values():
            merged, single = (class_law(Profile.of(scores, k, merged=flag), one, 1.5) for flag in (True, False))
            assert merged.cells.shape[1] < single.cells.shape[1]
            for what in ("top", "great", "good", "worst_score", "recall"):
                assert getattr(merged, what) == pytest.approx(getattr(single, what), rel=1e-9), what


def test_great_and_good_are_what_they_say() -> None:
    scores, k = list(range(14, 0, -1)), 10
    law = class_law(Profile.of(scores, k), SIGNED, 1.0)
    subsets = brute_force(scores, k, SIGNED, 1.0, 0.5)

    great = sum(chance for subset, chance in subsets.items() if 0 in subset and max(subset) < 11)
    good = sum(chance for subset, chance in subsets.items() if 0 in subset and max(subset) < 15)
    assert (law.great, law.good) == pytest.approx((great, good), rel=1e-12)
    assert law.worst_score == pytest.approx(sum(chance * scores[max(subset)] for subset, chance in subsets.items()))
    held = sum(chance * len(set(subset) & set(range(k))) / k for subset, chance in subsets.items())
    assert law.recall == pytest.approx(held, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE_UP)
def test_large_tables_have_the_known_probabilities(name: str, subset_vectors: Mapping[str, Any]) -> None:
    scores = MADE_UP[name]()
    profiles: dict[int, Profile] = {}
    for row in subset_vectors[name]["rows"]:
        profile = profiles.setdefault(row["k"], Profile.of(scores, row["k"]))
        for label in row.keys() & NAMED.keys():
            law, known = class_law(profile, NAMED[label], row["eps"]), row[label]
            found = (law.top, law.great, law.good, law.worst_score, float(law.cells[0].sum()))
            expected = [known[what] for what in ("TOP", "GREAT", "GOOD", "E_tail_score", "P_h0")]
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-300), (row["k"], row["eps"], label)


def test_zipf_scores_have_the_known_probabilities(subset_vectors: Mapping[str, Any]) -> None:
    rows = [row for row in subset_vectors["zipf_d1e4_eps1"]["rows"] if row["k"] < 1000]

    assert len(rows) == 18
    for row in rows:
        profile = Profile.of(score_sets.zipfian(row["s"]), row["k"])
        for label in row.keys() & NAMED.keys():
            law = class_law(profile, NAMED[label], row["eps"])
            expected = [row[label][what] for what in ("TOP", "GREAT", "GOOD")]
            assert (law.top, law.great, law.good) == pytest.approx(expected, rel=1e-6, abs=1e-9), (row["s"], row["k"])


def test_every_noise_has_its_known_law_over_subsets(subset_vectors: Mapping[str, Any]) -> None:
    for row in subset_vectors["noise_small"]:
        subsets = {tuple(map(int, key.split(","))): chance for key, chance in row["subset_prob"].items()}
        utilities = [-row["eps"] * loss(subset, row["x"], mechanism(row)) / (2 * row["delta"]) for subset in subsets]
        found = argmax_law(utilities, NOISES[row["noise"]])
        assert found == pytest.approx(list(subsets.values()), abs=1e-8)

        top, cells = class_law_under(
            Profile.of(row["x"], row["k"], merged=False), mechanism(row), NOISES[row["noise"]], row["eps"], row["delta"]
        )
        classes = by_class(subsets, row["x"], row["k"])
        k = row["k"]
        for (held, worst), expected in classes.items():
            assert (top if worst == k else cells[held, worst - k - 1]) == pytest.approx(expected, abs=1e-8)


def test_exponential_noise_has_the_known_chance_of_the_top_k(subset_vectors: Mapping[str, Any]) -> None:
    for row in subset_vectors["exponential_noise_P_top"]:
        scores: ArrayLike = score_sets.netflix_like() if row["x"] == "netflix_like" else row["x"]
        profile = Profile.of(scores, row["k"])
        found = top_with_exponential_noise(profile, mechanism(row), row["eps"], row["delta"])
        assert found == pytest.approx(row["P_top_exponential"], rel=1e-9)
        assert class_law(profile, mechanism(row), row["eps"], row["delta"]).top == pytest.approx(row["P_top_gumbel"])


def test_exponential_noise_is_wider_in_range_than_epsilon_and_gumbel_noise_is_not(
    subset_vectors: Mapping[str, Any],
) -> None:
    row = subset_vectors["bounded_range"]
    ranges = {}
    for name in ("exponential", "gumbel"):
        laws = [argmax_law(np.array(row[key]) / 2, NOISES[name]) for key in ("x", "x_neighbour")]
        ratios = np.log(laws[1] / laws[0])
        ranges[name] = float(ratios.max() - ratios.min())
    assert ranges["exponential"] == pytest.approx(row["exponential_noise"]["range"], rel=1e-9)
    assert ranges["gumbel"] == pytest.approx(1.0, rel=1e-9)


def test_losses_are_those_of_the_examples(subset_vectors: Mapping[str, Any]) -> None:
    first, top, mixed, last = subset_vectors["loss_examples"]
    members = [item - 1 for item in first["y_items_1based"]]
    signed = Canonical(0.5, signed=True)

    assert loss(members, first["x"], PAPER) == first["canonical_gamma_half"]
    assert joint_loss(members, first["x"]) == first["joint"]
    assert (loss(top["y"], top["x"], PAPER), loss(top["y"], top["x"], signed)) == (0.0, -1.5)
    assert (loss(mixed["y"], mixed["x"], PAPER), loss(mixed["y"], mixed["x"], signed)) == (1.5, 1.5)
    assert loss(mixed["y"], mixed["x"], PAPER_TAIL) == mixed["paper_gamma1"]
    assert loss(mixed["y"], mixed["x"], Canonical(0.0, signed=False)) == mixed["paper_gamma0"]
    assert loss(last["y"], last["x"], PAPER) == last["paper_gamma_half"]
    assert loss(last["y"], last["x"], Canonical(0.25, signed=False)) == last["paper_gamma_0.25"]


def test_the_joint_loss_is_never_above_the_canonical_one() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        scores = [float(score) for score in rng.integers(0, 20, 7)]
        for subset in combinations(range(7), 3):
            assert joint_loss(subset, scores) <= loss(subset, scores, PAPER)


def test_recall_of_a_class_is_the_known_one(subset_vectors: Mapping[str, Any]) -> None:
    for row in subset_vectors["recall_given_class"]:
        profile = Profile.of(np.arange(row["t"] + 5)[::-1], row["k"], merged=False)
        cells = np.zeros(profile.log_sizes.shape)
        cells[row["h"], row["t"] - row["k"] - 1] = 1
        assert ClassLaw(profile, 0.0, cells).recall == pytest.approx(row["recall"], rel=1e-12)


def test_binomials_are_the_known_ones(subset_vectors: Mapping[str, Any]) -> None:
    for row in subset_vectors["log_binom"]:
        if row["r"] <= 100_000:
            assert log_choose(row["n"], row["r"]) == pytest.approx(row["log"], rel=1e-12)


def random_profile(rng: np.random.Generator) -> Profile:
    domain = int(rng.integers(3, 25))
    return Profile.of(rng.integers(0, 12, domain), int(rng.integers(1, domain)))


def test_a_larger_epsilon_makes_the_top_k_likelier() -> None:
    rng = np.random.default_rng(8)
    for _ in range(100):
        profile = random_profile(rng)
        for one in NAMED.values():
            chances = [class_law(profile, one, epsilon).top for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0, 10.0)]
            assert all(later >= earlier - 1e-14 for earlier, later in pairwise(chances))


def test_the_signed_loss_makes_the_top_k_likelier_than_the_printed_one() -> None:
    rng = np.random.default_rng(9)
    for _ in range(200):
        profile = random_profile(rng)
        gamma, epsilon = float(rng.uniform(0, 1)), float(rng.uniform(0, 5))
        printed, signed = (class_law(profile, Canonical(gamma, signed=flag), epsilon).top for flag in (False, True))
        assert signed >= printed - 1e-14


def test_a_smaller_gamma_with_as_much_for_the_tail_is_better_at_both_ends() -> None:
    rng = np.random.default_rng(10)
    for _ in range(200):
        domain = int(rng.integers(3, 25))
        profile = Profile.of(rng.integers(0, 12, domain), int(rng.integers(1, domain)), merged=False)
        large = float(rng.uniform(0.2, 1))
        small, epsilon = float(rng.uniform(0.05, large)), float(rng.uniform(0, 4))
        better = class_law(profile, Canonical(small, signed=False), epsilon * large / small)
        worse = class_law(profile, Canonical(large, signed=False), epsilon)

        assert better.top >= worse.top - 1e-12
        within = [law.top + np.cumsum(law.cells.sum(axis=0)) for law in (better, worse)]
        assert (within[0] >= within[1] - 1e-12).all()


def test_shifted_scores_and_rescaled_ones_have_the_same_law() -> None:
    scores = [7, 5, 5, 3, 2, 0]
    for one, shift in product(NAMED.values(), (-4, 10**6)):
        law = class_law(Profile.of(scores, 2), one, 1.0)
        shifted = class_law(Profile.of([score + shift for score in scores], 2), one, 1.0)
        rescaled = class_law(Profile.of([3 * score for score in scores], 2), one, 1.0, 1.5)
        assert shifted.cells == pytest.approx(law.cells, rel=1e-12)
        assert rescaled.cells == pytest.approx(law.cells, rel=1e-12)
