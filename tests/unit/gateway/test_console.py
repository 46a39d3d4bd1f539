"""The operators' console: what it says is what the commands say; changes need consent to what they mean now."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.errors import OutageError
from stream_dp.gateway.tokens import LOOKER, OPERATOR, OPERATORS_PREFIX, RequestRate, new_token, revoke_token
from stream_dp.gateway.web import SECURITY, STATUSES
from stream_dp.operations.assignments import assigned
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.windows.durations import parse_time
from tests.support.chosen import ordinarily, spread
from tests.support.console import DAY_MS, OWN, Desk
from tests.support.gateway import ask
from tests.support.published import Call, log  # noqa: F401 - fixtures
from tests.unit.cli.test_ledger import Office

NOON = parse_time("2026-02-28T12:00:00Z")
PLAN, CURVE, SETTINGS, GRANTS, SESSION = ("/v1/plan", "/v1/plan/curve", "/v1/settings", "/v1/grants", "/v1/session")
READ = ("status", "ledgers", "settings", "grants")


class Clock:
    ms = NOON

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The wall clock of commands and console, which stands still."""
    found = Clock()
    for module in ("operations.settings_changes", "operations.reports", "operations.grants", "gateway.watch"):
        monkeypatch.setattr(f"stream_dp.{module}.wall_clock_ms", found)
    monkeypatch.setattr("tests.support.console.wall_clock_ms", found)
    return found


@pytest.fixture
def desk(visits: Plan, tmp_path: Path, clock: Clock, log: MemoryLog) -> Desk:  # noqa: F811
    """The console of an application that runs and has released three days of its views."""
    made = Desk(visits, tmp_path / "operators.tokens", log)
    made.console.now_ms = log.clock_ms = clock
    office = Office(visits)
    for day in range(NOON // DAY_MS - 3, NOON // DAY_MS):
        office.release("pages", day)
        office.release("searches", day)
    office.publish(log)
    made.report()
    asyncio.run(made.start())
    made.asked.clear()
    return made


def run(work: Any) -> Any:
    return asyncio.run(work)


# -- what is known ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "command"), [*zip(READ, ("status", "ledger", "settings", "grants"), strict=True)])
def test_what_is_known_is_what_the_command_says(
    desk: Desk, call: Call, visits_file: Path, name: str, command: str
) -> None:
    call("grant", visits_file, "staff", "--level", "finest", "--at", "2027-01-01")
    run(desk.look())
    answer = run(desk.get(f"/v1/{name}"))
    assert answer.status == 200
    assert answer.json == json.loads(call(command, visits_file, "--json").out)


def test_what_has_not_changed_is_304_and_a_change_changes_the_tag(desk: Desk, call: Call, visits_file: Path) -> None:
    tags = {name: run(desk.get(f"/v1/{name}")).headers["etag"] for name in READ}
    assert all(run(desk.get(f"/v1/{name}", if_none_match=tag)).status == 304 for name, tag in tags.items())
    call("grant", visits_file, "staff", "--level", "finest")
    run(desk.look())
    assert run(desk.get("/v1/grants", if_none_match=tags["grants"])).json["grants"][0]["level"] == "finest"


def test_before_the_first_start_there_is_a_status_and_no_settings(visits: Plan, tmp_path: Path) -> None:
    desk = Desk(visits, tmp_path / "operators.tokens")
    answer = run(desk.get("/v1/status"))
    assert (answer.status, answer.json["type"], answer.headers["retry-after"]) == (503, "starting", "1")
    run(desk.look())
    assert run(desk.get("/v1/status")).json["problems"][0]["code"] == "no_worker"
    assert run(desk.get("/v1/ledgers")).json == {"ledgers": []}
    for answer in (run(desk.get(SETTINGS)), run(desk.send(PLAN, {"view": "pages", "assignments": []}))):
        assert (answer.status, answer.json["type"]) == (503, "starting")
        assert "never started" in answer.json["detail"]


async def test_it_starts_without_a_broker_and_answers_from_memory_when_that_falls_silent(
    visits: Plan, tmp_path: Path
) -> None:
    desk = Desk(visits, tmp_path / "operators.tokens", is_up=False)
    desk.console.watch.look_seconds = 0.01
    running = asyncio.create_task(desk.console.watch.run())
    await desk.settled(lambda: desk.console.watch.silent)
    assert (await desk.get("/v1/status")).json["type"] == "broker_silent"
    assert (await desk.get("/readyz")).status == 503
    desk.is_up = True
    await desk.settled(lambda: not desk.console.watch.silent)
    assert (await desk.get("/readyz")).status == 200
    assert "warning" not in (await desk.get("/v1/status")).headers
    desk.is_up = False
    await desk.settled(lambda: desk.console.watch.silent)
    assert (await desk.get("/v1/status")).headers["warning"].startswith("110")
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_streams_say_what_has_changed_and_go_on_from_a_position(
    visits: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.operations.settings_changes.LOOK_SECONDS", 0.01)
    desk = Desk(visits, tmp_path / "operators.tokens")
    desk.report()
    await desk.start()
    at = {name: (await desk.get(f"/v1/{name}")).headers["stream-position"] for name in READ}
    after = f"status.{at['status']}~account.{at['ledgers']}~settings.{at['settings']}~grant.{at['grants']}"
    assert b"event:" not in (await desk.get(f"/v1/events?after={after}")).body
    assert b"event:" not in (await desk.get("/v1/events")).body
    plan = await desk.plan_of("items_per_user=2")
    await desk.send(SETTINGS, consent(plan, "items_per_user=2"))
    await desk.accept(2)
    desk.report(settings=2)
    watch = desk.console.watch
    await desk.settled(lambda: watch.rollout is not None and watch.rollout["over"])
    await desk.look()
    found = (await desk.get("/v1/events", last_event_id=after)).body.decode()
    names = [line.removeprefix("event: ") for line in found.splitlines() if line.startswith("event")]
    data = [json.loads(line[6:]) for line in found.splitlines() if line.startswith("data")]
    assert sorted(names) == ["grant", "settings", "status"]  # both are of the control topic
    told = data[names.index("settings")]
    assert (told["settings"], told["href"], told["rollout"]["by_all"]) == (2, SETTINGS, True)
    assert told["rollout"]["workers"]["used_by"] == ["worker-1"]
    assert data[names.index("status")]["status"]["settings"] == 2
    last = [line[4:] for line in found.splitlines() if line.startswith("id")][-1]
    assert b"event:" not in (await desk.get(f"/v1/events?after={last}")).body


def test_new_settings_are_told_of_when_changes_are_worked_out_from_them(desk: Desk) -> None:
    """An event with the number of the former ones would be taken for nothing new."""
    run(desk.send(SETTINGS, consent(run(desk.plan_of("items_per_user=2")), "items_per_user=2")))
    watch, heard = desk.console.watch, []
    watch.changed = lambda name: heard.append((name, json.loads(watch.event("settings"))["settings"]))
    run(desk.look())
    assert ("settings", 2) in heard
    assert ("settings", 1) not in heard
    assert len(run(desk.get(SETTINGS)).json["settings"]) == 2


async def test_a_worker_that_does_not_use_new_settings_is_named_and_waited_for_no_longer_than_a_minute(
    visits: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.operations.settings_changes.LOOK_SECONDS", 0.001)
    desk = Desk(visits, tmp_path / "operators.tokens")
    desk.report()
    await desk.start()
    told: list[tuple[bool, bool]] = []
    watch = desk.console.watch
    watch.changed = lambda _: (
        None if watch.rollout is None else told.append((watch.rollout["by_all"], watch.rollout["over"]))
    )
    await desk.send(SETTINGS, consent(await desk.plan_of("items_per_user=2"), "items_per_user=2"))
    await desk.settled(lambda: watch.rollout is not None and watch.rollout["over"])
    assert (told[0], told[-1]) == ((False, False), (False, True))
    assert watch.rollout is not None
    assert watch.rollout["workers"]["others"] == ("worker-1",)


async def test_a_revoked_operator_hears_no_more(visits: Plan, tmp_path: Path) -> None:
    desk = Desk(visits, tmp_path / "operators.tokens")
    await desk.start()
    reading = asyncio.create_task(desk.get("/v1/events"))
    await desk.settled(lambda: desk.console.hub.streams)
    entry = desk.console.tokens.entry(desk.token)
    assert entry is not None
    revoke_token(desk.file, entry.id)
    desk.console.tokens.look()
    desk.console.hub.check_tokens()
    assert b'"reason":"revoked"' in (await reading).body
    assert (await desk.get("/v1/status")).status == 401


# -- what a change means ---------------------------------------------------------------------------------------------

VALUES = {
    "pages": {
        "items_per_user": ["1", "2", "3", "7", "0"],
        "window.size": ["1h", "12h", "1d", "2d", "7d", "11d", "x"],
        "delta": ["1e-5", "1e-7", "1e-9", "2"],
        "ladders.pages.fine": ["1/2", "3/4", "3/2", "2", "9", ""],
        "ladders.pages.middle": ["2/3", "5", "1"],
        "levels.coarse.epsilon": ["1/10", "1/3", "1/2", "2"],
        "retention": ["10d", "90d"],
        "share": ["1/2", "9/10", ""],
        "audiences.public": ["fine", "coarse", "nothing"],
    },
    "searches": {
        "k": ["1", "2", "3", "5", "9"],
        "kbar": ["5", "8", "20"],
        "selection.epsilon": ["1/20", "1/5", "3"],
        "window.size": ["6h", "1d", "5d"],
        "views.pages.items_per_user": ["2", "4"],
        "ladders.searches.coarse": ["1/20", "1/8"],
    },
}


def drawn(seed: int) -> tuple[str, list[str]]:
    """A view and some changes of it."""
    chance = random.Random(seed)
    view = chance.choice(list(VALUES))
    keys = chance.sample(list(VALUES[view]), chance.randint(1, 3))
    return view, [f"{key}={chance.choice(VALUES[view][key])}" for key in keys]


@pytest.mark.parametrize("seed", ordinarily(8, range(200)))
def test_a_plan_says_what_apply_and_tune_say_and_no_release_is_asked_for(
    desk: Desk, call: Call, visits_file: Path, seed: int
) -> None:
    view, assignments = drawn(seed)
    started = [] if seed % 3 else ["--from", "2026-03-05"]
    desk.asked.clear()
    plan = run(desk.plan_of(*assignments, view=view, **({"from": "2026-03-05"} if started else {})))
    assert desk.asked == set()
    other = visits_file.with_name("other.yaml")
    other.write_text(json.dumps(assigned(load_plan(visits_file), view, assignments)))  # which is YAML, too
    said = call("tune", visits_file, view, *assignments, *started, "--dry-run", "--json")
    applied = call("apply", other, *started, "--dry-run", "--json")
    told = json.loads(said.out)
    if said.code:
        assert (plan["plan"], plan["faults"]) == (None, told["faults"])
        assert json.loads(applied.out)["faults"] == told["faults"]
        return
    assert json.loads(applied.out) == told
    of_the_cluster = {"new_topics": [], "rights": "enough", "takes_back": []}
    assert told | of_the_cluster == plan["change"] | of_the_cluster
    before, after = ({one["level"]: one["noise_interval_95"][side] for one in plan["levels"]} for side in SIDES)
    for changed in (one for one in told["views"] if one["view"] == view):
        assert {one["level"]: one["before"] for one in changed["levels"]} == before
        assert {one["level"]: one["after"] for one in changed["levels"]} == after
        assert plan["view_day"] == {"before": changed["day_before"], "after": changed["day_after"]}
        assert (parse_time(plan["begins"]), plan["same_question"]) == (changed["at_ms"], changed["goes_on"])


SIDES = ("before", "after")


def test_random_changes_are_possible_and_impossible_ones(desk: Desk) -> None:
    """What the test above draws has enough of both."""
    found = []
    for seed in range(30):
        view, assignments = drawn(seed)
        found.append(run(desk.plan_of(*assignments, view=view))["plan"] is not None)
    assert min(found.count(True), found.count(False)) >= 5


def test_what_is_read_is_the_same_as_long_as_it_means_the_same(desk: Desk, clock: Clock) -> None:
    plans = []
    for later_ms in (0, 1, 60_000, DAY_MS):
        clock.ms = NOON + later_ms
        plans.append(run(desk.plan_of("items_per_user=2")))
    assert len({one["plan"] for one in plans}) == 2
    assert [one["begins"] for one in plans[2:]] == ["2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"]
    assert run(desk.plan_of("items_per_user=3"))["plan"] != plans[3]["plan"]


def test_a_curve_has_the_meaning_of_each_value(desk: Desk) -> None:
    values = ["1/2", "1", "0", "3/2"]
    asked = {"view": "pages", "assignments": ["items_per_user=2"], "setting": "ladders.pages.fine", "values": values}
    points = run(desk.send(CURVE, asked)).json["points"]
    for value, point in zip(values, points, strict=True):
        plan = run(desk.plan_of("items_per_user=2", f"ladders.pages.fine={value}"))
        assert point == {"value": value, **{name: plan[name] for name in point if name != "value"}}
    noise = [
        {one["level"]: one["noise_interval_95"]["after"] for one in p["levels"]} for p in points if not p["faults"]
    ]
    assert [one["fine"] for one in noise] == sorted((one["fine"] for one in noise), reverse=True)
    law = points[0]["levels"][0]["noise"]["after"]  # what the page draws places of a true number from
    assert (law["distribution"], law.keys()) == ("discrete laplace", {"distribution", "scale"})
    assert points[2]["faults"][0]["path"].startswith("ladders.pages")


def test_plans_are_limited_for_the_whole_console(desk: Desk) -> None:
    desk.console.plans = RequestRate(10, 10, lambda: 0)
    asked = {"view": "pages", "assignments": [], "setting": "items_per_user", "values": [str(n) for n in range(1, 10)]}
    assert run(desk.send(CURVE, asked)).status == 200
    answers = [run(desk.send(PLAN, {"view": "pages", "assignments": []})) for _ in range(10)]
    assert [one.status for one in answers] == [200] * 9 + [429]
    assert answers[9].headers["retry-after"] == "1"


# -- consent ---------------------------------------------------------------------------------------------------------


def consent(plan: Any, *assignments: str, view: str = "pages", **more: Any) -> dict[str, Any]:
    asked = {"view": view, "assignments": list(assignments), "plan": plan["plan"], "settings": plan["settings"]}
    return {**asked, "note": "as agreed", **more}


def test_what_is_agreed_to_is_posted_as_it_was_shown(desk: Desk) -> None:
    plan = run(desk.plan_of("items_per_user=2", "ladders.pages.middle=1/2"))
    answer = run(desk.send(SETTINGS, consent(plan, "items_per_user=2", "ladders.pages.middle=1/2")))
    assert (answer.status, answer.json) == (202, {"settings": 2, "posted": True, "already": False})
    posted = run(desk.known())[1]
    assert (posted.begins, posted.note) == ({"pages": parse_time(plan["begins"])}, "as agreed")
    assert posted.sections["ladders"]["pages"][1] == {"level": "middle", "epsilon": "1/2"}
    run(desk.look())
    assert run(desk.get(SETTINGS)).json["settings"][1]["note"] == "as agreed"


def test_of_two_operators_at_once_one_is_held_and_the_other_reads_theirs(desk: Desk) -> None:
    plans = [run(desk.plan_of(f"items_per_user={number}")) for number in (2, 3)]

    async def both() -> list[Any]:
        await desk.look(other := desk.made())
        return list(
            await asyncio.gather(
                desk.send(SETTINGS, consent(plans[0], "items_per_user=2")),
                desk.send(SETTINGS, consent(plans[1], "items_per_user=3"), console=other),
            )
        )

    answers = sorted(run(both()), key=lambda one: one.status)
    assert [one.status for one in answers] == [202, 409]
    theirs = answers[1].json
    assert (theirs["type"], theirs["theirs"]["settings"], theirs["theirs"]["note"]) == (
        "settings_changed",
        2,
        "as agreed",
    )
    assert [one["path"] for one in theirs["theirs"]["changed"]] == ["views.pages.items_per_user"]
    known = run(desk.known())
    assert len(known) == 2
    assert str(known[1].sections["views"]["pages"]["items_per_user"]) == theirs["theirs"]["changed"][0]["after"]


def test_two_operators_who_agree_to_the_same_are_both_right(desk: Desk) -> None:
    plan = run(desk.plan_of("items_per_user=2"))

    async def both() -> list[Any]:
        asked = consent(plan, "items_per_user=2")
        await desk.look(other := desk.made())
        return list(await asyncio.gather(desk.send(SETTINGS, asked), desk.send(SETTINGS, asked, console=other)))

    assert sorted((one.status, one.json["already"]) for one in run(both())) == [(200, True), (202, False)]
    assert len(run(desk.known())) == 2


def test_a_window_that_begins_while_one_reads_is_read_again(desk: Desk, clock: Clock) -> None:
    plan = run(desk.plan_of("items_per_user=2"))
    clock.ms += DAY_MS // 2
    answer = run(desk.send(SETTINGS, consent(plan, "items_per_user=2")))
    assert (answer.status, answer.json["type"]) == (409, "plan_changed")
    now = answer.json["now"]
    assert (plan["begins"], now["begins"]) == ("2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z")
    assert len(run(desk.known())) == 1
    assert run(desk.send(SETTINGS, consent(now, "items_per_user=2"))).status == 202
    assert run(desk.known())[1].begins == {"pages": parse_time("2026-03-02T00:00:00Z")}


def test_what_was_charged_while_one_reads_is_read_again_if_it_matters(desk: Desk, visits: Plan) -> None:
    plan = run(desk.plan_of("ladders.pages.fine=11/10"))
    office = Office(visits)
    for day in range(NOON // DAY_MS - 4, NOON // DAY_MS + 1):
        for _ in range(9):
            office.release("pages", day)
    office.publish(desk.log)
    answer = run(desk.send(SETTINGS, consent(plan, "ladders.pages.fine=11/10")))
    assert answer.json["type"] == "plan_changed"
    pays = [one["ledgers"][0]["pays_until"]["after"]["until"] for one in (plan, answer.json["now"])]
    assert pays[0] != pays[1]


@pytest.mark.parametrize("is_written", [True, False])
def test_a_lost_answer_is_asked_for_again_and_takes_effect_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    plan = run(desk.plan_of("items_per_user=2"))
    publish = MemoryClient.publish

    async def lost(client: MemoryClient, records: Any) -> Any:
        if is_written:
            await publish(client, records)
        raise OutageError("no Kafka answers")

    with monkeypatch.context() as broken:
        broken.setattr(MemoryClient, "publish", lost)
        answer = run(desk.send(SETTINGS, consent(plan, "items_per_user=2")))
    assert (answer.status, answer.json["type"]) == (503, "broker_silent")
    assert "not known whether" in answer.json["detail"]
    again = run(desk.send(SETTINGS, consent(plan, "items_per_user=2")))
    assert (again.status, again.json["already"]) == ((200, True) if is_written else (202, False))
    assert len(run(desk.known())) == 2


def test_what_differs_in_nothing_posts_nothing(desk: Desk) -> None:
    answer = run(desk.send(SETTINGS, consent(run(desk.plan_of("items_per_user=1")), "items_per_user=1")))
    assert answer.json == {"settings": 1, "posted": False, "already": True}
    assert len(run(desk.known())) == 1


@pytest.mark.parametrize(
    ("assignment", "removes"),
    [
        ("ladders.pages.finest=", ["level finest of view pages"]),
        ("views.searches=", ["view searches"]),
        ("audiences=[staff]", ["audience public of view pages"]),
    ],
)
def test_what_removes_something_asks_for_the_name_of_the_application(
    desk: Desk, assignment: str, removes: list[str]
) -> None:
    plan = run(desk.plan_of(assignment))
    assert plan["removes"] == removes
    for name in (None, "", "Visits", "pages"):
        answer = run(desk.send(SETTINGS, consent(plan, assignment, application=name)))
        assert (answer.status, answer.json["faults"][0]["path"]) == (422, "application")
    assert len(run(desk.known())) == 1
    assert run(desk.send(SETTINGS, consent(plan, assignment, application="visits"))).status == 202


def test_backfill_asks_for_the_name_of_the_application(desk: Desk) -> None:
    plan = run(desk.plan_of("items_per_user=2", backfill=True))
    asked = consent(plan, "items_per_user=2", backfill=True)
    assert run(desk.send(SETTINGS, asked)).json["faults"][0]["path"] == "application"
    assert run(desk.send(SETTINGS, {**asked, "application": "visits"})).status == 202


# -- grants ----------------------------------------------------------------------------------------------------------


def test_a_grant_is_written_after_consent_and_withdrawn_before_it_starts(desk: Desk) -> None:
    grant = {"audience": "public", "level": "fine", "views": ["pages"], "at": "2027-01-01T00:00:00Z"}
    shown = run(desk.send(GRANTS, {"grant": grant})).json
    (change,) = shown["changes"]
    assert (change["view"], change["direction"], change["difference"]) == ("pages", "finer", "2/3")
    assert change["noise_interval_95"] == {"before": 9, "after": 3}
    run(desk.look())
    assert run(desk.get(GRANTS)).json == {"grants": []}
    answer = run(desk.send(GRANTS, {"grant": grant, "plan": shown["plan"]}))
    assert (answer.status, answer.json) == (202, {"id": shown["id"], "posted": True, "already": False})
    run(desk.look())
    assert [one["id"] for one in run(desk.get(GRANTS)).json["grants"]] == [shown["id"]]
    for body, status in (({}, 400), ({"consent": False}, 400), ({"consent": True}, 202), ({"consent": True}, 404)):
        assert run(desk.send(f"{GRANTS}/{shown['id']}", body, "DELETE")).status == status
    run(desk.look())
    assert run(desk.get(GRANTS)).json == {"grants": []}


def test_a_grant_that_means_something_else_now_is_read_again_and_one_sent_twice_is_said_to_be_there(
    desk: Desk, call: Call, visits_file: Path
) -> None:
    grant = {"audience": "public", "level": "fine"}
    shown = run(desk.send(GRANTS, {"grant": grant})).json
    call("grant", visits_file, "public", "--level", "finest", "--view", "pages")
    answer = run(desk.send(GRANTS, {"grant": grant, "plan": shown["plan"]}))
    assert (answer.status, answer.json["type"]) == (409, "plan_changed")
    now = answer.json["now"]
    assert [one["direction"] for one in now["changes"]] == ["coarser", "finer"]
    again = [run(desk.send(GRANTS, {"grant": grant, "plan": now["plan"]})) for _ in range(2)]
    assert [(one.status, one.json["already"]) for one in again] == [(202, False), (200, True)]


def test_a_grant_that_has_started_cannot_be_withdrawn(desk: Desk, call: Call, visits_file: Path, clock: Clock) -> None:
    made = json.loads(
        call("grant", visits_file, "public", "--level", "fine", "--at", "2026-03-01T00:00:00Z", "--json").out
    )
    clock.ms += DAY_MS
    answer = run(desk.send(f"{GRANTS}/{made['id']}", {"consent": True}, "DELETE"))
    assert (answer.status, answer.json["type"]) == (422, "faults")
    assert "has started" in answer.json["faults"][0]["message"]


# -- what must fail --------------------------------------------------------------------------------------------------

TUNE = {"view": "pages", "assignments": ["items_per_user=2"]}
AGREED = {**TUNE, "plan": "0" * 64, "settings": 1}
GRANT = {"grant": {"audience": "public", "level": "fine"}}
FAULTY: dict[str, tuple[str, Any, str]] = {
    "no view": (SETTINGS, {**AGREED, "view": "page"}, "no view is named 'page'"),
    "no assignment": (SETTINGS, {**AGREED, "assignments": ["x"]}, "write KEY=VALUE"),
    "no key": (SETTINGS, {**AGREED, "assignments": ["=1"]}, "write KEY=VALUE"),
    "no such key": (SETTINGS, {**AGREED, "assignments": ["itms=1"]}, "did you mean"),
    "no number": (SETTINGS, {**AGREED, "assignments": ["items_per_user=x"]}, "number"),
    "no epsilon": (SETTINGS, {**AGREED, "assignments": ["ladders.pages.fine=x"]}, "exact"),
    "no ladder": (SETTINGS, {**AGREED, "assignments": ["ladders.page.fine=1"]}, "write a ladder"),
    "a part of a level": (SETTINGS, {**AGREED, "assignments": ["ladders.pages.fine.epsilon=1"]}, "write a ladder"),
    "no new epsilon": (SETTINGS, {**AGREED, "assignments": ["ladders.pages.x=y"]}, "exact"),
    "a list as a level": (SETTINGS, {**AGREED, "assignments": ["ladders.pages.x=[1]"]}, "write a ladder"),
    "no level": (SETTINGS, {**AGREED, "assignments": ["levels.x.epsilon=1"]}, "no level 'x'"),
    "a level with nothing": (SETTINGS, {**AGREED, "assignments": ["levels.fine.epsilon="]}, "write a level"),
    "itself removed, then set": (SETTINGS, {**AGREED, "assignments": ["views.pages=", "k=1"]}, "no view is named"),
    "past": (SETTINGS, {**AGREED, "from": "2020-01-01"}, "is past"),
    "too dear": (
        SETTINGS,
        {**AGREED, "assignments": ["levels.finest.epsilon=40", "audiences.public=finest"]},
        "ledger",
    ),
    "no audience": (GRANTS, {"grant": {"audience": "publik", "level": "fine"}}, "no audience"),
    "no granted level": (GRANTS, {"grant": {"audience": "public", "level": "x"}}, "no view of public has a level"),
    "no view read": (GRANTS, {"grant": {"audience": "public", "level": "fine", "views": ["x"]}}, "reads no view"),
    "nothing granted": (GRANTS, {"grant": {}}, "required"),
    "more than a grant": (GRANTS, {"grant": {**GRANT["grant"], "x": 1}}, "not permitted"),
    "granted then": (GRANTS, {"grant": {**GRANT["grant"], "at": "2020-01-01T00:00:00Z"}}, "in the past"),
    "granted some time": (GRANTS, {"grant": {**GRANT["grant"], "at": "soon"}}, "write a moment"),
    "windows twice": (
        GRANTS,
        {"grant": {**GRANT["grant"], "windows": "future", "start_from": "2027-01-01T00:00:00Z"}},
        "one of the two",
    ),
}


@pytest.mark.parametrize("name", spread(3, FAULTY))
def test_what_is_impossible_says_why_and_changes_nothing(desk: Desk, name: str) -> None:
    path, body, reason = FAULTY[name]
    control = len(run(desk.known()))
    answer = run(desk.send(path, body))
    assert (answer.status, answer.json["type"]) == (422, "faults")
    assert reason in answer.json["faults"][0]["message"]
    run(desk.look())
    assert len(run(desk.known())) == control
    assert run(desk.get(GRANTS)).json == {"grants": []}


BAD: dict[str, tuple[str, Any, str]] = {
    "empty": (PLAN, b"", "The body is wrong"),
    "no JSON": (PLAN, b"{", "The body is wrong"),
    "a list": (PLAN, [], "Expected `object`"),
    "no text": (PLAN, b"\xff", "The body is wrong"),
    "no assignments": (PLAN, {"view": "pages"}, "missing required field `assignments`"),
    "nothing of a view": (PLAN, {"assignments": []}, "missing required field `view`"),
    "numbers": (PLAN, {**TUNE, "assignments": [1]}, "Expected `str`"),
    "one assignment": (PLAN, {**TUNE, "assignments": "k=1"}, "Expected `array`"),
    "65 assignments": (PLAN, {**TUNE, "assignments": ["k=1"] * 65}, "length <= 64"),
    "a long assignment": (PLAN, {**TUNE, "assignments": ["k=" + "1" * 1000]}, "length <= 1000"),
    "another field": (PLAN, {**TUNE, "views": 1}, "unknown field `views`"),
    "a consent to ask": (PLAN, AGREED, "unknown field"),
    "no time": (PLAN, {**TUNE, "from": "soon"}, "from: write a date"),
    "backfill in words": (PLAN, {**TUNE, "backfill": "yes"}, "Expected `bool`"),
    "a curve of nothing": (CURVE, {**TUNE, "setting": "k", "values": []}, "length >= 1"),
    "a curve of ten": (CURVE, {**TUNE, "setting": "k", "values": ["1"] * 10}, "length <= 9"),
    "a curve of numbers": (CURVE, {**TUNE, "setting": "k", "values": [1]}, "Expected `str`"),
    "a curve without a setting": (CURVE, {**TUNE, "values": ["1"]}, "missing required field `setting`"),
    "no consent": (SETTINGS, TUNE, "missing required field"),
    "no plan": (SETTINGS, {**TUNE, "settings": 1}, "missing required field `plan`"),
    "no settings": (SETTINGS, {**TUNE, "plan": "x"}, "missing required field `settings`"),
    "settings 0": (SETTINGS, {**AGREED, "settings": 0}, "`int` >= 1"),
    "settings in words": (SETTINGS, {**AGREED, "settings": "1"}, "Expected `int`"),
    "a long note": (SETTINGS, {**AGREED, "note": "x" * 1001}, "length <= 1000"),
    "no grant": (GRANTS, {}, "missing required field `grant`"),
    "another field of a grant": (GRANTS, {**GRANT, "yes": True}, "unknown field `yes`"),
    "no token": (SESSION, [], 'Send {"token": "sdpo_..."}'),
    "a parameter": (f"{PLAN}?x=1", TUNE, "unknown parameter 'x'"),
    "a token in the address": (f"{PLAN}?token=sdpo_x", TUNE, "unknown parameter 'token'"),
}


@pytest.mark.parametrize("name", spread(3, BAD))
def test_a_wrong_request_is_400_and_says_why(desk: Desk, name: str) -> None:
    path, body, reason = BAD[name]
    answer = run(desk.send(path, body))
    assert (answer.status, answer.json["type"]) == (400, "bad_request")
    assert reason in answer.json["detail"]
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (AGREED, "plan_changed"),
        ({**AGREED, "plan": "x"}, "plan_changed"),
        ({**AGREED, "settings": 2}, "settings_changed"),
        ({**AGREED, "settings": 10**9}, "settings_changed"),
    ],
)
def test_consent_to_what_was_not_shown_changes_nothing(desk: Desk, body: Any, reason: str) -> None:
    answer = run(desk.send(SETTINGS, body))
    assert (answer.status, answer.json["type"]) == (409, reason)
    assert len(run(desk.known())) == 1


@pytest.mark.parametrize("path", ordinarily(1, [SETTINGS, f"{GRANTS}/x", SESSION, PLAN, CURVE, GRANTS]))
@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({"origin": "https://evil.example"}, 403, "wrong_origin"),
        ({"origin": "null"}, 403, "wrong_origin"),
        ({"origin": ""}, 403, "wrong_origin"),
        ({"origin": "http://localhost:8080"}, 403, "wrong_origin"),
        ({"host": "console.example", "origin": "http://console.example"}, 403, "tls_required"),
        ({"content_type": "text/plain"}, 400, "bad_request"),
        ({"content_type": "application/x-www-form-urlencoded"}, 400, "bad_request"),
        ({"content_type": ""}, 400, "bad_request"),
    ],
)
def test_pages_elsewhere_change_nothing(desk: Desk, path: str, headers: dict[str, Any], status: int, kind: str) -> None:
    method = "DELETE" if path.endswith("x") else "POST"
    answer = run(desk.send(path, AGREED, method, **headers))
    assert (answer.status, answer.json["type"], "set-cookie" in answer.headers) == (status, kind, False)
    assert len(run(desk.known())) == 1


EVERY = [*((f"/v1/{name}", "GET") for name in (*READ, "events", "session")), (PLAN, "POST"), (CURVE, "POST")]
EVERY += [(SETTINGS, "POST"), (GRANTS, "POST"), (f"{GRANTS}/x", "DELETE")]


@pytest.mark.parametrize(("path", "method"), EVERY)
def test_without_an_operators_token_nothing_is_said(desk: Desk, path: str, method: str) -> None:
    _, reader = new_token(desk.file, "public", NOON)
    _, other = new_token(desk.file, "public", NOON, prefix=OPERATORS_PREFIX)
    _, expired = new_token(desk.file, OPERATOR, NOON, NOON, prefix=OPERATORS_PREFIX)
    desk.console.tokens.look()
    app = desk.console.app()
    wrong = ["", "Bearer", f"Basic {desk.token}", f"Bearer {desk.token[:-1]}", f"Bearer {desk.token}x"]
    wrong += [f"Bearer {one}" for one in (reader, other, expired, desk.token.replace("sdpo_", "sdp_"))]
    answers = [run(ask(app, path, method, b"{}", authorization=one, **OWN)) for one in wrong]
    answers += [run(ask(app, path, method, b"{}", **OWN))]
    answers += [run(ask(app, path, method, b"{}", cookie=f"{name}={desk.token}", **OWN)) for name in READERS_COOKIES]
    assert {one.status for one in answers} == {401}
    assert len({one.body for one in answers}) == 1


READERS_COOKIES = ("sdp-operator", "sdp-public", "token")


@pytest.mark.parametrize(("path", "method"), EVERY)
def test_who_may_look_changes_nothing_and_sees_that_in_the_words_of_what_is_not_there(
    desk: Desk, path: str, method: str
) -> None:
    _, token = new_token(desk.file, LOOKER, NOON, prefix=OPERATORS_PREFIX)
    desk.console.tokens.look()
    answer = run(ask(desk.console.app(), path, method, b"{}", authorization=f"Bearer {token}", **OWN))
    nothing = run(desk.get("/v1/nothing"))
    if method == "GET":
        assert answer.status == 200
    else:
        assert (answer.status, answer.body) == (nothing.status, nothing.body) == (404, nothing.body)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "TRACE", "DELETE"])
@pytest.mark.parametrize("path", ordinarily(1, [SETTINGS, GRANTS, PLAN, "/v1/status"]))
def test_other_methods_are_refused(desk: Desk, path: str, method: str) -> None:
    assert run(desk.send(path, {}, method)).status == 405


@pytest.mark.parametrize(
    "path", ["/v1/views", "/v1/schema", "/v1", "/v1/ledgers/", "/v1/grants/", "/../console.py", "/%00"]
)
def test_what_is_not_there_is_404(desk: Desk, path: str) -> None:
    assert (run(desk.get(path)).status, run(desk.get(path)).json["type"]) == (404, "not_found")


@pytest.mark.parametrize("after", ["x", "status", "status.x-1", "pages.0000000G-1", "status.00000000-1~"])
def test_a_position_that_is_none_is_refused(desk: Desk, after: str) -> None:
    assert run(desk.get(f"/v1/events?after={after}")).status == 400


def test_a_body_that_is_too_large_is_refused(desk: Desk) -> None:
    assert run(desk.send(PLAN, b" " * 70_000)).status == 413


def test_who_tries_tokens_waits(desk: Desk) -> None:
    desk.console.failures = RequestRate(1 / 6, 10, lambda: 0)
    app = desk.console.app()
    wrong = [run(ask(app, "/v1/status", authorization=f"Bearer sdpo_{'x' * 43}")).status for _ in range(11)]
    assert wrong == [401] * 10 + [429]
    assert run(ask(app, SESSION, "POST", json.dumps({"token": "sdpo_x"}), **OWN)).status == 429
    assert run(desk.get("/v1/status")).status == 200


def test_every_answer_has_the_strict_headers_and_errors_are_those_of_the_list(desk: Desk) -> None:
    for path in ("/", "/v1/status", "/v1/nothing", "/livez"):
        headers = run(desk.get(path)).headers
        assert {name: headers[name.lower()] for name in SECURITY} == SECURITY
    assert run(desk.get("/v1/status")).headers["cache-control"] == "private, max-age=0, must-revalidate"
    assert {"settings_changed", "plan_changed", "faults", "starting", "broker_silent"} <= STATUSES.keys()


def test_the_session_is_the_token_in_a_cookie(desk: Desk) -> None:
    app = desk.console.app()
    answer = run(ask(app, SESSION, "POST", json.dumps({"token": desk.token}), **OWN))
    cookie = answer.headers["set-cookie"]
    assert (answer.status, cookie.split(";")[0]) == (204, f"sdpo={desk.token}")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    who = run(ask(app, SESSION, cookie=cookie.split(";")[0])).json
    assert (who["application"], who["gives"], who["expires"]) == ("visits", "operator", None)
    assert "Max-Age=0" in run(ask(app, SESSION, "DELETE", cookie=cookie.split(";")[0], **OWN)).headers["set-cookie"]
