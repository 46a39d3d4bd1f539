"""Windows a second that one ledger releases: `python -m tests.bench.many_windows`.

Views with windows of one second share a ledger, so one partition charges, draws and stores all of them. The engine, the
table and the outboxes are those of a worker: rows go to a changelog and, acknowledged, into RocksDB; counts are erased
from the files; records leave at their slot. What is timed is a backlog of windows with a few keys each.

By default a local Kafka acknowledges. With `--log memory` nothing is sent, so that the rest is seen alone. `--kept`
stores so many windows beforehand: what a window takes must not depend on them.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from uuid import uuid4

import rocksdict
from faust.types import TP
from rich.table import Table

from stream_dp.config.access import Broker
from stream_dp.config.plan import Plan
from stream_dp.exact.bits import system_entropy
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.outboxes import Outboxes
from stream_dp.runtime.factory import Factory, Settled
from stream_dp.runtime.faust.delivery import next_effects
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.list_topics import Lists
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.runtime.kafka.transactions import KafkaWriter, Row
from stream_dp.runtime.storage import Database, open_database
from stream_dp.testing.application import plan_from
from stream_dp.windows.effects import Commit, Erase, Leave, Message, Publish, Send, Step
from stream_dp.windows.encoding import encode
from stream_dp.windows.merging import MergedBucket
from tests.bench.figures import show
from tests.bench.throughput import broker

T = TypeVar("T")
KEYS = {f"page-{number}": 40 + number for number in range(3)}
HEAD = """\
name: many
broker: memory://
data_dir: state
key_file: key
sources:
  visits: {topic: visits, partitions: 1}
ledgers:
  visitors: {population: visitors, epsilon: "1000000", delta: "1/5", period: 24h}
ladders:
  one: [{level: fine, epsilon: "1"}]
audiences: {public: fine}
release: {slot: 1s, offset: 5s}
views:
"""
VIEW = """\
  view%d:
    source: visits
    item: page
    kind: histogram
    items_per_user: 1
    window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}
    delta: "1/100000000"
    ledger: visitors
    ladder: one
    retention: 24h
    buckets: 1
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A backlog that was released."""

    kept: int
    windows: int
    windows_a_second: float
    cpu_ms: float
    computing_ms: float
    acknowledging_ms: float
    storing_ms: float
    erasing_ms: float


@dataclass
class Bench:
    """The table of the releases of one partition, and its writer; times by what they were spent on."""

    database: Database
    writer: KafkaWriter | None
    took: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    outboxes: Outboxes = field(default_factory=Outboxes)

    def get(self, key: bytes) -> bytes | None:
        return self.database.get(key)

    def scan(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(last)
        return self.database.items(from_key=first, read_opt=options)

    async def carry_out(self, step: Step) -> None:
        """Do what a step asks for, as `Carrier`."""
        erased: list[tuple[bytes, bytes]] = []
        while True:
            for effect in await self._timed("computing", asyncio.to_thread(next_effects, step)):
                if erased and not isinstance(effect, Erase):
                    await self._timed("erasing", asyncio.to_thread(self.database.erase, erased))
                    erased = []
                match effect:
                    case None:
                        return
                    case Commit(rows):
                        await self._timed("acknowledging", self._write(rows))
                        begun = time.perf_counter()
                        self.database.write(rows)
                        self.took["storing"] += time.perf_counter() - begun
                    case Leave():
                        self.outboxes.add(effect)
                    case Publish(messages) | Send(messages):
                        await self._timed("acknowledging", self._send(messages))
                    case Erase(first, last):
                        erased.append((first, last))

    async def _timed(self, what: str, work: Awaitable[T]) -> T:
        begun = time.perf_counter()
        try:
            return await work
        finally:
            self.took[what] += time.perf_counter() - begun

    async def _write(self, rows: Sequence[Row]) -> None:
        if self.writer is not None:
            await self.writer.write(rows)

    async def _send(self, messages: Sequence[Message]) -> None:
        if self.writer is not None and messages:
            await self.writer.publish(messages)


async def release(bench: Bench, engine: ReleaseEngine, views: int, seconds: range) -> None:
    """Release the windows of some seconds, and let them leave."""
    values = [
        encode(MergedBucket(f"view{number}", 1000 * at, 0, 1000 * at + 1000, 0, 1, KEYS))
        for at in seconds
        for number in range(views)
    ]
    for first in range(0, len(values), views):
        await bench.carry_out(engine.buckets(values[first : first + views]))
    while engine.waits:
        await bench.carry_out(engine.due())
    while (slot := bench.outboxes.next_ms) is not None:
        await bench.carry_out(bench.outboxes.publish(slot, bench))
        while bench.outboxes.published:
            await bench.carry_out(bench.outboxes.settle(bench))


async def measure(plan: Plan, folder: Path, address: str | None, seconds: int, kept: Sequence[int]) -> list[Figure]:
    """Release backlogs of so many seconds, beside more and more windows that are kept."""
    topics, views, run = Topics.of(plan), len(plan.views), uuid4().hex[:8]
    settled = Settled(plan.begun(dict.fromkeys(plan.views, 0)), Lists({}))
    factory = Factory(
        settled, keys=KeyRing.of(bytes(32)), entropy=system_entropy, cache=(cache := rocksdict.Cache(64 << 20))
    )
    writer = None
    if address is not None:
        reached = Broker(f"kafka://{address}")
        names = [topics.accounts, topics.merged, *(topics.release(name, "public") for name in plan.views)]
        async with connect(reached) as client:
            await client.create([TopicSpec(name, 1) for name in [*names, f"bench-{run}"]])
        writer = await KafkaWriter.claim(Cluster.of(reached), TP(f"bench-{run}", 0))
    bench = Bench(open_database(folder / "table", cache), writer)
    engine = factory.engine(topics.ledger_partition(plan.views["view0"].ledger))
    await bench.carry_out(engine.load(bench, now_ms=0))
    at, found = 0, []
    await release(bench, engine, views, range(at, at := at + 1))  # whatever is done once in a process
    for before in kept:
        bench.writer = None
        await release(bench, engine, views, range(at, at := max(at, before // views)))
        bench.writer = writer
        bench.took.clear()
        begun, cpu = time.perf_counter(), time.process_time()
        await release(bench, engine, views, range(at, at + seconds))
        wall, cpu, windows = time.perf_counter() - begun, time.process_time() - cpu, seconds * views
        each = {name: 1000 * took / windows for name, took in bench.took.items()}
        parts = [each.get(name, 0.0) for name in ("computing", "acknowledging", "storing", "erasing")]
        found.append(Figure(at * views, windows, windows / wall, 1000 * cpu / windows, *parts))
        at += seconds
    if writer is not None:
        await writer.close()
    return found


def run(views: int, seconds: int, kept: Sequence[int], *, kafka: bool) -> list[Figure]:
    """Measure on a local Kafka, or without a log."""
    with TemporaryDirectory() as folder:
        plan = plan_from(HEAD + "".join(VIEW % number for number in range(views)), Path(folder))
        if not kafka:
            return asyncio.run(measure(plan, Path(folder), None, seconds, kept))
        with broker() as address:
            return asyncio.run(measure(plan, Path(folder), address, seconds, kept))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=10, help="of windows in a backlog")
    parser.add_argument("--kept", type=int, nargs="*", default=[0], help="windows that are stored beforehand")
    parser.add_argument("--log", choices=["kafka", "memory"], default="kafka")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    asked = parser.parse_args()
    found = run(asked.views, asked.seconds, asked.kept, kafka=asked.log == "kafka")
    table = Table(title=f"{asked.views} views of one second on one ledger; ms are those of one window")
    for name in Figure.__dataclass_fields__:
        table.add_column(name.replace("_", " "), justify="right")
    for one in found:
        table.add_row(*(f"{getattr(one, name):,.2f}".removesuffix(".00") for name in Figure.__dataclass_fields__))
    show(found, table, ["aiokafka", "rocksdict"], as_json=asked.json)


if __name__ == "__main__":
    main()
