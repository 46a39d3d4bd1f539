from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import experiments.topk as package
from experiments.__main__ import experiments
from experiments.topk import command
from experiments.topk import numbers as topk_numbers
from stream_dp.accounting.composition import zcdp_epsilon

pytestmark = pytest.mark.slow

TABLE = {
    "0.01": ["1.000", "1.313", "1.435", "1.470", "1.503", "1.531"],
    "0.05": ["1.000", "1.381", "1.497", "1.550", "1.554", "1.556"],
    "0.1": ["1.000", "1.376", "1.498", "1.524", "1.523", "1.496"],
    "0.5": ["1.000", "1.000", "1.301", "1.301", "1.270", "1.206"],
    "1": ["1.000", "1.000", "1.070", "1.089", "1.073", "1.040"],
}


@pytest.fixture(autouse=True)
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """The points of the tables and the ends of the picture's curves: the rest is more of the same, and takes longer."""
    monkeypatch.setattr(topk_numbers, "DRAWS", (10, 20, 50, 100, 200, 500))
    monkeypatch.setattr(command, "PICTURE_WINDOWS", (1, 8640))


def run(*arguments: str, folder: Path) -> Result:
    return CliRunner().invoke(experiments, ["topk", "--folder", str(folder), *arguments], env={"COLUMNS": "80"})


def test_figure_1_and_the_sizes_are_told_in_numbers_and_pictures(tmp_path: Path) -> None:
    picture = tmp_path / "made" / "topk.png"
    result = run(folder=picture.parent)

    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = result.stdout.splitlines()
    rows = {row[0]: row[1:] for line in lines if len(row := line.split()) == 8 and row[0] in TABLE}
    assert {epsilon: row[:6] for epsilon, row in rows.items()} == TABLE
    assert all(abs(float(row[6])) <= 0.0005 for row in rows.values())
    month = next(line for line in lines if line.startswith("printed")).split()
    assert month[-7:] == ["daily", "30", "300", "0.05469", "8.33e-09", "467", "341"]
    leads = [line.split()[-2:] for line in lines if "hourly" in line]
    assert leads[:3] == [["2571", "1952"], ["2004", "1510"], ["900", "678"]]
    assert leads[3][-1] == "5511"
    assert "Reproduced: all 39 numbers" in result.stdout
    assert any("ε 0.5" in line and "⣀" not in line.split("ε")[1] for line in lines)
    assert any(line.split() == ["10", "100"] for line in lines)
    assert max(map(len, lines)) <= max(80, len(f"Picture: {picture}"))


def test_a_machine_reads_every_number(tmp_path: Path) -> None:
    result = run("--json", folder=tmp_path)
    told: dict[str, Any] = json.loads(result.stdout)

    assert result.exit_code == 0
    assert told["reproduced"] is True
    point = next(one for one in told["figure_1"] if one["epsilon"] == 0.05)["points"][1]
    assert point["draws"] == 20
    assert point["ratio"] == pytest.approx(point["optimal"] / point["bounded_range"])
    assert point["delta"] <= 1e-6
    sizes = {(row["statement"], row["schedule"]): row for row in told["sizes"]}
    assert len(sizes) == 12
    assert sizes["Laplace", "5 min"]["draws"] is sizes["Laplace", "5 min"]["lead_any_items"] is None
    for row in sizes.values():
        assert row["draws"] is None or row["draws"] >= row["calls"]


def test_paying_for_two_outputs_halves_the_lead_and_laplace_noise_suits_few_windows() -> None:
    full, short = (topk_numbers.pooled_months(pay_what_you_get=flag) for flag in (False, True))
    laplace = topk_numbers.laplace_months()

    for all_paid, some_paid in zip(full, short, strict=True):
        assert some_paid.lead[None] < all_paid.lead[None] / 2
    daily, *others = [one.lead[1] < all_paid.lead[1] for one, all_paid in zip(laplace, full, strict=True)]
    assert (daily, others) == (True, [False, False])


def test_a_month_in_a_pool_uses_its_budget_up() -> None:
    total, slack = topk_numbers.TOTAL, topk_numbers.SLACK
    found = topk_numbers.month(720, 1450)
    sizing, rho = found.parameters, 1450 * found.parameters.epsilon**2 / 8
    epsilon = zcdp_epsilon(rho, slack) + 1450 * sizing.delta

    assert total.epsilon * (1 - Fraction(1, 10**12)) < epsilon <= total.epsilon
    assert total.delta * (1 - Fraction(1, 10**12)) < 720 * sizing.delta + slack <= total.delta


def test_a_number_that_differs_in_its_last_digit_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(topk_numbers.SIZES, "daily", ("0.0547", "468", "341"))
    result = run(folder=tmp_path)

    assert result.exit_code == 1
    assert "NOT reproduced: 38 of 39" in result.stdout


@pytest.mark.parametrize(
    ("value", "printed", "same"),
    [("1.0005", "1.000", True), ("1.00051", "1.000", False), ("467.4", "467", True), ("466.4", "467", False)],
)
def test_numbers_agree_when_they_round_to_the_digits_given(value: str, printed: str, *, same: bool) -> None:
    assert topk_numbers.agrees(Fraction(value), printed) is same


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run(folder=tmp_path / "file" / "folder")

    assert result.exit_code == 1
    assert "topk.png: Not a directory" in result.stderr


def test_without_matplotlib_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(package, "picture", raising=False)
    loaded = [name for name in sys.modules if name.startswith("matplotlib.")]
    for name in [*loaded, "experiments.topk.picture"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(folder=tmp_path)

    assert result.exit_code == 1
    assert "matplotlib is missing: run `pip install -r experiments/requirements.txt`" in result.stderr
