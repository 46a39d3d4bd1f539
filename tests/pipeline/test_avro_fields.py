"""Sources in Avro whose fields stand in other fields, whose events have several items, or that are re-keyed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from stream_dp.config.access import MEMORY
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.sources import schema_registry as client
from stream_dp.runtime.sources.survey import survey
from stream_dp.testing import Application, Event, Raw, SourceWriter, Watermark
from tests.support.avro import bare, header, written
from tests.support.registry import FakeRegistry, fake_registry, named
from tests.support.views import assert_released_first, only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
FIELDS = "{field: '$.when.at'}"
LISTS = (
    ("user: user, time: {field: at}", f"user: $.who.id, time: {FIELDS}, format: avro"),
    ("    item: page\n", "    items: $.page.tags\n"),
)
REKEYED = (
    ("user: user, time: {field: at}", f"key: $.who.id, time: {FIELDS}, format: avro"),
    ("    item: page\n", "    items: $.page.tags\n"),
    ("items_per_user: 2", "items_per_user: 5"),
)


def visit(time: Any, tags: Any) -> Any:
    """A schema of visits."""

    def record(name: str, *fields: tuple[str, Any]) -> Any:
        return {"type": "record", "name": name, "fields": [{"name": name, "type": kind} for name, kind in fields]}

    return record(
        "Visit",
        ("page", record("Page", ("links", {"type": "array", "items": "long"}), ("tags", tags))),
        ("when", ["null", record("When", ("at", time))]),
        ("who", ["null", record("Who", ("id", ["null", "string"]))]),
    )


FIRST = visit("long", {"type": "array", "items": "string"})
LATER = visit({"type": "long", "logicalType": "timestamp-micros"}, ["null", {"type": "array", "items": "string"}])


@pytest.fixture
def broker() -> str:
    """The embedded log: what a value says does not depend on the log."""
    return MEMORY


@pytest.fixture
async def fake() -> AsyncIterator[FakeRegistry]:
    async with fake_registry() as registry:
        registry.add(1, FIRST)
        registry.add(2, LATER)
        yield registry


def in_avro(app: Application, event: Event, number: int) -> bytes:
    """An event as a producer writes it, in one of the schemas."""
    said: Any = SourceWriter(app.plan).value(event)
    said["page"]["links"] = [1, 2]
    if number == 2:
        said["when"]["at"] *= 1000
    return written(bare([FIRST, LATER][number - 1]), said, number)


def events_of(start: int, windows: int) -> list[Event]:
    return [
        Event(f"u{n % 60}", "", start + n * MINUTE // 150, tuple(f"/{(n * n + m) % 5}" for m in range(n % 3)))
        for n in range(150 * windows)
    ]


async def reasons(app: Application) -> dict[str, int]:
    return dict(Counter(json.loads(letter)["reason"] for letter in await app.dead_letters()))


async def test_lists_inside_other_fields_of_avro_are_released_as_the_oracle_counts_them(
    launch: Launch, fake: FakeRegistry
) -> None:
    app = await launch(*LISTS, named(fake.url))
    start, place = start_of(only_view(app)), SourceWriter(app.plan).place
    events = events_of(start, 2)
    await app.start(unchecked_data=True)
    await app.publish(
        Raw(place(event.user), event.user.encode(), in_avro(app, event, 1 + (n > 130)))
        for n, event in enumerate(events)
    )
    bad = {"page": {"links": [], "tags": None}, "when": {"at": start * 1000}, "who": {"id": "u1"}}
    values = [written(bare(LATER), said, 2) for said in (bad, bad | {"when": None}, bad | {"who": {"id": None}})]
    await app.publish(Raw(place("u1"), b"u1", value) for value in values)
    await app.publish([Watermark(start + 2 * MINUTE + 10_000)])

    await assert_released_first(app, events, 2)
    assert await reasons(app) == {"wrong_type": 3}


async def test_a_re_keyed_source_in_avro_is_counted_as_if_every_user_had_one_partition_also_by_the_next_worker(
    launch: Launch, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry is away before the second worker knows a schema of what was passed on, or of what was not."""
    monkeypatch.setattr(client, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(client, "SURE_SECONDS", 0)
    app = await launch(*REKEYED, named(fake.url))
    start = start_of(only_view(app))
    events = events_of(start, 2)
    raw = [Raw(n % 3, None, in_avro(app, event, 1 + (n > 130))) for n, event in enumerate(events)]
    late = {"page": {"links": [], "tags": ["/0"]}, "when": None, "who": {"id": "u1"}}
    said = [late | {"who": None}, late | {"who": {"id": ""}}, late]
    values = [header(9), b"{}", header(1) + b"\xff", None, *(written(FIRST, one) for one in said)]
    due = {
        "unknown_schema": 1,
        "malformed_avro": 2,
        "null_value": 1,
        "wrong_type": 2,
        "bad_key": 1,
    }
    await app.start(unchecked_data=True)
    await app.publish([*raw[:100], *(Raw(n % 3, b"not looked at", value) for n, value in enumerate(values))])

    async def refused() -> bool:
        return await reasons(app) == due

    await app.eventually(refused)
    await app.stop()

    fake.broken = 503, b""
    await app.publish([*raw[100:], Watermark(start + 2 * MINUTE + 10_000)])
    again = await app.start(unchecked_data=True)
    await asyncio.sleep(0.3)
    assert again.counters.total("events_counted") == 0
    fake.broken = None
    await assert_released_first(app, events, 2)
    assert await reasons(app) == due
    letters = [json.loads(letter) for letter in await app.dead_letters()]
    source = {
        (record.partition, record.offset)
        async for record in app.client.follow([only_view(app).source.topic], until_end=True)
        if record.key == b"not looked at"
    }
    assert {(letter["partition"], letter["offset"]) for letter in letters} == source


async def test_a_sample_of_a_re_keyed_source_in_avro_names_what_is_not_there(
    launch: Launch, fake: FakeRegistry
) -> None:
    now = wall_clock_ms()
    app = await launch(*(replace_all(REKEYED, "$.who.id", "$.who.name")), named(fake.url))
    said = {"page": {"links": [], "tags": ["/0"]}, "when": {"at": now}}
    values = [written(FIRST, said | {"who": {"id": f"u{n}"}}) for n in range(60)]
    await app.publish(Raw(n % 3, f"k{n}".encode(), value) for n, value in enumerate(values))
    (sample,) = await survey(app.plan, app.client, now)
    assert sample.refused == {"missing_field": 60}
    words = "missing_field (60 of 60 records): field '$.who.name' (sources.visits.key) is missing"
    words += "; the events have '$.who.id'"
    assert sample.words()[0].startswith(f"sources.visits: {words}")


def replace_all(changes: Sequence[tuple[str, str]], old: str, new: str) -> list[tuple[str, str]]:
    return [(one, other.replace(old, new)) for one, other in changes]
