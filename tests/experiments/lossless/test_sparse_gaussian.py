from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from experiments.lossless.kernels import FloatArray
from experiments.lossless.sparse_gaussian import (
    DenseGradual,
    EfficientGradual,
    Round,
    appearance,
    appearing,
    normal_beyond,
)
from stream_dp.errors import ParameterError

Vectors = Callable[[str], Any]
RUNS = 100_000


def rounds_of(row: dict[str, Any]) -> list[Round]:
    return [Round(rho, threshold) for rho, threshold in zip(row["rho"], row["tau"], strict=True)]


def test_vector_h01_chances_and_acceptance(analysis_vector: Vectors) -> None:
    for row in analysis_vector("H01")["expected"]["rows"]:
        rounds = rounds_of(row)

        assert appearance(rounds[:1]).chance == pytest.approx(row["p1"], rel=1e-8, abs=0)
        assert appearance(rounds[:1]).acceptance == pytest.approx(1, rel=1e-12, abs=0)
        assert appearance(rounds).chance == pytest.approx(row["p2"], rel=1e-8, abs=0)
        assert appearance(rounds).acceptance == pytest.approx(row["backward_acceptance"], rel=1e-8, abs=0)


def standardized(sample: FloatArray, mean: float) -> float:
    """How many standard errors a sample mean is off."""
    return float(abs(sample.mean() - mean) / (sample.std() / np.sqrt(len(sample))))


@pytest.mark.statistical
def test_vector_h01_a_new_bin_has_the_conditional_means_of_the_dense_form(analysis_vector: Vectors) -> None:
    """Eight means within five standard errors and four rates: false alarms below 1e-5; the seed is fixed."""
    rng = np.random.default_rng(1)
    for row in analysis_vector("H01")["expected"]["rows"]:
        rounds = rounds_of(row)
        noise, rejected = appearing(rounds, RUNS, rng)
        acceptance = RUNS / (RUNS + rejected)

        assert noise.shape == (RUNS, 2)
        assert (noise[:, 0] <= rounds[0].threshold).all()
        assert (noise[:, 1] > rounds[1].threshold).all()
        assert standardized(rounds[0].rho * noise[:, 0], row["E_S1_true"]) < 5
        assert standardized(noise[:, 1], row["E_Y2_true"]) < 5
        assert acceptance == pytest.approx(row["backward_acceptance"], abs=5 * (0.25 / RUNS) ** 0.5)


def printed_algorithm_6(rounds: list[Round], count: int, rng: np.random.Generator) -> FloatArray:
    """A new bin's S_1, ..., S_r as printed: each increment conditioned on the bound of its own round only."""
    sums = np.zeros((count, 0))
    position, before = np.zeros(count), 0.0
    for index, one in enumerate(rounds):
        step, bound = np.sqrt((one.rho - before) / 2), one.rho * one.threshold
        if index < len(rounds) - 1:
            drawn = position + step * rng.standard_normal(count)
            while (over := drawn > bound).any():
                drawn[over] = position[over] + step * rng.standard_normal(int(over.sum()))
        else:
            drawn = np.array([s + step * normal_beyond((bound - s) / step, 1, rng)[0] for s in position])
        sums = np.column_stack([sums, drawn])
        position, before = drawn, one.rho
    return sums


@pytest.mark.statistical
def test_vector_h01_the_printed_algorithm_6_is_biased_as_computed(analysis_vector: Vectors) -> None:
    """The negative control fails the test of the corrected one by far, and has the means the vectors foretell."""
    row = analysis_vector("H01")["expected"]["rows"][0]
    rounds = rounds_of(row)
    sums = printed_algorithm_6(rounds, 20_000, np.random.default_rng(1))

    assert standardized(sums[:, 0], row["E_S1_true"]) > 50
    assert standardized(sums[:, 1] / rounds[1].rho, row["E_Y2_true"]) > 10
    assert standardized(sums[:, 0], row["E_S1_printed"]) < 5
    assert standardized(sums[:, 1] / rounds[1].rho, row["E_Y2_printed_after_dividing_by_rho"]) < 5


def test_vector_h06_a_new_bin_is_shown_with_its_noise_not_with_rho_times_it(analysis_vector: Vectors) -> None:
    h06 = {name: part for part in ("inputs", "expected") for name, part in analysis_vector("H06")[part].items()}
    rho, threshold, total = (fraction(h06[name]) for name in ("rho_r", "tau_r", "S_r"))
    shown = EfficientGradual({}, 1000).release(rho, threshold, np.random.default_rng(1))

    assert total / rho == fraction(h06["correct_Y"]) == fraction(h06["stored_Z"]) > threshold
    assert fraction(h06["printed_Y"]) == total < threshold
    assert len(shown) > 0
    assert all(value > threshold > rho * value for value in shown.values())  # the print would emit rho * value


def fraction(text: str) -> float:
    top, bottom = text.split("/")
    return int(top) / int(bottom)


def test_vector_h04_gaussians_drawn(analysis_vector: Vectors) -> None:
    """As many as Lemma 5.7 says, but for the rejected paths, which it does not have."""
    h04 = analysis_vector("H04")
    k, c, m = (h04["inputs"][name] for name in "kcm")
    thresholds = [(0.1, 7.2), (0.2, 5.2), (0.4, 3.7), (0.8, 2.6), (1.6, 1.9)]
    assert len(thresholds) == m
    found = None
    for seed in range(200):
        rng = np.random.default_rng(seed)
        histogram = EfficientGradual(dict.fromkeys(range(k), 20.0), 3000)
        ever: set[int] = set()
        for rho, threshold in thresholds:
            ever |= {name for name in histogram.release(rho, threshold, rng) if name >= k}
        assert histogram.gaussians - histogram.rejected == (k + len(ever)) * m
        if len(ever) == c:
            found = histogram.gaussians - histogram.rejected
            break

    assert found == h04["expected"]["gaussians"]


@pytest.mark.parametrize("bound", [-3.0, 0.0, 0.2, 0.3, 2.0, 8.0, 40.0])
def test_normal_numbers_beyond_a_bound(bound: float) -> None:
    """Mean and variance by the Mills ratio, within five standard errors: false alarms below 1e-5 in all."""
    drawn = normal_beyond(bound, RUNS, np.random.default_rng(3))
    points, weights = np.polynomial.legendre.leggauss(200)
    reach = 12 if bound < 5 else 60 / bound
    x = max(bound, -12) + reach * (points + 1)
    density = np.exp(-(x - max(bound, 0)) * (x + max(bound, 0)) / 2) * weights
    mean = float((x * density).sum() / density.sum())
    variance = float(((x - mean) ** 2 * density).sum() / density.sum())

    assert drawn.min() > bound
    assert standardized(drawn, mean) < 5
    assert standardized((drawn - mean) ** 2, variance) < 5


ROUNDS = [(0.1, 6.0), (0.2, 4.0), (1.0, 1.6)]
BINS, FULL = 2000, 40
COUNTS = {name: 2.0 + name / 8 for name in range(FULL)}


@pytest.fixture(scope="module")
def shown_by_both() -> dict[str, list[list[FloatArray]]]:
    """Of 60 histograms of either form, what each round shows of bins that are empty in truth: by bin, 0 if hidden."""
    repetitions = 60
    dense: list[list[FloatArray]] = [[] for _ in ROUNDS]
    efficient: list[list[FloatArray]] = [[] for _ in ROUNDS]
    for seed in range(repetitions):
        rng = np.random.default_rng(1000 + seed)
        counts = np.zeros(BINS)
        counts[:FULL] = list(COUNTS.values())
        one, other = DenseGradual(counts), EfficientGradual(COUNTS, BINS)
        for index, (rho, threshold) in enumerate(ROUNDS):
            dense[index].append(one.release(rho, threshold, rng)[FULL:])
            values = np.zeros(BINS)
            for name, value in other.release(rho, threshold, rng).items():
                values[name] = value
            efficient[index].append(values[FULL:])
    return {"dense": dense, "efficient": efficient}


def kolmogorov_smirnov(one: FloatArray, other: FloatArray) -> float:
    """The largest distance of two empirical distributions, over its critical value at a false-alarm rate of 1e-6."""
    everything = np.sort(np.concatenate([one, other]))
    distance = np.abs(
        np.searchsorted(np.sort(one), everything, side="right") / len(one)
        - np.searchsorted(np.sort(other), everything, side="right") / len(other)
    ).max()
    critical = np.sqrt(-np.log(1e-6 / 2) / 2) * np.sqrt(1 / len(one) + 1 / len(other))
    return float(distance / critical)


@pytest.mark.statistical
def test_the_efficient_form_shows_what_the_dense_form_shows(
    shown_by_both: dict[str, list[list[FloatArray]]],
) -> None:
    """Numbers and values in each round, and of what a bin showed two rounds running; 1e-6 each, the seeds are fixed."""
    dense, efficient = ([np.concatenate(one) for one in shown_by_both[name]] for name in ("dense", "efficient"))
    for one, other in zip(dense, efficient, strict=True):
        hits, others = np.count_nonzero(one), np.count_nonzero(other)
        assert min(hits, others) > 300
        assert abs(hits - others) < 5 * np.sqrt(hits + others)
        assert kolmogorov_smirnov(one[one > 0], other[other > 0]) < 1
    for index in (0, 1):
        pairs = [
            np.where((values[index] > 0) & (values[index + 1] > 0), values[index + 1] - values[index], np.nan)
            for values in (dense, efficient)
        ]
        one, other = (pair[~np.isnan(pair)] for pair in pairs)
        assert kolmogorov_smirnov(one, other) < 1
        assert abs(len(one) - len(other)) < 5 * np.sqrt(len(one) + len(other))


@pytest.mark.statistical
def test_drawing_newcomers_without_their_past_is_noticed(shown_by_both: dict[str, list[list[FloatArray]]]) -> None:
    """A mutant: empty bins get fresh noise in each round, so what was shown before does not stay tracked."""
    rng = np.random.default_rng(1)
    rho, threshold = ROUNDS[1]
    dense = [np.concatenate(one) for one in shown_by_both["dense"]]
    fresh = rng.normal(0, np.sqrt(1 / (2 * rho)), dense[1].shape)
    again = np.count_nonzero((dense[0] > 0) & (dense[1] > 0))
    by_mutant = np.count_nonzero((dense[0] > 0) & (fresh > threshold))

    assert again - by_mutant > 5 * np.sqrt(again + by_mutant)


def test_every_bin_may_appear_and_none_twice() -> None:
    rng = np.random.default_rng(1)
    histogram = EfficientGradual({3: 5.0}, 50)
    shown = histogram.release(0.01, -100.0, rng)  # everything lies above the threshold

    assert sorted(shown) == list(range(50))
    assert sorted(histogram.release(0.02, -100.0, rng)) == list(range(50))


def test_a_count_far_above_the_threshold_is_shown_near_its_value() -> None:
    shown = EfficientGradual({7: 1000.0}, 10**12).release(50.0, 5.0, np.random.default_rng(1))

    assert list(shown) == [7]
    assert abs(shown[7] - 1000) < 1


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ([Round(0.2, 1.0), Round(0.1, 1.0)], "growing rho"),
        ([Round(0.0, 1.0)], "growing rho"),
        ([], "growing rho"),
        ([Round(1.0, 3.0), Round(1.0 + 1e-7, 3.0), Round(2.0, 3.0)], "too close"),
    ],
)
def test_rounds_that_the_quadrature_cannot_serve_are_refused(rounds: list[Round], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        appearance(rounds)


def test_rejections_stay_below_the_number_of_empty_bins_above_the_threshold() -> None:
    """A lower threshold first, nearly no silent past: expected paths d P(Z > tau), within five standard errors."""
    rng, bins = np.random.default_rng(1), 400_000
    rounds = [Round(1.0, 1.6), Round(1.05, 1.8)]
    histogram = EfficientGradual({}, bins)
    for one in rounds:
        histogram.release(one.rho, one.threshold, rng)
    expected = bins * float(appearance(rounds[1:]).chance)

    assert appearance(rounds).acceptance < 0.3
    assert histogram.rejected / 2 < expected + 5 * expected**0.5


def test_a_gradual_release_does_not_go_back() -> None:
    rng = np.random.default_rng(1)
    dense, efficient = DenseGradual(np.zeros(3)), EfficientGradual({}, 3)
    dense.release(1.0, 0.0, rng)
    efficient.release(1.0, 0.0, rng)

    with pytest.raises(ParameterError, match="upwards"):
        dense.release(1.0, 0.0, rng)
    with pytest.raises(ParameterError, match="growing rho"):
        efficient.release(0.5, 0.0, rng)


def test_a_bin_outside_the_domain_is_refused() -> None:
    with pytest.raises(ParameterError, match="from 0 to 9"):
        EfficientGradual({10: 1.0}, 10)
