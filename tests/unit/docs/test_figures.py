from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

FIGURES = Path(__file__).parents[3] / "docs" / "figures"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "picture"),
    [("noise_path.py", "noise-path.svg"), ("budgets.py", "budgets.svg"), ("selections.py", "selections.svg")],
)
def test_the_picture_in_the_documents_is_the_one_the_script_draws(
    script: str, picture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = tmp_path / picture
    monkeypatch.setattr(sys, "argv", [script, str(drawn)])
    runpy.run_path(str(FIGURES / script), run_name="__main__")

    assert drawn.read_text(encoding="utf-8") == (FIGURES / picture).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_tables_of_choosing_are_those_that_the_code_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = FIGURES.parent / "choosing.md"
    emptied = re.sub(r"(<!-- (\w+) -->\n).*?(<!-- /\2 -->)", r"\1\3", document.read_text("utf-8"), flags=re.DOTALL)
    written = tmp_path / "choosing.md"
    written.write_text(emptied, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["choosing.py", str(written)])
    runpy.run_path(str(FIGURES / "choosing.py"), run_name="__main__")

    assert emptied.count("|") < document.read_text("utf-8").count("|") - 50
    assert written.read_text(encoding="utf-8") == document.read_text(encoding="utf-8")


def test_the_pictures_of_the_page_are_small_and_their_script_still_fits_the_package() -> None:
    pytest.importorskip("playwright", reason="playwright is not installed")
    script = runpy.run_path(str(FIGURES / "dashboard.py"), run_name="dashboard")
    pictures = {FIGURES / f"{picture.name}.png" for picture in script["PICTURES"]}

    assert pictures == set(FIGURES.glob("dashboard*.png"))
    assert [file.name for file in pictures if file.stat().st_size > 200 << 10] == []
