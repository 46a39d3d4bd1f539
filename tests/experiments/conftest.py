from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).parents[1] / "vectors"


def read(name: str, **options: Any) -> dict[str, Any]:
    vectors: dict[str, Any] = json.loads((VECTORS / name).read_text(encoding="utf-8"), **options)
    return vectors


@pytest.fixture(scope="session")
def analysis_vector() -> Callable[[str], Any]:
    """Gives a vector of specs/lossless about continuous families or accounting by its id."""
    tests = {test["id"]: test for test in read("lossless_analysis.json")["tests"]}
    return tests.__getitem__


@pytest.fixture(scope="session")
def topk_vectors() -> dict[str, Any]:
    """The vectors of specs/topk about costs; decimals are read as the exact rationals they spell."""
    names = ("topk.json", "topk_accounting.json")
    return {key: value for name in names for key, value in read(name, parse_float=Fraction).items()}


@pytest.fixture(scope="session")
def subset_vectors() -> dict[str, Any]:
    """The vectors of specs/subset."""
    return read("subset.json")


@pytest.fixture(scope="session")
def gap_vectors() -> dict[str, Any]:
    """The vectors of specs/gap."""
    return read("gap.json")
