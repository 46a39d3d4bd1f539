"""A small client for commands and tests: create topics, publish, follow; the same on Kafka and the embedded log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
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
from aiokafka.structs import RecordMetadata

from stream_dp.errors import AccessError, BrokerError
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.outages import answering, lacks_right
from stream_dp.runtime.kafka.requests import (
    Dismissal,
    EntriesRequest,
    GroupEnd,
    RightsRequest,
    SettingsRequest,
    TopicsRequest,
    entries_of,
)
from stream_dp.runtime.kafka.rights import AclEntry, Right
from stream_dp.runtime.kafka.topics import AS_THE_CLUSTER_DOES, TopicSpec

_LOG_APPEND_TIME = 1
"""Kafka's number for timestamps of a broker."""
_POLL_SECONDS = 0.2
_WORD = (1 << 64) - 1
_VISIBLE_SECONDS = 20.0
ENDS_SECONDS = 8.0
"""Time limit of reading where partitions end: a frozen leader of one is given up by then."""
PUBLISH_SECONDS = 60.0
"""Time that an impatient client waits for what it publishes to be acknowledged."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to publish; `partition` is always named, so that no client's partitioner decides."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


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

    async def group(self, name: str) -> Group:
        """A consumer group as it is now; one that there is not is empty."""

    async def dismiss(self, group: str, instance: str) -> None:
        """Take a static member out of its group, if it is in it."""

    async def delete_group(self, name: str) -> None:
        """Delete a group without members, and with it what it has committed; one that there is not stays away."""

    async def partitions(self, topic: str) -> int | None:
        """Return the number of a topic's partitions, None if there is no such topic."""

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

    async def publish(self, records: Iterable[Outgoing]) -> list[int | None]:
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
    ) -> AsyncIterator[Any]:
        """Every record of the topics from the beginning, then new ones; `until_end` stops where the logs ended.

        With `last`, only that many offsets before those ends are read of each partition; compaction may have left fewer
        records there. Of a partition in `since` only the records from that offset on are read.
        """

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where partitions end now: the offset of the next record of each."""

    async def begins(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where partitions begin now: the offset of the first record of each that was not deleted, or its end."""

    async def entries(self) -> Sequence[AclEntry] | None:
        """Who may do what, by the cluster's authorizer; None where there is none.

        Raises:
            AccessError: it does not show that to this account.
        """


class KafkaClient:
    """The client of a Kafka cluster; use it through `connect`."""

    def __init__(
        self,
        cluster: Cluster,
        producer: AIOKafkaProducer,
        admin: AIOKafkaAdminClient,
        idle: AIOKafkaConsumer,
        publish_seconds: float | None = PUBLISH_SECONDS,
    ) -> None:
        """Set up the client on started parts; `idle` is a consumer without partitions, whose connections are free."""
        self._cluster = cluster
        self._address = cluster.address
        self._publish_seconds = publish_seconds
        self._producer = producer
        self._admin = admin
        self._idle = idle

    async def partitions(self, topic: str) -> int | None:
        """Return the number of a topic's partitions, None if there is no such topic."""
        with self._answering():
            (found,) = await self._admin.describe_topics([topic])
        self._check_right(found["error_code"], topic)
        return None if found["error_code"] else len(found["partitions"])

    def _check_right(self, code: int, name: str) -> None:
        """Raise the error of an account that may not do what it asked for, if that is what a code says."""
        if code and (refused := lacks_right(self._address, for_code(code), name)) is not None:
            raise refused

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        """Those of the topics that there are.

        Raises:
            BrokerError: the cluster does not answer, or does not say whether a topic is there.
        """
        with self._answering():
            answer = await self._admin._send_request(TopicsRequest(topics))
        found = {}
        for code, name, high, low, _, partitions, *_ in answer.topics:
            self._check_right(code, name)
            if not code:
                copies = min((len(place[4]) for place in partitions), default=0)
                found[name] = TopicState(f"{high & _WORD:016x}{low & _WORD:016x}", len(partitions), copies)
            elif for_code(code) is not UnknownTopicOrPartitionError:
                raise BrokerError(f"the cluster at {self._address} does not describe {name}: {for_code(code).__name__}")
        return found

    async def group(self, name: str) -> Group:
        """A consumer group as it is now; one that there is not is empty.

        Raises:
            BrokerError: the cluster does not answer, or cannot tell yet.
        """
        with self._answering():
            (answer,) = await self._admin.describe_consumer_groups([name])
        code, _, state, _, protocol, members, *_ = answer.groups[0]
        self._check_right(code, name)
        if code:
            raise BrokerError(f"the cluster at {self._address} does not describe its group {name}: {for_code(code)}")
        owned = {member: _assigned(assignment) for member, _, _, _, assignment in members}
        return Group(state, protocol, owned)

    async def dismiss(self, group: str, instance: str) -> None:
        """Take a static member out of its group, if it is in it.

        Raises:
            BrokerError: the cluster does not answer, or refused.
        """
        with self._answering():
            node = await self._admin.find_coordinator(group)
            answer = await self._admin._send_request(Dismissal(group, instance), node)
        for code in [answer.error_code, *(code for _, _, code in answer.members)]:
            self._check_right(code, group)
            if code and for_code(code) is not UnknownMemberIdError:
                raise BrokerError(
                    f"the cluster at {self._address} did not dismiss {instance}: {for_code(code).__name__}"
                )

    async def delete_group(self, name: str) -> None:
        """Delete a group without members, and with it what it has committed; one that there is not stays away.

        Raises:
            BrokerError: the cluster does not answer, or refused: the group has members.
        """
        with self._answering():
            node = await self._admin.find_coordinator(name)
            answer = await self._admin._send_request(GroupEnd(name), node)
        for _, code in answer.results:
            if code and for_code(code) is not GroupIdNotFound:
                raise self._refused(f"delete group {name}", code)

    async def delete(self, topics: Collection[str]) -> None:
        """Delete topics; those that there are not stay away. Return when the cluster shows none of them.

        Raises:
            BrokerError: the cluster refused; the message names the topic and the reason.
        """
        with self._answering():
            answer = await self._admin.delete_topics(list(topics))
        for name, code in answer.topic_error_codes:
            if code and for_code(code) is not UnknownTopicOrPartitionError:
                raise self._refused(f"delete topic {name}", code)
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

    def _refused(self, what: str, code: int) -> BrokerError:
        return BrokerError(f"the cluster at {self._address} did not {what}: {for_code(code).__name__}")

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
            self._check_right(code, name)
            if code and for_code(code) is not TopicAlreadyExistsError:
                reason = detail[0] if detail and detail[0] else for_code(code).__name__
                raise BrokerError(f"the cluster at {self._address} did not create topic {name}: {reason}")
        until = time.monotonic() + _VISIBLE_SECONDS
        while (hidden := await self._hidden([topic.name for topic in wanted])) is not None:
            if time.monotonic() > until:
                raise BrokerError(f"topic {hidden} was created, but the cluster does not show it")
            await asyncio.sleep(0.05)

    async def _hidden(self, topics: Sequence[str]) -> str | None:
        """A topic that some broker does not show; each learns of topics a moment after the controller has made them."""
        for broker in self._admin._client.cluster.brokers():
            with suppress(KafkaError):  # one that is gone shows it when it is back
                answer = await self._admin._send_request(TopicsRequest(topics), broker.nodeId)
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
            answer = await self._admin._send_to_controller(RightsRequest(rights))
        for code, detail in answer.creation_responses:
            if for_code(code) is ClusterAuthorizationFailedError:
                raise AccessError(f"the cluster at {self._address} lets an account give rights that has Alter on it")
            if code:
                reason = detail or for_code(code).__name__
                raise BrokerError(f"the cluster at {self._address} did not give a right: {reason}")

    async def entries(self) -> Sequence[AclEntry] | None:
        """Who may do what, by the cluster's authorizer; None where there is none.

        Raises:
            AccessError: it does not show that to this account.
            BrokerError: the cluster does not answer, or refused.
        """
        with self._answering():
            answer = await self._admin._send_request(EntriesRequest())
        kind = for_code(answer.error_code)
        if kind is SecurityDisabled:
            return None
        if kind is ClusterAuthorizationFailedError:
            raise AccessError(f"the cluster at {self._address} shows rights to an account that has Describe on it")
        if answer.error_code:
            raise self._refused("show the rights", answer.error_code)
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
            self._check_right(code, topic)
            if code:
                raise self._refused(f"tell the settings of topic {topic}", code)
            found[topic] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
        return found

    async def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Give a topic settings; its others stay.

        Raises:
            AccessError: this account may not.
            BrokerError: the cluster refused.
        """
        with self._answering():
            answer = await self._admin._send_request(SettingsRequest(topic, settings))
        for code, *_ in answer.responses:
            self._check_right(code, topic)
            if code:
                raise self._refused(f"change the settings of topic {topic}", code)

    async def publish(self, records: Iterable[Outgoing]) -> list[int | None]:
        """Publish records and wait for every acknowledgement; returns their append times."""
        with self._answering():
            async with asyncio.timeout(self._publish_seconds):
                sent = [
                    await self._producer.send(
                        record.topic, record.value, record.key, record.partition, headers=list(record.headers)
                    )
                    for record in records
                ]
                return [_appended_ms(one) for one in await asyncio.gather(*sent)]

    def _answering(self) -> AbstractContextManager[None]:
        return answering(self._address)

    async def follow(
        self,
        topics: Sequence[str],
        *,
        until_end: bool = False,
        last: int | None = None,
        since: Mapping[TopicPartition, int] = NO_OFFSETS,
    ) -> AsyncIterator[Any]:
        """Every record of the topics from the beginning, the last ones or those from some offsets on, then new ones.

        Raises:
            BrokerError: a topic does not exist, or the cluster is gone.
        """
        places = []
        for topic in topics:
            count = await self.partitions(topic)
            if count is None:
                raise BrokerError(f"the cluster at {self._address} has no topic {topic}; has a worker been started?")
            places += [TopicPartition(topic, p) for p in range(count)]
        consumer = AIOKafkaConsumer(
            **self._cluster.options, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False
        )
        with self._answering():
            await consumer.start()
        try:
            consumer.assign(places)
            with self._answering():
                ends = await consumer.end_offsets(places) if until_end or last is not None else {}
            for tp, end in ends.items():
                if last is not None:
                    consumer.seek(tp, max(0, end - last))
            for place, offset in since.items():
                consumer.seek(TopicPartition(*place), offset)
            while not until_end or not await _all_read(consumer, ends):
                with self._answering():
                    fetched = await consumer.getmany(timeout_ms=int(_POLL_SECONDS * 1000))
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
        with self._answering():
            async with asyncio.timeout(ENDS_SECONDS):
                asked = [TopicPartition(*place) for place in places]
                found: Mapping[TopicPartition, int] = await self._idle.end_offsets(asked)
        return found

    async def begins(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where partitions begin now, as their leaders say.

        Raises:
            BrokerError: not every leader answered in time.
        """
        with self._answering():
            async with asyncio.timeout(ENDS_SECONDS):
                wanted = [TopicPartition(*place) for place in places]
                found: Mapping[TopicPartition, int] = await self._idle.beginning_offsets(wanted)
        return found


def _appended_ms(sent: RecordMetadata) -> int | None:
    return sent.timestamp if sent.timestamp_type == _LOG_APPEND_TIME else None


def _new_topic(spec: TopicSpec) -> NewTopic:
    """A topic to ask for. The client takes the cluster's own number of copies only beside an (empty) assignment."""
    assignments: dict[int, list[int]] | None = {} if spec.replication == AS_THE_CLUSTER_DOES else None
    return NewTopic(spec.name, spec.partitions, spec.replication, assignments, spec.config)


def _assigned(assignment: bytes) -> frozenset[TopicPartition]:
    """Return the partitions of a member of a stable group; none while the group is being rebalanced."""
    if not assignment:
        return frozenset()
    places = ConsumerProtocolMemberAssignment.decode(assignment).partitions()
    return frozenset(TopicPartition(topic, partition) for topic, partition in places)


async def _all_read(consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    for tp, end in ends.items():
        if await consumer.position(tp) < end:
            return False
    return True
