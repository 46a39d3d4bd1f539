"""`stream-dp status`: problems come first, and every partition counts once, whoever reported it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stream_dp.accounting import Cost
from stream_dp.cli.status_command import page
from stream_dp.config.forecast import forecast
from stream_dp.config.plan import Plan
from stream_dp.config.planner import build_plan, load_plan
from stream_dp.control.acceptance import SettingsHistory, Use, Verdict
from stream_dp.control.editions import Posted, first_record, next_record, plan_holding, plan_of
from stream_dp.errors import StateError
from stream_dp.operations.assignments import tuned
from stream_dp.operations.problems import BEHIND_WINDOWS, MISSED_MS
from stream_dp.operations.progress import ToCome, ViewSummary
from stream_dp.operations.reports import GONE_MS, SILENT_MS, Reports
from stream_dp.operations.status import Summary, summary
from stream_dp.records.models import (
    GapStatus,
    PartitionStatus,
    TransactionStatus,
    ViewStatus,
    WorkerStatus,
    decode_status,
    encode_status,
)
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import NO_GROUP, Group
from stream_dp.runtime.kafka.control_topic import SettingsLog, post_accepted
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import moment
from tests.unit.cli.test_ledger import Office

DAY = 86_400_000
NOW = 20 * DAY + 3_600_000
"""An hour into a day; windows last a day, and their grace, offset and slot are over."""
STATUS = "visits-status"
Make = Callable[..., Any]
Golden = Callable[[str, str], None]
Reported = dict[str, WorkerStatus]


def part(lag: int = 0, released: int | None = 20 * DAY, clock_ms: int = NOW, **totals: int) -> PartitionStatus:
    """A partition in which both views are counted up to now; the ledger lives in it if something was released."""
    views = {name: ViewStatus(clock_ms=clock_ms, open_from_ms=20 * DAY) for name in ("pages", "searches")}
    settled = {} if released is None else {"pages": released, "searches": released}
    return PartitionStatus(lag={"visits": lag}, views=views, next_windows_ms=settled, counters=totals)


def worker(
    name: str, parts: Mapping[int, PartitionStatus], at_ms: int = NOW - 3000, waiting_for: str = ""
) -> WorkerStatus:
    return WorkerStatus(
        schema_version=1,
        code_version="0.1.0",
        instance=name,
        started_ms=19 * DAY,
        reported_ms=at_ms,
        settings=0,
        waiting_for=waiting_for,
        partitions=parts,
    )


def of(plan: Plan, *workers: WorkerStatus, stopped: str = "", group: Group = NO_GROUP) -> Summary:
    """The summary of an application whose workers said so in this order."""
    said = {one.instance: one for one in workers}
    partitions = {number: found for one in workers for number, found in one.partitions.items()}
    return summary(plan, Reports(NOW, said, partitions, frozenset({stopped} if stopped else ()), group))


ONE = worker("one", {0: part(lag=5, events_consumed=10)})
TWO = worker("two", {1: part(released=None, clock_ms=NOW - 5000, events_consumed=7, windows_closed=2)})


def problems(found: Summary) -> list[tuple[str, str]]:
    """What they are and what they are about."""
    return [(one.code, one.about) for one in found.problems]


def opened(view: ViewSummary) -> tuple[int | None, int | None, int | None]:
    """The open windows of a view: how many, and the interval of them all."""
    return view.open_windows, view.open_from_ms, view.open_until_ms


def shown(plan: Plan, found: Summary, width: int = 120) -> str:
    text = StringIO()
    Console(width=width, file=text).print(page(plan, found, Path("visits.yaml")))
    return text.getvalue()


# -- all is well ----------------------------------------------------------------------------------------------------


def test_two_workers_that_share_all_partitions_are_well_and_add_up(visits: Plan, golden: Golden) -> None:
    found = of(visits, ONE, TWO)
    assert found.problems == []
    assert found.unowned == []
    assert found.lag == {"visits": {0: 5, 1: 0}}
    assert found.totals == {"events_consumed": 17, "windows_closed": 2}
    golden("status", shown(visits, found))


def test_a_partition_that_changes_hands_is_counted_once_as_it_was_said_last(visits: Plan) -> None:
    taken = worker("two", {0: part(lag=2, events_consumed=12), 1: part(released=None, events_consumed=7)}, NOW - 1000)
    found = of(visits, ONE, taken)
    assert found.totals == {"events_consumed": 19}
    assert found.lag == {"visits": {0: 2, 1: 0}}
    assert found.unowned == []
    assert found.problems == []


def test_what_a_worker_that_has_stopped_had_counted_is_still_shown(visits: Plan) -> None:
    found = of(visits, ONE, TWO, stopped="two")
    assert found.totals == {"events_consumed": 17, "windows_closed": 2}
    assert [one.instance for one in found.reports.workers] == ["one"]
    assert found.unowned == [1]


# -- what needs somebody --------------------------------------------------------------------------------------------


def test_records_that_were_deleted_before_they_were_counted_are_told_of_for_a_day(visits: Plan) -> None:
    gaps = (
        GapStatus(first=5, last=8, at_ms=NOW - MISSED_MS),
        GapStatus(first=20, last=20, at_ms=NOW - MISSED_MS + 1),
        GapStatus(first=30, last=39, at_ms=NOW - 5000),
    )
    lacking = worker("two", {1: TWO.partitions[1].model_copy(update={"deleted_records": {"visits": gaps}})})
    assert decode_status(encode_status(lacking)) == lacking
    found = of(visits, ONE, lacking)
    assert problems(found) == [("records_missing", "visits")]
    assert "partition 1: records 20 to 20, 30 to 39 were deleted" in found.problems[0].message
    assert "(found at 1970-01-21T00:59:55Z)" in found.problems[0].message


def test_a_worker_whose_clock_is_wrong_is_named_and_the_broker_where_all_say_so(visits: Plan) -> None:
    fast = ONE.model_copy(update={"clock_ahead_ms": 3_599_800, "waiting_for": "clocks that agree: ..."})
    found = of(visits, fast, TWO)
    assert problems(found) == [("worker_clock", "one")]
    assert "1h ahead of" in found.problems[0].message
    assert [one["clock_ahead_ms"] for one in found.as_json()["workers"]] == [3_599_800, 0]

    slow = TWO.model_copy(update={"clock_ahead_ms": -60_000})
    both = of(visits, fast, slow)
    assert problems(both) == [("worker_clock", "one"), ("worker_clock", "two"), ("broker_clock", "")]
    assert "1m behind" in both.problems[1].message


def test_what_is_wrong_with_the_topics_is_said_once_though_every_worker_finds_it(visits: Plan) -> None:
    words = ["topic visits-ticks: max.message.bytes is 3000, not 1048588, and this account may not change it: `...`"]
    both = [one.model_copy(update={"topic_problems": words}) for one in (ONE, TWO)]
    assert [decode_status(encode_status(one)) for one in both] == both
    assert [(one.code, one.message) for one in of(visits, *both).problems] == [("topic_settings", words[0])]
    assert [one["topic_problems"] for one in of(visits, *both).as_json()["workers"]] == [words, words]


def test_open_transaction_is_named_once(visits: Plan) -> None:
    """The worker that has seen it open for the longest time decides how long is reported."""
    said = TransactionStatus(topic="visits", partition=1, offset=4711, open_ms=31_000)
    later = said.model_copy(update={"open_ms": 65_000})
    one, two = (each.model_copy(update={"open_transactions": [at]}) for each, at in ((ONE, said), (TWO, later)))
    assert decode_status(encode_status(one)) == one
    (problem,) = of(visits, one, two).problems
    assert (problem.code, problem.about) == ("open_transaction", "visits")
    assert problem.message.startswith("A transaction has been open for 1m5s in topic visits, partition 1, since offset")
    assert "since offset 4711." in problem.message


SILENT = worker("two", TWO.partitions, NOW - SILENT_MS - 1000)
BEHIND = worker("one", {0: part(released=19 * DAY)})


UNOWNED = ("partition_without_worker", "1")
THREE = worker("three", {}, waiting_for="the recovery of the tables: 12 rows of the changelogs to go")
STABLE_THREE = Group("Stable", "", {"a": frozenset(), "b": frozenset(), "c": frozenset()})


@pytest.mark.parametrize(
    ("workers", "group", "expected"),
    [
        ([], NO_GROUP, [("no_worker", "")]),
        ([ONE], NO_GROUP, [UNOWNED]),
        ([ONE, SILENT], NO_GROUP, [UNOWNED, ("worker_silent", "two")]),
        ([ONE, worker("two", TWO.partitions, NOW - GONE_MS - 1)], NO_GROUP, [UNOWNED]),
        ([ONE, TWO, THREE], NO_GROUP, [("worker_waits", "three")]),
        ([ONE, TWO], STABLE_THREE, [("member_silent", "visits")]),
        ([ONE, TWO], Group("PreparingRebalance", "", {}), [("rebalancing", "visits")]),
    ],
    ids=["none", "unowned", "silent", "gone", "not ready", "more members", "sharing"],
)
def test_problems_come_first(
    visits: Plan, workers: list[WorkerStatus], group: Group, expected: list[tuple[str, str]]
) -> None:
    found = of(visits, *workers, group=group)
    assert problems(found) == expected
    lines = [line.strip() for line in shown(visits, found, width=200).splitlines()]
    assert lines[0].endswith("1 problem" if len(expected) == 1 else f"{len(expected)} problems")
    assert lines[1 : len(expected) + 1] == [f"! {one.message}".replace("FILE", "visits.yaml") for one in found.problems]


def test_of_many_problems_the_first_are_above_the_tables_and_the_others_below(visits: Plan, golden: Golden) -> None:
    missing = {"visits": (GapStatus(first=20, last=39, at_ms=NOW - 5000),)}
    late = BEHIND.partitions[0].model_copy(update={"deleted_records": missing})
    group = Group("PreparingRebalance", "", {name: frozenset() for name in "abcd"})
    fast = worker("one", {0: late}).model_copy(update={"clock_ahead_ms": 3_599_800})
    three = THREE.model_copy(update={"topic_problems": ["no right to topic visits"]})
    found = of(visits, fast, SILENT, three, group=group)
    assert len(found.problems) == 10
    golden("status-problems", shown(visits, found))


def test_a_view_whose_next_window_is_long_due_is_behind(visits: Plan) -> None:
    due = of(visits, BEHIND, TWO).views["pages"].next_due_ms
    assert due is not None
    assert due > 20 * DAY
    found = of(visits, BEHIND, TWO)
    assert problems(found) == [("view_behind", "pages"), ("view_behind", "searches")]
    assert moment(due) in found.problems[0].message


def test_a_view_of_which_many_windows_are_closed_and_not_released_is_behind_whatever_its_clock(visits: Plan) -> None:
    """Of a stream's time no window is ever due by the wall clock."""
    by_stream = replace(visits.views["pages"], window=replace(visits.views["pages"].window, clock="event"))
    plan = replace(visits, views={**visits.views, "pages": by_stream})

    def found(closed: int) -> Summary:
        views = {"pages": ViewStatus(clock_ms=NOW + closed * DAY, open_from_ms=(20 + closed) * DAY)}
        parts = {
            at: PartitionStatus(lag={}, views=views, next_windows_ms={"pages": 20 * DAY}, counters={}) for at in (0, 1)
        }
        return of(plan, worker("one", parts))

    assert found(BEHIND_WINDOWS - 1).problems == []
    assert problems(found(180)) == [("view_behind", "pages")]
    assert found(180).as_json()["views"]["pages"]["waiting_windows"] == 180


def test_windows_that_a_partition_has_not_closed_wait_for_it_and_are_not_behind(visits: Plan) -> None:
    counted = {at: {"pages": ViewStatus(clock_ms=NOW, open_from_ms=day * DAY)} for at, day in ((0, 200), (1, 20))}
    released = {"pages": 20 * DAY}
    parts = {
        at: PartitionStatus(lag={}, views=of_it, next_windows_ms=released, counters={}) for at, of_it in counted.items()
    }
    assert of(visits, worker("one", parts)).views["pages"].waiting_windows == 0


def by_watermarks(plan: Plan) -> Plan:
    """The pages follow watermarks."""
    pages = plan.views["pages"]
    return replace(plan, views={"pages": replace(pages, window=replace(pages.window, clock="event"))})


@pytest.mark.parametrize(("lag", "behind_days", "is_told"), [(0, 3, True), (1, 3, False), (0, 0, False)])
def test_partition_without_watermarks_is_named(visits: Plan, lag: int, behind_days: int, is_told: bool) -> None:
    """A partition with uncounted records is not named: they may include watermarks."""
    parts = {
        at: PartitionStatus(
            lag={"visits": lag},
            views={"pages": ViewStatus(clock_ms=clock_ms, open_from_ms=17 * DAY)},
            next_windows_ms={},
            counters={},
        )
        for at, clock_ms in ((0, NOW), (1, NOW - behind_days * DAY))
    }
    found = of(by_watermarks(visits), worker("one", parts))
    assert problems(found) == ([("watermarks_missing", "pages")] if is_told else [])
    if is_told:
        for words in ("partition 1 of source visits", moment(NOW), moment(NOW - 3 * DAY), "3 windows wait"):
            assert words in found.problems[0].message


def test_slow_partition_of_a_rekeyed_source_is_that_of_the_source(visits: Plan) -> None:
    """All partitions of users wait for the same partition of the source, but some have newer reports than others."""
    known = {0: {0: NOW, 1: NOW - 3 * DAY}, 1: {0: NOW - 4 * DAY, 1: NOW - 3 * DAY}}
    parts = {
        at: PartitionStatus(
            lag={"visits": 0},
            views={"pages": ViewStatus(clock_ms=min(clocks.values()), open_from_ms=17 * DAY, source_clocks_ms=clocks)},
            next_windows_ms={},
            counters={},
        )
        for at, clocks in known.items()
    }
    slow = of(by_watermarks(visits), worker("one", parts)).views["pages"].held_up_by
    assert slow is not None
    assert (slow.partition, slow.clock_ms, slow.windows) == (1, NOW - 3 * DAY, 3)


def test_a_ledger_that_pays_for_nothing_more_needs_somebody_and_one_that_does_says_how_far(visits: Plan) -> None:
    office = Office(visits)
    office.release("pages", 0)
    rich = summary(visits, Reports(DAY, {}, {}, frozenset(), NO_GROUP, [office.statement()]))
    assert rich.budgets["visitors"].says.startswith("96 % of epsilon, ")
    assert (rich.budgets["visitors"].pays_until_ms, rich.budgets["visitors"].spent) == (10 * DAY, False)
    office.left[0] = visits.views["pages"].cost(0)
    office.release("pages", 1)
    poor = summary(visits, Reports(DAY, {}, {}, frozenset(), NO_GROUP, [office.statement()]))
    assert (poor.problems[-1].code, poor.problems[-1].about) == ("budget_exhausted", "visitors")
    assert poor.budgets["visitors"].spent
    later = summary(visits, Reports(11 * DAY, {}, {}, frozenset(), NO_GROUP, [office.statement()]))
    assert later.budgets["visitors"].says == "new period since 1970-01-11, nothing is charged yet"
    assert not [one for one in later.problems if one.code == "budget_exhausted"]


def test_a_view_whose_newest_windows_are_refused_is_a_problem_and_comes_first(visits: Plan) -> None:
    office = Office(visits)
    office.release("pages", 0)
    office.left[0] = Cost.ZERO
    for day in (1, 2):
        office.release("pages", day)
    found = summary(visits, Reports(3 * DAY, {}, {}, frozenset(), NO_GROUP, [office.statement()]))
    assert (found.problems[0].code, found.problems[0].about) == ("budget_exhausted", "pages")
    assert "windows from 1970-01-02 on are refused to public, staff" in found.problems[0].message
    assert not found.as_json()["fine"]
    office.left[0] = visits.ledgers["visitors"].budget
    office.release("pages", 3)
    better = summary(visits, Reports(4 * DAY, {}, {}, frozenset(), NO_GROUP, [office.statement()]))
    assert not [one for one in better.problems if one.about == "pages"]


def test_a_ledger_never_pays_up_to_a_moment_that_has_passed(visits: Plan) -> None:
    """The next windows of one view are paid for, those of the other are not since yesterday."""
    office = Office(visits)
    for day in range(3):
        office.release("pages", day)
    office.left[0] = visits.views["pages"].cost(1)
    office.release("searches", 0)
    statement = office.statement()
    _, lasts_ms = forecast(visits, statement)
    assert lasts_ms < 9 * DAY
    before, after = (
        summary(visits, Reports(now, {}, {}, frozenset(), NO_GROUP, [statement])).budgets["visitors"]
        for now in (lasts_ms - 1, lasts_ms)
    )
    assert before.says.endswith(f"enough for windows of all views that begin before {moment(lasts_ms)}")
    assert (after.spent, "before" in after.says) == (True, False)


def test_a_period_of_a_stream_is_compared_with_the_time_of_the_stream(visits_file: Path) -> None:
    """A replay years later: the period of the stream is not over, however late it is."""
    visits_file.write_text(visits_file.read_text().replace("{size: 1d}", "{size: 1d, clock: event}"))
    plan = load_plan(visits_file)
    office = Office(plan)
    office.release("pages", 0)
    parts = {0: part(clock_ms=2 * DAY)}
    found = summary(plan, Reports(900 * DAY, {}, parts, frozenset(), NO_GROUP, [office.statement()]))
    assert found.budgets["visitors"].says.endswith("left until 1970-01-11, enough for all views")
    over = summary(
        plan, Reports(900 * DAY, {}, {0: part(clock_ms=11 * DAY)}, frozenset(), NO_GROUP, [office.statement()])
    )
    assert over.budgets["visitors"].says.startswith("new period since 1970-01-11")


# -- settings -------------------------------------------------------------------------------------------------------

TODAY = NOW - NOW % DAY


def edited(plan: Plan, *changes: tuple[str, int]) -> list[Posted]:
    """The settings of an application whose number of searches was changed so, each from a day on."""
    known = [first_record(plan, 10 * DAY)]
    for change, from_ms in changes:
        wanted = tuned(plan_of(known[-1], plan), "searches", [change])
        known.append(next_record(known, wanted, {"searches": from_ms}, {}, NOW - 3_600_000))
    return known


def under(plan: Plan, known: list[Posted], *workers: WorkerStatus) -> Summary:
    said = {one.instance: one for one in workers}
    partitions = {number: found for one in workers for number, found in one.partitions.items()}
    return summary(
        plan_holding(known, plan), Reports(NOW, said, partitions, frozenset(), NO_GROUP, (), accepted(known))
    )


def accepted(known: list[Posted]) -> SettingsHistory:
    verdicts = [Verdict(one.number, one.at_ms) for one in known]
    return SettingsHistory.from_records([*known, *verdicts, Use(known[-1].number)])


def counted(settings: int, searches_from: int) -> list[WorkerStatus]:
    """Two workers, of which one has the ledger; the windows of searches are open from a time on."""
    views = {
        "pages": ViewStatus(clock_ms=NOW, open_from_ms=TODAY),
        "searches": ViewStatus(clock_ms=NOW, open_from_ms=searches_from),
    }
    released = {"pages": TODAY, "searches": searches_from}
    parts = (
        PartitionStatus(lag={"visits": 0}, views=views, next_windows_ms=released, counters={}),
        PartitionStatus(lag={"visits": 0}, views=views, next_windows_ms={}, counters={}),
    )
    return [
        worker(f"w{number}", {number: one}).model_copy(update={"settings": settings})
        for number, one in enumerate(parts)
    ]


def test_an_edition_that_begins_later_is_to_come_and_one_that_holds_is_told_with_its_number(
    visits: Plan, golden: Golden
) -> None:
    known = edited(visits, ("k=4", TODAY - 2 * DAY), ("k=5", TODAY + DAY))
    found = under(visits, known, *counted(3, TODAY))
    assert found.problems == []
    assert {name: one.edition for name, one in found.views.items()} == {"pages": 1, "searches": 2}
    assert found.to_come == [ToCome("searches", "edition 3 begins: the view uses settings 3", TODAY + DAY)]
    golden("status-editions", shown(visits, found))
    assert found.as_json()["to_come"] == [
        {
            "view": "searches",
            "what": "edition 3 begins: the view uses settings 3",
            "at_ms": TODAY + DAY,
            "clock": "wall",
        }
    ]


def test_windows_of_two_definitions_that_are_open_are_told_together(visits: Plan) -> None:
    known = edited(visits, ("window.size=12h", TODAY))
    found = under(visits, known, *counted(2, TODAY - DAY)).views["searches"]
    assert found.edition == 2
    assert opened(found) == (2, TODAY - DAY, TODAY + DAY // 2), "a day, and the first half of the next one"
    assert found.next_due_ms == TODAY + 302_000, "the last window of a day, with its grace and the slot"
    later = under(visits, known, *counted(2, TODAY)).views["searches"]
    assert opened(later) == (1, TODAY, TODAY + DAY // 2)
    assert later.next_due_ms == TODAY + DAY // 2 + 302_000


def test_a_view_that_was_taken_out_is_shown_until_its_last_window_is_released(visits: Plan) -> None:
    known = edited(visits)
    known.append(next_record(known, without_searches(visits), {}, {"searches": TODAY}, NOW - DAY))
    closing = under(visits, known, *counted(2, TODAY - DAY))
    assert opened(closing.views["searches"]) == (1, TODAY - DAY, TODAY)
    assert under(visits, known, *counted(2, TODAY)).views.keys() == {"pages"}


def without_searches(plan: Plan) -> Plan:
    raw = dict(plan.raw)
    return build_plan({**raw, "views": {"pages": raw["views"]["pages"]}}, plan.folder)


def test_an_end_that_is_decided_is_to_come(visits: Plan) -> None:
    known = edited(visits)
    known.append(next_record(known, without_searches(visits), {}, {"searches": TODAY + DAY}, NOW))
    assert under(visits, known).to_come == [ToCome("searches", "ends", TODAY + DAY)]


def test_a_worker_that_does_not_go_by_what_holds_needs_somebody(visits: Plan) -> None:
    known = edited(visits, ("k=4", TODAY + DAY))
    found = under(visits, known, *counted(1, TODAY))
    assert problems(found) == [("worker_behind_settings", "w0"), ("worker_behind_settings", "w1")]
    assert "uses settings 1; settings 2 are in effect since 1970-01-21" in found.problems[0].message


def test_refused_and_waiting_settings_are_problems(visits: Plan) -> None:
    known = edited(visits, ("k=4", TODAY + DAY))
    workers = counted(1, TODAY)
    plan = plan_holding(known[:1], visits)

    def found(*verdicts: Verdict | Use) -> Summary:
        history = SettingsHistory.from_records([*known, Verdict(1, 0), Use(1), *verdicts])
        said = {one.instance: one for one in workers}
        partitions = {number: part for one in workers for number, part in one.partitions.items()}
        return summary(plan, Reports(NOW, said, partitions, frozenset(), NO_GROUP, (), history))

    assert problems(found()) == [("settings_waiting", "")]
    unused = found(Verdict(2, NOW - 60_000))
    assert "settings_unused" in dict(problems(unused))
    assert "settings_unused" not in dict(problems(found(Verdict(2, NOW - 60_000), Use(2))))
    refused = found(Verdict(2, NOW, "a list was changed"))
    assert problems(refused) == [("settings_refused", "")]
    assert "Settings 2 were refused and never take effect: a list was changed." in refused.problems[0].message
    assert (refused.as_json()["settings"], refused.as_json()["settings_posted"]) == (1, {1: "accepted", 2: "refused"})


RISING = (
    "public: coarse",
    "public: {level: coarse, unlock: [{level: fine, after: 1h}, {level: finest, after: 36h}]}",
)
OF_PAGES = "    {source: visits, item: page, kind: histogram, "
SPENDS = (OF_PAGES, OF_PAGES + "sharpen: {audience: staff, level: finest, every: 12h}, ")


def rising(file: Path, *changes: tuple[str, str]) -> Plan:
    """The pages alone, which become sharper by themselves; the file says so, too."""
    text = file.read_text().partition("  searches:\n    {source")[0]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    return load_plan(file)


def test_the_next_unlock_of_each_level_and_the_next_time_to_spend_what_is_left_are_to_come(
    visits_file: Path, golden: Golden
) -> None:
    plan = rising(visits_file, RISING, SPENDS)
    known = [first_record(plan, 10 * DAY)]
    at = dict.fromkeys(["pages"], TODAY)
    parts = {0: part().model_copy(update={"next_windows_ms": at}), 1: part().model_copy(update={"next_windows_ms": {}})}
    found = under(plan, known, worker("one", parts).model_copy(update={"settings": 1}))
    # yesterday was unlocked to fine at one, which is now, and today is not released yet
    assert [(one.at_ms - TODAY, one.what) for one in found.to_come] == [
        (DAY // 2, "newest windows unlocked to finest for staff, from leftover budget; remove `sharpen` to stop it"),
        (DAY // 2, "window of 1970-01-19 unlocked to finest for public"),
    ]
    golden("status-planned", shown(plan, found))
    assert found.as_json()["to_come"][1] == {
        "view": "pages",
        "what": "window of 1970-01-19 unlocked to finest for public",
        "at_ms": TODAY + DAY // 2,
        "clock": "wall",
    }


def test_a_time_by_the_clock_of_a_stream_says_so(visits_file: Path) -> None:
    plan = rising(visits_file, RISING, ("window: {size: 1d}", "window: {size: 1d, clock: event}"))
    parts = {0: part().model_copy(update={"next_windows_ms": {"pages": TODAY}})}
    found = under(plan, [first_record(plan, 10 * DAY)], worker("one", parts))
    assert [(one.at_ms - TODAY, one.clock) for one in found.to_come] == [(3_600_000, "event"), (DAY // 2, "event")]
    lines = [line.strip() for line in shown(plan, found).splitlines()]
    assert "1970-01-21T01:00:00Z (stream)  pages  window of 1970-01-20 unlocked to fine for public" in lines


# -- the command ----------------------------------------------------------------------------------------------------


def report(log: MemoryLog, *workers: WorkerStatus) -> None:
    log.create(STATUS, 1)
    for one in workers:
        log.append(STATUS, 0, one.instance.encode(), encode_status(one))


def today(one: WorkerStatus) -> WorkerStatus:
    """A worker that has just said so, whose views are where the day is."""
    now = time.time_ns() // 1_000_000
    day = now - now % DAY
    views = {name: ViewStatus(clock_ms=now, open_from_ms=day) for name in ("pages", "searches")}
    parts = {
        number: found.model_copy(update={"views": views, "next_windows_ms": dict.fromkeys(found.next_windows_ms, day)})
        for number, found in one.partitions.items()
    }
    return one.model_copy(update={"reported_ms": now, "started_ms": now - 60_000, "partitions": parts})


def test_the_exit_code_says_whether_somebody_is_needed(call: Make, visits_file: Path, log: MemoryLog) -> None:
    report(log, today(ONE), today(TWO))
    fine = call("status", visits_file)
    assert (fine.code, fine.err) == (0, "")
    assert fine.out.splitlines()[0].endswith(": OK")
    log.append(STATUS, 0, b"two", None)
    faulty = call("status", visits_file)
    assert (faulty.code, faulty.err) == (1, "")
    assert faulty.out.splitlines()[1].startswith("  ! Partition 1 has no worker")


def test_machines_read_the_same(call: Make, visits_file: Path, log: MemoryLog) -> None:
    report(log, today(ONE), today(TWO))
    said = call("status", visits_file, "--json")
    found = json.loads(said.out)
    assert said.code == 0
    assert (found["fine"], found["problems"], found["partitions_without_a_worker"]) == (True, [], [])
    assert [(one["instance"], one["partitions"], one["silent"]) for one in found["workers"]] == [
        ("one", [0], False),
        ("two", [1], False),
    ]
    assert found["lag"] == {"visits": {"0": 5, "1": 0}}
    assert found["totals"] == {"events_consumed": 17, "windows_closed": 2}
    assert found["views"]["pages"]["open_windows"] == 1


def test_watching_prints_a_line_at_every_look_until_it_is_interrupted(
    call: Make, visits_file: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = import_module("stream_dp.operations.status")
    look, looks = command.look, count(1)

    async def interrupted(*arguments: Any) -> Reports:
        if next(looks) == 3:
            raise KeyboardInterrupt
        log.append(STATUS, 0, b"two", encode_status(today(TWO)))
        found: Reports = await look(*arguments)
        return found

    monkeypatch.setattr(command, "look", interrupted)
    monkeypatch.setattr(import_module("stream_dp.cli.status_command"), "LOOK_SECONDS", 0)
    report(log, today(ONE))
    said = call("status", visits_file, "--watch", "--json")
    assert (said.code, said.err) == (0, "")
    assert [json.loads(line)["totals"]["events_consumed"] for line in said.out.splitlines()] == [17, 17]


@pytest.mark.parametrize("watch", [False, True], ids=["once", "watched"])
def test_all_that_an_operator_asks_for_is_on_the_page_and_in_json(
    call: Make, visits_file: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch, *, watch: bool
) -> None:
    """Workers, partitions, lag, clocks, windows that are open, last and next releases, editions, unlocks, budgets."""
    plan = rising(visits_file, RISING, ('epsilon: "30"', 'epsilon: "9"'), ("period: 10d", "period: 40d"))
    log.create(Topics.of(plan).control, 1)
    assert asyncio.run(post_accepted(plan, MemoryClient(log), first_record(plan, 10 * DAY)))
    assert asyncio.run(SettingsLog(plan, MemoryClient(log)).state_use(1))
    office = Office(plan)
    office.release("pages", 19)
    office.publish(log)
    report(log, *(one.model_copy(update={"settings": 1}) for one in (ONE, TWO)))
    command = import_module("stream_dp.operations.status")
    monkeypatch.setattr("stream_dp.operations.reports.wall_clock_ms", lambda: NOW)
    monkeypatch.setattr(import_module("stream_dp.cli.status_command"), "LOOK_SECONDS", 0)

    def said(*options: str) -> str:
        look, looks = command.look, count(1)

        async def interrupted(*arguments: Any) -> Reports:
            if next(looks) == 3:
                raise KeyboardInterrupt
            found: Reports = await look(*arguments)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(command, "look", interrupted)
            return str(call("status", visits_file, *options, *(["--watch"] if watch else [])).out)

    found = [json.loads(line) for line in said("--json").splitlines()] if watch else [json.loads(said("--json"))]
    for one in found:
        assert [(each["instance"], each["partitions"], each["settings"]) for each in one["workers"]] == [
            ("one", [0], 1),
            ("two", [1], 1),
        ]
        assert one["lag"] == {"visits": {"0": 5, "1": 0}}
        assert one["views"] == {
            "pages": {
                "edition": 1,
                "clocks_ms": {"0": NOW, "1": NOW - 5000},
                "open_windows": 1,
                "open_from_ms": TODAY,
                "open_until_ms": TODAY + DAY,
                "released_to_ms": TODAY,
                "next_due_ms": TODAY + DAY + 302_000,
                "waiting_windows": 0,
                "held_up_by": None,
            }
        }
        (unlock,) = one["to_come"]
        assert unlock["what"] == "window of 1970-01-19 unlocked to finest for public"
        budget = one["budgets"]["visitors"]
        assert (budget["pays_until_ms"], budget["period_end_ms"]) == (23 * DAY, 40 * DAY), (
            "8 left, 1 for the unlock, 2 a window"
        )
    page = said()
    lines = [line.split() for line in page.splitlines()]
    clock = ["00:59:55Z", "in", "partition", "1"]
    for line in (
        ["one", "1970-01-20", "0.1.0", "1", "0", "ready"],
        ["two", "1970-01-20", "0.1.0", "1", "1", "ready"],
        ["visits", "5", "partition", "0", "(5)"],
        ["pages", "1", *clock, "1,", "1970-01-21", "to", "1970-01-22", "1970-01-21", "1970-01-22T00:05:02Z"],
        ["1970-01-21T12:00:00Z", "pages", "window", "of", "1970-01-19", "unlocked", "to", "finest", "for", "public"],
    ):
        assert lines.count(line) == len(found) == 1 + watch
    left = "left until 1970-02-10, enough for windows of all views that begin before 1970-01-24"
    assert page.count(left) == 2 * len(found), "above the tables and in that of the ledgers"


def test_where_no_worker_ever_ran_that_is_what_it_says(call: Make, visits_file: Path, log: MemoryLog) -> None:
    said = call("status", visits_file)
    assert (said.code, said.err) == (1, "")
    assert said.out.splitlines()[1] == f"  ! No worker runs. Start one: `stream-dp worker {visits_file}`."
    (problem,) = json.loads(call("status", visits_file, "--json").out)["problems"]
    assert (problem["code"], problem["about"]) == ("no_worker", "")


def test_a_record_that_cannot_be_read_is_said_in_one_sentence() -> None:
    with pytest.raises(StateError, match=r"^a record of the status topic cannot be read: use the stream-dp that"):
        decode_status(b'{"schema_version": 2}')
    more = json.loads(encode_status(ONE)) | {"more": 1}
    assert decode_status(json.dumps(more).encode()) == ONE
