from __future__ import annotations

from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError, StateError


def cost(epsilon: str, delta: str = "0") -> Cost:
    return Cost(Fraction(epsilon), Fraction(delta))


def test_costs_add_and_subtract_without_rounding() -> None:
    third = cost("1/3", "1e-9")
    assert third + third + third == cost("1", "3e-9")
    assert cost("1", "3e-9") - third - third == third
    assert Cost.ZERO + third == third


def test_order_asks_for_both_parts() -> None:
    assert cost("0.1", "1e-9") <= cost("0.1", "1e-9")
    assert not cost("0.1", "2e-9") <= cost("0.2", "1e-9")
    assert not cost("0.2", "1e-9") <= cost("0.1", "2e-9")


@pytest.mark.parametrize(("small", "large"), [("0.1", "0.2"), ("0", "1e-30")])
def test_taking_more_than_there_is_is_refused(small: str, large: str) -> None:
    with pytest.raises(StateError, match="never negative"):
        cost(small) - cost(large)


@pytest.mark.parametrize("delta", [Fraction(-1, 10**9), 1e-9, 0])
def test_inexact_or_negative_parts_are_refused_by_name(delta: object) -> None:
    with pytest.raises(ConfigError, match="delta: must be an exact fraction"):
        Cost(Fraction(1), delta)  # type: ignore[arg-type]
