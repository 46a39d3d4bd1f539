"""Worker processes of one application on a Kafka, and what they take: used by `age` and `scale`.

Events stand in their topic before a worker reads one: workers are stopped while they are written. What they take is
processor time of their processes, so that it says the same on a busy machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiokafka import AIOKafkaProducer
from rich.console import Console

from stream_dp.testing import Application, Event, SourceWriter, Watermark, application
from tests.support.processes import WorkerProcess
from tests.support.proxy import Proxy
from tests.support.views import start_of

TICK_SECONDS = 1.0
WITHIN_SECONDS = 1200.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
OPTIONS = ("--tick-seconds", str(TICK_SECONDS), "--session-seconds", "60", "--terse")

say = Console(stderr=True, highlight=False).print


@dataclass(frozen=True, slots=True)
class Reading:
    """What workers had taken at a moment."""

    at: float
    cpu_s: tuple[float, ...]
    """By worker."""

    def since(self, before: Reading) -> tuple[float, list[float]]:
        """Wall seconds since another reading, and the processor seconds of each worker."""
        return self.at - before.at, [now - then for now, then in zip(self.cpu_s, before.cpu_s, strict=True)]


class Wire(Proxy):
    """A network between workers and their broker: it takes a time each way, and counts what it carries."""

    def __init__(self, target: str, delay_s: float) -> None:
        self._delay_s = delay_s
        self._port = int(target.rpartition(":")[2])
        self.to_broker = self.from_broker = 0
        """Bytes."""
        super().__init__(target)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def arrive(data: bytes) -> None:
            if not writer.is_closing():
                writer.write(data)

        is_request = writer.get_extra_info("peername")[1] == self._port
        while data := await reader.read(1 << 16):
            self.to_broker += len(data) if is_request else 0
            self.from_broker += 0 if is_request else len(data)
            self._loop.call_later(self._delay_s, arrive, data)
        await asyncio.sleep(self._delay_s)
        writer.close()


class Fleet:
    """Workers of one application; every one has a folder of its own."""

    def __init__(self, app: Application, workers: int, wire: Wire | None = None, *options: str) -> None:
        self.app = app
        self.view = next(iter(app.plan.views.values()))
        self.start_ms = start_of(self.view)
        self.workers = [WorkerProcess(app, f"state{at}", *(options or OPTIONS), proxy=wire) for at in range(workers)]
        self._writer = SourceWriter(app.plan)
        self._published = 0

    async def start(self) -> tuple[float, Reading]:
        """Start all; wall seconds until an event of every partition is counted, and what they have taken by then."""
        await self.knock()
        begun = time.perf_counter()
        for worker in self.workers:
            worker.start()
            while not worker.runs():  # one after another, so that each gets its share
                worker.check()
                await asyncio.sleep(0.02)
        if len(self.workers) > 1:
            await self._until_shared()
            await self.knock()
        await self.until_counted()
        return time.perf_counter() - begun, self.read()

    async def _until_shared(self) -> None:
        """Wait until every worker has its share of the source."""
        source, least = self._writer.source, self.app.plan.partitions // len(self.workers)
        while True:
            owned = (await self.app.client.group(self.app.plan.id)).owned.values()
            shares = [sum(place.topic == source.topic for place in places) for places in owned]
            if len(shares) == len(self.workers) and min(shares) >= least:
                return
            await asyncio.sleep(0.2)

    def end(self) -> None:
        """Stop those that run."""
        for worker in self.workers:
            worker.end()

    def read(self) -> Reading:
        """What they have taken so far."""
        return Reading(time.perf_counter(), tuple(map(_cpu_s, self.pids)))

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, all of which run."""
        return [worker.pid for worker in self.workers if worker.pid is not None]

    def memory_mb(self) -> list[float]:
        """Resident memory of each."""
        return [_memory_mb(pid) for pid in self.pids]

    def total(self, counter: str) -> int:
        """A counter of all workers together, over all views."""
        lines = sum((worker.counters() for worker in self.workers), Counter())
        return sum(amount for line, amount in lines.items() if line.partition("{")[0] == counter)

    async def feed(self, events: Iterable[Event], watermark_ms: int | None = None) -> None:
        """Publish events, and a watermark behind them, while the workers stand still."""
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            await self._write(events)
            if watermark_ms is not None:
                await self.app.publish([Watermark(watermark_ms)])
                self._published += self.app.plan.partitions
        finally:
            for pid in self.pids:
                os.kill(pid, signal.SIGCONT)

    async def _write(self, events: Iterable[Event]) -> None:
        source = self._writer.source
        producer = AIOKafkaProducer(
            bootstrap_servers=self.app.plan.broker.address, compression_type="lz4", max_batch_size=1 << 18
        )
        async with producer:
            batches = [producer.create_batch() for _ in range(source.partitions)]
            places, sent = dict[str, int](), list[asyncio.Future[object]]()
            for event in events:
                user = event.user.encode()
                at = places.get(event.user)
                if at is None:
                    at = places[event.user] = self._writer.place(event.user)
                value = b'{"user":"%s","page":"%s","at":%d}' % (user, event.item.encode(), event.time_ms)
                if batches[at].append(key=user, value=value, timestamp=None) is None:
                    sent.append(await producer.send_batch(batches[at], source.topic, partition=at))
                    batches[at] = producer.create_batch()
                    batches[at].append(key=user, value=value, timestamp=None)
                self._published += 1
            sent += [await producer.send_batch(one, source.topic, partition=at) for at, one in enumerate(batches)]
            await asyncio.gather(*sent)

    async def knock(self, places: Iterable[int] | None = None) -> None:
        """Publish an event to every partition, or to some, of users who did nothing yet."""
        users, free = 0, set(range(self.app.plan.partitions) if places is None else places)
        events: list[Event] = []
        while free:
            user = f"k{self._published}-{users}"
            users += 1
            if (place := self._writer.place(user)) in free:
                free.remove(place)
                events.append(Event(user, "knock", self.start_ms))
        await self.app.publish(events)
        self._published += len(events)

    async def until_counted(self) -> Reading:
        """Wait until all that was published is counted."""
        return await self.until("events_consumed", self._published, "events_replayed")

    async def until(self, counter: str, amount: int, less: str = "") -> Reading:
        """Wait until a counter of all workers has come to an amount."""
        begun = told = time.perf_counter()
        while (found := self.total(counter) - (self.total(less) if less else 0)) < amount:
            now = time.perf_counter()
            for worker in self.workers:
                worker.check()
            if now - begun > WITHIN_SECONDS:
                raise TimeoutError(f"{counter} came to {found:,} of {amount:,} within {WITHIN_SECONDS:g} s")
            if now - told > 15:
                say(f"  {counter}: {found:,} of {amount:,} after {now - begun:.0f} s")
                told = now
            await asyncio.sleep(0.05)
        return self.read()


def _cpu_s(pid: int) -> float:
    """Processor seconds of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:"))) / 1e3


@asynccontextmanager
async def fleet(
    config: str, address: str, folder: Path, workers: int = 1, wire: Wire | None = None, *options: str
) -> AsyncIterator[Fleet]:
    """A fresh application, `NAME` in its text replaced; leaves no worker behind."""
    text = config.replace("NAME", f"bench{uuid.uuid4().hex[:8]}")
    async with application(text, folder, broker=address) as app:
        made = Fleet(app, workers, wire, *options)
        try:
            yield made
        finally:
            made.end()
