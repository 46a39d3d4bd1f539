from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import experiments.subset as package
from experiments.__main__ import experiments
from experiments.subset import numbers as subset_numbers
from experiments.subset import score_sets
from experiments.subset.numbers import Comparison

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small selections, no tables of a million items and few points of the curves: the rest is more of the same."""
    monkeypatch.setattr(subset_numbers, "KS", (10,))
    monkeypatch.setattr(subset_numbers, "NOISE_KS", (10,))
    monkeypatch.setattr(subset_numbers, "MADE_UP", {5: "netflix-like", 3: "zipfian"})
    monkeypatch.setattr(subset_numbers, "CURVE_POINTS", 4)
    monkeypatch.setattr(subset_numbers, "EXPONENTS", (0.0, 0.01, 0.04, 1.0))


def run(*arguments: str, folder: Path) -> Result:
    return CliRunner().invoke(
        experiments, ["subset", "--runs", "20", "--folder", str(folder), *arguments], env={"COLUMNS": "80"}
    )


def rows(result: Result, words: int) -> list[list[str]]:
    return [row for line in result.stdout.splitlines() if len(row := line.split()) == words]


def test_the_figures_are_told_in_numbers_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_numbers, "KS", (10, 100))
    picture = tmp_path / "made" / "subset.png"
    result = run(folder=picture.parent)

    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = result.stdout.splitlines()
    assert ["netflix-like", "10", "0.00991", "0.00661", "0.00507", "0.0446", "0.0496", "6.75", "6", "6"] in rows(
        result, 10
    )
    assert ["100", "1.76", "1.47", "0.904", "79.2", "88", "54", "34", "34"] in rows(result, 9)
    assert ["10", "0.0446", "0.04771", "0.04956", "0.05599", "0.06446"] in rows(result, 6)
    assert ["signed", "γ=3/4", "0", "0.363", "1.000", "1.000"] in rows(result, 6)
    assert sum(line.startswith("✓") for line in lines) == 6
    assert "Reproduced: all 6 claims came out again." in result.stdout
    assert any(line.endswith("one-shot, peeling") for line in lines)
    assert max(map(len, lines)) <= max(80, len(f"Picture: {picture}"))


def test_a_machine_reads_every_number(tmp_path: Path) -> None:
    result = run("--json", "--figure", "5", "--figure", "2", folder=tmp_path)
    told: dict[str, Any] = json.loads(result.stdout)

    assert result.exit_code == 0
    assert (told["reproduced"], told["published_tables"], told["runs"]) == (True, False, 20)
    assert told["noises"] == []
    (small,) = told["tables"]
    assert (small["table"], small["k"], small["label"]) == ("netflix-like", 10, 6)
    assert small["factor"] == pytest.approx(
        small["epsilon_almost_sure"]["one-shot"] / small["epsilon_almost_sure"]["canonical γ=1"]
    )
    for sweep in (*told["tables"], *told["exponents"]):
        assert len(sweep["curves"]) == 5
        for name, curve in sweep["curves"].items():
            assert len(curve["at"]) == len(curve["top"]) == 4
            exact = name not in ("one-shot", "peeling")
            steps = zip(curve["top"], curve["great"], curve["good"], strict=True)
            assert all(0 <= top <= great + 1e-12 <= good + 2e-12 <= 1 + 1e-9 for top, great, good in steps if exact)
    assert told["exponents"][0]["curves"]["canonical γ=1/2"]["top"][1] == pytest.approx(0.9998218824843018)


def test_a_seed_repeats_what_is_simulated() -> None:
    one, again, other = (subset_numbers.study((5,), None, 50, seed, lambda step: None) for seed in (1, 1, 2))
    shares = [study.comparisons[0].curves["peeling"].good.tolist() for study in (one, again, other)]

    assert shares[0] == shares[1] != shares[2]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose only table passes for one of the authors', and is another."""
    np.save(tmp_path / "NETFLIX.n17770.npy", score_sets.netflix_like())
    digest = sha256((tmp_path / "NETFLIX.n17770.npy").read_bytes()).hexdigest()
    monkeypatch.setitem(score_sets.PUBLISHED, "netflix", ("NETFLIX.n17770", digest))
    return tmp_path


def test_published_tables_are_read_from_their_folder(tables: Path) -> None:
    result = run("--data", str(tables), "--figure", "1", folder=tables)

    assert result.exit_code == 0, result.output
    assert ["netflix", "10", "0.00991", "0.00661", "0.00507", "0.0446", "0.0496", "6.75", "6", "6"] in rows(result, 10)
    assert "✓ netflix, k = 10: a budget 6 times smaller is enough (±2), found 6" in result.stdout


def test_a_claim_that_does_not_come_out_fails_the_command(tables: Path) -> None:
    result = run("--data", str(tables), "--figure", "4", folder=tables)

    assert result.exit_code == 1
    assert "✗ noises, k = 10: within ±0.5% of what was computed before, found 5" in result.stdout
    assert "NOT reproduced: 1 of 2 claims" in result.stdout


def test_a_label_beside_the_known_one_is_no_reproduction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(subset_numbers.LABELS, "netflix-like", {10: 9})
    result = run("--figure", "5", folder=tmp_path)

    assert result.exit_code == 1
    assert "✗ netflix-like, k = 10: a budget 9 times smaller is enough (±2), found 6" in result.stdout


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    result = run("--data", str(tmp_path), "--figure", "10", folder=tmp_path)

    assert result.exit_code == 1
    assert "HEPTH.n4096.npy: No such file" in result.stderr


@pytest.mark.parametrize(("least", "most", "label"), [(1.0, 6.84, 6), (1.0, 54.0, 34), (1.0, 450.0, 81)])
def test_the_rule_of_the_paper_understates_large_factors(least: float, most: float, label: int) -> None:
    needed = {"canonical γ=1/2": least, "canonical γ=1": 2 * least, "one-shot": most, "peeling": most + 1}
    one = Comparison("netflix", 10, needed, needed, 1.0, {})

    assert (one.factor, one.label) == (most, label)


def test_a_tie_at_rank_k_is_told_and_needs_no_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_sets, "netflix_like", lambda: np.repeat([9, 4], [11, 300]))
    monkeypatch.setattr(subset_numbers, "KS", (2, 11, 20))
    monkeypatch.setattr(subset_numbers, "MADE_UP", {5: "netflix-like"})
    result = run("--figure", "5", folder=tmp_path)

    assert ["20", "tie", "tie", "tie", "tie", "tie"] in rows(result, 6)


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("--figure", "4", folder=tmp_path / "file" / "folder")

    assert result.exit_code == 1
    assert "subset.png: Not a directory" in result.stderr


def test_without_matplotlib_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(package, "picture", raising=False)
    loaded = [name for name in sys.modules if name.startswith("matplotlib.")]
    for name in [*loaded, "experiments.subset.picture"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(folder=tmp_path)

    assert result.exit_code == 1
    assert "matplotlib is missing: run `pip install -r experiments/requirements.txt`" in result.stderr
