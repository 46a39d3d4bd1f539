"""Settings change while a worker runs: each window is made with those that hold for it, and with no others."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from stream_dp.accounting import Cost
from stream_dp.config.planner import build_plan
from stream_dp.control.acceptance import SettingsHistory, Verdict
from stream_dp.control.editions import next_record
from stream_dp.errors import AccessError, BrokerError, ConfigError, Fault, OutageError
from stream_dp.records.by_kind import HistogramRelease
from stream_dp.records.models import Refusal
from stream_dp.runtime.embedded import MemoryClient
from stream_dp.runtime.kafka.control_topic import SettingsLog, post, read_history
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.testing import Event, Watermark
from stream_dp.windows.effects import Message
from stream_dp.windows.events import WATERMARK_HEADER
from tests.support.changing import MINUTE, Changing, Make, told
from tests.support.given import there
from tests.support.views import released
from tests.support.visits import RICH

WALL = ("clock: event", "clock: wall, catch_up: 0s")
ONE_ITEM = ("items_per_user: 2", "items_per_user: 1")
SHARPER = ('overview, epsilon: "1"', 'overview, epsilon: "3/2"')
LONGER = ("size: 1m", "size: 2m")


def events(made: Changing, minute: int, users: int = 60) -> list[Event]:
    """Visits of a minute: each user has three pages."""
    at = made.at(minute)
    return [Event(f"u{n}", f"/{(n + m) % 5}", at + 100 * n + m) for n in range(users) for m in range(3)]


async def fed(made: Changing, minutes: int) -> list[Event]:
    """The visits of the first minutes, published and counted."""
    script = [event for minute in range(minutes) for event in events(made, minute)]
    await made.app.publish(script)
    await made.consumed(len(script))
    return script


async def test_every_window_is_made_with_the_settings_that_hold_for_it_and_paid_for_once(changing: Make) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    script = [event for minute in range(3) for event in events(made, minute)]
    await made.app.publish(script)
    await made.pass_to(1, 1)

    await made.apply(3, ONE_ITEM, SHARPER)
    await made.learned(2)
    ahead = events(made, 4)[:90]
    await made.app.publish(ahead)
    await made.apply(6, LONGER)
    await made.learned(3)
    later = [event for minute in (3, 5, 6, 7, 8) for event in events(made, minute)]
    await made.app.publish(later)
    script += ahead + later
    await made.consumed(len(script))
    found = await made.pass_to(10, 8)

    assert [[record.edition for record in records] for records in found.values()] == [[1, 1, 1, 2, 2, 2, 3, 3]] * 3
    sizes = [record.window.end_ms - record.window.start_ms for record in found["public"]]
    assert sizes == [MINUTE] * 6 + [2 * MINUTE] * 2
    await made.assert_released(script, 10)
    assert made.app.worker is not None
    assert made.app.worker.totals().total("windows_released", view=made.view.name) == 8


async def test_settings_posted_while_no_worker_runs_hold_at_the_next_start_whatever_its_file_says(
    changing: Make, caplog: pytest.LogCaptureFixture
) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    await fed(made, 2)
    await made.app.stop()
    await made.apply(1, ONE_ITEM)

    with caplog.at_level(logging.WARNING, logger="stream_dp.worker"):
        await made.app.start(clock_ms=made.clock)

    said = f"settings 2 are in effect; the file differs in views.{made.view.name}.items_per_user"
    assert [message for message in caplog.messages if message.startswith(said)]
    found = await made.pass_to(2, 2)
    assert [record.edition for record in found["public"]] == [1, 2]
    totals = made.app.worker.totals() if made.app.worker is not None else None
    assert totals is not None
    assert totals.total("events_refused", reason="changed") == 120, "two contributions of each user of minute 1"


async def test_windows_that_some_partitions_closed_before_they_knew_are_refused_as_lost(changing: Make) -> None:
    """The clock of one partition was ahead: what it had read of these windows was bounded for the former definition."""
    made = await changing()
    made.clock.now_ms = made.at(60)
    await made.app.start(clock_ms=made.clock)
    script = [event for minute in range(4) for event in events(made, minute)]
    await made.app.publish(script)
    await made.app.publish([Watermark(made.at(1) + 10_000)])
    await made.app.wait_for_releases(made.view.name, 1)
    ahead = {WATERMARK_HEADER: str(made.at(3) + 10_000).encode()}
    await made.app.client.publish([Message(made.view.source.topic, None, b"", 0, ahead)])
    await made.consumed(len(script) + 3 + 1)

    await made.apply(2, ONE_ITEM)
    await made.learned(2)
    more = events(made, 4)
    await made.app.publish([*more, Watermark(made.at(5) + 10_000)])
    found = await made.app.wait_for_releases(made.view.name, 5)

    for records in found.values():
        first = {record.window.start_ms: record for record in records}
        told = [(first[made.at(m)].edition, first[made.at(m)].type) for m in range(5)]
        assert told == [(1, "release"), (1, "release"), (2, "refusal"), (2, "refusal"), (2, "release")]
    refused = [record for records in found.values() for record in records if isinstance(record, Refusal)]
    assert {record.reason for record in refused} == {"lost"}


@dataclass
class Account:
    """That of the workers: the part of the names of topics that it may not create."""

    lacks: str = ""


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    found, create = Account(), MemoryClient.create

    async def guarded(client: MemoryClient, topics: Iterable[TopicSpec]) -> None:
        wanted = [*topics]
        for topic in wanted:
            if found.lacks and found.lacks in topic.name and not await client.describe([topic.name]):
                raise AccessError(f"does not let this account create topic {topic.name}")
        await create(client, wanted)

    monkeypatch.setattr(MemoryClient, "create", guarded)
    monkeypatch.setattr("stream_dp.runtime.adoption.RETRY_SECONDS", 0.0)
    return found


async def settled(made: Changing, number: int, state: str) -> SettingsHistory:
    """The history, once settings have a verdict."""

    async def has_verdict() -> SettingsHistory | None:
        history = await read_history(made.app.plan, made.app.client)
        return None if history.state(number) == "waiting" else history

    history = await made.app.eventually(has_verdict)
    assert history.state(number) == state
    return history


async def late(made: Changing) -> Worker:
    """The worker, once it has found that a right is missing."""
    worker = made.app.worker
    assert worker is not None

    async def is_late() -> bool:
        assert worker.crash_reason() is None
        return bool(worker.adoption.problem or worker.host.release_topics.missing)

    await made.app.eventually(is_late)
    return worker


async def post_broken(made: Changing, minute: int) -> int:
    """Post settings that no worker can plan, as another version might, and return their number."""
    number = (await read_history(made.app.plan, made.app.client)).next_number
    plan = made.plan()
    views = {name: {**view, "item": '$["a\\"b"]'} for name, view in plan.raw["views"].items()}
    posted = next_record((), plan, {made.view.name: made.at(minute)}, {}, 7, number=number)
    broken = replace(posted, sections={**posted.sections, "views": views})
    assert await post(made.app.plan, made.app.client, broken)
    return number


async def test_settings_that_cannot_be_planned_are_refused_and_the_former_ones_hold(changing: Make) -> None:
    """A broken edition never begins and costs nothing; the former file and a repaired one follow."""
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    script = await fed(made, 2)

    assert await post_broken(made, 1) == 2
    history = await settled(made, 2, "refused")
    assert "views.pages" not in history.reason(2)
    assert f"settings 2: views.{made.view.name}.item: " in history.reason(2)
    await made.pass_to(2, 2)

    await made.apply(4, SHARPER)
    await made.learned(3)
    later = [event for minute in (2, 3, 4) for event in events(made, minute)]
    await made.app.publish(later)
    script += later
    await made.consumed(len(script))
    found = await made.pass_to(5, 5)
    assert [record.edition for record in found["public"]] == [1, 1, 1, 1, 2]
    await made.assert_released(script, 5)


@pytest.mark.parametrize("sections", [{}, {"views": {}}, {"views": 7}, {"views": {"a": None}}])
async def test_damaged_settings_are_refused_and_can_be_replaced(changing: Make, sections: dict[str, Any]) -> None:
    """Another version may have posted them, or someone without stream-dp."""
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    posted = next_record((), made.plan(), {made.view.name: made.at(3)}, {}, 7, number=2)
    assert await post(made.app.plan, made.app.client, replace(posted, sections=sections))
    await settled(made, 2, "refused")
    await made.apply(4, SHARPER)
    await made.learned(3)


@pytest.mark.parametrize("at_ms", [10**30, -(10**30), 2**63 - 1, 10**17])
async def test_settings_that_begin_at_no_time_are_refused(changing: Make, at_ms: int) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    posted = next_record((), made.plan(SHARPER), {made.view.name: at_ms}, {}, 7, number=2)
    value = json.dumps(to_builtins(posted)).encode()
    await made.app.client.publish([Message(Topics.of(made.app.plan).control, b"settings/2/x", value, 0)])
    await settled(made, 2, "refused")
    await made.apply(4, SHARPER)
    await made.learned(3)


@pytest.mark.parametrize("value", [b'{"type":"settings","note":"\xff"}', b'{"sections":' + b"[" * 100_000])
async def test_control_record_that_nobody_can_decode_stops_no_worker(changing: Make, value: bytes) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    await made.app.client.publish([Message(Topics.of(made.app.plan).control, b"settings/2/x", value, 0)])
    await made.apply(4, SHARPER)
    await made.learned(2)
    await made.app.stop()
    worker = await made.app.start(clock_ms=made.clock)
    assert worker.plan.settings == 2


@pytest.mark.parametrize("source", ["key: user, time: {field: at}", "user: user, time: {field: at, unit: s}"])
async def test_other_source_is_refused_while_workers_run(changing: Make, source: str) -> None:
    """`apply` refuses it, too, unless a worker starts after it has looked for workers."""
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    await made.apply(4, ("user: user, time: {field: at}", source))
    history = await settled(made, 2, "refused")
    assert history.reason(2).startswith("sources.visits: it differs from what the workers read")
    await made.app.stop()
    await made.apply(5, ("user: user, time: {field: at}", source))
    worker = await made.app.start(clock_ms=made.clock)
    assert worker.plan.settings == 3


async def test_refused_settings_are_never_in_effect_for_a_worker_that_was_down(changing: Make) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    script = await fed(made, 2)
    await made.app.stop()
    assert await post_broken(made, 1) == 2
    await made.apply(2, SHARPER)

    worker = await made.app.start(clock_ms=made.clock)
    assert worker.plan.settings == 3
    history = await read_history(made.app.plan, made.app.client)
    assert [history.state(number) for number in (1, 2, 3)] == ["accepted", "refused", "accepted"]
    later = events(made, 2)
    await made.app.publish(later)
    await made.consumed(len(later))
    found = await made.pass_to(3, 3)
    assert [record.edition for record in found["public"]] == [1, 1, 2]
    await made.assert_released(script + later, 3)


async def test_killed_between_the_post_and_the_verdict_another_worker_gives_it(
    changing: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await changing(WALL)
    writing = SettingsLog.judge

    async def killed(log: SettingsLog, verdict: Verdict) -> None:
        raise OSError("killed")

    monkeypatch.setattr(SettingsLog, "judge", killed)
    with pytest.raises(OSError, match="killed"):
        await made.app.start(clock_ms=made.clock)
    history = await read_history(made.app.plan, made.app.client)
    assert [one.number for one in history.waiting] == [1]

    monkeypatch.setattr(SettingsLog, "judge", writing)
    worker = await made.app.start(clock_ms=made.clock)
    assert worker.plan.settings == 1
    monkeypatch.setattr(SettingsLog, "judge", killed)
    await made.apply(3, SHARPER)

    async def crashed() -> bool:
        return worker.crash_reason() is not None

    made.app.worker = None
    await made.app.eventually(crashed)
    monkeypatch.setattr(SettingsLog, "judge", writing)
    await made.app.stop()
    worker = await made.app.start(clock_ms=made.clock)
    assert worker.plan.settings == 2


@pytest.mark.parametrize("error", [BrokerError, OutageError])
async def test_broker_that_fails_once_a_verdict_was_read_ends_no_worker(
    changing: Make, monkeypatch: pytest.MonkeyPatch, error: type[BrokerError]
) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    writing = SettingsLog.judge
    failed: list[int] = []

    async def failing(log: SettingsLog, verdict: Verdict) -> None:
        await writing(log, verdict)
        if not failed:
            failed.append(verdict.number)
            raise error("no answer")

    monkeypatch.setattr(SettingsLog, "judge", failing)
    await made.apply(3, SHARPER)
    await settled(made, 2, "accepted")

    async def is_adopted() -> bool:
        return made.app.worker is not None and made.app.worker.plan.settings == 2

    await made.app.eventually(is_adopted)
    assert failed == [2]


async def test_unplannable_settings_end_workers_until_others_are_posted(
    changing: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version accepted them. What was released and charged before stays, and they cost nothing."""
    made = await changing(WALL)
    worker = await made.app.start(clock_ms=made.clock)
    script = await fed(made, 2)
    await made.pass_to(2, 2)
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "_is_judge", lambda _: False)
        number = await post_broken(made, 3)
        await SettingsLog(made.app.plan, made.app.client).judge(Verdict(number, 7))

        async def crashed() -> BaseException | None:
            return worker.crash_reason()

        made.app.worker = None
        reason = await made.app.eventually(crashed)
    assert isinstance(reason, ConfigError)
    assert str(reason).startswith("settings 2: they are accepted, but cannot be planned here: settings 2: views.")
    await made.app.stop()
    with pytest.raises(ConfigError, match=r"^settings 2: they are accepted, but cannot be planned here"):
        await made.app.start(clock_ms=made.clock)

    await made.apply(4, SHARPER)
    worker = await made.app.start(clock_ms=made.clock)
    assert worker.plan.settings == 3
    await settled(made, 2, "refused")
    later = [event for minute in (2, 3, 4) for event in events(made, minute)]
    await made.app.publish(later)
    await made.consumed(len(later))
    found = await made.pass_to(5, 5)
    assert [record.edition for record in found["public"]] == [1, 1, 1, 1, 2]
    await made.assert_released([*script, *later], 5)


async def test_change_that_would_begin_too_soon_is_refused(changing: Make) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    made.clock.now_ms = made.at(2) - 9_000
    await made.apply(2, SHARPER)
    history = await settled(made, 2, "refused")
    assert history.reason(2) == "a view would change in less than 10 s; apply them again, so that it changes later"
    await made.apply(3, SHARPER)
    await made.learned(3)


async def test_settings_with_windows_that_this_machine_computes_too_slowly_are_refused(
    changing: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    slow = [Fault("views.pages", "a window takes 5 s to compute")]
    monkeypatch.setattr("stream_dp.runtime.verdicts.find_late_views", lambda plan, lists: slow)
    await made.apply(2, SHARPER)
    history = await settled(made, 2, "refused")
    assert history.reason(2) == "views.pages: a window takes 5 s to compute"


async def test_missing_right_to_a_topic_makes_its_records_late_and_nothing_else(
    changing: Make, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    script = await fed(made, 2)
    both = made.plan(SECOND)
    (more,) = both.views.keys() - {made.view.name}

    account.lacks = more
    await made.app.apply(both, {more: made.at(1)})
    await settled(made, 2, "accepted")
    worker = await late(made)
    assert worker.plan.settings == 2
    await made.pass_to(2, 2)

    worker.host.forget()  # as in a rebalance
    later = events(made, 2)
    await made.app.publish(later)
    await made.consumed(len(script) + len(later))
    await made.pass_to(3, 3)
    await made.app.stop()
    await made.app.start(clock_ms=made.clock)
    assert [message.count("cannot create") for message in caplog.messages].count(1) >= 1

    account.lacks = ""
    first, made.app.plan = made.app.plan, both
    found = await made.app.wait_for_releases(more, 2)
    assert [made.minute(record.window.start_ms) for record in found["public"]] == [1, 2]
    made.app.plan = first
    found = await made.app.releases(made.view.name)
    assert [record.type for record in found["public"]] == ["release"] * 3


async def test_missing_topic_delays_its_own_audience_only(changing: Make, account: Account) -> None:
    """Other audiences get the records of the same windows at their slots."""
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    script = [event for minute in range(4) for event in events(made, minute)]
    await made.app.publish(script)
    await made.consumed(len(script))

    account.lacks = ".board"
    board = ("audiences: {", "audiences: {board: detailed, ")
    await made.apply(3, board)
    worker = await late(made)
    topic = Topics.of(made.app.plan).release(made.view.name, "board")
    (problem,) = worker.host.release_topics.problems
    assert problem.startswith(f"this account cannot create topic {topic}, so audience board gets its records")
    found = await made.pass_to(4, 4)
    assert [record.edition for record in found["public"]] == [1, 1, 1, 2]
    assert not await made.app.read(topic)

    account.lacks = ""
    made.app.plan = made.plan(board)
    found = await made.app.wait_for_releases(made.view.name, 1)
    assert made.at(3) in [record.window.start_ms for record in found["board"]]

    async def is_live() -> bool:
        return made.app.worker is not None and not made.app.worker.host.release_topics.missing

    await made.app.eventually(is_live)


async def test_settings_whose_topics_cannot_be_created_are_taken_back(changing: Make, account: Account) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    script = await fed(made, 2)
    both = made.plan(SECOND)
    (more,) = both.views.keys() - {made.view.name}

    account.lacks = more
    await made.app.apply(both, {more: made.at(1)})
    await late(made)
    await made.app.apply(made.plan(), {}, {more: made.at(1)})
    await made.learned(3)
    await made.pass_to(2, 2)
    await made.assert_released(script, 2)


SECOND = (
    "views:\n",
    "views:\n  NAME-more: {kind: histogram, source: visits, item: page, items_per_user: 1, "
    "window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, catch_up: 0s}, "
    'delta: "1e-4", ledger: visitors, ladder: standard, retention: 1d}\n',
)


async def test_views_come_and_go_while_a_worker_runs(changing: Make) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    both = made.plan(SECOND)
    (more,) = both.views.keys() - {made.view.name}

    await made.app.apply(both, {more: made.at(1)})
    await made.learned(2)
    script = await fed(made, 4)
    await made.pass_to(2, 2)
    first, made.app.plan = made.app.plan, both
    found = await made.app.wait_for_releases(more, 1)
    assert [record.window.start_ms for record in found["public"]] == [made.at(1)]

    sections = {**both.raw, "views": {more: both.raw["views"][more]}}
    await made.app.apply(build_plan(sections, both.folder), {}, {made.view.name: made.at(3)})
    await made.learned(3)
    made.clock.now_ms = made.at(4) + 30_000
    found = await made.app.wait_for_releases(more, 3)
    assert len((await made.app.wait_for_releases(made.view.name, 3))["public"]) == 3

    await made.app.apply(both, {made.view.name: made.at(6)})
    await made.learned(4)
    back = [event for minute in (5, 6) for event in events(made, minute)]
    await made.app.publish(back)
    await made.consumed(len(script) + len(back))
    found = await made.pass_to(7, 4)
    assert [(made.minute(one.window.start_ms), one.edition) for one in found["public"]] == [
        (0, 1),
        (1, 1),
        (2, 1),
        (6, 2),
    ]
    made.app.plan = first
    assert told(found) == told(made.expected([*script, *back], 7))
    (ledger,) = (await made.app.ledgers()).values()
    assert ledger.views[made.view.name] == sum(
        (one.privacy.window.cost for one in released(found["partner"])), Cost.ZERO
    )


async def test_a_view_that_is_put_back_or_new_in_a_fast_stream_shows_exact_windows_and_no_others(
    changing: Make,
) -> None:
    """The stream is read up to minute 8 when workers learn of windows from minute 3 on; `max_ahead` is 2 minutes."""
    ahead = ("max_ahead: 1h", "max_ahead: 2m")  # and a budget for all windows of both views
    more_ahead = (SECOND[0], SECOND[1].replace("grace: 10s", "grace: 10s, clock: event, max_ahead: 2m"))
    made = await changing(ahead, RICH[0], ("period: 366d", "period: 1d"))
    made.clock.now_ms = made.at(60)
    await made.app.start(clock_ms=made.clock)
    script: list[Event | Watermark] = []

    async def feed(*minutes: int) -> None:
        some: list[Event | Watermark] = []
        for at in minutes:
            some += [*events(made, at), Watermark(made.at(at + 1))]
        await made.app.publish(some)
        script.extend(some)
        marks = sum(isinstance(one, Watermark) for one in script)
        await made.consumed(len(script) - marks + marks * made.view.source.partitions)

    both = made.plan(more_ahead)
    (more,) = both.views.keys() - {made.view.name}
    only = build_plan({**both.raw, "views": {more: both.raw["views"][more]}}, both.folder)
    await feed(0, 1)
    await made.app.apply(only, {more: made.at(1)}, {made.view.name: made.at(1)})
    await made.learned(2)
    await feed(*range(2, 8))
    await made.app.apply(both, {made.view.name: made.at(3)})
    await made.learned(3)
    await feed(*range(8, 14))

    first = await made.app.wait_for_releases(made.view.name, 11)
    shown = {made.minute(one.window.start_ms): one.type for one in first["public"]}
    assert shown == {0: "release"} | dict.fromkeys(range(3, 11), "refusal") | dict.fromkeys(range(11, 13), "release")
    exact = {name: [one for one in records if one.type == "release"] for name, records in first.items()}
    due = made.expected(script, 13).items()
    assert told(exact) == told(
        {
            name: [one for one in records if shown[made.minute(one.window.start_ms)] == "release"]
            for name, records in due
        }
    )
    made.app.plan = both
    added = await made.app.wait_for_releases(more, 12)
    shown = {made.minute(one.window.start_ms): one.type for one in added["public"]}
    assert shown == dict.fromkeys(range(1, 5), "refusal") | dict.fromkeys(range(5, 13), "release")
    totals = [sum(item.count for item in one.items) for one in added["internal"] if isinstance(one, HistogramRelease)]
    assert len(totals) == 8
    assert all(abs(total - 60) <= 20 for total in totals), "of 60 users at epsilon 2; false alarms: below 1e-7"


@pytest.mark.slow
async def test_windows_of_a_former_definition_are_sharpened_by_its_own_ladder_and_paid_for_by_the_same_ledger(
    changing: Make,
) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    await fed(made, 4)
    await made.apply(2, ('detailed, epsilon: "6"', 'detailed, epsilon: "7"'))
    await made.learned(2)
    await made.pass_to(4, 4)

    await made.app.grant("partner", "detailed")
    found = await made.app.wait_for_releases(made.view.name, 4)

    async def sharper() -> bool:
        nonlocal found
        found = await made.app.releases(made.view.name)
        return len(found["partner"]) == 8

    await made.app.eventually(sharper)
    second = [record for record in found["partner"] if record.revision == 2]
    assert sorted((r.window.start_ms, r.edition, there(r.level.epsilon).exact) for r in second) == [
        (made.at(0), 1, "6"),
        (made.at(1), 1, "6"),
        (made.at(2), 2, "7"),
        (made.at(3), 2, "7"),
    ]
    (ledger,) = (await made.app.ledgers()).values()
    assert ledger.spent.epsilon == 26


@pytest.mark.slow
async def test_what_changes_no_definition_goes_on_with_its_windows(changing: Make) -> None:
    """An audience that is added reads from its first window on, and gets what is free of those before."""
    made = await changing(WALL, ("buckets: 4\n", "buckets: 4\n    audiences: [internal, public]\n"))
    await made.app.start(clock_ms=made.clock)
    await fed(made, 4)
    await made.pass_to(1, 1)

    await made.apply(3, ("    audiences: [internal, public]\n", ""))
    await made.learned(2)
    await made.pass_to(4, 4)
    made.app.plan = made.plan(("    audiences: [internal, public]\n", ""))
    found = await made.app.wait_for_releases(made.view.name, 1)

    async def everything() -> bool:
        nonlocal found
        found = await made.app.releases(made.view.name)
        return made.at(3) in {record.window.start_ms for record in found["partner"]}

    await made.app.eventually(everything)
    assert [record.edition for record in found["public"]] == [1, 1, 1, 2]
    assert {r.edition for r in found["partner"] if r.window.start_ms == made.at(3)} == {2}
    (asked,) = made.definitions()
    assert asked.name == made.view.name
