"""Counters count ways, never content."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from stream_dp.runtime.faust.delivery import Counters
from stream_dp.runtime.worker.reporting import CountersFile
from stream_dp.windows.effects import Increment


def counters() -> Counters:
    made = Counters()
    made.add(Increment("events_refused", 2, (("reason", "late"), ("view", "a"))))
    made.add(Increment("events_refused", 3, (("reason", "late"), ("view", "b"))))
    made.add(Increment("events_refused", 5, (("reason", "null_key"), ("view", ""))))
    made.add(Increment("events_refused", 7, (("reason", "late"), ("view", "a"))))
    made.add(Increment("events_consumed", 11))
    return made


def test_total_sums_over_the_labels_that_are_not_named() -> None:
    made = counters()

    assert made.total("events_refused") == 17
    assert made.total("events_refused", reason="late") == 12
    assert made.total("events_refused", reason="late", view="a") == 9
    assert made.total("events_refused", view="c") == 0
    assert made.total("events_consumed") == 11
    assert made.total("events") == 0


def test_lines_are_sorted_and_name_every_label() -> None:
    assert list(counters().lines().items()) == [
        ("events_consumed", 11),
        ("events_refused{reason=late,view=a}", 9),
        ("events_refused{reason=late,view=b}", 3),
        ("events_refused{reason=null_key,view=}", 5),
    ]


def test_counters_that_cannot_be_written_are_told_of_once_and_once_more_when_they_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "state").write_text("no folder")
    counters, file = Counters(), CountersFile(tmp_path / "state")
    counters.add(Increment("events_consumed", 3))

    file.write(counters)
    file.write(counters)
    (tmp_path / "state").unlink()
    (tmp_path / "state").mkdir()
    file.write(counters)
    file.write(counters)

    assert json.loads((tmp_path / "state" / "counters.json").read_text()) == {"events_consumed": 3}
    assert [record.message.removeprefix(f"{tmp_path}/state/") for record in caplog.records] == [
        "counters.json is not written while the disk refuses: Not a directory",
        "counters.json is written again",
    ]
