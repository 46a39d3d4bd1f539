"""What a restart costs, on a real local broker: `python -m tests.bench.recovery`.

One worker, four partitions. An open window is filled with contributions; the worker is killed and started again, once
on its folder and once on an empty one. Timed is the way from the start of the process to the first event of each
partition that is counted. What a restart takes when nothing is stored is taken off before contributions per second are
worked out. Memory is the resident set of the process above that of a worker that has counted nothing.

Only what the tests share is used, so the file runs on another checkout as well, copied out of this one:

    python -m tests.bench.recovery --json > after.json
    PYTHONPATH=OTHER_CHECKOUT python recovery.py --json > before.json
    python -m tests.bench.recovery --show before.json after.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from aiokafka import AIOKafkaProducer
from rich.console import Console
from rich.table import Table

from stream_dp.testing import Application, Event, SourceWriter, Watermark, application
from tests.bench.throughput import broker
from tests.support.processes import WorkerProcess
from tests.support.views import start_of

PARTITIONS = 4
ITEMS_PER_USER = 10
VOCABULARY = 10_000
"""Items of the open window: popular enough that its counts are small beside its contributions."""
AT_ONCE = 100_000
"""Events that are published before the broker is waited for."""
WITHIN_SECONDS = 3600.0

CONFIG = """
name: NAME
broker: memory://
data_dir: ./state
key_file: ./secret.key
release: {slot: 100ms, offset: 0s}
sources:
  visits: {topic: NAME.visits, partitions: PARTITIONS, user: user, time: {field: at}}
ledgers:
  visitors: {population: visitors, epsilon: "100", delta: "1/100", period: 366d}
ladders:
  standard: [{level: overview, epsilon: "1"}, {level: detailed, epsilon: "6"}]
audiences: {public: overview, internal: detailed}
views:
  NAME-pages:
    kind: histogram
    source: visits
    item: page
    items_per_user: LIMIT
    window: {size: SIZE, start: 2024-01-01T00:00:00Z, grace: 0s, clock: event, max_ahead: 1h, idle: 1d}
    delta: "1e-6"
    ledger: visitors
    ladder: standard
    retention: 1d
    buckets: 16
"""

_say = Console(stderr=True, highlight=False).print


class Bench:
    """An application, its one worker, and what was published to it."""

    def __init__(self, app: Application) -> None:
        self.app = app
        (self.view,) = app.plan.views.values()
        self.start_ms = start_of(self.view)
        self.worker = WorkerProcess(app, "state")
        self._writer = SourceWriter(app.plan)
        self._published = 0

    @property
    def counted(self) -> int:
        """Records whose effect was counted since the first start."""
        counters = self.worker.counters()
        return counters["events_consumed"] - counters["events_replayed"]

    async def feed(self, events: Iterator[Event]) -> None:
        """Publish events, in batches, each in the partition of its user."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.app.plan.broker.address,
            compression_type="lz4",
            max_batch_size=1 << 18,
            max_request_size=8 << 20,
        )
        topic, places = self._writer.source.topic, dict[str, int]()
        batches = [producer.create_batch() for _ in range(PARTITIONS)]
        async with producer:
            sent: list[asyncio.Future[object]] = []
            for number, event in enumerate(events, 1):
                at = places.setdefault(event.user, -1)
                if at < 0:
                    at = places[event.user] = self._writer.place(event.user)
                value = b'{"user":"%s","page":"%s","at":%d}' % (
                    event.user.encode(),
                    event.item.encode(),
                    event.time_ms,
                )
                row = {"key": event.user.encode(), "value": value, "timestamp": None}
                if batches[at].append(**row) is None:
                    sent.append(await producer.send_batch(batches[at], topic, partition=at))
                    batches[at] = producer.create_batch()
                    batches[at].append(**row)
                self._published += 1
                if number % AT_ONCE == 0:
                    await asyncio.gather(*sent)
                    sent.clear()
            for at, batch in enumerate(batches):
                sent.append(await producer.send_batch(batch, topic, partition=at))
            await asyncio.gather(*sent)

    async def knock(self, item: str) -> None:
        """Publish an event to every partition, of users who did nothing yet."""
        users = (f"k{self._published}-{number}" for number in range(1000))
        knocking = {self._writer.place(user): Event(user, item, self.start_ms) for user in users}
        await self.app.publish([knocking[partition] for partition in range(PARTITIONS)])
        self._published += PARTITIONS

    async def close(self, end_ms: int) -> None:
        """Close the windows that end by a time; returns when its watermarks are acknowledged."""
        await self.app.publish([Watermark(end_ms)])
        self._published += PARTITIONS

    async def until_counted(self, what: str) -> float:
        """Wait until everything that was published is counted; seconds since now."""
        begun = told = time.perf_counter()
        while self.counted < self._published:
            self.worker.check()
            now = time.perf_counter()
            if now - begun > WITHIN_SECONDS:
                raise TimeoutError(f"{what}: not within {WITHIN_SECONDS:g} s")
            if now - told > 5:
                _say(f"  {what}: {self.counted:,} of {self._published:,} records, {now - begun:.0f} s")
                told = now
            await asyncio.sleep(0.02)
        return time.perf_counter() - begun

    async def restart(self, what: str, item: str) -> float:
        """Start the worker with an event waiting in every partition; seconds until they are counted."""
        await self.knock(item)
        self.worker.start()
        took = await self.until_counted(what)
        _say(f"{what}: {took:.1f} s, {self.memory():.0f} MB")
        return took

    def cpu(self) -> float:
        """CPU seconds of the worker since its start."""
        user, system = Path(f"/proc/{self.worker.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def memory(self, field: str = "VmRSS") -> float:
        """Memory of the worker, MB."""
        lines = Path(f"/proc/{self.worker.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith(f"{field}:"))) / 1e3


@asynccontextmanager
async def bench(address: str, folder: Path, size: str) -> AsyncIterator[Bench]:
    """A fresh application with windows of a size; leaves no worker behind."""
    text = CONFIG.replace("PARTITIONS", str(PARTITIONS)).replace("LIMIT", str(ITEMS_PER_USER)).replace("SIZE", size)
    async with application(text.replace("NAME", f"bench{uuid.uuid4().hex[:8]}"), folder, broker=address) as app:
        made = Bench(app)
        try:
            yield made
        finally:
            made.worker.end()


async def recovery(address: str, folder: Path, contributions: int) -> dict[str, float]:
    """Restarts beside an open window of so many contributions."""
    async with bench(address, folder, "1d") as one:
        await one.restart("the first start, which creates topics", "first")
        one.worker.terminate(60)
        nothing_s = await one.restart("restart with nothing stored", "nothing")
        nothing_cpu_s = one.cpu()
        await asyncio.sleep(3)
        empty = one.memory()
        half = contributions // 2
        users = -(-half // ITEMS_PER_USER)
        events = (
            Event(
                f"u{at % users + users * (at >= half)}",
                f"/page/{(at % users * 31 + at // users * 7919) % VOCABULARY}",
                one.start_ms + at % 60_000,
            )
            for at in range(2 * half)
        )
        begun = time.perf_counter()
        memory = [empty]
        for _ in range(2):
            await one.feed(islice(events, half))
            await one.until_counted("counting")
            memory.append(one.memory())
        counting_s = time.perf_counter() - begun
        await asyncio.sleep(3)
        before = one.memory()
        _say(f"{contributions:,} contributions counted: {before:.0f} MB")
        found = {
            "contributions": contributions,
            "published and counted, contributions/s": contributions / counting_s,
            "restart to first event counted, nothing stored, s": nothing_s,
            "the same, CPU s": nothing_cpu_s,
            "memory before, bytes a contribution": 1e6 * (before - empty) / contributions,
            "of the second half alone, whose users are others": 1e6 * (memory[2] - memory[1]) / half,
        }
        for words, fresh in (("same folder", False), ("empty folder", True)):
            one.worker.signal(signal.SIGKILL)
            one.worker.wait()
            if fresh:
                shutil.rmtree(one.worker.data_dir)
            took = await one.restart(f"restart, {words}", f"knock/{words}")
            cpu_s = one.cpu()
            await asyncio.sleep(3)
            after = one.memory()
            found |= {
                f"restart to first event counted, {words}, s": took,
                f"the same, {words}, CPU s": cpu_s,
                f"recovery, {words}, contributions/s": contributions / max(0.001, took - nothing_s),
                f"memory after, {words}, bytes a contribution": 1e6 * (after - empty) / contributions,
                f"memory after to before, {words}, whole process": after / before,
                f"memory at its peak to before, {words}": one.memory("VmHWM") / before,
            }
        one.worker.terminate(60)
    return found


def show(columns: dict[str, dict[str, float]]) -> None:
    """Print figures, or several of them side by side."""
    table = Table(title="Restarts")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    for line in dict.fromkeys(line for figures in columns.values() for line in figures):
        table.add_row(line, *(f"{figures[line]:,.4g}" if line in figures else "-" for figures in columns.values()))
    Console().print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--contributions", type=int, default=500_000, help="of the open window [default: 500000]")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument(
        "--show", type=Path, nargs="+", metavar="FILE", help="print figures of such files, side by side"
    )
    asked = parser.parse_args()
    if asked.show:
        show({file.stem: json.loads(file.read_text()) for file in asked.show})
        return
    found = {"load of the machine": os.getloadavg()[0]}
    with broker() as address, TemporaryDirectory() as folder:
        found |= asyncio.run(recovery(address, Path(folder) / "recovery", asked.contributions))
    found["load of the machine afterwards"] = os.getloadavg()[0]
    if asked.json:
        print(json.dumps(found))
    else:
        show({"": found})


if __name__ == "__main__":
    main()
