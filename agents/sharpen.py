"""Carries out grants: an audience's retained windows are published again at the granted level."""

from __future__ import annotations

from functools import partial
from typing import Any

from stream_dp.control.grants import decode_order
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.runtime.faust.host import Host


async def sharpen(stream: Any, host: Host) -> None:
    async for chunk in host.chunks(stream):
        for value in chunk.values:
            if value is not None:
                take = partial(ReleaseEngine.order, now_ms=host.clock_ms())
                await host.engage(chunk.partition, take, decode_order(value))
