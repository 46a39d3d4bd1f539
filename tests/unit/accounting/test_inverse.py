from __future__ import annotations

from fractions import Fraction

import pytest

from stream_dp.accounting.composition import rho_within
from stream_dp.accounting.rounding import largest
from stream_dp.errors import ParameterError


@pytest.mark.parametrize(
    "limit", [Fraction(1), Fraction(2), Fraction(1, 2**70), Fraction(3, 8), Fraction(2**64 - 1), Fraction(5 * 2**90)]
)
def test_a_limit_of_at_most_64_bits_is_found_exactly(limit: Fraction) -> None:
    assert largest(lambda x: x <= limit) == limit


@pytest.mark.parametrize("limit", [Fraction(1, 3), Fraction(10**40 + 1), Fraction(1, 10**40), 2 - Fraction(1, 2**100)])
def test_another_limit_is_rounded_down_by_less_than_its_64th_bit(limit: Fraction) -> None:
    found = largest(lambda x: x < limit)

    assert 0 < limit - found < limit / 2**63


def test_only_numbers_that_were_seen_to_keep_the_bound_are_returned() -> None:
    seen: list[Fraction] = []

    def blurred(x: Fraction) -> bool:
        kept = x < Fraction(1, 3) - Fraction(int(x * 2**70) % 3, 2**66)
        if kept:
            seen.append(x)
        return kept

    assert largest(blurred) in seen


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1), 1.0])
def test_a_target_that_nothing_keeps_is_refused(epsilon: Fraction) -> None:
    with pytest.raises(ParameterError):
        rho_within(epsilon, Fraction(1, 2))


@pytest.mark.parametrize("exponent", [-4000, -65, -3, -1, 0, 1, 2, 7, 64, 1000])
@pytest.mark.parametrize("mantissa", [1 << 63, (1 << 63) + 1, (1 << 64) - 1])
def test_the_largest_number_is_found_in_few_steps_however_far_it_is(exponent: int, mantissa: int) -> None:
    bound = Fraction(mantissa) * Fraction(2) ** exponent
    asked = 0

    def within(number: Fraction) -> bool:
        nonlocal asked
        asked += 1
        return number <= bound

    assert largest(within) == bound
    assert asked < 64 + 35
