from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faust.types import TP

from stream_dp.cli.grant import explained
from stream_dp.config.plan import Plan
from stream_dp.control.changes import changes_of
from stream_dp.control.grants import Grant
from stream_dp.runtime.grants import read_order
from stream_dp.runtime.memory import MemoryLog

Make = Callable[..., Any]
CONTROL = "visits-control"


@pytest.fixture
def control(log: MemoryLog) -> MemoryLog:
    """The embedded log of an application whose worker has been started before."""
    log.create(CONTROL, 1)
    return log


def test_grant_stands_in_the_control_topic_as_the_control_agent_reads_it(
    call: Make, visits_file: Path, visits: Plan, control: MemoryLog
) -> None:
    said = call("grant", visits_file, "public", "--level", "fine")
    (record,) = control.records[TP(CONTROL, 0)]
    order = read_order(record, visits)
    assert order is not None
    assert (order.audience, order.level) == ("public", "fine")
    assert said.code == 0
    assert "public may see level fine from now on." in said.out
    assert "pages: from coarse (±9) to fine (±3); windows that ended up to 30d before the newest one" in said.out
    assert "epsilon 0.666667 if that is coarse, nothing if it is fine" in said.out
    assert f"tail {visits_file} pages public" in said.out
    assert f"tail {visits_file} searches public" in said.out


def test_machine_reads_what_every_view_will_do(call: Make, visits_file: Path, control: MemoryLog) -> None:
    call("grant", visits_file, "public", "--level", "finest")
    said = call("grant", visits_file, "public", "--level", "fine", "--json")
    assert json.loads(said.out) == {
        "audience": "public",
        "level": "fine",
        "topic": CONTROL,
        "views": [
            {"view": "pages", "before": "finest", "after": "fine", "direction": "coarser", "difference": "0"},
            {"view": "searches", "before": "coarse", "after": "fine", "direction": "finer", "difference": "1/10"},
        ],
    }


@pytest.mark.parametrize(
    ("audience", "level", "message"),
    [
        ("publik", "fine", "error: audience: no audience 'publik'; there are public, staff"),
        ("public", "fin", "error: level: no view of public has a level 'fin'; there are coarse, fine, finest"),
    ],
)
def test_wrong_name_is_wrong_usage_and_nothing_is_written(
    call: Make, visits_file: Path, control: MemoryLog, audience: str, level: str, message: str
) -> None:
    said = call("grant", visits_file, audience, "--level", level)
    assert (said.code, said.out, said.err.strip()) == (2, "", message)
    assert control.end(TP(CONTROL, 0)) == 0


def test_application_that_never_ran_is_a_failure(call: Make, visits_file: Path, log: MemoryLog) -> None:
    said = call("grant", visits_file, "public", "--level", "fine")
    assert said.code == 1
    assert "memory:// has no topic visits-control; a worker makes it" in said.err


def test_words_tell_what_a_grant_does_and_what_it_does_not(visits: Plan) -> None:
    def words(level: str, last: str | None) -> list[str]:
        changes = changes_of(visits, Grant(audience="staff", level=level), last)
        return [explained(change, visits.views[change.view]) for change in changes]

    lower = "pages: from fine (±3) to coarse (±9) for windows to come; what was published stays"
    assert words("coarse", None)[0] == lower
    assert words("fine", None)[0] == "pages: stays at fine; only windows that have less are published again"
    finest = words("finest", "coarse")
    assert finest[0].startswith("pages: from coarse (±9) to finest (±1); ")
    assert finest[1].startswith("searches: from coarse")
    assert "to fine" in finest[1], "a level that a ladder does not have leaves the level of the start"
