"""Requests that aiokafka does not know as they are needed: topic ids, dismissals, several rights at once, settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.protocol.admin import CreateAclsRequest_v1, DescribeAclsRequest
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
_TEXT = String("utf-8")


def _form(key: int, version: int, asked: Schema, answered: Schema, *, flexible: bool = False) -> Any:
    """Return the class of a request in one version, which knows the class of its answer."""
    same = {"API_KEY": key, "API_VERSION": version}
    answer = type("Answer", (Response,), {**same, "SCHEMA": answered})
    form = {**same, "FLEXIBLE_VERSION": flexible, "RESPONSE_TYPE": answer, "SCHEMA": asked}
    return type("Form", (RequestStruct,), form)


def _all(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


_BROKERS = CompactArray(
    ("node_id", Int32), ("host", CompactString()), ("port", Int32), ("rack", CompactString()), _TAGS
)
_PARTITIONS = CompactArray(
    ("error_code", Int16),
    *_all(Int32, "partition", "leader", "leader_epoch"),
    *_all(CompactArray(Int32), "replicas", "isr", "offline_replicas"),
    _TAGS,
)
_TOPICS = CompactArray(
    *(("error_code", Int16), ("name", CompactString()), *_ID, ("is_internal", Boolean)),
    *(("partitions", _PARTITIONS), ("authorized_operations", Int32), _TAGS),
)
_Topics = _form(
    3,
    10,
    Schema(
        ("topics", CompactArray(*_ID, ("name", CompactString()), _TAGS)),
        *_all(Boolean, "allow_auto_topic_creation", "include_cluster_authorized_operations"),
        *_all(Boolean, "include_topic_authorized_operations"),
        _TAGS,
    ),
    Schema(
        *(("throttle_time_ms", Int32), ("brokers", _BROKERS), ("cluster_id", CompactString())),
        *(("controller_id", Int32), ("topics", _TOPICS), ("authorized_operations", Int32), _TAGS),
    ),
    flexible=True,
)
_Dismissal = _form(
    13,
    3,
    Schema(("group", _TEXT), ("members", Array(("member_id", _TEXT), ("group_instance_id", _TEXT)))),
    Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("members", Array(("member_id", _TEXT), ("group_instance_id", _TEXT), ("error_code", Int16))),
    ),
)
_CONFIGS = Array(("name", _TEXT), ("operation", Int8), ("value", _TEXT))
_Settings = _form(
    44,
    0,
    Schema(
        ("resources", Array(("resource_type", Int8), ("resource_name", _TEXT), ("configs", _CONFIGS))),
        ("validate_only", Boolean),
    ),
    Schema(
        ("throttle_time_ms", Int32),
        (
            "responses",
            Array(("error_code", Int16), ("error_message", _TEXT), ("resource_type", Int8), ("resource_name", _TEXT)),
        ),
    ),
)


class OneVersion(Request[RequestStruct]):
    """A request that is sent in one version, or not at all."""

    API_KEY: int = -1  # each has its own

    def __init__(self, made: Any) -> None:
        self.API_KEY, self._CLASSES, self._made = made.API_KEY, (type(made),), made

    def build(self, request_struct_class: Any) -> Any:
        """The request as it is sent."""
        del request_struct_class
        return self._made


def topics_request(topics: Iterable[str]) -> OneVersion:
    """Ask for topics with their ids and partitions, and create none: Metadata, version 10 (Kafka 2.8)."""
    return OneVersion(_Topics([(0, 0, name, {}) for name in topics], False, False, False, {}))


def dismissal(group: str, instance: str) -> OneVersion:
    """Take a static member out of a group, by its instance id: LeaveGroup, version 3 (Kafka 2.4)."""
    return OneVersion(_Dismissal(group, [("", instance)]))


def settings_request(topic: str, settings: Mapping[str, str]) -> OneVersion:
    """Change some settings of a topic, not the others: IncrementalAlterConfigs, version 0 (Kafka 2.3)."""
    configs = [(name, _SET, value) for name, value in settings.items()]
    return OneVersion(_Settings([(RESOURCES["topic"], topic, configs)], False))


def rights_request(rights: Iterable[Right]) -> OneVersion:
    """Give accounts rights, from any host: CreateAcls, version 1 (Kafka 2.0). One that is there already stays."""
    patterns = {False: _LITERAL, True: _PREFIXED}
    wanted = [
        (RESOURCES[kind], name, patterns[prefixed], principal, "*", OPERATIONS[operation], _ALLOW)
        for principal, kind, name, operation, prefixed in rights
    ]
    return OneVersion(CreateAclsRequest_v1(wanted))


def entries_request() -> DescribeAclsRequest:
    """Ask for all entries of the authorizer."""
    return DescribeAclsRequest(_ANY, None, _ANY, None, None, _ANY, _ANY)


def entries_of(answer: Any) -> list[AclEntry]:
    """The entries in the answer to an `entries_request`; what no right here is about is left out."""
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
