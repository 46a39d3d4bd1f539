from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.accounting.composition import discrete_laplace_rho, renyi_epsilon
from stream_dp.accounting.rounding import log_up
from stream_dp.errors import ParameterError
from stream_dp.lossless.levels import noise_parameter, threshold_for
from tests.support.laplace_family import pmf
from tests.support.laplace_laws import discrete_laplace_renyi

ORDERS = [Fraction(1001, 1000), Fraction(3, 2), *map(Fraction, (2, 4, 16, 64, 1024))]
EPSILONS = [Fraction(1, 1000), Fraction(1, 20), Fraction(1), Fraction(3), Fraction(20)]


def parameter(epsilon: Fraction) -> Fraction:
    """The discrete Laplace parameter of a nominal epsilon, up to 2^-64."""
    return noise_parameter(threshold_for(epsilon))


def test_vector_a03_discrete_laplace_curve_and_zcdp(analysis_vector: Callable[[str], Any]) -> None:
    for row in analysis_vector("A03")["expected"]["rows"]:
        a = parameter(Fraction(str(row["eps_per_unit"])))
        for alpha, expected in zip((2, 4, 16), row["rdp_alpha_2_4_16"], strict=True):
            assert float(discrete_laplace_renyi(a, Fraction(alpha))) == pytest.approx(expected, rel=1e-9, abs=0)
        assert float(discrete_laplace_rho(a)) == pytest.approx(row["zcdp_rho"], rel=1e-9, abs=0)


@pytest.mark.parametrize("a", [Fraction(1, 5), Fraction(9, 10)])
@pytest.mark.parametrize("alpha", [2, 5])
def test_discrete_laplace_curve_is_the_divergence_of_the_law_rounded_up(a: Fraction, alpha: int) -> None:
    reach = 1000
    moment = sum((pmf(a, k) ** alpha * pmf(a, k - 1) ** (1 - alpha) for k in range(-reach, reach)), Fraction(0))
    exact = log_up(moment) / (alpha - 1)

    assert 0 <= discrete_laplace_renyi(a, Fraction(alpha)) - exact < Fraction(1, 10**30)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("alpha", ORDERS)
def test_curves_stay_below_their_zcdp_line_and_below_epsilon(epsilon: Fraction, alpha: Fraction) -> None:
    a = parameter(epsilon)
    slack = Fraction(1, 2**60)

    assert discrete_laplace_renyi(a, alpha) <= min(alpha * discrete_laplace_rho(a), epsilon) * (1 + slack)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_smaller_zcdp_line_would_do(epsilon: Fraction) -> None:
    close = 1 + Fraction(1, 10**6)
    a = parameter(epsilon)

    assert discrete_laplace_renyi(a, close) > close * discrete_laplace_rho(a) * Fraction(9999, 10000)


def test_zcdp_of_pure_noise_is_better_than_half_epsilon_squared() -> None:
    for epsilon in EPSILONS:
        assert discrete_laplace_rho(parameter(epsilon)) < epsilon**2 / 2


def test_more_windows_never_cost_less_and_summing_curves_beats_summing_epsilons() -> None:
    delta = Fraction(1, 10**6)
    epsilon = Fraction(1, 10)
    a = parameter(epsilon)

    def year(windows: int) -> Fraction:
        return min(renyi_epsilon(windows * discrete_laplace_renyi(a, alpha), alpha, delta) for alpha in ORDERS)

    assert year(1) < year(30) < year(365)
    assert year(365) < 13 < 365 * epsilon


def test_a_curve_that_never_rises_gives_no_negative_epsilon() -> None:
    assert min(renyi_epsilon(Fraction(0), alpha, Fraction(1, 2)) for alpha in ORDERS) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: discrete_laplace_rho(Fraction(0)),
        lambda: renyi_epsilon(Fraction(2), Fraction(2), Fraction(1)),
        lambda: renyi_epsilon(Fraction(1), Fraction(1), Fraction(1, 2)),
    ],
)
def test_arguments_out_of_range_are_refused(call: Callable[[], Fraction]) -> None:
    with pytest.raises(ParameterError):
        call()
