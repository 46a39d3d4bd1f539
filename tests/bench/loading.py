"""Time from the start of a gateway's reader to its readiness, beside reading alone: `python -m tests.bench.loading`.

A topic of a local Kafka is filled with releases of different windows. Then, in turn, a plain aiokafka consumer reads it
and does nothing, and the reader of `stream-dp serve` loads it into a board.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from rich.console import Console

from stream_dp.config.planner import load_plan
from stream_dp.gateway.boards import Boards
from stream_dp.gateway.reader import BoardReader
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from tests.bench.gateway import record
from tests.bench.throughput import broker
from tests.support.published import VISITS


async def read(address: str, topic: str, records: int) -> float:
    """Return the seconds that a plain consumer takes to read all records."""
    began, consumer = time.monotonic(), AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        seen = 0
        while seen < records:
            seen += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
    finally:
        await consumer.stop()
    return time.monotonic() - began


async def measure(address: str, folder: Path, records: int, size: int, runs: int) -> list[tuple[float, float]]:
    """Fill a topic, and return the seconds of a plain consumer and of the reader, run by run."""
    file = folder / "visits.yaml"
    file.write_text(VISITS.replace("memory://", f"kafka://{address}"))
    plan = load_plan(file)
    topic = Topics.of(plan).release("pages", "public")
    async with connect(plan.broker) as client:
        await client.create([TopicSpec(topic, 1)])
    producer = AIOKafkaProducer(bootstrap_servers=address, linger_ms=20)
    await producer.start()
    for day in range(records):
        key, value = record(plan, day, size)
        sent = await producer.send(topic, value, key=key, partition=0)
    await producer.flush()
    await sent
    await producer.stop()
    found = []
    for _ in range(runs):
        plain = await read(address, topic, records)
        boards, began = Boards(memory_bytes=8 << 30), time.monotonic()
        reading = asyncio.create_task(BoardReader(plan, boards, lambda: connect(plan.broker)).run())
        while not boards.ready:
            await asyncio.sleep(0.01)
        found.append((plain, time.monotonic() - began))
        assert [len(board.cells) for board in boards] == [records]
        reading.cancel()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="how many are stored (default: 100000)")
    parser.add_argument("--bytes", type=int, default=2600, help="about the size of one (default: 2600)")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    with broker() as address, TemporaryDirectory() as folder:
        found = asyncio.run(
            measure(address.removeprefix("kafka://"), Path(folder), asked.records, asked.bytes, asked.runs)
        )
    for plain, loaded in found:
        Console(highlight=False).print(
            f"{asked.records} records: plain consumer {plain:.1f} s, gateway ready after {loaded:.1f} s"
        )


if __name__ == "__main__":
    main()
