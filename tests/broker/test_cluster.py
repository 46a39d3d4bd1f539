"""A cluster of three brokers: whatever happens to them, releases go on where they can, and are exact."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition

from stream_dp.config.access import Broker
from stream_dp.errors import BrokerError, ConfigError
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.topic_checks import differences
from stream_dp.runtime.kafka.topics import Topics, TopicSpec, sources_of
from stream_dp.runtime.localkafka import jars
from stream_dp.runtime.settled import prepare
from stream_dp.testing import Watermark, application, plan_from
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.cluster import COPIES, GROUPS, TRANSACTIONS, Cluster
from tests.support.disks import fill, make_room, small_disk
from tests.support.transactional import crowd, producing, shown
from tests.support.views import start_of
from tests.support.visits import MINUTE, PAGES, RICH, WITNESSED, Stream

pytestmark = pytest.mark.broker

DISK_MEGABYTES = 160
GONE_S = 60.0
"""How long brokers are away."""
FED_EVERY_S = 2.0
MOST_UNSHOWN = 5
"""Largest number of windows that are fed before they are released: a slow machine must be able to catch up."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers of these tests' own."""
    if (problem := jars.local_kafka_problem()) is not None:
        pytest.skip(f"no broker: {problem}")
    made = Cluster(tmp_path_factory.mktemp("cluster") / "kafka")
    yield made
    made.close()


@dataclass
class Scene:
    """An application on a cluster, which is fed without end."""

    cluster: Cluster
    stream: Stream
    topics: Topics

    async def feed(self) -> None:
        """Publish a window every other second, as long as the cluster takes it and the workers keep up."""
        while True:
            with suppress(BrokerError):
                if self.stream.windows - await self.stream.shown() < MOST_UNSHOWN:
                    await self.stream.go_on(1)
            await asyncio.sleep(FED_EVERY_S)

    async def next_release(self, within_s: float) -> float:
        """Seconds until a window is released that is fed from now on."""
        began, fed = time.monotonic(), self.stream.windows
        async with asyncio.timeout(within_s):
            while True:
                with suppress(BrokerError):
                    if await self.stream.shown() > fed:
                        return time.monotonic() - began
                await asyncio.sleep(0.2)


@asynccontextmanager
async def fed(cluster: Cluster, tmp_path: Path, visits: Any, spawn: Any, workers: int) -> AsyncIterator[Scene]:
    """The scene; at its end everything has to be released, exact, and the workers have to end in order."""
    async with application(visits(*WITNESSED, *RICH, *COPIES), tmp_path / "application", broker=cluster.address) as app:
        scene = Scene(cluster, Stream(app), Topics.of(app.plan))
        crew = [spawn(app, f"w{at}", "--terse") for at in range(workers)]
        for worker in crew:
            worker.start()
        await scene.stream.go_on(2)
        await scene.stream.wait_until_shown()
        feeding = asyncio.create_task(scene.feed())
        yield scene
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        await scene.stream.go_on(2)
        await scene.stream.wait_until_shown()
        for worker in crew:
            worker.check()
        assert [worker.terminate(10) for worker in crew] == [0] * workers
        (await scene.stream.audit()).assert_clean()


@pytest.mark.slow
async def test_topics_are_made_as_they_must_be_though_the_cluster_creates_what_is_asked_for(
    cluster: Cluster, tmp_path: Path, visits: Callable[..., str]
) -> None:
    """Kafka's default. A source that is missing stays so, and nothing is made before all is known to be right."""
    async with connect(Broker(f"kafka://{cluster.address}")) as client:
        plan = plan_from(visits(*COPIES), tmp_path, cluster.address)
        specs = {spec.name: spec for spec in Topics.of(plan).all(plan)}
        (source,) = sources_of(plan)
        with pytest.raises(ConfigError, match=f"the broker has no topic {source}; create it"):
            await prepare(plan, client, lambda: "0123456789abcdef", backfill=True)
        assert await client.describe([source, *specs]) == {}
        await client.create([TopicSpec(source, 3)])
        await prepare(plan, client, lambda: "0123456789abcdef", backfill=True)
        settings = await client.settings(specs)
        assert {name: differences(spec, settings[name]) for name, spec in specs.items()} == {name: {} for name in specs}
        assert {state.copies for state in (await client.describe(list(specs))).values()} == {3}


@pytest.mark.slow
async def test_while_one_broker_of_three_is_frozen_releases_go_on(
    cluster: Cluster, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    """It led a partition of the releases. The others give it up after 9 s."""
    async with fed(cluster, tmp_path, visits, spawn, workers=1) as scene:
        cluster.freeze(await cluster.leader(scene.topics.changelog("releases"), 1))
        took = await scene.next_release(WITHIN_SECONDS)
        await asyncio.to_thread(cluster.come_back)
    print(f"\none of three frozen: {took:.1f} s until the next release")


@pytest.mark.slow
async def test_while_the_disk_of_one_broker_of_three_is_full_releases_go_on(
    tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    """A broker whose disk is full ends itself; it is started again when there is room."""
    if (problem := jars.local_kafka_problem()) is not None:
        pytest.skip(f"no broker: {problem}")
    with small_disk(tmp_path / "kafka" / "node1" / "data", DISK_MEGABYTES) as disk:
        cluster = await asyncio.to_thread(Cluster, tmp_path / "kafka")
        try:
            async with fed(cluster, tmp_path, visits, spawn, workers=1) as scene:
                usual = await scene.next_release(WITHIN_SECONDS)
                await asyncio.to_thread(fill, disk)
                took = await scene.next_release(WITHIN_SECONDS)
                async with asyncio.timeout(WITHIN_SECONDS):
                    while cluster.nodes[1].alive:
                        await asyncio.sleep(0.5)
                after = await scene.next_release(WITHIN_SECONDS)
                make_room(disk)
                await asyncio.to_thread(cluster.come_back)
        finally:
            cluster.close()
    print(f"\none disk of three full: {took:.1f} s, then {after:.1f} s until the next release; usually {usual:.1f} s")


@pytest.mark.slow
async def test_transactions_survive_a_leader_change(
    cluster: Cluster, tmp_path: Path, visits: Callable[..., str]
) -> None:
    """Their partition is led by another broker when they are committed and aborted, and by the former one later."""
    async with (
        application(visits(*WITNESSED, *RICH, *COPIES), tmp_path, broker=cluster.address) as app,
        producing(app, cluster.address, "committed") as committed,
        producing(app, cluster.address, "aborted") as aborted,
    ):
        view = next(one for one in app.plan.views.values() if one.name.endswith("-exact"))
        start, place = start_of(view), TopicPartition(view.source.topic, 0)
        await app.start()
        await committed.begin()
        await aborted.begin()
        await committed.send(crowd(PAGES[0], range(100), start))
        await aborted.send([*crowd(PAGES[1], range(100, 200), start), Watermark(start + 9 * MINUTE)])
        cluster.kill(await cluster.leader(place.topic, place.partition))
        await committed.send(crowd(PAGES[0], range(200, 300), start))
        await aborted.send(crowd(PAGES[1], range(300, 400), start))
        await committed.commit()
        await aborted.abort()
        await asyncio.to_thread(cluster.come_back)
        await cluster.prefer()
        await app.publish([Watermark(start + MINUTE + 10_000)])
        found = await app.wait_for_releases(view.name, 1)
        assert shown(found["public"]) == {start: {PAGES[0]: 200}}


# -- one after another --------------------------------------------------------------------------------------------


async def kills(scene: Scene, *numbers: int) -> float:
    """Kill brokers and measure, with them away unless that leaves too few, else behind their coming back."""
    return await _away(scene, scene.cluster.kill, *numbers)


async def freezes(scene: Scene, *numbers: int) -> float:
    """The same with brokers that accept requests and say nothing."""
    return await _away(scene, scene.cluster.freeze, *numbers)


async def _away(scene: Scene, disturb: Callable[..., None], *numbers: int) -> float:
    disturb(*numbers)
    if len(numbers) == 1:
        took = await scene.next_release(WITHIN_SECONDS)
        await asyncio.to_thread(scene.cluster.come_back)
        return took
    await asyncio.sleep(GONE_S)
    await asyncio.to_thread(scene.cluster.come_back)
    return await scene.next_release(WITHIN_SECONDS)


async def leader(scene: Scene) -> float:
    return await kills(scene, await scene.cluster.leader(scene.topics.changelog("releases"), 1))


async def coordinator_of_the_group(scene: Scene) -> float:
    return await kills(scene, await scene.cluster.coordinator(GROUPS, scene.topics.app))


async def coordinator_of_a_claim(scene: Scene) -> float:
    name = f"{scene.topics.changelog('releases')}-0"
    return await kills(scene, await scene.cluster.coordinator(TRANSACTIONS, name))


async def frozen_leader(scene: Scene) -> float:
    return await freezes(scene, await scene.cluster.leader(scene.topics.changelog("counts"), 0))


async def frozen_coordinator(scene: Scene) -> float:
    return await freezes(scene, await scene.cluster.coordinator(GROUPS, scene.topics.app))


async def two_frozen(scene: Scene) -> float:
    return await freezes(scene, 1, 3)


async def two_killed(scene: Scene) -> float:
    return await kills(scene, 2, 3)


async def power_loss(scene: Scene) -> float:
    return await kills(scene, 1, 2, 3)


async def rolling_restart(scene: Scene) -> float:
    for number in scene.cluster.numbers:
        await asyncio.to_thread(scene.cluster.restart, number)
    return await scene.next_release(WITHIN_SECONDS)


async def kills_in_rotation(scene: Scene) -> float:
    chance = random.Random(7)
    for turn in range(6):
        scene.cluster.kill(1 + turn % 3)
        await asyncio.sleep(chance.uniform(1, 5))
        await asyncio.to_thread(scene.cluster.come_back)
        await asyncio.sleep(chance.uniform(4, 8))
    return await scene.next_release(WITHIN_SECONDS)


async def reassignment(scene: Scene) -> float:
    topics = scene.topics
    moved = [topics.changelog(table) for table in ("counts", "merges", "releases")]
    await scene.cluster.reassign([*moved, topics.ticks, topics.partials, topics.merged, topics.control])
    return await scene.next_release(WITHIN_SECONDS)


async def preferred_election(scene: Scene) -> float:
    await scene.cluster.prefer()
    return await scene.next_release(WITHIN_SECONDS)


DISTURBANCES: list[Callable[[Scene], Awaitable[float]]] = [
    leader,
    coordinator_of_the_group,
    coordinator_of_a_claim,
    frozen_leader,
    frozen_coordinator,
    two_frozen,
    two_killed,
    power_loss,
    rolling_restart,
    kills_in_rotation,
    reassignment,
    preferred_election,
]


@pytest.mark.slow
async def test_whatever_happens_to_the_brokers_releases_go_on_and_are_exact(
    cluster: Cluster, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    """Prints the seconds to the next release after each."""
    async with fed(cluster, tmp_path, visits, spawn, workers=2) as scene:
        for disturbance in DISTURBANCES:
            took = await disturbance(scene)
            print(f"\n{disturbance.__name__}: {took:.1f} s to the next release", flush=True)
            await asyncio.sleep(FED_EVERY_S)
