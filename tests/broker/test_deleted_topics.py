"""Topics of an application are deleted: its workers say so and end, and once that is accepted everything goes on."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.operations.republish import republish
from stream_dp.records.models import Refusal
from stream_dp.runtime.kafka.control_topic import holding
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.runtime.key_file import read_keys
from stream_dp.runtime.worker.timers import LOOK_SECONDS
from stream_dp.testing import Application, application
from tests.support.losing import delete, publish_minutes
from tests.support.views import only_view

pytestmark = pytest.mark.broker

NOTICED_SECONDS = 10.0
EVERY = [
    "NAME-partials",
    "NAME-merged",
    "NAME-control",
    "NAME-orders",
    "NAME-accounts",
    "NAME-counts-changelog",
    "NAME-merges-changelog",
    "NAME-releases-changelog",
    "NAME.visits",
]
"""The topics with state."""
STATELESS = ["NAME-ticks", "NAME-status", "NAME.dead-letters.visits"]


async def dies(worker: Any, *options: str) -> None:
    worker.start(*options)
    assert await asyncio.to_thread(worker.wait) == -signal.SIGKILL, worker.said()


async def release_first_window(app: Application, worker: Any) -> None:
    """Start a worker and let it release the first window."""
    worker.start()
    await publish_minutes(app, 0)
    await app.wait_for_releases(only_view(app).name, 1)


async def wait_until_said(app: Application, worker: Any, words: str) -> None:
    """Wait until a worker has logged something."""

    async def is_said() -> bool:
        return words in worker.log.read_text()

    await app.eventually(is_said)


async def outcome(app: Application, count: int) -> list[str]:
    """What became of the first windows of the only view, for its public audience."""
    records = (await app.wait_for_releases(only_view(app).name, count))["public"]
    return [record.reason if isinstance(record, Refusal) else "released" for record in records]


@pytest.mark.slow
async def test_counts_that_were_lost_with_their_topic_are_a_refusal_and_later_windows_are_released(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        worker, partials = spawn(app, "worker"), Topics.of(app.plan).partials
        await publish_minutes(app, 0)
        await dies(worker, "--die-before", "commit merges:2")  # some of the window is merged, some is on its way
        await delete(app, partials)

        worker.start()
        assert worker.wait() == 2
        assert f"topic {partials}: was deleted, and with it exact counts on their way" in worker.said()
        assert "--accept-loss" in worker.said()

        worker.start("--accept-loss")
        await publish_minutes(app, 1)
        assert await outcome(app, 2) == ["lost", "released"]
        (ledger,) = (await app.ledgers()).values()
        assert ledger.spent == only_view(app).cost(1)
        assert worker.terminate() == 0


async def noticed(app: Application, worker: Any, name: str, *, again: bool) -> None:
    """Delete a topic under a running worker; it ends in time, by its exit code and its word because of that."""
    await release_first_window(app, worker)
    await asyncio.sleep(LOOK_SECONDS)  # what a source's topic was is known from the first look on
    began = time.monotonic()
    await delete(app, name)
    if again:
        specs = {spec.name: spec for spec in Topics.of(app.plan).all(app.plan)}
        await app.client.create([specs.get(name, TopicSpec(name, app.plan.partitions))])
    code = await asyncio.to_thread(worker.wait)
    took = time.monotonic() - began
    print(f"{name} {'made again' if again else 'gone'}: exit {code} after {took:.1f} s")
    assert took < NOTICED_SECONDS
    assert code == 2
    assert f"topic {name}: " in "\n".join(worker.said().splitlines()[-3:])


async def test_topic_that_is_deleted_and_made_again_under_a_running_worker_is_noticed_and_named(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        await noticed(app, spawn(app, "worker"), Topics.of(app.plan).merged, again=True)


@pytest.mark.slow
@pytest.mark.parametrize("topic", EVERY)
@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
async def test_whichever_topic_is_deleted_is_noticed_and_once_accepted_windows_are_released_again(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, topic: str, again: bool
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        worker, name = spawn(app, "worker"), topic.replace("NAME", app.plan.name)
        await noticed(app, worker, name, again=again)

        worker.start()
        assert await asyncio.to_thread(worker.wait) == 2, worker.said()
        if name == f"{app.plan.name}.visits":
            return
        worker.start("--accept-loss")
        await publish_minutes(app, 1)
        if name.endswith("-counts-changelog"):  # the visits are of 2024, so years of windows have begun since
            assert await asyncio.to_thread(worker.wait) == 2
            assert "its exact counts were lost, of every window that had begun" in worker.said()
            return
        await app.eventually(lambda: shows(app, 2))
        assert await asyncio.to_thread(worker.terminate) == 0


@pytest.mark.slow
@pytest.mark.parametrize("topic", STATELESS)
@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
async def test_topic_without_state_is_made_again_and_counting_continues(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, topic: str, again: bool
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        worker, name = spawn(app, "worker"), topic.replace("NAME", app.plan.name)
        await release_first_window(app, worker)
        await delete(app, name)
        if again:
            specs = {spec.name: spec for spec in Topics.of(app.plan).all(app.plan)}
            await app.client.create([specs[name]])
        await wait_until_said(app, worker, f"topic {name} was deleted")
        await publish_minutes(app, 1, 2)
        assert await outcome(app, 3) == ["released"] * 3
        assert await asyncio.to_thread(worker.terminate) == 0


@pytest.mark.slow
async def test_killed_worker_writes_a_release_topic_again_from_the_start(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        view, worker = only_view(app), spawn(app, "worker")
        topic = Topics.of(app.plan).release(view.name, "public")
        worker.start()
        await publish_minutes(app, *range(20))
        before = (await app.wait_for_releases(view.name, 20))["public"]
        await delete(app, topic)
        await wait_until_said(app, worker, f"topic {topic} was deleted")
        await republish(
            await holding(app.plan, app.client), app.client, read_keys(app.plan.key_file), view.name, "public"
        )

        async def has_begun() -> bool:
            return len((await app.releases(view.name))["public"]) > 0

        await app.eventually(has_begun)
        worker.signal(signal.SIGKILL)
        await asyncio.to_thread(worker.wait)
        worker.start()
        await publish_minutes(app, 20)
        after = (await app.wait_for_releases(view.name, 21))["public"]
        assert after[:20] == before
        assert await asyncio.to_thread(worker.terminate) == 0


async def shows(app: Application, count: int) -> bool:
    """Whether an audience whose topic was left alone has so many windows."""
    return len((await app.published(only_view(app).name))["internal"]) >= count
