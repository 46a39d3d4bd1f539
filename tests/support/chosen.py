"""Cases of which the ordinary tests take some, and `make slow` or `make nightly` the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def ordinarily(few: int, cases: Iterable[Any]) -> list[Any]:
    """The cases of a `parametrize`: the first few, and the others marked as slow."""
    return [case if at < few else pytest.param(case, marks=pytest.mark.slow) for at, case in enumerate(cases)]


def every(step: int) -> pytest.MarkDecorator:
    """A crash at every so many points ordinarily, and at all of them in the slow test: the argument `step`."""
    return pytest.mark.parametrize("step", [step, pytest.param(1, marks=pytest.mark.slow)])
