from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.accounting import Cost
from stream_dp.accounting.cost import ENTRIES
from stream_dp.errors import ParameterError, StateError
from tests.support.chosen import examples


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


def test_entries_add_each_on_its_own() -> None:
    one = Cost(Fraction(1), Fraction(2), Fraction(4))
    other = Cost(Fraction(1, 2), Fraction(0), Fraction(1, 4))
    assert one + other == Cost(Fraction(3, 2), Fraction(2), Fraction(17, 4))
    assert (one + other) - other == one
    assert one * 3 == one + one + one
    assert other * 0 == Cost.ZERO
    assert str(other) == "(epsilon 1/2, delta 0, rho 1/4)"
    assert str(cost("1")) == "(epsilon 1, delta 0)"


@pytest.mark.parametrize("entry", ENTRIES)
def test_order_and_subtraction_look_at_every_entry(entry: str) -> None:
    all_one = Cost(*[Fraction(1)] * 3)
    less = Cost(*(Fraction(99 if name == entry else 100, 100) for name in ENTRIES))
    assert less <= all_one
    assert not all_one <= less
    assert getattr(all_one - less, entry) == Fraction(1, 100)
    with pytest.raises(StateError, match="never negative"):
        less - all_one
    assert less.most(all_one) == all_one


def test_equal_costs_are_equal_whatever_they_were_added_up_from() -> None:
    third = cost("1/3", "1/7")
    summed = third + third + third
    assert summed == cost("1", "3/7")
    assert hash(summed) == hash(cost("1", "3/7"))
    assert (summed.epsilon, summed.delta) == (Fraction(1), Fraction(3, 7))
    assert summed != cost("1", "4/7")
    assert summed != 1


@examples(30, 100, given(*[st.tuples(*[st.fractions(min_value=0, max_denominator=10**6)] * 3)] * 2))
def test_every_operation_is_that_of_fractions(one: tuple[Fraction, ...], other: tuple[Fraction, ...]) -> None:
    a, b = Cost(*one), Cost(*other)
    assert tuple(a + b) == tuple(x + y for x, y in zip(one, other, strict=True))
    assert tuple((a + b) - b) == one
    assert (a <= b) == all(x <= y for x, y in zip(one, other, strict=True))
    assert (a == b) == (one == other)
    assert tuple(a.most(b)) == tuple(map(max, one, other))
    assert tuple(a.least(b)) == tuple(map(min, one, other))
    if any(other):
        assert a.fits(b) == min(x // y for x, y in zip(one, other, strict=True) if y)


def test_how_often_a_cost_goes_into_another_is_decided_by_its_scarcest_entry() -> None:
    budget = Cost(Fraction(10), Fraction(1), Fraction(7))
    assert budget.fits(Cost(Fraction(1), Fraction(0), Fraction(2))) == 3
    assert budget.fits(Cost(Fraction(0), Fraction(0), Fraction(1, 2))) == 14


@pytest.mark.parametrize("delta", [Fraction(-1, 10**9), 1e-9, 0])
def test_inexact_or_negative_parts_are_refused_by_name(delta: object) -> None:
    with pytest.raises(ParameterError, match="delta: must be an exact fraction"):
        Cost(Fraction(1), delta)  # type: ignore[arg-type]
