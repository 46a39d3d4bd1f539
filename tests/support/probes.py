"""What a Prometheus and a supervisor ask a worker."""

from __future__ import annotations

import asyncio

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from stream_dp.runtime.worker.assembly import Worker
from stream_dp.runtime.worker.health import LOOPBACK
from stream_dp.testing.application import WITHIN_SECONDS

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def loaded(worker: Worker) -> Worker:
    """A worker whose timers keep still, after one tick: its parts have read what is stored."""
    await worker.timers.tick()
    async with asyncio.timeout(WITHIN_SECONDS):
        await worker.loaded()
    return worker


async def get(port: int, path: str) -> tuple[int, str]:
    """Status and text of an answer; (0, "") if nobody answers."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session,
            session.get(f"http://{LOOPBACK}:{port}{path}") as answer,
        ):
            return answer.status, await answer.text()
    except aiohttp.ClientConnectionError:
        return 0, ""


def parsed(page: str) -> Samples:
    """The samples of a page, by name and labels; every one has its type and a meaning."""
    found: Samples = {}
    for family in text_string_to_metric_families(page):
        assert family.type in ("counter", "gauge"), family
        assert family.documentation, family
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found
