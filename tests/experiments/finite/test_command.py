from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from experiments.__main__ import experiments
from experiments.finite import numbers

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """One size of each curve: times are not compared."""
    sizes = {name: (axis, sizes[:1]) for name, (axis, sizes) in numbers.SLOPES.items()}
    monkeypatch.setattr(numbers, "SLOPES", sizes)


def run(*arguments: str, folder: Path) -> Result:
    return CliRunner().invoke(experiments, ["finite", "--folder", str(folder), *arguments], env={"COLUMNS": "90"})


def test_the_figures_are_told_beside_the_numbers_of_the_code(tmp_path: Path) -> None:
    picture = tmp_path / "made" / "finite.png"
    result = run(folder=picture.parent)

    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = {" ".join(line.split()[1:-2]): line.split()[-2:] for line in result.stdout.splitlines()}
    assert rows["BasicHistogram, one key 1 2^20"] == ["14", "6"]
    assert rows["BasicHistogram, all keys 1/10 2^64"] == ["2,132", "949"]
    assert rows["StabilityHistogram, threshold 1/10 2^20"] == ["1,312", "556"]


def test_json_has_the_same_numbers(tmp_path: Path) -> None:
    found = json.loads(run("--json", folder=tmp_path).stdout)

    assert found["reproduced"] is True
    assert len(found["figures"]) == 7 * len(numbers.SETTINGS)


def test_a_number_above_the_paper_s_is_no_reproduction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worse = numbers.Row(3, "BasicHistogram, one key", "1", 20, printed=14, found=15)
    monkeypatch.setattr(numbers, "rows", lambda: iter([worse]))
    result = run(folder=tmp_path)

    assert result.exit_code == 1
    assert "above the paper's" in result.stdout
