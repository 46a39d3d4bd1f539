"""Workers whose configuration names other topics than before: after a restart, and beside the former workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from faust.types import TP

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import WRONG_CONFIGURATION
from stream_dp.runtime.faust.membership import Assignor
from stream_dp.runtime.kafka.topics import Topics, TopicSpec, sources_of
from stream_dp.runtime.worker import timers as watch
from stream_dp.testing import Application, Event, Watermark, application, plan_from
from tests.support.losing import MINUTE, publish_minutes
from tests.support.views import start_of

pytestmark = pytest.mark.broker

SECOND = (
    ("sources:\n", "sources:\n  clicks: {topic: NAME.clicks, partitions: 3, user: user, time: {field: at}}\n"),
    (
        "views:\n",
        "views:\n  NAME-clicks: {kind: histogram, source: clicks, item: page, items_per_user: 1, window: {size: 1m, "
        "start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}, "
        'delta: "1e-4", ledger: visitors, ladder: standard, retention: 1d, buckets: 2}\n',
    ),
)
JOINS_SECONDS = 20.0
"""In which a worker has to run again: far less than a minute, after which the group forgets a member."""


async def minute_of_both(app: Application, minute: int) -> None:
    """Visits and clicks of a minute."""
    for source in ("visits", "clicks"):
        (view,) = (view for view in app.plan.views.values() if view.source.name == source)
        at = start_of(view) + minute * MINUTE
        await app.publish([Event(f"u{n}", f"/{n % 5}", at + n) for n in range(300)], source)
        await app.publish([Watermark(at + 2 * MINUTE)], source)


async def wait_for(app: Application, count: int, *workers: Any) -> None:
    """Wait until every view has released so many windows."""

    async def enough() -> bool:
        for worker in workers:
            worker.check()
        found = [records for view in app.plan.views for records in (await app.releases(view)).values()]
        return all(len(records) >= count for records in found)

    await app.eventually(enough)


def clicked(app: Application) -> ViewPlan:
    return next(view for view in app.plan.views.values() if view.source.name == "clicks")


def planned(text: str, folder: Path, kafka: str) -> Plan:
    """The plan of a changed file, which stands where the workers read it."""
    return plan_from(text, folder, kafka)


@pytest.mark.slow
async def test_source_is_added_and_removed_and_the_worker_runs_again_at_once(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    one, two = visits(), visits(*SECOND)
    async with application(one, tmp_path, broker=kafka) as app:
        former, worker = app.plan, spawn(app, "worker", "--session-seconds", "60")
        worker.start()
        await publish_minutes(app, 0)
        await wait_for(app, 1, worker)
        assert worker.terminate() == 0

        app.plan = planned(two, tmp_path, kafka)
        await app.client.create([TopicSpec(f"{app.plan.name}.clicks", 3)])
        clicks = clicked(app)
        await app.apply(app.plan, {clicks.name: start_of(clicks)})
        began = time.monotonic()
        worker.start()
        await minute_of_both(app, 1)
        await wait_for(app, 2, worker)
        added = time.monotonic() - began
        assert worker.terminate() == 0

        app.plan = planned(one, tmp_path, kafka)
        assert app.plan.views == former.views
        await app.apply(app.plan, {}, {clicks.name: start_of(clicks) + 2 * MINUTE})
        began = time.monotonic()
        worker.start()
        await publish_minutes(app, 2)
        await wait_for(app, 3, worker)
        removed = time.monotonic() - began
        assert worker.terminate() == 0
    print(f"released {added:.1f} s after the source was added, {removed:.1f} s after it was removed")
    assert max(added, removed) < JOINS_SECONDS


@pytest.mark.slow
async def test_workers_end_where_settings_name_a_further_source_and_read_it_when_they_are_started_again(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    one, two = visits(), visits(*SECOND)
    async with application(one, tmp_path, broker=kafka) as app:
        first, second = (spawn(app, name) for name in ("first", "second"))
        first.start()
        second.start()
        await publish_minutes(app, 0)
        await wait_for(app, 1, first, second)

        app.plan = planned(two, tmp_path, kafka)
        await app.client.create([TopicSpec(f"{app.plan.name}.clicks", 3)])
        await app.apply(app.plan, {clicked(app).name: start_of(clicked(app))})
        for worker in (first, second):
            assert worker.wait() == 1
            assert "count other sources than this worker reads" in worker.said()

        first.start()
        second.start()
        await minute_of_both(app, 1)
        await wait_for(app, 2, first, second)
        assert first.terminate() == second.terminate() == 0


def overlook(monkeypatch: pytest.MonkeyPatch, app: str, cluster: Any) -> Callable[[], None]:
    """Let one topic be missing where partitions are shared; what undoes that."""
    partitions = cluster.partitions_for_topic
    monkeypatch.setattr(cluster, "partitions_for_topic", lambda t: None if t == f"{app}-merged" else partitions(t))
    return lambda: monkeypatch.setattr(cluster, "partitions_for_topic", partitions)


def outdate(_monkeypatch: pytest.MonkeyPatch, _app: str, cluster: Any) -> Callable[[], None]:
    """Let the worker know of no topic, as after an answer of a broker that had just begun to run."""
    cluster._partitions.clear()
    return lambda: None


@pytest.mark.parametrize("forget", [pytest.param(overlook, marks=pytest.mark.slow), outdate])
async def test_partition_that_a_rebalance_left_out_is_given_an_owner(
    kafka: str, tmp_path: Path, visits: Callable[..., str], monkeypatch: pytest.MonkeyPatch, forget: Any
) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(watch, "SHARED_SECONDS", 1.0)
    monkeypatch.setattr("stream_dp.runtime.worker.assembly.LOOK_SECONDS", 0.5)
    whole, shares = Assignor.assign, []

    def forgetful(self: Assignor, cluster: Any, members: Any) -> Any:
        shares.append(len(members))
        if len(shares) > 1:
            return whole(self, cluster, members)
        remember = forget(monkeypatch, self.app.conf.id, cluster)
        shared = whole(self, cluster, members)
        remember()
        return shared

    monkeypatch.setattr(Assignor, "assign", forgetful)
    async with application(visits(), tmp_path, broker=kafka) as app:
        await app.start()
        await publish_minutes(app, 0, 1)
        (view,) = app.plan.views
        await app.wait_for_releases(view, 2)
        await asyncio.sleep(0)
    assert len(shares) > 1


# -- settings ---------------------------------------------------------------------------------------------------------


async def test_topics_that_somebody_changes_while_a_worker_runs_are_put_right_or_end_it_by_name(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        topics, worker = Topics.of(app.plan), spawn(app, "worker", "--terse")
        worker.start()
        await publish_minutes(app, 0)
        await wait_for(app, 1, worker)
        releases, counts = topics.changelog("releases"), topics.changelog("counts")
        await app.client.configure(releases, {"cleanup.policy": "delete", "retention.ms": "604800000"})
        await app.client.configure(counts, {"max.message.bytes": "2000000", "segment.ms": "604800000"})
        await said(app, worker, f"topic {releases}: cleanup.policy is delete, not compact; it was put right")
        await said(app, worker, f"topic {counts}: segment.ms is 604800000, not 5000; it was put right")
        settings = await app.client.settings([releases, counts])
        assert (settings[releases]["cleanup.policy"], settings[counts]["segment.ms"]) == ("compact", "5000")

        await app.client.configure(topics.control, {"cleanup.policy": "delete"})
        await app.client.delete_before({TP(topics.control, 0): 1})
        assert await asyncio.to_thread(worker.wait) == WRONG_CONFIGURATION
        assert f"error: topic {topics.control}: records of it were deleted" in worker.said().splitlines()[-1]
        worker.start()
        assert await asyncio.to_thread(worker.wait) == WRONG_CONFIGURATION
        assert f"error: topic {topics.control}: records of it were deleted" in worker.said().splitlines()[-1]


async def said(app: Application, worker: Any, words: str) -> None:
    """Wait until a worker has logged something, whether it ends then or not."""

    async def found() -> bool:
        return words in worker.log.read_text()

    await app.eventually(found)


@pytest.mark.slow
async def test_a_source_that_grows_and_a_topic_that_takes_less_than_is_written_end_a_worker_by_name(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        topics, worker = Topics.of(app.plan), spawn(app, "worker", "--terse")
        worker.start()
        await publish_minutes(app, 0)
        await wait_for(app, 1, worker)
        merged = topics.merged
        await app.client.configure(merged, {"max.message.bytes": "100"})
        await publish_minutes(app, 1)
        await said(app, worker, f"topic {merged}: max.message.bytes is 100, not 1048588; it was put right")
        assert await asyncio.to_thread(worker.wait) == 1, "what it had at hand cannot be written any more"
        worker.start()
        await wait_for(app, 2, worker)

        (source,) = sources_of(app.plan)
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        await admin.create_partitions({source: NewPartitions(4)})
        await admin.close()
        assert await asyncio.to_thread(worker.wait) == WRONG_CONFIGURATION
        assert f"error: topic {source}: has 4 partitions, not 3" in worker.said().splitlines()[-1]
