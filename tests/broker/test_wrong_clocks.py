"""Two workers whose clocks are five minutes apart: neither holds releases up nor makes events of the other late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.testing import Application, application
from tests.support.clocks import (
    DAY_SECONDS,
    MINUTE,
    SECOND,
    SIZE,
    Crowd,
    WrongClock,
    append_times,
    by_the_wall,
    newest_end,
    statuses,
)
from tests.support.totals import stored_totals_of

pytestmark = pytest.mark.broker


async def both_own(app: Application, one: Worker, other: Worker) -> None:
    """Wait until each has partitions and has loaded them."""

    async def shared() -> bool:
        ready = [worker.partitions and not worker.words() for worker in (one, other)]
        return all(ready) and len({*one.partitions, *other.partitions}) == app.plan.partitions

    await app.eventually(shared)


@pytest.mark.parametrize("off_ms", [5 * MINUTE, pytest.param(-5 * MINUTE, marks=pytest.mark.slow)])
async def test_partners_make_the_ticks_of_a_worker_whose_clock_is_wrong(
    kafka: str, tmp_path: Path, visits: Callable[..., str], off_ms: int
) -> None:
    async with application(visits(*by_the_wall()), tmp_path, broker=kafka) as app:
        crowd = Crowd(app)
        right = await app.start(tick_seconds=0.2)
        await crowd.come(2)
        elsewhere = replace(app.plan, data_dir=tmp_path / "other")
        wrong = await app.start(clock_ms=WrongClock(off_ms), tick_seconds=0.2, plan=elsewhere, compares_clocks=True)
        await both_own(app, right, wrong)
        await crowd.come(8)

        async def keeps_up() -> bool:
            return 0 <= wall_clock_ms() - await newest_end(app) <= 2 * SIZE + SECOND

        await app.eventually(keeps_up)  # a loaded machine may be behind for a moment
        assert wrong.timers.words
        assert not right.timers.words
        assert await crowd.assert_counted() >= 4
        assert {tp.partition for tp in await append_times(app)} == {0, 1, 2}


@pytest.mark.slow
async def test_a_process_whose_clock_is_two_days_ahead_goes_on_when_it_is_right(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    """Brokers refuse records that are more than an hour ahead of their own clock, where senders say the time."""
    async with application(visits(*by_the_wall()), tmp_path / "app", broker=kafka) as app:
        crowd, clock = Crowd(app), tmp_path / "app" / "clock"
        set_to(clock, 0)
        worker = spawn(app, "one", "--clock", str(clock))
        worker.start()
        await worker.wait_until_said(" is running: ")
        await crowd.come(3)

        set_to(clock, 2 * DAY_SECONDS)
        await worker.wait_until_said(
            "the clock of this machine is 2d ahead of that of the broker which leads partition "
        )
        await crowd.come(12)
        worker.check()
        assert await newest_end(app) <= wall_clock_ms()
        said = (await statuses(app))[-1]
        assert abs(said.clock_ahead_ms - 2 * DAY_SECONDS * SECOND) < SECOND
        assert abs(said.reported_ms - wall_clock_ms()) < 15 * SECOND
        assert worker.terminate() == 0
        worker.start()
        await crowd.come(4)

        set_to(clock, 0)
        await crowd.come(1)
        assert await crowd.wait_for_windows() >= 7
        totals = await stored_totals_of(app)
        assert totals.total("events_counted") == len(crowd.events)
        assert totals.total("events_refused") == 0
        assert worker.terminate() == 0


def set_to(clock: Path, seconds: int) -> None:
    """Set the clock of a process."""
    fresh = clock.with_suffix(".set")
    fresh.write_text(str(seconds))
    fresh.replace(clock)
