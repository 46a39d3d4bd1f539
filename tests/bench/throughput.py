"""Events per second through the whole durable path, beside named peers: `python -m tests.bench.throughput`.

The peers are a plain Faust agent, Quix Streams and Kafka Streams; and itself, once without the fence that gives every
partition one writer, so that the ratio says what that costs, and once without counting, which is the ceiling.

One run of it writes the events to a topic once and then measures the sides in turn, each time in a new process with
new state. docs/benchmarks.md says what is measured and what the figures do not say.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from stream_dp.runtime.localkafka import broker as localkafka
from tests.bench.events import (
    PARTITIONS,
    WINDOWS,
    Expected,
    events_of,
    expected,
    produce,
    read_baskets,
    synthetic_baskets,
)
from tests.bench.peers.commands import PEERS, command, default_folder, how_to_install, running_sum
from tests.bench.sides import ITEMS_PER_USER

_CHILD_SECONDS = 600
_WIDTH = 110
SIDES = {
    "product": "stream-dp: bounded, effect once",
    "unfenced": "the same without the fence",
    "reading": "the worker reads and counts nothing",
    "plain": "plain Faust: one table update each",
    **PEERS,
}
"""In the order in which each run measures them."""
_DEFAULT = [side for side in SIDES if not side.endswith("_grouped")]

_say = Console(stderr=True, highlight=False).print


@contextmanager
def broker() -> Iterator[str]:
    """The address of the cluster that STREAM_DP_BROKER names, or of a local Kafka that lives as long as the block."""
    external = localkafka.external_broker()
    if external is not None:
        yield external
        return
    with TemporaryDirectory() as folder:
        address = localkafka.start(Path(folder), say=_say).address
        assert address is not None
        try:
            yield address
        finally:
            localkafka.stop(Path(folder))


def run_side(side: str, address: str, topic: str, events: int, peers: Path) -> dict[str, Any]:
    """Run one side in a process of its own and give what it measured, and the CPU seconds of its whole life."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        if side in PEERS:
            started = command(side, peers, address, topic, events, folder)
        else:
            asked = ["--broker", address, "--topic", topic, "--events", str(events), "--folder", name]
            started = [sys.executable, "-m", "tests.bench.sides", side, *asked]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = subprocess.run(started, stdout=subprocess.PIPE, text=True, timeout=_CHILD_SECONDS, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    life = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**found, "side": side, "events": events, "life_cpu_s": life}


def check(found: Mapping[str, Any], events: int, oracle: Expected) -> None:
    """Stop unless the product counted each event once and refused exactly what its bounds refuse."""
    counters = found["counters"]
    seen = {
        "consumed": counters.get("events_consumed"),
        "clipped": counters.get("events_refused{reason=clipped,view=sales}", 0),
        "duplicate": counters.get("events_refused{reason=duplicate,view=sales}", 0),
        "refused": sum(amount for name, amount in counters.items() if name.startswith("events_refused")),
        "windows": counters.get("windows_closed{view=sales}"),
        "released": counters.get("windows_released{view=sales}"),
    }
    right = {
        "consumed": events + PARTITIONS * WINDOWS,
        "clipped": oracle.clipped,
        "duplicate": oracle.duplicate,
        "refused": oracle.clipped + oracle.duplicate,
        "windows": WINDOWS * PARTITIONS,
        "released": WINDOWS,
    }
    if seen != right:
        raise SystemExit(f"the product miscounted, so its speed means nothing: {seen}, not {right}")


def check_peer(found: Mapping[str, Any], events: int, right: int) -> None:
    """Stop unless a peer counted each event once, in its window."""
    seen = found["counted"], found["running_sum"]
    if seen != (events, right):
        raise SystemExit(f"{found['side']} miscounted, so its speed means nothing: {seen}, not {(events, right)}")


def summary(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians of each side, and how many times stream-dp's they are; ranges: run by run.

    `wall` is events per second; `cpu` and `life_cpu` are CPU seconds per million events, from the first event to the
    last one counted, and of the whole process with its start.
    """
    runs = {side: [one for one in results if one["side"] == side] for side in SIDES}
    figures: dict[str, dict[str, Any]] = {}
    for side, found in runs.items():
        if not found:
            continue
        pairs = [_rate(mine) / _rate(theirs) for mine, theirs in zip(runs["product"], found, strict=True)]
        figures[side] = {
            "wall": median(_rate(one) for one in found),
            "cpu": median(one["cpu_s"] / one["events"] * 1e6 for one in found),
            "life_cpu": median(one["life_cpu_s"] / one["events"] * 1e6 for one in found),
            "range": [min(pairs), max(pairs)],
        }
        figures[side]["times_wall"] = figures["product"]["wall"] / figures[side]["wall"]
        figures[side]["times_cpu"] = figures[side]["cpu"] / figures["product"]["cpu"]
    return {
        "sides": figures,
        "product_to_last_release": median(one["events"] / one["released_s"] for one in runs["product"]),
        "chunk": max(one["longest_chunk"] for one in runs["product"]),
    }


def _rate(one: Mapping[str, Any]) -> float:
    return float(one["events"] / one["wall_s"])


def machine() -> str:
    """The machine in one line; the load tells what else was running."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} x {model}, Python {platform.python_version()}, load {load}"


def show(found: Mapping[str, Any]) -> None:
    """Print the table."""
    table = Table(title="Medians. Times: how much better stream-dp is. CPU: seconds per million events")
    for name in ("", "events/s", "times", "range", "CPU", "times", "with its start"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for side, one in found["sides"].items():
        low, high = one["range"]
        table.add_row(
            SIDES[side],
            f"{one['wall']:,.0f}",
            f"{one['times_wall']:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{one['cpu']:.1f}",
            f"{one['times_cpu']:.2f}",
            f"{one['life_cpu']:.1f}",
        )
    console = Console(width=max(_WIDTH, Console().width))
    console.print(table)
    released = f"{found['product_to_last_release']:,.0f}"
    console.print(f"To the last release: {released} events/s. Chunks of up to {found['chunk']:,} records.")
    console.print(machine(), highlight=False)


def _sides(text: str) -> list[str]:
    asked = {"product", *text.split(",")}
    if unknown := asked - set(SIDES):
        raise argparse.ArgumentTypeError(f"no such side: {', '.join(sorted(unknown))}")
    return [side for side in SIDES if side in asked]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, help="item events [default: 900000, or all of FILE]")
    parser.add_argument("--plain-events", type=int, default=60_000, help="how many of them the plain agent reads")
    parser.add_argument("--runs", type=int, default=3, help="runs of each side")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="baskets in FIMI format, .gz too, instead of synthetic ones"
    )
    parser.add_argument(
        "--sides", type=_sides, default=_DEFAULT, metavar="A,B", help=f"sides beside product [{', '.join(SIDES)}]"
    )
    parser.add_argument(
        "--peers", type=Path, default=default_folder(), metavar="FOLDER", help="where Quix and Kafka Streams are"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    asked = parser.parse_args()
    if asked.data is None:
        events = events_of(synthetic_baskets(), asked.events or 900_000)
    else:
        events = events_of(read_baskets(asked.data), asked.events)
    count, plain_count = len(events), min(asked.plain_events, len(events))
    oracle = expected(events, ITEMS_PER_USER)
    sides = []
    for side in asked.sides:
        missing = how_to_install(side, asked.peers) if side in PEERS else None
        if missing is None:
            sides.append(side)
        else:
            _say(f"{side} is skipped; to have it: {missing}", soft_wrap=True)
    sums = {side: running_sum(side, events) for side in sides if side in PEERS}
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    results = []
    with broker() as address:
        _say(f"writing {count:,} events to {topic} on {address}")
        asyncio.run(produce(address, topic, events))
        for run in range(asked.runs):
            for side in sides:
                amount = plain_count if side == "plain" else count
                found = run_side(side, address, topic, amount, asked.peers)
                if side in PEERS:
                    check_peer(found, count, sums[side])
                elif side in ("product", "unfenced"):
                    check(found, count, oracle)
                _say(f"run {run + 1} {side}: {_rate(found):,.0f} events/s, {found['cpu_s']:.1f} CPU s")
                results.append(found)
    medians = summary(results)
    if asked.json:
        print(json.dumps({"machine": machine(), "median": medians, "runs": results}))
    else:
        show(medians)


if __name__ == "__main__":
    main()
