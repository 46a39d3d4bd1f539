from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from experiments.subset import score_sets, theory
from experiments.subset.canonical import Canonical, class_law
from experiments.subset.profiles import Profile
from experiments.subset.solving import epsilon_at


def test_the_numbers_of_the_theorems_are_the_known_ones(subset_vectors: Mapping[str, Any]) -> None:
    for row in subset_vectors["theory_numbers"]:
        d, k, alpha = row["d"], row["k"], row["alpha"]
        found = {
            "E_canonical_thm5.6": theory.canonical_error_printed(d, k, alpha),
            "E_canonical_exact_binom": theory.canonical_error(d, k, alpha),
            "E_peeling_thm5.6": theory.peeling_error_printed(d, k, alpha),
            "E_peeling_exact_sidak": theory.peeling_error(d, k, alpha),
            "EX_canonical_gamma1_lemma5.3": theory.canonical_leap(d, k, 1.0),
            "EX_peeling_lemma5.4": theory.peeling_leap(d, k),
        }
        found["ratio_thm5.6"] = found["E_peeling_thm5.6"] / found["E_canonical_thm5.6"]
        found["ratio_thm5.5"] = found["EX_peeling_lemma5.4"] / found["EX_canonical_gamma1_lemma5.3"]
        assert found == pytest.approx({name: row[name] for name in found}, rel=1e-9)


def test_a_tail_below_the_bound_is_as_rare_as_promised(subset_vectors: Mapping[str, Any]) -> None:
    for row in subset_vectors["theorem_tail_bound"]:
        profile = Profile.of(row["x"], row["k"])
        bound = 2 / (row["gamma"] * row["eps"]) * theory.canonical_error(len(row["x"]), row["k"], row["alpha"])
        assert bound == pytest.approx(row["threshold_on_normalised_score_gap"], rel=1e-12)

        law = class_law(profile, Canonical(row["gamma"], signed=False), row["eps"], row["delta"])
        below = (profile.best[-1] - profile.scores) / row["delta"] >= bound
        missed = float(law.cells[:, below].sum())
        assert missed == pytest.approx(row["exact_P_violation"], rel=1e-9)
        assert missed <= row["alpha"]


@pytest.mark.parametrize("gamma", [0.25, 0.5, 0.75, 1.0])
def test_a_shortfall_beyond_the_joint_bound_is_as_rare_as_promised(gamma: float) -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        domain = int(rng.integers(4, 30))
        profile = Profile.of(rng.integers(0, 30, domain), int(rng.integers(1, domain)))
        epsilon, alpha = float(rng.uniform(0.2, 4)), 0.05
        bound = 2 * 0.5 / epsilon * theory.canonical_error(domain, profile.k, alpha)
        law = class_law(profile, Canonical(gamma, signed=False), epsilon)
        assert law.cells[theory.joint_shortfall(profile, gamma) > bound].sum() <= alpha


def test_the_critical_epsilon_is_the_known_one(subset_vectors: Mapping[str, Any]) -> None:
    rows = [row for row in subset_vectors["eps_crit"]["rows"] if row["dataset"] == "netflix_like"]

    assert len(rows) == 6
    for row in rows:
        profile = Profile.of(score_sets.netflix_like(), row["k"])
        epsilon, place = theory.critical_epsilon(profile, Canonical(row["gamma"], row["variant"] == "signed"))
        assert epsilon == pytest.approx(row["eps_crit"], rel=1e-3)
        assert list(place) == row["argmax_h_t"]


def test_below_the_critical_epsilon_a_selection_is_as_good_as_random_and_above_it_good() -> None:
    profile, one = Profile.of(score_sets.netflix_like(), 100), Canonical(0.75, signed=True)
    critical, _ = theory.critical_epsilon(profile, one)

    below, above = (class_law(profile, one, factor * critical) for factor in (0.8, 1.3))
    assert below.good < 1e-6
    assert below.recall < 0.1
    assert above.good > 1 - 1e-6


@pytest.mark.parametrize("target", [1e-9, 0.5, 0.999])
def test_the_epsilon_of_a_probability_gives_it_back(target: float) -> None:
    def probability(epsilon: float) -> float:
        return 1 - float(np.exp(-(epsilon**3) / 7))

    for guess in (1e-6, 1.0, 1e4):
        found = epsilon_at(target, probability, guess)
        assert found is not None
        assert probability(found) == pytest.approx(target, rel=1e-5)


def test_a_probability_that_is_never_reached_has_no_epsilon() -> None:
    assert epsilon_at(0.999, lambda epsilon: epsilon / (2 * epsilon + 1), 1.0) is None


def test_the_critical_epsilon_is_the_largest_ratio_of_any_class_that_is_not_good() -> None:
    rng = np.random.default_rng(12)
    for _ in range(60):
        domain, gamma, signed = int(rng.integers(30, 45)), float(rng.choice([0.5, 0.75, 1])), bool(rng.integers(2))
        k = int(rng.integers(8, 15))
        scores = np.sort(rng.integers(0, 60, domain).astype(float))[::-1]
        head = scores[k] if signed else scores[k - 1]
        worst = 0.0
        for held in range(k):
            for last in range(k + 1, domain + 1):
                is_good = held >= -(-k // 100) and last <= k + k // 2
                gap = (1 - gamma) * (scores[held] - head) + gamma * (scores[k - 1] - scores[last - 1])
                if not is_good and gap > 0:
                    worst = max(worst, math.log(math.comb(last - held - 2, k - 1 - held)) / gap)

        found, _ = theory.critical_epsilon(Profile.of(scores, k), Canonical(gamma, signed), 0.5)
        assert found == pytest.approx(worst, rel=1e-9)
