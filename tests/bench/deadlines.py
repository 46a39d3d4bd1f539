"""Seconds from the close of a large window until it is published: `python -m tests.bench.deadlines`.

One worker with four partitions, on a local Kafka. Watermarks close windows of many keys, one after the other; the
records of two audiences are read as they come. Two sorts of windows: in one every key has two users and is shown to
both audiences, in many parts; in the other every key has one user and none is shown. Timed is the arrival of the last
part that the last audience gets,

* from the acknowledged watermark: that holds the wait for the next tick, and for the slot, a tenth of a second each;
* from the slot that the release was planned for: so much a `release: {offset: ...}` would have to be larger for it to
  leave in time.

The worker is a process of its own that also watches its event loop: the longest time in which that ran nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich.table import Table

from stream_dp.records.codec import outline
from stream_dp.releases.outboxes import Outboxes
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.worker import process
from stream_dp.testing import Event, application
from stream_dp.windows.effects import Leave
from tests.bench.figures import show
from tests.bench.recovery import CONFIG, ITEMS_PER_USER, PARTITIONS, Bench
from tests.bench.throughput import broker
from tests.broker import worker_process
from tests.support.processes import WorkerProcess

MINUTE_MS = 60_000
WITHIN_SECONDS = 600.0
WATCHED_SECONDS = 0.002
"""Between two looks of the worker at its event loop."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Windows of so many keys; times in ms, the median and the largest."""

    keys: int
    shown: bool
    windows: int
    parts: int
    from_watermark: tuple[float, float]
    from_slot: tuple[float, float]
    loop_held: tuple[float, float]
    collecting: float


@dataclass(slots=True)
class _Measured:
    parts: int
    from_watermark: float
    from_slot: float
    loop_held: float
    collecting: float


# -- the worker ---------------------------------------------------------------------------------------------------


class Watch:
    """What the worker says of itself: when its releases were to leave, and how long its event loop was held."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._begun = 0.0
        self.found: dict[str, Any] = {"slots": {}, "held": [], "collecting": []}

    def plan(self, leave: Leave) -> None:
        """Note the slot of a release."""
        self.found["slots"].setdefault(str(leave.start_ms), leave.slot_ms)

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Note what looking for garbage took."""
        if phase == "start":
            self._begun = time.perf_counter()
        elif (took := time.perf_counter() - self._begun) > 0.005:
            self.found["collecting"].append((time.time(), 1e3 * took, info["generation"]))

    async def run(self) -> None:
        """Look at the event loop again and again, and write down what was found."""
        written = 0.0
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(WATCHED_SECONDS)
            if (held := time.perf_counter() - begun - WATCHED_SECONDS) > 0.005:
                self.found["held"].append((time.time(), 1e3 * held))
            if time.perf_counter() - written > 0.2:
                written = time.perf_counter()
                fresh = self._file.with_suffix(".new")
                fresh.write_text(json.dumps(self.found))
                fresh.replace(self._file)


def work(file: Path) -> None:
    """Run the worker of the arguments that follow, and watch it."""
    watch, run, add = Watch(file), process.run_worker, Outboxes.add

    def noted(self: Outboxes, leave: Leave) -> None:
        watch.plan(leave)
        add(self, leave)

    async def watched(*args: Any, **options: Any) -> None:
        watching = asyncio.create_task(watch.run())
        await run(*args, **options)
        watching.cancel()

    Outboxes.add = noted  # type: ignore[method-assign]
    worker_process.run_worker = watched  # type: ignore[attr-defined]
    gc.callbacks.append(watch.collected)
    worker_process.main()


# -- the readers --------------------------------------------------------------------------------------------------


class Reader:
    """Reads the releases of all audiences, and tells when a window is there with all its parts."""

    def __init__(self, bench: Bench) -> None:
        topics = Topics.of(bench.app.plan)
        self._topics = [topics.release(bench.view.name, audience) for audience in bench.view.audiences]
        self._client = bench.app.client
        self._come: defaultdict[int, dict[tuple[str, int], int]] = defaultdict(dict)
        self._times: dict[int, tuple[float, int]] = {}
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for record in self._client.follow(self._topics):
            found = outline(record.value)
            if found is None or found.type != "release":  # a record of the view itself
                continue
            part = found.part or {"number": 1, "of": 1}
            come = self._come[found.window.start_ms]
            come[record.topic, part["number"]] = part["of"]
            of = {topic: parts for (topic, _), parts in come.items()}
            if len(of) == len(self._topics) and len(come) == sum(of.values()):
                self._times[found.window.start_ms] = time.time(), len(come)
                self._changed.set()

    async def arrival(self, start_ms: int, worker: WorkerProcess) -> tuple[float, int]:
        """When the window that starts at a time was there, and in how many parts."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while start_ms not in self._times:
                worker.check()
                self._changed.clear()
                if self._reading.done():
                    self._reading.result()
                await asyncio.wait([asyncio.create_task(self._changed.wait())], timeout=1)
        return self._times[start_ms]

    def end(self) -> None:
        """Read no more."""
        self._reading.cancel()


# -- windows ------------------------------------------------------------------------------------------------------


def events(keys: int, users: int, window: int, at_ms: int) -> Iterator[Event]:
    """Every key of a window has so many users, every user `ITEMS_PER_USER` keys."""
    for user in range(users):
        yield from (Event(f"w{window}-{user}-{key // ITEMS_PER_USER}", f"/p/{key}", at_ms) for key in range(keys))


async def measured(bench: Bench, reader: Reader, watch: Path, window: int, keys: int, users: int) -> _Measured:
    """Fill a window and close it."""
    start = bench.start_ms + window * MINUTE_MS
    await bench.feed(events(keys, users, window, start))
    await bench.until_counted(f"a window of {keys:,} keys")
    await asyncio.sleep(1)
    begun = time.time()
    await bench.close(start + MINUTE_MS)
    acknowledged = time.time()
    come, parts = await reader.arrival(start, bench.worker)
    await asyncio.sleep(1.5)  # erased and settled, and written down
    found = json.loads(await asyncio.to_thread(watch.read_text))
    slot = found["slots"][str(start)] / 1e3
    held = max((took for at, took in found["held"] if at > begun), default=0.0)
    collecting = max((took for at, took, _ in found["collecting"] if at > begun), default=0.0)
    return _Measured(parts, 1e3 * (come - acknowledged), 1e3 * (come - slot), held, collecting)


async def deadlines(address: str, folder: Path, wanted: Sequence[tuple[int, int]]) -> list[Figure]:
    """Windows of so many keys, so many of each; first of keys that are shown, then of others."""
    text = CONFIG.replace("PARTITIONS", str(PARTITIONS)).replace("LIMIT", str(ITEMS_PER_USER)).replace("SIZE", "1m")
    # Noise that keeps to itself: a key with two users is shown, and one with one user is not.
    text = text.replace('epsilon: "1"}', 'epsilon: "200"}').replace('epsilon: "6"}', 'epsilon: "300"}')
    text = text.replace('epsilon: "100"', 'epsilon: "1000000"')
    figures, window = list[Figure](), 1
    async with application(text.replace("NAME", f"bench{uuid.uuid4().hex[:8]}"), folder, broker=address) as app:
        bench = Bench(app)
        watch = folder / "watch.json"
        bench.worker = WorkerProcess(app, "state", command=["tests.bench.deadlines", "--worker", str(watch)])
        try:
            await bench.restart("a worker for deadlines", "knock")
            reader = Reader(bench)
            await measured(bench, reader, watch, 0, 1000, 2)  # a warming up, with the users that knocked
            for keys, windows in wanted:
                for users in (2, 1):
                    found = list[_Measured]()
                    for _ in range(windows):
                        found.append(await measured(bench, reader, watch, window, keys, users))
                        print(keys, users, found[-1], file=sys.stderr)
                        window += 1
                    figures.append(_figure(keys, users, found))
            reader.end()
            bench.worker.terminate(60)
        finally:
            bench.worker.end()
    return figures


def _figure(keys: int, users: int, found: Sequence[_Measured]) -> Figure:
    def both(values: Sequence[float]) -> tuple[float, float]:
        return median(values), max(values)

    return Figure(
        keys,
        users > 1,
        len(found),
        found[0].parts,
        both([one.from_watermark for one in found]),
        both([one.from_slot for one in found]),
        both([one.loop_held for one in found]),
        max(one.collecting for one in found),
    )


def _table(figures: Sequence[Figure]) -> Table:
    table = Table(title="ms until the last part is there, and that the loop was held: median, largest")
    for column in ("keys", "shown", "windows", "parts", "watermark", "slot", "loop", "gc"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in figures:
        pairs = (f"{a:,.0f}, {b:,.0f}" for a, b in (one.from_watermark, one.from_slot, one.loop_held))
        shown = "all" if one.shown else "none"
        table.add_row(f"{one.keys:,}", shown, str(one.windows), str(one.parts), *pairs, f"{one.collecting:,.0f}")
    return table


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--worker"]:
        file = Path(sys.argv.pop(2))
        sys.argv.pop(1)
        work(file)
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--hundred-thousands", type=int, default=20, help="windows of 10^5 keys of each sort [20]")
    parser.add_argument("--millions", type=int, default=5, help="windows of 10^6 keys of each sort [5]")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    asked = parser.parse_args()
    wanted = [(100_000, asked.hundred_thousands), (1_000_000, asked.millions)]
    with broker() as address, TemporaryDirectory() as folder:
        figures = asyncio.run(deadlines(address, Path(folder) / "deadlines", [one for one in wanted if one[1]]))
    show(figures, _table(figures), ["aiokafka", "msgspec", "numpy", "rocksdict"], as_json=asked.json)


if __name__ == "__main__":
    main()
