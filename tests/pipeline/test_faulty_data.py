"""Faults in the data: a sample tells of them with the remedy, a first start refuses, and a worker that runs says so."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from stream_dp.errors import ConfigError
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.settled import prepare
from stream_dp.runtime.sources import sampling
from stream_dp.runtime.sources import survey as survey_module
from stream_dp.runtime.sources.findings import share_words
from stream_dp.runtime.sources.survey import check_first_starts, survey
from stream_dp.runtime.worker import assembly
from stream_dp.testing import Application, Event, Raw, SourceWriter, Watermark, application, plan_from
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.windows.effects import Message
from tests.support.faults import FAULTS, ITEM, USER, visits
from tests.support.views import only_view, start_of

Visits = Callable[..., str]
EVERY = pytest.mark.parametrize("fault", FAULTS)


@pytest.fixture
async def app(request: pytest.FixtureRequest, tmp_path: Path, visits: Visits) -> AsyncIterator[Application]:
    async with application(visits(*getattr(request, "param", ())), tmp_path) as made:
        yield made


def expected(app: Application, fault: str) -> tuple[list[Raw], str, str]:
    make, reason, words = FAULTS[fault]
    return make(app, wall_clock_ms()), reason, words.replace("NAME", app.plan.name)


def refused(app: Application, fault: str, records: list[Raw]) -> int:
    """How many of some records have the fault: by another partitioner, some users are where they should be."""
    writer = SourceWriter(app.plan)
    strays = [record for record in records if writer.place((record.key or b"").decode()) != record.partition]
    assert len(records) // 2 < len(strays) < len(records) or fault != "librdkafka's partitioner"
    return len(strays) if fault == "librdkafka's partitioner" else len(records)


async def written(app: Application) -> dict[str, int]:
    """How many records stand in each topic."""
    assert app.log is not None
    return {topic: len(await app.read(topic)) for topic in app.log.partitions}


@EVERY
async def test_a_sample_tells_of_a_fault_with_its_remedy(app: Application, fault: str) -> None:
    records, reason, words = expected(app, fault)
    await app.publish(records)
    (sample,) = await survey(app.plan, app.client, wall_clock_ms())
    first, *_ = sample.findings
    assert (first.reason, first.records) == (reason, refused(app, fault, records))
    assert words in first.message
    said = json.dumps(sample.model_dump())
    assert USER not in said
    assert ITEM not in said


@EVERY
async def test_a_first_start_refuses_and_nothing_is_made_or_charged(app: Application, fault: str) -> None:
    records, reason, words = expected(app, fault)
    await app.publish(records)
    before = await written(app)
    with pytest.raises(ConfigError) as raised:
        await app.start()
    (told,) = raised.value.faults
    assert told.path == "sources.visits"
    share = share_words(refused(app, fault, records), len(records))
    assert f"{reason} ({share} of the newest records): " in told.message
    assert words in told.message
    assert "--unchecked-data" in told.message
    assert await written(app) == before
    assert USER not in told.message
    assert ITEM not in told.message
    assert "pages'" not in told.message, "names of fields are for a terminal"


IN_THE_LOG = {"wrong_unit": "before_start"}
"""Reasons by which a worker that runs tells of a fault, where a sample knows more."""


async def warnings_of(
    app: Application, records: list[Raw], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[set[str]], Awaitable[set[str]]]:
    """Feed a worker that has begun all the same; gives what waits until its log warns of some reasons."""
    monkeypatch.setattr(assembly, "ADVICE_SECONDS", 0.2)
    await app.start(unchecked_data=True)
    await app.publish(records)

    async def warned(reasons: set[str]) -> set[str]:
        async def all_of_them() -> set[str] | None:
            said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            found = {one for one in said if any(f": {reason} (" in one for reason in reasons)}
            return found if len(found) == len(reasons) else None

        return await app.eventually(all_of_them)

    return warned


async def test_a_worker_that_begins_all_the_same_warns_of_every_fault_with_its_remedy(
    app: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    records = [record for fault in FAULTS for record in expected(app, fault)[0]]
    warned = await warnings_of(app, records, monkeypatch, caplog)
    said = await warned({IN_THE_LOG.get(reason, reason) for _, reason, _ in FAULTS.values()})
    assert all(" (about " in one or " (some of " in one for one in said)
    remedies = ("let the producers write it", "write one JSON object", "every event needs", "partitioner: crc32")
    for words in (*remedies, "time.unit", "window.max_ahead"):
        assert any(words in one for one in said), words
    assert USER not in caplog.text
    assert ITEM not in caplog.text


@pytest.mark.slow
@EVERY
async def test_a_worker_that_begins_all_the_same_warns_of_a_fault_alone(
    app: Application, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    records, reason, _ = expected(app, fault)
    warned = await warnings_of(app, records, monkeypatch, caplog)
    (said,) = await warned({IN_THE_LOG.get(reason, reason)})
    assert f"({share_words(refused(app, fault, records), len(records))} of the records): " in said


# -- what is no fault, or cannot be told ------------------------------------------------------------------------

WALL = ("clock: event", "clock: wall, catch_up: 0s")
NO_START = ("start: 2024-01-01T00:00:00Z, ", "")
DAYS = 86_400_000


async def begin(app: Application) -> None:
    """What a first start does before it makes anything."""
    await check_first_starts(app.plan, app.client, wall_clock_ms())


@pytest.mark.parametrize("app", [(WALL,), (WALL, NO_START), (), (NO_START,)], indirect=True)
async def test_history_is_no_fault_whenever_the_view_begins(app: Application) -> None:
    await app.publish([Event(f"u{n}", "/", wall_clock_ms() - 400 * DAYS + n) for n in range(60)])
    await begin(app)


async def test_few_records_keep_nobody_from_beginning_but_are_told_of(
    app: Application, caplog: pytest.LogCaptureFixture
) -> None:
    await app.publish(expected(app, "null keys")[0][:9])
    await begin(app)
    assert "sources.visits: null_key (nearly all of the newest records): they have no key" in caplog.text


async def test_an_empty_topic_is_no_fault_and_is_told_of(app: Application, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await begin(app)
    assert (
        f"sources.visits: topic {only_view(app).source.topic} has no record yet; its views begin unchecked"
        in caplog.text
    )


async def test_half_of_the_records_with_a_fault_keep_nobody_from_beginning_one_more_does(app: Application) -> None:
    bad, good = expected(app, "null keys")[0][:30], visits(app, wall_clock_ms())[:30]
    await app.publish([*bad, *good])
    await begin(app)
    await app.publish(bad[:1])
    with pytest.raises(ConfigError, match=r"null_key \(about 50 % of the newest records\)"):
        await begin(app)


ONE_PARTITION = ("partitions: 3", "partitions: 1")
REKEYED = (", user: user", ", key: user")


@pytest.mark.parametrize("number", [500, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("app", [(ONE_PARTITION,), (ONE_PARTITION, REKEYED)], indirect=True)
async def test_records_of_one_user_cannot_prevent_a_start(app: Application, number: int) -> None:
    """The records are most of the newest ones, or all of them."""
    await app.publish(visits(app, wall_clock_ms())[:60])
    await app.publish([Raw(0, b"X", b'{"user": "X", "page": true, "at": 5}')] * number)
    await begin(app)


@pytest.mark.parametrize("app", [(("partitions: 3", "partitions: 2"),)], indirect=True)
async def test_another_partitioner_is_a_fault_though_it_puts_half_of_the_users_right(app: Application) -> None:
    users = [b"u%d" % number for number in range(200)]
    at = wall_clock_ms()
    records = [Raw(crc32(u) % 2, u, b'{"user": "%s", "page": "/", "at": %d}' % (u, at)) for u in users]
    writer = SourceWriter(app.plan)
    even = [record for record in records if writer.place((record.key or b"").decode()) == record.partition][:30]
    odd = [record for record in records if writer.place((record.key or b"").decode()) != record.partition][:30]
    await app.publish([*even, *odd])
    with pytest.raises(ConfigError, match="set partitioner: crc32"):
        await begin(app)


async def test_a_view_that_has_begun_is_not_kept_from_going_on(app: Application) -> None:
    await app.publish(expected(app, "avro")[0])
    with pytest.raises(ConfigError):
        await begin(app)
    await prepare(app.plan, app.client, lambda: "key one", backfill=True)
    await begin(app)


async def test_a_further_view_in_the_file_keeps_nobody_from_going_on_and_a_sample_tells_of_it(
    app: Application, tmp_path: Path
) -> None:
    """What holds is gone on with; whoever means to apply the file learns that events need the fields of all views."""
    await prepare(app.plan, app.client, lambda: "key one", backfill=True)
    await app.publish(visits(app, wall_clock_ms(), page=None, shop=ITEM))
    text = (tmp_path / "application.yaml").read_text()
    _, head, view = text.partition(f"  {app.plan.name}-pages:")
    further = f"{text}{head.replace('pages', 'shops')}{view.replace('item: page', 'item: shop')}"
    plan = plan_from(further, tmp_path / "further")
    await check_first_starts(plan, app.client, wall_clock_ms())
    (sample,) = await survey(plan, app.client, wall_clock_ms())
    assert {view.view.partition("-")[2]: view.begun for view in sample.views} == {"pages": True, "shops": False}
    assert any(re.search(r"field 'page' \(views.*-pages.item\) is missing", words) for words in sample.words())


async def test_missing_watermarks_are_told_of(app: Application) -> None:
    await app.publish(visits(app, wall_clock_ms()))
    (sample,) = await survey(app.plan, app.client, wall_clock_ms())
    found, withdrawn = sample.findings
    assert withdrawn.path == f"views.{only_view(app).name}.retention"
    assert found.path == f"views.{only_view(app).name}.window.clock"
    assert "no partition has a watermark" in found.message
    await app.publish([Watermark(start_of(only_view(app)))])
    (sample,) = await survey(app.plan, app.client, wall_clock_ms())
    assert (sample.findings, sample.watermarks) == ([withdrawn], app.plan.partitions)


@pytest.mark.parametrize(("factor", "divisor", "unit"), [(1, 1000, "seconds"), (1000, 1, "microseconds")])
async def test_watermarks_in_a_wrong_unit_are_refused(app: Application, factor: int, divisor: int, unit: str) -> None:
    """By a first start; and by a worker that is started all the same, which closes no window by them."""
    now = start_of(only_view(app)) + 600_000
    wrong = Watermark(now * factor // divisor)
    await app.publish([*visits(app, now), wrong])
    with pytest.raises(ConfigError, match=f"would believe no watermark .*look like {unit}"):
        await check_first_starts(app.plan, app.client, now)
    worker = await app.start(clock_ms=lambda: now, unchecked_data=True)

    async def refused() -> bool:
        return worker.counters.total("events_refused") == app.plan.partitions

    await app.eventually(refused)
    letters = await app.read(only_view(app).source.dead_letter_topic)
    reasons = [json.loads(value or b"")["reason"] for _, value in letters]
    assert reasons == ["bad_watermark"] * app.plan.partitions
    assert worker.counters.total("watermarks_read") == 0
    assert worker.counters.total("windows_closed") == 0
    await app.publish([Watermark(now)])
    assert await app.wait_for_releases(only_view(app).name, 9)


async def test_missing_timestamp_is_no_fault_if_events_have_times(app: Application) -> None:
    assert app.log is not None
    for record in SourceWriter(app.plan).records(visits(app, wall_clock_ms())):
        app.log.take(record, -1)
    await begin(app)


@pytest.mark.parametrize("app", [((", time: {field: at}", ""),)], indirect=True)
async def test_records_without_any_time_are_refused(app: Application) -> None:
    topic = only_view(app).source.topic
    values = [json.dumps({"user": f"u{number}", "page": "/"}).encode() for number in range(60)]
    assert app.log is not None
    for number, value in enumerate(values):
        app.log.take(Message(topic, b"u%d" % number, value, 0), -1)
    with pytest.raises(ConfigError, match=r"no_timestamp \(nearly all of the newest records\): .* timestamp \(-1\)"):
        await begin(app)


async def test_a_sample_counts_as_a_worker_does_that_finds_the_same_records(app: Application) -> None:
    now = start_of(only_view(app)) + 600_000
    records = [record for make, _, _ in FAULTS.values() for record in make(app, now)[:20]]
    events = [Event(f"u{n % 9}", f"/{n % 5}", now - 60_000 * (n % 3)) for n in range(80)]
    await app.publish([*events, *records, Watermark(now), *events[:7]])
    (sample,) = await survey(app.plan, app.client, now)
    worker = await app.start(clock_ms=lambda: now, unchecked_data=True)
    (view,) = sample.views

    async def consumed() -> bool:
        return worker.counters.total("events_consumed") == sample.records

    await app.eventually(consumed)
    assert view.counted == worker.counters.total("events_counted")
    found = {dict(labels)["reason"]: n for labels, n in worker.counters.by_labels("events_refused").items()}
    assert {**sample.refused, **view.refused} == found
    assert {"clipped", "duplicate", "late", "wrong_partition"} <= view.refused.keys()
    assert view.counted > 0


async def test_a_sample_is_bounded_in_records_bytes_and_time(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    source = only_view(app).source
    await app.publish(visits(app, wall_clock_ms()))
    assert len(await sampling.read_sample(app.client, source, 30)) == 30
    monkeypatch.setattr(sampling, "SAMPLE_BYTES", 1000)
    cut = await sampling.read_sample(app.client, source)
    assert 0 < len(cut) < 20
    assert cut.stopped_by == "size"
    monkeypatch.undo()

    async def silent(*_: Any, **__: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(app.client, "follow", silent)
    async with asyncio.timeout(WITHIN_SECONDS):
        nothing = await sampling.read_sample(app.client, source, within_s=0.1)
    assert (len(nothing), nothing.stopped_by) == (0, "time")


async def test_a_topic_that_cannot_be_read_in_time_keeps_nobody_from_beginning(
    app: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await app.publish(expected(app, "avro")[0])

    async def nothing(*_: object, **__: object) -> sampling.Sample:
        return sampling.Sample({}, "time")

    monkeypatch.setattr(survey_module, "read_sample", nothing)
    await begin(app)
    assert "could not be read in time; its views begin unchecked" in caplog.text
