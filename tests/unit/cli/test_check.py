from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_dp.cli.check_command import check
from stream_dp.runtime import capacity as rates

Golden = Callable[[str, str], None]
RIGHT = """\
name: visits
broker: kafka://127.0.0.1:9092
data_dir: ./state
key_file: ./visits.key
sources:
  visits: {topic: visits, partitions: 2}
ledgers:
  visitors: {population: visitors of the site, epsilon: "30", delta: "1/10000", period: 7d}
ladders:
  two:
    - {level: coarse, epsilon: "1/3"}
    - {level: fine, epsilon: "1"}
audiences: {public: coarse, staff: fine}
views:
  pages:
    {source: visits, item: page, kind: histogram, items_per_user: 1, delta: "1e-6", window: {size: 1d},
     ledger: visitors, ladder: two}
  searches:
    {source: visits, item: query, kind: topk, k: 10, kbar: 50, selection: {epsilon: "1/10", delta: "1e-7"},
     items_per_user: 3, window: {size: 1d}, ledger: visitors, ladder: two, audiences: [public]}
"""
POOL = 'zcdp: {epsilon: "23", slack: "1e-7"}'
POOLED = (
    re.sub(r"(period: [0-9a-z]+)\}", rf"\1, {POOL}}}", RIGHT)
    .replace("public: coarse", "public: {level: coarse, unlock: [{level: fine, after: 2d}]}")
    .replace(
        'items_per_user: 1, delta: "1e-6", window: {size: 1d}',
        'items_per_user: 1, delta: "1e-6", window: {size: 6h, step: 3h}',
    )
)


@pytest.fixture(autouse=True)
def _no_broker_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)


def written(folder: Path, text: str) -> str:
    file = folder / "visits.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def page(folder: Path, text: str, *options: str, columns: int = 100) -> str:
    """What `check` prints, with the measurements of this machine left out."""
    result = CliRunner().invoke(check, [written(folder, text), *options], env={"COLUMNS": str(columns)})
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    measured = result.stdout.partition("\nspeed\n")[0]
    return re.sub(r"  On this machine.*?(?=\n +noise +mean)", "  (measured)", measured, flags=re.DOTALL)


def test_page_opens_with_what_every_audience_sees_and_pays(tmp_path: Path, golden: Golden) -> None:
    golden("check", page(tmp_path, RIGHT))


def test_page_of_overlapping_and_unlocked_windows_under_a_budget_with_a_pool(tmp_path: Path, golden: Golden) -> None:
    golden("check-pool", page(tmp_path, POOLED, columns=120))


def test_explanation_says_who_is_protected_and_what_every_level_costs(tmp_path: Path, golden: Golden) -> None:
    golden("check-explain", page(tmp_path, RIGHT, "--explain", columns=120))


def test_a_table_of_audiences_is_exact_for_machines(tmp_path: Path) -> None:
    described = json.loads(CliRunner().invoke(check, [written(tmp_path, RIGHT), "--json"]).stdout)
    rows = {(one["view"], one["audience"]): one for one in described["audiences"]}
    assert rows.keys() == {("pages", "public"), ("pages", "staff"), ("searches", "public")}
    staff = rows["pages", "staff"]
    assert (staff["level"], staff["later"], staff["seen"], staff["noise_interval_95"]) == (
        "fine",
        None,
        "from 16 users",
        3,
    )
    assert (staff["cost"]["epsilon"]["exact"], staff["period_cost"]["epsilon"]["exact"]) == ("1", "7")
    assert staff["period_cost"]["delta"]["exact"] == "7/1000000"
    assert (staff["lasts"], staff["period"]) == ("7d", "7d")


def test_each_part_of_a_budget_promises_and_affords(tmp_path: Path) -> None:
    described = json.loads(CliRunner().invoke(check, [written(tmp_path, POOLED), "--json"]).stdout)
    parts = {part["name"]: part for part in described["ledgers"][0]["parts"]}
    assert {name: (part["epsilon"]["exact"], part["unit"]) for name, part in parts.items()} == {
        "pure": ("7", "epsilon"),
        "zcdp": ("23", "rho"),
    }
    assert parts["zcdp"]["cap"]["decimal"].startswith("5.")


def test_page_fits_a_terminal_of_eighty_columns(tmp_path: Path) -> None:
    result = CliRunner().invoke(check, [written(tmp_path, RIGHT), "--explain"], env={"COLUMNS": "80"})
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "..." not in result.stdout
    assert "…" not in result.stdout


def test_machine_reads_exact_numbers_and_decimals(tmp_path: Path) -> None:
    result = CliRunner().invoke(check, [written(tmp_path, RIGHT), "--json"])
    described = json.loads(result.stdout)
    pages = described["views"][0]
    assert pages["levels"][0]["epsilon"] == {"exact": "1/3", "decimal": "0.333333333334"}
    assert pages["levels"][0]["cost"]["delta"] == {"exact": "1/1000000", "decimal": "1e-6"}
    assert described["ledgers"][0]["affords_schedule"] is True


def test_every_fault_goes_to_stderr_with_exit_code_2(tmp_path: Path) -> None:
    wrong = RIGHT.replace('epsilon: "1/3"', "epsilon: 0.33").replace("ledger: visitors,", "ledger: visitor,")
    result = CliRunner().invoke(check, [written(tmp_path, wrong)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{tmp_path}/visits.yaml: 3 faults",
        '  ladders.two[0].epsilon: 0.33 becomes a binary float, which is not the number you wrote; quote it: "0.33"',
        "  views.pages.ledger: no ledger is named 'visitor'; did you mean 'visitors'?",
        "  views.searches.ledger: no ledger is named 'visitor'; did you mean 'visitors'?",
    ]


def test_machine_reads_faults_as_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(check, [written(tmp_path, "name: visits"), "--json"])
    assert result.exit_code == 2
    faults = json.loads(result.stdout)["faults"]
    assert {"path": "broker", "message": "is required"} in faults


def test_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    result = CliRunner().invoke(check, [str(tmp_path / "none.yaml")])
    assert result.exit_code == 2
    assert "cannot be read: No such file or directory" in result.stderr


def test_the_explanation_says_when_releases_leave_and_what_the_offset_covers_on_this_machine(tmp_path: Path) -> None:
    slow = RIGHT.replace("sources:\n", "release: {slot: 500ms, offset: 5s}\nsources:\n", 1)
    result = CliRunner().invoke(check, [written(tmp_path, slow), "--explain"], env={"COLUMNS": "400"})
    assert "A release leaves at least 5s after its window closes, at the next multiple of 500ms." in result.stdout
    for view in ("pages", "searches"):
        assert re.search(
            rf"On this machine, a window of {view} takes [0-9.e+]+ ms .* Half of release.offset \(5s\)", result.stdout
        )
    described = json.loads(CliRunner().invoke(check, [written(tmp_path, slow), "--json"]).stdout)
    assert (described["slot"], described["offset"]) == ("500ms", "5s")
    assert described["computing"].keys() == {"pages", "searches"}
    assert described["computing"]["pages"]["keys_in_time"] > 0


def test_an_offset_that_covers_few_keys_is_told(tmp_path: Path) -> None:
    hasty = RIGHT.replace("sources:\n", "release: {offset: 0s}\nsources:\n", 1)
    result = CliRunner().invoke(check, [written(tmp_path, hasty)], env={"COLUMNS": "400"})
    assert result.exit_code == 0
    assert "on this machine: view pages: release.offset is 0s, and half of it is enough for fewer than" in result.stdout


def test_a_budget_that_does_not_last_for_the_first_windows_is_warned_of_and_fails_a_strict_check(
    tmp_path: Path,
) -> None:
    short = written(tmp_path, RIGHT.replace('epsilon: "30"', 'epsilon: "2"'))
    plain = CliRunner().invoke(check, [short], env={"COLUMNS": "400"})
    assert plain.exit_code == 0
    assert "warning: ledger visitors: budget too small. A period of 7d needs epsilon " in plain.stdout
    assert "It does not pay for the first windows of all its views together: some are refused from" in plain.stdout
    strict = CliRunner().invoke(check, [short, "--strict"], env={"COLUMNS": "400"})
    assert strict.exit_code == 3
    assert "budget too small" in strict.stdout
    assert CliRunner().invoke(check, [short, "--strict", "--json"]).exit_code == 3
    faulty = written(tmp_path, RIGHT.replace("epsilon", "epsilom", 1))
    assert CliRunner().invoke(check, [faulty, "--strict"]).exit_code == 2


def test_a_strict_check_passes_where_nothing_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine can do in time is its own affair, and measured: a warning of it would come at random."""
    monkeypatch.setattr("stream_dp.operations.check._too_slow", lambda *_: ["slow"])
    told = CliRunner().invoke(check, [written(tmp_path, RIGHT), "--strict", "--json"])
    assert told.exit_code == 0
    assert (json.loads(told.stdout)["warnings"], json.loads(told.stdout)["on_this_machine"]) == ([], ["slow"])


def test_a_plan_that_asks_for_more_windows_than_the_machine_releases_is_told_in_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "_erasing_ms", lambda: 512_000.0)
    often = RIGHT.replace("window: {size: 1d},\n     ledger", "window: {size: 1s},\n     ledger", 1)
    page = CliRunner().invoke(check, [written(tmp_path, often), "--explain"], env={"COLUMNS": "400"}).stdout
    assert "All views need 1 windows and 2 records a second." in page
    assert "on this machine: ledger visitors needs 1 windows a second; this machine releases about 0.5" in page
    (rate,) = json.loads(CliRunner().invoke(check, [written(tmp_path, often), "--json"]).stdout)["rates"]
    assert rate["windows_a_second"] == pytest.approx(1, abs=0.001)
    assert rate["windows_possible"] == 0.5
    assert (rate["erasing_ms"], rate["acknowledging_ms"]) == (2000, 0.1)  # of 256 windows together

    quiet = CliRunner().invoke(check, [written(tmp_path, RIGHT)], env={"COLUMNS": "400"}).stdout
    assert "on this machine: ledger visitors" not in quiet


def test_markup_in_a_population_is_printed_as_it_stands(tmp_path: Path) -> None:
    text = RIGHT.replace("visitors of the site", '"[bold]visitors[/bold]"')
    result = CliRunner().invoke(check, [written(tmp_path, text), "--explain"], env={"COLUMNS": "200"})
    assert "Ledger visitors ([bold]visitors[/bold]): " in result.stdout
    assert "Protects [bold]visitors[/bold]: each" in result.stdout
