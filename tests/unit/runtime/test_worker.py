"""A worker is its application, its host and its timers, and hears of a rebalance in all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faust.types import TP

from stream_dp.runtime.worker.assembly import Worker
from stream_dp.testing import Event, Watermark, application


async def test_worker_that_runs_has_no_reason_to_have_crashed(worker: Worker) -> None:
    assert worker.crash_reason() is None
    assert worker.counters is worker.host.counters
    assert worker.tables is worker.host.tables


async def test_worker_that_crashed_tells_why(worker: Worker) -> None:
    await worker.app.crash(OSError("the disk is full"))

    await worker.crashed()

    assert repr(worker.crash_reason()) == "OSError('the disk is full')"


@pytest.mark.parametrize("signal", ["on_partitions_revoked", "on_rebalance_complete"])
async def test_partitions_that_come_back_are_loaded_and_greeted_anew(
    visits: Callable[..., str], tmp_path: Path, signal: str
) -> None:
    seldom_beats = ("erase_within: 20s", "erase_within: 1h")  # a beat looks like a greeting
    async with application(visits(seldom_beats), tmp_path) as app:
        worker = await app.start()
        assert app.log is not None
        log, partials = app.log, TP(worker.host.topics.partials, 0)
        (view,) = app.plan.views.values()

        async def greeted(times: int) -> bool:
            return log.end(partials) == times

        await app.eventually(lambda: greeted(1))
        before = await worker.host.part(view.source.topic, 0)
        rebalance: Any = getattr(worker.app, signal)
        await rebalance.send(set())
        await app.eventually(lambda: greeted(2))
        assert await worker.host.part(view.source.topic, 0) is not before

        start = view.window.first_ms
        assert start is not None
        await app.publish([Event("u", "/", start), Watermark(start + 120_000)])
        assert all(len(records) == 1 for records in (await app.wait_for_releases(view.name, 1)).values())
