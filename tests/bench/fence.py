"""Milliseconds per acknowledged commit of a partition, by what keeps other writers out: `python -m tests.bench.fence`.

A commit is what a chunk of events writes: a journal row of 100 kB that does not compress and a marker. Taken in turn,
so that the load of the machine meets all alike: *anybody*: two sends of a plain producer; *fenced*: one batch of
`KafkaWriter`, which the partition's leader refuses to former owners; *transaction*: the two sends as a transaction
of a producer with a transactional id, which Kafka recommends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

from aiokafka import AIOKafkaProducer
from faust.types import TP
from rich.table import Table

from stream_dp.config.access import Broker
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.topics import TopicSpec
from stream_dp.runtime.kafka.transactions import KafkaWriter, Row
from tests.bench.figures import show
from tests.bench.throughput import broker

JOURNAL_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One way to write, in milliseconds a commit."""

    way: str
    median_ms: float
    p99_ms: float
    ratio: float


async def measure(address: str, commits: int) -> list[Figure]:
    """Commit in each way in turn, so many times."""
    tp = TP(f"bench-{uuid.uuid4().hex[:8]}", 0)
    async with connect(Broker(f"kafka://{address}")) as client:
        await client.create([TopicSpec(tp.topic, 1)])
    rows: list[Row] = [(b"journal", os.urandom(JOURNAL_BYTES)), (b"marker", b"m" * 40)]
    plain = AIOKafkaProducer(bootstrap_servers=address, acks="all", compression_type="lz4")
    owner = AIOKafkaProducer(bootstrap_servers=address, transactional_id=f"{tp.topic}-tx", compression_type="lz4")
    writer = await KafkaWriter.claim(Cluster.of(Broker(f"kafka://{address}")), tp)

    async def anybody(producer: AIOKafkaProducer = plain) -> None:
        await asyncio.gather(*[await producer.send(tp.topic, value, key, tp.partition) for key, value in rows])

    async def fenced() -> None:
        await writer.write(rows)

    async def transaction() -> None:
        async with owner.transaction():
            await anybody(owner)

    ways: dict[str, Callable[[], Awaitable[None]]] = {"anybody": anybody, "fenced": fenced, "transaction": transaction}
    took: dict[str, list[float]] = {way: [] for way in ways}
    async with plain, owner:
        for turn in range(commits + 10):
            for way, commit in ways.items():
                begun = time.perf_counter()
                await commit()
                if turn >= 10:
                    took[way].append(1000 * (time.perf_counter() - begun))
    await writer.close()
    base = median(took["anybody"])
    return [
        Figure(way, median(times), sorted(times)[int(len(times) * 0.99)], median(times) / base)
        for way, times in took.items()
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--commits", type=int, default=300, help="commits of each way")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    asked = parser.parse_args()
    with broker() as address:
        figures = asyncio.run(measure(address, asked.commits))
    table = Table(title="Milliseconds per commit")
    for name in ("", "median", "99 %", "to anybody"):
        table.add_column(name, justify="left" if not name else "right")
    for one in figures:
        table.add_row(one.way, f"{one.median_ms:.1f}", f"{one.p99_ms:.1f}", f"{one.ratio:.2f}")
    show(figures, table, ["aiokafka"], as_json=asked.json)


if __name__ == "__main__":
    main()
