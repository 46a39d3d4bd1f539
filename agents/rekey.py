"""Passes events of sources that are not keyed by user on to the partitions of their users, and with them the time."""

from __future__ import annotations

from typing import Any

from stream_dp.runtime.host import Host
from stream_dp.runtime.ordering import Tick
from stream_dp.runtime.topics import COUNTS
from stream_dp.windows.keys import decode


async def rekey(stream: Any, host: Host) -> None:
    table = host.tables[COUNTS]
    async for chunk in host.chunks(stream):
        if chunk.topic != host.topics.ticks:
            rekeyer = await host.rekeyer(chunk.topic, chunk.partition)
            await host.carry_out(rekeyer.chunk(chunk.records, chunk.now_ms), table, chunk.partition)
            continue
        ticks = [decode(Tick, value or b"") for value in chunk.values]
        for topic, rekeyer in (await host.rekeyers_of(chunk.partition)).items():
            times_ms = [tick.now_ms for tick in ticks if topic in tick.ends]
            await host.carry_out(rekeyer.ticks(times_ms), table, chunk.partition)
