"""The joint law of continuous releases drawn in every order, by chi-square over cells with exact probabilities.

The finest noise and the two bridges are independent, so a cell is a product: which quarter of its law the finest noise
lies in, and for each bridge whether it is zero or which quarter of its continuous part it lies in. Seeds are fixed;
with another one a correct sampler falls below the line with a probability of `FALSE_ALARM` per p-value. Mutants must.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest

from experiments.lossless import exponential, laplace
from experiments.lossless.exponential import Exponential, laplace_noise
from experiments.lossless.gaussian import Gaussian, covariance
from experiments.lossless.kernels import ContinuousFamily, FloatArray, release_in_order
from experiments.lossless.laplace import Laplace, convolution_density
from tests.support.chance import survival

pytestmark = pytest.mark.statistical

FALSE_ALARM = 1e-6
RUNS = 60_000
QUARTERS = np.array([0.25, 0.5, 0.75])


@dataclass(frozen=True)
class Case:
    """A family, three levels from fine to coarse, and the laws that its releases consist of."""

    family: ContinuousFamily
    levels: tuple[float, float, float]
    atoms: tuple[float, float]  # of the two bridges
    quantiles: Callable[[float], FloatArray]  # the quarters of the law at a level


def laplace_quarters(scale: float) -> FloatArray:
    quarters: FloatArray = scale * np.log(2) * np.array([-1.0, 0.0, 1.0])
    return quarters


def exponential_quarters(rate: float) -> FloatArray:
    quarters: FloatArray = -np.log1p(-QUARTERS) / rate
    return quarters


LAPLACE = Case(
    Laplace(),
    (1.0, 2.0, 4.0),
    (laplace.bridge_atom(1.0, 2.0), laplace.bridge_atom(2.0, 4.0)),
    laplace_quarters,
)
EXPONENTIAL = Case(
    Exponential(),
    (1.0, 0.6, 0.25),
    (exponential.bridge_atom(1.0, 0.6), exponential.bridge_atom(0.6, 0.25)),
    exponential_quarters,
)


def p_value(case: Case, held: dict[float, FloatArray], exact: float) -> float:
    fine, middle, coarse = (held[level] for level in case.levels)
    places = [np.searchsorted(case.quantiles(case.levels[0]), fine - exact)]
    shares = [np.full(4, 0.25)]
    for finer, coarser, level, atom in (
        (fine, middle, case.levels[1], case.atoms[0]),
        (middle, coarse, case.levels[2], case.atoms[1]),
    ):
        places.append(np.where(coarser == finer, 4, np.searchsorted(case.quantiles(level), coarser - finer)))
        shares.append(np.array([*[(1 - atom) / 4] * 4, atom]))
    cells = np.zeros((4, 5, 5))
    np.add.at(cells, tuple(places), 1)
    expected = len(fine) * shares[0][:, None, None] * shares[1][None, :, None] * shares[2][None, None, :]
    assert expected.min() >= 50
    return survival(float(((cells - expected) ** 2 / expected).sum()), cells.size - 1)


def released(case: Case, order: Sequence[float], family: ContinuousFamily | None = None) -> dict[float, FloatArray]:
    rng = np.random.default_rng(20250101)
    return release_in_order(family or case.family, np.full(RUNS, 1.5), order, rng)


@pytest.mark.parametrize("order", [*permutations(LAPLACE.levels)], ids=str)
def test_laplace_releases_have_the_joint_law_in_every_order(order: tuple[float, ...]) -> None:
    assert p_value(LAPLACE, released(LAPLACE, order), 1.5) > FALSE_ALARM


@pytest.mark.parametrize("order", [*permutations(EXPONENTIAL.levels)], ids=str)
def test_exponential_clocks_have_the_joint_law_in_every_order(order: tuple[float, ...]) -> None:
    assert p_value(EXPONENTIAL, released(EXPONENTIAL, order), 1.5) > FALSE_ALARM


@pytest.mark.parametrize("order", [*permutations((1.0, 0.5, 0.25))], ids=str)
def test_two_clocks_are_the_laplace_family(order: tuple[float, ...]) -> None:
    clocks = release_in_order(Exponential(), np.zeros((2, RUNS)), order, np.random.default_rng(20250101))
    held = {1 / rate: laplace_noise(value) for rate, value in clocks.items()}

    assert p_value(LAPLACE, held, 0.0) > FALSE_ALARM


class PrintedLemmaF5(Laplace):
    """The three cases of Lemma F.5 with the scales as printed."""

    def between(
        self,
        value_fine: FloatArray,
        fine: float,
        value_coarse: FloatArray,
        coarse: float,
        level: float,
        rng: np.random.Generator,
    ) -> FloatArray:
        k = value_coarse - value_fine
        p_coarse, p_fine = laplace.bridge_atom(level, coarse), laplace.bridge_atom(fine, level)
        at_fine = p_coarse * (1 - p_fine) * self.density(fine, k)
        at_coarse = (1 - p_coarse) * p_fine * self.density(level, k)
        neither = (1 - p_coarse) * (1 - p_fine) * convolution_density(level, fine, k)
        drawn = rng.random(len(k)) * (at_fine + at_coarse + neither)
        mixture = Laplace().sharpen(value_coarse, level, value_fine, fine, rng)
        inserted = np.where(drawn < at_fine, value_fine, np.where(drawn < at_fine + at_coarse, value_coarse, mixture))
        return np.where(k == 0, value_fine, inserted)


class FineBridge(Laplace):
    """A bridge with the fine scale in its continuous part."""

    def coarsen(self, value_fine: FloatArray, fine: float, level: float, rng: np.random.Generator) -> FloatArray:
        stay = rng.random(len(value_fine)) < laplace.bridge_atom(fine, level)
        return np.where(stay, value_fine, value_fine + self.fresh(fine, len(value_fine), rng))


class Fresh(Laplace):
    """Independent noise at every level."""

    def sharpen(
        self, value_coarse: FloatArray, coarse: float, exact: FloatArray, level: float, rng: np.random.Generator
    ) -> FloatArray:
        return exact + self.fresh(level, len(exact), rng)


@pytest.mark.parametrize(
    ("mutant", "order"),
    [(PrintedLemmaF5(), (1.0, 4.0, 2.0)), (FineBridge(), (1.0, 2.0, 4.0)), (Fresh(), (4.0, 2.0, 1.0))],
    ids=lambda value: type(value).__name__,
)
def test_laplace_mutants_are_rejected(mutant: Laplace, order: tuple[float, ...]) -> None:
    assert p_value(LAPLACE, released(LAPLACE, order, mutant), 1.5) < FALSE_ALARM


class NeverEqual(Exponential):
    """In between, the case of equal neighbours forgotten."""

    def between(
        self,
        value_fine: FloatArray,
        fine: float,
        value_coarse: FloatArray,
        coarse: float,
        level: float,
        rng: np.random.Generator,
    ) -> FloatArray:
        return np.minimum(value_coarse, value_fine + self.fresh(level - coarse, len(value_fine), rng))


def test_an_exponential_mutant_is_rejected() -> None:
    held = released(EXPONENTIAL, (1.0, 0.25, 0.6), NeverEqual())

    assert p_value(EXPONENTIAL, held, 1.5) < FALSE_ALARM


RHOS = (0.1, 0.5, 1.0, 2.0, 8.0)


@pytest.mark.parametrize("order", [RHOS, RHOS[::-1], (1.0, 0.1, 8.0, 0.5, 2.0)], ids=str)
def test_what_a_coalition_can_estimate_it_learns_from_the_finest_release_alone(order: tuple[float, ...]) -> None:
    """The best weights on all releases of a known statistic: (0, ..., 0, 1), each within five standard errors.

    The inverse of the sample covariance has relative errors of sqrt(2 / RUNS); false alarms below 1e-4.
    """
    rng = np.random.default_rng(20250101)
    held = release_in_order(Gaussian(), np.full(RUNS, 7.0), order, rng)
    values = np.stack([held[rho] for rho in RHOS])
    sample = np.cov(values)
    precision = np.linalg.inv(sample)
    weights = precision.sum(axis=0) / precision.sum()

    wanted = np.array([[covariance(a, b, 1.0) for b in RHOS] for a in RHOS])
    error = np.sqrt((wanted**2 + np.outer(np.diag(wanted), np.diag(wanted))) / RUNS)
    assert (np.abs(sample - wanted) < 5 * error).all()
    # A weight on a coarser release regresses Y_finest on pure noise: its error is the ratio of the standard deviations.
    gaps = 1 / (2 * np.array(RHOS[:-1])) - 1 / (2 * np.array(RHOS[1:]))
    assert (np.abs(weights[:-1]) < 5 * np.sqrt(1 / (2 * RHOS[-1]) / RUNS) * 2 / np.sqrt(gaps)).all()
    assert weights[-1] == pytest.approx(1, abs=0.02)
    assert np.abs(values.mean(axis=1) - 7).max() < 5 * np.sqrt(np.diag(wanted).max() / RUNS)


def test_independent_releases_would_teach_a_coalition_more() -> None:
    """The averaging attack on a mutant: weights spread over all releases in proportion to rho."""
    rng = np.random.default_rng(20250101)
    values = np.stack([rng.normal(7, np.sqrt(1 / (2 * rho)), RUNS) for rho in RHOS])
    precision = np.linalg.inv(np.cov(values))
    weights = precision.sum(axis=0) / precision.sum()

    assert weights == pytest.approx(np.array(RHOS) / sum(RHOS), abs=0.01)
