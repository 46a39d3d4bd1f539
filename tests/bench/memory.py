"""Memory of an open window: `python -m tests.bench.memory`.

Streams of a million contributions, some of them hostile, are counted by the ingest of one partition, each in a process
of its own: once without a bound, where the table says how many bytes a contribution takes beside the text of users and
items; and once with a small `window_memory`, where it says how much more memory the process took at its peak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import rocksdict
from rich.console import Console
from rich.table import Table

from stream_dp.runtime.storage import DiskSpillStores
from stream_dp.windows.effects import NoRows
from stream_dp.windows.encoding import format_size, parse_size
from stream_dp.windows.open_windows import OpenWindow
from tests.support.counting import Entry, counter, event, view

CHUNK = 5000
ITEMS_PER_USER = 10_000
CACHE_BYTES = 8 << 20

STREAMS: dict[str, tuple[str, Callable[[int], tuple[str, str]]]] = {
    "baskets": ("users with ten items", lambda at: (f"user{at // 10:07}", f"item{at * 7919 % 9973}")),
    "three": ("users with three items", lambda at: (f"user{at // 3:07}", f"item{at * 7919 % 9973}")),
    "single": ("users with one item", lambda at: (f"user{at:07}", f"item{at % 1000}")),
    "own": ("an item of its own for every user", lambda at: (f"user{at:07}", f"item{at:07}")),
    "greedy": ("one user with all items", lambda at: ("user", f"item{at:07}")),
    "long": ("items of 1 kB", lambda at: (f"user{at // 10:07}", f"{at:07}".ljust(1000, "x"))),
}


def memory(field: str) -> int:
    """Bytes of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{field}:"))) << 10


def records(name: str, amount: int) -> Iterator[Entry]:
    """The events of a stream."""
    make = STREAMS[name][1]
    return (event(at, *make(at), 1) for at in range(amount))


def measure(name: str, amount: int, bound: int) -> dict[str, float]:
    """Count a stream in this process."""
    with TemporaryDirectory() as folder:
        stores = DiskSpillStores(Path(folder) / "spill", rocksdict.Cache(CACHE_BYTES))
        one = counter(view(items_per_user=ITEMS_PER_USER), memory=bound, spill_stores=stores)
        list(one.load(NoRows()))
        list(one.chunk(list(records(name, 1)), 5))
        events = islice(records(name, amount), 1, None)
        before = memory("VmRSS")
        while some := list(islice(events, CHUNK)):
            for _ in one.chunk(some, 5):
                pass
        del some
        (window,) = one._views[0].windows.values()
        now, peak = memory("VmRSS"), memory("VmHWM")
        found: dict[str, float] = {
            "taken": now - before,
            "peak": peak - before,
            "spilled": window.spill_store is not None,
        }
        if window.spill_store is None:
            found |= _contents(window)
        window.drop()
    return found


def _contents(window: OpenWindow) -> dict[str, float]:
    contributions = sum(window.held(list(window.accepted)))
    texts = sum(map(len, window.accepted)) + sum(map(len, window.codes))
    return {"contributions": contributions, "texts": texts, "estimated": window.memory_bytes}


def in_a_process(name: str, amount: int, bound: int) -> dict[str, float]:
    """The same in a process of its own."""
    asked = ["--stream", name, "--contributions", str(amount), "--window-memory", format_size(bound)]
    done = subprocess.run([sys.executable, "-m", "tests.bench.memory", *asked], stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--contributions", type=int, default=1_000_000, help="of each stream [default: 1000000]")
    parser.add_argument("--window-memory", type=parse_size, default=64 << 20, help="the bound [default: 64MiB]")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--stream", choices=STREAMS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stream:
        print(json.dumps(measure(asked.stream, asked.contributions, asked.window_memory)))
        return
    found = {}
    for name in STREAMS:
        amount = asked.contributions // (5 if name == "long" else 1)
        found[name] = {
            "without": in_a_process(name, amount, 1 << 40),
            "bounded": in_a_process(name, amount, asked.window_memory),
        }
    if asked.json:
        print(json.dumps(found))
        return
    table = Table(title=f"An open window; the bound is {format_size(asked.window_memory)}")
    for title in ("", "contributions", "bytes each, beside texts", "MB", "estimated", "bounded: peak MB", "on disk"):
        table.add_column(title, justify="right" if title else "left")
    for name, one in found.items():
        free, bounded = one["without"], one["bounded"]
        table.add_row(
            STREAMS[name][0],
            f"{free['contributions']:,.0f}",
            f"{(free['taken'] - free['texts']) / free['contributions']:.1f}",
            f"{free['taken'] / 1e6:.0f}",
            f"{free['estimated'] / 1e6:.0f}",
            f"{bounded['peak'] / 1e6:.0f}",
            "yes" if bounded["spilled"] else "no",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
