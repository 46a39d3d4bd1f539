"""Events in Avro whose schemas stand in a registry: each value bears the number of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from stream_dp.windows.events import EventDecoder, EventFormat, Record, RefusedError, Schemas
from stream_dp.windows.paths import names_of, path_of
from stream_dp.windows.schemas import HEADER_BYTES, TIME, Reading, unknown_schema


class AvroValues:
    """`Values` in Avro, with schemas that it was given before: it asks nobody for one.

    What a record comes to is decided by its value and by what the registry has under the number in it, which is what
    it had when the record was written. So a chunk that is read again comes to the same.
    """

    malformed = "malformed_avro"

    def __init__(self, event: type) -> None:
        """Set up the reader; it knows no schema yet.

        Args:
            event: what values are read into.
        """
        self._event = event
        self._schemas: Schemas = {}

    def learn(self, schemas: Schemas) -> None:
        """Take the schemas of the values to come."""
        self._schemas = schemas

    def read(self, value: bytes) -> Any:  # noqa: ANN401
        """See `Values`."""
        if not has_header(value):
            raise RefusedError(self.malformed)
        return msgspec.convert(self._schemas[value[:HEADER_BYTES]](value), self._event)


class AvroEventDecoder(EventDecoder):
    """Decodes chunks of one source in Avro; schemas say what its times are."""

    def __init__(self, form: EventFormat) -> None:
        if form.time is not None:
            form = replace(form, time=path_of((*names_of(form.time)[:-1], TIME)), unit="ms")
        super().__init__(form, AvroValues)


def whole(schemas: Schemas, value: bytes) -> Mapping[str, Any]:
    """Every field of a value, for whoever looks for what is wrong with it.

    Raises:
        RefusedError: it cannot be read.
    """
    if not has_header(value):
        raise RefusedError("malformed_avro")
    read = schemas.get(value[:HEADER_BYTES], unknown_schema)
    return read.whole(value) if isinstance(read, Reading) else read(value)


def has_header(value: bytes) -> bool:
    """Whether a value begins like one whose schema stands in a registry."""
    return len(value) >= HEADER_BYTES and value[0] == 0


def headers(records: Iterable[Record]) -> set[bytes]:
    """The headers of the values of some records: those of the schemas that have to be known."""
    return {value[:HEADER_BYTES] for record in records if (value := record.value) and has_header(value)}


def number_of(header: bytes) -> int:
    """The number of the schema of a value with this header."""
    return int.from_bytes(header[1:], "big")
