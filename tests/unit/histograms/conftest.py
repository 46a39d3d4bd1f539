"""The vectors of specs/finite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "finite.json").read_text())
    return found
