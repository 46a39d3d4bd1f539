"""Events per second through the whole durable path, beside a plain Faust agent: `python -m tests.bench.throughput`.

And beside itself without the fence that gives every partition one writer, so that the ratio says what that costs.

One run of it writes the events to a topic once and then measures the sides in turn, each time in a new process with
new state. docs/benchmarks.md says what is measured and what the figures do not say.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
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
from tests.bench.sides import ITEMS_PER_USER

_CHILD_SECONDS = 600
SIDES = {
    "product": "stream-dp: bounded, effect once",
    "unfenced": "the same without the fence",
    "plain": "plain Faust: one table update each",
}
"""In the order in which each run measures them."""

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


def run_side(side: str, address: str, topic: str, events: int) -> dict[str, Any]:
    """Run one side in a process of its own and give what it measured."""
    with TemporaryDirectory() as folder:
        asked = ["--broker", address, "--topic", topic, "--events", str(events), "--folder", folder]
        child = subprocess.run(
            [sys.executable, "-m", "tests.bench.sides", side, *asked],
            stdout=subprocess.PIPE,
            text=True,
            timeout=_CHILD_SECONDS,
            check=True,
        )
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return {**found, "side": side, "events": events}


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


def summary(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians of each side and their ratios; ranges: of each run of the product to the other's after it."""
    sides = {side: [one for one in results if one["side"] == side] for side in SIDES}

    def rate(one: Mapping[str, Any], per: str) -> float:
        return float(one["events"] / one[per])

    out: dict[str, Any] = {
        f"{side}_{per.removesuffix('_s')}": median(rate(one, per) for one in found)
        for side, found in sides.items()
        for per in ("wall_s", "cpu_s")
    }
    out["product_to_last_release"] = median(rate(one, "released_s") for one in sides["product"])
    out["ratio_wall"] = out["product_wall"] / out["plain_wall"]
    out["ratio_cpu"] = out["product_cpu"] / out["plain_cpu"]
    for name, other in (("ratio_range", "plain"), ("fence_range", "unfenced")):
        pairs = [
            rate(mine, "wall_s") / rate(theirs, "wall_s")
            for mine, theirs in zip(sides["product"], sides[other], strict=True)
        ]
        out[name] = [min(pairs), max(pairs)]
    out["fence_wall"] = out["product_wall"] / out["unfenced_wall"]
    out["fence_cpu"] = out["product_cpu"] / out["unfenced_cpu"]
    out["chunk"] = max(one["longest_chunk"] for one in sides["product"])
    return out


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


def show(results: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> None:
    """Print the table."""
    table = Table(title="Events per second, median of the runs")
    for name in ("", "wall", "CPU", "each run (wall)"):
        table.add_column(name, justify="left" if not name else "right")
    for side, words in SIDES.items():
        runs = ", ".join(f"{one['events'] / one['wall_s']:,.0f}" for one in results if one["side"] == side)
        table.add_row(words, f"{found[side + '_wall']:,.0f}", f"{found[side + '_cpu']:,.0f}", runs)
    low, high = found["ratio_range"]
    table.add_row("to plain", f"{found['ratio_wall']:.1f}", f"{found['ratio_cpu']:.1f}", f"{low:.1f} to {high:.1f}")
    low, high = found["fence_range"]
    wall, cpu = found["fence_wall"], found["fence_cpu"]
    table.add_row("to unfenced", f"{wall:.2f}", f"{cpu:.2f}", f"{low:.2f} to {high:.2f}")
    console = Console()
    console.print(table)
    released = f"{found['product_to_last_release']:,.0f}"
    console.print(f"To the last release: {released} events/s. Chunks of up to {found['chunk']:,} records.")
    console.print(machine(), highlight=False)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, help="item events [default: 900000, or all of FILE]")
    parser.add_argument("--plain-events", type=int, default=60_000, help="how many of them the plain agent reads")
    parser.add_argument("--runs", type=int, default=3, help="runs of each side")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="baskets in FIMI format, .gz too, instead of synthetic ones"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    asked = parser.parse_args()
    if asked.data is None:
        events = events_of(synthetic_baskets(), asked.events or 900_000)
    else:
        events = events_of(read_baskets(asked.data), asked.events)
    count, plain_count = len(events), min(asked.plain_events, len(events))
    oracle = expected(events, ITEMS_PER_USER)
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    results = []
    with broker() as address:
        _say(f"writing {count:,} events to {topic} on {address}")
        asyncio.run(produce(address, topic, events))
        for run in range(asked.runs):
            for side in SIDES:
                amount = plain_count if side == "plain" else count
                found = run_side(side, address, topic, amount)
                if side != "plain":
                    check(found, count, oracle)
                _say(f"run {run + 1} {side}: {amount / found['wall_s']:,.0f} events/s")
                results.append(found)
    medians = summary(results)
    if asked.json:
        print(json.dumps({"machine": machine(), "median": medians, "runs": results}))
    else:
        show(results, medians)


if __name__ == "__main__":
    main()
