"""Exact numbers and times for the eye: costs are rounded up, what is left is rounded down."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

from stream_dp.exact.rationals import decimal_up
from stream_dp.records.models import Amount, PrivacyCost
from stream_dp.windows.durations import format_time

DIGITS = 6
_CENT = 100


def spent(amount: Amount) -> str:
    """A cost in the shortest form that says no less than it is: "0.025", "1/3", "2.70001"."""
    return amount.exact if len(amount.exact) < DIGITS <= len(amount.decimal) else decimal_up(amount.value, DIGITS)


def price(cost: PrivacyCost) -> str:
    """A cost with all that is not zero of it: "epsilon 1/3, delta 1e-6"."""
    named = [(name, amount) for name, amount in cost if amount is not None and amount.value]
    return ", ".join(f"{name} {spent(amount)}" for name, amount in named) or "nothing"


def cents_up(value: Fraction) -> str:
    """A cost with two decimals, for a column: "143.11"."""
    return _cents(-(-value * _CENT // 1))


def cents_down(value: Fraction) -> str:
    """What is left with two decimals, for a column."""
    return _cents(value * _CENT // 1)


def moment(time_ms: int) -> str:
    """A moment in UTC: a bare date at midnight, RFC 3339 otherwise."""
    written = format_time(time_ms)
    return written.removesuffix("T00:00:00Z")


def days(start_ms: int, end_ms: int) -> str:
    """An interval of whole days by its first and last day, as in "24 Dec to 30 Dec 2013"."""
    first, last = (datetime.fromtimestamp(time_ms / 1000, UTC) for time_ms in (start_ms, end_ms - 1))
    return f"{first.day} {first:%b} to {last.day} {last:%b %Y}"


def printable(text: str) -> str:
    """Return a key as it may be written on a terminal: events must not move the cursor."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _cents(cents: int) -> str:
    return f"{cents // _CENT}.{cents % _CENT:02d}"
