"""What a worker takes that is old: `python -m tests.bench.age`.

One worker and a local Kafka. A view with windows of a second is released from its beginning, thousands of windows that
are all retained, in ledger periods of 55 windows: 20,000 windows have as many periods as a year has days. In the end
the view gets a hundred editions, each with a definition of its own and a few windows. At every age it is measured

* what a start takes until a window is released, in processor seconds: beside its folder, and beside an empty one, which
  is filled from the changelogs; and the memory of the worker then;
* what a window takes. It must be the same however many were released, and however long the worker runs;
* what an operator's command takes to read the accounts.

Differences between ages are divided by what was added: that is the cost of a retained window and of an edition.
RocksDB's cache is small, so that the memory is that of the worker itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from aiokafka import TopicPartition
from rich.console import Console
from rich.table import Table

from stream_dp.operations.budgets import read_ledgers
from stream_dp.runtime.kafka.control_topic import read_accepted
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Event
from stream_dp.testing.application import plan_from
from tests.bench.fleet import Fleet, fleet, say
from tests.bench.throughput import broker, machine

SECOND = 1000
USERS = 10
"""Of a window: enough that its item is shown."""
BATCH = 500
"""Windows that are closed together."""
WINDOWS_OF_AN_EDITION = 5

CONFIG = """
name: NAME
broker: memory://
data_dir: ./state
key_file: ./secret.key
block_cache: 8MiB
release: {slot: 100ms, offset: 0s}
sources:
  visits: {topic: NAME.visits, partitions: 1, user: user, time: {field: at}}
ledgers:
  visitors: {population: visitors, epsilon: "1000", delta: "1/100", period: 55s, start: 2024-01-01T00:00:00Z}
ladders:
  standard: [{level: overview, epsilon: "1"}, {level: detailed, epsilon: "6"}]
audiences: {public: overview, internal: detailed}
views:
  NAME-pages:
    kind: histogram
    source: visits
    item: page
    items_per_user: LIMIT
    window: {size: 1s, start: 2024-01-01T00:00:00Z, grace: 0s, clock: event, max_ahead: 1h, idle: 1d}
    delta: "1e-6"
    ledger: visitors
    ladder: standard
    retention: 366d
    buckets: 1
"""


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a worker."""

    seconds: float
    cpu_s: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Age:
    """What an application of an age takes."""

    windows: int
    editions: int
    same_folder: Start
    empty_folder: Start
    rows: int
    """Of the changelogs, which the start beside an empty folder reads; fewer where they are compacted."""
    window_cpu_ms: float
    """Of the next windows after the start."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A thousand windows that a worker released one after another."""

    windows: int
    """How many there are now."""
    window_cpu_ms: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Accounts:
    """The operators' topic of accounts."""

    entries: int
    periods: int
    cpu_us_of_entry: float
    bytes_of_entry: float


@dataclass(frozen=True, slots=True)
class Found:
    """All that was measured."""

    ages: list[Age]
    batches: list[Batch]
    accounts: Accounts


class Old:
    """An application that gets old."""

    def __init__(self, one: Fleet) -> None:
        self._fleet = one
        self._view = one.view.name
        self.windows = self.editions = 0
        self.batches: list[Batch] = []

    async def release(self, windows: int) -> float:
        """Let so many more windows be released; processor ms of each."""
        one, done = self._fleet, 0
        begun = before = one.read()
        already = one.total("windows_released")
        while done < windows:
            first, more = self.windows, min(BATCH, windows - done)
            self.windows, done = self.windows + more, done + more
            await one.feed(self._events(first, self.windows), one.start_ms + self.windows * SECOND)
            now = await one.until("windows_released", already + done)
            if done % (2 * BATCH) == 0:
                cpu_ms = 1000 * now.since(before)[1][0] / (2 * BATCH)
                self.batches.append(Batch(self.windows, cpu_ms, one.memory_mb()[0]))
                before = now
        return 1000 * one.read().since(begun)[1][0] / windows

    def _events(self, first: int, last: int) -> Iterator[Event]:
        for window in range(first, last):
            for user in range(USERS):
                yield Event(f"u{user}", "/", self._fleet.start_ms + window * SECOND)

    async def start(self) -> Start:
        """Start the worker; wait until it has released one more window, so that all of it is loaded."""
        begun = time.perf_counter()
        already = self._fleet.total("windows_released")
        await self._fleet.start()
        self.windows += 1
        await self._fleet.feed((), self._fleet.start_ms + self.windows * SECOND)
        found = await self._fleet.until("windows_released", already + 1)
        return Start(time.perf_counter() - begun, found.cpu_s[0], self._fleet.memory_mb()[0])

    async def measure(self, more: int) -> Age:
        """Start it beside what it has, and beside an empty folder; release some windows."""
        (worker,), windows = self._fleet.workers, self.windows
        worker.terminate(60)
        same = await self.start()
        worker.terminate(60)
        shutil.rmtree(worker.data_dir)
        empty = await self.start()
        changelogs = Topics.of(self._fleet.app.plan).changelogs
        rows = sum((await self._fleet.app.client.ends([TopicPartition(name, 0) for name in changelogs])).values())
        found = Age(windows, self.editions, same, empty, rows, await self.release(more))
        say(f"{windows:,} windows, {self.editions} editions: {found}")
        return found

    async def edit(self, editions: int, folder: Path) -> None:
        """Post so many editions, each with another definition and a few windows of its own, and release these."""
        app, worker = self._fleet.app, self._fleet.workers[0]
        worker.terminate(60)
        text = (app.plan.key_file.parent / "application.yaml").read_text()
        for number in range(editions):
            changed = plan_from(text.replace("items_per_user: 1", f"items_per_user: {2 + number % 2}"), folder)
            first = self._fleet.start_ms + (self.windows + 1 + number * WINDOWS_OF_AN_EDITION) * SECOND
            await app.apply(changed, {self._view: first})
        self.editions += len(await read_accepted(app.plan, app.client)) - 1
        await self.start()
        await self.release(editions * WINDOWS_OF_AN_EDITION)


async def measure(address: str, folder: Path, ages: list[int], editions: int, more: int) -> Found:
    """Measure at each age, and once more with editions."""
    found: list[Age] = []
    async with fleet(CONFIG.replace("LIMIT", "1"), address, folder / "old") as one:
        old = Old(one)
        new = await old.start()
        say(f"a new worker: {new}")
        for windows in ages:
            if windows > old.windows:
                say(f"releasing {windows - old.windows:,} windows")
                await old.release(windows - old.windows)
            found.append(await old.measure(more))
        if editions:
            await old.edit(editions, folder / "edited")
            found.append(await old.measure(more))
        cpu_s = time.process_time()
        statements = await read_ledgers(one.app.plan, one.app.client)
        cpu_s = time.process_time() - cpu_s
        sizes = [len(value or b"") for _, value in await one.app.read(Topics.of(one.app.plan).accounts)]
    accounts = Accounts(len(sizes), len(statements), 1e6 * cpu_s / len(sizes), sum(sizes) / len(sizes))
    return Found(found, old.batches, accounts)


def show(found: Found) -> None:
    """Print the tables."""
    table = Table(title="Starts, processor seconds until a window is released; a window, processor ms")
    names = (
        "retained windows",
        "editions",
        "same folder",
        "MB",
        "empty folder",
        "rows to read",
        "MB",
        "ms of a window",
    )
    for name in names:
        table.add_column(name, justify="right")
    for age in found.ages:
        same, empty = age.same_folder, age.empty_folder
        cells = [f"{same.cpu_s:.2f}", f"{same.memory_mb:.0f}", f"{empty.cpu_s:.2f}", f"{age.rows:,}"]
        cells += [f"{empty.memory_mb:.0f}", f"{age.window_cpu_ms:.2f}"]
        table.add_row(f"{age.windows:,}", str(age.editions), *cells)
    console = Console()
    console.print(table)
    running = Table(title="One worker while it runs")
    for name in ("windows released", "ms of a window", "MB"):
        running.add_column(name, justify="right")
    for batch in found.batches:
        running.add_row(f"{batch.windows:,}", f"{batch.window_cpu_ms:.2f}", f"{batch.memory_mb:.0f}")
    console.print(running)
    new, *_ = old = [age for age in found.ages if not age.editions]
    if len(old) > 1:
        more, cpu_s = old[-1].windows - new.windows, old[-1].same_folder.cpu_s - new.same_folder.cpu_s
        console.print(f"A retained window takes {1e6 * cpu_s / more:.0f} us of a start beside its folder.")
        rows, cpu_s = old[-1].rows, old[-1].empty_folder.cpu_s - old[-1].same_folder.cpu_s
        console.print(f"A row of the changelogs takes {1e6 * cpu_s / rows:.1f} us of a start beside an empty folder.")
    edited = found.ages[-1]
    if edited.editions:
        cpu_s = edited.same_folder.cpu_s - old[-1].same_folder.cpu_s
        more_ms = edited.window_cpu_ms - old[-1].window_cpu_ms
        each = (
            f"{1e3 * cpu_s / edited.editions:.1f} ms of a start, {1e3 * more_ms / edited.editions:.1f} us of a window"
        )
        console.print(f"An edition takes {each}.")
    of = found.accounts
    console.print(
        f"{of.entries:,} entries of {of.bytes_of_entry:,.0f} bytes: {of.cpu_us_of_entry:.0f} us to read each."
    )
    console.print(machine(), highlight=False)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ages", type=int, nargs="*", default=[0, 5_000, 20_000], help="retained windows")
    parser.add_argument("--editions", type=int, default=100)
    parser.add_argument("--more", type=int, default=500, help="windows that are released at each age")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    asked = parser.parse_args()
    with broker() as address, TemporaryDirectory() as folder:
        found = asyncio.run(measure(address, Path(folder), asked.ages, asked.editions, asked.more))
    if asked.json:
        print(json.dumps({"machine": machine(), **asdict(found)}))
    else:
        show(found)


if __name__ == "__main__":
    main()
