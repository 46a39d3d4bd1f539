"""Sums what the partitions of a source counted, bucket by bucket."""

from __future__ import annotations

from typing import Any

from stream_dp.runtime.faust.host import Host


async def merge(stream: Any, host: Host) -> None:
    async for chunk in host.chunks(stream):
        await host.merge(chunk)
