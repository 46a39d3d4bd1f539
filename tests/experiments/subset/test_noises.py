from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from experiments.subset.noises import NOISES, Noise

every_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=list(NOISES))
GRID = np.linspace(-12, 60, 20_001)


@pytest.mark.parametrize(("what", "at"), [("quantile", "p"), ("hazard", "x"), ("link", "g")])
def test_the_noises_have_the_known_values(what: str, at: str, subset_vectors: Mapping[str, Any]) -> None:
    rows = subset_vectors["psi_link" if what == "link" else what]

    assert len(rows) >= 25
    for row in rows:
        assert float(getattr(NOISES[row["noise"]], what)(row[at])) == pytest.approx(row["value"], rel=1e-12, abs=1e-15)


@every_noise
def test_the_hazard_is_at_most_one_everywhere(noise: Noise) -> None:
    assert float(noise.hazard(GRID).max()) <= 1 + 1e-12


@every_noise
def test_survival_falls_no_faster_than_scores_may_move_it(noise: Noise) -> None:
    survival = noise.log_survival(GRID)

    assert (np.diff(survival) <= 0).all()
    assert (np.diff(survival) >= -np.diff(GRID) - 1e-9).all()


@every_noise
def test_quantile_and_distribution_undo_each_other(noise: Noise) -> None:
    chances = np.linspace(0.001, 0.999, 999)
    values = noise.quantile(chances)

    assert np.exp(noise.log_cumulative(values)) == pytest.approx(chances, rel=1e-12)
    assert np.exp(noise.log_survival(values)) == pytest.approx(1 - chances, rel=1e-9)


@every_noise
def test_density_is_the_slope_of_the_distribution(noise: Noise) -> None:
    values = noise.quantile(np.linspace(0.02, 0.98, 97))
    slope = (np.exp(noise.log_cumulative(values + 1e-6)) - np.exp(noise.log_cumulative(values - 1e-6))) / 2e-6

    assert np.exp(noise.log_density(values)) == pytest.approx(slope, rel=1e-5)
    assert noise.reversed_hazard(values) == pytest.approx(slope / np.exp(noise.log_cumulative(values)), rel=1e-5)


@every_noise
def test_the_best_of_one_is_the_noise_itself(noise: Noise) -> None:
    chances = np.linspace(0.001, 0.999, 999)

    assert noise.link(-np.log(-np.log(chances))) == pytest.approx(noise.quantile(chances), rel=1e-11, abs=1e-13)


@every_noise
def test_the_best_of_many_grows_with_its_uniform_and_is_finite_for_any_number(noise: Noise) -> None:
    values = noise.link(np.concatenate([np.linspace(-40, 40, 4001), np.geomspace(41, 1e4, 200)]))

    assert np.isfinite(values).all()
    assert (np.diff(values) >= 0).all()
