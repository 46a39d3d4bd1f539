"""What a takeover costs, on a real local broker: `python -m tests.bench.takeover`.

Two workers share four partitions. One of them is given state, in the partitions that it has, and is killed with
`kill -9`; timed is how long the other one takes until it has counted an event of each of these partitions. The session
of the dead worker is taken off: for so long the group waits for it, whatever its state. The state is one of

* `nothing`: some rows;
* `retained`: rows of the releases that no start reads, as the sealed tables of retained windows are. They are written
  to the changelog directly and do not compress; the worker that is killed does not have them, and does not need them;
* `journals`: contributions to an open window, which whoever takes over has to load into memory. An event counts as 20
  bytes of it.

`--standbys 1` lets the other worker keep copies: before the kill it has read what there is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from aiokafka import AIOKafkaProducer
from rich.console import Console
from rich.table import Table

from stream_dp.runtime.faust.membership import instance_id
from stream_dp.runtime.kafka.topics import RELEASES, Topics
from stream_dp.testing import Event, SourceWriter
from tests.bench.fleet import Fleet, fleet, say
from tests.bench.recovery import CONFIG, ITEMS_PER_USER, PARTITIONS, VOCABULARY
from tests.bench.throughput import broker, machine
from tests.support.processes import SESSION_SECONDS

STATES = ("nothing", "retained", "journals")
ROW_BYTES, AT_ONCE = 100_000, 200
CONTRIBUTION_BYTES = 20
WITHIN_SECONDS = 600.0
STANDBYS = "data_dir: ./state\nstandbys: NUMBER"


@dataclass(frozen=True, slots=True)
class Takeover:
    """One takeover."""

    state: str
    megabytes: int
    standbys: int
    seconds: float
    """From the end of the session to the first event of each partition."""
    cpu_s: float
    """Processor time of the worker that took over, from the kill on."""


async def partitions_of(one: Fleet, number: int) -> list[int]:
    """The partitions of the source that a worker has."""
    plan = one.app.plan
    name = instance_id(replace(plan, data_dir=one.workers[number].data_dir))
    owned = (await one.app.client.group(plan.id)).owned
    source = one.view.source.topic
    return sorted(
        tp.partition for who, tps in owned.items() if who.startswith(name) for tp in tps if tp.topic == source
    )


async def retain(one: Fleet, places: list[int], megabytes: int) -> None:
    """Write so many bytes of rows that no start reads to the changelog of the releases."""
    changelog = Topics.of(one.app.plan).changelog(RELEASES)
    async with AIOKafkaProducer(bootstrap_servers=one.app.plan.broker.address, max_request_size=1 << 20) as producer:
        for first in range(0, megabytes * 1_000_000 // ROW_BYTES, AT_ONCE):
            numbers = range(first, first + AT_ONCE)
            rows = [(b"\x00filler-%d" % at, os.urandom(ROW_BYTES), places[at % len(places)]) for at in numbers]
            sent = [await producer.send(changelog, value, key, place) for key, value, place in rows]
            await asyncio.gather(*sent)


def contributions(one: Fleet, places: list[int], megabytes: int) -> Iterator[Event]:
    """So many bytes of contributions to the open window, of users in some partitions."""
    place, number, left = SourceWriter(one.app.plan).place, 0, megabytes * 1_000_000 // CONTRIBUTION_BYTES
    while left > 0:
        number += 1
        if place(f"u{number}") in places:
            left -= ITEMS_PER_USER
            for at in range(ITEMS_PER_USER):
                item = f"/page/{(number * 31 + at * 7919) % VOCABULARY}"
                yield Event(f"u{number}", item, one.start_ms + number % 60_000)


async def until_copied(one: Fleet) -> None:
    """Wait until the files of the other worker do not grow any more."""
    folder, size, steady = one.workers[1].data_dir, -1, 0
    while steady < 10:
        now = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        steady = steady + 1 if abs(now - size) < 1_000_000 else 0
        size = now
        await asyncio.sleep(0.3)


async def takeover(address: str, folder: Path, state: str, megabytes: int, standbys: int) -> Takeover:
    """Fill a worker's partitions, kill it, and wait for the other one."""
    text = CONFIG.replace("PARTITIONS", str(PARTITIONS)).replace("LIMIT", str(ITEMS_PER_USER)).replace("SIZE", "1d")
    if standbys:
        text = text.replace("data_dir: ./state", STANDBYS.replace("NUMBER", str(standbys)))
    async with fleet(text, address, folder, 2, None, "--tick-seconds", "1") as one:
        await one.start()
        places = await partitions_of(one, 0)
        if state == "retained":
            await retain(one, places, megabytes)
        if state == "journals":
            await one.feed(contributions(one, places, megabytes))
            await one.until_counted()
        if standbys:
            await until_copied(one)
        other = one.workers[1]
        before, cpu_s = counted(one, 1), one.read().cpu_s[1]
        one.workers[0].signal(signal.SIGKILL)
        killed = time.perf_counter()
        one.workers[0].wait()
        await one.knock(places)
        while counted(one, 1) < before + len(places):
            other.check()
            if time.perf_counter() - killed > WITHIN_SECONDS:
                raise TimeoutError(f"not taken over within {WITHIN_SECONDS:g} s")
            await asyncio.sleep(0.02)
        took_s = time.perf_counter() - killed - SESSION_SECONDS
        found = Takeover(state, megabytes, standbys, took_s, one.read().cpu_s[0] - cpu_s)
        say(f"{found}")
        return found


def counted(one: Fleet, number: int) -> int:
    """Records whose effect a worker has counted."""
    counters = one.workers[number].counters()
    return counters["events_consumed"] - counters["events_replayed"]


def show(found: list[Takeover]) -> None:
    """Print the table."""
    table = Table(title="Takeovers, seconds behind the end of the session")
    for name in ("state", "MB", "standbys", "median", "least", "most", "processor seconds"):
        table.add_column(name, justify="right")
    for kind in dict.fromkeys((one.state, one.megabytes, one.standbys) for one in found):
        runs = [one for one in found if (one.state, one.megabytes, one.standbys) == kind]
        took, cpu_s = [one.seconds for one in runs], median(one.cpu_s for one in runs)
        cells = [f"{figure:.1f}" for figure in (median(took), min(took), max(took), cpu_s)]
        table.add_row(kind[0], f"{kind[1]:,}", str(kind[2]), *cells)
    Console().print(table)
    Console().print(machine(), highlight=False)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--states", nargs="*", choices=STATES, default=["nothing", "retained"])
    parser.add_argument("--megabytes", type=int, default=1000, help="of state [default: 1000]")
    parser.add_argument("--standbys", type=int, nargs="*", default=[0, 1], help="of each partition [default: 0 1]")
    parser.add_argument("--runs", type=int, default=1, help="of each [default: 1]")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    asked = parser.parse_args()
    found: list[Takeover] = []
    with broker() as address, TemporaryDirectory() as folder:
        for run in range(asked.runs):
            for state in asked.states:
                for standbys in asked.standbys:
                    megabytes = 0 if state == "nothing" else asked.megabytes
                    place = Path(folder) / f"{state}-{standbys}-{run}"
                    found.append(asyncio.run(takeover(address, place, state, megabytes, standbys)))
    if asked.json:
        print(json.dumps({"machine": machine(), "takeovers": [asdict(one) for one in found]}))
    else:
        show(found)


if __name__ == "__main__":
    main()
