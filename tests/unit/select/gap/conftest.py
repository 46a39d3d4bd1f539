"""Vectors of the selection with gaps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((Path(__file__).parents[3] / "vectors" / "gap.json").read_text())
    return loaded
