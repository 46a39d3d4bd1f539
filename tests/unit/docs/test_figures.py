from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FIGURES = Path(__file__).parents[3] / "docs" / "figures"


def test_the_picture_in_the_documents_is_the_one_the_script_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = tmp_path / "noise-path.svg"
    monkeypatch.setattr(sys, "argv", ["noise_path.py", str(drawn)])
    runpy.run_path(str(FIGURES / "noise_path.py"), run_name="__main__")

    assert drawn.read_text(encoding="utf-8") == (FIGURES / "noise-path.svg").read_text(encoding="utf-8")
