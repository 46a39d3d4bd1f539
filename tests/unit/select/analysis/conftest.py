from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).parents[3] / "vectors"


def read(name: str) -> dict[str, Any]:
    vectors: dict[str, Any] = json.loads((VECTORS / name).read_text(encoding="utf-8"))
    return vectors


@pytest.fixture(scope="session")
def subset_vectors() -> dict[str, Any]:
    """The vectors of specs/subset."""
    return read("subset.json")


@pytest.fixture(scope="session")
def gap_vectors() -> dict[str, Any]:
    """The vectors of specs/gap."""
    return read("gap.json")
