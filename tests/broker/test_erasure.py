"""What is left of a count once its window is sealed: nothing in the files, and soon nothing in the topics."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.plan import SourcePlan
from stream_dp.releases.pieces import TableRow, table_key
from stream_dp.releases.rows import WINDOW, WindowRow
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics
from stream_dp.runtime.localkafka import broker as localkafka
from stream_dp.testing import Application, Event, Raw, SourceWriter, Watermark, application
from stream_dp.windows.encoding import decode, window_key
from tests.support.losing import publish_minutes
from tests.support.views import start_of

pytestmark = pytest.mark.broker

MINUTE = 60_000
PAGE = "/planted-7f3a52c1"
USER = "planted-b08d9e64"
UNSEEN = ('delta: "1e-4"', 'delta: "1e-9"')
"""With this delta a page of three users is shown or sealed with a chance below 1e-6: that would be a false alarm."""
AT_ONCE_SECONDS = 3
"""The release is published while the agents before it may still be compacting their last rows."""
LONGER = ("erase_within: 20s", "erase_within: 40s")
"""Half of that is the cleaner's, and a busy machine may leave it that long without its turn."""
FILES_SECONDS = 60
"""An old segment is renamed when it is cleaned; its file is deleted a second later, or when the broker comes to it."""


def files_with(folder: Path, secrets: Iterable[bytes]) -> set[str]:
    """Names of the files below a folder that hold any of the secrets; a file that vanishes meanwhile holds none."""
    found = set()
    for path in folder.rglob("*"):
        try:
            data = path.read_bytes() if path.is_file() else b""
        except FileNotFoundError:
            continue
        found |= {str(path.relative_to(folder)) for secret in secrets if secret in data}
    return found


async def topics_with(app: Application, topics: Iterable[str], secrets: Iterable[bytes]) -> set[str]:
    """The topics of which any record, from the beginning on, holds any of the secrets."""
    found = set()
    for topic in topics:
        rows = await app.read(topic)
        found |= {topic for key, value in rows for secret in secrets if secret in (key or b"") + (value or b"")}
    return found


async def gone(look: Callable[[], Any], within_s: float) -> float:
    """How many seconds it took until a search found nothing."""
    start = time.monotonic()
    while found := await look():
        assert time.monotonic() - start < within_s, f"after {within_s:g} s still in {sorted(found)}"
        await asyncio.sleep(0.2)
    return time.monotonic() - start


def tables_with(worker: Any, secrets: Iterable[bytes]) -> set[str]:
    """The tables of which a sorted file of RocksDB, not only its write-ahead log, holds any of the secrets."""
    return {name.split("/")[2].split("-")[0] for name in files_with(worker.data_dir, secrets) if name.endswith(".sst")}


async def test_planted_count_is_gone_from_files_at_once_and_from_topics_within_the_stated_time(
    kafka: str, kafka_folder: Path, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    secrets = [PAGE.encode(), USER.encode()]
    async with application(visits(UNSEEN, LONGER), tmp_path / "app", broker=kafka) as app:
        (view,) = app.plan.views.values()
        start = view.window.first_ms
        assert start is not None
        topics, place = Topics.of(app.plan), SourceWriter(app.plan).place
        changelogs = [topics.changelog(table) for table in (COUNTS, MERGES, RELEASES)]
        raw = [topics.partials, topics.merged, *changelogs]
        everything = [*raw, topics.ticks, topics.control, topics.orders, view.source.dead_letter_topic]
        everything += [topics.release(view.name, audience) for audience in view.audiences]
        end = Watermark(start + MINUTE + 10_000)
        few = [user for user in (f"{USER}{number}" for number in range(30)) if place(user) == 0][:3]
        worker = spawn(app, "state")

        async def restarted_with(table: str) -> bool:
            return tables_with(worker, secrets) == {table}

        async def watch() -> None:
            async for record in app.client.follow(raw):
                if any(secret in (record.key or b"") + (record.value or b"") for secret in secrets):
                    seen.add(record.topic)

        async def seen_everywhere() -> bool:
            assert not reading.done(), "nothing reads any more"
            return seen >= set(raw)

        worker.start()
        await app.publish([Event(f"u{number}", "/", start + number) for number in range(300)])
        await app.publish([Event(user, PAGE, start + 1000) for user in few])
        await app.eventually(lambda: holds(app, topics.changelog(COUNTS), secrets))
        seen = await topics_with(app, everything, secrets)
        assert seen == {topics.changelog(COUNTS)}
        worker.signal(signal.SIGKILL)
        worker.wait()
        worker.start()  # what stood in its write-ahead log is in a sorted file now
        await app.eventually(lambda: restarted_with(COUNTS))

        reading = asyncio.create_task(watch())  # what is gone in seconds is read as it comes
        await app.publish([Raw(0, None, b"", {"stream-dp-watermark": str(end.time_ms).encode()})])
        await app.eventually(lambda: holds(app, topics.changelog(MERGES), secrets))
        worker.signal(signal.SIGKILL)
        worker.wait()
        worker.start()
        await app.eventually(lambda: restarted_with(MERGES))

        await app.publish([end])
        while not all((await app.releases(view.name)).values()):
            worker.check()
        sealed = time.monotonic()
        await app.eventually(seen_everywhere)
        reading.cancel()
        assert seen == set(raw)
        await gone(lambda: asyncio.to_thread(files_with, worker.data_dir, secrets), AT_ONCE_SECONDS)

        within_s = app.plan.erase_within_ms / 1000 - (time.monotonic() - sealed)
        await gone(lambda: topics_with(app, everything, secrets), within_s)
        if localkafka.external_broker() is None:
            await assert_gone_from_logs(kafka_folder / "data", view.source, secrets)
        assert await asyncio.to_thread(worker.terminate) == 0
        assert files_with(worker.data_dir, secrets) == set()


@pytest.mark.slow
async def test_re_keyed_events_are_gone_from_the_topic_and_from_the_broker_once_they_are_counted(
    kafka: str, kafka_folder: Path, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    secret = [USER.encode()]
    async with application(
        visits(("user: user, time", "key: user, time"), LONGER), tmp_path / "app", broker=kafka
    ) as app:
        (view,) = app.plan.views.values()
        start, topic = view.window.first_ms, Topics.of(app.plan).rekeyed("visits")
        assert start is not None
        worker = spawn(app, "state")
        worker.start()
        await app.publish([Event(f"{USER}{number}", PAGE, start + number) for number in range(30)])
        await app.eventually(lambda: holds(app, Topics.of(app.plan).changelog(COUNTS), secret))
        await gone(lambda: topics_with(app, [topic], secret), app.plan.erase_within_ms / 1000)
        if localkafka.external_broker() is None:
            logs = kafka_folder / "data"
            places = [logs / f"{topic}-{partition}" for partition in range(3)]
            assert all(place.is_dir() for place in places)

            async def in_files() -> set[str]:
                found = [await asyncio.to_thread(files_with, place, secret) for place in places]
                return set().union(*found)

            await gone(in_files, FILES_SECONDS)
        await app.publish([Watermark(start + MINUTE + 10_000)])
        await app.wait_for_releases(view.name, 1)
        assert await asyncio.to_thread(worker.terminate) == 0


@pytest.mark.slow
async def test_what_is_secret_of_an_expired_window_is_gone_from_files_at_once_and_from_topics_within_the_stated_time(
    kafka: str, kafka_folder: Path, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    """Its own secret and its sealed table, known by the digest that stands in every part of it."""
    async with application(visits(("retention: 1d", "retention: 1m"), LONGER), tmp_path / "app", broker=kafka) as app:
        (view,) = app.plan.views.values()
        changelog, worker = Topics.of(app.plan).changelog(RELEASES), spawn(app, "state")
        start = start_of(view)
        at, table = window_key(WINDOW, view.name, start), table_key(view.name, start, 0)
        worker.start()
        await publish_minutes(app, 0)
        await app.wait_for_releases(view.name, 1)
        rows = [(key, value) for key, value in await app.read(changelog) if value is not None]
        secrets = [decode(WindowRow, value).secret for key, value in rows if key == at][-1:]
        secrets += [decode(TableRow, value).table.digest for key, value in rows if key == table]
        assert len({*secrets}) == 2
        for minute in (1, 2):
            await publish_minutes(app, minute)
            await app.wait_for_releases(view.name, minute + 1)

        async def over() -> bool:
            return dict(await app.read(changelog)).get(at, b"") is None

        await app.eventually(over)
        ended = time.monotonic()
        await gone(lambda: asyncio.to_thread(files_with, worker.data_dir, secrets), AT_ONCE_SECONDS)
        within_s = app.plan.erase_within_ms / 1000 - (time.monotonic() - ended)
        await gone(lambda: topics_with(app, [changelog], secrets), within_s)
        if localkafka.external_broker() is None:
            await gone(lambda: asyncio.to_thread(files_with, kafka_folder / "data", secrets), FILES_SECONDS)
        assert await asyncio.to_thread(worker.terminate) == 0


async def holds(app: Application, topic: str, secrets: Iterable[bytes]) -> bool:
    """Whether a topic holds any of the secrets."""
    return bool(await topics_with(app, [topic], secrets))


async def assert_gone_from_logs(logs: Path, source: SourcePlan, secrets: Iterable[bytes]) -> None:
    """No file of the broker holds a secret any more, but those of the source topic."""
    excepted = {f"{source.topic}-{partition}" for partition in range(source.partitions)}

    async def elsewhere() -> set[str]:
        found = await asyncio.to_thread(files_with, logs, secrets)
        assert {name.split("/")[0] for name in found} & excepted, "the search would find what is there"
        return {name for name in found if name.split("/")[0] not in excepted}

    await gone(elsewhere, FILES_SECONDS)


@pytest.mark.slow
async def test_worker_killed_before_each_erasure_erases_when_it_is_back(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    secrets = [PAGE.encode(), USER.encode()]
    text = visits(UNSEEN, ("buckets: 4", "buckets: 1"))
    async with application(text, tmp_path / "app", broker=kafka) as app:
        (view,) = app.plan.views.values()
        start = view.window.first_ms
        assert start is not None
        few = [Event(f"{USER}{number}", PAGE, start + number) for number in range(3)]
        await app.publish([*few, Watermark(start + MINUTE + 10_000)])
        topics, worker = Topics.of(app.plan), spawn(app, "state")
        erasures = {  # the first one of the merge and release agents is made at their start
            COUNTS: (SourceWriter(app.plan).place(few[0].user), 1),
            MERGES: (topics.partial_partition(view.name, start, 0), 2),
            RELEASES: (topics.ledger_partition(view.ledger), 2),
        }

        for table, (partition, number) in erasures.items():
            worker.start("--die-before", f"erase {table} {partition}:{number}")
            assert await asyncio.to_thread(worker.wait) == -signal.SIGKILL, worker.said()
            left = files_with(worker.data_dir, secrets)
            assert any(name.startswith(f"v1/tables/{table}-{partition}.db/") for name in left), (table, left)
        worker.start()
        await app.wait_for_releases(view.name, 1)
        await gone(lambda: asyncio.to_thread(files_with, worker.data_dir, secrets), 10)

        assert await asyncio.to_thread(worker.terminate) == 0
