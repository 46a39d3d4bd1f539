from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from experiments.subset import one_shot
from experiments.subset.noises import EXPONENTIAL, GUMBEL, NOISES, Noise
from experiments.subset.profiles import Profile

every_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=list(NOISES))


def keyed(law: Mapping[tuple[int, int], float] | Mapping[tuple[int, ...], float]) -> dict[str, float]:
    return {",".join(map(str, winners)): chance for winners, chance in law.items()}


def test_winners_have_the_known_laws(subset_vectors: Mapping[str, Any]) -> None:
    rows = subset_vectors["oneshot"]

    assert {row["noise"] for row in rows} == set(NOISES)
    for row in rows:
        given = row["x"], NOISES[row["noise"]], row["eps"], row["delta"]
        found = one_shot.set_law(given[0], row["kappa"], *given[1:])
        assert keyed(found) == pytest.approx(row["set_prob"], abs=1e-8)
        assert keyed(one_shot.ordered_pair_law(*given)) == pytest.approx(row["ordered_prob"], abs=1e-8)


def test_gumbel_noise_once_is_peeling_in_its_order(subset_vectors: Mapping[str, Any]) -> None:
    row = subset_vectors["peeling_plackett_luce"]
    peeled = one_shot.peeling_law(row["x"], row["k"], row["eps"], row["delta"])

    assert keyed(peeled) == pytest.approx(row["ordered_prob"], abs=1e-12)
    assert one_shot.ordered_pair_law(row["x"], GUMBEL, row["eps"], row["delta"]) == pytest.approx(peeled, abs=1e-8)


@every_noise
def test_the_chance_of_the_exact_top_k_is_that_of_its_set(noise: Noise) -> None:
    rng = np.random.default_rng(3)
    for _ in range(12):
        scores = sorted((int(score) for score in rng.integers(0, 9, 6)), reverse=True)
        k, epsilon = int(rng.integers(1, 5)), float(rng.uniform(0.1, 8))
        expected = one_shot.set_law(scores, k, noise, epsilon)[tuple(range(k))]
        assert one_shot.top(Profile.of(scores, k), noise, epsilon) == pytest.approx(expected, rel=1e-8)


def test_budgets_for_every_noise_are_in_the_known_order_on_a_large_table() -> None:
    profile = Profile.of(120_000 / np.arange(1, 5001) ** 0.5, 20)
    chances = [one_shot.top(profile, noise, 0.08) for noise in NOISES.values()]

    assert chances == sorted(chances, reverse=True)
    assert 0.05 < chances[-1] < chances[0] < 0.97


@pytest.mark.parametrize("noise", [EXPONENTIAL, GUMBEL], ids=["exponential", "gumbel"])
def test_simulated_selections_are_great_and_good_as_often_as_by_the_law(noise: Noise) -> None:
    scores, k, epsilon, runs = [9, 8, 7, 6, 4, 3, 3, 3, 2, 2, 2], 4, 3.0, 40_000
    law = one_shot.set_law(scores, k, noise, epsilon)
    # A tenth of 4 ranks up is 1, down 0; half of them is 2.
    great = sum(chance for winners, chance in law.items() if 0 in winners and max(winners) < 4)
    good = sum(chance for winners, chance in law.items() if 0 in winners and max(winners) < 6)

    profile = Profile.of(scores, k)
    found = one_shot.simulate(profile, noise, [epsilon, 1000.0], runs, np.random.default_rng(4))
    assert len(profile.scores) < len(scores) - k
    for expected, share in ((great, found.great), (good, found.good)):
        assert 0.02 < expected < 0.9
        # Five standard errors: a false alarm in two million.
        assert abs(share[0] - expected) < 5 * (expected * (1 - expected) / runs) ** 0.5
        assert share[1] == 1.0
