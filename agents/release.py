"""Releases every complete window: reserve, draw, store, publish."""

from __future__ import annotations

from typing import Any

from stream_dp.releases.engine import ReleaseEngine
from stream_dp.runtime.worker import Worker


async def release(stream: Any, worker: Worker) -> None:
    async for chunk in worker.chunks(stream):
        await worker.engage(chunk.partition, ReleaseEngine.buckets, chunk.values)
