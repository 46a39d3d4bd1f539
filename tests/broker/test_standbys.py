"""Workers with standbys: what a dead one had is taken over warm, exactly once, and copies keep no raw count."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition

from stream_dp.runtime.faust.membership import instance_id
from stream_dp.runtime.kafka.topics import COUNTS, Topics
from stream_dp.runtime.localkafka.broker import free_port
from stream_dp.testing import Application, Event, SourceWriter, Watermark, application
from tests.broker.test_erasure import MINUTE, PAGE, UNSEEN, USER, files_with, gone, tables_with
from tests.support.probes import get, parsed
from tests.support.processes import WorkerProcess
from tests.support.views import start_of
from tests.support.visits import RICH, TOP, WITNESSED, Stream

pytestmark = pytest.mark.broker

STANDBYS = ("data_dir: ./state", "data_dir: ./state\nstandbys: 1")
FINEST = {"public": "detailed", "partner": "detailed", "internal": "detailed"}


class Standby:
    """A worker that answers operators."""

    def __init__(self, app: Application, worker: WorkerProcess) -> None:
        self.worker, self._app, self._port = worker, app, 0

    def start(self) -> None:
        self._port = free_port()
        self.worker.start("--http", str(self._port))

    def kill(self) -> None:
        self.worker.signal(signal.SIGKILL)
        self.worker.wait()

    async def owned(self) -> set[int]:
        """The partitions of the source that the group gave to it."""
        name = instance_id(replace(self._app.plan, data_dir=self.worker.data_dir))
        source = next(iter(self._app.plan.views.values())).source.topic
        members = (await self._app.client.group(self._app.plan.id)).owned.items()
        places = [place for member, places in members if member.startswith(name) for place in places]
        return {place.partition for place in places if place.topic == source}

    async def keeps(self, partitions: int) -> None:
        """Wait until it owns its share, keeps copies of the others, has read them to their ends, and is ready."""

        async def is_so() -> bool:
            self.worker.check()
            found = parsed((await get(self._port, "/metrics"))[1])
            kept, behind = found.get(("stream_dp_copies", ())), found.get(("stream_dp_copies_behind_records", ()))
            ready = (await get(self._port, "/readyz"))[0] == 200
            return ready and kept == partitions and behind is not None and behind < 10

        await self._app.eventually(is_so)

    def read_from(self, changelog: str) -> dict[int, int]:
        """Behind which offset of each partition of a changelog its last recovery began to read."""
        lines = self.worker.ending().rpartition("Reading Starts At")[2].partition("Restoring")[0]
        found, topic = {}, ""
        for name, partition, offset in re.findall(r"\| (\S+) +\| (\d+) +\| (-?\d+)", lines):
            topic = topic if name == "〃" else name
            if topic == changelog:
                found[int(partition)] = int(offset)
        return found


async def ends_of(app: Application, changelog: str, partitions: Collection[int]) -> dict[int, int]:
    found = await app.client.ends([TopicPartition(changelog, partition) for partition in partitions])
    return {partition: end for (_, partition), end in found.items()}


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.slow)])
async def test_partitions_of_a_killed_worker_are_taken_over_warm_and_nothing_is_lost_or_released_twice(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, times: int
) -> None:
    text = visits(("views:\n", "views:" + TOP), *WITNESSED, *RICH, STANDBYS, ("partitions: 3", "partitions: 4"))
    async with application(text, tmp_path, broker=kafka) as app:
        stream, changelogs = Stream(app), Topics.of(app.plan).changelogs
        dies, stays = workers = [Standby(app, spawn(app, name)) for name in ("one", "two")]
        for one in workers:
            one.start()
        await asyncio.gather(*(one.keeps(2) for one in workers))
        for _ in range(times):
            await stream.go_on(10)
            await stream.wait_until_shown()
            had = await dies.owned()
            there = {changelog: await ends_of(app, changelog, had) for changelog in changelogs}
            await stays.keeps(2)
            dies.kill()
            await stream.go_on(4)
            await stream.wait_until_shown()  # every window needs all partitions
            for changelog, ends in there.items():
                begun = stays.read_from(changelog)
                assert len(begun) == 4
                assert all(begun[partition] >= end - 10 for partition, end in ends.items()), (changelog, begun, ends)
            dies.start()
            await asyncio.gather(*(one.keeps(2) for one in workers))
            dies, stays = stays, dies
        for audience, level in FINEST.items():
            await app.grant(audience, level)
        await stream.wait_until_sharpened(FINEST)
        assert [await asyncio.to_thread(one.worker.terminate) for one in workers] == [0, 0]
        (await stream.audit(FINEST)).assert_clean()


@pytest.mark.slow
async def test_raw_counts_leave_the_files_of_a_standby_within_the_stated_time_also_if_nothing_follows(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    secrets = [PAGE.encode(), USER.encode()]
    text = visits(UNSEEN, STANDBYS, ("partitions: 3", "partitions: 4"))
    async with application(text, tmp_path / "app", broker=kafka) as app:
        (view,) = app.plan.views.values()
        start, place = start_of(view), SourceWriter(app.plan).place
        owner, standby = workers = [Standby(app, spawn(app, name)) for name in ("one", "two")]
        for one in workers:
            one.start()
        await asyncio.gather(*(one.keeps(2) for one in workers))
        mine = await owner.owned()
        few = [user for user in (f"{USER}{number}" for number in range(60)) if place(user) in mine][:3]
        await app.publish([Event(user, PAGE, start + 1000) for user in few])

        async def copied() -> bool:
            return bool(files_with(standby.worker.data_dir, secrets))

        await app.eventually(copied)
        standby.kill()
        standby.start()  # within its session: it keeps what it kept, and what stood in its log is in a sorted file

        async def sorted_file() -> bool:
            return COUNTS in tables_with(standby.worker, secrets)

        await app.eventually(sorted_file)
        await standby.keeps(2)
        await app.publish([Watermark(start + MINUTE + 10_000)])
        await app.wait_for_releases(view.name, 1)
        sealed = time.monotonic()

        async def in_files() -> set[str]:
            return {name for one in workers for name in files_with(one.worker.data_dir, secrets)}

        await gone(in_files, app.plan.erase_within_ms / 1000 - (time.monotonic() - sealed))
        assert [await asyncio.to_thread(one.worker.terminate) for one in workers] == [0, 0]
