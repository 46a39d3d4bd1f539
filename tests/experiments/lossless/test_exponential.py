from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from experiments.lossless.exponential import Exponential, bridge_atom, stay_probability
from experiments.lossless.kernels import release_in_order
from experiments.lossless.laplace import bridge_atom as laplace_bridge_atom

FAMILY = Exponential()


def test_vector_l06_one_sided_kernels(analysis_vector: Callable[[str], Any]) -> None:
    l06 = analysis_vector("L06")
    coarse, rate, fine = (Fraction(l06["inputs"][name]) for name in ("rate_coarse", "rate_new", "rate_fine"))

    assert bridge_atom(fine, coarse) == Fraction(l06["expected"]["bridge_atom_fine_to_coarse"])
    assert stay_probability(fine, rate, coarse) == Fraction(l06["expected"]["stay_at_fine_given_clocks_differ"])


def test_staying_is_what_the_two_bridges_say_about_clocks_that_differ() -> None:
    fine, rate, coarse = Fraction(1), Fraction(1, 2), Fraction(1, 4)
    # Densities at any difference k > 0: stay and then leave by Exp(coarse), against the bridge of the whole way.
    stay_then_leave = bridge_atom(fine, rate) * (1 - bridge_atom(rate, coarse))

    assert stay_probability(fine, rate, coarse) == stay_then_leave / (1 - bridge_atom(fine, coarse))


def test_two_clocks_have_the_atom_of_the_laplace_bridge() -> None:
    fine, coarse = Fraction(1), Fraction(1, 4)

    assert bridge_atom(fine, coarse) ** 2 == laplace_bridge_atom(1 / fine, 1 / coarse)


@pytest.mark.parametrize("order", [[1.0, 0.25, 0.5], [0.25, 1.0, 0.5], [0.5, 1.0, 0.25], [0.25, 0.5, 1.0]])
def test_clocks_only_grow_with_the_noise_and_what_is_kept_is_kept_exactly(order: list[float]) -> None:
    exact = np.full(20_000, 0.1)
    held = release_in_order(FAMILY, exact, order, np.random.default_rng(1))

    assert (exact <= held[1.0]).all()
    assert (held[1.0] <= held[0.5]).all()
    assert (held[0.5] <= held[0.25]).all()
    assert (held[1.0] == held[0.25]).mean() == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / 20_000) ** 0.5)


def test_asking_again_repeats_the_release() -> None:
    asked = [1.0, 0.25, 1.0, 0.25]
    held = release_in_order(FAMILY, np.zeros(10), asked, np.random.default_rng(1))
    once = release_in_order(FAMILY, np.zeros(10), asked[:2], np.random.default_rng(1))

    assert list(held) == [1.0, 0.25]
    assert all((held[rate] == once[rate]).all() for rate in held)


def test_the_density_is_one_sided_and_integrates_to_one() -> None:
    points, weights = np.polynomial.legendre.leggauss(60)
    density = FAMILY.density(2.0, 10 * (points + 1))

    assert float(10 * density @ weights) == pytest.approx(1, rel=1e-12, abs=0)
    assert FAMILY.density(2.0, np.array([-1e-9, 0.0])).tolist() == [0, 2]
    assert FAMILY.is_finer(2.0, 1.0)
