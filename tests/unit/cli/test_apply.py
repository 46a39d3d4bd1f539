"""`stream-dp apply`, `tune` and `settings`: what is in effect is compared, changed, shown, and reverted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.control.acceptance import Verdict, encode_decision
from stream_dp.control.editions import Posted, first_record, next_record, plan_holding, plan_of
from stream_dp.control.settings_change import LEAD_MS
from stream_dp.errors import AccessError, ConfigError
from stream_dp.operations.assignments import tuned
from stream_dp.records.models import PartitionStatus, ViewStatus, WorkerStatus, encode_status
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.control_topic import SettingsLog, post_accepted, read_history
from stream_dp.runtime.kafka.rights import AclEntry, worker_rights
from stream_dp.runtime.settled import prepare
from stream_dp.windows.durations import format_time, moment

Make = Callable[..., Any]
Golden = Callable[[str, str], None]
NOON = 1_772_280_000_000
"""2026-02-28T12:00:00Z."""
DAY = 86_400_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def tomorrow() -> int:
    """The next start of a day that is 11 s ahead; no test is begun in the seconds before that changes."""
    now = now_ms()
    if DAY - now % DAY < 60_000:
        time.sleep((DAY - now % DAY) / 1000)
        now = now_ms()
    return now - now % DAY + DAY


def begin(plan: Plan, log: MemoryLog, at_ms: int) -> None:
    """Write to the log what a first worker writes that starts with a file at a time and uses its settings."""
    log.create("visits", 2)
    log.create("visits-control", 1)
    assert asyncio.run(post_accepted(plan, MemoryClient(log), first_record(plan, at_ms)))
    assert asyncio.run(SettingsLog(plan, MemoryClient(log)).state_use(1))


@pytest.fixture
def started(visits: Plan, log: MemoryLog) -> MemoryLog:
    """The embedded log of an application whose worker was started with the file."""
    begin(visits, log, now_ms() - 3_600_000)
    return log


@pytest.fixture
def noon(visits: Plan, log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """The same at a time that does not go on."""
    for module in ("settings_changes", "reports"):
        monkeypatch.setattr(f"stream_dp.operations.{module}.wall_clock_ms", lambda: NOON)
    begin(visits, log, NOON - 3_600_000)
    return log


def known(plan: Plan, log: MemoryLog) -> list[Posted]:
    return [*asyncio.run(read_history(plan, MemoryClient(log))).posted]


def changed(file: Path, *changes: tuple[str, str], name: str = "changed.yaml") -> Path:
    """A file beside another one, with some of its text replaced."""
    text = file.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    other = file.with_name(name)
    other.write_text(text)
    return other


def worker(name: str, settings: int) -> WorkerStatus:
    return WorkerStatus(
        schema_version=1,
        code_version="0.1.0",
        instance=name,
        started_ms=now_ms() - 60_000,
        reported_ms=now_ms(),
        settings=settings,
        waiting_for="",
        partitions={},
    )


def says(log: MemoryLog, *workers: WorkerStatus) -> None:
    log.create("visits-status", 1)
    for one in workers:
        log.append("visits-status", 0, one.instance.encode(), encode_status(one))


def judges(log: MemoryLog, monkeypatch: pytest.MonkeyPatch, reason: str = "") -> None:
    """Let a worker give its verdict on settings 2 between two looks of a command that waits."""

    async def sleep(_seconds: float) -> None:
        log.append("visits-control", 0, b"verdicts/2/worker", encode_decision(Verdict(2, now_ms(), reason)))

    monkeypatch.setattr("stream_dp.operations.settings_changes.asyncio.sleep", sleep)


# -- apply ----------------------------------------------------------------------------------------------------------


def test_what_would_change_is_shown_with_its_window_its_price_and_what_lasts(
    call: Make, visits_file: Path, visits: Plan, noon: MemoryLog, golden: Golden
) -> None:
    other = changed(visits_file, ("k: 3", "k: 4"), ('delta: "1e-6"', 'delta: "1e-7"'))
    said = call("apply", other, "--dry-run")
    assert (said.code, said.err) == (0, "")
    golden("apply", said.out)
    assert len(known(visits, noon)) == 1


def test_views_that_come_and_go_and_a_budget_that_gets_short_are_shown(
    call: Make, visits_file: Path, noon: MemoryLog, golden: Golden
) -> None:
    other = changed(visits_file, RENAMED, ('epsilon: "30"', 'epsilon: "14"'), ("staff: fine", "staff: coarse"))
    said = call("apply", other, "--dry-run")
    assert (said.code, said.err) == (0, "")
    golden("apply-views", said.out)


def test_what_is_agreed_to_holds_from_the_window_that_was_shown(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("click.confirm", lambda words, **_: asked.append(words))
    at = tomorrow()
    said = call("apply", changed(visits_file, ("k: 3", "k: 4")), "--note", "more of them")
    assert (said.code, said.err, asked) == (0, "", ["Apply this change?"])
    assert said.out.splitlines()[-2:] == [
        "Posted: settings 2 of visits.",
        "No worker runs. Settings 2 wait until a worker starts and accepts them.",
    ]
    posted = known(visits, started)[1]
    assert (posted.number, posted.begins, posted.ends, posted.note) == (2, {"searches": at}, {}, "more of them")
    assert posted.sections["views"]["searches"]["k"] == 4
    assert plan_holding(known(visits, started), visits).newest["searches"].begins_ms == at


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_nothing_is_written_without_consent(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(answer))
    said = call("apply", changed(visits_file, ("k: 3", "k: 4")))
    assert said.code == 1
    assert "Apply this change?" in said.out
    assert len(known(visits, started)) == 1


def test_a_file_that_says_the_same_changes_nothing(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    said = call("apply", changed(visits_file, ("{size: 1d}", "{size: 24h}"), ("./state", "./other")))
    assert (said.code, said.out) == (0, "No changes: settings 1 of visits are in effect.\n")
    assert len(known(visits, started)) == 1


def test_an_older_file_goes_back(call: Make, visits_file: Path, visits: Plan, started: MemoryLog) -> None:
    other = changed(visits_file, ("k: 3", "k: 4"), ("staff: fine", "staff: coarse, press: coarse"))
    there = call("apply", other, "--yes")
    assert there.code == 0
    assert "New topics: visits.releases.pages.press, visits.releases.searches.press." in there.out
    assert call("apply", visits_file, "--yes", "--take-back").code == 0
    first, _, third = known(visits, started)
    assert third.sections == first.sections
    assert plan_of(third, visits) == visits
    said = call("apply", visits_file, "--yes")
    assert said.out == "No changes: settings 3 of visits wait for a worker to accept them.\n"


def test_a_machine_reads_the_change_and_that_it_holds(
    call: Make, visits_file: Path, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, at = changed(visits_file, ("k: 3", "k: 4")), tomorrow()
    dry, done = (json.loads(call("apply", other, "--json", how).out) for how in ("--dry-run", "--yes"))
    assert (dry["settings"], dry["posted"], done["settings"], done["posted"]) == (1, False, 2, True)
    assert done["differs"] == [{"path": "views.searches.k", "change": "changed", "before": "3", "after": "4"}]
    (view,) = done["views"]
    assert (view["view"], view["change"], view["at_ms"], view["goes_on"]) == ("searches", "changed", at, False)
    assert view["day_before"]["epsilon"]["exact"] == "5000003/10000000"
    assert done["ledgers"][0]["lasts_after"] == {"for_ms": 10 * DAY, "until_ms": None, "is_whole": True}
    assert done["workers"] == {"used_by": [], "others": [], "silent": 0, "ran": False} | {
        "state": "waiting",
        "reason": "",
    }
    asks = call("apply", visits_file, "--json")
    assert asks.code == 2
    assert "--json cannot ask. Add --yes or --dry-run." in asks.err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([("k: 3", "k: 0")], ["views.searches.k: must be at least 1, not 0"]),
        (
            [('epsilon: "30"', 'epsilon: "1/2"'), ("k: 3", "k: 0")],
            ["views.pages.ledger: ledger 'visitors' affords no window", "views.searches.k: must be at least 1"],
        ),
    ],
)
def test_a_faulty_file_is_refused_with_every_fault(
    call: Make, visits_file: Path, started: MemoryLog, changes: list[tuple[str, str]], words: list[str]
) -> None:
    other = changed(visits_file, *changes)
    said = call("apply", other, "--yes")
    assert (said.code, said.out) == (2, "")
    assert len(said.err.splitlines()) == len(words)
    for line, start in zip(said.err.splitlines(), words, strict=True):
        assert line.startswith(f"error: {start}")
    told = json.loads(call("apply", other, "--yes", "--json").out)
    assert [fault["path"] for fault in told["faults"]] == [word.partition(":")[0] for word in words]


def test_a_change_that_needs_a_restart_is_refused_while_a_worker_runs_and_made_while_none_does(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    other = changed(visits_file, ("population: visitors", "population: readers"), ("{size: 1d}", "{size: 12h}"))
    says(started, worker("one", 1))
    refused = call("apply", other, "--yes")
    assert refused.code == 2
    assert refused.err.startswith("error: ledgers.visitors.population: what was spent is kept under these words")
    assert len(known(visits, started)) == 1
    started.append("visits-status", 0, b"one", None)
    assert call("apply", other, "--yes").code == 0
    assert len(known(visits, started)) == 2


def test_other_number_of_partitions_is_refused_though_no_worker_runs(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    said = call("apply", changed(visits_file, ("partitions: 2", "partitions: 4")), "--yes")
    assert said.code == 2
    assert "sources.visits.partitions: the topics of the application were created with 2 partitions" in said.err
    assert len(known(visits, started)) == 1


@pytest.mark.parametrize("partitions", [None, 3])
def test_missing_or_changed_source_topic_is_refused(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog, partitions: int | None
) -> None:
    started.delete("visits")
    if partitions is not None:
        started.create("visits", partitions)
    said = call("apply", changed(visits_file, ("k: 3", "k: 4")), "--yes")
    assert said.code == 2
    assert f"sources.visits.{'topic' if partitions is None else 'partitions'}: " in said.err
    assert len(known(visits, started)) == 1


def test_a_source_with_another_topic_needs_another_name_and_is_never_posted(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    said = call("apply", changed(visits_file, ("topic: visits", "topic: views")), "--yes")
    assert said.code == 2
    assert "give a source with another topic a name of its own" in said.err
    assert len(known(visits, started)) == 1


def test_an_older_file_that_takes_back_what_others_tuned_says_so_and_needs_a_word_more(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("tune", visits_file, "searches", "k=4", "--yes", "--note", "as agreed").code == 0
    assert call("tune", visits_file, "pages", "retention=20d", "--yes").code == 0
    mine = changed(visits_file, ("staff: fine", "staff: coarse"))
    taken = "this reverts settings 2 (as agreed) of"
    said = call("apply", mine, "--yes")
    assert (said.code, said.out, len(known(visits, started))) == (2, "", 3)
    assert taken in said.err
    assert "views.searches.k 4 -> 3. To revert it, add --take-back" in said.err
    assert "this reverts settings 3 of" in said.err
    assert "staff" not in said.err, "nobody had tuned that"
    said = call("apply", mine, "--dry-run")
    assert (said.code, f"warning: {taken}" in said.out) == (0, True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: None)
    assert call("apply", mine).code == 0
    assert known(visits, started)[3].sections["views"]["searches"]["k"] == 3


def test_settings_that_were_decided_on_others_than_are_in_effect_are_a_conflict(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    assert call("tune", visits_file, "searches", "k=4", "--yes", "--expect", "1").code == 0
    for words in (["tune", visits_file, "searches", "k=5"], ["apply", visits_file, "--take-back"]):
        said = call(*words, "--yes", "--expect", "1")
        assert (said.code, len(known(visits, started))) == (1, 2)
        assert (
            "Conflict: settings 2 are in effect, not 1. Nothing was changed. Since then: views.searches.k 3" in said.err
        )
    assert call("tune", visits_file, "searches", "k=5", "--yes", "--expect", "3").code == 1
    assert call("tune", visits_file, "searches", "k=5", "--yes", "--expect", "2").code == 0


def test_who_comes_second_is_told_what_holds_now(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = load_plan(changed(visits_file, ("staff: fine", "staff: coarse"), name="theirs.yaml"))

    def meanwhile(*_: Any, **__: Any) -> None:
        log = known(visits, started)
        record = next_record(log, theirs, {"pages": tomorrow(), "searches": tomorrow()}, {}, now_ms(), "first come")
        assert asyncio.run(post_accepted(visits, MemoryClient(started), record))

    posting = SettingsLog.post

    async def slow(log: SettingsLog, posted: Posted) -> bool:
        monkeypatch.setattr(SettingsLog, "post", posting)
        await asyncio.to_thread(meanwhile)
        return await posting(log, posted)

    monkeypatch.setattr(SettingsLog, "post", slow)
    said = call("apply", changed(visits_file, ("k: 3", "k: 4")), "--yes")
    assert said.code == 1
    assert said.err.startswith("error: Conflict: settings 2 (first come) were posted first, at ")
    assert said.err.endswith(
        ": audiences.staff fine -> coarse. Nothing was changed. Check what differs now and run the command again.\n"
    )
    assert [one.note for one in known(visits, started)] == ["the first start", "first come"]


def test_where_time_went_on_during_the_question_a_later_window_is_taken_and_said(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, now = tomorrow(), [now_ms()]
    monkeypatch.setattr("stream_dp.operations.settings_changes.wall_clock_ms", lambda: now[0])
    monkeypatch.setattr("click.confirm", lambda *_, **__: now.append(now.pop() + DAY))
    said = call("apply", changed(visits_file, ("k: 3", "k: 4")))
    assert said.code == 0
    later = format_time(at + DAY).removesuffix("T00:00:00Z")
    assert f"Time moved on: view searches now changes at {later}." in said.out
    assert known(visits, started)[1].begins == {"searches": at + DAY}


def accept_broken(plan: Plan, log: MemoryLog) -> None:
    """Post settings 2, which no version can plan, and accept them."""
    record = next_record((), plan, {"searches": tomorrow()}, {}, now_ms(), number=2)
    views = {name: {**view, "item": '$["a\\"b"]'} for name, view in record.sections["views"].items()}
    settings = SettingsLog(plan, MemoryClient(log))
    assert asyncio.run(settings.post(replace(record, sections={**record.sections, "views": views})))
    asyncio.run(settings.judge(Verdict(2, now_ms())))


def test_former_file_takes_unplannable_settings_back(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    accept_broken(visits, started)
    assert json.loads(call("apply", visits_file, "--dry-run", "--json").out)["takes_back"] == [2]
    said = call("apply", visits_file, "--yes")
    assert "Settings 2 are accepted, but cannot be planned here, and no worker has used them." in said.out
    assert [one.number for one in known(visits, started)] == [1, 2, 3]
    asyncio.run(prepare(visits, MemoryClient(started), lambda: "0" * 16))
    history = asyncio.run(read_history(visits, MemoryClient(started)))
    assert [history.state(number) for number in (1, 2, 3)] == ["accepted", "refused", "accepted"]
    assert "No changes: settings 3 of visits are in effect." in call("apply", visits_file, "--yes").out


def test_used_settings_that_cannot_be_planned_name_the_remedy(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    accept_broken(visits, started)
    assert asyncio.run(SettingsLog(visits, MemoryClient(started)).state_use(2))
    said = call("apply", visits_file, "--yes")
    assert said.code == 2
    assert "settings 2: they are accepted, but cannot be planned here" in said.err
    assert "Start the version of stream-dp that they were applied with" in said.err
    assert len(known(visits, started)) == 2


def test_application_that_was_never_started_is_a_failure(call: Make, visits_file: Path, log: MemoryLog) -> None:
    for words in (("apply", visits_file, "--yes"), ("tune", visits_file, "pages", "buckets=8", "--yes")):
        said = call(*words)
        assert said.code == 1
        assert "application visits was never started at memory://. Start a worker first" in said.err


def test_where_watermarks_move_the_clock_the_time_since_the_worker_spoke_counts(
    call: Make, visits_file: Path, log: MemoryLog
) -> None:
    changed(visits_file, ("{size: 1d}", "{size: 1d, clock: event}"), name=visits_file.name)
    plan = load_plan(visits_file)
    begin(plan, log, 90 * DAY)
    silent = call("apply", changed(visits_file, ("k: 3", "k: 4")), "--yes")
    assert silent.code == 2
    assert "views.searches: watermarks move its clock, and no worker reports it; say when to begin" in silent.err
    for age_ms, day in ((0, 100), (6000, 101)):
        shown = ViewStatus(clock_ms=100 * DAY - LEAD_MS - 5000, open_from_ms=99 * DAY)
        part = PartitionStatus(lag={}, views={"searches": shown}, next_windows_ms={}, counters={})
        said = worker("one", 9).model_copy(update={"partitions": {0: part}, "reported_ms": now_ms() - age_ms})
        says(log, said)
        found = json.loads(call("apply", changed(visits_file, ("k: 3", "k: 4")), "--dry-run", "--json").out)
        assert [view["at_ms"] for view in found["views"]] == [day * DAY]


# -- waiting for the workers ----------------------------------------------------------------------------------------


def test_it_waits_until_every_worker_goes_by_the_settings(
    call: Make, visits_file: Path, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(started, worker("one", 1), worker("two", 1))
    later = iter([[worker("one", 2)], [], [worker("two", 2)]])

    async def goes_on(_seconds: float) -> None:
        says(started, *next(later))

    monkeypatch.setattr("stream_dp.operations.settings_changes.asyncio.sleep", goes_on)
    said = call("apply", changed(visits_file, ("k: 3", "k: 4")), "--yes")
    assert said.code == 0
    assert said.out.splitlines()[-4:] == [
        "Posted: settings 2 of visits.",
        "Waiting up to 60 s for the workers ...",
        "1 of 2 workers use them ...",
        "All 2 workers use settings 2.",
    ]


def test_a_worker_that_does_not_say_so_is_named_and_is_exit_code_three(
    call: Make, visits_file: Path, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(started, worker("one", 2), worker("two", 1))
    judges(started, monkeypatch)
    said = call("apply", changed(visits_file, ("k: 3", "k: 4")), "--yes")
    assert said.code == 3
    assert "1 of 2 workers use settings 2. Not yet: two." in said.out


def test_settings_that_no_worker_looks_at_are_exit_code_three(
    call: Make, visits_file: Path, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.operations.settings_changes.LOOK_SECONDS", 0)
    says(started, worker("one", 1))
    said = call("apply", changed(visits_file, ("k: 3", "k: 4")), "--yes")
    assert said.code == 3
    assert said.out.splitlines()[-1].startswith("No worker has accepted settings 2 yet.")


def test_refusal_is_shown_with_its_reason_and_the_next_number_follows(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(started, worker("one", 1))
    judges(started, monkeypatch, "views.searches: a list was changed")
    said = call("apply", changed(visits_file, ("k: 3", "k: 4")), "--yes", "--json")
    assert said.code == 2
    told = json.loads(said.out)
    assert (told["settings"], told["workers"]["state"]) == (2, "refused")
    assert told["workers"]["reason"] == "views.searches: a list was changed"
    words = call("settings", visits_file).out
    assert "Settings of visits in effect: 1, " in words
    assert "Settings 2 are refused: views.searches: a list was changed" in words

    assert call("apply", visits_file, "--yes").out.startswith("No changes: settings 1 of visits are in effect.")
    said = call("apply", changed(visits_file, ("k: 3", "k: 5")), "--dry-run")
    assert said.out.splitlines()[2].startswith("visits, settings 1 -> 3: view searches changes")


def test_workers_that_end_instead_of_taking_settings_up_are_exit_code_three(
    call: Make, visits_file: Path, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(started, worker("one", 1))

    async def ends(_seconds: float) -> None:
        started.append("visits-status", 0, b"one", None)

    monkeypatch.setattr("stream_dp.operations.settings_changes.asyncio.sleep", ends)
    said = call("apply", changed(visits_file, ("k: 3", "k: 4")), "--yes")
    assert said.code == 3
    assert said.out.splitlines()[-1] == (
        "No worker runs any more: they ended before they used settings 2. Read their logs."
    )


# -- rights ---------------------------------------------------------------------------------------------------------

RENAMED = ("  searches:\n    {source", "  wanted:\n    {source")


def authorized(monkeypatch: pytest.MonkeyPatch, entries: list[AclEntry] | None) -> None:
    """Let the log have an authorizer with these entries, or one that does not show them."""

    async def answer(_: MemoryClient) -> list[AclEntry]:
        if entries is None:
            raise AccessError("Describe on it")
        return entries

    monkeypatch.setattr(MemoryClient, "entries", answer)


def test_settings_that_need_rights_which_the_workers_lack_are_refused_with_what_gives_them(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [AclEntry(*right) for right in worker_rights(visits, "User:app")]
    authorized(monkeypatch, entries)
    other = changed(visits_file, RENAMED)
    said = call("apply", other, "--yes")
    assert (said.code, len(known(visits, started))) == (2, 1)
    assert "`stream-dp acl FILE --worker User:app --apply`" in said.err
    tool = "--add --allow-principal User:app --operation Read --operation Write --operation Create --operation"
    assert f"{tool} DescribeConfigs --topic visits.releases.wanted.public\n" in said.err
    assert "searches" not in said.err
    entries += [AclEntry(*right) for right in worker_rights(load_plan(other), "User:app")]
    assert json.loads(call("apply", other, "--dry-run", "--json").out)["rights"] == "enough"
    assert call("apply", other, "--yes").code == 0


def test_where_the_cluster_does_not_show_rights_that_is_said_of_new_topics(
    call: Make, visits_file: Path, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorized(monkeypatch, None)
    said = call("apply", changed(visits_file, ("k: 3", "k: 4")), "--dry-run")
    assert "cannot see the rights" not in said.out
    said = call("apply", changed(visits_file, RENAMED), "--dry-run")
    assert (said.code, "This account cannot see the rights of others" in said.out) == (0, True)


# -- tune -----------------------------------------------------------------------------------------------------------


def test_named_settings_of_a_view_change_and_the_file_is_told_of(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    said = call("tune", visits_file, "searches", "k=4", "window.grace=1m", "selection.delta=1e-8", "--yes")
    assert (said.code, said.err) == (0, "")
    view = known(visits, started)[1].sections["views"]["searches"]
    assert (view["k"], view["window"], view["selection"]["delta"]) == (4, {"size": "1d", "grace": "1m"}, "1e-8")
    assert said.out.splitlines()[-5:] == [
        f"{visits_file} differs from the settings in effect. To keep them, write into it:",
        "  views.searches.window.grace 5m (default) -> 1m",
        "  views.searches.k 3 -> 4",
        "  views.searches.selection.delta 1e-7 -> 1e-8",
        f"  (stream-dp apply {visits_file} would revert them)",
    ]


def test_tuning_goes_by_what_holds_and_not_by_the_file(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    assert call("tune", visits_file, "searches", "k=4", "--yes").code == 0
    assert call("tune", visits_file, "pages", "share=1/2", "--yes").code == 0
    views = known(visits, started)[2].sections["views"]
    assert (views["searches"]["k"], views["pages"]["share"]) == (4, "1/2")
    assert call("tune", visits_file, "pages", "share=", "--yes").code == 0
    assert "share" not in known(visits, started)[3].sections["views"]["pages"]
    assert call("tune", visits_file, "searches", "k=3", "--yes").code == 0
    assert known(visits, started)[4].sections == known(visits, started)[0].sections


def test_the_epsilon_of_a_level_is_tuned_in_every_view_with_that_ladder(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    said = call("tune", visits_file, "pages", "levels.coarse.epsilon=1/2", "--yes", "--json")
    assert (said.code, said.err) == (0, "")
    place = {"path": "ladders.pages.coarse.epsilon", "change": "changed", "before": "1/3", "after": "1/2"}
    assert json.loads(said.out)["differs"] == [place]
    assert known(visits, started)[1].sections["ladders"]["pages"][0] == {"level": "coarse", "epsilon": "1/2"}
    for key in ("levels.coarse=1/2", "levels.coarse.epsilon=", "levels.coarse.delta=1", "levels=3"):
        assert (
            'write a level and its epsilon: "levels.LEVEL.epsilon=1/2"' in call("tune", visits_file, "pages", key).err
        )
    said = call("tune", visits_file, "pages", "levels.corse.epsilon=1/2")
    assert (said.code, "ladder pages has no level 'corse'; did you mean 'coarse'?" in said.err) == (2, True)


def test_what_a_new_ladder_holds_is_told_to_machines(call: Make, visits_file: Path, started: MemoryLog) -> None:
    more = changed(visits_file, ("  searches:\n    - {", '  plain: [{level: all, epsilon: "3"}]\n  searches:\n    - {'))
    (one,) = json.loads(call("apply", more, "--dry-run", "--json").out)["differs"]
    assert one == {"path": "ladders.plain", "change": "added", "before": None, "after": "[{level: all, epsilon: 3}]"}


def test_where_an_audience_starts_is_tuned_in_every_view_that_it_reads(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    said = call("tune", visits_file, "pages", "audiences.staff=coarse", "--yes")
    assert said.code == 0
    posted = known(visits, started)[1]
    assert posted.sections["audiences"] == {"public": "coarse", "staff": "coarse"}
    assert posted.begins.keys() == {"pages", "searches"}
    assert call("tune", visits_file, "pages", "audiences=[staff]", "--yes").code == 0
    assert known(visits, started)[2].sections["views"]["pages"]["audiences"] == ["staff"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("page", "k=4"), "error: view: no view is named 'page'; did you mean 'pages'?"),
        (("searches", "k"), "error: k: write KEY=VALUE, such as k=20 or window.grace=1m"),
        (("searches", "window..size=1d"), "error: window..size=1d: write KEY=VALUE, such as k=20 or window.grace=1m"),
        (("searches", "k=[4"), "error: k=[4: the value cannot be read as YAML; quote it for the shell"),
        (("searches", "k=4\nl: 5"), "error: k=4\nl: 5: the value cannot be read as YAML; quote it for the shell"),
        (("searches", "kk=4"), "error: views.searches.kk: unknown key; known:"),
        (("searches", "k.of=4"), "error: views.searches.k: must be a whole number, not a mapping"),
        (("searches", "window.size=1"), 'error: views.searches.window.size: 1 needs a unit: "1s", "1m", "1h", "1d"'),
    ],
)
def test_what_is_no_setting_of_the_view_is_wrong_usage(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog, words: tuple[str, ...], message: str
) -> None:
    said = call("tune", visits_file, *words, "--yes")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(message)
    assert len(known(visits, started)) == 1


# -- settings -------------------------------------------------------------------------------------------------------


def test_the_history_has_what_changed_why_and_which_edition_holds_from_when_on(
    call: Make, visits_file: Path, visits: Plan, noon: MemoryLog, golden: Golden
) -> None:
    day = NOON - NOON % DAY + DAY
    call("tune", visits_file, "searches", "k=4", "--yes", "--note", "more")
    call("tune", visits_file, "searches", "k=5", "--yes", "--from", format_time(day + 5 * DAY))
    for number in (2, 3):
        noon.append("visits-control", 0, b"verdicts/%d/worker" % number, encode_decision(Verdict(number, NOON)))
    text = call("settings", visits_file)
    assert (text.code, text.err) == (0, "")
    golden("settings", text.out.replace(str(visits_file), "visits.yaml"))
    found = json.loads(call("settings", visits_file, "--json").out)
    assert [one["changed"] for one in found["settings"]][1:] == [
        [{"path": "views.searches.k", "change": "changed", "before": before, "after": after}]
        for before, after in (("3", "4"), ("4", "5"))
    ]
    assert found["editions"][-1] == {
        "view": "searches",
        "edition": 3,
        "settings": 3,
        "from_ms": day + 5 * DAY,
        "until_ms": None,
        "never_holds": False,
    }


def test_settings_that_held_are_printed_as_a_file_whose_application_goes_back(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("tune", visits_file, "searches", "k=4", 'item=$["${query}"]', "--yes")
    secret = visits_file.read_text().replace("./visits.key", "${KEYS}/visits.key")
    visits_file.write_text(secret)
    monkeypatch.setenv("KEYS", str(visits_file.parent))
    text = call("settings", visits_file, "--show", "1").out
    assert "key_file: ${KEYS}/visits.key" in text, "what a variable stands for is not printed"
    former = visits_file.with_name("former.yaml")
    former.write_text(text)
    assert load_plan(former).views == visits.views
    assert call("apply", former, "--yes", "--take-back").code == 0
    assert known(visits, started)[2].sections == known(visits, started)[0].sections
    former.write_text(call("settings", visits_file, "--show", "2").out)
    assert load_plan(former).views["searches"].item_field == '$["${query}"]', "no variable is meant there"


def test_there_is_no_such_number(call: Make, visits_file: Path, started: MemoryLog) -> None:
    said = call("settings", visits_file, "--show", "2")
    assert (said.code, said.err) == (2, "error: --show: settings 2 do not exist; the newest settings are 1\n")


def test_an_application_that_was_never_started_has_no_settings(call: Make, visits_file: Path, log: MemoryLog) -> None:
    said = call("settings", visits_file)
    assert (said.code, said.err) == (
        1,
        "error: application visits was never started at memory://. Start a worker first: `stream-dp worker FILE`\n",
    )


# -- windows of former editions -----------------------------------------------------------------------------------


def test_what_is_disclosed_differently_of_former_editions_is_shown_for_each_of_them(
    call: Make, visits_file: Path, visits: Plan, started: MemoryLog
) -> None:
    """The first settings unlock, the next has another definition, the last unlock nothing and have no staff."""
    unlocks = ("public: coarse", "public: {level: coarse, unlock: [{level: fine, after: 2h}]}")
    began = known(visits, started)[0].begins["searches"]
    first, second = tomorrow(), tomorrow() + DAY
    done = call("apply", changed(visits_file, unlocks), "--json", "--yes")
    assert done.code == 0
    former = json.loads(done.out)["former_editions"]
    assert [(one["view"], one["edition"], one["from_ms"], one["until_ms"]) for one in former] == [
        ("pages", 1, began, first),
        ("searches", 1, began, first),
    ]
    change = {"what": "audience public", "before": "coarse", "after": "coarse, fine after 2h"}
    assert [one["changes"] for one in former] == [[change]] * 2

    other = changed(visits_file, unlocks, ("k: 3", "k: 4"), name="second.yaml")
    assert call("apply", other, "--from", format_time(second), "--yes").code == 0
    last = changed(visits_file, ("k: 3", "k: 4"), ("staff: fine", "team: fine"), name="third.yaml")
    said = call("apply", last, "--from", format_time(second + DAY), "--dry-run")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    at = lines.index("From that moment, earlier windows are published differently:")
    changes = "audience public coarse, fine after 2h -> coarse; audience staff fine -> none; audience team none -> fine"
    spans = [("pages", 1, began, first), ("pages", 2, first, second + DAY), ("searches", 1, began, first)]
    spans += [("searches", 2, first, second), ("searches", 3, second, second + DAY)]
    assert lines[at + 1 : at + 6] == [
        f"  view {view}, edition {number}, windows from {moment(start)} until {moment(end)}: {changes}"
        for view, number, start, end in spans
    ]
    tuned = call("tune", visits_file, "searches", "retention=9d", "--dry-run")
    assert "searches, edition 1" in tuned.out
    assert "edition 2" not in tuned.out, "it would never hold"
    assert "retention 30d -> 9d" in tuned.out


def test_a_change_that_discloses_nothing_else_shows_no_former_edition(
    call: Make, visits_file: Path, started: MemoryLog
) -> None:
    done = json.loads(call("apply", changed(visits_file, ("k: 3", "k: 4")), "--json", "--dry-run").out)
    assert done["former_editions"] == []


# -- what it costs --------------------------------------------------------------------------------------------------


def test_the_history_is_read_once_and_then_only_what_is_new(
    call: Make, visits_file: Path, started: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the first read only the record that was posted is read, to see that it came first."""
    reads: list[int] = []
    follow = MemoryClient.follow

    def counted(client: MemoryClient, topics: Any, **options: Any) -> Any:
        if "visits-control" in topics:
            reads.append(sum((options.get("since") or {}).values()))
        return follow(client, topics, **options)

    monkeypatch.setattr(MemoryClient, "follow", counted)
    assert call("tune", visits_file, "searches", "k=4", "--yes").code == 0
    assert reads == [0, 3]


@pytest.mark.parametrize(
    ("assignments", "ladder"),
    [
        (["ladders.pages.fine=3/2"], "coarse 1/3, fine 3/2, finest 2"),
        (["ladders.pages.middle=1/2"], "coarse 1/3, middle 1/2, fine 1, finest 2"),
        (["ladders.pages.least=1/4", "ladders.pages.most=3"], "least 1/4, coarse 1/3, fine 1, finest 2, most 3"),
        (["ladders.pages.finest="], "coarse 1/3, fine 1"),
        (["ladders.pages.middle=1/2", "levels.middle.epsilon=3/4"], "coarse 1/3, middle 3/4, fine 1, finest 2"),
    ],
)
def test_levels_of_a_ladder_are_set_added_in_order_and_removed(
    visits: Plan, assignments: list[str], ladder: str
) -> None:
    after = tuned(visits, "pages", assignments)
    assert ", ".join(f"{level.name} {level.epsilon}" for level in after.views["pages"].levels) == ladder


def test_settings_of_other_views_are_changed_and_views_removed(visits: Plan) -> None:
    after = tuned(visits, "pages", ["views.searches.k=4", "items_per_user=2"])
    assert (after.raw["views"]["searches"]["k"], after.raw["views"]["pages"]["items_per_user"]) == (4, 2)
    assert [*tuned(visits, "pages", ["views.searches="]).views] == ["pages"]
    with pytest.raises(ConfigError, match="no view is named"):
        tuned(visits, "pages", ["views.pages=", "k=3"])


@pytest.mark.parametrize(
    "assignments",
    [
        ["views.pages=of another shape", "k=3"],
        ["views=", "k=3"],
        ["views=3", "k=3"],
        ["ladder=", "levels.fine.epsilon=1"],
        ["ladder=[fine]", "levels.fine.epsilon=1"],
        ["ladders.pages.fine=high", "ladders.pages.middle=1/2"],
    ],
)
def test_an_assignment_is_refused_where_those_before_it_leave_nothing_to_assign_to(
    visits: Plan, assignments: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        tuned(visits, "pages", assignments)
    assert [fault.path for fault in refused.value.faults] == assignments[-1:]
