"""A source that is not keyed by user: re-keyed on the way, counted as if every user had stood in one partition."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from faust.types import TP

from stream_dp.errors import StateError
from stream_dp.runtime.embedded import MemoryWriter
from stream_dp.runtime.faust.host import Host
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import (
    Application,
    Event,
    ManualClock,
    Raw,
    Watermark,
    application,
)
from stream_dp.windows.effects import Message
from tests.support.ticks import told
from tests.support.totals import stored_totals_of
from tests.support.views import assert_released_first, only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
REKEYED = ("user: user, time", "key: user, time")
WALL = ("clock: event", "clock: wall, catch_up: 0s")
ENOUGH = ("items_per_user: 2", "items_per_user: 5")
"""As many pages as there are: then it is no matter in which order the events of a user come."""


def visits_of(start: int, windows: int, each: int = 150) -> list[Event]:
    """Events of 60 users, each in all partitions."""
    return [Event(f"u{n % 60}", f"/{(n * n + n // 7) % 5}", start + n * MINUTE // each) for n in range(windows * each)]


async def test_users_all_over_the_source_are_counted_as_if_each_had_one_partition(launch: Launch) -> None:
    app = await launch(REKEYED, ENOUGH)
    view = only_view(app)
    start = start_of(view)
    events = visits_of(start, 3)
    said = [
        {"page": "/0", "at": start},
        {"user": None, "page": "/0", "at": start},
        {"user": "", "page": "/0", "at": start},
        {"user": "u1", "at": start},
        {"user": "u1", "page": "/0", "at": start, "more": "x" * (520 << 10)},
    ]
    bad = [Raw(n % 3, None, json.dumps(value).encode()) for n, value in enumerate(said)]
    bad += [Raw(1, b"u1", b"{"), Raw(1, b"u1", None)]
    await app.publish([*events[:200], *bad, *events[200:], Watermark(start + 3 * MINUTE + 10_000)])
    await app.start()

    await assert_released_first(app, events, 3)

    letters = [json.loads(letter) for letter in await app.dead_letters()]
    reasons = dict(Counter(letter["reason"] for letter in letters))
    assert reasons == {
        "malformed_json": 1,
        "missing_field": 2,
        "wrong_type": 1,
        "bad_key": 1,
        "record_too_large": 1,
        "null_value": 1,
    }
    source = [record async for record in app.client.follow([view.source.topic], until_end=True)]
    values = {one.value for one in bad}
    stood = {(one.partition, one.offset) for one in source if one.value in values and not one.headers}
    assert {(letter["partition"], letter["offset"]) for letter in letters} == stood
    totals = await stored_totals_of(app)
    assert totals.total("events_consumed") == len(source)
    assert totals.total("watermarks_read") == 3
    assert {name: totals.total("events_refused", reason=name) for name in reasons} == reasons


async def test_an_event_that_stood_in_the_source_in_time_is_counted_however_late_it_is_re_keyed(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two partitions of the source are re-keyed at once, the third when the clock is an hour past every window."""
    app = await launch(REKEYED, ENOUGH, WALL)
    view = only_view(app)
    start = start_of(view)
    events = visits_of(start, 2)
    await app.publish(events)
    held, part = asyncio.Event(), Host.part

    async def slow(host: Host, topic: str, partition: int) -> object:
        if partition == 1 and topic in host.rekeyed:
            await held.wait()
        return await part(host, topic, partition)

    monkeypatch.setattr(Host, "part", slow)
    clock = ManualClock(start)
    worker = await app.start(clock_ms=clock)
    await asyncio.sleep(0.3)
    clock.now_ms = start + 62 * MINUTE
    await app.eventually(lambda: told(app, clock.now_ms))
    late = Event("u1", "/late", start + MINUTE)
    await app.publish([late, late, late])  # one in each partition, behind the tick
    await asyncio.sleep(0.3)
    assert worker.counters.total("windows_closed") == 0
    held.set()

    await assert_released_first(app, events, 2)

    async def refused() -> bool:
        return worker.counters.total("events_refused", reason="late") == 3

    await app.eventually(refused)


async def test_what_is_counted_of_the_events_is_deleted_and_nothing_else(launch: Launch) -> None:
    app = await launch(REKEYED, ENOUGH, ("erase_within: 20s", "erase_within: 10s"))
    view = only_view(app)
    start, topic = start_of(view), Topics.of(app.plan).rekeyed("visits")
    events = visits_of(start, 2)
    worker = await app.start()
    await app.publish([*events[:200], Watermark(start + MINUTE)])

    async def emptied() -> bool:
        left = [value or b"" for _, value in await app.read(topic)]
        return worker.counters.total("events_counted") == 200 and not any(b"page" in value for value in left)

    await app.eventually(emptied)
    ends = await app.client.ends([TP(topic, partition) for partition in range(3)])
    assert all(end > 3 for end in ends.values())
    await app.stop()
    await app.publish([*events[200:], Watermark(start + 2 * MINUTE + 10_000)])
    await app.start()  # from offsets of which some are deleted
    await assert_released_first(app, events, 2)


async def test_a_worker_that_crashes_behind_what_it_passed_on_passes_it_on_again_and_counts_it_once(
    tmp_path: Path, visits: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, crashes = MemoryWriter.publish, [5]
    async with application(visits(REKEYED, ENOUGH), tmp_path) as app:
        view, topic = only_view(app), Topics.of(app.plan).rekeyed("visits")
        start = start_of(view)
        events = visits_of(start, 2)
        sent = 0

        async def crashing(writer: MemoryWriter, messages: Sequence[Message], at_ms: int | None = None) -> None:
            nonlocal sent
            await publish(writer, messages, at_ms)
            sent += messages[0].topic == topic
            if crashes and sent >= crashes[0]:
                crashes.pop(0)
                raise StateError("the process ends here")

        monkeypatch.setattr(MemoryWriter, "publish", crashing)
        await app.publish([*events, Watermark(start + 2 * MINUTE + 10_000)])
        while crashes:
            worker = await app.start()
            await worker.crashed()
            await app.stop()
        await app.start()

        await assert_released_first(app, events, 2)
        totals = await stored_totals_of(app)
        assert totals.total("events_consumed") == len(events) + 3
        assert totals.total("events_counted") + totals.total("events_refused") == len(events)
