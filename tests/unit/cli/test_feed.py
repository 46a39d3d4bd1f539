"""`stream-dp feed`: rows of a file become the events that producers would have written, or are told of."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from faust.types import TP

from stream_dp.config.planner import load_plan
from stream_dp.control.editions import first_record, next_record
from stream_dp.errors import BrokerError
from stream_dp.operations import event_tables as tables
from stream_dp.operations.events_file import NO_ROW, ROW_REMEDIES
from stream_dp.records.models import PartitionStatus, ViewStatus, WorkerStatus, encode_status
from stream_dp.runtime.embedded import LogRecord, MemoryClient, MemoryLog
from stream_dp.runtime.factory import SourceRecords
from stream_dp.runtime.kafka.control_topic import post_accepted
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import format_time, parse_time
from stream_dp.windows.effects import Message
from stream_dp.windows.events import WATERMARK_HEADER

Call = Callable[..., Any]
TEXT = """\
name: site
broker: memory://
data_dir: ./state
key_file: ./site.key
sources:
  visits: {topic: visits, partitions: 2, user: user, time: {field: at, unit: UNIT}}
ledgers:
  visitors: {population: visitors, epsilon: "30", delta: "0", period: 10d}
ladders:
  one: [{level: coarse, epsilon: "1"}]
audiences: {public: coarse}
views:
  pages: {source: visits, item: page, kind: catalogue, catalogue: [home, cart], items_per_user: 1,
    window: {size: 1h, start: 2013-01-01T00:00:00Z, clock: CLOCK}, ledger: visitors, ladder: one}
  days: {source: visits, item: page, kind: catalogue, catalogue: [home, cart], items_per_user: 1,
    window: {size: 1d, start: 2013-01-01T00:00:00Z, clock: CLOCK}, ledger: visitors, ladder: one}
"""
START_MS = parse_time("2013-01-01T00:00:00Z")
HOUR_MS = 3_600_000
ROWS = [
    {"user": "ann", "page": "home", "at": START_MS + 5, "agent": "lynx"},
    {"user": "bob", "page": "cart", "at": START_MS + HOUR_MS - 1000, "agent": "lynx"},
    {"user": "ann", "page": "cart", "at": START_MS + HOUR_MS, "agent": "elinks"},
    {"user": "gus", "page": "home", "at": START_MS + 26 * HOUR_MS, "agent": "lynx"},
]


def written_as(unit: str, time_ms: int) -> Any:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    return {"ms": time_ms, "s": time_ms // 1000, "iso": moment.isoformat()}[unit]


def application(folder: Path, unit: str = "ms", clock: str = "wall", *changes: tuple[str, str]) -> Path:
    text = TEXT.replace("UNIT", unit).replace("CLOCK", clock)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = folder / "site.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def table(folder: Path, rows: Sequence[Mapping[str, Any]], form: str = "csv", unit: str = "ms") -> Path:
    """A file of events; the times in it are written in a unit, or are times where the form has such."""
    file = folder / f"events.{form}"
    timed = [{**row, "at": written_as(unit, row["at"])} for row in rows]
    if form == "csv":
        with file.open("w", newline="", encoding="utf-8") as text:
            writer = csv.DictWriter(text, list(timed[0]))
            writer.writeheader()
            writer.writerows(timed)
    elif form == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in timed), encoding="utf-8")
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        moments = [{**row, "at": datetime.fromisoformat(written_as("iso", row["at"]))} for row in rows]
        parquet.write_table(pyarrow.Table.from_pylist(moments), file)
    return file


def records(log: MemoryLog) -> list[tuple[int, LogRecord]]:
    """What stands in the source topic, partition by partition."""
    return [(partition, record) for partition in (0, 1) for record in log.records[TP("visits", partition)]]


def events(log: MemoryLog) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for _, record in records(log) if record.key is not None]


def watermarks(log: MemoryLog, partition: int = 0) -> list[int | bytes]:
    """The keys of events and the times of watermarks of a partition, in its order."""
    found: list[int | bytes] = []
    for record in log.records[TP("visits", partition)]:
        headers = dict(record.headers)
        found.append(int(headers[WATERMARK_HEADER]) if record.key is None else record.key)
    return found


def times(log: MemoryLog, unit: str) -> list[int]:
    """Of the events, in the unit; moments in ms."""
    found = [event["at"] for event in events(log)]
    return [parse_time(time) for time in found] if unit == "iso" else found


NESTED = (
    ("user: user", "user: $.who.id"),
    (
        "item: page, kind: catalogue, catalogue: [home, cart], items_per_user: 1,\n    window: {size: 1h",
        "item: $.page.id, kind: catalogue, catalogue: [home, cart], items_per_user: 1,\n    window: {size: 1h",
    ),
    (
        "item: page, kind: catalogue, catalogue: [home, cart], items_per_user: 1,\n    window: {size: 1d",
        "items: tags, kind: catalogue, catalogue: [home, cart], items_per_user: 1,\n    window: {size: 1d",
    ),
)


# -- what is written ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_rows_with_rows_inside_become_events_of_paths_and_lists(
    call: Call, log: MemoryLog, tmp_path: Path, form: str
) -> None:
    rows = [{"who": {"id": r["user"]}, "page": {"id": r["page"], "x": 1}, "tags": ["a"], "at": r["at"]} for r in ROWS]
    said = call("feed", application(tmp_path, "ms", "wall", *NESTED), "--from", table(tmp_path, rows, form))
    assert said.code == 0, said.err
    fed = sorted((at["at"], at["who"]["id"], at["page"]["id"], at["tags"]) for at in events(log))
    assert fed == [(row["at"], row["user"], row["page"], ["a"]) for row in ROWS]


def test_rows_for_a_source_with_a_key_bear_the_user_in_its_field(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    file = application(tmp_path, "ms", "wall", ("user: user", "key: $.who.id"))
    said = call("feed", file, "--from", table(tmp_path, ROWS), "--user", "user")
    assert said.code == 0, said.err
    fed = sorted((at["at"], at["who"]["id"], at["page"]) for at in events(log))
    assert fed == [(row["at"], row["user"], row["page"]) for row in ROWS]


def test_a_flat_column_may_bear_the_path_of_its_field(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    rows = [{"who": row["user"], "$.page.id": row["page"], "at": row["at"]} for row in ROWS]
    file = application(tmp_path, "ms", "wall", *NESTED[:2], ("item: page", "item: $.page.id"))
    said = call("feed", file, "--from", table(tmp_path, rows), "--user", "who")
    assert said.code == 0, said.err
    fed = sorted((at["at"], at["who"]["id"], at["page"]["id"]) for at in events(log))
    assert fed == [(row["at"], row["user"], row["page"]) for row in ROWS]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("unit", ["ms", "s", "iso"])
def test_rows_become_events_of_the_source_whatever_holds_them(
    call: Call, log: MemoryLog, tmp_path: Path, form: str, unit: str
) -> None:
    file = application(tmp_path, unit)

    said = call("feed", file, "--from", table(tmp_path, ROWS, form, unit))

    assert said.code == 0, said.err
    assert "4 rows: 4 events" in said.out
    assert "in order of time, from 2013-01-01T00:00:00.005Z to 2013-01-02T02:00:00Z" in said.out or unit == "s"
    assert "4 events written to topic visits on memory://" in said.out
    expected = [{"user": row["user"], "page": row["page"], "at": written_as(unit, int(str(row["at"])))} for row in ROWS]
    assert sorted(map(repr, events(log))) == sorted(map(repr, map(ordered, expected)))
    places = SourceRecords(load_plan(file).views["pages"].source)
    assert all(partition == places.place(record.key or b"") for partition, record in records(log))
    assert {partition for partition, _ in records(log)} == {0, 1}


def ordered(event: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in the order in which they are written."""
    return {name: event[name] for name in ("page", "user", "at")}


def test_users_and_times_may_stand_in_columns_of_other_names_and_forms(
    call: Call, log: MemoryLog, tmp_path: Path
) -> None:
    file = application(tmp_path, "s")
    rows = "who,when,page\nann,2013-01-01T01:00:00.250+01:00,home\n7,2013-01-01T00:00:01,cart\n"
    (tmp_path / "log.csv").write_text(rows, encoding="utf-8")

    said = call(
        "feed",
        file,
        "visits",
        "--from",
        tmp_path / "log.csv",
        "--user",
        "who",
        "--time",
        "when",
        "--time-format",
        "iso",
    )

    assert said.code == 0, said.err
    start = START_MS // 1000
    assert sorted(map(str, events(log))) == sorted(
        map(str, [{"page": "home", "user": "ann", "at": start}, {"page": "cart", "user": "7", "at": start + 1}])
    )
    assert {record.key for _, record in records(log)} == {b"ann", b"7"}


def test_columns_that_no_view_counts_are_left_out_unless_they_are_asked_for(
    call: Call, log: MemoryLog, tmp_path: Path
) -> None:
    file, rows = application(tmp_path), table(tmp_path, ROWS[:1])
    assert call("feed", file, "--from", rows).code == 0
    assert [set(event) for event in events(log)] == [{"user", "page", "at"}]

    assert call("feed", file, "--from", rows, "--append", "--all-fields").code == 0
    assert [set(event) for event in events(log)][1:] == [{"user", "page", "at", "agent"}]


def test_a_topic_that_is_missing_is_made_with_the_partitions_of_the_file(
    call: Call, log: MemoryLog, tmp_path: Path
) -> None:
    file, rows = application(tmp_path), table(tmp_path, ROWS)
    said = call("feed", file, "--from", rows)
    assert log.partitions == {"visits": 2}
    assert "topic visits was created with 2 partitions" in said.out

    log.delete("visits")
    log.create("visits", 3)
    said = call("feed", file, "--from", rows)
    assert said.code == 2
    assert "sources.visits.partitions: topic visits has 3, not 2" in said.err


def test_nothing_is_written_a_second_time_by_accident(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    file, rows = application(tmp_path), table(tmp_path, ROWS)
    assert call("feed", file, "--from", rows).code == 0

    said = call("feed", file, "--from", rows)
    assert said.code == 2
    assert "topic visits has records already, up to 4. Add --append to write after them" in said.err
    assert len(records(log)) == 4

    assert call("feed", file, "--from", rows, "--append").code == 0
    assert len(records(log)) == 8


# -- watermarks --------------------------------------------------------------------------------------------------


def test_rows_in_order_of_time_have_a_watermark_before_each_window_and_one_behind_all(
    call: Call, log: MemoryLog, tmp_path: Path
) -> None:
    """Of two views with windows of an hour and a day, the shorter ones decide; windows without events need none."""
    said = call("feed", application(tmp_path, "ms", "event"), "--from", table(tmp_path, ROWS))

    last = START_MS + 26 * HOUR_MS
    assert said.code == 0, said.err
    assert "the last watermark is 2013-01-02T02:00:00.001Z" in said.out
    marks = [START_MS, START_MS + HOUR_MS, last, last + 1]
    for partition in (0, 1):
        assert [one for one in watermarks(log, partition) if isinstance(one, int)] == marks
    users: dict[bytes, int] = {(record.key or b""): partition for partition, record in records(log)}
    order = watermarks(log, users[b"ann"])
    assert [one for one in order if one == b"ann" or isinstance(one, int)] == [
        START_MS,
        b"ann",
        START_MS + HOUR_MS,
        b"ann",
        last,
        last + 1,
    ]


def test_rows_in_another_order_have_the_last_watermark_alone(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    rows = table(tmp_path, [ROWS[3], *ROWS[:3]])
    said = call("feed", application(tmp_path, "ms", "event"), "--from", rows, "--until", "2013-01-03")

    assert "not in order of time, from" in said.out
    for partition in (0, 1):
        assert [one for one in watermarks(log, partition) if isinstance(one, int)] == [START_MS + 48 * HOUR_MS]
        assert isinstance(watermarks(log, partition)[-1], int)


@pytest.mark.parametrize(
    ("clock", "options", "some"),
    [("wall", [], False), ("wall", ["--watermarks"], True), ("event", ["--no-watermarks"], False)],
)
def test_watermarks_are_written_for_clocks_of_watermarks_and_where_they_are_asked_for(
    call: Call, log: MemoryLog, tmp_path: Path, clock: str, options: list[str], some: bool
) -> None:
    assert call("feed", application(tmp_path, "ms", clock), "--from", table(tmp_path, ROWS), *options).code == 0
    assert any(record.key is None for _, record in records(log)) is some


def test_a_window_that_ends_with_the_file_and_stays_open_is_told(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    file, rows = application(tmp_path, "ms", "event"), table(tmp_path, ROWS)
    view = next(one for one in load_plan(file).views.values() if one.window.clock == "event")
    end_ms = view.window.shape.end(view.window.shape.start_of(START_MS + 26 * HOUR_MS))
    assert view.window.grace_ms
    said = call("feed", file, "--from", rows, "--until", format_time(end_ms))
    closes = format_time(end_ms + view.window.grace_ms)
    assert f"is not over. To close it, use --until {closes} or later" in said.out
    again = call("feed", file, "--from", rows, "--append", "--until", closes)
    assert again.code == 0
    assert "stays open" not in again.out


def test_a_history_does_not_end_before_its_last_event(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    said = call("feed", application(tmp_path), "--from", table(tmp_path, ROWS), "--until", "2013-01-02")
    assert said.code == 2
    assert "--until 2013-01-02T00:00:00Z: there are later events, up to 2013-01-02T02:00:00Z" in said.err
    assert not log.partitions


# -- rows that are none ------------------------------------------------------------------------------------------

BAD = """\
user,page,at
ann,home,1356998400005
,home,1356998400006
bob,,1356998400007
cid,cart,yesterday
dan,cart
eve,home,1356998400008

,cart,1356998400009
"""


def told(out: str) -> list[str]:
    """The first lines without the remedies."""
    return [":".join(line.split(":")[:2]) for line in out.splitlines()]


TOLD = [
    "7 rows: 2 events",
    "2 invalid rows (null_key): row 2, 7",
    "1 invalid row (missing_field): row 3",
    "1 invalid row (wrong_type): row 4",
    "1 invalid row (bad_row): row 5",
]


def test_rows_that_are_no_events_are_told_by_reason_and_number_before_anything_is_written(
    call: Call, log: MemoryLog, tmp_path: Path
) -> None:
    file, rows = application(tmp_path), tmp_path / "bad.csv"
    rows.write_text(BAD, encoding="utf-8")

    said = call("feed", file, "--from", rows)

    assert said.code == 2
    assert told(said.out)[: len(TOLD)] == TOLD
    assert "bad.csv: 5 invalid rows. Add --skip-bad to skip them" in said.err
    assert not log.partitions
    for content in ("yesterday", "bob", "cart", "1356998400006"):
        assert content not in said.out + said.err

    assert call("feed", file, "--from", rows, "--skip-bad").code == 0
    assert {record.key for _, record in records(log)} == {b"ann", b"eve"}


def test_json_lines_are_judged_as_workers_judge_them(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    lines = [
        '{"user": "ann", "page": "home", "at": 1356998400005}',
        '{"user": 7, "page": 8, "at": 1356998400005}',
        "[1, 2]",
        "{",
        '{"user": true, "page": "home", "at": 1356998400005}',
        '{"user": "bob", "page": 1.5, "at": 1356998400005}',
        '{"user": "bob", "page": null, "at": 1356998400005}',
        '{"user": "bob", "page": "home"}',
        '{"user": "bob", "page": "home", "at": true}',
        json.dumps({"user": "bob", "page": "é" * 513, "at": 1356998400005}),
        json.dumps({"user": "b" * 1025, "page": "home", "at": 1356998400005}),
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(lines), encoding="utf-8")

    said = call("feed", application(tmp_path), "--from", tmp_path / "events.jsonl", "--skip-bad")

    assert said.code == 0, said.err
    assert set(told(said.out)[1:8]) >= {
        "2 invalid rows (bad_row): row 3, 4",
        "3 invalid rows (wrong_type): row 5, 7, 9",
        "1 invalid row (not_whole): row 6",
        "1 invalid row (missing_field): row 8",
        "1 invalid row (item_too_long): row 10",
        "1 invalid row (bad_key): row 11",
    }
    assert {record.key for _, record in records(log)} == {b"ann", b"7"}


def test_of_many_rows_of_a_reason_the_first_are_named(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("user,page,at\n" + ",home,1\n" * 2000, encoding="utf-8")
    said = call("feed", application(tmp_path), "--from", tmp_path / "bad.csv", "--skip-bad")
    assert "2,000 invalid rows (null_key): row 1, 2, 3, 4, 5, ...: the user is missing" in said.out
    assert said.code == 2
    assert "bad.csv: the file has no event" in said.err


def test_what_a_view_will_refuse_for_its_time_is_told(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    changes = [("{size: 1d, start: 2013-01-01T00:00:00Z", "{size: 1d"), ("2013-01-01", "2013-01-02")]
    said = call("feed", application(tmp_path, "ms", "wall", *changes), "--from", table(tmp_path, ROWS))
    assert "view pages begins at 2013-01-02T00:00:00Z; earlier events are refused" in said.out
    assert "view days has no window.start. It begins with the window of its first start; earlier events" in said.out


@pytest.mark.parametrize(
    ("unit", "written", "options", "said"),
    [
        (
            "ms",
            "s",
            [],
            "column 'at' is read as ms, but in 4 of 4 rows it looks like s. Nothing was written. Add --time-",
        ),
        (
            "ms",
            "s",
            ["--time-format", "ms"],
            "but in 4 of 4 rows it looks like s. Nothing was written. Add --time-format s",
        ),
        (
            "s",
            "ms",
            [],
            "column 'at' is read as s, but in 4 of 4 rows it looks like ms. Nothing was written. Add --time-",
        ),
        ("ms", "s", ["--time-format", "iso"], "it looks like s. Nothing was written. Add --time-format s"),
        (
            "ms",
            "iso",
            [],
            "is read as ms, but in 4 of 4 rows it looks like iso. Nothing was written. Add --time-format iso",
        ),
        (
            "iso",
            "ms",
            [],
            "is read as iso, but in 4 of 4 rows it looks like ms. Nothing was written. Add --time-format ms",
        ),
    ],
)
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_times_in_another_unit_or_form_are_refused_before_anything_is_written(
    call: Call, log: MemoryLog, tmp_path: Path, form: str, unit: str, written: str, options: list[str], said: str
) -> None:
    file, rows = application(tmp_path, unit), table(tmp_path, ROWS, form, written)
    answer = call("feed", file, "--from", rows, *options, "--skip-bad")
    assert (answer.code, said in answer.err) == (2, True), answer.err
    assert not log.partitions
    right = call("feed", file, "--from", rows, "--time-format", written)
    assert right.code == 0, right.err
    assert [one // {"s": 1}.get(unit, 1000) >= START_MS // 1000 for one in times(log, unit)] == [True] * 4


def test_microseconds_are_no_format(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    rows = tmp_path / "fine.csv"
    rows.write_text(f"user,page,at\nann,home,{START_MS * 1000}\n", encoding="utf-8")
    answer = call("feed", application(tmp_path), "--from", rows)
    assert answer.code == 2
    assert "it looks like microseconds. Nothing was written. Convert it to ms; there is no format for it" in answer.err
    assert not log.partitions


def test_rows_that_no_view_would_count_are_refused_where_they_are_not_meant(
    call: Call, log: MemoryLog, tmp_path: Path
) -> None:
    old = [{**row, "at": int(str(row["at"])) - 365 * 24 * HOUR_MS} for row in ROWS]
    file, rows = application(tmp_path), table(tmp_path, old)
    answer = call("feed", file, "--from", rows)
    assert answer.code == 2
    assert "all rows are before the first window of every view, the last one at 2012-01-03T02:00:00Z. Nothing was" in (
        answer.err
    )
    assert not log.partitions
    assert call("feed", file, "--from", rows, "--unchecked-data").code == 0
    assert len(events(log)) == 4


def test_windows_that_would_be_withdrawn_at_once_are_told_before_the_start(
    call: Call, log: MemoryLog, tmp_path: Path
) -> None:
    said = call("feed", application(tmp_path), "--from", table(tmp_path, ROWS))
    assert said.code == 0
    for view in ("pages", "days"):
        assert f"views.{view}.retention: " in said.out
    assert "windows that are over would be withdrawn as soon as they are released, and stay paid for" in said.out
    changes = [(", ledger: visitors, ladder: one", ", ledger: visitors, ladder: one, retention: 36500d")]
    said = call("feed", application(tmp_path, "ms", "wall", *changes), "--append", "--from", table(tmp_path, ROWS))
    assert "withdrawn" not in said.out


def test_rows_with_some_other_times_are_written_on_request(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    rows = table(tmp_path, [*ROWS, {**ROWS[0], "at": START_MS // 1000}])
    said = call("feed", application(tmp_path), "--from", rows)
    assert (said.code, "row 5 (1970-01-16" in said.err) == (2, True)
    assert call("feed", application(tmp_path), "--from", rows, "--unchecked-data").code == 0
    assert len(events(log)) == 5


# -- files as people have them -----------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_delimiter_is_found_in_the_heading(call: Call, log: MemoryLog, tmp_path: Path, delimiter: str) -> None:
    """A comma in a cell, as in a number of many countries, is part of it then."""
    rows = [["user", "page", "at"], ["ann", "home, sweet", str(START_MS)], ["bob", "1,5", str(START_MS)]]
    (tmp_path / "rows.csv").write_text("".join(delimiter.join(row) + "\n" for row in rows), encoding="utf-8")
    said = call("feed", application(tmp_path), "--from", tmp_path / "rows.csv")
    assert said.code == 0, said.err
    assert sorted(event["page"] for event in events(log)) == ["1,5", "home, sweet"]


@pytest.mark.parametrize("unit", ["ms", "s", "iso"])
def test_date_of_parquet_is_the_start_of_its_day(call: Call, log: MemoryLog, tmp_path: Path, unit: str) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"user": "ann", "page": "home", "at": date(2013, 1, 1)}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    said = call("feed", application(tmp_path, unit), "--from", tmp_path / "rows.parquet")
    assert said.code == 0, said.err
    assert times(log, unit) == [START_MS // 1000 if unit == "s" else START_MS]


def test_nanoseconds_of_parquet_are_read(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    """Tables of pandas have them."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    at = pyarrow.array([START_MS * 10**6 + 1], pyarrow.timestamp("ns"))
    table = pyarrow.table({"user": ["ann"], "page": ["home"], "at": at})
    parquet.write_table(table, tmp_path / "rows.parquet", version="2.6")
    said = call("feed", application(tmp_path), "--from", tmp_path / "rows.parquet")
    assert said.code == 0, said.err
    assert times(log, "ms") == [START_MS]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_whole_floats_are_whole_numbers(call: Call, log: MemoryLog, tmp_path: Path, form: str) -> None:
    """A column of whole numbers with a gap becomes one of floats in pandas; no number is guessed beyond 2^53."""
    rows = [
        {"user": 7.0, "page": 8.0, "at": float(START_MS)},
        {"user": 7.5, "page": 8.0, "at": float(START_MS)},
        {"user": 7.0, "page": 8.5, "at": float(START_MS)},
        {"user": 2.0**60, "page": 8.0, "at": float(START_MS)},
        {"user": 7.0, "page": 8.0, "at": START_MS + 0.5},
    ]
    file = tmp_path / f"rows.{form}"
    if form == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    said = call("feed", application(tmp_path), "--from", file, "--skip-bad")
    assert "4 invalid rows (not_whole): row 2, 3, 4, 5: the user, an item or the time is a number with a" in said.out
    assert events(log) == [{"page": 8, "user": "7", "at": START_MS}]


def test_whole_floats_in_another_unit_are_reported(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    row = {"user": "ann", "page": "home", "at": START_MS / 1000}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    said = call("feed", application(tmp_path), "--from", tmp_path / "rows.jsonl")
    assert "in 1 of 1 rows it looks like s. Nothing was written" in said.err


def test_decimals_of_parquet_are_whole_numbers_too(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"user": Decimal(one), "page": "home", "at": START_MS} for one in ("7.00", "7.25")]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    said = call("feed", application(tmp_path), "--from", tmp_path / "rows.parquet", "--skip-bad")
    assert "(not_whole): row 2:" in said.out
    assert [event["user"] for event in events(log)] == ["7"]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ('{"user": "ann", "page": NaN, "at": 1}', "it contains NaN or Infinity, which JSON does not have: write null"),
        ("{'user': 'ann', 'page': 'x', 'at': 1}", "it contains single quotes: write double quotes"),
        ('{"user": "ann", "page": "x", "at": 1,}', "it contains a trailing comma: remove it"),
        ('{user: "ann", page: "x", at: 1}', "it contains names without quotes"),
        ('["ann", "x", 1]', "it is not a JSON object"),
        ('{"user": "ann", "page": "it\'s', "it is not one whole JSON object"),
    ],
)
def test_slip_of_json_is_named(call: Call, log: MemoryLog, tmp_path: Path, line: str, cause: str) -> None:
    (tmp_path / "rows.jsonl").write_text(line + "\n", encoding="utf-8")
    said = call("feed", application(tmp_path), "--from", tmp_path / "rows.jsonl")
    assert f"1 invalid row (bad_row): row 1: {cause}" in said.out


def test_row_of_other_length_says_how_many_cells_it_has(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user,page,at\nann,home\n", encoding="utf-8")
    said = call("feed", application(tmp_path), "--from", tmp_path / "rows.csv")
    assert "(bad_row): row 1: it has 2 cells, but the heading names 3 columns" in said.out


@pytest.mark.parametrize("command", ["feed", "replay", "plan"])
def test_every_command_names_the_same_rows_and_reasons(
    call: Call, log: MemoryLog, tmp_path: Path, command: str
) -> None:
    file, rows = application(tmp_path), tmp_path / "bad.csv"
    rows.write_text(BAD, encoding="utf-8")
    given: dict[str, list[str | Path]] = {
        "feed": ["--from", rows],
        "replay": [rows],
        "plan": ["--view", "pages", "--events", rows],
    }
    said = call(command, file, *given[command])
    assert said.code == 2
    lines = (said.out + said.err).splitlines()
    assert told("\n".join(lines))[: len(TOLD)] == TOLD
    assert "bad.csv: 5 invalid rows. Add --skip-bad to skip them" in said.err


@pytest.mark.parametrize("unit", ["ms", "iso"])
def test_time_without_offset_is_in_the_zone_of_the_source(
    call: Call, log: MemoryLog, tmp_path: Path, unit: str
) -> None:
    (tmp_path / "rows.csv").write_text("user,page,at\nann,home,2013-01-01T01:00:00\nann,cart,2013-01-01T01:00:00Z\n")
    file = application(tmp_path, unit, "wall", (f"unit: {unit}", f"unit: {unit}, zone: Europe/Berlin"))
    assert call("feed", file, "--from", tmp_path / "rows.csv", "--time-format", "iso").code == 0
    assert sorted(times(log, unit)) == [START_MS, START_MS + HOUR_MS]


def test_every_reason_of_a_row_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operating.md").read_text(encoding="utf-8")
    table = page.partition("### Rows that `feed` refuses")[2].partition("\n#")[0]
    assert [reason for reason in [NO_ROW, *ROW_REMEDIES] if f"`{reason}`" not in table] == []


# -- failures ----------------------------------------------------------------------------------------------------


def test_a_failure_says_what_stands_in_the_topic_and_how_to_go_on(
    call: Call, log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, left = MemoryClient.publish, [2]

    async def failing(self: MemoryClient, outgoing: Iterable[Message]) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise BrokerError("the broker is gone")
        await publish(self, outgoing)

    monkeypatch.setattr(tables, "CHUNK_ROWS", 2)
    monkeypatch.setattr(MemoryClient, "publish", failing)
    file, rows = application(tmp_path), table(tmp_path, ROWS)

    said = call("feed", file, "--from", rows)

    assert said.code == 1
    assert "the broker is gone. 2 events, up to row 2, are in topic visits. To continue, add --append --from-row 3" in (
        said.err
    )
    assert len(records(log)) == 2
    said = call("feed", file, "--from", rows, "--append", "--from-row", 3)
    assert "2 events written" in said.out
    assert sorted(event["at"] for event in events(log)) == [row["at"] for row in ROWS]


@pytest.mark.parametrize(
    ("name", "content", "code", "said"),
    [
        ("events.txt", b"", 2, "the name must end with .csv, .tsv, .jsonl, .ndjson, .parquet"),
        ("events.csv", b"", 1, "the file is empty. The first line must name the columns"),
        ("events.csv", b"user,site,at\n", 2, "it has no column 'page'; known: at, site, user"),
        ("events.csv", b"user,page,att\n", 2, "it has no column 'at'; did you mean 'att'?"),
        ("events.csv", b"user,page,at,page\n", 1, "duplicate names in the heading: 'page'"),
        (
            "events.csv",
            b"user,page,at\nann,\xff,1\n",
            1,
            "is not UTF-8 text: invalid start byte at byte 17. Save",
        ),
        (
            "events.csv",
            b'user,page,at\n\nbob,"x\ny",1\nann,"home,1\n',
            1,
            "row 2, which begins in line 5: a quote is not",
        ),
        ("events.csv", b"user,page,at\n", 2, "the file has no event"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(
    call: Call, log: MemoryLog, tmp_path: Path, name: str, content: bytes, code: int, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    answer = call("feed", application(tmp_path), "--from", tmp_path / name)
    assert (answer.code, said in answer.err) == (code, True), answer.err
    assert not log.partitions


def test_parquet_without_what_reads_it_names_the_extra(
    call: Call, log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_name: str) -> None:
        raise ImportError

    (tmp_path / "events.parquet").touch()
    monkeypatch.setattr(tables, "import_module", missing)
    said = call("feed", application(tmp_path), "--from", tmp_path / "events.parquet")
    assert said.code == 2
    assert "Parquet needs pyarrow: pip install 'stream-dp[parquet]'" in said.err


def test_a_damaged_parquet_file_says_so(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "events.parquet").write_bytes(b"PAR1 but no more")
    said = call("feed", application(tmp_path), "--from", tmp_path / "events.parquet")
    assert said.code == 1
    assert "events.parquet: cannot be read" in said.err


@pytest.mark.parametrize(
    ("changes", "words", "said"),
    [
        ([], ["visitz"], "SOURCE: no source with a view is named 'visitz'; did you mean 'visits'?"),
        (
            [
                ("sources:\n", "sources:\n  calls: {topic: calls, partitions: 2}\n"),
                ("days: {source: visits", "days: {source: calls"),
            ],
            [],
            "SOURCE: name one of the sources: visits, calls",
        ),
        ([(", time: {field: at, unit: ms}", "")], [], "sources.visits.time: history needs a field for its times"),
        (
            [(", user: user", ", format: avro"), ("ledgers:\n", "registry: http://r\nledgers:\n")],
            [],
            "sources.visits.format: `feed` writes JSON. For Avro use a producer with the serializer",
        ),
        ([(", user: user", "")], [], "--user: name the column of the user; source visits has no `user` field"),
    ],
)
def test_what_has_to_be_said_is_asked_for(
    call: Call, log: MemoryLog, tmp_path: Path, changes: list[tuple[str, str]], words: list[str], said: str
) -> None:
    file = application(tmp_path, "ms", "wall", *changes)
    answer = call("feed", file, *words, "--from", table(tmp_path, ROWS))
    assert answer.code == 2
    assert said in answer.err


# -- settings that hold ------------------------------------------------------------------------------------------


BOTH = [{**row, "site": "shop"} for row in ROWS]
OTHERWISE = "note: settings 2 are in effect, and FILE differs in views.days.item. This uses the settings in effect. "


def hold(log: MemoryLog, file: Path, *changes: tuple[str, str], from_ms: int = START_MS + 48 * HOUR_MS) -> Path:
    """The file is what an application was started with, and its days were changed since; the file of that."""
    plan = load_plan(file)
    text = file.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    other = file.parent / "other.yaml"
    other.write_text(text, encoding="utf-8")
    log.create(Topics.of(plan).control, 1)
    first = first_record(plan, START_MS)
    second = next_record([first], load_plan(other), {"days": from_ms}, {}, 0)
    for posted in (first, second):
        assert asyncio.run(post_accepted(plan, MemoryClient(log), posted))
    return other


DAYS = "days: {source: visits, item: page"
SITES = (DAYS, "days: {source: visits, item: site")


def closed(log: MemoryLog, file: Path, open_from_ms: int) -> None:
    """Workers say that windows of the days are open from a time on, in both partitions."""
    view = ViewStatus(clock_ms=open_from_ms, open_from_ms=open_from_ms)
    part = PartitionStatus(lag={}, views={"days": view, "pages": view}, next_windows_ms={}, counters={})
    said = WorkerStatus(
        schema_version=1,
        code_version="",
        instance="one",
        started_ms=0,
        reported_ms=open_from_ms,
        settings=2,
        waiting_for="",
        partitions={0: part, 1: part},
    )
    topic = Topics.of(load_plan(file)).status
    log.create(topic, 1)
    log.append(topic, 0, b"one", encode_status(said))


def test_events_have_the_fields_of_all_settings_that_are_still_counted_whatever_the_file_says(
    call: Call, log: MemoryLog, tmp_path: Path
) -> None:
    file = application(tmp_path, "ms", "event")
    hold(log, file, SITES)
    said = call("feed", file, "--from", table(tmp_path, BOTH))
    assert said.code == 0, said.err
    assert said.err.startswith(OTHERWISE)
    assert [set(event) for event in events(log)] == [{"user", "at", "page", "site"}] * 4
    lacking = call("feed", file, "--append", "--from", table(tmp_path, ROWS))
    assert lacking.code == 2
    assert "it has no column 'site'" in lacking.err


def test_what_only_former_settings_counted_is_left_out_when_all_their_windows_are_closed(
    call: Call, log: MemoryLog, tmp_path: Path
) -> None:
    file = application(
        tmp_path, "ms", "event", ("pages: {source: visits, item: page", "pages: {source: visits, item: other")
    )
    other = hold(log, file, SITES)
    rows = [{**row, "other": "home"} for row in BOTH]
    closed(log, file, START_MS + 24 * HOUR_MS)
    said = call("feed", other, "--from", table(tmp_path, rows))
    assert (said.code, said.err) == (0, ""), "the file says what holds"
    assert [set(event) for event in events(log)] == [{"user", "at", "other", "page", "site"}] * 4, "one day is open"
    closed(log, file, START_MS + 48 * HOUR_MS)
    assert call("feed", other, "--append", "--from", table(tmp_path, rows)).code == 0
    assert [set(event) for event in events(log)].count({"user", "at", "other", "site"}) == 4


def test_where_a_view_began_is_told_by_what_holds(call: Call, log: MemoryLog, tmp_path: Path) -> None:
    file = application(tmp_path, "ms", "wall", ("{size: 1d, start: 2013-01-01T00:00:00Z", "{size: 1d"))
    hold(log, file, ("items_per_user: 1,\n    window: {size: 1d", "items_per_user: 2,\n    window: {size: 1d"))
    said = call("feed", file, "--from", table(tmp_path, [{**ROWS[0], "at": START_MS - 5}, *ROWS]))
    assert "view days begins at 2013-01-01T00:00:00Z; earlier events are refused" in said.out
    assert "begins with the window of its first start" not in said.out


def marks(log: MemoryLog) -> list[list[int]]:
    """The times of the watermarks in each partition of the topic."""
    found = []
    for partition in range(2):
        headers = [dict(record.headers) for record in log.records[TP("visits", partition)]]
        found.append([int(one[WATERMARK_HEADER]) for one in headers if WATERMARK_HEADER in one])
    return found


def test_a_watermark_is_written_alone(tmp_path: Path, call: Call, log: MemoryLog) -> None:
    """It closes the windows that an interrupted feed left open."""
    file = application(tmp_path, "ms", "event")
    assert call("feed", file, "--from", table(tmp_path, ROWS), "--no-watermarks").code == 0
    assert marks(log) == [[], []]
    said = call("feed", file, "--watermark", "2013-01-02T03:05:00Z")
    assert said.code == 0, said.err
    assert marks(log) == [[parse_time("2013-01-02T03:05:00Z")]] * 2
    assert "watermark 2013-01-02T03:05:00Z written to all partitions of topic visits" in said.out
    assert "the window of days from 2013-01-02" not in said.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--watermark", "2013-01-02"], "already has a watermark of 2013-01-02T02:00:00.001Z"),
        (["--watermark", "2199-01-01"], "workers do not believe a watermark of 2199-01-01"),
        (["--watermark", "1970-01-16"], "workers do not believe a watermark of 1970-01-16"),
        (["--watermark", "2014-01-02"], "more than 90d later than the newest events and watermarks"),
        ([], "give either --from or --watermark"),
    ],
)
def test_a_wrong_watermark_is_refused(
    tmp_path: Path, call: Call, log: MemoryLog, options: list[str], words: str
) -> None:
    file = application(tmp_path, "ms", "event")
    assert call("feed", file, "--from", table(tmp_path, ROWS)).code == 0
    before = marks(log)
    said = call("feed", file, *options)
    assert said.code == 2
    assert words in " ".join(said.err.split())
    assert marks(log) == before


def test_a_far_watermark_can_be_forced(tmp_path: Path, call: Call, log: MemoryLog) -> None:
    file = application(tmp_path, "ms", "event")
    assert call("feed", file, "--from", table(tmp_path, ROWS)).code == 0
    said = call("feed", file, "--watermark", "2014-01-02", "--unchecked-data")
    assert said.code == 0, said.err
    assert [of[-1] for of in marks(log)] == [parse_time("2014-01-02T00:00:00Z")] * 2


def test_a_watermark_needs_a_view_that_waits_for_it(tmp_path: Path, call: Call, log: MemoryLog) -> None:
    assert call("feed", application(tmp_path), "--from", table(tmp_path, ROWS)).code == 0
    assert log.partitions["visits"] == 2
    said = call("feed", application(tmp_path), "--watermark", "2013-01-03")
    assert said.code == 2
    assert "none waits for watermarks" in said.err
