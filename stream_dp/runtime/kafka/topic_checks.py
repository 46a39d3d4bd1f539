"""Checks of the topics of an application: they are what they must be, whoever made and changed them.

A topic that deletes what must be kept, or takes less than is written to it, loses counts, grants or the ledger without
a word. So a worker looks at its topics when it starts, and every few seconds while it runs. Settings that differ are
put right, which loses nothing. What it cannot put right it says, with the command that does: too few copies, and
settings that the account may not change. Partitions that were added and records that were deleted end it: what is gone,
or goes where nobody reads, nobody can bring back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from aiokafka import TopicPartition

from stream_dp.config.plan import Plan, SourcePlan
from stream_dp.errors import AccessError, BrokerError, ConfigError, Fault, OutageError
from stream_dp.runtime.kafka.client import Client, TopicState
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics, TopicSpec, sources_of

AT_LEAST = frozenset({"max.message.bytes", "min.insync.replicas", "delete.retention.ms"})
"""Settings of which more does no harm."""
AT_MOST = frozenset({"segment.ms", "max.compaction.lag.ms", "min.cleanable.dirty.ratio", "file.delete.delay.ms"})
"""Settings of which less does no harm."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Faults found in the topics of an application.

    Attributes:
        righted: what was put right, in words.
        wrong: what somebody has to put right.
        lost: what cannot be put right: a worker ends.
    """

    righted: list[str] = field(default_factory=list)
    wrong: list[Fault] = field(default_factory=list)
    lost: list[Fault] = field(default_factory=list)


async def look_at_topics(plan: Plan, client: Client, unclaimed: Collection[str] = ()) -> Findings:
    """Compare every topic of an application with what it must be, and put right what loses nothing.

    Args:
        plan: the application; its topics are there.
        client: a client of its broker.
        unclaimed: release topics that the application does not have.

    Raises:
        BrokerError: the cluster does not say how its topics are.
    """
    topics = Topics.of(plan)
    specs = {spec.name: spec for spec in [topics.owners, *topics.all(plan)] if spec.name not in unclaimed}
    sources = sources_of(plan)
    states = await client.describe([*specs, *sources])
    settings = await client.settings(specs.keys() & states.keys())
    found = Findings()
    for name, has in sorted(settings.items()):
        if wanted := differences(specs[name], has):
            await _put_right(name, has, wanted, client, found)
    found.wrong.extend(_too_few_copies(specs.values(), states))
    found.lost.extend(grown_sources(plan, states))
    found.lost.extend(_other_partitions({name: specs[name].partitions for name in _read_in_full(plan)}, states))
    found.lost.extend(_deleted(plan, await _begins(plan, states, client)))
    return found


async def deleted_records(plan: Plan, client: Client) -> list[Fault]:
    """The topics of which records were deleted that must be kept.

    Raises:
        BrokerError: the cluster does not say where its topics begin.
    """
    states = await client.describe(_kept(plan))
    return list(_deleted(plan, await _begins(plan, states, client)))


def differences(spec: TopicSpec, has: Mapping[str, str]) -> dict[str, str]:
    """The settings of a topic that are not what they must be, and what they must be.

    Args:
        spec: what the topic must be.
        has: its settings, as far as they are known.
    """
    others = ((name, must) for name, must in spec.config.items() if has.get(name, must) != must)
    return {name: must for name, must in others if not _holds(name, has[name], must)}


def command(topic: str, wanted: Mapping[str, str]) -> str:
    """The call of Kafka's own tool that sets settings of a topic."""
    pairs = ",".join(f"{name}=[{must}]" if "," in must else f"{name}={must}" for name, must in sorted(wanted.items()))
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {pairs}"


def _holds(name: str, value: str, must: str) -> bool:
    if name in AT_LEAST:
        return Fraction(value) >= Fraction(must)
    if name in AT_MOST:
        return Fraction(value) <= Fraction(must)
    return {*value.split(",")} == {*must.split(",")}


async def _put_right(
    topic: str, has: Mapping[str, str], wanted: Mapping[str, str], client: Client, found: Findings
) -> None:
    words = ", ".join(f"{name} is {has[name]}, not {must}" for name, must in sorted(wanted.items()))
    try:
        await client.configure(topic, wanted)
    except OutageError:
        raise
    except (AccessError, BrokerError):
        fault = Fault(f"topic {topic}", f"{words}, and this account may not change it: `{command(topic, wanted)}`")
        found.wrong.append(fault)
    else:
        found.righted.append(f"topic {topic}: {words}; it was put right")


def _too_few_copies(specs: Iterable[TopicSpec], states: Mapping[str, TopicState]) -> Iterator[Fault]:
    for spec in specs:
        if spec.name in states and states[spec.name].copies < spec.replication:
            yield Fault(
                f"topic {spec.name}",
                f"has {states[spec.name].copies} copies, not {spec.replication} (topics.replication): "
                "`kafka-reassign-partitions.sh` makes more",
            )


def _read_in_full(plan: Plan) -> frozenset[str]:
    """The topics of which a partition more would not be read: all that are not for readers alone."""
    topics = Topics.of(plan)
    return frozenset([*topics.internal, *topics.changelogs, topics.owners.name, topics.accounts, topics.status])


def grown_sources(plan: Plan, states: Mapping[str, TopicState]) -> list[Fault]:
    """Return a fault for each source whose topic does not have the configured number of partitions.

    Args:
        plan: the plan of the application.
        states: the existing topics.
    """
    return [
        Fault(
            f"topic {topic}",
            f"has {states[topic].partitions} partitions, not {source.partitions}. No window that was open when they "
            "were added is released: events may be in partitions that are not counted, and producers may have moved "
            "users to other partitions, where the bounds per user do not hold. Partitions cannot be removed. Let "
            f"producers write to a new topic with {source.partitions} partitions, and give {source.name} and its "
            "views new names; or start an application with another name on this topic",
        )
        for topic, source in sorted(sources_of(plan).items())
        if topic in states and states[topic].partitions != source.partitions
    ]


def _other_partitions(must: Mapping[str, int], states: Mapping[str, TopicState]) -> Iterator[Fault]:
    for topic, partitions in sorted(must.items()):
        if topic in states and states[topic].partitions != partitions:
            yield Fault(
                f"topic {topic}",
                f"has {states[topic].partitions} partitions, not {partitions}. Partitions cannot be removed. Delete "
                "the topic and start one worker once with --accept-loss, or give the application a new name",
            )


def _kept(plan: Plan) -> Collection[str]:
    """The topics of which a record stays until a later one of its key is there."""
    topics = Topics.of(plan)
    return [topics.partials, topics.merged, topics.control, topics.orders, *topics.changelogs]


async def _begins(plan: Plan, states: Mapping[str, TopicState], client: Client) -> Mapping[TopicPartition, int]:
    kept = [topic for topic in _kept(plan) if topic in states]
    places = [TopicPartition(topic, at) for topic in kept for at in range(states[topic].partitions)]
    return await client.begins(places)


def _deleted(plan: Plan, begins: Mapping[TopicPartition, int]) -> Iterator[Fault]:
    for topic in dict.fromkeys(place.topic for place, offset in sorted(begins.items()) if offset > 0):
        yield Fault(
            f"topic {topic}",
            f"records of it were deleted, and with them {_losses(plan)[topic]}. Bring back the broker's own copy, if "
            "there is one; or stop every worker, delete the topic, and start one worker once with --accept-loss",
        )


CHOICES = (
    "Bring back the broker's own copy, if there is one; or stop every worker and start one of them once with "
    "--accept-loss, which creates what is missing"
)
NEW_SOURCE = (
    "how far it was counted says nothing about another topic of its name: bring back the broker's own copy, or give "
    "the source and every view on it new names"
)
_ON_THEIR_WAY = (
    "exact counts on their way to a release: a window that misses some of them is published as a refusal with reason "
    "lost, and nothing is charged for it"
)


@dataclass(frozen=True, slots=True)
class Deleted:
    """A topic that was deleted. `again` says whether another one of its name is there."""

    topic: str
    again: bool

    @property
    def what(self) -> str:
        """Outcome, in words."""
        return "was deleted and made again" if self.again else "was deleted"


def deleted(ids: Mapping[str, str], present: Mapping[str, TopicState]) -> list[Deleted]:
    """Return the topics that were deleted, or made anew.

    Args:
        ids: the topics by name, with the ids that they had.
        present: those that are there.
    """
    return [
        Deleted(topic, topic in present)
        for topic, was in sorted(ids.items())
        if topic not in present or present[topic].id != was
    ]


def lost_topics(plan: Plan, lost: Iterable[Deleted]) -> ConfigError:
    """The error of a worker that finds that topics of its application were deleted.

    Args:
        plan: the application.
        lost: the topics, at least one.
    """
    losses = _losses(plan)
    own, sources = [], []
    for one in lost:
        loss = losses.get(one.topic)
        path = f"topic {one.topic}"
        if loss is None:
            sources.append(Fault(path, f"the source {one.what}; {NEW_SOURCE}"))
        else:
            own.append(Fault(path, f"{one.what}, and with it {loss}"))
    return ConfigError([*own, *([Fault("", CHOICES)] if own else []), *sources])


def _losses(plan: Plan) -> dict[str, str]:
    """Return what the deletion of each topic with state or spending loses, by topic."""
    topics = Topics.of(plan)
    lost = {
        topics.partials: _ON_THEIR_WAY,
        topics.merged: _ON_THEIR_WAY,
        topics.changelog(MERGES): _ON_THEIR_WAY,
        topics.changelog(COUNTS): "the exact counts of every window that was not handed on: whatever had begun is "
        "published as a refusal with reason lost, and nothing is charged for it",
        topics.changelog(RELEASES): "the ledger and the sealed tables: what readers have is charged at worst and never "
        "sharpened, and windows that waited are published as refusals with reason lost",
        topics.control: "grants that no worker had read, and the settings that hold: the file of the first start is "
        "posted as the first ones again; grants that were carried out hold",
        topics.orders: "grants on their way: write those again that were not carried out",
        topics.accounts: "what `stream-dp ledger` shows of the past; the ledger itself stands elsewhere",
    }
    for name in topics.rekeyed_sources:
        lost[topics.rekeyed(name)] = "events that were re-keyed and not counted: they are missing in their windows"
    return lost


def _no_topic(source: SourcePlan) -> str:
    words = f"the broker has no topic {source.topic}; create it with {source.partitions} partitions"
    if source.format != "json" or source.time_field is None:
        return words
    return f"{words}, or write history: `stream-dp feed FILE {source.name} --from EVENTS` creates the topic"


async def wrong_sources(plan: Plan, client: Client) -> list[Fault]:
    """Return a fault for each source whose topic is missing or has another number of partitions than planned."""
    faults = []
    states = await client.describe(sources_of(plan))
    for topic, source in sources_of(plan).items():
        path = f"sources.{source.name}"
        if topic not in states:
            faults.append(Fault(f"{path}.topic", _no_topic(source)))
        elif (count := states[topic].partitions) != source.partitions:
            faults.append(Fault(f"{path}.partitions", f"topic {topic} has {count}, not {source.partitions}"))
    return faults
