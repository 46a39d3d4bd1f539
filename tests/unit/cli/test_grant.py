from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faust.types import TP

from stream_dp.cli.grants_command import explained
from stream_dp.config.plan import Plan
from stream_dp.control.grant_records import Grant, Order, Scope, changes_of
from stream_dp.runtime.embedded import MemoryLog
from stream_dp.runtime.kafka.control_topic import read_order
from stream_dp.windows.durations import parse_time

Make = Callable[..., Any]
Golden = Callable[[str, str], None]
CONTROL = "visits-control"
PANES = "kind: catalogue, catalogue: [a, b], items_per_user: 1"


@pytest.fixture
def control(log: MemoryLog) -> MemoryLog:
    """The embedded log of an application whose worker has been started before."""
    log.create(CONTROL, 1)
    return log


def test_grant_stands_in_the_control_topic_as_the_control_agent_reads_it(
    call: Make, visits_file: Path, visits: Plan, control: MemoryLog, golden: Golden
) -> None:
    said = call("grant", visits_file, "public", "--level", "fine")
    (record,) = control.records[TP(CONTROL, 0)]
    order = read_order(record, visits)
    assert order is not None
    assert (order.audience, order.level) == ("public", "fine")
    assert said.code == 0
    golden("grant", said.out.replace(str(visits_file), "visits.yaml"))


def test_the_noise_of_a_window_of_panes_is_that_of_their_sum(call: Make, visits_file: Path, control: MemoryLog) -> None:
    text = visits_file.read_text().replace('kind: histogram, items_per_user: 1, delta: "1e-6"', PANES)
    visits_file.write_text(text.replace("window: {size: 1d},\n", "window: {size: 6h, pane: 1h},\n"))
    said = call("grant", visits_file, "public", "--level", "fine")
    assert "pages: coarse (±21) -> fine (±7). Windows" in said.out


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
    assert "memory:// has no topic visits-control. Start a worker" in said.err


def test_words_tell_what_a_grant_does_and_what_it_does_not(visits: Plan) -> None:
    def words(level: str, last: str | None) -> list[str]:
        known = [] if last is None else [Order(1, "staff", last)]
        changes = changes_of(visits, Grant(audience="staff", level=level), known)
        return [explained(change, visits.views[change.view], Scope(), "staff") for change in changes]

    lower = "pages: fine (±3) -> coarse (±9) for windows to come. "
    lower += "What was published stays in the topic and becomes no finer."
    assert words("coarse", None)[0] == lower
    assert words("fine", None)[0] == "pages: stays at fine. Only windows at a coarser level are published again."
    finest = words("finest", "coarse")
    assert finest[0].startswith("pages: coarse (±9) -> finest (±1). ")
    assert finest[1].startswith("searches: stays at coarse"), "its ladder has no such level"


FUTURE = "2100-01-01T00:00:00Z"


def test_grant_of_some_views_and_windows_at_a_time_is_written_and_listed_and_withdrawn(
    call: Make, visits_file: Path, visits: Plan, control: MemoryLog, golden: Golden
) -> None:
    scope = ("--view", "pages", "--windows", "future", "--at", FUTURE)
    said = call("grant", visits_file, "public", "--level", "fine", *scope)
    golden("grant-planned", said.out.replace(str(visits_file), "visits.yaml"))
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
    page = page.replace(str(visits_file), "visits.yaml")
    golden("grants", re.sub(r"since \S+", "since 2026-01-01T00:00:00Z", page))

    said = call("grants", visits_file, "--withdraw", name)
    assert said.code == 0
    assert f"Grant {name} is withdrawn." in said.out
    assert len(json.loads(call("grants", visits_file, "--json").out)["grants"]) == 1
    said = call("grants", visits_file, "--withdraw", name)
    assert (said.code, said.err.strip()) == (
        2,
        f"error: --withdraw: no grant has the id {name}. List them: `stream-dp grants FILE`",
    )
    said = call("grants", visits_file, "--withdraw", listed[1]["id"])
    assert said.code == 2
    assert f"grant {listed[1]['id']} has started" in said.err


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
        (("--at", "2001-01-01T00:00:00Z"), "error: at: 2001-01-01T00:00:00Z is in the past. Leave --at out"),
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
    assert "These windows become no finer. What was published stays in the topic." in words
    said = call("grant", visits_file, "public", "--level", "none")
    words = " ".join(said.out.split())
    assert "Granted: public sees nothing more from now on." in words
    assert "pages: nothing more is published, until a newer grant." in words
    said = call("grant", visits_file, "public", "--level", "coarse")
    assert "none -> coarse" in " ".join(said.out.split())
    assert control.end(TP(CONTROL, 0)) == 4
