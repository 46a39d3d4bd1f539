"""A worker that stops, crashes or loses its folder goes on where it was: same records, same charges, nothing twice."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from stream_dp.errors import ConfigError, StateError
from stream_dp.exact.bits import BitSource
from stream_dp.records.by_kind import HistogramRelease
from stream_dp.releases.rows import OUTBOX, PROMISE, PUBLISHED, TABLE
from stream_dp.runtime.faust import transport
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics
from stream_dp.testing import Application, Event, Raw, Watermark, plan_from
from tests.support.oracle import count_script
from tests.support.totals import stored_totals_of
from tests.support.views import only_view, oracle_bytes, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
in_memory = pytest.mark.parametrize("broker", ["memory"], indirect=True)


def visits_of_minute(app: Application, minute: int) -> list[Event]:
    """400 visits of 200 users, some of them repeated, some too many."""
    at = start_of(only_view(app)) + minute * MINUTE
    return [Event(f"u{number % 200}", f"/{number * number % 7}", at + 100 * number) for number in range(400)]


def mark(app: Application, minute: int) -> Watermark:
    return Watermark(start_of(only_view(app)) + minute * MINUTE)


def leave_behind(app: Application) -> None:
    """Go on with a copy of what a crashed worker left in its folder: its locks last as long as this process."""
    copy = app.plan.data_dir.with_name("left-behind")
    if app.plan.data_dir.exists():
        shutil.copytree(app.plan.data_dir, copy)
    app.plan = replace(app.plan, data_dir=copy)


async def assert_released(app: Application, script: Sequence[Event | Watermark | Raw], windows: int) -> None:
    """Every audience has the oracle's record of every window, byte for byte, nothing else, charged once."""
    view = only_view(app)
    start = start_of(view)
    await app.wait_for_releases(view.name, windows)
    counts = count_script(view, start, script).between(view, start, start + windows * MINUTE)
    assert await app.published(view.name) == oracle_bytes(app, view, counts)
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent.epsilon == windows * 2
    assert not ledger.reserved
    await assert_totals(app, script, windows)


async def assert_totals(app: Application, script: Sequence[Event | Watermark | Raw], windows: int) -> None:
    """What is stored, and what the worker that runs last says, is what was published, each record once."""
    view, marks = only_view(app), sum(isinstance(one, Watermark) for one in script)
    partitions, expected = view.source.partitions, count_script(view, start_of(view), script)
    records = len(script) - marks + marks * partitions

    async def counted() -> bool:
        return (await stored_totals_of(app)).total("events_consumed") == records

    await app.eventually(counted)
    assert app.worker is not None
    for totals in (await stored_totals_of(app), app.worker.totals()):
        assert totals.total("events_consumed") == records
        assert totals.total("watermarks_read") == marks * partitions
        assert totals.total("events_counted") == sum(sum(table.values()) for table in expected.counts.values())
        reasons = {dict(labels)["reason"] for labels in totals.by_labels("events_refused")}
        assert {one: totals.total("events_refused", reason=one) for one in reasons} == expected.refused
        assert totals.total("windows_closed") == windows * partitions
        assert totals.total("windows_released") == windows


@pytest.mark.parametrize(
    "fresh_folder",
    [pytest.param(False, id="same folder", marks=pytest.mark.slow), pytest.param(True, id="fresh folder")],
)
async def test_worker_stopped_within_a_window_goes_on_with_the_same_counts(launch: Launch, fresh_folder: bool) -> None:
    app = await launch()
    script: list[Event | Watermark] = []
    for minute in range(2):
        worker = await app.start()
        part: list[Event | Watermark] = [*visits_of_minute(app, minute)[:250], mark(app, minute)]
        await app.publish(part)

        async def consumed(events: int = len(part) - 1 + 3) -> bool:
            return app.worker is not None and app.worker.counters.total("events_consumed") >= events

        await app.eventually(consumed)
        await app.stop()
        assert worker.counters.total("events_replayed") == 0
        if fresh_folder:
            shutil.rmtree(app.plan.data_dir)
        rest = [*visits_of_minute(app, minute)[200:]]
        await app.publish(rest)
        script += [*part, *rest]
    script.append(mark(app, 5))
    await app.publish(script[-1:])
    await app.start()
    await assert_released(app, script, 4)


@in_memory
@pytest.mark.parametrize(
    ("draw", "fresh_folder"),
    [
        pytest.param(0, False, id="first", marks=pytest.mark.slow),
        pytest.param(1, False, id="second"),
        pytest.param(1, True, id="second, fresh folder", marks=pytest.mark.slow),
        pytest.param(4, False, id="third window"),
    ],
)
async def test_worker_that_crashes_while_it_draws_draws_the_same_after_it(
    launch: Launch, draw: int, fresh_folder: bool
) -> None:
    app = await launch()
    calm = app.entropy
    draws = 0

    def failing(context: bytes) -> BitSource:
        nonlocal draws
        draws += 1
        if draws == draw + 1:
            raise OSError("no entropy")
        return calm(context)

    app.entropy = failing
    script: list[Event | Watermark] = [*visits_of_minute(app, 0), *visits_of_minute(app, 2), mark(app, 4)]
    worker = await app.start()
    await app.publish(script)
    await worker.crashed()
    assert isinstance(worker.crash_reason(), OSError)
    await app.stop()
    app.entropy = calm
    if fresh_folder:
        shutil.rmtree(app.plan.data_dir)
    leave_behind(app)

    await app.start()
    await assert_released(app, script, 3)


@in_memory
@pytest.mark.parametrize(
    "fresh_folder",
    [pytest.param(False, id="same folder", marks=pytest.mark.slow), pytest.param(True, id="fresh folder")],
)
async def test_everything_read_again_from_the_beginning_changes_nothing(launch: Launch, fresh_folder: bool) -> None:
    """Source, partials, merged buckets, ticks and orders are all delivered a second time."""
    app = await launch()
    assert app.log is not None
    script: list[Event | Watermark] = [*visits_of_minute(app, 0), *visits_of_minute(app, 1), mark(app, 3)]
    await app.start()
    await app.publish(script)
    await assert_released(app, script, 2)
    await app.stop()
    records = len(script) - 1 + 3
    before = {tp: app.log.end(tp) for tp in app.log.records if ".releases." in tp.topic}

    app.log.committed.clear()
    if fresh_folder:
        shutil.rmtree(app.plan.data_dir)
    again = await app.start()

    async def replayed() -> bool:
        return again.counters.total("events_replayed") == records

    await app.eventually(replayed)
    more: list[Event | Watermark] = [*visits_of_minute(app, 3), mark(app, 5)]
    await app.publish(more)
    await assert_released(app, [*script, *more], 4)
    assert {tp: app.log.end(tp) for tp in before} == {tp: end + 2 for tp, end in before.items()}
    assert again.counters.total("partials_repeated") == 2 * 3 * 4  # windows, partitions, buckets


@in_memory
async def test_events_fetched_while_a_recovery_ends_are_counted(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust resumes the sources, seeks, then clears its queues: what was fetched in between must not be lost."""
    app = await launch()
    assert app.log is not None
    script: list[Event | Watermark] = [*visits_of_minute(app, 0)]
    await app.start()
    await app.publish(script)
    assert app.worker is not None
    counters = app.worker.counters

    async def consumed() -> bool:
        return counters.total("events_consumed") == 400

    await app.eventually(consumed)
    await app.stop()
    app.log.committed.clear()  # as if it had been killed before its first commit
    shutil.rmtree(app.plan.data_dir)
    seek, commit = transport.MemoryConsumer.seek_to_committed, DurableTable.commit

    async def slowly_seek(self: transport.MemoryConsumer) -> Any:
        committed = await seek(self)
        await asyncio.sleep(0.3)
        return committed

    async def slowly_commit(self: DurableTable, partition: int, rows: Any, writer: Any) -> None:
        await asyncio.sleep(0.2)
        await commit(self, partition, rows, writer)

    monkeypatch.setattr(transport.MemoryConsumer, "seek_to_committed", slowly_seek)
    monkeypatch.setattr(DurableTable, "commit", slowly_commit)
    script += [*visits_of_minute(app, 1), mark(app, 3)]
    await app.publish(script[400:])

    await app.start()
    await assert_released(app, script, 2)


async def after_a_release(launch: Launch) -> tuple[Application, list[Event | Watermark]]:
    """An application whose worker has released one window and stopped, and what it read."""
    app = await launch()
    script: list[Event | Watermark] = [*visits_of_minute(app, 0), mark(app, 2)]
    await app.start()
    await app.publish(script)
    await assert_released(app, script, 1)
    await app.stop()
    return app, script


@in_memory
async def test_a_file_with_a_changed_view_changes_nothing_by_itself(launch: Launch) -> None:
    app, script = await after_a_release(launch)
    text = (app.plan.key_file.parent / "application.yaml").read_text()
    changed = plan_from(text.replace("items_per_user: 2", "items_per_user: 3"), app.plan.key_file.parent)
    await app.publish([*visits_of_minute(app, 1), mark(app, 3)])
    leave_behind(app)

    await app.start(plan=replace(changed, data_dir=app.plan.data_dir))
    await assert_released(app, [*script, *visits_of_minute(app, 1), mark(app, 3)], 2)


@in_memory
async def test_an_audience_that_is_added_gets_what_costs_nothing_and_the_log_says_what_would(
    launch: Launch, caplog: pytest.LogCaptureFixture
) -> None:
    app, _ = await after_a_release(launch)
    (before,) = (await app.ledgers()).values()
    leave_behind(app)
    text = (app.plan.key_file.parent / "application.yaml").read_text()
    more = text.replace("internal: standard}", "internal: standard, guest: standard, keen: detailed}")
    app.plan = replace(plan_from(more, app.plan.key_file.parent), data_dir=app.plan.data_dir)
    view = only_view(app)
    await app.apply(app.plan, {view.name: start_of(view) + MINUTE})

    with caplog.at_level(logging.INFO, "stream_dp.worker"):
        await app.start()

        async def welcomed() -> bool:
            return bool((await app.releases(view.name))["guest"])

        await app.eventually(welcomed)
    found = await app.releases(view.name)
    (guest,), (partner,) = found["guest"], found["partner"]
    assert isinstance(guest, HistogramRelease)
    assert isinstance(partner, HistogramRelease)
    assert (guest.items, guest.level, guest.revision) == (partner.items, partner.level, 1)
    assert found["keen"] == []
    (after,) = (await app.ledgers()).values()
    assert (after.spent, after.readers["guest"]) == (before.spent, before.readers["partner"])
    assert [line for line in caplog.messages if "keen" in line] == [
        f"audience keen does not get all windows of {view.name} from before it was added: at its level they cost more "
        "than was paid for them; `stream-dp grant FILE keen --level LEVEL` charges that and releases them"
    ]

    await app.grant("keen", "detailed")

    async def granted() -> bool:
        return bool((await app.releases(view.name))["keen"])

    await app.eventually(granted)


@in_memory
async def test_another_key_file_is_refused_and_the_former_one_goes_on(launch: Launch) -> None:
    app, script = await after_a_release(launch)
    key = app.plan.key_file.read_text()
    app.plan.key_file.write_text(bytes(32).hex())
    await app.publish([mark(app, 3)])

    with pytest.raises(ConfigError, match="started with another key file"):
        await app.start()

    app.plan.key_file.write_text(key)
    await app.start()
    await assert_released(app, [*script, mark(app, 3)], 2)


@in_memory
async def test_crash_reaches_whoever_waits_for_a_release(launch: Launch) -> None:
    app = await launch()

    def failing(_: bytes) -> BitSource:
        raise OSError("no entropy")

    app.entropy = failing
    await app.start()
    await app.publish([mark(app, 2)])
    with pytest.raises(StateError, match="no entropy"):
        await app.wait_for_releases(only_view(app).name, 1)


@in_memory
async def test_after_a_release_no_row_that_still_stands_holds_a_count_or_a_user(launch: Launch) -> None:
    app, _ = await after_a_release(launch)
    topics = Topics.of(app.plan)
    changelogs = [topics.changelog(table) for table in (COUNTS, MERGES, RELEASES)]

    for topic, secret in product([topics.partials, topics.merged, *changelogs], [b"u17", b"/2"]):
        rows = await app.read(topic)
        was_there = [key for key, value in rows if value and secret in value]
        standing = [key for key, value in dict(rows).items() if value and secret in value]
        assert bool(was_there) == (secret == b"/2" or topic == topics.changelog(COUNTS)), (topic, secret)
        # What is kept for views is in fractions of the settings, such as 1/2.
        public = (TABLE, OUTBOX, PUBLISHED, PROMISE)
        assert not [key for key in standing if key is not None and key[:1] not in public], (topic, secret)
