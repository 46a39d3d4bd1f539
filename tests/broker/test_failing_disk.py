"""A disk that fails under a worker, wherever it was: one sentence, and nothing is lost once it can be written to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stream_dp.testing import application
from tests.support.disks import fill, fragile_disk, make_read_only, make_room, make_writable, small_disk
from tests.support.visits import RICH, WITNESSED, Stream

pytestmark = pytest.mark.broker


@dataclass(frozen=True, slots=True)
class Harm:
    """What comes upon a disk."""

    option: str
    made: Callable[[Path, int], AbstractContextManager[Path]]
    done: Callable[[Path], None]
    undone: Callable[[Path], None]
    told: tuple[str, ...]
    """One of these reasons is given."""


FULL = Harm("--by-filling", small_disk, fill, make_room, ("No space left on device",))
READ_ONLY = Harm(
    "--by-locking", fragile_disk, make_read_only, make_writable, ("Read-only file system", "Input/output error")
)

COUNTING, CLOSING = "commit counts:3", "erase merges 0:2"
"""At closing a compaction writes."""
MORE_PLACES = ["commit counts:3", "commit merges:2", "commit releases:2", "commit releases:4", "erase counts 1:1"]


@pytest.mark.parametrize(
    ("harm", "places"),
    [
        pytest.param(FULL, [CLOSING], id="full at closing", marks=pytest.mark.slow),
        pytest.param(READ_ONLY, [COUNTING], id="read-only in mid-count", marks=pytest.mark.slow),
        pytest.param(FULL, MORE_PLACES, id="full elsewhere", marks=pytest.mark.slow),
        pytest.param(READ_ONLY, [CLOSING, *MORE_PLACES], id="read-only elsewhere", marks=pytest.mark.slow),
    ],
)
async def test_worker_on_a_failing_disk_ends_with_one_sentence_and_goes_on_exactly_when_it_can_be_written_to(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, harm: Harm, places: list[str]
) -> None:
    with harm.made(tmp_path / "disk", 64) as disk:
        async with application(visits(*WITNESSED, *RICH), tmp_path / "app", broker=kafka) as app:
            stream, worker = Stream(app, visits=900), spawn(app, "state", "--data-dir", str(disk / "state"))

            async def assert_ended_by_the_disk() -> None:
                code = await asyncio.to_thread(worker.wait)
                ending = worker.ending()
                assert code == 1, worker.said()
                told = [line for line in ending.splitlines() if any(reason in line for reason in harm.told)]
                assert told == [ending.splitlines()[-1]], ending
                assert ending.splitlines()[-1].startswith("error: "), ending
                assert "Traceback" not in ending

            await stream.go_on()
            for place in places:
                worker.start("--die-before", place, harm.option, str(disk))
                await stream.go_on()
                await assert_ended_by_the_disk()
                harm.undone(disk)
            harm.done(disk)
            worker.start()
            await assert_ended_by_the_disk()
            harm.undone(disk)
            worker.start()
            await stream.go_on()
            await stream.assert_released()
            assert await asyncio.to_thread(worker.terminate) == 0
