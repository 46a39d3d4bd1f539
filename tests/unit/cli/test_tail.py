from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, ConsoleDimensions

from stream_dp.cli.tail_command import Screen, record_line
from stream_dp.config.plan import Plan, ViewWords
from stream_dp.records.codec import AnyRecord, encode, encode_parts, topic_key
from stream_dp.records.view_record import ViewRecord
from stream_dp.releases.announcements import view_record
from stream_dp.runtime.embedded import MemoryLog
from tests.support.schemas import later
from tests.support.sealing import minimum_counts

Make = Callable[..., Any]
DAY_MS = 86_400_000
TOPIC = "visits.releases.pages.public"


def publish(log: MemoryLog, *records: AnyRecord | ViewRecord) -> None:
    log.create(TOPIC, 1)
    for record in records:
        log.append(TOPIC, 0, topic_key(record), encode(record))


def screen(board: Screen, width: int = 100, height: int = 30) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(board.render(ConsoleDimensions(width, height)))
    return capture.get()


def test_json_prints_the_records_as_they_stand_in_the_topic(
    call: Make, visits_file: Path, log: MemoryLog, release: Make, refusal: Make
) -> None:
    records = [release({"home": 60}), refusal(revision=2)]
    publish(log, *records)
    log.append(TOPIC, 0, b"gone", None)
    said = call("tail", visits_file, "pages", "public", "--json", "--until-end")
    assert said.code == 0
    assert said.out.encode() == b"".join(encode(record) + b"\n" for record in records)
    assert [json.loads(line)["type"] for line in said.out.splitlines()] == ["release", "refusal"]


def test_pipe_gets_a_line_for_each_record(call: Make, visits_file: Path, log: MemoryLog, release: Make) -> None:
    publish(log, release({"home": 60, "faq": 55}), release({}, day=1))
    said = call("tail", visits_file, "pages", "public", "--until-end")
    assert said.code == 0
    assert said.out.splitlines() == [
        "1970-01-01 revision 1: coarse, epsilon 1/3, ±9; home 60, faq 55; period total epsilon 1/3, delta 1e-6",
        "1970-01-02 revision 1: coarse, epsilon 1/3, ±9; nothing shown; period total epsilon 1/3, delta 1e-6",
    ]


def test_a_line_above_says_what_is_counted(
    call: Make, visits_file: Path, log: MemoryLog, release: Make, visits: Plan
) -> None:
    words = ViewWords("Pages", "people", "a page of the site")
    view = replace(visits.views["pages"].begun(0), words=words)
    about = view_record(view, view.editions[0], "public")
    publish(log, about, release({"home": 60}))
    log.append(TOPIC, 0, b"pages/public/later", b'{"schema_version":1,"type":"later"}')
    line = (
        "Pages: counts people, histogram of windows of 1d, edition 1 from 1970-01-01 on. An item is a page of the site."
    )
    said = call("tail", visits_file, "pages", "public", "--until-end").out.splitlines()
    assert (said[0], len(said)) == (line, 2)
    assert (
        len(call("tail", visits_file, "pages", "public", "--until-end", "--window", "1970-01-01").out.splitlines()) == 2
    )
    board = Screen(visits.views["pages"], TOPIC)
    board.history.take(about)
    assert line in screen(board, 140)


@pytest.mark.parametrize("asked", ["1970-01-02", "1970-01-02T13:07:00Z"])
def test_pipe_and_json_have_the_window_that_was_asked_for_and_no_other(
    call: Make, visits_file: Path, log: MemoryLog, release: Make, refusal: Make, asked: str
) -> None:
    of_the_day = [release({"home": 61}, day=1), refusal(day=1, revision=2)]
    publish(log, release({"home": 60}), *of_the_day, release({"home": 62}, day=2))
    words = ("tail", visits_file, "pages", "public", "--until-end", "--window", asked)
    assert call(*words).out.splitlines() == [record_line(record) for record in of_the_day]
    assert call(*words, "--json").out.encode().splitlines() == [encode(record) for record in of_the_day]


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["lines", "json"])
def test_a_window_without_a_release_is_a_failure_that_says_so(
    call: Make, visits_file: Path, log: MemoryLog, release: Make, form: list[str]
) -> None:
    publish(log, release({"home": 60}))
    said = call("tail", visits_file, "pages", "public", "--until-end", "--window", "1970-01-02", *form)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("error: topic visits.releases.pages.public has no release of the window of 1970-01-02.")


def test_records_of_a_later_writer_are_the_same_lines_and_a_later_version_one_sentence(
    call: Make, visits_file: Path, log: MemoryLog, release: Make, refusal: Make
) -> None:
    log.create(TOPIC, 1)
    for record in (release({"home": 60}), refusal(day=1, revision=1)):
        log.append(TOPIC, 0, topic_key(record), later(encode(record)))
    said = call("tail", visits_file, "pages", "public", "--until-end")
    assert said.out.splitlines() == [record_line(release({"home": 60})), record_line(refusal(day=1, revision=1))]
    log.append(TOPIC, 0, b"new", encode(release({})).replace(b'"schema_version":1', b'"schema_version":2'))
    said = call("tail", visits_file, "pages", "public", "--until-end")
    assert (said.code, len(said.err.splitlines())) == (1, 1)
    assert said.err.startswith("error: a release record of schema version 2 was found, and this stream-dp reads")


def test_a_release_in_parts_is_one_line_and_as_json_it_is_its_records(
    call: Make, visits_file: Path, log: MemoryLog, release: Make
) -> None:
    whole = release({f"page {number}": 90 - number for number in range(30)})
    parts = encode_parts(whole, len(encode(whole)) // 2)
    log.create(TOPIC, 1)
    for key, value in (*parts[-1:], *parts):  # the first is what compaction left, or a crash
        log.append(TOPIC, 0, key, value)
    assert len(parts) > 2
    said = call("tail", visits_file, "pages", "public", "--until-end")
    assert said.out.splitlines() == [record_line(whole)]
    assert "and 25 more" in said.out
    said = call("tail", visits_file, "pages", "public", "--until-end", "--json")
    assert said.out.encode().splitlines() == [parts[-1][1], *(value for _, value in parts)]


@pytest.mark.parametrize(
    ("view", "audience", "message"),
    [
        ("page", "public", "error: view: no view is named 'page'; did you mean 'pages'?"),
        ("pages", "pubic", "error: audience: no audience of pages is named 'pubic'; did you mean 'public'?"),
    ],
)
def test_wrong_name_is_wrong_usage(
    call: Make, visits_file: Path, log: MemoryLog, view: str, audience: str, message: str
) -> None:
    said = call("tail", visits_file, view, audience)
    assert (said.code, said.out, said.err.strip()) == (2, "", message)


def test_embedded_log_of_another_process_cannot_be_followed(call: Make, visits_file: Path) -> None:
    said = call("tail", visits_file, "pages", "public")
    assert said.code == 1
    assert "no other process can reach it" in said.err


def test_missing_topic_says_who_makes_it(call: Make, visits_file: Path, log: MemoryLog) -> None:
    said = call("tail", visits_file, "pages", "public")
    assert said.code == 1
    assert (
        "memory:// has no topic visits.releases.pages.public. Start a worker to create it: `stream-dp worker FILE`"
        in said.err
    )


def test_broker_that_does_not_answer_is_a_failure(
    call: Make, visits_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_DP_BROKER", "127.0.0.1:1")
    said = call("tail", visits_file, "pages", "public")
    assert said.code == 1
    assert said.err.startswith("error: no Kafka answers at 127.0.0.1:1")


def test_window_that_is_no_day_is_wrong_usage(call: Make, visits_file: Path) -> None:
    said = call("tail", visits_file, "pages", "public", "--window", "yesterday")
    assert said.code == 2
    assert "'yesterday': write a date" in said.err


def test_board_shows_the_newest_window_and_lists_the_others(visits: Plan, release: Make) -> None:
    board = Screen(visits.views["pages"], TOPIC)
    assert "no release yet" in screen(board)
    for day in range(3):
        board.history.take(release({f"page-{day}": 60 + day}, day=day))
    shown = screen(board)
    assert "1970-01-03 to 1970-01-04" in shown
    assert "page-2" in shown
    assert "62 ±9" in shown
    assert "page-1" not in shown
    assert shown.index("\n1970-01-03") < shown.index("\n1970-01-02") < shown.index("\n1970-01-01")
    assert (
        "Ledger visitors (visitors of the site), period until 1970-01-11: public has seen epsilon 1/3, delta 1e-6; the "
        "budget of all views and audiences is epsilon 30, delta 0.001"
    ) in " ".join(shown.split())


def test_board_shows_what_a_sharper_revision_replaces(visits: Plan, release: Make) -> None:
    board = Screen(visits.views["pages"], TOPIC)
    board.history.take(release({"home": 60}))
    board.history.take(release({"home": 57, "faq": 17}, level=1, revision=2))
    shown = screen(board)
    least = minimum_counts(visits.views["pages"])[0]
    assert f"revision 2 replaces revision 1: coarse, epsilon 1/3, ±9, 1 shown, from {least} up" in shown
    assert "57 ±3   was 60 ±9" in shown
    assert "17 (1 to 20)   not shown before" in shown
    assert "2, sharper" in shown


def test_chosen_window_stays_while_newer_ones_come(visits: Plan, release: Make) -> None:
    board = Screen(visits.views["pages"], TOPIC, at_ms=DAY_MS + 5)
    board.history.take(release({"page-0": 60}))
    assert "no release of this window yet" in screen(board)
    for day in (1, 2):
        board.history.take(release({f"page-{day}": 60}, day=day))
    assert "1970-01-02 to 1970-01-03" in screen(board)
    assert "page-1" in screen(board)


def test_refusals_are_told_with_what_was_asked(visits: Plan, release: Make, refusal: Make) -> None:
    board = Screen(visits.views["pages"], TOPIC)
    board.history.take(refusal())
    words = "refused: fine would cost epsilon 1, delta 1e-6, more than the ledger has left"
    assert words in screen(board, 120)
    board.history.take(release({"home": 60}, day=1))
    board.history.take(refusal(day=1, revision=2))
    assert "sharper one refused" in screen(board, 120)
    assert "home" in screen(board)
    line = "1970-01-01 revision 1: refused, fine would cost epsilon 1, delta 1e-6; period total nothing"
    assert record_line(refusal()) == line


def test_frame_fits_its_terminal(visits: Plan, release: Make) -> None:
    board, keys = Screen(visits.views["pages"], TOPIC), {f"page-{number}": 60 + number for number in range(50)}
    for day in range(20):
        board.history.take(release(keys, day=day, period_loss=visits.ledgers["visitors"].total))
    for width, height in ((80, 24), (120, 40)):
        lines = screen(board, width, height).splitlines()
        assert len(lines) < height
        assert max(map(len, lines)) <= width


def test_nothing_that_is_said_of_a_key_is_cut_on_a_narrow_terminal(visits: Plan, release: Make) -> None:
    keys = {f"/a/rather/long/path/{number}": 100 - number for number in range(3)}
    for width in (60, 40):
        board = Screen(visits.views["pages"], TOPIC)
        board.history.take(release({**keys, "short": 46}))
        board.history.take(release({**keys, "short": 46, "more": 20}, level=1, revision=2))
        shown = screen(board, width)
        assert max(map(len, shown.splitlines())) <= width
        words = " ".join(shown.replace("│", " ").replace("▆", " ").replace("─", " ").split())
        for said in ("100 ±3 was 100 ±9", "46 ±3 was 46 (1 to 55)", "20 ±3 not shown before", " 1970-01-01 2, "):
            assert said in words, (said, shown)
