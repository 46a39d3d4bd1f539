"""Windows past their retention on a running worker: what readers, files and a worker without state still find."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from stream_dp.errors import ConfigError
from stream_dp.records.codec import outline
from stream_dp.releases.rows import WINDOW, WindowRow
from stream_dp.runtime.kafka.topics import RELEASES, Topics
from stream_dp.testing import Application
from stream_dp.windows.encoding import decode, text, window_start
from tests.support.losing import MINUTE, empty, publish_minutes
from tests.support.views import only_view, start_of

SLOW_ON_KAFKA = True

Launch = Callable[..., Awaitable[Application]]
SHORT = ("retention: 1d", "retention: 1m")
mostly_in_memory = pytest.mark.parametrize(
    "broker", ["memory", pytest.param("kafka", marks=(pytest.mark.broker, pytest.mark.slow))], indirect=True
)
in_memory = pytest.mark.parametrize("broker", ["memory"], indirect=True)


async def standing(app: Application) -> dict[str, set[int]]:
    """The windows, by number, of which a record stands in a public topic once that is compacted; by audience."""
    view = only_view(app)
    found: dict[str, set[int]] = {}
    for audience in view.audiences:
        last = dict(await app.read(Topics.of(app.plan).release(view.name, audience)))
        shown = (outline(value) for value in last.values() if value is not None)
        starts = (what.window.start_ms for what in shown if what is not None)
        found[audience] = {(start - start_of(view)) // MINUTE for start in starts}
    return found


async def secrets(app: Application) -> dict[int, bytes]:
    """The secrets of windows by number, as they ever stood in the changelog."""
    view = only_view(app)
    found: dict[int, bytes] = {}
    for key, value in await app.read(Topics.of(app.plan).changelog(RELEASES)):
        if key is not None and key.startswith(WINDOW + text(view.name)) and value is not None:
            secret = decode(WindowRow, value).secret
            number = (window_start(WINDOW, view.name, key) - start_of(view)) // MINUTE
            found |= {number: secret} if secret else {}
    return found


def files_with(folder: Path, secret: bytes) -> list[str]:
    """The files of a folder that hold some bytes; a file that is replaced meanwhile may be passed over."""
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found += [path.name] if path.is_file() and secret in path.read_bytes() else []
    return found


async def expired(app: Application) -> dict[int, bytes]:
    """A worker releases four minutes, and takes two of them back; the secrets of all. It runs on."""
    view, topics = only_view(app), Topics.of(app.plan)
    await app.start()
    for minute in range(4):
        await publish_minutes(app, minute)
        await app.wait_for_releases(view.name, minute + 1)

    async def over() -> bool:
        rows = dict(await app.read(topics.changelog(RELEASES)))
        kept = [key for key, value in rows.items() if value is not None and (key or b"").startswith(WINDOW)]
        return len(kept) == 2 and set(map(frozenset, (await standing(app)).values())) == {frozenset({2, 3})}

    await app.eventually(over)
    return await secrets(app)


@mostly_in_memory
async def test_of_an_expired_window_neither_a_record_nor_a_secret_stays_and_others_are_sharpened(
    launch: Launch,
) -> None:
    app = await launch(SHORT)
    view = only_view(app)
    had = await expired(app)
    assert sorted(had) == [0, 1, 2, 3]
    assert len(set(had.values())) == 4

    async def only_the_others() -> bool:
        return [bool(files_with(app.plan.data_dir, had[number])) for number in range(4)] == [False, False, True, True]

    await app.eventually(only_the_others)
    await app.grant("public", "detailed")

    async def sharper() -> bool:
        records = (await app.releases(view.name))["public"]
        found = {(one.window.start_ms - start_of(view)) // MINUTE for one in records if one.revision == 2}
        return found == {2, 3}

    await app.eventually(sharper)


@pytest.mark.slow
@in_memory
async def test_a_worker_that_lost_its_state_behind_expired_windows_draws_none_of_them_again(launch: Launch) -> None:
    app = await launch(SHORT)
    view = only_view(app)
    await expired(app)
    before = await app.published(view.name)
    await app.stop()
    await empty(app, Topics.of(app.plan).changelog(RELEASES))
    await asyncio.to_thread(shutil.rmtree, app.plan.data_dir)

    worker = await app.start(plan=replace(app.plan, data_dir=app.plan.data_dir.with_name("lost")))
    await worker.crashed()
    reason = worker.crash_reason()
    assert isinstance(reason, ConfigError)
    assert "of 2 windows or more, the newest that of 2024-01-01T00:03" in str(reason)
    await app.stop()

    await app.start(plan=replace(app.plan, data_dir=app.plan.data_dir.with_name("accepted")), accept_loss=True)
    await publish_minutes(app, 4)
    await app.wait_for_releases(view.name, 5)
    after = await app.published(view.name)
    assert {audience: records[:4] for audience, records in after.items()} == before
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent == view.cost(2) * 4 + view.cost(1), "expired windows are charged at worst, too"
