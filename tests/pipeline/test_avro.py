"""A source in Avro with a schema registry: releases equal the oracle; nothing is lost while the registry is away."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from stream_dp.config.access import MEMORY
from stream_dp.errors import ConfigError, OutageError
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.sources import schema_registry as client
from stream_dp.runtime.sources.survey import check_first_starts, survey
from stream_dp.testing import Application, Event, Raw, SourceWriter, Watermark
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.avro import VISIT, bare, header, written
from tests.support.oracle import count_script
from tests.support.registry import (
    FakeRegistry,
    RealRegistry,
    fake_registry,
    named,
    real_registry,
    real_registry_problem,
)
from tests.support.views import only_view, oracle_bytes, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
KIND = {"type": "enum", "name": "site.Kind", "symbols": ["view", "buy"]}
LATER: dict[str, Any] = {
    "type": "record",
    "name": "Visit",
    "namespace": "site",
    "fields": [
        {"name": "kind", "type": "site.Kind"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "page", "type": ["null", "string", "int"]},
        {"name": "user", "type": "string"},
    ],
}
"""What producers of visits go over to."""


@pytest.fixture(params=["memory", pytest.param("kafka", marks=[pytest.mark.broker, pytest.mark.slow])])
def broker(request: pytest.FixtureRequest) -> str:
    """The embedded log, and Kafka among the slow tests: what a registry says does not depend on the log."""
    address: str = MEMORY if request.param == "memory" else request.getfixturevalue("kafka")
    return address


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    if (problem := real_registry_problem()) is not None:
        pytest.skip(f"no registry: {problem}")
    with real_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture
async def fake() -> AsyncIterator[FakeRegistry]:
    async with fake_registry() as registry:
        registry.add(1, VISIT)
        yield registry


def changes(url: str) -> tuple[tuple[str, str], ...]:
    """What puts the visits into Avro."""
    return ("partitions: 3", "partitions: 3, format: avro"), named(url)


def crowd(start_ms: int, minutes: int) -> list[Event]:
    chance = random.Random(3)
    times = sorted(start_ms + chance.randrange(MINUTE * minutes) for _ in range(600 * minutes))
    return [Event(f"u{chance.randrange(200)}", f"/page/{chance.randrange(6)}", at) for at in times]


def raw(app: Application, user: str, value: bytes | None) -> Raw:
    return Raw(SourceWriter(app.plan).place(user), user.encode(), value)


def visit(app: Application, event: Event, number: int = 1) -> Raw:
    said = {"user": event.user, "page": event.item, "at": event.time_ms}
    return raw(app, event.user, written(bare(VISIT), said, number))


def later(app: Application, event: Event, number: int) -> Raw:
    said = {"user": event.user, "page": event.item, "at": event.time_ms * 1000 + 999, "kind": "buy", "tags": ["a", "b"]}
    return raw(app, event.user, written(bare(LATER), said, number, [KIND]))


async def reasons(app: Application) -> Counter[str]:
    return Counter(json.loads(letter)["reason"] for letter in await app.dead_letters())


async def equal_the_oracle(app: Application, script: list[Event | Watermark], windows: int) -> None:
    view = only_view(app)
    start = start_of(view)
    await app.wait_for_releases(view.name, windows)
    counts = count_script(view, start, script).between(view, start, start + windows * MINUTE)
    assert await app.published(view.name) == oracle_bytes(app, view, counts)


@pytest.mark.slow
@pytest.mark.broker
async def test_releases_of_avro_with_a_real_registry_equal_the_oracle(launch: Launch, real: RealRegistry) -> None:
    app = await launch(*changes(real.url))
    start = start_of(only_view(app))
    name = app.plan.name
    first = real.register(f"{name}-value", VISIT)
    real.register(f"{name}-kind", KIND)
    second = real.register(f"{name}-value", LATER, [("site.Kind", f"{name}-kind", 1)])
    foreign = real.register(f"{name}-other", {"type": "enum", "name": "Other", "symbols": ["a"]})
    assert len({first, second, foreign}) == 3
    events = crowd(start, 3)
    half = len(events) // 2
    bad = {
        "unknown_schema": [header(2**31)] * 2,
        "unusable_schema": [header(foreign) + b"\0"],
        "malformed_avro": [b"{}", header(first)[:4], header(first) + b"\xff", header(second)],
        "wrong_type": [written(VISIT, {"user": "u1", "page": None, "at": start}, first)],
    }
    await app.start(unchecked_data=True)
    await app.publish([visit(app, event, first) for event in events[:half]])
    await app.publish([raw(app, "u1", value) for values in bad.values() for value in values])
    await app.publish([*(later(app, event, second) for event in events[half:]), Watermark(start + 5 * MINUTE)])

    await equal_the_oracle(app, [*events, Watermark(start + 5 * MINUTE)], 4)
    due = {reason: len(values) for reason, values in bad.items()}
    assert {reason: count for reason, count in (await reasons(app)).items() if reason in due} == due


async def test_while_the_registry_is_away_nothing_is_lost_or_refused_and_the_log_says_so_once(
    launch: Launch, fake: FakeRegistry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RETRY_SECONDS", 0.01)
    app = await launch(*changes(fake.url))
    start = start_of(only_view(app))
    events = crowd(start, 2)
    worker = await app.start()
    await app.publish([visit(app, event) for event in events[:500]])

    async def counted() -> bool:
        return worker.counters.total("events_consumed") == 500

    await app.eventually(counted)
    fake.add(2, LATER, references=[{"name": "site.Kind", "subject": "a/kind", "version": 3}])
    fake.answers["/subjects/a%2Fkind/versions/3"] = 200, {"schema": json.dumps(KIND)}
    for fake.broken in [
        (503, {}),
        (404, b"<html>nothing here"),
        (200, b"not JSON"),
        (404, {"error_code": 404}),
        (302, b""),
    ]:
        asked = len(fake.asked)
        if asked == 1:
            await app.publish([*(later(app, event, 2) for event in events[500:]), Watermark(start + 4 * MINUTE)])

        async def again(asked: int = asked) -> bool:
            return len(fake.asked) > asked + 1

        await app.eventually(again)
        assert worker.words() == f"the schema registry at {fake.url}"
    assert worker.counters.total("events_consumed") == 500
    fake.broken = None

    await equal_the_oracle(app, [*events, Watermark(start + 4 * MINUTE)], 3)
    assert worker.words() == ""
    assert not await reasons(app)
    said = [record.getMessage() for record in caplog.records if "schema registry" in record.getMessage()]
    assert [line.split(fake.url)[1].partition(":")[0] for line in said] == [
        " is unavailable; affected records are deferred",
        " answers again; the worker goes on",
    ]
    assert fake.asked.count("/schemas/ids/1") == 1


async def test_a_worker_that_waits_for_the_registry_can_be_stopped_and_the_next_one_counts(
    launch: Launch, fake: FakeRegistry
) -> None:
    app = await launch(*changes(fake.url))
    start = start_of(only_view(app))
    events = crowd(start, 1)
    stopped = await app.start()
    fake.hangs = True
    await app.publish([*map(visit, [app] * len(events), events), Watermark(start + 3 * MINUTE)])

    async def asked() -> bool:
        return bool(fake.asked)

    await app.eventually(asked)
    await asyncio.wait_for(app.stop(), WITHIN_SECONDS)
    assert stopped.crash_reason() is None
    fake.hangs = False
    await app.start()
    await equal_the_oracle(app, [*events, Watermark(start + 3 * MINUTE)], 2)


@pytest.mark.slow
async def test_a_chunk_that_is_read_again_is_counted_and_refused_as_before(launch: Launch, fake: FakeRegistry) -> None:
    """What is refused stands in the log: a worker without its predecessor's memory comes to the same."""
    app = await launch(*changes(fake.url))
    start = start_of(only_view(app))
    events = crowd(start, 1)
    script = [
        *map(visit, [app] * len(events), events),
        raw(app, "u1", header(9)),
        raw(app, "u1", b"?"),
        raw(app, "u1", header(1)),
    ]
    first = await app.start(unchecked_data=True)
    await app.publish(script)
    due = {"unknown_schema": 1, "malformed_avro": 2}

    async def refused() -> bool:
        return dict(await reasons(app)) == due

    await app.eventually(refused)
    assert first.counters.total("events_refused", reason="unknown_schema") == 1
    await app.stop()
    again = await app.start(unchecked_data=True)
    await app.publish([Watermark(start + 3 * MINUTE)])
    await equal_the_oracle(app, [*events, Watermark(start + 3 * MINUTE)], 2)
    assert not any(again.counters.total("events_refused", reason=reason) for reason in due)
    assert dict(await reasons(app)) == due


async def test_a_sample_is_judged_by_the_same_decoder_and_says_what_to_mend(launch: Launch, fake: FakeRegistry) -> None:
    app = await launch(*changes(fake.url), ("page", "pages"), ("clock: event", "clock: wall"))
    now = wall_clock_ms()
    users = [f"u{number}" for number in range(60)]
    values = {user: written(bare(VISIT), {"user": user, "page": "/x", "at": now}) for user in users}
    await app.publish([raw(app, user, value) for user, value in values.items()])
    (sample,) = await survey(app.plan, app.client, now)
    (view,) = app.plan.views
    assert sample.refused == {"missing_field": 60}
    said = f"sources.visits: missing_field (60 of 60 records): field 'pages' (views.{view}.item) is missing"
    assert sample.words()[0] == f"{said}; the events have 'at', 'page', 'user'; did you mean 'page'?"
    with pytest.raises(ConfigError, match="would refuse most records of more than half of the users"):
        await check_first_starts(app.plan, app.client, now)


@pytest.mark.parametrize(
    ("value", "reason", "words"),
    [
        (b'{"user": "u"}', "malformed_avro", "they look like JSON: write format: json"),
        (b"plain", "malformed_avro", "they have no number of a schema in front"),
        (header(1) + b"\xff", "malformed_avro", "but are not Avro, or are cut off"),
        (header(9), "unknown_schema", "check that the producers use the same one"),
        (header(2), "unusable_schema", "must be an Avro record"),
        (written(VISIT, {"user": "u", "page": None, "at": 0}), "wrong_type", "field 'page' (views.NAME.item) is null"),
    ],
)
async def test_a_sample_knows_what_is_no_avro_by_its_looks(
    launch: Launch, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch, value: bytes, reason: str, words: str
) -> None:
    monkeypatch.setattr(client, "SURE_SECONDS", 0)
    fake.add(2, {"type": "string"})
    app = await launch(*changes(fake.url), ("clock: event", "clock: wall"))
    await app.publish([raw(app, f"u{number}", value) for number in range(30)])
    (sample,) = await survey(app.plan, app.client, wall_clock_ms())
    assert sample.refused == {reason: 30}
    (view,) = app.plan.views
    assert words.replace("NAME", view) in sample.words()[0]


async def test_a_look_at_the_data_does_not_wait_for_a_registry_that_is_away(launch: Launch, fake: FakeRegistry) -> None:
    app = await launch(*changes(fake.url))
    await app.publish([visit(app, Event("u1", "/", start_of(only_view(app))))])
    fake.broken = 503, b""
    with pytest.raises(OutageError, match=r"the schema registry at http.* answers 503"):
        await survey(app.plan, app.client, wall_clock_ms())
