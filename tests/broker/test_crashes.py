"""Workers that are killed with SIGKILL, again and again: every visit counts once, every window is drawn once."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.testing import application
from tests.support.visits import RICH, TOP, WITNESSED, Stream

pytestmark = pytest.mark.broker

DEATHS = [
    "send partials:2",
    "commit merges:2",
    "commit counts:3",
    "send merged:1",
    "commit releases:2",
    "commit releases:3",
    "erase merges 0:2",
    "send release:1",
]
"""Where the process dies by itself, one per life; in between the test kills it at some moment."""


@pytest.mark.parametrize(
    ("fresh_folder", "deaths", "kills"),
    [
        pytest.param(False, DEATHS[::4], 1, id="same folder", marks=pytest.mark.slow),
        pytest.param(False, DEATHS, 3, id="same folder, all", marks=pytest.mark.slow),
        pytest.param(True, DEATHS, 3, id="fresh folder, all", marks=pytest.mark.slow),
    ],
)
async def test_killed_worker_counts_every_visit_once_and_releases_every_window_once(
    kafka: str,
    tmp_path: Path,
    visits: Callable[..., str],
    spawn: Any,
    fresh_folder: bool,
    deaths: list[str],
    kills: int,
) -> None:
    chance, granted = random.Random(7), {"partner": "detailed"}
    async with application(visits(*WITNESSED, *RICH), tmp_path, broker=kafka) as app:
        stream, worker = Stream(app, visits=900), spawn(app, "state")

        async def runs() -> bool:
            return bool(worker.runs())

        async def dead() -> None:
            assert await asyncio.to_thread(worker.wait) == -signal.SIGKILL, worker.said()
            if fresh_folder:
                shutil.rmtree(worker.data_dir, ignore_errors=True)  # it may have died before it made one

        await stream.go_on()
        for death in deaths:
            worker.start("--die-before", death)
            await stream.go_on()
            await dead()
        for _ in range(kills):
            worker.start()
            await stream.go_on()
            await asyncio.sleep(chance.uniform(1.5, 3.5))
            worker.signal(signal.SIGKILL)
            await dead()
        worker.start()
        await app.eventually(runs)  # all may have been released before it died
        await stream.assert_released()
        await stream.assert_totals()
        assert await asyncio.to_thread(worker.terminate) == 0

        worker.start("--die-before", "commit releases:3")  # two load the engines; this one stores the grant
        await app.grant("partner", "detailed")
        await dead()
        worker.start("--die-before", "send release:1")
        await dead()
        worker.start()
        await stream.wait_until_sharpened(granted)
        counters = worker.counters()
        assert await asyncio.to_thread(worker.terminate) == 0

        (await stream.audit(granted)).assert_clean()
        assert counters["events_replayed"] > 0


DEATHS_OF_A_RELEASE = [*(f"commit releases:{number}" for number in range(1, 10)), "send release:1", "send release:2"]
"""Moments around reserve, draw, commit and publish; which is which depends on what a restart has to finish."""


@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param(DEATHS_OF_A_RELEASE[1::4], id="every fourth moment"),
        pytest.param(DEATHS_OF_A_RELEASE, id="every moment", marks=pytest.mark.slow),
    ],
)
async def test_killed_worker_draws_nothing_twice_and_has_paid_for_all_that_it_shows(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, deaths: list[str]
) -> None:
    """After every death: what is shown so far was drawn once and is paid for; what is missing may still come."""
    async with application(visits(("views:\n", "views:" + TOP), *WITNESSED, *RICH), tmp_path, broker=kafka) as app:
        stream, worker = Stream(app), spawn(app, "state")

        for death in deaths:
            worker.start("--die-before", death)
            await stream.go_on()
            assert await asyncio.to_thread(worker.wait) == -signal.SIGKILL, worker.said()
            (await stream.audit()).assert_clean(but=["lost", "open", "overcharged"])
        worker.start()
        await stream.wait_until_shown()
        assert await asyncio.to_thread(worker.terminate) == 0
        (await stream.audit()).assert_clean()
