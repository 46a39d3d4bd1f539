from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import experiments.gap as package
from experiments.__main__ import experiments
from experiments.gap import numbers as gap_numbers
from experiments.gap import transactions
from experiments.gap.numbers import SeededBits, Study
from experiments.gap.transactions import Transactions

pytestmark = pytest.mark.slow

TABLES = (
    Transactions("T40I10D100K", "T40I10D100K.dat", 2_000, 250),
    Transactions("BMS-POS", "BMS-POS.dat", 3_000, 300),
    Transactions("Kosarak", "kosarak.dat", 60_000, 900),
)


class Clock:
    """A processor that does nothing but draw bits, each call in a microsecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now

    def counted(self, draw: Callable[[int], int]) -> Callable[[int], int]:
        def bits(n: int) -> int:
            self.now += 1e-6
            return draw(n)

        return bits


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables, few k, and times that depend on the noise alone."""
    clock = Clock()

    class Counted(SeededBits):
        def __init__(self, *seed: object) -> None:
            super().__init__(*seed)
            self.bits: Callable[[int], int] = clock.counted(self.bits)

    monkeypatch.setattr(transactions, "PUBLISHED", TABLES)
    monkeypatch.setattr(gap_numbers, "KS", (25, 50, 200))
    monkeypatch.setattr(gap_numbers, "RATIO_DRAWS", 2_000)
    monkeypatch.setattr(gap_numbers, "SeededBits", Counted)
    monkeypatch.setattr(time, "process_time", clock)


def run(*arguments: str, folder: Path) -> Result:
    return CliRunner().invoke(
        experiments, ["gap", "--runs", "4", "--folder", str(folder), *arguments], env={"COLUMNS": "80"}
    )


@pytest.fixture(autouse=True)
def small_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs the small form."""
    make_small(monkeypatch)


@pytest.fixture(scope="module")
def measured() -> Iterator[Study]:
    """The small form, measured once."""
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        yield gap_numbers.study(None, 4, 1, lambda steps: None)


def test_the_tables_are_told_in_numbers_and_pictures(tmp_path: Path) -> None:
    picture = tmp_path / "made" / "gap.png"
    result = run(folder=picture.parent)

    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = result.stdout.splitlines()
    rows = [line.split() for line in lines]
    assert any(row[:2] == ["900", "25"] and row[3] == "(458)" for row in rows)
    assert any(row[:3] == ["geometric", f"{900 + 202:,}", "42,874"] for row in rows), result.stdout
    assert "Bernoulli calls for each geometric number: 7.0185 on average (printed 7.07)" in result.stdout
    assert "a refinement draws noise for k + 2 = 202 keys again, found 202" in " ".join(result.stdout.split())
    assert "Reproduced: all 12 claims came out again." in result.stdout
    assert "Kosarak (made up, 900 items)" in result.stdout
    assert max(map(len, lines)) <= max(80, len(f"Picture: {picture}"))


def test_a_machine_reads_every_number(tmp_path: Path) -> None:
    told: dict[str, Any] = json.loads(run("--json", folder=tmp_path).stdout)

    assert (told["reproduced"], told["runs"], told["seed"]) == (True, 4, 1)
    assert [ratio["printed"] for ratio in told["ratios"]] == pytest.approx([7.07, 8.62], abs=0.005)
    assert [table["items"] for table in told["tables"]] == [250, 300, 900]
    for table in told["tables"]:
        assert [cell["k"] for cell in table["cells"]] == [25, 50, 200]
        for cell in table["cells"]:
            assert set(cell["seconds"]) == {"secure", "pruned", "insecure", "released"}
            refined = sum(cell["refined"])
            assert cell["draws_per_item"]["pruned"] == pytest.approx(1 + refined / 4 / table["items"])
            assert len(cell["refined"]) == 4 * cell["refinements"]
    calls = told["calls"]
    assert calls["sort"] - 1 == round((calls["geometric"] - 900) / 202)


@pytest.mark.parametrize(("k", "ratio"), [(1, (1, 20)), (25, (1, 500)), (800, (1, 16_000))])
def test_the_noise_is_that_of_the_paper(k: int, ratio: tuple[int, int]) -> None:
    assert gap_numbers.scale(k) == ratio


def test_a_seed_repeats_every_draw() -> None:
    one, again, other = (gap_numbers.study(None, 1, seed, lambda steps: None) for seed in (5, 5, 6))

    assert one.ratios == again.ratios != other.ratios
    assert one.calls == again.calls != other.calls


def test_a_published_file_takes_the_place_of_what_is_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kosarak.dat"
    file.write_text("".join(f"{' '.join(str(item) for item in range(1, 301 - line))}\n" for line in range(40)))
    monkeypatch.setattr(transactions, "PUBLISHED", (TABLES[0], Transactions("Kosarak", "kosarak.dat", 40, 300)))
    told = json.loads(run("--json", "--runs", "1", "--data", str(tmp_path), folder=tmp_path).stdout)

    assert [(table["items"], table["published"]) for table in told["tables"]] == [(250, False), (300, True)]


def test_a_file_that_is_not_the_published_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "BMS-POS.dat").write_text("1 2 3\n")
    result = run("--data", str(tmp_path), folder=tmp_path)

    assert result.exit_code == 1
    assert "BMS-POS.dat is not BMS-POS: it has 1 and 3 transactions and items, not 3,000 and 300" in result.stderr


def test_a_folder_without_any_of_the_files_is_refused(tmp_path: Path) -> None:
    result = run("--data", str(tmp_path), folder=tmp_path)

    assert result.exit_code == 1
    assert "has none of T40I10D100K.dat, BMS-POS.dat, kosarak.dat" in result.stderr


@pytest.mark.parametrize(
    ("name", "value", "claim"),
    [
        ("_FLAT", 1.01, "Kosarak, k from 25 to 200: draws, pruned, grow by a factor below 1.01"),
        ("_GROWN", 9.0, "Kosarak, k from 25 to 200: draws, secure, grow by a factor above 9"),
        ("_MUCH_GROWN", 50.0, "Kosarak, k from 25 to 200: the time for gaps grows with k, by a factor above 50"),
        ("_FASTER", 1e6, "Kosarak, k from 25 to 200: released is more than 1e+06 times as fast as pruned"),
    ],
)
def test_another_shape_is_no_reproduction(
    name: str, value: float, claim: str, measured: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(one.holds for one in measured.claims)
    monkeypatch.setattr(gap_numbers, name, value)

    assert any(one.text.startswith(claim) and not one.holds for one in measured.claims)


def test_a_claim_that_does_not_come_out_fails_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap_numbers, "BERNOULLIS", 7.5)
    monkeypatch.setattr(transactions, "PUBLISHED", TABLES[-1:])
    result = run("--runs", "1", folder=tmp_path)

    assert result.exit_code == 1
    assert "✗ Bernoulli calls for each geometric number: 7.5000 on average" in result.stdout
    assert "NOT reproduced" in result.stdout


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(transactions, "PUBLISHED", TABLES[:1])
    result = run("--runs", "1", folder=tmp_path / "file" / "folder")

    assert result.exit_code == 1
    assert "gap.png: Not a directory" in result.stderr


def test_without_matplotlib_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(package, "picture", raising=False)
    loaded = [name for name in sys.modules if name.startswith("matplotlib.")]
    for name in [*loaded, "experiments.gap.picture"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(folder=tmp_path)

    assert result.exit_code == 1
    assert "matplotlib is missing: run `pip install -r experiments/requirements.txt`" in result.stderr
