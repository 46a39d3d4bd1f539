"""Windows under `clock: wall` leave when the wall clock says so, whatever the events say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiokafka import AIOKafkaProducer

from stream_dp.runtime.clock import Tick
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Application, Event, ManualClock, Raw, SourceWriter, Watermark
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import encode as encode_row
from tests.support.oracle import count_script
from tests.support.ticks import told
from tests.support.views import only_view, oracle_bytes, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
WALL = ("clock: event", "clock: wall, catch_up: 0s")


async def test_windows_close_as_the_clock_passes_their_grace_and_equal_the_oracle(launch: Launch) -> None:
    app = await launch(WALL)
    view = only_view(app)
    start = start_of(view)
    clock = ManualClock(start)
    worker = await app.start(clock_ms=clock)
    first = [Event(f"u{number}", f"/{number % 3}", start + number) for number in range(400)]
    second = [Event(f"u{number}", f"/{number % 4}", start + MINUTE + number) for number in range(400)]
    await app.publish([*first, *second, Watermark(start + 30 * MINUTE)])  # a watermark moves no wall clock

    async def consumed() -> bool:
        return worker.counters.total("events_consumed") == 803

    await app.eventually(consumed)
    clock.now_ms = start + MINUTE + 9_999
    await asyncio.sleep(0.5)
    assert worker.counters.total("windows_closed") == 0
    clock.now_ms = start + MINUTE + 10_000
    await app.wait_for_releases(view.name, 1)
    await app.publish([Event("u9", "/late", start + 5)])
    clock.now_ms = start + 4 * MINUTE + 10_000

    found = await app.wait_for_releases(view.name, 4)

    assert [len(records) for records in found.values()] == [4] * 3
    windows = count_script(view, start, [*first, *second]).between(view, start, start + 4 * MINUTE)
    assert await app.published(view.name) == oracle_bytes(app, view, windows)
    assert worker.counters.total("events_refused", reason="late") == 1


async def test_events_that_an_outage_held_back_are_in_time(launch: Launch) -> None:
    """There is no tick for two minutes; the producer delivers after the first one."""
    app = await launch(("clock: event", "clock: wall"))
    view = only_view(app)
    start = start_of(view)
    clock = ManualClock(start)
    worker = await app.start(clock_ms=clock)

    async def pass_to(now_ms: int) -> None:
        async def ticked() -> bool:
            return worker.timers.ticked_ms == now_ms

        clock.now_ms = now_ms
        await app.eventually(ticked)

    await pass_to(start + 1)
    await pass_to(start + 2 * MINUTE)
    script = [Event(f"u{number}", f"/{number % 3}", start + 200 * number) for number in range(400)]
    await app.publish(script)
    for seconds in range(5, 35, 5):
        assert worker.counters.total("windows_closed") == 0
        await pass_to(start + 2 * MINUTE + seconds * 1000)

    await app.wait_for_releases(view.name, 2)
    windows = count_script(view, start, script).between(view, start, start + 2 * MINUTE)
    assert await app.published(view.name) == oracle_bytes(app, view, windows)
    assert worker.counters.total("events_refused") == 0


async def test_a_clock_that_is_set_back_opens_no_closed_window_again(launch: Launch) -> None:
    app = await launch(WALL)
    view = only_view(app)
    start = start_of(view)
    clock = ManualClock(start + 3 * MINUTE + 10_000)
    worker = await app.start(clock_ms=clock)
    await app.wait_for_releases(view.name, 3)

    clock.now_ms = start
    await app.publish([Event("u1", "/late", start + MINUTE), Event("u2", "/", start + 3 * MINUTE)])

    async def refused() -> bool:
        return worker.counters.total("events_refused", reason="late") == 1

    await app.eventually(refused)
    clock.now_ms = start + 4 * MINUTE + 10_000
    found = await app.wait_for_releases(view.name, 4)
    assert [len(records) for records in found.values()] == [4] * 3


async def test_a_backlog_is_counted_before_its_windows_close(launch: Launch) -> None:
    """A worker that was away for an hour counts what arrived in time, though its clock is past every window."""
    app = await launch(WALL)
    view = only_view(app)
    start = start_of(view)
    script = [Event(f"u{number}", "/", start + number * MINUTE // 40) for number in range(400)]
    await app.publish(script)
    await app.start(clock_ms=ManualClock(start + 60 * MINUTE))

    await app.wait_for_releases(view.name, 59)

    windows = count_script(view, start, script).between(view, start, start + 59 * MINUTE)
    assert sum(windows[start].values()) == 40
    assert await app.published(view.name) == oracle_bytes(app, view, windows)


async def test_a_tick_closes_windows_where_the_source_ended_when_it_was_made_not_when_it_is_read(
    launch: Launch,
) -> None:
    """Both ticks and both events wait in their topics before a worker reads any of them."""
    app = await launch(WALL)
    view = only_view(app)
    start, place = start_of(view), SourceWriter(app.plan).place("u1")
    ticks, source = Topics.of(app.plan).ticks, view.source.topic
    clock = ManualClock(start)
    await app.start(clock_ms=clock)  # its ticks at the start of the window close nothing
    await app.eventually(lambda: told(app, start))
    await app.stop()

    await app.publish([Event("u1", "/in-time", start + 1)])
    for now_ms, end in ((start + MINUTE + 10_000, 1), (start + 2 * MINUTE + 10_000, 2)):
        ends = [int(partition == place) * end for partition in range(app.plan.partitions)]
        made = [encode_row(Tick(now_ms, {source: at})) for at in ends]
        await app.client.publish(Message(ticks, None, value, partition) for partition, value in enumerate(made))
        await app.publish([Event("u1", "/late", start + 2)])
    clock.now_ms = start + 2 * MINUTE + 10_000
    worker = await app.start(clock_ms=clock)
    found = await app.wait_for_releases(view.name, 2)

    assert [len(records) for records in found.values()] == [2] * 3

    async def both_late() -> bool:  # the second one is counted when the worker's own first tick is behind it
        return worker.counters.total("events_refused", reason="late") == 2

    await app.eventually(both_late)
    windows = count_script(view, start, [Event("u1", "/in-time", start + 1)]).between(view, start, start + 2 * MINUTE)
    assert await app.published(view.name) == oracle_bytes(app, view, windows)


@pytest.mark.parametrize("broker", [pytest.param("kafka", marks=pytest.mark.broker)], indirect=True)
async def test_the_markers_of_transactions_at_the_end_of_a_source_hold_no_tick_up(launch: Launch) -> None:
    """They have offsets and are no records, so nothing that is read says that they have been passed."""
    app = await launch(WALL)
    view = only_view(app)
    start = start_of(view)
    events = [Event(f"u{number}", "/", start + number) for number in range(40)]
    producer = AIOKafkaProducer(bootstrap_servers=app.plan.broker.address, transactional_id=app.plan.name)
    await producer.start()
    async with producer.transaction():
        for record in SourceWriter(app.plan).records(events):
            await producer.send(record.topic, record.value, record.key, record.partition)
    await producer.stop()
    await app.start(clock_ms=ManualClock(start + 2 * MINUTE + 10_000))

    await app.wait_for_releases(view.name, 2)

    windows = count_script(view, start, events).between(view, start, start + 2 * MINUTE)
    assert await app.published(view.name) == oracle_bytes(app, view, windows)


async def test_an_event_clock_without_watermarks_goes_on_with_the_wall_clock_after_its_idle_time(
    launch: Launch,
) -> None:
    app = await launch(("idle: 1d", "idle: 1m, catch_up: 0s"))
    view = only_view(app)
    start = start_of(view)
    clock = ManualClock(start + 24 * 60 * MINUTE)
    worker = await app.start(clock_ms=clock)
    mark = {"stream-dp-watermark": str(start + 5 * MINUTE).encode()}
    await app.publish([Event("u1", "/", start), Raw(0, None, b"", mark)])

    async def closed(windows: int) -> bool:
        return worker.counters.total("windows_closed") == windows

    await app.eventually(lambda: closed(4))
    await asyncio.sleep(0.5)
    clock.now_ms += MINUTE - 1
    await asyncio.sleep(0.5)
    assert await closed(4)
    for _ in range(5):  # ticks further apart than a minute would be an outage
        clock.now_ms += 50_010
        await app.eventually(lambda: told(app, clock.now_ms))

    found = await app.wait_for_releases(view.name, 4)

    assert [record.window.start_ms for record in found["public"]][:4] == [start + at * MINUTE for at in range(4)]
