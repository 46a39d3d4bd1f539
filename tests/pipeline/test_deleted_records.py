"""Records of a source that were deleted before they were counted: windows that may lack them are refused as lost."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest
from faust.types import TP

from stream_dp.runtime import reporting
from stream_dp.runtime.health import Health
from stream_dp.runtime.starting import Start
from stream_dp.testing import Application, Event, ManualClock, Watermark
from tests.support.deleting import AHEAD, GRACE, assert_lost, ends_of, minutes
from tests.support.ticks import told
from tests.support.totals import stored_totals_of
from tests.support.views import only_view, start_of
from tests.support.visits import MINUTE, visits_of

Launch = Callable[..., Awaitable[Application]]
REKEYED = ("user: user, time", "key: user, time")
ENOUGH = ("items_per_user: 2", "items_per_user: 7")
"""As many pages as there are: then it is no matter in which order the events of a user come."""


async def counted(app: Application) -> bool:
    """Whether all that stands in the source was counted, or passed on."""
    ends = await ends_of(app, range(app.plan.partitions))
    return (await stored_totals_of(app)).total("events_consumed") == sum(ends.values())


@pytest.mark.parametrize("changes", [(), (REKEYED, ENOUGH)], ids=["keyed", "rekeyed"])
async def test_what_retention_deleted_while_no_worker_ran_is_refused_as_lost_and_the_rest_is_exact(
    launch: Launch, caplog: pytest.LogCaptureFixture, changes: tuple[tuple[str, str], ...]
) -> None:
    app = await launch(AHEAD, *changes)
    view = only_view(app)
    start = start_of(view)
    script = [*minutes(start, 0, 2), *visits_of(start, 2, 200)]
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await app.eventually(lambda: counted(app))
    await app.stop()

    place = TP(view.source.topic, 1)
    counted_to = (await ends_of(app, [1]))[place]
    down = [Watermark(start + 3 * MINUTE + GRACE), *minutes(start, 3, 5)]
    await app.publish(down)
    gone_to = (await ends_of(app, [1]))[place]
    await app.client.delete_before({place: gone_to})
    caplog.clear()
    with caplog.at_level(logging.WARNING, "stream_dp.worker"):
        await app.start()
        rest = minutes(start, 5, 10)
        await app.publish(rest)
        # The clock shows 2:10 in front of the gap, and 6:10 with the first watermark behind it.
        await assert_lost(app, view, [*script, *down, *rest], 10, range(2, 8))

    said = [one.getMessage() for one in caplog.records if "deleted before" in one.getMessage()]
    assert len(said) == 1
    assert f"source visits, partition 1: records {counted_to} to {gone_to - 1} were deleted" in said[0]
    assert view.name in said[0]
    totals = await stored_totals_of(app)
    assert totals.total("records_missing") == gone_to - counted_to
    assert totals.total("windows_lost") == 6
    health = Health(Start())
    health.worker = app.worker
    status = await reporting.current(app.plan, app.client, health, 0)
    (gap,) = status.partitions[1].missing["visits"]
    assert (gap.first, gap.last) == (counted_to, gone_to - 1)
    assert not status.partitions[0].missing


async def test_what_retention_deletes_in_front_of_a_worker_that_runs_is_refused_as_lost(launch: Launch) -> None:
    app = await launch(AHEAD)
    if app.log is None:
        pytest.skip("a worker cannot be outrun there on purpose: see tests/broker/test_deleted_records.py")
    view = only_view(app)
    start = start_of(view)
    script = [*minutes(start, 0, 2), *visits_of(start, 2, 200)]
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await app.eventually(lambda: counted(app))

    down = [Watermark(start + 3 * MINUTE + GRACE), *minutes(start, 3, 5)]
    await app.publish(down)  # nobody else runs until it is deleted: the embedded log does not wait
    (place,) = ends = await ends_of(app, [2])
    await app.client.delete_before(ends)
    rest = minutes(start, 5, 10)
    await app.publish(rest)

    await assert_lost(app, view, [*script, *down, *rest], 10, range(2, 8))
    assert place.partition == 2


async def test_by_a_wall_clock_the_ticks_around_a_gap_say_what_is_lost(launch: Launch) -> None:
    app = await launch(AHEAD, ("clock: event", "clock: wall"), (", idle: 1d", ""))
    view = only_view(app)
    start = start_of(view)
    clock = ManualClock(start)
    await app.start(clock_ms=clock)

    async def pass_minute(minute: int, *, gone: bool = False) -> list[Event]:
        """Publish the visits of a minute, when it is half over, and end it."""
        clock.now_ms = start + minute * MINUTE + MINUTE // 2
        await app.eventually(lambda: told(app, clock.now_ms))
        events = [Event(f"u{n}", f"/{n % 5}", clock.now_ms + n) for n in range(150)]
        await app.publish(events)
        if gone:
            await app.client.delete_before(await ends_of(app, [0]))
        clock.now_ms += MINUTE // 2
        await app.eventually(lambda: told(app, clock.now_ms))
        return events

    script = [event for minute in range(3) for event in await pass_minute(minute)]
    await app.eventually(lambda: counted(app))
    await app.stop()
    # The last tick in front of the gap showed 3:00, so window 2 is open; the first one behind it shows 4:00.
    clock.now_ms = start + 3 * MINUTE + MINUTE // 2
    down = [Event(f"u{n}", f"/{n % 5}", clock.now_ms + n) for n in range(150)]
    await app.publish(down)
    await app.client.delete_before(await ends_of(app, [0]))
    clock.now_ms += MINUTE // 2
    await app.start(clock_ms=clock)
    await app.eventually(lambda: told(app, clock.now_ms))
    rest = [event for minute in range(4, 9) for event in await pass_minute(minute)]
    clock.now_ms += GRACE
    await app.eventually(lambda: told(app, clock.now_ms))

    await assert_lost(app, view, [*script, *down, *rest], 9, range(2, 6))


async def test_a_first_start_behind_records_that_are_long_gone_misses_nothing(launch: Launch) -> None:
    app = await launch(AHEAD)
    view = only_view(app)
    start = start_of(view)
    await app.publish(minutes(start - 5 * MINUTE, 0, 4))
    await app.client.delete_before(await ends_of(app, range(3)))
    await app.start()
    script = minutes(start, 0, 3)
    await app.publish(script)

    await assert_lost(app, view, script, 3, [])
    assert (await stored_totals_of(app)).total("records_missing") == 0


async def test_the_log_may_begin_behind_what_was_counted(launch: Launch) -> None:
    """As always: what is counted is deleted one day. A quiet source may have nothing left."""
    app = await launch(AHEAD)
    view = only_view(app)
    start = start_of(view)
    script = [*minutes(start, 0, 2), *visits_of(start, 2, 200)]
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await app.eventually(lambda: counted(app))
    await app.client.delete_before(await ends_of(app, range(3)))
    await app.stop()
    await app.start()
    rest = [Watermark(start + 3 * MINUTE + GRACE), *minutes(start, 3, 5)]
    await app.publish(rest)

    await assert_lost(app, view, [*script, *rest], 5, [])
