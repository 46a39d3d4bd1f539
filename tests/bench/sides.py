"""The two sides of the benchmark, each a process of its own: `python -m tests.bench.sides product|plain ...`.

Each starts, reads the topic from its beginning, prints one line of JSON and ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faust
import uvloop

from stream_dp.releases.plan import Plan
from stream_dp.releases.planning import load_plan
from stream_dp.runtime.bootstrap import prepare
from stream_dp.runtime.client import connect
from stream_dp.runtime.keys import load_key
from stream_dp.runtime.worker import Chunk, Worker
from tests.bench.events import PARTITIONS, START_MS, WINDOW_MS, WINDOWS

ITEMS_PER_USER = 20
_GIVE_UP_SECONDS = 300

CONFIG = """
name: {name}
broker: kafka://{broker}
data_dir: {folder}/state
key_file: {folder}/secret.key
sources:
  sales: {{topic: {topic}, partitions: {partitions}, user: user, time: {{field: ts, unit: ms}}}}
ledgers:
  customers: {{population: baskets of the shop, epsilon: "100", delta: "1/1000", period: 366d}}
ladders:
  standard:
    - {{level: overview, epsilon: "0.5"}}
    - {{level: standard, epsilon: "1"}}
    - {{level: detailed, epsilon: "4"}}
audiences: {{public: overview, partner: standard, internal: detailed}}
views:
  sales:
    source: sales
    item: item
    kind: histogram
    items_per_user: {items_per_user}
    window: {{size: {size_ms}ms, start: "{start}", grace: 10s, clock: event, max_ahead: 1h}}
    delta: "1e-6"
    ledger: customers
    ladder: standard
    retention: 366d
"""


class Stopwatch:
    """Wall and CPU time since the first event arrived."""

    def __init__(self) -> None:
        self._start: tuple[float, float] | None = None

    def start(self) -> None:
        """Start, unless it runs."""
        if self._start is None:
            self._start = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Seconds of wall and CPU time; the CPU time is that of all threads."""
        assert self._start is not None
        return time.perf_counter() - self._start[0], time.process_time() - self._start[1]


class TimedWorker(Worker):
    """The worker as it is, with a look at the clock before the first chunk of events and behind each."""

    def watch(self, topic: str, events: int) -> None:
        """Measure the first `events` records of a topic."""
        self._watched, self._left = topic, events
        self.watch_clock = Stopwatch()
        self.all_counted = asyncio.Event()
        self.chunk_sizes: list[int] = []
        self.counted = (0.0, 0.0)

    async def chunks(self, stream: Any) -> AsyncIterator[Chunk]:
        """The chunks of a stream; asked for the next one, the effect of the last is committed."""
        async for chunk in super().chunks(stream):
            watched = chunk.topic == self._watched
            if watched:
                self.watch_clock.start()
            yield chunk
            if watched:
                self.chunk_sizes.append(len(chunk.records))
                self._left -= len(chunk.records)
                if self._left <= 0 and not self.all_counted.is_set():
                    self.counted = self.watch_clock.read()
                    self.all_counted.set()


def product_plan(broker: str, topic: str, folder: Path) -> Plan:
    """A view with every guard on: bounding, placement of users, user field, event clock, three audiences."""
    file = folder / "app.yaml"
    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START_MS / 1000))
    text = CONFIG.format(
        name=f"bench-{uuid.uuid4().hex[:8]}",
        broker=broker,
        folder=folder,
        topic=topic,
        partitions=PARTITIONS,
        items_per_user=ITEMS_PER_USER,
        size_ms=WINDOW_MS,
        start=start,
    )
    file.write_text(text, encoding="utf-8")
    return load_plan(file)


async def product(broker: str, topic: str, events: int) -> dict[str, Any]:
    """Run a worker over `events` events and the watermarks behind them, until every window is released."""
    with TemporaryDirectory() as name:
        plan = product_plan(broker, topic, Path(name))
        async with connect(plan.broker) as client:
            starts = await prepare(plan, client)
        worker = TimedWorker(plan, starts, prf_key=load_key(plan.key_file))
        worker.watch(topic, events + PARTITIONS)
        await worker.app.start()
        async with asyncio.timeout(_GIVE_UP_SECONDS):
            await worker.all_counted.wait()
            while worker.counters.total("windows_released") < WINDOWS:
                if (reason := worker.crash_reason()) is not None:
                    raise reason
                await asyncio.sleep(0.01)
        released, _ = worker.watch_clock.read()
        wall, cpu = worker.counted
        return {
            "events": events,
            "wall_s": wall,
            "cpu_s": cpu,
            "released_s": released,
            "chunks": len(worker.chunk_sizes),
            "longest_chunk": max(worker.chunk_sizes),
            "counters": worker.counters.lines(),
        }


async def plain(broker: str, topic: str, events: int) -> dict[str, Any]:
    """A Faust agent as its manual shows it: decode an event, add one to the table, once for each event.

    Its settings are those under which it was fastest: a stream buffer that never fills (a full one stalls it for a
    second), a linger of 20 ms for the changelog, uvloop.
    """
    with TemporaryDirectory() as name:
        app = faust.App(
            f"plain-{uuid.uuid4().hex[:8]}",
            broker=f"kafka://{broker}",
            store="rocksdb://",
            datadir=name,
            topic_partitions=PARTITIONS,
            topic_replication_factor=1,
            topic_disable_leader=True,
            broker_max_poll_records=5000,
            stream_buffer_maxsize=65_536,
            producer_linger=0.02,
            web_enabled=False,
        )
        source = app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
        table = app.Table("counts", default=int, partitions=PARTITIONS)
        watch, done = Stopwatch(), asyncio.Event()

        @app.agent(source)
        async def count(stream: Any) -> None:
            left = events
            async for value in stream:
                watch.start()
                table[json.loads(value)["item"]] += 1
                left -= 1
                if left == 0:
                    done.set()

        await app.start()
        async with asyncio.timeout(_GIVE_UP_SECONDS):
            await done.wait()
            while app.producer.buffer.size:
                await asyncio.sleep(0)
            await app.producer.flush()
        wall, cpu = watch.read()
        return {"events": events, "wall_s": wall, "cpu_s": cpu, "ahead": len(app.consumer.unacked)}


def main() -> None:
    """Run one side and print what it measured."""
    parser = argparse.ArgumentParser(description="One side of the benchmark.")
    parser.add_argument("side", choices=["product", "plain"])
    parser.add_argument("--broker", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--events", type=int, required=True)
    asked = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    side = product if asked.side == "product" else plain
    print(json.dumps(uvloop.run(_measured(side(asked.broker, asked.topic, asked.events)))), flush=True)


async def _measured(side: Any) -> dict[str, Any]:
    """The result of a side, told at once: stopping Faust takes seconds and is not measured."""
    print(json.dumps(await side), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
