from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_dp.cli.check import check
from stream_dp.runtime import capacity as rates

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


@pytest.fixture(autouse=True)
def _no_broker_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)


def written(folder: Path, text: str) -> str:
    file = folder / "visits.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_plan_of_a_right_file_is_printed_in_words_and_numbers(tmp_path: Path) -> None:
    result = CliRunner().invoke(check, [written(tmp_path, RIGHT)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for words in (
        "visits: 2 views, 2 partitions, broker kafka://127.0.0.1:9092",
        "view pages (histogram)",
        "Protects visitors of the site: each of them is a user.",
        "moves at most 1 published count of a window",
        "Showing keys nobody named before costs delta 1e-6 a window.",
        "view searches (topk)",
        "Choosing the keys (gumbel) costs epsilon 1.000001 and delta 1e-7 a window at worst",
        "Grants can raise that to level fine, epsilon 2.000001.",
        "ledger visitors",
        "A change of this budget or period holds from the next period on: a running one keeps what it began with.",
        "What is spent is kept under these words for the population, whatever ledger and views are called.",
        "epsilon 16.3333403334 and delta 7.7e-6: the budget pays for all of it.",
    ):
        assert words in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["coarse", "0.333334", "3", "2.95", "±9", "43", "0.333334", "90", "public"] in rows
    assert ["fine", "1", "1", "0.851", "±3", "16", "1", "30", "staff"] in rows
    assert ["fine", "1", "3", "2.95", "±9", "2.00001", "14", "-"] in rows
    assert ["pages", "fine", "1", "1e-6", "rest", "7", "7"] in rows
    assert result.stderr == ""


def test_page_tells_what_each_part_promises_and_affords(tmp_path: Path) -> None:
    parts = 'parts: {selection: {epsilon: "3", slack: "1e-7"}, zcdp: {epsilon: "20", slack: "1e-7"}}'
    text = re.sub(r"(period: [0-9a-z]+)\}", rf"\1, {parts}}}", RIGHT)
    assert parts in text
    result = CliRunner().invoke(check, [written(tmp_path, text)], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.stderr
    page = result.stdout
    for words in (
        "Part pure, for all that adds up: promises epsilon 7 and",
        "Part selection, for the draws of selections: promises epsilon 3 and delta 1e-7, admits squares 0.829",
        "Part zcdp, for the noise of counts: promises epsilon 20 and delta 1e-7, admits rho 4.311",
    ):
        assert words in page
    described = json.loads(CliRunner().invoke(check, [written(tmp_path, text), "--json"]).stdout)
    assert [part["name"] for part in described["ledgers"][0]["parts"]] == ["pure", "selection", "zcdp"]


def test_page_fits_a_terminal_of_eighty_columns(tmp_path: Path) -> None:
    result = CliRunner().invoke(check, [written(tmp_path, RIGHT)], env={"COLUMNS": "80"})
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


def test_page_says_when_releases_leave_and_what_the_offset_covers_on_this_machine(tmp_path: Path) -> None:
    slow = RIGHT.replace("sources:\n", "release: {slot: 500ms, offset: 5s}\nsources:\n", 1)
    result = CliRunner().invoke(check, [written(tmp_path, slow)], env={"COLUMNS": "400"})
    assert "Releases leave at multiples of 500ms, 5s after the close of their window at the earliest." in result.stdout
    for view in ("pages", "searches"):
        assert re.search(
            rf"On this machine a window of {view} takes [0-9.e+]+ ms, (less than )?[0-9.]+ us for every key and "
            r"(less than )?[0-9.]+ us for one that is shown: half of the offset of 5s covers [0-9a-z, ]+ keys, or "
            r"[0-9a-z, ]+ that are all shown\.",
            result.stdout,
        )
    described = json.loads(CliRunner().invoke(check, [written(tmp_path, slow), "--json"]).stdout)
    assert (described["slot"], described["offset"]) == ("500ms", "5s")
    assert described["computing"].keys() == {"pages", "searches"}
    assert described["computing"]["pages"]["keys_in_time"] > 0


def test_an_offset_that_covers_few_keys_is_told(tmp_path: Path) -> None:
    hasty = RIGHT.replace("sources:\n", "release: {offset: 0s}\nsources:\n", 1)
    result = CliRunner().invoke(check, [written(tmp_path, hasty)], env={"COLUMNS": "400"})
    assert result.exit_code == 0
    assert "on this machine: view pages: half of the offset of 0s covers fewer than 100,000 keys" in result.stdout


def test_a_budget_that_does_not_last_for_the_first_windows_is_warned_of_and_fails_a_strict_check(
    tmp_path: Path,
) -> None:
    short = written(tmp_path, RIGHT.replace('epsilon: "30"', 'epsilon: "2"'))
    plain = CliRunner().invoke(check, [short], env={"COLUMNS": "400"})
    assert plain.exit_code == 0
    assert "warning: ledger visitors does not afford its schedule: " in plain.stdout
    assert "it does not pay for the first windows of all its views together; some are refused from" in plain.stdout
    strict = CliRunner().invoke(check, [short, "--strict"], env={"COLUMNS": "400"})
    assert strict.exit_code == 3
    assert "does not afford its schedule" in strict.stdout
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
    monkeypatch.setattr(rates, "_erasing_ms", lambda: 16_000.0)
    often = RIGHT.replace("window: {size: 1d},\n     ledger", "window: {size: 1s},\n     ledger", 1)
    page = CliRunner().invoke(check, [written(tmp_path, often)], env={"COLUMNS": "400"}).stdout
    assert "rate in all: 1 windows and 2 records a second are asked for" in page
    assert "ledger visitors: 1 windows and 2 records a second are asked for; this machine releases about 0.5" in page
    assert "on this machine: visitors: 1 windows a second are asked for, and it releases about 0.5" in page
    (rate,) = json.loads(CliRunner().invoke(check, [written(tmp_path, often), "--json"]).stdout)["rates"]
    assert rate["windows_a_second"] == pytest.approx(1, abs=0.001)
    assert rate["windows_possible"] == 0.5
    assert (rate["erasing_ms"], rate["acknowledging_ms"]) == (2000, 10)

    quiet = CliRunner().invoke(check, [written(tmp_path, RIGHT)], env={"COLUMNS": "400"}).stdout
    assert "on this machine: visitors" not in quiet


def test_markup_in_a_population_is_printed_as_it_stands(tmp_path: Path) -> None:
    text = RIGHT.replace("visitors of the site", '"[bold]visitors[/bold]"')
    result = CliRunner().invoke(check, [written(tmp_path, text)], env={"COLUMNS": "200"})
    assert "Protects [bold]visitors[/bold]: each" in result.stdout
