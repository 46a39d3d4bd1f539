"""A worker that runs, for tests of what it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stream_dp.runtime.worker import Worker
from stream_dp.testing import application


@pytest.fixture
async def worker(visits: Callable[..., str], tmp_path: Path) -> AsyncIterator[Worker]:
    """A worker on the embedded log that has every partition and nothing to do: its timers keep still."""
    async with application(visits(("erase_within: 20s", "erase_within: 1h")), tmp_path) as app:
        worker = await app.start(tick_seconds=1000)
        async with asyncio.timeout(10):
            while worker.app.rebalancing or not worker.app.consumer.assignment():
                await asyncio.sleep(0.01)
        yield worker
