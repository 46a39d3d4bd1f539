from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faust.types import TP

from stream_dp.cli.grant import explained
from stream_dp.config.plan import Plan
from stream_dp.control.grants import Grant, Order, Scope, changes_of
from stream_dp.runtime.faust.embedded import MemoryLog
from stream_dp.runtime.kafka.control_topic import read_order
from stream_dp.windows.durations import parse_time

Make = Callable[..., Any]
CONTROL = "visits-control"
PANES = "kind: catalogue, catalogue: [a, b], items_per_user: 1"


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


def test_the_noise_of_a_window_of_panes_is_that_of_their_sum(call: Make, visits_file: Path, control: MemoryLog) -> None:
    text = visits_file.read_text().replace('kind: histogram, items_per_user: 1, delta: "1e-6"', PANES)
    visits_file.write_text(text.replace("window: {size: 1d},\n", "window: {size: 6h, pane: 1h},\n"))
    said = call("grant", visits_file, "public", "--level", "fine")
    assert "pages: from coarse (±21) to fine (±7); windows" in said.out


def test_machine_reads_what_every_view_will_do(call: Make, visits_file: Path, control: MemoryLog) -> None:
    call("grant", visits_file, "public", "--level", "finest")
    said = call("grant", visits_file, "public", "--level", "fine", "--json")
    assert json.loads(said.out) == {
        "audience": "public",
        "level": "fine",
        "views": [],
        "windows": "all",
        "start_from": None,
        "start_until": None,
        "at": None,
        "id": Grant(audience="public", level="fine").id,
        "topic": CONTROL,
        "changes": [
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
        known = [] if last is None else [Order(1, "staff", last)]
        changes = changes_of(visits, Grant(audience="staff", level=level), known)
        return [explained(change, visits.views[change.view], Scope()) for change in changes]

    lower = "pages: from fine (±3) to coarse (±9) for windows to come; "
    lower += "what was published stays in the topic, and becomes no finer"
    assert words("coarse", None)[0] == lower
    assert words("fine", None)[0] == "pages: stays at fine; only windows that have less are published again"
    finest = words("finest", "coarse")
    assert finest[0].startswith("pages: from coarse (±9) to finest (±1); ")
    assert finest[1].startswith("searches: stays at coarse"), "its ladder has no such level"


FUTURE = "2100-01-01T00:00:00Z"


def test_grant_of_some_views_and_windows_at_a_time_is_written_and_listed_and_withdrawn(
    call: Make, visits_file: Path, visits: Plan, control: MemoryLog
) -> None:
    scope = ("--view", "pages", "--windows", "future", "--at", FUTURE)
    said = call("grant", visits_file, "public", "--level", "fine", *scope)
    assert "public may see level fine from 2100-01-01T00:00:00Z on, of future windows." in said.out
    assert "pages: from coarse (±9) to fine (±3) for windows to come; one costs ledger" in said.out
    assert "searches" not in said.out
    call("grant", visits_file, "public", "--level", "fine", "--from", "2026-01-01", "--until", FUTURE)
    orders = [read_order(record, visits) for record in control.records[TP(CONTROL, 0)]]
    assert [order and (order.scope, order.at_ms) for order in orders] == [
        (Scope(("pages",), "future"), parse_time(FUTURE)),
        (Scope((), "all", parse_time("2026-01-01T00:00:00Z"), parse_time(FUTURE)), None),
    ]
    assert orders[0] is not None
    name = orders[0].id
    assert f"grants {visits_file} --withdraw {name}" in said.out

    listed = json.loads(call("grants", visits_file, "--json").out)["grants"]
    assert [(one["id"] == name, one["waits"], one["views"]) for one in listed] == [
        (True, True, ["pages"]),
        (False, False, []),
    ]
    page = call("grants", visits_file).out
    assert "waits for 2100-01-01T00:00:00Z" in page
    assert "windows that start from 2026-01-01T00:00:00Z on before 2100-01-01T00:00:00Z" in " ".join(page.split())

    said = call("grants", visits_file, "--withdraw", name)
    assert said.code == 0
    assert f"grant {name} is withdrawn." in said.out
    assert len(json.loads(call("grants", visits_file, "--json").out)["grants"]) == 1
    said = call("grants", visits_file, "--withdraw", name)
    assert (said.code, said.err.strip()) == (2, f"error: withdraw: grant {name} is not there")
    said = call("grants", visits_file, "--withdraw", listed[1]["id"])
    assert said.code == 2
    assert "was carried out; a later one can lower the level for windows to come" in said.err


@pytest.mark.parametrize("option", ["--from", "--until", "--at"])
def test_moment_of_a_grant_that_is_none_is_wrong_usage_and_nothing_is_written(
    call: Make, visits_file: Path, control: MemoryLog, option: str
) -> None:
    said = call("grant", visits_file, "public", "--level", "fine", option, "tomorrow")
    assert (said.code, said.out) == (2, "")
    assert "'tomorrow': write a date" in said.err
    assert control.end(TP(CONTROL, 0)) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--view", "page"), "error: view: public reads no view 'page'; it reads pages, searches"),
        (("--at", "2001-01-01T00:00:00Z"), "error: at: 2001-01-01T00:00:00Z is over; leave --at out"),
        (("--from", FUTURE, "--until", "2001-01-01T00:00:00Z"), "error: until: must be after the start of the first"),
        (("--from", FUTURE, "--windows", "future"), "error: windows: future windows, or those between two starts"),
    ],
)
def test_scope_that_can_hold_nothing_is_wrong_usage_and_nothing_is_written(
    call: Make, visits_file: Path, control: MemoryLog, options: tuple[str, ...], message: str
) -> None:
    said = call("grant", visits_file, "public", "--level", "fine", *options)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(message)
    assert control.end(TP(CONTROL, 0)) == 0


def test_a_coarser_level_and_none_say_what_stays(call: Make, visits_file: Path, control: MemoryLog) -> None:
    call("grant", visits_file, "public", "--level", "fine")
    said = call("grant", visits_file, "public", "--level", "coarse", "--windows", "retained")
    assert said.code == 0
    words = " ".join(said.out.split())
    assert "what was published stays in the topic, and none of these windows becomes finer" in words
    said = call("grant", visits_file, "public", "--level", "none")
    words = " ".join(said.out.split())
    assert "public gets nothing more from now on." in words
    assert "pages: ends. What was published stays in the topic; a newer grant begins it again" in words
    said = call("grant", visits_file, "public", "--level", "coarse")
    assert "from none to coarse" in " ".join(said.out.split())
    assert control.end(TP(CONTROL, 0)) == 4
