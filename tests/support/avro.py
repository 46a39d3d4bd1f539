"""Values in Avro as a producer with a schema registry writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_writer

from stream_dp.windows.avro import ValueReader
from stream_dp.windows.events import EventFormat, Read, Schemas

VISIT: Mapping[str, Any] = {
    "type": "record",
    "name": "Visit",
    "namespace": "site",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "page", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
"""A visit, as the configuration of `tests.support.visits` reads it."""


def header(number: int) -> bytes:
    """What stands in front of a value whose schema has a number."""
    return b"\0" + number.to_bytes(4, "big")


def bare(schema: Any) -> Any:
    """A schema without logical types: times are written as the numbers that they are."""
    return json.loads(json.dumps(schema).replace('"logicalType"', '"ignored"'))


def written(schema: Any, event: Any, number: int = 1, references: Sequence[Any] = ()) -> bytes:
    """An event as its producer writes it."""
    named: dict[str, Any] = {}
    for reference in references:
        parse_schema(reference, named)
    out = BytesIO(header(number))
    out.seek(0, 2)
    schemaless_writer(out, parse_schema(schema, named), event)
    return out.getvalue()


def reading(schema: Any, form: EventFormat, *references: Any) -> ValueReader:
    """How values of a schema are read."""
    return ValueReader(json.dumps(schema), [json.dumps(one) for one in references], form)


def schemas(form: EventFormat, *given: Any) -> Schemas:
    """How values are read with the numbers from 1 on: each a schema, or what reads them."""
    reads: list[Read] = [one if callable(one) else reading(one, form) for one in given]
    return {header(number): read for number, read in enumerate(reads, 1)}
