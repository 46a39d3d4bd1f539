"""Checks what operators write to the control topic and passes it on to every partition."""

from __future__ import annotations

from typing import Any

from stream_dp.control.grants import encode_order, grant_key
from stream_dp.runtime.faust.host import Host
from stream_dp.runtime.kafka.topics import RELEASES
from stream_dp.windows.effects import Increment


async def control(stream: Any, host: Host) -> None:
    async for chunk in host.chunks(stream):
        await host.settled(chunk.partition, RELEASES)  # a grant may be about what was posted just before it
        for record in chunk.records:
            order = host.order(record)
            if order is not None:
                await host.send(host.fan_out(grant_key(order.audience, order.id), encode_order(order)))
                host.counters.add(Increment("grants", 1))
