"""What goes on after a topic was deleted and that was accepted, on a worker that was stopped meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from stream_dp.errors import ConfigError
from stream_dp.records.models import Refusal
from stream_dp.runtime.kafka.topics import COUNTS, Topics
from stream_dp.testing import Application, Event
from tests.support.losing import delete, publish_minutes
from tests.support.views import only_view

Launch = Callable[..., Awaitable[Application]]
in_memory = pytest.mark.parametrize("broker", ["memory"], indirect=True)
BY_THE_WALL = (
    "window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}",
    "window: {size: 1s, grace: 0s}",
)


@in_memory
async def test_grants_of_a_control_topic_that_was_made_again_are_newer_than_those_of_the_former_one(
    launch: Launch,
) -> None:
    app = await launch()
    view, control = only_view(app), Topics.of(app.plan).control
    await app.start()
    await publish_minutes(app, 0)
    await app.wait_for_releases(view.name, 1)
    for _ in range(3):
        await app.grant("public", "standard")

    async def revisions(count: int) -> bool:
        return len((await app.published(view.name))["public"]) == count

    await app.eventually(lambda: revisions(2))
    await app.stop()
    await delete(app, control)
    with pytest.raises(ConfigError, match=f"topic {control}: was deleted, and with it grants that no worker had read"):
        await app.start()
    await app.start(accept_loss=True)
    await app.grant("public", "detailed")
    await app.eventually(lambda: revisions(3))


@in_memory
async def test_windows_that_had_begun_when_exact_counts_were_lost_are_refused_and_later_ones_exact(
    launch: Launch,
) -> None:
    app = await launch(BY_THE_WALL)
    view = only_view(app)

    async def visit() -> None:
        """A hundred visitors of one page a second."""
        while True:
            now = int(time.time() * 1000)
            await app.publish([Event(f"u{number}", "/page", now) for number in range(100)])
            await asyncio.sleep(0.1)

    visiting = asyncio.create_task(visit())
    try:
        await app.start()
        await app.wait_for_releases(view.name, 2)
        await app.stop()
        await delete(app, Topics.of(app.plan).changelog(COUNTS))
        accepted = time.time() * 1000
        worker = await app.start(accept_loss=True)
        await worker.loaded()
        loaded = time.time() * 1000

        async def outcomes() -> list[tuple[int, bool]] | None:
            records = (await app.releases(view.name))["internal"]
            found = [(record.window.start_ms, isinstance(record, Refusal)) for record in records]
            return found if sum(start > accepted and not lost for start, lost in found) >= 3 else None

        found = await app.eventually(outcomes)
    finally:
        visiting.cancel()
    starts = [start for start, _ in found]
    assert starts == list(range(starts[0], starts[-1] + 1, 1000)), "every window, in its turn"
    lost = [start for start, is_lost in found if is_lost]
    assert lost
    assert min(lost) < accepted
    assert lost == list(range(lost[0], lost[-1] + 1, 1000))
    assert max(lost) <= loaded + 2000
