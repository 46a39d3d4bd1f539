from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.topk.composition import tanh_half_up
from stream_dp.accounting.rounding import down, exp_down, exp_up, largest, log_down, log_up, root_up, up
from stream_dp.errors import ParameterError

TIGHT = Fraction(1, 2**250)
numbers = st.fractions(min_value=Fraction(1, 10**12), max_value=10**12)


@given(st.fractions())
def test_rounding_encloses_a_number_tightly(q: Fraction) -> None:
    assert down(q) <= q <= up(q)
    assert up(q) - down(q) <= abs(q) * TIGHT


@pytest.mark.parametrize("q", [Fraction(3**400), Fraction(1, 3**400), Fraction(-(3**400), 7)])
def test_rounding_shortens_long_numbers_to_dyadic_ones(q: Fraction) -> None:
    for rounded in (down(q), up(q)):
        assert rounded.denominator & (rounded.denominator - 1) == 0
        assert abs(rounded / q - 1) <= TIGHT


@given(st.fractions(min_value=-300, max_value=300))
def test_the_exponential_is_enclosed_and_its_law_of_products_holds(x: Fraction) -> None:
    assert 0 < exp_down(x) <= exp_up(x) <= exp_down(x) * (1 + TIGHT)
    assert exp_down(x) * exp_down(-x) <= 1 <= exp_up(x) * exp_up(-x)


def test_the_exponential_of_a_large_number_keeps_its_relative_accuracy() -> None:
    for x in (Fraction(-5000), Fraction(5000)):
        assert exp_down(x) <= exp_down(x / 5000) ** 5000 * (1 + TIGHT * 2**20)
        assert exp_down(x) <= exp_up(x) <= exp_down(x) * (1 + TIGHT)


@given(numbers)
def test_the_logarithm_is_enclosed_between_exponentials(q: Fraction) -> None:
    assert log_up(q) - log_down(q) <= 2 * TIGHT
    assert exp_down(log_down(q)) <= q <= exp_up(log_up(q))


@given(st.fractions(min_value=Fraction(1, 10**12), max_value=100))
def test_the_hyperbolic_tangent_of_a_half_is_the_least_within_its_precision(x: Fraction) -> None:
    tangent = tanh_half_up(x)

    assert log_up((1 + tangent) / (1 - tangent)) >= x
    assert log_down((1 + tangent - TIGHT) / (1 - tangent + TIGHT)) < x


@given(numbers)
def test_the_root_is_the_least_within_its_precision(q: Fraction) -> None:
    root = root_up(q)

    assert (root * (1 - TIGHT)) ** 2 < q <= root**2


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10**30])
def test_roots_of_squares_are_exact(n: int) -> None:
    assert root_up(Fraction(n * n)) == n
    assert root_up(Fraction(n * n, 49)) >= Fraction(n, 7)


def test_the_root_of_a_little_more_than_a_square_is_above_its_root() -> None:
    assert root_up(1 + Fraction(1, 2**2000)) > 1


def test_the_root_of_a_negative_number_is_refused() -> None:
    with pytest.raises(ParameterError, match="at least 0"):
        root_up(Fraction(-1))


@pytest.mark.parametrize("always", [True, False])
def test_a_bound_without_a_limit_is_an_error(always: bool) -> None:
    with pytest.raises(ParameterError, match="is a limit"):
        largest(lambda _: always)
    assert largest(lambda q: q <= Fraction(1, 3**2000)) <= Fraction(1, 3**2000)
    assert largest(lambda q: q <= 3**2000) <= 3**2000
