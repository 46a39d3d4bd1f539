from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FIGURES = Path(__file__).parents[3] / "docs" / "figures"


@pytest.mark.parametrize(("script", "picture"), [("noise_path.py", "noise-path.svg"), ("budgets.py", "budgets.svg")])
def test_the_picture_in_the_documents_is_the_one_the_script_draws(
    script: str, picture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = tmp_path / picture
    monkeypatch.setattr(sys, "argv", [script, str(drawn)])
    runpy.run_path(str(FIGURES / script), run_name="__main__")

    assert drawn.read_text(encoding="utf-8") == (FIGURES / picture).read_text(encoding="utf-8")
