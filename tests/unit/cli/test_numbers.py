from __future__ import annotations

from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.cli import display
from stream_dp.cli.demo import walkthrough
from stream_dp.records.models import Amount, PrivacyCost
from stream_dp.windows.durations import moment


@pytest.mark.parametrize(
    ("exact", "up"), [("1/3", "1/3"), ("1/40", "0.025"), ("27000005/10000000", "2.70001"), ("0", "0")]
)
def test_costs_are_rounded_up(exact: str, up: str) -> None:
    assert display.spent(Amount.up(Fraction(exact))) == up


def test_a_price_names_all_that_is_not_zero_of_it() -> None:
    some = Cost(Fraction(1, 3), Fraction(0), rho=Fraction(1, 8))
    assert display.price(PrivacyCost.spent(some)) == "epsilon 1/3, rho 0.125"
    assert display.price(PrivacyCost.spent(Cost.ZERO)) == "nothing"


def test_midnight_is_a_bare_date_and_other_moments_are_not() -> None:
    assert moment(0) == "1970-01-01"
    assert moment(3_600_000) == "1970-01-01T01:00:00Z"


def test_week_is_named_by_its_first_and_last_day() -> None:
    assert walkthrough.days(1_387_843_200_000, 1_388_448_000_000) == "24 Dec to 30 Dec 2013"


def test_key_cannot_move_a_cursor() -> None:
    assert display.printable("a\x1b[2Jb\nc é") == "a�[2Jb�c é"
