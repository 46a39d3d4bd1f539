"""Workers are killed, stopped, cut off, sent away and started at random, while visits and grants come in.

STREAM_DP_ACTS sets how often something happens, 200 by default; STREAM_DP_SEED repeats a schedule. `-s` shows progress.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.testing import Application, application
from tests.support.crew import Act, Crew, Member, carry_out, lines, schedule
from tests.support.visits import RICH, TOP, WITNESSED, Stream

pytestmark = pytest.mark.broker

ACTS = int(os.environ.get("STREAM_DP_ACTS", "200"))
SEED = int(os.environ.get("STREAM_DP_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)
AT_MOST_BEHIND = 40
"""Windows that are fed and not yet released; more of them would only make the end of the test late."""
FINEST = {"public": "detailed", "partner": "detailed", "internal": "detailed"}


async def feed(stream: Stream, chance: random.Random) -> None:
    """Visits without end, a few windows at a time."""
    while True:
        if stream.windows - await stream.shown() < AT_MOST_BEHIND:
            await stream.go_on(chance.randrange(1, 5))
        await asyncio.sleep(chance.uniform(0.5, 2))


async def grant(app: Application, chance: random.Random, granted: Counter[str]) -> None:
    """Grants without end: audiences come to see more, or less of windows to come."""
    while True:
        await asyncio.sleep(chance.uniform(5, 20))
        audience, level = chance.choice(list(FINEST)), chance.choice(["overview", "standard", "detailed"])
        await app.grant(audience, level)
        granted["grant"] += 1


async def run(
    text: str, folder: Path, kafka: str, spawn: Any, proxied: Any, *, workers: int, acts: int, seed: int
) -> None:
    """Let so much happen to so many workers, and audit what is left."""
    planned, chance = schedule(seed, workers, acts), random.Random(seed)
    print(f"\nseed {seed}, {workers} workers, {acts} acts (what, worker, held down for, seconds until the next):")
    print("\n".join(lines(planned)), flush=True)
    began = time.monotonic()
    async with application(text, folder, broker=kafka) as app:
        proxies = [proxied() for _ in range(workers)]
        members = [Member(spawn(app, f"w{at}", proxy=proxy), proxy) for at, proxy in enumerate(proxies)]
        stream, granted = Stream(app, visits=40), Counter[str]()

        def told(number: int, act: Act) -> None:
            if number % 5 == 0:
                now = time.monotonic() - began
                print(f"{now:5.0f} s: act {number}, {stream.windows} windows fed, {dict(crew.ends)}", flush=True)

        async with Crew(members) as crew:
            for member in members:
                member.start()
            background = [asyncio.create_task(feed(stream, chance)), asyncio.create_task(grant(app, chance, granted))]
            done = await carry_out(crew, planned, told)
            for task in background:
                task.cancel()
            for ended in await asyncio.gather(*background, return_exceptions=True):
                assert isinstance(ended, asyncio.CancelledError), ended
            await stream.go_on(2)
            for audience, level in FINEST.items():
                await app.grant(audience, level)
            print(f"{time.monotonic() - began:5.0f} s: {stream.windows} windows fed, now let it end", flush=True)
            await stream.wait_until_shown(within_s=180)
            await stream.wait_until_sharpened(FINEST, within_s=180)
            await crew.leave()
            report = await stream.audit(FINEST)
    print(f"{report}\n{dict(sorted((done + granted).items()))}")
    print(f"ended by themselves: {dict(crew.ends)}\n{time.monotonic() - began:.0f} s, seed {seed}", flush=True)
    report.assert_clean()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
async def test_whatever_happens_to_workers_every_window_is_drawn_once_counted_right_and_paid(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, proxied: Any, workers: int
) -> None:
    text = visits(("views:\n", "views:" + TOP), *WITNESSED, *RICH)
    await run(text, tmp_path, kafka, spawn, proxied, workers=workers, acts=ACTS, seed=SEED)


async def test_a_few_things_that_happen_to_workers_leave_every_window_drawn_once_counted_right_and_paid(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, proxied: Any
) -> None:
    text = visits(("views:\n", "views:" + TOP), *WITNESSED, *RICH)
    await run(text, tmp_path, kafka, spawn, proxied, workers=2, acts=12, seed=1)
