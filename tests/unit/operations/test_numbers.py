from __future__ import annotations

from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.operations import numbers
from stream_dp.records.models import Amount, PrivacyCost


@pytest.mark.parametrize(
    ("exact", "up"), [("1/3", "1/3"), ("1/40", "0.025"), ("27000005/10000000", "2.70001"), ("0", "0")]
)
def test_costs_are_rounded_up(exact: str, up: str) -> None:
    assert numbers.spent(Amount.up(Fraction(exact))) == up


def test_a_price_names_all_that_is_not_zero_of_it() -> None:
    some = Cost(Fraction(1, 3), Fraction(0), rho=Fraction(1, 8))
    assert numbers.price(PrivacyCost.spent(some)) == "epsilon 1/3, rho 0.125"
    assert numbers.price(PrivacyCost.spent(Cost.ZERO)) == "nothing"


def test_columns_have_two_decimals_rounded_against_the_reader() -> None:
    value = Fraction("142.7000261")
    assert (numbers.cents_up(value), numbers.cents_down(value)) == ("142.71", "142.70")
    assert (numbers.cents_up(Fraction("58.3")), numbers.cents_down(Fraction("0.009"))) == ("58.30", "0.00")


def test_midnight_is_a_bare_date_and_other_moments_are_not() -> None:
    assert numbers.moment(0) == "1970-01-01"
    assert numbers.moment(3_600_000) == "1970-01-01T01:00:00Z"


def test_week_is_named_by_its_first_and_last_day() -> None:
    assert numbers.days(1_387_843_200_000, 1_388_448_000_000) == "24 Dec to 30 Dec 2013"


def test_key_cannot_move_a_cursor() -> None:
    assert numbers.printable("a\x1b[2Jb\nc é") == "a�[2Jb�c é"
