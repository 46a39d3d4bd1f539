"""The sides of the benchmark, each a process of its own that `tests.bench.throughput` starts.

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
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import faust
import uvloop
from aiokafka import AIOKafkaProducer
from faust.types import TP

from stream_dp.agents import AGENTS
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.runtime.faust import app as kafka
from stream_dp.runtime.faust.coalescing import Chunk
from stream_dp.runtime.faust.host import Host
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.transactions import Row
from stream_dp.runtime.worker import assembly
from stream_dp.runtime.worker.assembly import Options
from stream_dp.runtime.worker.process import run_worker
from stream_dp.windows.effects import Message
from tests.bench.events import PARTITIONS, START_MS, WINDOW_MS, WINDOWS

ITEMS_PER_USER = 20

_CONFIG = """
name: {name}
broker: kafka://{broker}
data_dir: {folder}/state
key_file: {folder}/secret.key
sources:
  sales:
    topic: {topic}
    partitions: {partitions}
    user: user
    time: {{field: ts, unit: ms}}
ledgers:
  customers: {{population: customers of the shop, epsilon: "100", delta: "1/1000", period: 366d}}
ladders:
  standard:
    - {{level: overview, epsilon: "0.5"}}
    - {{level: standard, epsilon: "1"}}
    - {{level: detailed, epsilon: "4"}}
audiences: {{public: overview, partner: standard, internal: detailed}}
views:
  {name}:
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


class TimedHost(Host):
    """The host of the agents as it is, with a look at the clock before the first chunk of events and behind each.

    It may drop the chunks of events: then they are read, and nothing else becomes of them.
    """

    def __init__(self, *args: Any, watched: str, records: int, drops: bool = False, **options: Any) -> None:
        self._watched, self._left, self._drops = watched, records, drops
        self.stopwatch = Stopwatch()
        self.chunk_sizes: list[int] = []
        self.begun = asyncio.Event()
        self.counted: tuple[float, float] | None = None
        super().__init__(*args, **options)

    async def chunks(self, stream: Any) -> AsyncIterator[Chunk]:
        """The chunks of a stream; when the next one is asked for, the effect of the last is committed."""
        async for chunk in super().chunks(stream):
            watched = chunk.topic == self._watched
            if watched:
                self.stopwatch.start()
                self.begun.set()
            if not (watched and self._drops):
                yield chunk
            if watched:
                self.chunk_sizes.append(len(chunk.records))
                self._left -= len(chunk.records)
                if self._left <= 0 and self.counted is None:
                    self.counted = self.stopwatch.read()

    async def until_counted(self) -> tuple[float, float]:
        """Wall and CPU seconds until the effect of the last record was committed."""
        while self.counted is None:
            await asyncio.sleep(0.01)
        return self.counted

    async def until_released(self) -> float:
        """Wall seconds until the last window was released, to a hundredth."""
        while self.counters.total("windows_released") < WINDOWS:
            await asyncio.sleep(0.01)
        return self.stopwatch.read()[0]


def product_plan(broker: str, topic: str, folder: Path) -> Plan:
    """A view with every guard on: bounding, placement of users, user field, event clock, three audiences.

    It has a name of its own: a topic belongs to one application.
    """
    file = folder / "app.yaml"
    text = _CONFIG.format(
        name=f"bench-{uuid.uuid4().hex[:8]}",
        broker=broker,
        folder=folder,
        topic=topic,
        partitions=PARTITIONS,
        items_per_user=ITEMS_PER_USER,
        size_ms=WINDOW_MS,
        start=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START_MS / 1000)),
    )
    file.write_text(text, encoding="utf-8")
    return load_plan(file)


async def start_worker(plan: Plan, make: Callable[..., TimedHost]) -> TimedHost:
    """Run a worker as `stream-dp worker` does, its host of a class of our own, and return when that has been made.

    A worker that fails ends the process, as it should.
    """
    made: asyncio.Future[TimedHost] = asyncio.get_running_loop().create_future()

    def host(*args: Any, **options: Any) -> TimedHost:
        made.set_result(make(*args, **options))
        return made.result()

    replace(assembly, "Host", host)
    life = asyncio.create_task(run_worker(plan, AGENTS, Options(backfill=True)))
    waiting: list[asyncio.Future[Any]] = [life, made]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if life.done():
        life.result()
    _lives.append(life)
    return made.result()


_lives: list[asyncio.Task[None]] = []


def replace(owner: object, name: str, value: object) -> None:
    """Give a module or a class something else for what it calls by a name."""
    setattr(owner, name, value)


async def product(broker: str, topic: str, events: int, folder: Path) -> dict[str, Any]:
    """Run a worker over all events of a topic and the watermarks among them, until every window is released."""
    plan = product_plan(broker, topic, folder)
    host = await start_worker(plan, partial(TimedHost, watched=topic, records=events + PARTITIONS * WINDOWS))
    wall, cpu = await host.until_counted()
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "released_s": await host.until_released(),
        "chunks": len(host.chunk_sizes),
        "longest_chunk": max(host.chunk_sizes),
        "counters": {line.replace(plan.name, "sales"): count for line, count in host.counters.lines().items()},
    }


async def reading(broker: str, topic: str, events: int, folder: Path) -> dict[str, Any]:
    """Run a worker that reads all events of a topic and drops them: as fast as any worker with this consumer can be."""
    records = events + PARTITIONS * WINDOWS
    make = partial(TimedHost, watched=topic, records=records, drops=True)
    host = await start_worker(product_plan(broker, topic, folder), make)
    wall, cpu = await host.until_counted()
    return {"wall_s": wall, "cpu_s": cpu}


class UnfencedWriter:
    """What commits cost without a fence: a send for each row, by one producer that serves every partition."""

    _producer: AIOKafkaProducer | None = None

    def __init__(self, tp: TP) -> None:
        self._tp = tp

    @classmethod
    async def claim(cls, cluster: Cluster, tp: TP) -> UnfencedWriter:
        """In place of `KafkaWriter.claim`."""
        if cls._producer is None:
            cls._producer = AIOKafkaProducer(
                **cluster.options,
                acks="all",
                max_batch_size=1 << 18,
                max_request_size=8 << 20,
                compression_type="lz4",
            )
            await cls._producer.start()
        return cls(tp)

    async def write(self, rows: Sequence[Row]) -> int:
        """Send the rows and wait for every acknowledgement."""
        assert self._producer is not None
        sent = [await self._producer.send(self._tp.topic, value, key, self._tp.partition) for key, value in rows]
        return max(int(record.offset) for record in await asyncio.gather(*sent))

    async def publish(self, messages: Sequence[Message], timestamp_ms: int | None = None) -> None:
        """Send the records and wait for every acknowledgement."""
        assert self._producer is not None
        sent = [await self._producer.send(m.topic, m.value, m.key, m.partition, timestamp_ms) for m in messages]
        await asyncio.gather(*sent)

    async def renew(self) -> None:
        """Nothing is claimed."""

    async def close(self) -> None:
        """The process ends."""


async def unfenced(broker: str, topic: str, events: int, folder: Path) -> dict[str, Any]:
    """The product as it is, but that anybody may write to its tables."""
    replace(kafka, "KafkaWriter", UnfencedWriter)
    return await product(broker, topic, events, folder)


async def plain(broker: str, topic: str, events: int, folder: Path) -> dict[str, Any]:
    """A Faust agent as its manual shows it: decode an event, add one to the table, once for each event.

    Under the settings that suit it: a stream buffer that never fills (a full one stalls it for a second), 20 ms of
    linger for the changelog, and the changelog is waited for once, at the end.
    """
    app = faust.App(
        f"plain-{uuid.uuid4().hex[:8]}",
        broker=f"kafka://{broker}",
        store="rocksdb://",
        datadir=str(folder),
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
    stopwatch, done = Stopwatch(), asyncio.Event()

    @app.agent(source)  # type: ignore[untyped-decorator]  # Faust is untyped
    async def count(stream: Any) -> None:
        left = events
        async for value in stream:
            if value is None:  # a watermark
                continue
            stopwatch.start()
            table[json.loads(value)["item"]] += 1
            left -= 1
            if left == 0:
                done.set()

    await app.start()
    await done.wait()
    while app.producer.buffer.size:
        await asyncio.sleep(0)
    await app.producer.flush()
    wall, cpu = stopwatch.read()
    return {"wall_s": wall, "cpu_s": cpu}


_SIDES = {"product": product, "unfenced": unfenced, "reading": reading, "plain": plain}


def main() -> None:
    """Run one side and print what it measured."""
    parser = argparse.ArgumentParser(description="One side of the benchmark.")
    parser.add_argument("side", choices=list(_SIDES))
    parser.add_argument("--broker", required=True, help="host:port")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="An empty folder for state.")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    side = _SIDES[asked.side]

    async def measure() -> None:
        print(json.dumps(await side(asked.broker, asked.topic, asked.events, asked.folder)), flush=True)
        os._exit(0)  # stopping Faust takes seconds, and nothing is left to be done

    uvloop.run(measure())


if __name__ == "__main__":
    main()
