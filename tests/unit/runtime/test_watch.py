"""What a worker sees of its topics and of how partitions are shared, look by look."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from faust.types import TP

from stream_dp.errors import AccessError, BrokerError, ConfigError, Fault, OutageError, StateError
from stream_dp.releases.keyring import KeyRing, PrfKey
from stream_dp.runtime.factory import Settled
from stream_dp.runtime.faust.membership import admit, expected, instance_id, protocol, unowned
from stream_dp.runtime.faust.release_topics import ReleaseTopics
from stream_dp.runtime.kafka.client import Group, TopicState
from stream_dp.runtime.kafka.outages import Outage
from stream_dp.runtime.kafka.ownership import Life
from stream_dp.runtime.kafka.topic_checks import CHOICES
from stream_dp.runtime.kafka.topics import COUNTS, Topics, TopicSpec, read_by_workers, sources_of
from stream_dp.runtime.worker import timers as watch
from stream_dp.runtime.worker.timers import REJOINS, SHARED_SECONDS, Watch
from tests.support.releasing import plan

SHOP = plan()
TOPICS = Topics.of(SHOP)
NAMES = [*(spec.name for spec in TOPICS.all(SHOP)), *sources_of(SHOP)]
KEYS = KeyRing.of(bytes(32))
SETTLED = Settled(SHOP, topics={spec.name: Life(f"id of {spec.name}", 1) for spec in TOPICS.all(SHOP)})


@dataclass
class Cluster:
    """What a broker tells, and the worker that asks it."""

    present: dict[str, TopicState] = field(default_factory=lambda: {n: TopicState(f"id of {n}", 1) for n in NAMES})
    groups: list[Group | None] = field(default_factory=list)
    """One for every time it is asked; the last one stays. None: it does not answer."""
    silent: bool = False
    rejoined: int = 0
    dismissed: list[str] = field(default_factory=list)
    now: float = 0.0
    rebalancing: bool = False
    outage: Any = None
    made_with: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of topics, as far as they matter."""
    creates: bool = True
    """Whether this account may create them."""
    obeys: bool = True
    """Whether this account may change them."""
    deleted_before: dict[str, int] = field(default_factory=dict)
    releases: ReleaseTopics = field(default_factory=lambda: ReleaseTopics(TOPICS.release))
    ticks: str = TOPICS.ticks
    begun_again: list[str] = field(default_factory=list)
    cluster: Any = "how it is reached"
    """As the application has it."""

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        if self.silent:
            raise OutageError("no answer")
        return {name: state for name, state in self.present.items() if name in topics}

    async def settings(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        return {name: self.made_with.get(name, {}) for name in topics}

    async def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        if not self.obeys:
            raise AccessError("no")
        self.made_with[topic] = {**self.made_with[topic], **settings}

    async def begins(self, places: Collection[TP]) -> Mapping[TP, int]:
        return {place: self.deleted_before.get(place.topic, 0) for place in places}

    async def group(self, name: str) -> Group:
        group = self.groups.pop(0) if len(self.groups) > 1 else self.groups[0]
        if group is None:
            raise BrokerError("no answer")
        return group

    async def dismiss(self, group: str, instance: str) -> None:
        self.dismissed.append(instance)

    @property
    def consumer(self) -> Any:
        return self

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        if not self.creates:
            raise AccessError("does not let this account create it")
        for topic in topics:
            self.present.setdefault(topic.name, TopicState(f"another {topic.name}", topic.partitions))

    async def begin_again(self, topic: str) -> None:
        self.begun_again.append(topic)

    async def rejoin(self) -> None:
        self.rejoined += 1

    def watch(self) -> Watch:
        app: Any = self
        client: Any = self
        return Watch(app, SHOP, SETTLED, client, self.releases, lambda: self.now)


def shared(*without: TP, by: str = "") -> Group:
    """A stable group whose one member has every partition but some."""
    places = expected(SHOP, {name: TopicState("", 1) for name in NAMES})
    return Group("Stable", by or protocol(SHOP, SETTLED, KEYS), {"w": places.difference(without)})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(groups=[shared()])


async def test_topic_that_is_gone_is_told_at_the_second_look_and_one_that_came_back_the_same_never(
    cluster: Cluster,
) -> None:
    watch, was = cluster.watch(), cluster.present.pop(TOPICS.partials)
    await watch.look()
    cluster.present[TOPICS.partials] = was
    await watch.look()
    del cluster.present[TOPICS.partials]
    await watch.look()
    with pytest.raises(ConfigError) as caught:
        await watch.look()
    lost, choices = caught.value.faults
    assert lost.path == f"topic {TOPICS.partials}"
    assert lost.message.startswith("was deleted, and with it exact counts on their way")
    assert choices.message == CHOICES


STATELESS, RELEASED = TOPICS.stateless(SHOP), TOPICS.releases(SHOP)


@pytest.mark.parametrize("topic", sorted({*NAMES} - STATELESS - RELEASED))
async def test_topic_that_was_made_again_is_told_at_once_whichever_it_is(cluster: Cluster, topic: str) -> None:
    watch = cluster.watch()
    await watch.look()
    cluster.present[topic] = TopicState("another", 1)
    with pytest.raises(ConfigError, match=f"topic {topic}: (the source )?was deleted and made again"):
        await watch.look()


@pytest.mark.parametrize("topic", sorted(STATELESS))
async def test_topic_without_state_is_created_again(cluster: Cluster, topic: str) -> None:
    watch = cluster.watch()
    await watch.look()
    del cluster.present[topic]
    for _ in range(3):
        await watch.look()
    assert cluster.present[topic].id == f"another {topic}"
    assert cluster.begun_again == ([topic] if topic == TOPICS.ticks else [])


@pytest.mark.parametrize("topic", sorted(STATELESS))
async def test_uncreated_topic_without_state_is_named_until_it_exists(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    watch, was = cluster.watch(), cluster.present[topic]
    cluster.creates = False
    del cluster.present[topic]
    for _ in range(4):
        await watch.look()
    assert [*watch.uncreated] == [topic]
    assert caplog.messages == [*watch.uncreated.values()]

    cluster.present[topic] = was
    await watch.look()
    assert watch.uncreated == {}
    del cluster.present[topic]
    for _ in range(3):
        await watch.look()
    cluster.creates = True
    await watch.look()
    assert watch.uncreated == {}
    assert cluster.present[topic].id == f"another {topic}"


@pytest.mark.parametrize("topic", sorted(RELEASED))
async def test_release_topic_of_nobody_here_is_not_missed(cluster: Cluster, topic: str) -> None:
    watch = cluster.watch()
    del cluster.present[topic]
    for _ in range(3):
        await watch.look()
    assert topic not in cluster.present


@pytest.fixture(autouse=True)
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[ConfigError | None]:
    """Why the cluster lets nobody in, at every time somebody asks; then it does."""
    found: list[ConfigError | None] = []

    async def diagnose(cluster: Any) -> ConfigError | None:
        assert cluster == "how it is reached"
        return found.pop(0) if found else None

    monkeypatch.setattr(watch, "diagnose", diagnose)
    return found


async def test_cluster_that_refuses_the_login_of_a_worker_that_runs_ends_it_at_the_second_look_in_a_row(
    cluster: Cluster, refusals: list[ConfigError | None]
) -> None:
    refused = ConfigError([Fault("broker.sasl", "refuses the login")])
    look = cluster.watch().look
    refusals += [refused, None, refused, refused]
    await look()
    assert len(refusals) == 4  # nobody asks while it answers
    cluster.silent = True
    for _ in range(3):
        await look()
    with pytest.raises(ConfigError, match="refuses the login"):
        await look()


async def test_a_broker_that_does_not_answer_tells_nothing(cluster: Cluster) -> None:
    watch = cluster.watch()
    cluster.silent = True
    for _ in range(5):
        await watch.look()


async def test_partition_without_an_owner_has_the_group_share_anew_and_in_the_end_the_worker_give_up(
    cluster: Cluster,
) -> None:
    watch, hole = cluster.watch(), TP(TOPICS.merged, 0)

    async def looks(count: int) -> None:
        for _ in range(count):
            cluster.now += SHARED_SECONDS
            await watch.look()

    cluster.groups = [shared(hole), shared()]
    await looks(3)
    assert cluster.rejoined == 0, "a hole that is seen once may be filled already"
    cluster.groups = [shared(hole), shared(hole), shared()]
    await looks(4)
    assert cluster.rejoined == 1
    cluster.groups = [shared(hole)]
    await looks(2 * REJOINS + 1)
    assert cluster.rejoined == 1 + REJOINS
    with pytest.raises(StateError, match=f"partition 0 of {TOPICS.merged} is without a worker.*can be started again"):
        await looks(1)


async def test_group_that_is_being_shared_anew_has_no_holes(cluster: Cluster) -> None:
    watch = cluster.watch()
    cluster.groups = [Group("CompletingRebalance", "", {"w": frozenset()})]
    for _ in range(5):
        cluster.now += SHARED_SECONDS
        await watch.look()
    assert cluster.rejoined == 0


# -- before a worker joins ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.runtime.faust.membership.WAIT_SECONDS", 0)


async def admitted(cluster: Cluster, told: list[str] | None = None) -> list[str]:
    """Who was taken out of the group before the worker was let in; what it waited for meanwhile is told."""
    client: Any = cluster
    heard: list[str] = [] if told is None else told
    await admit(SHOP, SETTLED, KEYS, client, heard.append)
    return cluster.dismissed


async def test_worker_of_an_empty_group_or_a_whole_one_of_its_configuration_joins_as_who_it_was(
    cluster: Cluster,
) -> None:
    told: list[str] = []
    assert await admitted(cluster, told) == []
    cluster.groups = [Group("Empty", "", {})]
    assert await admitted(cluster, told) == []
    assert told == [], "it is alone, and nobody has to end"


async def test_former_self_leaves_a_group_of_another_configuration_which_then_is_waited_for(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    other = shared(by="another")
    cluster.groups = [other, other, None, other, Group("PreparingRebalance", "", {}), Group("Empty", "", {})]
    told: list[str] = []
    assert await admitted(cluster, told) == [instance_id(SHOP)]
    assert set(told) == {f"workers of {SHOP.id} that run with other sources, or another key file, to end"}
    (line,) = caplog.messages
    assert "other sources, or another key file, share its partitions: this one waits until they have ended" in line


async def test_former_self_leaves_a_group_with_a_hole_so_that_it_is_shared_anew(cluster: Cluster) -> None:
    cluster.groups = [shared(TP(TOPICS.merged, 0))]
    assert await admitted(cluster) == [instance_id(SHOP)]


async def test_broker_that_never_tells_about_the_group_ends_the_start(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.runtime.faust.membership.SILENT_SECONDS", 0.01)
    cluster.groups = [None]
    with pytest.raises(BrokerError):
        await admitted(cluster)


def test_what_workers_have_to_agree_on_is_topics_partitions_keys_and_what_was_lost() -> None:
    (view, *_) = SHOP.views.values()
    settings = plan(("items_per_user: 1", "items_per_user: 2"), ("audiences: {partner: coarse, ", "audiences: {"))
    assert protocol(settings, SETTLED, KEYS) == protocol(SHOP, SETTLED, KEYS), "all go by the control topic"
    changed = [plan(("topic: visits", "topic: views"))]
    lives = {**SETTLED.topics, TOPICS.partials: Life("again", 2)}
    names = {protocol(one, SETTLED, KEYS) for one in [SHOP, *changed]}
    others = [Settled(SHOP, topics=lives), Settled(SHOP, uncounted={view.name: 5})]
    names |= {protocol(SHOP, settled, KEYS) for settled in others}
    rotated = KeyRing.of(bytes(32), bytes(range(32)))
    retired = KeyRing((PrfKey(KEYS.application, None), *rotated.keys[1:]))
    names |= {protocol(SHOP, SETTLED, keys) for keys in (rotated, retired)}
    assert len(names) == 6
    assert protocol(plan(), SETTLED, KEYS) == protocol(SHOP, SETTLED, KEYS)


def test_every_partition_that_is_read_has_to_be_owned() -> None:
    present = {name: TopicState("", 2) for name in read_by_workers(SHOP)}
    assert unowned(Group("Stable", "", {}), expected(SHOP, present)) == {
        TP(name, at) for name in read_by_workers(SHOP) for at in range(2)
    }
    assert {TOPICS.ticks, TOPICS.control, TOPICS.orders, *sources_of(SHOP)} < read_by_workers(SHOP)


# -- changed topics ---------------------------------------------------------------------------------------------------


async def look(cluster: Cluster, watch: Watch) -> None:
    cluster.now += SHARED_SECONDS
    await watch.look()


async def test_a_setting_that_was_changed_is_put_right_and_said(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    watch, ticks = cluster.watch(), Topics.of(SHOP).ticks
    await look(cluster, watch)
    assert caplog.messages == []
    cluster.made_with[ticks] = {"max.message.bytes": "3000"}
    await look(cluster, watch)
    await look(cluster, watch)
    assert caplog.messages == [f"topic {ticks}: max.message.bytes is 3000, not 1048588; it was put right"]
    assert watch.wrong == []


async def test_a_setting_that_cannot_be_put_right_is_said_once_and_stands_in_the_status_until_it_is_right(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    watch, ticks = cluster.watch(), Topics.of(SHOP).ticks
    cluster.obeys = False
    cluster.made_with[ticks] = {"max.message.bytes": "3000"}
    await look(cluster, watch)
    await look(cluster, watch)
    assert [fault.path for fault in watch.wrong] == [f"topic {ticks}"]
    assert caplog.messages == [str(fault) for fault in watch.wrong]
    cluster.made_with.clear()
    await look(cluster, watch)
    assert watch.wrong == []


async def test_records_that_are_deleted_while_it_runs_end_a_worker(cluster: Cluster) -> None:
    watch, control = cluster.watch(), Topics.of(SHOP).control
    await look(cluster, watch)
    cluster.deleted_before[control] = 1
    with pytest.raises(ConfigError, match=f"topic {control}: records of it were deleted"):
        await look(cluster, watch)


async def test_what_is_recovered_is_looked_at_once_before_it_is_read_and_again_when_partitions_changed_hands(
    cluster: Cluster,
) -> None:
    watch, counts = cluster.watch(), Topics.of(SHOP).changelog(COUNTS)
    cluster.outage = Outage("there")
    await watch.check_whole()
    cluster.deleted_before[counts] = 1
    await watch.check_whole()
    watch.forget()
    with pytest.raises(ConfigError, match=f"topic {counts}: records of it were deleted"):
        await watch.check_whole()


@pytest.mark.parametrize("which", ["source", "own"])
async def test_partitions_that_are_added_while_it_runs_end_a_worker(cluster: Cluster, which: str) -> None:
    watch = cluster.watch()
    await look(cluster, watch)
    name = next(iter(sources_of(SHOP))) if which == "source" else Topics.of(SHOP).partials
    cluster.present[name] = cluster.present[name]._replace(partitions=2)
    with pytest.raises(ConfigError, match=f"topic {name}: has 2 partitions, not 1\\. "):
        await look(cluster, watch)
