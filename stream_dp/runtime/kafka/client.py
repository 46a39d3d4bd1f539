"""A small client for commands and tests: create topics, publish, follow; the same on Kafka and the embedded log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupIdNotFound,
    KafkaError,
    SecurityDisabled,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.admin import DeleteGroupsRequest

from stream_dp.config.access import Broker
from stream_dp.errors import AccessError, BrokerError, OutageError, StateError
from stream_dp.runtime.kafka.cluster import READ_UNCOMMITTED, Cluster
from stream_dp.runtime.kafka.outages import answering, diagnose, explain_silence, lacks_right, not_allowed
from stream_dp.runtime.kafka.requests import (
    dismissal,
    entries_of,
    entries_request,
    rights_request,
    settings_request,
    topics_request,
)
from stream_dp.runtime.kafka.rights import AclEntry, Right
from stream_dp.runtime.kafka.topics import AS_THE_CLUSTER_DOES, TopicSpec
from stream_dp.runtime.kafka.transactions import PatientProducer
from stream_dp.runtime.kafka.unreadable import check_all_readable
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import BATCH_BYTES

_LOG_APPEND_TIME = 1
"""Kafka's number for timestamps of a broker."""
_POLL_SECONDS = 0.2
_WORD = (1 << 64) - 1
_VISIBLE_SECONDS = 20.0
ENDS_SECONDS = 8.0
"""Time limit of reading where partitions end: a frozen leader of one is given up by then."""
PUBLISH_SECONDS = 60.0
"""Time that an impatient client waits for what it publishes to be acknowledged."""


class TopicState(NamedTuple):
    """A topic that is there. One that is deleted and made again has another id."""

    id: str
    partitions: int
    copies: int = 1
    """Of the partition that has the fewest."""


class Group(NamedTuple):
    """A consumer group: its state in the broker's words, how its members share, and what each of them was given."""

    state: str
    protocol: str
    owned: Mapping[str, frozenset[TopicPartition]]
    """By member id."""


NO_GROUP = Group("Empty", "", {})
NO_OFFSETS: Mapping[TopicPartition, int] = MappingProxyType({})


class Client(Protocol):
    """Operations on a broker that commands, workers and tests need."""

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        """Those of the topics that there are."""

    async def topics(self) -> Collection[str]:
        """The topics of the cluster that this account may describe."""

    async def group(self, name: str) -> Group:
        """A consumer group as it is now; one that there is not is empty."""

    async def dismiss(self, group: str, instance: str) -> None:
        """Take a static member out of its group, if it is in it."""

    async def delete_group(self, name: str) -> None:
        """Delete a group without members, and with it what it has committed; one that there is not stays away."""

    async def partitions(self, topic: str) -> int | None:
        """Return the number of a topic's partitions, None if there is no such topic."""
        state = (await self.describe([topic])).get(topic)
        return None if state is None else state.partitions

    async def delete(self, topics: Collection[str]) -> None:
        """Delete topics; those that there are not stay away."""

    async def delete_before(self, places: Mapping[TopicPartition, int]) -> None:
        """Delete the records of partitions before an offset; what is deleted already stays so."""

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        """Create the topics that do not exist yet."""

    async def settings(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The settings of existing topics, those that the cluster gives them among them."""

    async def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Give a topic settings; its others stay."""

    async def publish(self, records: Iterable[Message]) -> list[int | None]:
        """Publish records, each partition's in the given order, and wait for every acknowledgement.

        Returns:
            Of each, when the broker appended it, by its clock in ms; None where the topic keeps the times of senders.
        """

    def follow(
        self,
        topics: Sequence[str],
        *,
        until_end: bool = False,
        last: int | None = None,
        since: Mapping[TopicPartition, int] = NO_OFFSETS,
        foreign: bool = False,
    ) -> AsyncIterator[Any]:
        """Every record of the topics from the beginning, then new ones; `until_end` stops where the logs ended.

        Records of aborted transactions are left out. Records from the start of an open transaction on are read when it
        ends; `until_end` does not wait for them (`stable_ends`).

        With `last`, only that many offsets before those ends are read of each partition; compaction may have left fewer
        records there. Of a partition in `since` only the records from that offset on are read.

        With `foreign`, for topics that others write, a record that cannot be read is returned with its reason
        (`events.unreadable_reason`). Otherwise it raises a StateError.
        """

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where partitions end now: the offset of the next record of each, open transactions included.

        This is Kafka's high watermark.
        """

    async def stable_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return how far partitions can be read now: to the first record of an open transaction, or to their ends.

        This is Kafka's last stable offset. Readers get no record from there on.
        """

    async def check_decided(self, places: Collection[TopicPartition]) -> None:
        """Make sure that no open transaction hides records of partitions.

        Raises:
            StateError: a transaction is open in one of them.
        """
        ends = await self.ends(places)
        stable = await self.stable_ends(places)
        for place, end in ends.items():
            offset = stable[place]
            if offset < end:
                raise StateError(
                    f"a transaction is open in topic {place.topic}, partition {place.partition}, at offset {offset}: "
                    "later records cannot be read. Only stream-dp may write to this topic, and it uses no "
                    "transactions. Stop the other producer, wait until its transaction ends, and try again"
                )

    async def begins(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where partitions begin now: the offset of the first record of each that was not deleted, or its end."""

    async def entries(self) -> Sequence[AclEntry] | None:
        """Who may do what, by the cluster's authorizer; None where there is none.

        Raises:
            AccessError: it does not show that to this account.
        """


class KafkaClient(Client):
    """The client of a Kafka cluster; use it through `connect`."""

    def __init__(
        self,
        cluster: Cluster,
        producer: AIOKafkaProducer,
        admin: AIOKafkaAdminClient,
        idle: AIOKafkaConsumer,
        stable: AIOKafkaConsumer,
        publish_seconds: float | None = PUBLISH_SECONDS,
    ) -> None:
        """Set up the client on started parts.

        Args:
            cluster: settings of the connection to the cluster.
            producer: writes records.
            admin: sends all other requests.
            idle: a consumer without partitions, whose connections are free; asked where partitions end.
            stable: another one, which reads only committed records; asked how far partitions can be read.
            publish_seconds: time limit for publishing; None for no limit.
        """
        self._cluster = cluster
        self._address = cluster.address
        self._publish_seconds = publish_seconds
        self._producer = producer
        self._admin = admin
        self._idle = idle
        self._stable = stable

    def _check(
        self, code: int, name: str, what: str, harmless: type[KafkaError] | None = None, reason: str | None = None
    ) -> None:
        """Raise the error that a code of an answer stands for.

        Args:
            code: of the answer; 0 if it is none.
            name: of the topic or group that was asked about.
            what: was to be done.
            harmless: an error that is none here.
            reason: as the cluster says it, if it does.

        Raises:
            AccessError: the account lacks a right.
            BrokerError: the cluster refused for another reason.
        """
        self._check_right(code, name)
        kind = for_code(code)
        if code and kind is not harmless:
            raise BrokerError(f"the cluster at {self._address} did not {what}: {reason or kind.__name__}")

    def _check_right(self, code: int, name: str) -> None:
        if code and (refused := lacks_right(self._address, for_code(code), name)) is not None:
            raise refused

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        """Those of the topics that there are.

        Raises:
            BrokerError: the cluster does not answer, or does not say whether a topic is there.
        """
        with self._answering():
            answer = await self._admin._send_request(topics_request(topics))
        found = {}
        for code, name, high, low, _, partitions, *_ in answer.topics:
            self._check(code, name, f"describe {name}", UnknownTopicOrPartitionError)
            if not code:
                copies = min((len(place[4]) for place in partitions), default=0)
                found[name] = TopicState(f"{high & _WORD:016x}{low & _WORD:016x}", len(partitions), copies)
        return found

    async def topics(self) -> Collection[str]:
        """The topics of the cluster that this account may describe.

        Raises:
            BrokerError: the cluster does not answer.
        """
        with self._answering():
            return list(await self._admin.list_topics())

    async def group(self, name: str) -> Group:
        """A consumer group as it is now; one that there is not is empty.

        Raises:
            BrokerError: the cluster does not answer, or cannot tell yet.
        """
        with self._answering():
            (answer,) = await self._admin.describe_consumer_groups([name])
        code, _, state, _, protocol, members, *_ = answer.groups[0]
        self._check(code, name, f"describe its group {name}")
        owned = {member: _assigned(assignment) for member, _, _, _, assignment in members}
        return Group(state, protocol, owned)

    async def dismiss(self, group: str, instance: str) -> None:
        """Take a static member out of its group, if it is in it.

        Raises:
            BrokerError: the cluster does not answer, or refused.
        """
        with self._answering():
            node = await self._admin.find_coordinator(group)
            answer = await self._admin._send_request(dismissal(group, instance), node)
        for code in [answer.error_code, *(code for _, _, code in answer.members)]:
            self._check(code, group, f"dismiss {instance}", UnknownMemberIdError)

    async def delete_group(self, name: str) -> None:
        """Delete a group without members, and with it what it has committed; one that there is not stays away.

        Raises:
            BrokerError: the cluster does not answer, or refused: the group has members.
        """
        with self._answering():
            node = await self._admin.find_coordinator(name)
            answer = await self._admin._send_request(DeleteGroupsRequest([name]), node)
        for _, code in answer.results:
            self._check(code, name, f"delete group {name}", GroupIdNotFound)

    async def delete(self, topics: Collection[str]) -> None:
        """Delete topics; those that there are not stay away. Return when the cluster shows none of them.

        Raises:
            BrokerError: the cluster refused; the message names the topic and the reason.
        """
        with self._answering():
            answer = await self._admin.delete_topics(list(topics))
        for name, code in answer.topic_error_codes:
            self._check(code, name, f"delete topic {name}", UnknownTopicOrPartitionError)
        until = time.monotonic() + _VISIBLE_SECONDS
        while left := await self.describe(topics):
            if time.monotonic() > until:
                raise BrokerError(f"the cluster at {self._address} still shows topics that were deleted: {min(left)}")
            await asyncio.sleep(_POLL_SECONDS)

    async def delete_before(self, places: Mapping[TopicPartition, int]) -> None:
        """Delete the records of partitions before an offset; what is deleted already stays so."""
        wanted = {TopicPartition(*place): RecordsToDelete(before) for place, before in places.items()}
        with self._answering():
            await self._admin.delete_records(wanted)

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        """Create the topics that do not exist yet.

        Raises:
            BrokerError: the cluster refused a topic; the message names it and the reason.
        """
        specs = list(topics)
        present = await self.describe([topic.name for topic in specs])
        wanted = [_new_topic(topic) for topic in specs if topic.name not in present]
        if not wanted:
            return
        with self._answering():
            answer = await self._admin.create_topics(wanted)
        for name, code, *detail in answer.topic_errors:
            self._check(code, name, f"create topic {name}", TopicAlreadyExistsError, *detail)
        until = time.monotonic() + _VISIBLE_SECONDS
        while (hidden := await self._hidden([topic.name for topic in wanted])) is not None:
            if time.monotonic() > until:
                raise BrokerError(f"topic {hidden} was created, but the cluster does not show it")
            await asyncio.sleep(0.05)

    async def _hidden(self, topics: Sequence[str]) -> str | None:
        """A topic that some broker does not show; each learns of topics a moment after the controller has made them."""
        for broker in self._admin._client.cluster.brokers():
            with suppress(KafkaError):  # one that is gone shows it when it is back
                answer = await self._admin._send_request(topics_request(topics), broker.nodeId)
                for code, name, *_ in answer.topics:
                    self._check_right(code, name)
                    if code:
                        return str(name)
        return None

    async def allow(self, rights: Sequence[Right]) -> None:
        """Give accounts rights; those that they have stay.

        Raises:
            AccessError: this account may not.
            BrokerError: the cluster has no authorizer, or refused.
        """
        with self._answering():
            answer = await self._admin._send_to_controller(rights_request(rights))
        for code, detail in answer.creation_responses:
            if for_code(code) is ClusterAuthorizationFailedError:
                raise AccessError(f"the cluster at {self._address} lets an account give rights that has Alter on it")
            self._check(code, "", "give a right", reason=detail)

    async def entries(self) -> Sequence[AclEntry] | None:
        """Who may do what, by the cluster's authorizer; None where there is none.

        Raises:
            AccessError: it does not show that to this account.
            BrokerError: the cluster does not answer, or refused.
        """
        with self._answering():
            answer = await self._admin._send_request(entries_request())
        kind = for_code(answer.error_code)
        if kind is SecurityDisabled:
            return None
        if kind is ClusterAuthorizationFailedError:
            raise AccessError(f"the cluster at {self._address} shows rights to an account that has Describe on it")
        self._check(answer.error_code, "", "show the rights")
        return entries_of(answer)

    async def settings(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The settings of existing topics, those that the cluster gives them among them.

        Raises:
            BrokerError: the cluster does not say.
        """
        if not topics:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in sorted(topics)]
        with self._answering():
            answers = await self._admin.describe_configs(resources)
        found: dict[str, Mapping[str, str]] = {}
        for code, _, _, topic, entries in (one for answer in answers for one in answer.resources):
            self._check(code, topic, f"tell the settings of topic {topic}")
            found[topic] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
        return found

    async def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Give a topic settings; its others stay.

        Raises:
            AccessError: this account may not.
            BrokerError: the cluster refused.
        """
        with self._answering():
            answer = await self._admin._send_request(settings_request(topic, settings))
        for code, *_ in answer.responses:
            self._check(code, topic, f"change the settings of topic {topic}")

    async def publish(self, records: Iterable[Message]) -> list[int | None]:
        """Publish records and wait for every acknowledgement; returns their append times."""
        with self._answering():
            async with asyncio.timeout(self._publish_seconds):
                sent = [
                    await self._producer.send(
                        record.topic, record.value, record.key, record.partition, headers=list(record.headers.items())
                    )
                    for record in records
                ]
                stood = await asyncio.gather(*sent)
        return [one.timestamp if one.timestamp_type == _LOG_APPEND_TIME else None for one in stood]

    def _answering(self) -> AbstractContextManager[None]:
        return answering(self._address)

    async def follow(
        self,
        topics: Sequence[str],
        *,
        until_end: bool = False,
        last: int | None = None,
        since: Mapping[TopicPartition, int] = NO_OFFSETS,
        foreign: bool = False,
    ) -> AsyncIterator[Any]:
        """Every record of the topics from the beginning, the last ones or those from some offsets on, then new ones.

        Raises:
            BrokerError: a topic does not exist, or the cluster is gone.
            StateError: a record cannot be read, and the topics are not foreign.
        """
        states = await self.describe(topics)
        if missing := [topic for topic in topics if topic not in states]:
            raise BrokerError(f"the cluster at {self._address} has no topic {missing[0]}; has a worker been started?")
        places = [TopicPartition(topic, p) for topic in topics for p in range(states[topic].partitions)]
        consumer = self._cluster.consumer(auto_offset_reset="earliest")
        try:
            with self._answering():
                await consumer.start()
            consumer.assign(places)
            with self._answering():
                ends = await consumer.end_offsets(places) if until_end or last is not None else {}
            for tp, end in ends.items():
                if last is not None:
                    consumer.seek(tp, max(0, end - last))
            for place, offset in since.items():
                consumer.seek(TopicPartition(*place), offset)
            while not until_end or any([await consumer.position(tp) < end for tp, end in ends.items()]):
                with self._answering():
                    fetched = await consumer.getmany(timeout_ms=int(_POLL_SECONDS * 1000))
                if not foreign:
                    check_all_readable(fetched)
                for tp, records in fetched.items():
                    for record in records:
                        if not until_end or record.offset < ends[tp]:
                            yield record
        finally:
            await consumer.stop()

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where partitions end now, as their leaders say.

        Not asked on a connection that fetches: there the answer waits for the fetch, which the broker holds back while
        there is nothing new.

        Raises:
            BrokerError: not every leader answered in time.
        """
        return await self._offsets(self._idle, self._idle.end_offsets, places)

    async def stable_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return how far partitions can be read now, according to their leaders.

        Raises:
            BrokerError: not every leader answered in time.
        """
        return await self._offsets(self._stable, self._stable.end_offsets, places)

    async def begins(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where partitions begin now, as their leaders say.

        Raises:
            BrokerError: not every leader answered in time.
        """
        return await self._offsets(self._idle, self._idle.beginning_offsets, places)

    async def _offsets(
        self, consumer: AIOKafkaConsumer, ask: Callable[..., Any], places: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        for topic in {place.topic for place in places}:  # else aiokafka learns of one new topic in 0.1 s
            consumer._client.add_topic(topic)
        with self._answering():
            async with asyncio.timeout(ENDS_SECONDS):
                return dict(await ask([TopicPartition(*place) for place in places]))


def _new_topic(spec: TopicSpec) -> NewTopic:
    """A topic to ask for. The client takes the cluster's own number of copies only beside an (empty) assignment."""
    assignments: dict[int, list[int]] | None = {} if spec.replication == AS_THE_CLUSTER_DOES else None
    return NewTopic(spec.name, spec.partitions, spec.replication, assignments, spec.config)


def _assigned(assignment: bytes) -> frozenset[TopicPartition]:
    """Return the partitions of a member of a stable group; none while the group is being rebalanced."""
    if not assignment:
        return frozenset()
    return frozenset(TopicPartition(*at) for at in ConsumerProtocolMemberAssignment.decode(assignment).partitions())


CONNECT_SECONDS = 10.0
"""Time that an impatient client waits for a broker that takes its connection and says nothing."""


@asynccontextmanager
async def connect(broker: Broker, embedded: Client | None = None, *, patient: bool = False) -> AsyncIterator[Client]:
    """A client of the broker that a plan names.

    Args:
        broker: the cluster.
        embedded: the client of the embedded log of this process, for `memory://`.
        patient: what is published waits for a broker that is gone, as long as it takes, and stands once in the log.

    Raises:
        ConfigError: a certificate or a secret cannot be read, or the cluster does not let us in with it.
        OutageError: the cluster cannot be reached.
        BrokerError: the embedded log is asked for where there is none.
    """
    if broker.is_embedded:
        if embedded is None:
            raise BrokerError("the embedded log lives inside the worker's process; no other process can reach it")
        yield embedded
        return
    cluster = Cluster.of(broker)
    kind = PatientProducer if patient else AIOKafkaProducer
    producer = kind(
        **cluster.options,
        acks="all",  # what is acknowledged is read back at once: claims and origins depend on it
        linger_ms=5,
        max_request_size=BATCH_BYTES,
        max_batch_size=1 << 18,
    )
    admin = AIOKafkaAdminClient(**cluster.options)
    idle = cluster.consumer(isolation_level=READ_UNCOMMITTED)
    stable = cluster.consumer()
    try:
        try:
            async with asyncio.timeout(None if patient else CONNECT_SECONDS):
                await producer.start()
                await admin.start()
                await idle.start()
                await stable.start()
        except (KafkaError, OSError) as error:
            refused = not_allowed(cluster.address, error) or await diagnose(cluster)
            if refused is not None:
                raise refused from None
            found = "" if patient else await explain_silence(cluster)
            why = f"{error}" if f"{error}" else f"nothing came for {CONNECT_SECONDS:g} s"
            words = found or f"{why}; is it up? `stream-dp kafka status`"
            raise OutageError(f"no Kafka answers at {cluster.address}: {words}") from None
        try:
            yield KafkaClient(cluster, producer, admin, idle, stable, None if patient else PUBLISH_SECONDS)
        except OutageError as error:
            found = "" if patient else await explain_silence(cluster)
            if found:
                raise OutageError(f"{error}: {found}") from None
            raise
    finally:
        await asyncio.sleep(0)  # a task of the consumer that is cancelled before it ran hides the error that ends us
        await idle.stop()
        await stable.stop()
        await admin.close()
        await producer.stop()
