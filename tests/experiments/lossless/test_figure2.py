from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from experiments.lossless.figure2 import (
    ORDERS,
    RELEASES,
    Series,
    independent_variance,
    log_even_budgets,
    lossless_variance,
    simulate,
    tolerance,
    work,
)

RUNS = 20_000


def test_vector_g10_closed_forms(analysis_vector: Callable[[str], Any]) -> None:
    table = analysis_vector("G10")["expected"]["table"]

    assert [int(n) for n in table] == list(RELEASES)
    for n, row in table.items():
        budgets = log_even_budgets(int(n))
        lossless, independent = lossless_variance(budgets), independent_variance(budgets)
        assert budgets[1] / budgets[0] == pytest.approx(row["grid_ratio"], rel=1e-9, abs=0)
        assert lossless[0] == independent[0] == pytest.approx(row["lossless_first"], rel=1e-9, abs=0)
        assert lossless[-1] == pytest.approx(row["lossless_last"], rel=1e-9, abs=0)
        assert independent[1] == pytest.approx(row["baseline_second"], rel=1e-9, abs=0)
        assert independent[-1] == pytest.approx(row["baseline_last"], rel=1e-9, abs=0)
        assert (independent / lossless)[1:] == pytest.approx(row["penalty_factor"], rel=1e-9, abs=0)


@pytest.fixture(scope="module")
def series() -> list[Series]:
    return simulate(RUNS, np.random.default_rng(2), releases=(2, 10, 100))


@pytest.mark.statistical
def test_every_order_gives_the_same_curve(series: list[Series]) -> None:
    """448 variances within five standard errors: another seed than this fails with a probability of 3e-4."""
    for one in series:
        assert set(one.lossless) == set(ORDERS)
        for curve in (*one.lossless.values(), one.independent):
            assert np.abs(curve.deviations).max() < 5 / 4 * tolerance(RUNS)


@pytest.mark.statistical
def test_the_tolerance_tells_the_curves_apart(series: list[Series]) -> None:
    """The baseline as a mutant: ten releases are 63 % worse, a hundred twelve times."""
    for one in series[1:]:
        mutant = one.independent.measured / one.lossless["increasing"].expected - 1
        assert (mutant[1:] > 10 * tolerance(RUNS)).all()


def test_the_tolerance_at_a_million_runs_is_what_the_paper_needs() -> None:
    assert tolerance(10**6) == pytest.approx(0.0057, abs=5e-5)


def test_progress_adds_up_to_the_work() -> None:
    steps: list[int] = []
    simulate(20_000, np.random.default_rng(1), releases=(2, 5), progress=steps.append)

    assert sum(steps) == work(20_000, (2, 5))
    assert len(steps) > 8


def test_a_seed_repeats_the_figure() -> None:
    one, again = (simulate(100, np.random.default_rng(7), releases=(5,)) for _ in range(2))

    assert all((one[0].lossless[order].measured == again[0].lossless[order].measured).all() for order in ORDERS)
