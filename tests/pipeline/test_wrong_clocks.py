"""A clock that is wrong closes nothing, discloses nothing and makes nothing late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from stream_dp.runtime.clock import Tick, wall_clock_ms
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.worker import reporting
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.runtime.worker.health import Exposition, Health, Start
from stream_dp.testing import Application
from stream_dp.windows.durations import format_time
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import encode
from tests.support.clocks import HOUR, MINUTE, SECOND, Crowd, WrongClock, by_the_wall, newest_end, statuses
from tests.support.probes import parsed
from tests.support.views import only_view

Launch = Callable[..., Awaitable[Application]]

SLOW_ON_KAFKA = True


def health_of(worker: Worker) -> Health:
    health = Health(Start())
    health.worker = worker
    return health


def is_wrong_on_the_page(worker: Worker) -> float:
    return parsed(Exposition(health_of(worker)).page().decode())["stream_dp_clock_wrong", ()]


@pytest.mark.slow
@pytest.mark.parametrize("off_ms", [HOUR, -5 * MINUTE])
async def test_a_clock_that_jumps_closes_no_window_and_makes_nothing_late_and_the_worker_goes_on_when_it_is_right(
    launch: Launch, off_ms: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "LOOK_SECONDS", 0.1)
    app = await launch(*by_the_wall())
    clock, crowd = WrongClock(), Crowd(app)
    worker = await app.start(clock_ms=clock, compares_clocks=True)
    await crowd.come(2)
    health = health_of(worker)
    assert (health.waiting_for, is_wrong_on_the_page(worker)) == ("", 0)

    jumped_ms, clock.off_ms = wall_clock_ms(), off_ms
    await crowd.come(5)

    assert await newest_end(app) <= jumped_ms
    how = "1h ahead of" if off_ms > 0 else "5m behind"
    words = f"the clock of this machine is {how} that of the broker which leads partition "
    assert health.waiting_for.startswith(f"clocks that agree: {words}")
    assert (health.is_alive, is_wrong_on_the_page(worker)) == (True, 1)
    said = (await statuses(app))[-1]
    assert abs(said.clock_ahead_ms - off_ms) < SECOND
    assert abs(said.reported_ms - wall_clock_ms()) < 10 * SECOND
    assert said.waiting_for == health.waiting_for

    clock.off_ms = 0
    await crowd.come(1)
    assert await crowd.assert_counted() >= 4
    assert (health.waiting_for, is_wrong_on_the_page(worker)) == ("", 0)
    await app.eventually(lambda: says_it_is_right(app))
    told = [record.getMessage() for record in caplog.records if "clock" in record.getMessage()]
    assert len(told) == 2
    assert "the worker makes no ticks, so it closes no window, until they agree" in told[0]
    assert told[1] == "the clocks of this machine and of the broker agree again: the worker makes ticks"


async def says_it_is_right(app: Application) -> bool:
    said = (await statuses(app))[-1]
    return (said.clock_ahead_ms, said.waiting_for) == (0, "")


async def test_a_tick_far_ahead_of_its_append_time_closes_nothing(launch: Launch) -> None:
    """Whoever wrote it: it is read by a worker whose clock is right."""
    app = await launch(*by_the_wall())
    crowd, topics = Crowd(app), Topics.of(app.plan)
    worker = await app.start()
    await crowd.come(1)
    for partition in range(app.plan.partitions):
        ends = {only_view(app).source.topic: 1000}
        await app.client.publish([Message(topics.ticks, None, encode(Tick(wall_clock_ms() + HOUR, ends)), partition)])
    await crowd.come(3)

    assert await crowd.assert_counted() >= 2
    assert await newest_end(app) <= wall_clock_ms()
    assert worker.counters.total("events_refused") == 0


@pytest.mark.slow
async def test_a_clock_ahead_unlocks_nothing_early(launch: Launch) -> None:
    """By age, and by a grant with a time: neither before its time by the log."""
    after = 5 * SECOND
    rising = ("public: overview", "public: {level: overview, unlock: [{level: standard, after: 5s}]}")
    app = await launch(*by_the_wall(), rising)
    view = only_view(app).name
    clock, crowd = WrongClock(), Crowd(app)
    await app.start(clock_ms=clock, compares_clocks=True)
    await crowd.come(3)
    await app.wait_for_releases(view, 1)

    clock.off_ms = HOUR
    at_ms = (wall_clock_ms() + after) // SECOND * SECOND
    await app.grant("partner", "detailed", at=format_time(at_ms))
    while wall_clock_ms() < at_ms + SECOND:
        found = await app.releases(view)
        now_ms = wall_clock_ms()
        for record in [*found["public"], *found["partner"]]:
            if record.revision > 1:
                assert now_ms >= at_ms or record.audience == "public"
                assert now_ms >= record.window.end_ms + after or record.audience == "partner"
        await asyncio.sleep(0.1)

    clock.off_ms = 0

    async def both() -> bool:
        found = await app.releases(view)
        return all(any(record.revision > 1 for record in found[name]) for name in ("public", "partner"))

    await app.eventually(both)
