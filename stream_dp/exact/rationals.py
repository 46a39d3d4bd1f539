"""Exact numbers as text: read from a configuration, written into records and onto the screen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

_DECIMAL = re.compile(r"[0-9]{1,60}(\.[0-9]{1,60})?([eE][-+]?[0-9]{1,2})?")
_FRACTION = re.compile(r"[0-9]{1,60}/[0-9]{1,60}")
SIGNIFICANT_DIGITS = 12


@dataclass(frozen=True)
class Inexact:
    """A number that readers of YAML turn into a binary float, as it was written."""

    text: str


def parse_exact(text: str) -> Fraction:
    """A non-negative rational from a decimal ("0.25", "1e-6") or a fraction ("1/3"), exactly as written.

    Raises:
        ValueError: not such a text, or a fraction over zero.
    """
    if _FRACTION.fullmatch(text) and int(text.partition("/")[2]) == 0:
        raise ValueError("a fraction over zero")
    if not (_FRACTION.fullmatch(text) or _DECIMAL.fullmatch(text)):
        raise ValueError('write an exact number in quotes: "0.25", "1/3" or "1e-6"')
    return Fraction(text)


def exact_text(value: Fraction) -> str:
    """A rational as "p/q" in lowest terms, or "p"."""
    return str(value)


def decimal_up(value: Fraction, digits: int = SIGNIFICANT_DIGITS) -> str:
    """The smallest decimal of `digits` significant digits that is not below `value` >= 0: what was spent.

    Trailing zeros are dropped; numbers below 1/10000 are written with an exponent.
    """
    return _decimal(value, digits, up=True)


def decimal_down(value: Fraction, digits: int = SIGNIFICANT_DIGITS) -> str:
    """The largest decimal of `digits` significant digits that is not above `value` >= 0: what is left."""
    return _decimal(value, digits, up=False)


@lru_cache(maxsize=4096)
def _decimal(value: Fraction, digits: int, *, up: bool) -> str:
    if value < 0 or digits < 1:
        raise ValueError("needs a value >= 0 and at least one digit")
    if value == 0:
        return "0"
    exponent = len(str(value.numerator)) - len(str(value.denominator))
    if value < Fraction(10) ** exponent:
        exponent -= 1
    scaled = value * Fraction(10) ** (digits - 1 - exponent)
    mantissa = -(-scaled.numerator // scaled.denominator) if up else scaled.numerator // scaled.denominator
    if mantissa == 10**digits:
        mantissa, exponent = mantissa // 10, exponent + 1
    return _written(str(mantissa).rstrip("0"), exponent)


def _written(figures: str, exponent: int) -> str:
    """`figures[0].figures[1:]` times 10^exponent."""
    if exponent < -4:
        return figures[0] + ("." + figures[1:] if figures[1:] else "") + f"e{exponent}"
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + figures
    whole, part = figures[: exponent + 1].ljust(exponent + 1, "0"), figures[exponent + 1 :]
    return whole + ("." + part if part else "")
