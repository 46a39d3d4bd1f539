from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.errors import ParameterError
from stream_dp.exact.reals import exp_neg, log, smallest_power
from tests.support.chosen import examples

PRECISIONS = st.sampled_from([1, 2, 7, 64, 128, 256, 600])
POSITIVE = st.builds(
    Fraction,
    st.integers(min_value=1, max_value=2**64) | st.integers(min_value=1, max_value=50),
    st.integers(min_value=1, max_value=2**64) | st.integers(min_value=1, max_value=50),
)
DIGITS = Context(prec=400)  # against 600 bits, i.e. 181 digits


def decimal(q: Fraction) -> Decimal:
    return Decimal(q.numerator) / Decimal(q.denominator)


@examples(100, 400, given(x=POSITIVE, precision=PRECISIONS), derandomize=True)
def test_exp_neg_encloses_the_exponential_within_two_units(x: Fraction, precision: int) -> None:
    lower, upper = exp_neg(x, precision)

    with localcontext(DIGITS):
        assert lower <= (-decimal(x)).exp() * 2**precision <= upper
    assert 0 <= lower <= upper <= min(lower + 2, 1 << precision)


@examples(100, 400, given(q=POSITIVE.filter(lambda q: q != 1), precision=PRECISIONS), derandomize=True)
def test_log_encloses_the_logarithm_within_two_units(q: Fraction, precision: int) -> None:
    lower, upper = log(q, precision)

    with localcontext(DIGITS):
        assert lower <= decimal(q).ln() * 2**precision <= upper
    assert upper - lower <= 2


@pytest.mark.parametrize("precision", [1, 64, 500])
def test_rational_values_are_enclosed_without_a_gap(precision: int) -> None:
    assert exp_neg(Fraction(0), precision) == (1 << precision, 1 << precision)
    assert log(Fraction(1), precision) == (0, 0)


def test_exp_neg_of_a_huge_exponent_is_between_zero_and_one_unit() -> None:
    assert exp_neg(Fraction(10**30), 128) == (0, 1)
    assert exp_neg(Fraction(128), 128) == (0, 1)


def test_exp_neg_just_below_the_cut_still_encloses() -> None:
    lower, upper = exp_neg(Fraction(127), 128)

    with localcontext(DIGITS):
        assert lower <= Decimal(-127).exp() * 2**128 <= upper


def test_exp_neg_of_a_hair_stays_at_most_one() -> None:
    assert exp_neg(Fraction(1, 10**200), 64) == (2**64 - 1, 2**64)


@pytest.mark.parametrize("precision", [3, 8, 64])
@pytest.mark.parametrize("share", [Fraction(1, 3), Fraction(5, 8), Fraction(7, 9)])
def test_values_a_hair_beside_an_integer_are_enclosed_on_the_right_side(precision: int, share: Fraction) -> None:
    """x = ln(2^p / m) is known to 500 bits here, so 2^p e^-x misses m by much less than any guard bit shows."""
    m = int(share * 2**precision)
    below, above = (Fraction(end, 2**500) for end in log(Fraction(2**precision, m), 500))

    low_of_less, high_of_less = exp_neg(above, precision)  # a hair below m
    low_of_more, high_of_more = exp_neg(below, precision)  # a hair above m
    assert low_of_less < m <= high_of_less
    assert low_of_more <= m < high_of_more

    x = Fraction(m, 2**precision)
    less, more = (Fraction(end, 2**500) for end in exp_neg(x, 500))
    assert log(less, precision)[0] < -m <= log(less, precision)[1]
    assert log(more, precision)[0] <= -m < log(more, precision)[1]


def test_arguments_outside_the_domain_are_refused() -> None:
    with pytest.raises(ParameterError, match="at least 0"):
        exp_neg(Fraction(-1, 10**9), 64)
    with pytest.raises(ParameterError, match="positive"):
        log(Fraction(0), 64)
    for base, bound in ((Fraction(1), Fraction(1, 2)), (Fraction(0), Fraction(1, 2)), (Fraction(1, 2), Fraction(0))):
        with pytest.raises(ParameterError, match="smallest_power needs"):
            smallest_power(base, bound)


@examples(
    80,
    300,
    given(
        base=st.integers(min_value=2, max_value=97).flatmap(
            lambda q: st.builds(Fraction, st.integers(min_value=1, max_value=q - 1), st.just(q))
        ),
        bound=POSITIVE,
    ),
    derandomize=True,
)
def test_smallest_power_is_the_first_that_reaches_the_bound(base: Fraction, bound: Fraction) -> None:
    n = smallest_power(base, bound)

    assert base**n <= bound
    assert n == 0 or base ** (n - 1) > bound


@pytest.mark.parametrize("base", [Fraction(1, 2), Fraction(2, 3), Fraction(2**64 - 59, 2**64)])
@pytest.mark.parametrize("n", [1, 2, 7, 90])
def test_smallest_power_decides_bounds_that_are_powers_or_next_to_one(base: Fraction, n: int) -> None:
    power = base**n
    hair = Fraction(1, power.denominator**2)

    assert smallest_power(base, power) == n
    assert smallest_power(base, power + hair) == n
    assert smallest_power(base, power - hair) == n + 1


def test_smallest_power_of_a_base_next_to_one_needs_no_large_power() -> None:
    base, bound = Fraction(2**64 - 1, 2**64), Fraction(1, 10**12)
    n = smallest_power(base, bound)

    # n = ceil(ln(10^12) / -ln(1 - 2^-64)), and -ln(1 - u) = u + u^2/2 + u^3/3 + ...
    with localcontext(DIGITS):
        u = Decimal(2) ** -64
        ratio = (Decimal(10) ** 12).ln() / (u + u**2 / 2 + u**3 / 3)
        assert n == ratio.to_integral_value(ROUND_CEILING)
