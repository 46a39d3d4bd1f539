"""Makes up visits for the sample until it is ended; makes a file when the topic is there: `visitors.py FILE READY`."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Event, SourceWriter

READERS, PAGES = 5000, 12
WAVE = [20 + 15 * abs(minute % 10 - 5) // 5 for minute in range(10)]
"""Visits a second, by minute: more and less, so that there is something to see."""


def visit(now_ms: int) -> Event:
    """Return the visit of somebody to a page; the first pages are read more than the last ones."""
    page = min(int(random.expovariate(1 / 3)), PAGES - 1)
    return Event(f"u{random.randrange(READERS)}", f"/{page}", now_ms)  # noqa: S311  made up


async def write_visits(plan: Plan, ready: Callable[[], None]) -> None:
    """Create the topic if it is missing, say so, and write to it until this is cancelled."""
    writer = SourceWriter(plan)
    async with connect(plan.broker) as client:
        await client.create([Topics.of(plan).source(writer.source)])
        ready()
        while True:
            now_ms = time.time_ns() // 1_000_000
            visits = WAVE[now_ms // 60_000 % len(WAVE)]
            await client.publish(writer.records([visit(now_ms) for _ in range(visits)]))
            await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(write_visits(load_plan(Path(sys.argv[1])), Path(sys.argv[2]).touch))
