"""Checks of exact parameters: the faults of those that are out of range or are not exact, each with its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Any

from stream_dp.errors import Fault, ParameterError


def refuse(faults: list[Fault]) -> None:
    """Raise the faults of parameters together, if there are any."""
    if faults:
        raise ParameterError(faults)


def whole_faults(**numbers: object) -> list[Fault]:
    """Return the faults of parameters that have to be whole numbers of at least 1."""
    return _faults(numbers, int, lambda value: value >= 1, "a whole number of at least 1")


def positive_faults(**numbers: object) -> list[Fault]:
    """Return the faults of parameters that have to be fractions above 0."""
    return _faults(numbers, Fraction, lambda value: value > 0, "an exact fraction above 0")


def nonnegative_faults(**numbers: object) -> list[Fault]:
    """Return the faults of parameters that have to be fractions of at least 0."""
    return _faults(numbers, Fraction, lambda value: value >= 0, "an exact fraction of at least 0")


def chance_faults(**numbers: object) -> list[Fault]:
    """Return the faults of parameters that have to be fractions between 0 and 1."""
    return _faults(numbers, Fraction, lambda value: 0 < value < 1, "an exact fraction between 0 and 1")


def member_faults(kind: type[StrEnum], **values: object) -> list[Fault]:
    """Return the faults of parameters that have to be members of an enumeration."""
    return _faults(values, kind, lambda _: True, f"one of {', '.join(kind)}")


def _faults(values: Mapping[str, object], kind: type, is_allowed: Callable[[Any], bool], words: str) -> list[Fault]:
    return [
        Fault(name, f"must be {words}, not {value!r}")
        for name, value in values.items()
        if not isinstance(value, kind) or isinstance(value, bool) or not is_allowed(value)
    ]
