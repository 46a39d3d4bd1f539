"""Who shares the partitions of an application: workers of one configuration, each under a name that survives a restart.

The group has static members, so that a worker that is started again within its session goes on with what it had, and
the others notice nothing. The broker gives such a member its former partitions without asking anybody. That is wrong
where its configuration has changed, and where partitions were left without an owner; so a worker first takes its former
self out of the group there.

Workers of two configurations never share partitions: one that does not read a source would leave it unread, and one
that lacks a key that the others seal with could not go on where they stop. The name of the way in which a group shares
(Kafka's protocol name) tells sources and key files apart, and the broker admits no member that knows only another one.
A worker whose own differ waits until the others are gone. Views are no part of it: all workers go by the settings in
the control topic, whatever file they were started with.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import time
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import msgspec
from faust.assignor import PartitionAssignor
from faust.types import TP

from stream_dp.config.plan import Plan
from stream_dp.errors import BrokerError, StateError
from stream_dp.releases.keyring import KeyRing
from stream_dp.runtime.factory import Settled
from stream_dp.runtime.faust.sharing import Share, share
from stream_dp.runtime.kafka.client import Client, Group, TopicState
from stream_dp.runtime.kafka.topics import Topics, read_by_workers, sources_of

log = logging.getLogger("stream_dp.worker")

WAIT_SECONDS = 0.5
"""Between two looks at a group that cannot be joined yet."""
SILENT_SECONDS = 30.0
"""Time that a broker may not describe the group: the first group of a cluster takes some seconds."""
STABLE, EMPTY = "Stable", ("Empty", "Dead")


class Assignor(PartitionAssignor):
    """Faust's own, under the name of the application's configuration; with copies, partitions are shared by `share`.

    Faust's with standbys gives most partitions of a dead worker to some that have no copy of them. It is not told of
    copies: who keeps one reads the changelog by itself (`runtime.faust.copies`), and is not given it by Kafka.
    """

    def __init__(self, app: Any, replicas: int = 0) -> None:
        super().__init__(app)
        self._copies = replicas
        self._former: Mapping[str, Any] = {}
        self._table_manager = SimpleNamespace(changelog_topics=frozenset(), data={})  # Kafka assigns no copies

    def _update_member_urls(self, clients_metadata: Mapping[str, Any]) -> None:
        super()._update_member_urls(clients_metadata)
        self._former = {member: client.assignment for member, client in clients_metadata.items()}

    def _global_table_standby_assignments(self, assignments: Any, partitions_by_topic: Mapping[str, int]) -> Any:
        """Share the partitions anew, after Faust did; there are no global tables."""
        changelog = min(self.app.changelogs)
        if not self._copies or changelog not in partitions_by_topic:
            return assignments
        partitions = partitions_by_topic[changelog]
        former = {
            member: Share(one.actives.get(changelog, ()), one.standbys.get(changelog, ()))
            for member, one in self._former.items()
        }
        for member, given in share(former, partitions, self._copies).items():
            for topic, number in partitions_by_topic.items():
                if number == partitions:
                    assignments[member].actives[topic] = list(given.owned)
                    assignments[member].standbys[topic] = list(given.copied)
        return assignments

    def assigned_standbys(self) -> set[TP]:
        """None, for Faust."""
        return set()

    @property
    def copied(self) -> frozenset[int]:
        """The partitions that this worker should keep copies of. Other workers own them."""
        return frozenset(tp.partition for tp in super().assigned_standbys() if tp.topic in self.app.changelogs)

    @property
    def name(self) -> str:
        """Metadata that all members of a group have in common."""
        name: str = self.app.protocol
        return name


def instance_id(plan: Plan) -> str:
    """A name of this worker that survives a restart: its machine and its data folder."""
    return f"{plan.id}-{socket.gethostname()}-{crc32(str(plan.data_dir.resolve()).encode()):08x}"


def protocol(plan: Plan, settled: Settled, keys: KeyRing) -> str:
    """The name of what workers agree on to share partitions: topics, their lives, sources, partitions, and keys."""
    shared = read_by_workers(plan)
    topics = {spec.name: spec.partitions for spec in Topics.of(plan).all(plan) if spec.name in shared}
    sources = {topic: source.partitions for topic, source in sources_of(plan).items()}
    stateless = Topics.of(plan).stateless(plan)  # how often they were created does not matter
    lives = {name: settled.topics[name].number for name in topics if name in settled.topics and name not in stateless}
    agreed = msgspec.json.encode((topics, sources, lives, settled.uncounted, keys.agreed), order="sorted")
    return f"stream-dp-{hashlib.sha256(agreed).hexdigest()[:12]}"


def expected(plan: Plan, present: Mapping[str, TopicState]) -> frozenset[TP]:
    """Every partition that some worker should have."""
    topics = read_by_workers(plan) & present.keys()
    return frozenset(TP(topic, at) for topic in topics for at in range(present[topic].partitions))


def unowned(group: Group, places: Collection[TP]) -> set[TP]:
    """The partitions that no member of a stable group was given."""
    return set(places).difference(*group.owned.values())


async def admit(
    plan: Plan, settled: Settled, keys: KeyRing, client: Client, wait_for: Callable[[str], None] = lambda _: None
) -> None:
    """Wait until this worker can join its group, having taken its former self out of it where that would be in the way.

    Args:
        plan: the application.
        settled: what it starts with.
        keys: its secrets.
        client: of its broker.
        wait_for: is told what it waits for.

    Raises:
        BrokerError: the broker did not tell about the group in time.
    """
    own, silent_since = protocol(plan, settled, keys), time.monotonic()
    dismissed, said = False, False
    while True:
        try:
            group = await client.group(plan.id)
            if group.state in EMPTY:
                return
            if group.state == STABLE:
                missing = unowned(group, expected(plan, await client.describe(read_by_workers(plan))))
                if group.protocol == own and (not missing or dismissed):
                    return
                if not dismissed:
                    await client.dismiss(plan.id, instance_id(plan))
                    dismissed = True
                    continue
                wait_for(
                    f"the group {plan.id}, which gives the partitions that were left to the workers that run"
                    if group.protocol == own
                    else f"workers of {plan.id} that run with other sources, or another key file, to end"
                )
                if not said and group.protocol != own:
                    log.warning(
                        "workers of %s that run with other sources, or another key file, share its partitions: "
                        "this one waits until they have ended, up to a minute longer for one that was killed",
                        plan.id,
                    )
                    said = True
            silent_since = time.monotonic()
        except BrokerError:
            if time.monotonic() - silent_since > SILENT_SECONDS:
                raise
        await asyncio.sleep(WAIT_SECONDS)


def hole(missing: Collection[TP]) -> StateError:
    """The error of a worker that sees partitions stay without an owner."""
    return StateError(
        f"{places_in_words(missing)} without a worker, though the group was asked to share anew; this one ends here, "
        "and can be started again"
    )


def places_in_words(missing: Collection[TP]) -> str:
    """Partitions in a few words, and the verb."""
    first, *others = sorted(missing)
    more = f" and {len(others)} more are" if others else " is"
    return f"partition {first.partition} of {first.topic}{more}"
