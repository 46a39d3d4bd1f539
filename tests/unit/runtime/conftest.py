"""A worker that runs, for tests of what it is made of; and an application on the embedded log without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stream_dp.config.plan import Plan
from stream_dp.runtime.embedded import MemoryLog
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.testing import application, plan_from
from stream_dp.testing.application import WITHIN_SECONDS


@pytest.fixture
def plan(visits: Callable[..., str], tmp_path: Path) -> Plan:
    return plan_from(visits(), tmp_path)


@pytest.fixture
def log(plan: Plan) -> MemoryLog:
    """The embedded log, with nothing but the control topic of the application."""
    made = MemoryLog()
    made.create(Topics.of(plan).control, 1)
    return made


@pytest.fixture
async def worker(visits: Callable[..., str], tmp_path: Path) -> AsyncIterator[Worker]:
    """A worker on the embedded log that has every partition and nothing to do: its timers keep still."""
    async with application(visits(("erase_within: 20s", "erase_within: 1h")), tmp_path) as app:
        worker = await app.start(tick_seconds=1000)
        async with asyncio.timeout(WITHIN_SECONDS):
            while worker.app.rebalancing or not worker.app.consumer.assignment():
                await asyncio.sleep(0.01)
        yield worker
