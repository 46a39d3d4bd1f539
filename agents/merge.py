"""Sums what the partitions of a source counted, bucket by bucket."""

from __future__ import annotations

from typing import Any

from stream_dp.runtime.worker import Worker


async def merge(stream: Any, worker: Worker) -> None:
    async for chunk in worker.chunks(stream):
        await worker.merge(chunk)
