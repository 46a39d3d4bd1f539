"""Counts the events of the sources, or first passes them on to their users; ticks close windows by the wall clock."""

from __future__ import annotations

from typing import Any

from stream_dp.runtime.faust.host import Host
from stream_dp.runtime.kafka.topics import COUNTS


async def ingest(stream: Any, host: Host) -> None:
    table = host.tables[COUNTS]
    async for chunk in host.chunks(stream):
        if chunk.topic != host.topics.ticks:
            reader, begins = await host.reader(chunk)
            step = reader.chunk(chunk.records, chunk.now_ms, begins)
            await host.carry_out(step, table, chunk.partition, threaded=reader.takes_long)
            continue
        ticks = host.ticks(chunk)
        ends = {topic: end for tick in ticks for topic, end in tick.ends.items()}  # the last tick's
        parts, begins_at = await host.parts_at(chunk.partition, ends)
        for topic, one in parts.items():
            if told := [(tick.now_ms, tick.ends[topic]) for tick in ticks if topic in tick.ends]:
                times_ms, all_ends = zip(*told, strict=True)
                step = one.ticks(times_ms, all_ends, begins_at.get(topic, 0))
                await host.carry_out(step, table, chunk.partition, threaded=True)
        for view, from_ms in [tick.declare_lost for tick in ticks if tick.declare_lost is not None]:
            for counter in (await host.counters_of(chunk.partition)).values():
                await host.carry_out(counter.declare_lost(view, from_ms), table, chunk.partition)
