"""Cases of which the ordinary tests take some, and `make slow` or `make nightly` the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import Any

import pytest
from hypothesis import settings


def ordinarily(few: int, cases: Iterable[Any]) -> list[Any]:
    """The cases of a `parametrize`: the first few, and the others marked as slow."""
    return [case if at < few else pytest.param(case, marks=pytest.mark.slow) for at, case in enumerate(cases)]


def every(step: int) -> pytest.MarkDecorator:
    """Of points of a crash, or other cases, one of so many ordinarily, all in the slow test: the argument `step`."""
    return pytest.mark.parametrize("step", [step, pytest.param(1, marks=pytest.mark.slow)])


def kept_ordinary(kept: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases of a `parametrize`: those of the first collection, and the others marked as slow."""
    return [case if case in kept else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def spread(step: int, cases: Iterable[Any]) -> list[Any]:
    """The cases of a `parametrize`: the first and each so many behind it, and those between marked as slow."""
    return [pytest.param(case, marks=pytest.mark.slow) if at % step else case for at, case in enumerate(cases)]


def examples(
    few: int, many: int, drawn: Callable[[Callable[..., None]], Callable[..., None]], **options: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test of what Hypothesis draws: few examples ordinarily, and many in the slow test: the argument `number`."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        tests = {number: settings(max_examples=number, **options)(drawn(test)) for number in (few, many)}

        @wraps(test)
        def run(*, number: int, **others: Any) -> None:
            tests[number](**others)

        signature = inspect.signature(tests[few])
        asked = [*signature.parameters.values(), inspect.Parameter("number", inspect.Parameter.KEYWORD_ONLY)]
        run.__signature__ = signature.replace(parameters=asked)  # type: ignore[attr-defined]
        pytest.mark.parametrize("number", [few, pytest.param(many, marks=pytest.mark.slow)])(run)
        return run

    return decorate
