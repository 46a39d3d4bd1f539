"""Field types of settings (sections, exact numbers, texts, names), for the file and for every kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator

from stream_dp.exact.rationals import Inexact, parse_exact

LEAST_EPSILON, LEAST_DELTA = Fraction(1, 10**9), Fraction(1, 10**30)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _exact(value: object) -> Fraction:
    if isinstance(value, Fraction) and value >= 0:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return parse_exact(str(value))
    if isinstance(value, Inexact | float):
        text = value.text if isinstance(value, Inexact) else repr(value)
        parse_exact(text)
        raise ValueError(f'{text} becomes a binary float, which is not the number you wrote; quote it: "{text}"')
    if isinstance(value, str):
        return parse_exact(value)
    raise ValueError('write an exact number in quotes: "0.25", "1/3" or "1e-6"')


def must(holds: Callable[[Any], object], words: str) -> AfterValidator:
    """Refuse values of which something does not hold; the words say what they must be."""

    def check(value: object) -> object:
        if not holds(value):
            raise ValueError(f"must {words}")
        return value

    return AfterValidator(check)


def _epsilon(value: Fraction) -> Fraction:
    if value < LEAST_EPSILON:
        raise ValueError(f"{value} is too small: the noise for it has no end; write at least 1e-9")
    return value


def _delta(value: Fraction) -> Fraction:
    if 0 < value < LEAST_DELTA:
        raise ValueError(f"{value} is too small: no count reaches the threshold for it; write at least 1e-30")
    return value


def check_topic(value: str) -> str:
    """A name Kafka takes for a topic.

    Raises:
        ValueError: it does not.
    """
    if not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise ValueError("a topic's name is 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
    return value


Exact = Annotated[Fraction, PlainValidator(_exact)]
Epsilon = Annotated[Exact, must(bool, "be above 0"), AfterValidator(_epsilon)]
Delta = Annotated[
    Exact, AfterValidator(_delta), must(lambda delta: delta < 1, "be below 1: a delta of 1 promises nothing")
]
DiscoveryDelta = Annotated[
    Delta, must(bool, "be above 0: which keys exist is unknown, and showing one cannot be free of delta")
]
"""A delta that pays for showing keys that nobody named before."""
Rank = Annotated[int, Field(ge=1, le=1_000_000)]
"""Most keys that a release shows, those with the largest noisy counts."""
Text = Annotated[str, Field(min_length=1)]
Topic = Annotated[str, AfterValidator(check_topic)]


class Section(BaseModel):
    """A part of the file: unknown keys are faults, nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
