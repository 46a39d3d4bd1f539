"""Clocks that are wrong, and an application whose windows are short enough to wait for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from faust.types import TP

from stream_dp.records.models import WorkerStatus, decode_status
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Application, Event
from stream_dp.windows.durations import format_time
from tests.support.oracle import count_script
from tests.support.views import only_view, oracle_bytes, start_of

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
DAY_SECONDS = 86_400
SIZE = 2 * SECOND
"""Of a window; its grace is half of a second."""


@dataclass
class WrongClock:
    """The machine's clock, wrong by so much."""

    off_ms: int = 0

    def __call__(self) -> int:
        return wall_clock_ms() + self.off_ms


def by_the_wall(catch_up: str = "0s") -> tuple[tuple[str, str], ...]:
    """Changes of the `visits` application: windows of two seconds by the wall clock, the first one just begun.

    Args:
        catch_up: `window.catch_up`. By default, late ticks of a busy machine delay no window.
    """
    start = wall_clock_ms() // SIZE * SIZE
    window = "window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}"
    return (
        (window, f"window: {{size: 2s, start: {format_time(start)}, grace: 500ms, catch_up: {catch_up}}}"),
        ('epsilon: "100", delta: "1/100"', 'epsilon: "100000", delta: "1/2"'),
    )


@dataclass
class Crowd:
    """Users that come one after the other, each at the right time, and what must come of it."""

    app: Application
    events: list[Event] = field(default_factory=list)

    async def come(self, seconds: float) -> None:
        """Some of them a tenth of a second."""
        until_ms = wall_clock_ms() + round(seconds * SECOND)
        while (now_ms := wall_clock_ms()) < until_ms:
            at = len(self.events)
            some = [Event(f"u{number}", f"/{number % 3}", now_ms) for number in range(at, at + 12)]
            self.events += some
            await self.app.publish(some)
            await asyncio.sleep(0.1)

    async def wait_for_windows(self) -> int:
        """Wait for every window until the last that they came in; returns how many."""
        view = only_view(self.app)
        stop = max(event.time_ms for event in self.events) // SIZE * SIZE + SIZE
        count = (stop - start_of(view)) // SIZE
        await self.app.wait_for_releases(view.name, count)
        return count

    async def assert_counted(self) -> int:
        """The same, each is exactly right, and nobody was late."""
        view, count = only_view(self.app), await self.wait_for_windows()
        start = start_of(view)
        windows = count_script(view, start, self.events).between(view, start, start + count * SIZE)
        published = await self.app.published(view.name)
        assert {audience: found[:count] for audience, found in published.items()} == oracle_bytes(
            self.app, view, windows
        )
        assert await self.app.dead_letters() == []
        return count


async def newest_end(app: Application) -> int:
    """The end of the newest window that was published, 0 if there is none."""
    records = [record for found in (await app.releases(only_view(app).name)).values() for record in found]
    return max((record.window.end_ms for record in records), default=0)


async def statuses(app: Application) -> list[WorkerStatus]:
    """What workers have said of themselves, in order."""
    said = await app.read(Topics.of(app.plan).status)
    return [decode_status(value) for _, value in said if value is not None]


async def append_times(app: Application) -> dict[TP, list[int]]:
    """By partition of the ticks topic, when its records were appended."""
    found: dict[TP, list[int]] = {}
    async for record in app.client.follow([Topics.of(app.plan).ticks], until_end=True):
        found.setdefault(TP(record.topic, record.partition), []).append(record.timestamp)
    return found
