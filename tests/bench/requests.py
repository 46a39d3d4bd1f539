"""Time of single requests to the gateway and to the console: `python -m tests.bench.requests`.

The gateway holds 50 windows of a view and runs in a process of its own; one client asks, over one connection. Plans are
asked of a console in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from itertools import cycle, islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table

from stream_dp.config.planner import load_plan
from stream_dp.gateway.tokens import RequestRate
from tests.bench.gateway import started
from tests.support.console import Desk
from tests.support.published import VISITS

WINDOWS, SIZE = 50, 20_000
LIST = f"/v1/views/pages/windows?limit={WINDOWS}"
TARGETS = {"a list of 50 windows": (99, 20), "the same, not changed (304)": (99, 5), "a plan": (95, 150)}
"""Percentile, and milliseconds at most."""


async def timed(number: int, ask: Callable[[int], Awaitable[None]]) -> list[float]:
    """Ask so many times; return the milliseconds of each, in order of size."""
    taken = []
    for at in range(number):
        began = time.perf_counter()
        await ask(at)
        taken.append(1000 * (time.perf_counter() - began))
    return sorted(taken)


async def of_gateway(number: int) -> dict[str, list[float]]:
    """Time lists of windows."""
    async with started("product", WINDOWS, 50, SIZE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        about = json.loads(await child.stdout.readline())
        child.stdin.write(b"go\n")
        tokens = about["tokens"]
        async with aiohttp.ClientSession(f"http://127.0.0.1:{about['port']}") as session:

            async def ask(at: int, status: int = 200, **headers: str) -> aiohttp.ClientResponse:
                credential = {"Authorization": f"Bearer {tokens[at % len(tokens)]}"}
                async with session.get(LIST, headers=credential | headers) as answer:
                    assert answer.status == status
                    await answer.read()
                    return answer

            async def whole(at: int) -> None:
                await ask(at)

            async def again(at: int) -> None:
                await ask(at, 304, **{"If-None-Match": tag})

            while len((await (await ask(0)).json())["windows"]) < WINDOWS:
                await asyncio.sleep(0.2)
            await asyncio.sleep(5)  # a token may ask 20 times a second
            tag = (await ask(0)).headers["ETag"]
            return dict(zip(TARGETS, [await timed(number, whole), await timed(number, again)], strict=False))


async def of_console(number: int, folder: Path) -> list[float]:
    """Time plans, each of another change."""
    (folder / "visits.yaml").write_text(VISITS)
    desk = Desk(load_plan(folder / "visits.yaml"), folder / "operators.tokens")
    desk.console.plans = RequestRate(1e6, 10**6)
    await desk.start()
    desk.report()
    await desk.look()
    changes: list[Any] = list(product((1, 2, 3, 4), ("12h", "1d", "2d"), ("1/2", "3/4", "3/2")))
    asked = list(islice(cycle(changes), number))

    async def ask(at: int) -> None:
        items, size, fine = asked[at]
        await desk.plan_of(f"items_per_user={items}", f"window.size={size}", f"ladders.pages.fine={fine}")

    return await timed(number, ask)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.requests", description=__doc__)
    parser.add_argument("--requests", type=int, default=500, help="of each sort (default: 500)")
    asked = parser.parse_args()
    found = asyncio.run(of_gateway(asked.requests))
    with TemporaryDirectory() as folder:
        found["a plan"] = asyncio.run(of_console(min(asked.requests, 200), Path(folder)))
    table = Table("", "median", "percentile", "ms", "target")
    for name, (percent, most) in TARGETS.items():
        taken = found[name]
        at = taken[len(taken) * percent // 100]
        table.add_row(name, f"{taken[len(taken) // 2]:.1f} ms", f"{percent} %", f"{at:.1f} ms", f"{most} ms")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
