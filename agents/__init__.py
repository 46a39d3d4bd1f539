"""The agents of an application: thin async functions of a stream and the host, with no logic of their own.

The folder is at the top of the repository; the package has it as `stream_dp.agents`, by way of the link
`stream_dp/agents`, because the top-level name belongs to another distribution. All agents are listed here and nowhere
else: they see raw counts, so nothing that is installed can replace one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from stream_dp.control.grant_records import Order, grant_key
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.runtime.faust.host import Agent, Host
from stream_dp.runtime.kafka.topics import COUNTS
from stream_dp.windows.effects import Increment
from stream_dp.windows.encoding import decode, encode


async def ingest(stream: Any, host: Host) -> None:
    """Count the events of the sources, or first pass them on to their users; ticks close windows by the wall clock."""
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


async def merge(stream: Any, host: Host) -> None:
    """Sum what the partitions of a source counted, bucket by bucket."""
    async for chunk in host.chunks(stream):
        await host.merge(chunk)


async def release(stream: Any, host: Host) -> None:
    """Release every complete window: reserve, draw, store, publish."""
    async for chunk in host.chunks(stream):
        await host.take_buckets(chunk)


async def sharpen(stream: Any, host: Host) -> None:
    """Carry out grants: an audience's retained windows are published again at the granted level."""
    async for chunk in host.chunks(stream):
        for record in chunk.records:
            if (wanted := host.republication(record)) is not None:
                await host.republisher.take_order(chunk.partition, wanted)
            elif record.value is not None:
                take = partial(ReleaseEngine.order, now_ms=host.clock_ms())
                await host.engage(chunk.partition, take, decode(Order, record.value))


async def control(stream: Any, host: Host) -> None:
    """Check what operators write to the control topic, and pass it on to every partition."""
    async for chunk in host.chunks(stream):
        await host.settled()  # a grant may be about what was accepted just before it
        for record in chunk.records:
            if (wanted := host.republication(record)) is not None:
                if host.republisher.is_known(wanted):
                    await host.send(host.fan_out(record.key, record.value))
                continue
            order = host.order(record)
            if order is not None:
                await host.send(host.fan_out(grant_key(order.audience, order.id), encode(order)))
                host.counters.add(Increment("grants", 1))


AGENTS: Mapping[str, Agent] = {
    "ingest": ingest,
    "merge": merge,
    "release": release,
    "sharpen": sharpen,
    "control": control,
}
"""By the name under which the worker registers them."""
