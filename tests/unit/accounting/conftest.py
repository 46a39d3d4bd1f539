from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).parents[2] / "vectors" / "lossless_analysis.json"


@pytest.fixture(scope="session")
def analysis_vector() -> Callable[[str], Any]:
    """Gives a vector of specs/lossless about continuous families or accounting by its id."""
    tests = {test["id"]: test for test in json.loads(VECTORS.read_text())["tests"]}
    return tests.__getitem__


@pytest.fixture(scope="session")
def topk_vectors() -> dict[str, Any]:
    """The vectors of specs/topk about costs; decimals are read as the exact rationals they spell."""
    loaded: dict[str, Any] = {}
    for name in ("topk.json", "topk_accounting.json"):
        loaded |= json.loads(VECTORS.with_name(name).read_text(), parse_float=Fraction)
    return loaded
