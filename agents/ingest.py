"""Counts the events of the source topics; ticks close windows by the wall clock."""

from __future__ import annotations

from typing import Any

from stream_dp.runtime.host import Host
from stream_dp.runtime.topics import COUNTS


async def ingest(stream: Any, host: Host) -> None:
    table = host.tables[COUNTS]
    async for chunk in host.chunks(stream):
        if chunk.topic != host.topics.ticks:
            counter = await host.counter(chunk.topic, chunk.partition)
            await host.carry_out(counter.chunk(chunk.records, host.clock_ms()), table, chunk.partition)
            continue
        now_ms = int(chunk.records[-1].value)
        for topic, counter in (await host.counters_of(chunk.partition)).items():
            end = host.end_of(topic, chunk.partition)
            drained = host.drained(topic, chunk.partition, counter.next_offset)
            await host.carry_out(counter.tick(now_ms, end, drained=drained), table, chunk.partition)
