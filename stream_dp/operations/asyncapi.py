"""An application as an AsyncAPI 3.0 document: what readers receive, and what producers send."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from stream_dp.config.access import Broker
from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan, SourcePlan
from stream_dp.errors import ConfigError
from stream_dp.records.codec import schema
from stream_dp.records.models import SCHEMA_VERSION
from stream_dp.runtime.kafka.topics import Topics, TopicSpec, sources_of

Data = dict[str, Any]

_SASL = {
    "scram-sha-256": {"type": "scramSha256"},
    "scram-sha-512": {"type": "scramSha512"},
    "plain": {"type": "plain"},
    "oauthbearer": {"type": "http", "scheme": "bearer"},
}
_KEY = r"^[^/]+/[^/]+/-?[0-9]+(-[0-9]+)?(/[0-9]+|/refusal)?$"
_BINDING = {"bindingVersion": "0.5.0"}
_NAME = re.compile(r"[A-Za-z0-9_]+")
_TIMES = {
    "ms": {"type": "integer", "description": "Time of the event, milliseconds since 1970."},
    "s": {"type": "integer", "description": "Time of the event, seconds since 1970."},
    "iso": {"type": "string", "format": "date-time", "description": "Time of the event, RFC 3339."},
}
_LETTER = {
    "type": "object",
    "required": ["topic", "partition", "offset", "reason", "views"],
    "properties": {
        "topic": {"type": "string", "description": "Topic of the record that was refused."},
        "partition": {"type": "integer", "description": "Its partition."},
        "offset": {"type": "integer", "description": "Its offset."},
        "reason": {"type": "string", "description": "Reason for the refusal."},
        "views": {"type": "array", "items": {"type": "string"}, "description": "Views that do not count it."},
    },
}


def asyncapi(plan: Plan, audience: str | None = None) -> Data:
    """Return the document, from the side of programs beside stream-dp.

    Args:
        plan: the application.
        audience: describe only what this audience reads: its releases. None: those of all, sources and dead letters.

    Raises:
        ConfigError: there is no such audience, or the broker is the embedded log.
    """
    if audience is not None and audience not in plan.audiences:
        raise ConfigError(f"no audience is named {audience!r}; {unknown(audience, plan.audiences)}", "audience")
    if plan.broker.is_embedded:
        raise ConfigError("memory:// cannot be reached by other programs", "broker")
    servers, logins = _servers(plan, with_registry=audience is None)
    document = _Document()
    topics = Topics.of(plan)
    made = {spec.name: spec for spec in topics.all(plan)}
    for view in plan.views.values():
        for reader in view.audiences:
            if audience in (None, reader):
                spec = made[topics.release(view.view, reader)]
                document.add_release(view.kind.name, view.view, reader, spec)
    if audience is None:
        for source in sources_of(plan).values():
            items = {view.item_field: view.has_lists for view in plan.views.values() if view.source.name == source.name}
            document.add_source(source, items)
            document.add_letters(source, made[source.dead_letter_topic])
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": plan.id if audience is None else f"{plan.id} for {audience}",
            "version": str(SCHEMA_VERSION),
            "description": "Differentially private releases of stream-dp, from the side of programs that read and "
            "write its topics. The version is that of the form of records; ignore fields that are not described.",
        },
        "defaultContentType": "application/json",
        "servers": servers,
        "channels": document.channels,
        "operations": document.operations,
        "components": {
            "messages": document.messages,
            "schemas": document.schemas,
            **({"securitySchemes": logins} if logins else {}),
        },
    }


class _Document:
    """The parts of a document that topics add to."""

    def __init__(self) -> None:
        self.channels: Data = {}
        self.operations: Data = {}
        self.messages: Data = {}
        self.schemas: Data = {}

    def add_release(self, kind: str, view: str, audience: str, spec: TopicSpec) -> None:
        """Add the topic of a view and an audience."""
        for name in (kind, "refusal"):
            self._add_record(name)
        words = f"Releases of view {view} for audience {audience}. Of each window the highest revision counts."
        self._add(f"{view}.{audience}", spec.name, words, {"release": kind, "refusal": "refusal"}, "receive", spec)

    def add_source(self, source: SourcePlan, items: Mapping[str, bool]) -> None:
        """Add a topic of events; items are the fields that are counted, and whether they are lists."""
        name = f"source-{source.name}"
        fields: Data = {
            field: {"type": "array" if is_list else "string", "description": "Counted."}
            for field, is_list in items.items()
        }
        user = source.key_field or source.user_field
        if user is not None:
            fields[user] = {"type": "string", "description": "The user."}
        if source.time_field is not None:
            fields[source.time_field] = dict(_TIMES[source.time_unit])
        message: Data = {"title": f"Event of {source.name}", "contentType": "application/json"}
        kafka: Data = dict(_BINDING)
        if source.key_field is None:
            kafka = {"key": {"type": "string", "description": "The user."}, **kafka}
        if source.format == "avro":
            message["contentType"] = "application/vnd.apache.avro"
            kafka |= {"schemaIdLocation": "payload", "schemaIdPayloadEncoding": "confluent"}
            message["description"] = f"Its schema in the registry has the fields {', '.join(sorted(fields))}."
        else:
            plain = {field: fields[field] for field in sorted(fields) if _NAME.fullmatch(field)}
            message["payload"] = {"type": "object", "properties": plain}
            if nested := sorted(fields.keys() - plain.keys()):
                message["description"] = f"These fields are nested: {', '.join(nested)}."
        self.messages[name] = {**message, "bindings": {"kafka": kafka}}
        spec = TopicSpec(source.topic, source.partitions)
        self._add(name, source.topic, f"Events of source {source.name}.", {"event": name}, "send", spec)

    def add_letters(self, source: SourcePlan, spec: TopicSpec) -> None:
        """Add the dead letters of a source, for operators."""
        name = "dead-letter"
        self.messages[name] = {"title": "Dead letter", "payload": _LETTER}
        words = f"Records of source {source.name} that were refused. For operators: not differentially private."
        self._add(f"dead-letters-{source.name}", spec.name, words, {"letter": name}, "receive", spec)

    def _add(
        self, name: str, topic: str, words: str, messages: Mapping[str, str], action: str, spec: TopicSpec
    ) -> None:
        policy = spec.config.get("cleanup.policy")
        kafka: Data = {"topic": topic, "partitions": spec.partitions, **_BINDING}
        if policy is not None:
            kafka["topicConfiguration"] = {"cleanup.policy": policy.split(",")}
        self.channels[name] = {
            "address": topic,
            "description": words,
            "messages": {short: {"$ref": f"#/components/messages/{long}"} for short, long in messages.items()},
            "bindings": {"kafka": kafka},
        }
        self.operations[f"{action}-{name}"] = {
            "action": action,
            "channel": {"$ref": f"#/channels/{name}"},
            "messages": [{"$ref": f"#/channels/{name}/messages/{short}"} for short in messages],
        }

    def _add_record(self, name: str) -> None:
        """Add the message of a kind or a refusal; the definitions of its schema become schemas of the document."""
        body = _moved(schema(name))
        self.schemas |= body.pop("$defs", {})
        self.schemas[name] = {key: value for key, value in body.items() if key not in ("$schema", "$id")}
        self.messages[name] = {
            "title": body["title"],
            "payload": {"$ref": f"#/components/schemas/{name}"},
            "bindings": {"kafka": {"key": {"type": "string", "pattern": _KEY}, **_BINDING}},
        }


def _moved(value: Any) -> Any:  # noqa: ANN401  whatever JSON has
    """Return a schema with its references led to the schemas of the document."""
    if isinstance(value, dict):
        return {
            key: part.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _moved(part)
            for key, part in value.items()
        }
    return [_moved(part) for part in value] if isinstance(value, list) else value


def _servers(plan: Plan, *, with_registry: bool) -> tuple[Data, Data]:
    """Return the servers and their logins; no user, secret or file is named."""
    broker, logins = plan.broker, dict(_logins(plan.broker))
    server: Data = {"protocol": "kafka" if broker.tls is None else "kafka-secure"}
    if logins:
        server["security"] = [{"$ref": f"#/components/securitySchemes/{name}"} for name in logins]
    if with_registry and plan.registry is not None:
        registry = {"schemaRegistryUrl": plan.registry.url, "schemaRegistryVendor": "confluent"}
        server["bindings"] = {"kafka": {**registry, **_BINDING}}
    hosts = broker.address.split(",")
    names = ["kafka", *(f"kafka-{number}" for number in range(2, len(hosts) + 1))]
    return {name: {"host": host, **deepcopy(server)} for name, host in zip(names, hosts, strict=True)}, logins


def _logins(broker: Broker) -> Iterator[tuple[str, Data]]:
    if broker.sasl is not None:
        yield broker.sasl.mechanism, dict(_SASL[broker.sasl.mechanism])
    if broker.tls is not None and broker.tls.certificate is not None:
        yield "certificate", {"type": "X509"}
