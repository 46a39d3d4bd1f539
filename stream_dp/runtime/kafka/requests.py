"""Requests that aiokafka does not know as they are needed: topic ids, dismissals, ends of groups, rights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from aiokafka.protocol.admin import CreateAclsRequest_v1, DescribeAclsRequest_v1
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

from stream_dp.runtime.kafka.rights import AclEntry, Right

RESOURCES = {"topic": 2, "group": 3, "transactional-id": 5}
OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Describe": 8, "DescribeConfigs": 10}
"""Numbers of resource types and operations of rights in the protocol."""
_LITERAL, _PREFIXED = 3, 4
_ALLOW = 3
_SET = 0
_ANY, _ALL, _CLUSTER = 1, 2, 4
_TAGS = ("tags", TaggedFields)
_ID = (("id_high", Int64), ("id_low", Int64))


class _TopicsResponse(Response):
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32), ("host", CompactString()), ("port", Int32), ("rack", CompactString()), _TAGS
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString()),
                *_ID,
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        _TAGS,
                    ),
                ),
                ("authorized_operations", Int32),
                _TAGS,
            ),
        ),
        ("authorized_operations", Int32),
        _TAGS,
    )


class _TopicsRequest(RequestStruct):
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _TopicsResponse
    SCHEMA = Schema(
        ("topics", CompactArray(*_ID, ("name", CompactString()), _TAGS)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        _TAGS,
    )


class TopicsRequest(Request[_TopicsRequest]):
    """Request for topics with their ids and partitions: Metadata, version 10 (Kafka 2.8)."""

    API_KEY: ClassVar[int] = 3

    def __init__(self, topics: Iterable[str]) -> None:
        """Set up the request.

        Args:
            topics: the names.
        """
        self._topics = list(topics)

    def build(self, request_struct_class: type[_TopicsRequest]) -> _TopicsRequest:
        """The request as it is sent; no topic is created by asking."""
        return request_struct_class([(0, 0, name, {}) for name in self._topics], False, False, False, {})


class _DismissalResponse(Response):
    API_KEY = 13
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "members",
            Array(("member_id", String("utf-8")), ("group_instance_id", String("utf-8")), ("error_code", Int16)),
        ),
    )


class _Dismissal(RequestStruct):
    API_KEY = 13
    API_VERSION = 3
    RESPONSE_TYPE = _DismissalResponse
    SCHEMA = Schema(
        ("group", String("utf-8")),
        ("members", Array(("member_id", String("utf-8")), ("group_instance_id", String("utf-8")))),
    )


class Dismissal(Request[_Dismissal]):
    """Take a static member out of a group, by its instance id: LeaveGroup, version 3 (Kafka 2.4)."""

    API_KEY: ClassVar[int] = 13

    def __init__(self, group: str, instance: str) -> None:
        """Set up the request.

        Args:
            group: the group.
            instance: the instance id of its member.
        """
        self._group = group
        self._instance = instance

    def build(self, request_struct_class: type[_Dismissal]) -> _Dismissal:
        """The request as it is sent."""
        return request_struct_class(self._group, [("", self._instance)])


class RightsRequest(Request[CreateAclsRequest_v1]):
    """Give accounts rights, from any host: CreateAcls, version 1 (Kafka 2.0). One that is there already stays."""

    API_KEY: ClassVar[int] = 30

    def __init__(self, rights: Iterable[Right]) -> None:
        """Set up the request.

        Args:
            rights: what to give.
        """
        self._rights = list(rights)

    def build(self, request_struct_class: type[CreateAclsRequest_v1]) -> CreateAclsRequest_v1:
        """The request as it is sent."""
        return request_struct_class(
            [
                (
                    RESOURCES[right.resource],
                    right.name,
                    _PREFIXED if right.prefixed else _LITERAL,
                    right.principal,
                    "*",
                    OPERATIONS[right.operation],
                    _ALLOW,
                )
                for right in self._rights
            ]
        )


class EntriesRequest(Request[DescribeAclsRequest_v1]):
    """All entries of the authorizer: DescribeAcls, version 1 (Kafka 2.0)."""

    API_KEY: ClassVar[int] = 29

    def build(self, request_struct_class: type[DescribeAclsRequest_v1]) -> DescribeAclsRequest_v1:
        """The request as it is sent."""
        return request_struct_class(_ANY, None, _ANY, None, None, _ANY, _ANY)


def entries_of(answer: Any) -> list[AclEntry]:
    """The entries in the answer to an `EntriesRequest`; what no right here is about is left out."""
    resources = {number: name for name, number in RESOURCES.items()} | {_CLUSTER: "cluster"}
    operations = {number: name for name, number in OPERATIONS.items()} | {_ALL: "All"}
    return [
        AclEntry(
            principal, resources[kind], name, operations[operation], pattern == _PREFIXED, permission == _ALLOW, host
        )
        for kind, name, pattern, entries in answer.resources
        for principal, host, operation, permission in entries
        if kind in resources and operation in operations
    ]


class _GroupsEndResponse(Response):
    API_KEY = 42
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("results", Array(("group", String("utf-8")), ("error_code", Int16))),
    )


class _GroupsEnd(RequestStruct):
    API_KEY = 42
    API_VERSION = 0
    RESPONSE_TYPE = _GroupsEndResponse
    SCHEMA = Schema(("groups", Array(String("utf-8"))))


class GroupEnd(Request[_GroupsEnd]):
    """Delete a group without members, and what it has committed: DeleteGroups, version 0 (Kafka 1.1)."""

    API_KEY: ClassVar[int] = 42

    def __init__(self, group: str) -> None:
        """Set up the request.

        Args:
            group: the group.
        """
        self._group = group

    def build(self, request_struct_class: type[_GroupsEnd]) -> _GroupsEnd:
        """The request as it is sent."""
        return request_struct_class([self._group])


class _SettingsResponse(Response):
    API_KEY = 44
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "responses",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
            ),
        ),
    )


class _Settings(RequestStruct):
    API_KEY = 44
    API_VERSION = 0
    RESPONSE_TYPE = _SettingsResponse
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
                (
                    "configs",
                    Array(("name", String("utf-8")), ("operation", Int8), ("value", String("utf-8"))),
                ),
            ),
        ),
        ("validate_only", Boolean),
    )


class SettingsRequest(Request[_Settings]):
    """Change some settings of a topic, not the others: IncrementalAlterConfigs, version 0 (Kafka 2.3)."""

    API_KEY: ClassVar[int] = 44

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set up the request.

        Args:
            topic: its name.
            settings: what is set.
        """
        self._topic = topic
        self._settings = settings

    def build(self, request_struct_class: type[_Settings]) -> _Settings:
        """The request as it is sent."""
        configs = [(name, _SET, value) for name, value in self._settings.items()]
        return request_struct_class([(RESOURCES["topic"], self._topic, configs)], False)
