"""Where the time of the product's path goes: `python -m tests.bench.breakdown`.

Runs the worker on the events of `tests.bench.throughput`, with timers around its parts, and prints microseconds per
event. The timers themselves cost a few per cent, so the throughput of this run is not a result.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from stream_dp.runtime.faust import app as application
from stream_dp.runtime.faust import tables
from stream_dp.runtime.kafka.transactions import Row, Writer
from stream_dp.windows import counting
from stream_dp.windows.events import EventDecoder
from tests.bench.events import PARTITIONS, WINDOWS, events_of, produce, synthetic_baskets
from tests.bench.sides import TimedHost, product_plan, replace, start_worker
from tests.bench.throughput import broker


class Timers:
    """Sums and maxima of what the parts took, in seconds of wall time."""

    def __init__(self) -> None:
        self.total: dict[str, float] = defaultdict(float)
        self.longest: dict[str, float] = defaultdict(float)
        self.on = True

    @contextmanager
    def over(self, name: str) -> Iterator[None]:
        """Time a block, waits included."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - begun)

    def add(self, name: str, seconds: float) -> None:
        """Add a measured time."""
        if self.on:
            self.total[name] += seconds
            self.longest[name] = max(self.longest[name], seconds)

    def reset(self) -> None:
        """Forget what was measured so far."""
        self.total.clear()
        self.longest.clear()

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.over(name):
                return function(*args, **kwargs)

        return timed


TIMERS = Timers()


class TimedTable(tables.DurableTable):
    """The table with its commit timed: changelog and RocksDB."""

    async def commit(self, partition: int, rows: Sequence[Row], writer: Writer) -> None:
        """As the table's own."""
        with TIMERS.over(f"commit {self.name}"):
            await super().commit(partition, rows, writer)


class ProfiledHost(TimedHost):
    """The host of the agents with every effect of every agent timed."""

    async def carry_out(self, step: Any, table: Any, partition: int, *, threaded: bool = False) -> None:
        """As the host's own; the time between two effects is that of the step's code."""
        await super().carry_out(_timed(step, table.name, threaded), table, partition, threaded=threaded)


def _timed(step: Any, name: str, threaded: bool) -> Iterator[Any]:
    kind = f"step {name}" + (" (thread)" if threaded else "")
    while True:
        with TIMERS.over(kind):
            effect = next(step, None)
        if effect is None:
            return
        begun = time.perf_counter()
        yield effect
        TIMERS.add(f"  {name} {type(effect).__name__}", time.perf_counter() - begun)


async def _watch_loop() -> None:
    """How long the event loop was not to be had, longest first; the nap itself is taken off."""
    nap = 0.001
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(nap)
        TIMERS.add("event loop busy", max(0.0, time.perf_counter() - begun - 2 * nap))


def _thread_seconds() -> dict[str, float]:
    """CPU seconds of every Python thread, and of the rest of the process (RocksDB's own threads, ended threads)."""
    found: dict[str, float] = defaultdict(float)
    for thread in threading.enumerate():
        if thread.ident is not None:
            clock = time.pthread_getcpuclockid(thread.ident)
            found[thread.name.rstrip("0123456789")] += time.clock_gettime(clock)
    found["other"] = time.process_time() - sum(found.values())
    return dict(found)


def instrument() -> None:
    """Put timers around the parts of the path."""
    for owner, name, part in (
        (EventDecoder, "decode", "decode"),
        (counting, "bound_chunk", "bound"),
        (counting, "encode", "encode rows"),
    ):
        replace(owner, name, TIMERS.around(f"    {part}", getattr(owner, name)))
    replace(application, "DurableTable", TimedTable)
    begun = [0.0]

    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun[0] = time.perf_counter()
        else:
            TIMERS.add(f"gc generation {info['generation']}", time.perf_counter() - begun[0])

    gc.callbacks.append(collected)


async def profile(address: str, topic: str, events: int, folder: Path) -> None:
    """Run the product and print the breakdown."""
    instrument()
    plan = product_plan(address, topic, folder)
    run = await start_worker(plan, partial(ProfiledHost, watched=topic, records=events + PARTITIONS * WINDOWS))
    assert isinstance(run, ProfiledHost)
    lag = asyncio.create_task(_watch_loop())
    await run.begun.wait()
    TIMERS.reset()
    before = _thread_seconds()
    wall, cpu = await run.until_counted()
    TIMERS.on = False
    after = _thread_seconds()
    lag.cancel()
    released = await run.until_released()
    print(f"{events} events, {len(run.chunk_sizes)} chunks: {wall:.2f} s wall, {cpu:.2f} s CPU")
    print(f"released after {released:.2f} s")
    print(f"{'part':36s}{'us/event':>10s}{'longest ms':>12s}")
    for name in sorted(TIMERS.total, key=lambda part: (part.strip().split()[0], part)):
        print(f"{name:36s}{TIMERS.total[name] / events * 1e6:10.3f}{TIMERS.longest[name] * 1e3:12.1f}")
    for name in after:
        print(f"CPU of thread {name:22s}{(after[name] - before.get(name, 0.0)) / events * 1e6:10.3f}")


def main() -> None:
    """Write the events to a topic of their own and profile one worker that counts them."""
    parser = argparse.ArgumentParser(description="Where the time of the product's path goes.")
    parser.add_argument("--events", type=int, default=300_000, help="item events [default: 300000]")
    asked = parser.parse_args()
    events = events_of(synthetic_baskets(), asked.events)
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    with broker() as address, TemporaryDirectory() as folder:
        asyncio.run(produce(address, topic, events))
        uvloop.run(profile(address, topic, len(events), Path(folder)))


if __name__ == "__main__":
    main()
