"""Releases every complete window: reserve, draw, store, publish."""

from __future__ import annotations

from typing import Any

from stream_dp.runtime.faust.host import Host


async def release(stream: Any, host: Host) -> None:
    async for chunk in host.chunks(stream):
        await host.take_buckets(chunk)
