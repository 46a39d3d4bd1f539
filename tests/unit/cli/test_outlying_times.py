"""Every command that reads a file names rows with outlying times and asks what to do with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faust.types import TP

from stream_dp.runtime.embedded import MemoryLog
from stream_dp.windows.durations import DAY_MS, parse_time
from stream_dp.windows.events import WATERMARK_HEADER
from tests.support.published import Call

SHOP = """\
name: shop
broker: memory://
data_dir: ./state
key_file: ./shop.key
sources: {orders: {topic: orders, partitions: 1, user: customer, time: {field: at, unit: iso}}}
ledgers: {customers: {population: customers, epsilon: 40, delta: "1e-4", period: 4w, start: 2024-01-01T00:00:00Z}}
ladders: {steps: [{level: standard, epsilon: 1}]}
audiences: {public: standard}
views: {products: {source: orders, item: product, kind: histogram, items_per_user: 1, delta: "1e-6", ledger: customers,
  ladder: steps, window: {size: 1d, start: 2024-01-01T00:00:00Z, clock: event, idle: 36500d}}}
"""
ROWS = [f"c{user},tea,2024-01-{day:02}T12:00:00Z" for day in range(1, 29) for user in range(10)]
FAR = ["c1,tea,2099-12-31", "c2,tea,9999-12-31T23:59:59Z"]
EARLY = ["c3,tea,1970-01-01", "c4,tea,0001-01-01T00:00:00Z", "c5,tea,2020-02-02"]
COMMANDS: dict[str, Callable[[Path], list[str | Path]]] = {
    "feed": lambda at: ["feed", at / "shop.yaml", "--from", at / "orders.csv"],
    "replay": lambda at: ["replay", at / "shop.yaml", at / "orders.csv"],
    "plan": lambda at: ["plan", at / "shop.yaml", "--events", at / "orders.csv"],
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str | Path]]:
    """Writes the file of events with further rows; returns the words of a command about it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(SHOP, encoding="utf-8")

    def written(command: str, *more: str) -> list[str | Path]:
        text = "\n".join(["customer,product,at", *ROWS, *more]) + "\n"
        (tmp_path / "orders.csv").write_text(text, encoding="utf-8")
        return COMMANDS[command](tmp_path)

    return written


def marks(log: MemoryLog) -> list[int]:
    """The times of the watermarks in the topic."""
    headers = [dict(record.headers) for record in log.records[TP("orders", 0)]]
    return [int(one[WATERMARK_HEADER]) for one in headers if WATERMARK_HEADER in one]


def keys(log: MemoryLog) -> list[bytes]:
    return [record.key for record in log.records[TP("orders", 0)] if record.key is not None]


@pytest.mark.parametrize("command", COMMANDS)
def test_outlying_rows_are_refused_by_name(
    write: Callable[..., list[str | Path]], call: Call, log: MemoryLog, command: str
) -> None:
    said = call(*write(command, *FAR, *EARLY))
    assert said.code == 2
    for words in (
        "row 281 (2099-12-31)",
        "row 282 (9999-12-31T23:59:59Z)",
        "row 283 (1970-01-01)",
        "row 284 (0001-01-01)",
        "row 285 (2020-02-02)",
        "--drop-outliers",
        "--until 2024-01-30",
        f"--from{'-time' if command == 'feed' else ''} 2024-01-01",
        "--unchecked-data",
    ):
        assert words in said.err, words
    assert not log.partitions


@pytest.mark.parametrize(
    "options",
    [["--drop-outliers"], ["--from-time", "2024-01-01", "--until", "2024-01-29"]],
    ids=["dropped", "outside limits"],
)
def test_feed_leaves_outlying_rows_out(
    write: Callable[..., list[str | Path]], call: Call, log: MemoryLog, options: list[str]
) -> None:
    """The other rows are fed as if these did not exist: in order of time, window by window."""
    said = call(*write("feed", *FAR, *EARLY), *options)
    assert said.code == 0, said.err
    assert "5 events left out because of their times" in said.out
    assert "in order of time, from 2024-01-01T12:00:00Z to 2024-01-28T12:00:00Z" in said.out
    assert len(keys(log)) == len(ROWS)
    assert b"c1" in keys(log)
    assert len(marks(log)) == 28 + 1
    assert max(marks(log)) <= parse_time("2024-01-29T00:00:00Z")


def test_outlying_rows_kept_on_request_close_no_window(
    write: Callable[..., list[str | Path]], call: Call, log: MemoryLog
) -> None:
    said = call(*write("feed", *FAR), "--unchecked-data")
    assert said.code == 0, said.err
    assert len(keys(log)) == len(ROWS) + 2
    assert max(marks(log)) == parse_time("2024-01-28T12:00:00Z") + 1


def test_a_later_row_that_is_not_outlying_is_no_outlier(
    write: Callable[..., list[str | Path]], call: Call, log: MemoryLog
) -> None:
    said = call(*write("feed", *FAR), "--until", "2024-01-20")
    assert said.code == 2
    assert "--until 2024-01-20T00:00:00Z: there are later events, up to 2024-01-28T12:00:00Z" in said.err
    said = call(*write("feed"), "--until", "2099-12-31")
    assert said.code == 2
    assert "workers do not believe a watermark of 2099-12-31" in said.err
    assert not log.partitions


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_asks(
    write: Callable[..., list[str | Path]],
    call: Call,
    log: MemoryLog,
    monkeypatch: pytest.MonkeyPatch,
    answer: bool,
) -> None:
    asked: list[str] = []

    def confirm(words: str, **_: Any) -> bool:
        asked.append(words)
        return answer

    monkeypatch.setattr("click.confirm", confirm)
    monkeypatch.setattr("stream_dp.cli.feed_command.has_terminal", lambda: True)
    said = call(*write("feed", *FAR))
    assert asked == ["Leave these rows out?"]
    assert (said.code, len(log.records[TP("orders", 0)]) > 0) == ((0, True) if answer else (2, False))
    assert "row 281 (2099-12-31)" in said.err


def test_replay_and_plan_compute_the_bulk(write: Callable[..., list[str | Path]], call: Call) -> None:
    """Twenty-eight windows, not the 27,000 up to 2099."""
    replayed = call(*write("replay", *FAR), "--drop-outliers")
    assert replayed.code == 0, replayed.err
    assert "27 windows to release" in replayed.err
    row = next(line.split() for line in replayed.out.splitlines() if line.startswith("products"))
    assert int(row[2]) + int(row[3]) == 27

    alone = call(*write("plan"), "--json")
    dropped = call(*write("plan", *FAR, *EARLY), "--drop-outliers", "--json")
    assert dropped.code == 0, dropped.err
    assert json.loads(dropped.out) == json.loads(alone.out)


def test_plan_counts_windows_without_events_by_arithmetic(call: Call, tmp_path: Path) -> None:
    """Windows without events take no memory, and the figures of the others do not depend on them."""
    days = (parse_time("2024-03-02T00:00:00Z") - parse_time("2001-03-01T00:00:00Z")) // DAY_MS
    period = 4 * 7 * 24 * 60
    found = {}
    for size, windows in (("1d", days), ("1m", 1440 * days - 720)):
        file = tmp_path / f"{size}.yaml"
        text = SHOP.replace("window: {size: 1d, start: 2024-01-01T00:00:00Z", f"window: {{size: {size}")
        file.write_text(text, encoding="utf-8")
        history = tmp_path / "far.csv"
        rows = [f"c{user},tea,{day}T12:00:00Z" for day in ("2001-03-01", "2024-03-01") for user in range(200)]
        history.write_text("\n".join(["customer,product,at", *rows]) + "\n", encoding="utf-8")
        said = call("plan", file, "--events", history, "--unchecked-data", "--until", "2024-03-02T00:05:00Z", "--json")
        assert said.code == 0, said.err
        (found[size],) = json.loads(said.out)["points"]
        assert found[size]["windows"] == windows
    assert found["1d"]["recall"] == found["1m"]["recall"]
    shown = {size: one["true_keys"] * one["windows"] for size, one in found.items()}
    assert shown["1d"] == pytest.approx(shown["1m"])
    assert found["1d"]["lasts_ms"] == found["1d"]["period_ms"]
    assert found["1m"]["lasts_ms"] < found["1m"]["period_ms"] == period * 60_000


def test_init_follows_the_many_and_names_the_few(
    write: Callable[..., list[str | Path]], call: Call, tmp_path: Path
) -> None:
    write("feed", *FAR, *EARLY, "c6,tea,soon")
    said = call("init", "orders.csv", "--yes", "--epsilon", "20", "--one-view")
    assert said.code == 0, said.err
    for words in ("row 281 (2099-12-31)", "row 282 (9999-12-31T23:59:59Z)", "row 283 (1970-01-01)", "row 285"):
        assert words in said.out, words
    assert "--until 2024-01-30 --drop-outliers" in said.out
    text = (tmp_path / "orders.yaml").read_text(encoding="utf-8")
    assert "start: 2024-01-01T00:00:00Z" in text
    assert "unit: iso" in text


def test_init_names_rows_with_malformed_times(
    write: Callable[..., list[str | Path]], call: Call, tmp_path: Path
) -> None:
    """Row 287 has too few columns."""
    write("feed", *(f"c{user},tea,soon" for user in range(6)), "c7,tea", "c8,tea,")
    said = call("init", "orders.csv", "--yes", "--epsilon", "20", "--one-view")
    assert said.code == 0, said.err
    out = " ".join(said.out.split())
    first = ", ".join(f"row {number}" for number in range(281, 286))
    assert f"6 rows cannot be used ({first}, ...): the time is not ISO 8601 text." in out
    assert "1 row cannot be used (row 287):" in out
    assert "1 row cannot be used (row 288): the time is missing." in out
    assert "soon" not in out
    assert "--skip-bad" in next(line for line in said.out.splitlines() if "feed orders.yaml" in line)


def test_init_names_a_number_that_is_no_date(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"c{row % 9},tea,{1_704_067_200_000 + 60_000 * row}" for row in range(60)]
    text = "\n".join(["customer,product,at", *rows, f"c1,tea,{10**30}", f"c1,tea,{-(10**30)}"]) + "\n"
    (tmp_path / "orders.csv").write_text(text, encoding="utf-8")
    said = call("init", "orders.csv", "--yes", "--epsilon", "20", "--one-view")
    assert said.code == 0, said.err
    assert "row 61 (after the year 9999)" in said.out
    assert "row 62 (before the year 1)" in said.out


def test_a_file_whose_times_are_all_implausible_is_refused(
    write: Callable[..., list[str | Path]], call: Call, tmp_path: Path, log: MemoryLog
) -> None:
    words = write("feed")
    (tmp_path / "orders.csv").write_text("customer,product,at\na,tea,2099-12-31\n", encoding="utf-8")
    for options in ([], ["--drop-outliers"]):
        said = call(*words, *options)
        assert said.code == 2
        assert "no time is plausible: 1 row is too far ahead of the clock: row 1 (2099-12-31)" in said.err
    assert not log.partitions
