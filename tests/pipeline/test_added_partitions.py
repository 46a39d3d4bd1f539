"""If a source gets another partition while a worker runs, no window is released with missing records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from stream_dp.errors import ConfigError
from stream_dp.testing import Application, Event, ManualClock
from stream_dp.testing.scripts import SourceWriter
from stream_dp.windows.effects import Message
from tests.support.deleting import minutes
from tests.support.losing import publish_minutes
from tests.support.views import only_view, start_of
from tests.support.visits import MINUTE

Launch = Callable[..., Awaitable[Application]]


@pytest.mark.parametrize("broker", ["memory"], indirect=True)
@pytest.mark.parametrize("clock", ["wall", pytest.param("event", marks=pytest.mark.slow)])
async def test_no_window_closes_once_a_partition_was_added(launch: Launch, clock: str) -> None:
    app = await launch(
        ("clock: event, max_ahead: 1h, idle: 1d", f"clock: {clock}, max_ahead: 1h, idle: 1d, catch_up: 0s")
    )
    view = only_view(app)
    start = start_of(view)
    now = ManualClock(start + MINUTE // 2)
    assert app.log is not None
    await app.start(clock_ms=now)
    await publish_minutes(app, 0)
    now.now_ms = start + 2 * MINUTE
    await app.wait_for_releases(view.name, 1)

    (topic,) = {view.source.topic}
    app.log.partitions[topic] += 1
    moved = SourceWriter(app.plan).records([Event(f"u{n}", "/page", start + MINUTE + n) for n in range(300)])
    await app.client.publish([Message(topic, one.key, one.value, 3) for one in moved])
    await app.publish(minutes(start, 1, 3))
    now.now_ms = start + 5 * MINUTE

    worker = app.worker
    assert worker is not None
    await worker.crashed()
    reason = worker.crash_reason()
    assert isinstance(reason, ConfigError)
    assert f"topic {topic}: has 4 partitions, not 3" in str(reason)
    assert [len(records) for records in (await app.releases(view.name)).values()] == [1, 1, 1]
