"""What grows with what: `python -m tests.bench.scale`.

Worker processes and a local Kafka. From a base (one worker, 4 partitions, one view, ten windows, two audiences) one
thing at a time is made larger: workers, partitions, views, open windows, audiences. Each is a fresh application, of
which it is measured, in processor seconds of the workers:

* the start, until an event of every partition is counted;
* what it takes while nothing comes: a tick a second for each partition;
* counting the events, which stand in the topic before a worker reads one;
* releasing windows that a watermark closes together.

Wall times are given as well, but workers, broker and bench share the cores of one machine: what several machines do has
to be derived from the processor time of the busiest worker. `network` puts a wire between worker and broker that takes
some milliseconds each way, and says how many bytes an event takes on it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from stream_dp.testing import Event
from tests.bench.fleet import Fleet, Wire, fleet, say
from tests.bench.throughput import broker, machine

SECOND = 1000
IDLE_SECONDS = 6
ITEMS_PER_USER = 10
VOCABULARY = 1000
_WIDTH = 150

HEAD = """
name: NAME
broker: memory://
data_dir: ./state
key_file: ./secret.key
release: {{slot: 100ms, offset: 0s}}
sources:
  visits: {{topic: NAME.visits, partitions: {partitions}, user: user, time: {{field: at}}}}
ledgers:
  visitors: {{population: visitors, epsilon: "10000000", delta: "1/2", period: 366d}}
ladders:
  standard: [{{level: overview, epsilon: "1"}}, {{level: detailed, epsilon: "6"}}]
audiences: {{{audiences}}}
views:
"""
VIEW = """
  NAME-pages{number}:
    kind: histogram
    source: visits
    item: page
    items_per_user: {items}
    window: {{size: 1s, start: 2024-01-01T00:00:00Z, grace: 0s, clock: event, max_ahead: 1d, idle: 1d}}
    delta: "1e-9"
    ledger: visitors
    ladder: standard
    retention: 1d
    buckets: 1
"""


@dataclass(frozen=True, slots=True)
class Case:
    """An application and what is done to it."""

    workers: int = 1
    partitions: int = 4
    views: int = 1
    windows: int = 10
    audiences: int = 2
    events: int = 100_000
    scattered: bool = False
    """True if every event is of another open window than the one before it; else they are in the order of time."""
    released: int = 10
    """Windows that are closed together and released."""
    delay_ms: int | None = None
    """Of a network between worker and broker, each way; None: they reach each other directly."""

    @property
    def config(self) -> str:
        """The configuration file."""
        audiences = ", ".join(f"reader{at}: {('overview', 'detailed')[at % 2]}" for at in range(self.audiences))
        head = HEAD.format(partitions=self.partitions, audiences=audiences)
        return head + "".join(VIEW.format(number=at, items=ITEMS_PER_USER) for at in range(self.views))

    def made_events(self, start_ms: int) -> Iterator[Event]:
        """Events of users with ten items each in a window."""
        for at in range(self.events):
            window = at % self.windows if self.scattered else at * self.windows // self.events
            user = at // self.windows if self.scattered else at
            yield Event(f"u{user // 10 % 50_000}", f"/p{at * at % 7919 % VOCABULARY}", start_ms + window * SECOND)


@dataclass(frozen=True, slots=True)
class Figure:
    """What a case takes; processor seconds are those of all workers together."""

    case: Case
    start_cpu_s: float
    start_s: float
    idle_cpu_ms: float
    """Of a second in which nothing comes."""
    counting_cpu_s: float
    """For a million events, less what the same time takes in which nothing comes."""
    busiest: float
    """Share of that which the busiest worker took."""
    events_a_second: float
    memory_mb: float
    """Of the largest worker, with the windows open."""
    window_cpu_ms: float
    """To close and release one window of one view to all audiences, less the same."""
    windows_a_second: float
    bytes_read: float
    """From the broker for one event, as it is compressed; 0 without a network."""
    bytes_written: float


async def measure(case: Case, address: str, folder: Path) -> Figure:
    """Measure one case."""
    wire = None if case.delay_ms is None else Wire(address, case.delay_ms / 1000)
    async with fleet(case.config, address, folder, case.workers, wire) as one:
        start_s, started = await one.start()
        await asyncio.sleep(2)
        await _until_calm(one)
        begun = one.read()
        await asyncio.sleep(IDLE_SECONDS)
        idle_s, idle = one.read().since(begun)
        await one.feed(case.made_events(one.start_ms))
        begun, carried = one.read(), _carried(wire)
        counting_s, counting = (await one.until_counted()).since(begun)
        read, written = (now - then for now, then in zip(_carried(wire), carried, strict=True))
        memory, windows = max(one.memory_mb()), case.released * case.views
        begun = one.read()
        await one.feed((), one.start_ms + case.released * SECOND)
        releasing_s, releasing = (await one.until("windows_released", windows)).since(begun)
    million, resting = case.events / 1e6, sum(idle) / idle_s
    return Figure(
        case,
        sum(started.cpu_s),
        start_s,
        1000 * resting,
        (sum(counting) - resting * counting_s) / million,
        max(counting) / sum(counting),
        case.events / counting_s,
        memory,
        1000 * (sum(releasing) - resting * releasing_s) / windows,
        windows / releasing_s,
        read / case.events,
        written / case.events,
    )


async def _until_calm(one: Fleet) -> None:
    """Wait until the workers take less than half a core: after a start they look at every topic, a minute at most."""
    for _ in range(30):
        begun = one.read()
        await asyncio.sleep(2)
        seconds, taken = one.read().since(begun)
        if sum(taken) < seconds / 2:
            return


def _carried(wire: Wire | None) -> tuple[int, int]:
    """Bytes that workers have read and written."""
    return (0, 0) if wire is None else (wire.from_broker, wire.to_broker)


BASE = Case()
CASES = {
    "workers": [replace(BASE, workers=count, partitions=16, events=400_000) for count in (1, 2, 4)],
    "partitions": [replace(BASE, partitions=count) for count in (4, 16, 64)],
    "views": [replace(BASE, views=count, events=20_000 if count == 100 else 100_000) for count in (1, 10, 100)],
    "windows": [
        replace(BASE, windows=count, scattered=scattered)
        for scattered in (False, True)
        for count in (10, 1_000, 10_000)
    ],
    "closing": [
        replace(BASE, partitions=partitions, windows=200, released=released)
        for partitions in (4, 64)
        for released in (1, 20, 200)
    ],
    "audiences": [replace(BASE, audiences=count) for count in (1, 10, 100, 1000)],
    "network": [replace(BASE, events=400_000, delay_ms=delay_ms) for delay_ms in (0, 1, 5)],
}
COLUMNS = {
    "start, CPU s": "start_cpu_s",
    "idle, CPU ms/s": "idle_cpu_ms",
    "million events, CPU s": "counting_cpu_s",
    "busiest": "busiest",
    "events/s": "events_a_second",
    "MB": "memory_mb",
    "window, CPU ms": "window_cpu_ms",
    "windows/s": "windows_a_second",
    "bytes read": "bytes_read",
    "written": "bytes_written",
}


def show(what: str, figures: Sequence[Figure]) -> None:
    """Print the table of what was made larger; a case is named by what is not as in the base."""
    table = Table(title=what)
    table.add_column("")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for figure in figures:
        base, case = asdict(BASE), asdict(figure.case)
        named = ", ".join(f"{name} {value}" for name, value in case.items() if value != base[name]) or "base"
        cells = [getattr(figure, field) for field in COLUMNS.values()]
        table.add_row(named, *(f"{cell:,.0f}" if cell >= 100 else f"{cell:.3g}" for cell in cells))
    Console(width=max(_WIDTH, Console().width)).print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", choices=CASES, nargs="*", default=list(CASES), help="what is made larger")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)  # a topic that is new has no leader yet
    found: dict[str, list[Figure]] = {}
    with broker() as address, TemporaryDirectory() as folder:
        for what in asked.only:
            for at, case in enumerate(CASES[what]):
                say(f"{what}: {case}")
                figure = asyncio.run(measure(case, address, Path(folder) / f"{what}{at}"))
                say(f"  {figure}")
                found.setdefault(what, []).append(figure)
    if asked.json:
        figures = {what: [asdict(one) for one in some] for what, some in found.items()}
        print(json.dumps({"machine": machine(), **figures}))
        return
    for what, some in found.items():
        show(what, some)
    say(machine())


if __name__ == "__main__":
    main()
