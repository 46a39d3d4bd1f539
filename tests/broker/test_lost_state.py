"""A worker process on Kafka whose changelog and folder are gone says so and ends; only --accept-loss lets it go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.runtime.kafka.topics import RELEASES, Topics
from stream_dp.testing import application
from tests.support.losing import empty, publish_minutes, two_released
from tests.support.views import only_view

pytestmark = pytest.mark.broker


@pytest.mark.slow
async def test_worker_that_lost_its_state_ends_and_releases_no_window_a_second_time(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        view = only_view(app)
        worker = spawn(app, "worker")
        before = await two_released(app, worker)
        await empty(app, Topics.of(app.plan).changelog(RELEASES))
        shutil.rmtree(worker.data_dir)

        worker.start()
        assert worker.wait() == 2
        assert worker.log.read_text().count(" is running: ") == 1, "what is refused is refused before the worker runs"
        assert f"error: views.{view.name}: stored state was lost: of 2 windows or more" in worker.said()
        assert await app.published(view.name) == before

        worker.start("--accept-loss")
        await publish_minutes(app, 2)
        await app.wait_for_releases(view.name, 3)
        after = await app.published(view.name)
        assert {audience: records[:2] for audience, records in after.items()} == before
        (ledger,) = (await app.ledgers()).values()
        assert ledger.spent == view.cost(2) * 2 + view.cost(1)
        assert worker.terminate() == 0

        worker.start()
        await publish_minutes(app, 3)
        await app.wait_for_releases(view.name, 4)
        assert worker.counters()["windows_lost{view=" + view.name + "}"] == 2
