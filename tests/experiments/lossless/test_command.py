from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import experiments.lossless as package
from experiments.__main__ import experiments
from experiments.lossless import figure2
from experiments.lossless.figure2 import ORDERS, RELEASES, tolerance

pytestmark = pytest.mark.slow

RUNS = 2_000
TABLE = {2: 0.10002, 5: 67.4858, 10: 317.198, 20: 884.007, 50: 2633.77, 100: 5565.36}
"""Variance of the second independent release (specs/lossless 4)."""


def run(*arguments: str, folder: Path) -> Result:
    return CliRunner().invoke(
        experiments, ["lossless", "--runs", str(RUNS), "--folder", str(folder), *arguments], env={"COLUMNS": "80"}
    )


def test_figure_2_is_told_in_numbers_and_pictures(tmp_path: Path) -> None:
    picture = tmp_path / "made" / "lossless.png"
    result = run(folder=picture.parent)

    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = result.stdout.splitlines()
    rows = {int(row[0]): row for line in lines if len(row := line.split()) == 9 and row[0].isdigit()}
    assert {n: float(row[2]) for n, row in rows.items()} == TABLE
    assert [row[1] for row in rows.values()] == ["1.0002", "1.135", "1.6344", "2.768", "6.2675", "12.131"]
    assert "Reproduced: all numbers of the table are within ±12.65% of the closed forms" in result.stdout
    assert any("n=100" in line for line in lines)
    assert any(line.split() == ["0.001", "0.01", "0.1", "1"] for line in lines)
    assert max(map(len, lines)) <= max(80, len(f"Picture: {picture}"))


def test_a_machine_reads_every_variance(tmp_path: Path) -> None:
    result = run("--json", "--seed", "3", folder=tmp_path)
    told: dict[str, Any] = json.loads(result.stdout)

    assert result.exit_code == 0
    assert (told["runs"], told["seed"], told["reproduced"]) == (RUNS, 3, True)
    assert told["tolerance"] == pytest.approx(tolerance(RUNS))
    assert [one["releases"] for one in told["series"]] == list(RELEASES)
    for one in told["series"]:
        assert set(one["lossless"]) == {"expected", *ORDERS}
        assert {len(curve) for curve in (one["budgets"], *one["lossless"].values(), *one["independent"].values())} == {
            one["releases"]
        }
        assert one["independent"]["expected"][1] == pytest.approx(TABLE[one["releases"]], rel=1e-5)


def test_a_seed_repeats_the_output(tmp_path: Path) -> None:
    one, again = (run("--json", folder=tmp_path).stdout for _ in range(2))

    assert one == again


def test_a_number_outside_the_tolerance_fails_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure2, "tolerance", lambda runs: 1e-6)
    result = run(folder=tmp_path)

    assert result.exit_code == 1
    assert "NOT reproduced" in result.stdout


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run(folder=tmp_path / "file" / "folder")

    assert result.exit_code == 1
    assert "lossless.png: Not a directory" in result.stderr


def test_without_matplotlib_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(package, "picture", raising=False)
    loaded = [name for name in sys.modules if name.startswith("matplotlib.")]
    for name in [*loaded, "experiments.lossless.picture"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(folder=tmp_path)

    assert result.exit_code == 1
    assert "matplotlib is missing: run `pip install -r experiments/requirements.txt`" in result.stderr
