"""The bytes of a record and its key, and the JSON Schema of all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from stream_dp.errors import StateError
from stream_dp.records.models import SCHEMA_VERSION, HistogramRelease, Refusal, TopKRelease

Release = Annotated[HistogramRelease | TopKRelease, Field(discriminator="kind")]
Record = Annotated[Release | Refusal, Field(discriminator="type")]
AnyRecord = HistogramRelease | TopKRelease | Refusal

_ADAPTER: TypeAdapter[AnyRecord] = TypeAdapter(Record)
_SCHEMAS: Mapping[str, tuple[str, TypeAdapter[Any]]] = {
    "record": ("What a topic releases.<view>.<audience> holds", _ADAPTER),
    "histogram": ("Release of a histogram", TypeAdapter(HistogramRelease)),
    "topk": ("Release of a top-k", TypeAdapter(TopKRelease)),
    "refusal": ("Refusal of a release", TypeAdapter(Refusal)),
}
SCHEMA_NAMES = tuple(_SCHEMAS)


def encode(record: AnyRecord) -> bytes:
    """A record as it is published: JSON in UTF-8, compact, keys sorted. Equal records give equal bytes."""
    data = record.model_dump(mode="json", exclude_none=True)
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def decode(data: bytes) -> AnyRecord:
    """The record that `encode` wrote.

    Raises:
        StateError: not a record of this schema version.
    """
    try:
        return _ADAPTER.validate_json(data)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])
        raise StateError(f"not a release record of schema version {SCHEMA_VERSION}: {faults}") from None


def topic_key(record: AnyRecord) -> bytes:
    """The Kafka key of a record: compaction keeps the newest release of a window, and the newest refusal beside it.

    A refusal has a key of its own: it must not displace the release that readers already have.
    """
    key = f"{record.view}/{record.audience}/{record.window.start_ms}"
    return (key if record.type == "release" else f"{key}/refusal").encode()


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a record.

    Args:
        name: one of `SCHEMA_NAMES`.

    Raises:
        KeyError: another name.
    """
    title, adapter = _SCHEMAS[name]
    body = adapter.json_schema(mode="serialization")
    return {
        **body,
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:stream-dp:{name}:{SCHEMA_VERSION}",
        "title": title,
    }
