"""What is no event, or comes at no good time: each is counted and named in the dead letters, none stops the worker."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest

from stream_dp.config.access import MEMORY
from stream_dp.runtime.embedded import MemoryWriter
from stream_dp.runtime.faust import letters
from stream_dp.testing import Application, Event, ManualClock, Raw, SourceWriter, Watermark
from stream_dp.windows.effects import Message
from tests.support.oracle import count_script
from tests.support.views import only_view, oracle_bytes, start_of

Launch = Callable[..., Awaitable[Application]]

SLOW_ON_KAFKA = True
MINUTE = 60_000
PLANTED = "planted-91c44e07"


async def test_every_kind_of_bad_record_is_counted_once_and_the_rest_is_released(
    launch: Launch, caplog: pytest.LogCaptureFixture
) -> None:
    app = await launch()
    (view,) = app.plan.views.values()
    start = view.window.first_ms
    assert start is not None
    writer = SourceWriter(app.plan)
    home = writer.place(PLANTED)
    elsewhere = (home + 1) % view.source.partitions
    good = {"user": PLANTED, "page": f"/{PLANTED}", "at": start}

    def said(**changes: object) -> bytes:
        return json.dumps({**good, **changes}).encode()

    key = PLANTED.encode()
    bad = {
        "malformed_json": [b"{", b"\xff\xfe" + key, b'{"deep": ' + b"[" * 100_000, said()[:-1]],
        "wrong_type": [said(page=[PLANTED]), said(page=None), said(at=PLANTED), said(at=1e300), b"[]", b"null", b"7"],
        "missing_field": [said(**{"page": None}).replace(b'"page"', b'"pages"'), b"{}"],
        "key_mismatch": [said(user=PLANTED + "x")],
        "item_too_long": [said(page=PLANTED * 100)],
        "late": [said(at=start + MINUTE)],
        "before_start": [said(at=start - 1), said(at=-(10**15))],
        "future": [said(at=start + 10**11), said(at=(1 << 63) - 1), said(at=10**400)],
    }
    records = [Raw(home, key, value) for values in bad.values() for value in values]
    records += [
        Raw(home, None, said()),
        Raw(home, key, None),
        Raw(home, b"", said()),
        Raw(home, key * 200, said()),
        Raw(home, None, b"", {"stream-dp-watermark": key}),
        Raw(elsewhere, key, said(at=start + 3 * MINUTE)),
    ]
    alone = {
        "null_key": 1,
        "null_value": 1,
        "bad_key": 2,
        "bad_watermark": 1,
        "wrong_partition": 1,
    }
    events = [Event(f"u{number}", "/", start + 3 * MINUTE) for number in range(90)]
    script: list[Event | Watermark | Raw] = [
        Watermark(start + 2 * MINUTE + 10_000),
        *events[:40],
        *records,
        *events,
        Watermark(start + 5 * MINUTE),
    ]
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "stream_dp")
    caplog.set_level(logging.DEBUG, "faust")
    worker = await app.start(clock_ms=ManualClock(start + 24 * 60 * MINUTE))
    await app.publish(script)

    await app.wait_for_releases(view.name, 4)

    due = {reason: len(values) for reason, values in bad.items()} | alone
    duplicates = 40
    found = {reason: worker.counters.total("events_refused", reason=reason) for reason in due}
    assert found == due
    assert worker.counters.total("events_refused") == sum(due.values()) + duplicates
    assert worker.counters.total("events_consumed") == len(records) + len(events) + 40 + 2 * view.source.partitions
    windows = count_script(view, start, script).between(view, start, start + 4 * MINUTE)
    assert windows[start + 3 * MINUTE] == {"/": 90}
    published = await app.published(view.name)
    assert published == oracle_bytes(app, view, windows)

    noted = [json.loads(letter) for letter in await app.dead_letters()]
    assert Counter(letter["reason"] for letter in noted) == due
    for letter in noted:
        assert set(letter) == {"topic", "partition", "offset", "reason", "views"}
        assert (letter["topic"], letter["views"]) == (view.source.topic, [view.name])
    places = [(letter["partition"], letter["offset"]) for letter in noted]
    assert len(set(places)) == len(places)
    public = [*await app.dead_letters(), *(row for rows in published.values() for row in rows)]
    assert not [row for row in public if PLANTED.encode() in row]
    assert PLANTED not in json.dumps(worker.counters.lines())
    assert PLANTED not in caplog.text


async def test_a_record_that_is_refused_leaves_its_offset_behind_and_is_not_read_again(launch: Launch) -> None:
    app = await launch()
    (view,) = app.plan.views.values()
    start = view.window.first_ms
    assert start is not None
    await app.start()
    await app.publish([Raw(0, b"k", b"{"), Raw(0, b"k", b"{")])

    async def counted() -> bool:
        return app.worker is not None and app.worker.counters.total("events_refused") == 2

    await app.eventually(counted)
    await app.stop()
    worker = await app.start()
    await app.publish([Watermark(start + 3 * MINUTE)])
    await app.wait_for_releases(view.name, 2)

    assert worker.counters.total("events_refused") == 0
    assert len(await app.dead_letters()) == 2


@pytest.mark.parametrize("broker", [MEMORY])
async def test_counting_continues_without_a_leader_for_dead_letters(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of one user are refused repeatedly, and the events of all others are released."""
    app = await launch()
    view = only_view(app)
    start = start_of(view)
    publish = MemoryWriter.publish

    async def without_leader(self: MemoryWriter, messages: Sequence[Message], timestamp_ms: int | None = None) -> None:
        if any(message.topic == view.source.dead_letter_topic for message in messages):
            await asyncio.Event().wait()
        await publish(self, messages, timestamp_ms)

    monkeypatch.setattr(MemoryWriter, "publish", without_leader)
    monkeypatch.setattr(letters, "LETTERS_SECONDS", 0.05)
    worker = await app.start()
    bad = Raw(0, b"X", b"{")
    events = [Event(f"u{number}", "/", start) for number in range(90)]

    async def refused(number: int) -> bool:
        return worker.counters.total("events_refused") == number

    for number in (1, 2):
        await app.publish([bad])
        await app.eventually(partial(refused, number))
    await app.publish([*events, Watermark(start + 2 * MINUTE)])
    await app.wait_for_releases(view.name, 1)
    assert worker.counters.total("events_counted") == len(events)
    assert worker.counters.total("dead_letters_dropped") == 1
    await app.stop()
