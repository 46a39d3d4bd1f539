"""Counts the events of the source topics; ticks close windows by the wall clock."""

from __future__ import annotations

from typing import Any

from stream_dp.runtime.topics import COUNTS
from stream_dp.runtime.worker import Worker


async def ingest(stream: Any, worker: Worker) -> None:
    table = worker.tables[COUNTS]
    async for chunk in worker.chunks(stream):
        if chunk.topic != worker.topics.ticks:
            counter = await worker.counter(chunk.topic, chunk.partition)
            await worker.carry_out(counter.chunk(chunk.records, worker.clock_ms()), table, chunk.partition)
            continue
        now_ms = int(chunk.records[-1].value)
        for topic, counter in (await worker.counters_of(chunk.partition)).items():
            end = worker.end_of(topic, chunk.partition)
            drained = worker.drained(topic, chunk.partition, counter.next_offset)
            await worker.carry_out(counter.tick(now_ms, end, drained=drained), table, chunk.partition)
