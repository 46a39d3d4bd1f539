"""A disk that gets full under a worker, wherever it was: one sentence, and nothing is lost once there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.testing import application
from tests.support.disks import fill, make_room, small_disk
from tests.support.visits import RICH, WITNESSED, Stream

pytestmark = pytest.mark.broker

PLACES = ["erase merges 0:2"]
"""At closing, where a compaction writes."""
MORE_PLACES = ["commit counts:3", "commit merges:2", "commit releases:2", "commit releases:4", "erase counts 1:1"]


@pytest.mark.parametrize(
    "places", [PLACES, pytest.param(MORE_PLACES, marks=pytest.mark.slow)], ids=["closing", "elsewhere"]
)
async def test_worker_on_a_full_disk_ends_with_one_sentence_and_goes_on_exactly_when_there_is_room(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, places: list[str]
) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        async with application(visits(*WITNESSED, *RICH), tmp_path / "app", broker=kafka) as app:
            stream, worker = Stream(app, visits=900), spawn(app, "state", "--data-dir", str(disk / "state"))

            async def assert_ended_by_the_disk() -> None:
                said = worker.log.stat().st_size if worker.log.exists() else 0
                code = await asyncio.to_thread(worker.wait, 30)
                ending = worker.log.read_text()[said:]
                assert code == 1, worker.said()
                assert [line for line in ending.splitlines() if "No space left on device" in line] == [
                    ending.splitlines()[-1]
                ], ending
                assert ending.splitlines()[-1].startswith("error: "), ending
                assert "Traceback" not in ending

            await stream.go_on()
            for place in places:
                worker.start("--die-before", place, "--by-filling", str(disk))
                await stream.go_on()
                await assert_ended_by_the_disk()
                make_room(disk)
            fill(disk)
            worker.start()
            await assert_ended_by_the_disk()
            make_room(disk)
            worker.start()
            await stream.assert_released()
            assert await asyncio.to_thread(worker.terminate) == 0
