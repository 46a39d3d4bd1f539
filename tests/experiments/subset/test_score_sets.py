from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.subset import one_shot, score_sets
from experiments.subset.canonical import PAPER, PAPER_TAIL, SIGNED, Canonical, class_law
from experiments.subset.noises import EXPONENTIAL, GUMBEL
from experiments.subset.profiles import Profile
from experiments.subset.solving import epsilon_at
from experiments.subset.theory import critical_epsilon
from stream_dp.errors import ConfigError


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (score_sets.netflix_like, "large_netflix_like"),
        (score_sets.hyperbolic, "large_hyper_1e6"),
        (score_sets.steep_hyperbolic, "large_hyper_big_1e6"),
    ],
)
def test_made_up_tables_are_the_known_ones_bit_by_bit(made: Any, name: str, subset_vectors: Mapping[str, Any]) -> None:
    counts = made()

    assert (
        sha256(counts.astype("<i8").tobytes()).hexdigest()
        == (subset_vectors[name]["describe"]["sha256_int64_le_desc_order"])
    )
    assert int(counts.sum()) == subset_vectors[name]["describe"]["sum"]


def test_zipf_scores_add_up_and_fall() -> None:
    scores = score_sets.zipfian()

    assert scores.sum() == pytest.approx(15**7)
    assert (np.diff(scores) < 0).all()
    assert np.ptp(score_sets.zipfian(0.0)) == 0


def test_a_missing_table_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"HEPTH\.n4096\.npy: No such file .*github\.com/shekelyan/dptopk"):
        score_sets.published(tmp_path, "hepth")


def test_another_table_under_the_name_of_a_published_one_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "HEPTH.n4096.npy", np.ones(4096))

    with pytest.raises(ConfigError, match="not the authors' file"):
        score_sets.published(tmp_path, "hepth")


def test_the_digests_of_published_tables_are_the_known_ones(subset_vectors: Mapping[str, Any]) -> None:
    assert dict(score_sets.PUBLISHED.values()) == subset_vectors["real_data"]["sha256_npy"]


@pytest.fixture
def tables() -> Path:
    """The folder of the authors' tables, if STREAM_DP_TABLES names one."""
    folder = os.environ.get("STREAM_DP_TABLES")
    if folder is None:
        pytest.skip("no published tables: STREAM_DP_TABLES names no folder")
    return Path(folder)


STEMS = {stem: name for name, (stem, _) in score_sets.PUBLISHED.items()}


def test_published_tables_have_the_known_probabilities(tables: Path, subset_vectors: Mapping[str, Any]) -> None:
    named = {"paper_g0.5": PAPER, "paper_g1": PAPER_TAIL, "signed_g0.75": SIGNED}
    for row in subset_vectors["real_data"]["probabilities"]:
        profile = Profile.of(score_sets.published(tables, STEMS[row["dataset"]]), row["k"])
        for label in row.keys() & named.keys():
            law = class_law(profile, named[label], row["eps"])
            expected = [row[label][what] for what in ("TOP", "GREAT", "GOOD")]
            assert (law.top, law.great, law.good) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.slow
def test_published_tables_need_the_known_budgets(tables: Path, subset_vectors: Mapping[str, Any]) -> None:
    for row in subset_vectors["real_data"]["rows"]:
        profile = Profile.of(score_sets.published(tables, STEMS[row["dataset"]]), row["k"])
        chances = {
            "canonical_g0.5": (lambda e, p=profile: class_law(p, PAPER, e).top, 1e-3),
            "canonical_g1": (lambda e, p=profile: class_law(p, PAPER_TAIL, e).top, 1e-3),
            "signed_g0.5": (lambda e, p=profile: class_law(p, Canonical(0.5, signed=True), e).top, 1e-3),
            "peeling_gumbel": (lambda e, p=profile: one_shot.top(p, GUMBEL, e), 2e-3),
            "oneshot_exp": (lambda e, p=profile: one_shot.top(p, EXPONENTIAL, e), 2e-3),
        }
        for label, known in row["eps_for_TOP"].items():
            chance, tolerance = chances[label]
            for target, epsilon in known.items():
                assert epsilon_at(float(target), chance, epsilon) == pytest.approx(epsilon, rel=tolerance)


def test_published_tables_collapse_at_the_known_epsilon(tables: Path, subset_vectors: Mapping[str, Any]) -> None:
    for row in subset_vectors["eps_crit"]["rows"]:
        if row["dataset"] in STEMS:
            profile = Profile.of(score_sets.published(tables, STEMS[row["dataset"]]), row["k"])
            epsilon, place = critical_epsilon(profile, Canonical(row["gamma"], row["variant"] == "signed"))
            assert epsilon == pytest.approx(row["eps_crit"], rel=1e-3)
            assert list(place) == row["argmax_h_t"]


def test_published_tables_are_recalled_as_known(tables: Path, subset_vectors: Mapping[str, Any]) -> None:
    named = {"paper_g0.5": PAPER, "paper_g1": PAPER_TAIL, "signed_g0.75": SIGNED}
    scores = score_sets.published(tables, "netflix")
    for row in subset_vectors["recall_netflix"]["rows"]:
        profile = Profile.of(scores, row["k"])
        for label, one in named.items():
            assert class_law(profile, one, row["eps"]).recall == pytest.approx(row[label], abs=6e-4)
