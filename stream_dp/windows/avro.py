"""Events in Avro whose schemas stand in a registry: each value bears the number of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, tzinfo
from importlib import import_module
from io import BytesIO
from typing import Any

import msgspec

from stream_dp.windows.events import (
    UNKNOWN_SCHEMA,
    EventDecoder,
    EventFormat,
    Names,
    Record,
    RefusedError,
    Schemas,
    TimeUnit,
    find,
    iso_ms,
    names_of,
    path_of,
)
from stream_dp.windows.local_times import local_ms, read_zone

HEADER_BYTES = 5
"""In front of a value: a zero, and the number of its schema in a registry."""
MAX_SCHEMA_BYTES = 256 << 10
"""Of a schema's text, with those that it refers to."""
MAX_DEPTH = 64
"""Types inside one another."""
MAX_NODES = 10_000
"""Types in a schema, each counted wherever it is used."""
TIME = "the time"
"""Where a reading puts the time of an event, in ms, beside its field. It is no name that a field may have in Avro."""

Kept = Set[tuple[str, str]] | None
"""Fields, each behind the name of its record; None stands for all."""

_NAMED = ("record", "error", "enum", "fixed")
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_PER_MS = {"millis": 1, "micros": 1000, "nanos": 1_000_000}
_INSTANTS = {f"{kind}-{unit}": per_ms for kind in ("timestamp", "local-timestamp") for unit, per_ms in _PER_MS.items()}
_ALIKE = ({"int", "long", "float", "double"}, {"string", "bytes"})
"""Types that Avro lets one be read as another."""
_FAULTY = (ArithmeticError, EOFError, LookupError, TypeError, ValueError)
"""Exceptions that fastavro raises on bytes that are no value of a schema."""


class UnusableSchemaError(ValueError):
    """No event is read by a schema: why, in words without anything of it."""


def unknown_schema(_value: bytes) -> Mapping[str, Any]:
    """Reader of values whose schema the registry does not have."""
    raise RefusedError(UNKNOWN_SCHEMA)


def unusable_schema(_value: bytes) -> Mapping[str, Any]:
    """Reader of values whose schema is not one of events."""
    raise RefusedError("unusable_schema")


class ValueReader:
    """Reader of the values of one schema; called with a value it returns the fields that a source needs, or more."""

    def __init__(self, text: str, references: Sequence[str], form: EventFormat) -> None:
        """Work it out.

        Args:
            text: the schema, JSON.
            references: the schemas that it refers to, each behind those that it refers to itself.
            form: what the source needs.

        Raises:
            UnusableSchemaError: it is none of records, or one whose values could be deep or large for few bytes.
        """
        fastavro = import_module("fastavro")
        self._fastavro_read = fastavro.schemaless_reader
        types = _Types(fastavro, text, references)
        kept: set[tuple[str, str]] = set()
        found = {field: list(types.find(types.top, names_of(field), kept)) for field in form.fields}
        self._writer = types.plain(None)
        self._reader = None
        if types.repeats(kept) < types.repeats(None) and not types.are_mixed(kept):
            self._reader = types.plain(kept)
        self._time: Names = ()
        if form.time is not None:
            self._time = names_of(form.time)
            self._in_ms = _in_ms(form.unit, _logical(found[form.time]), read_zone(form.zone))

    def __call__(self, value: bytes) -> Mapping[str, Any]:
        """See `events.Read`."""
        event = self._read(value, self._reader)
        if self._time:
            *outer, name = self._time
            around = find(event, outer)
            if isinstance(around, dict):
                around.pop(TIME, None)
                if name in around:
                    around[TIME] = self._in_ms(around[name])
        return event

    def whole(self, value: bytes) -> Mapping[str, Any]:
        """Every field of a value, as it stands there; see `events.Read`."""
        return self._read(value, None)

    def _read(self, value: bytes, reader: Any) -> dict[str, Any]:  # noqa: ANN401
        stream = BytesIO(value)
        stream.seek(HEADER_BYTES)
        try:
            event: dict[str, Any] = self._fastavro_read(stream, self._writer, reader)
        except _FAULTY:
            raise RefusedError("malformed_avro") from None
        if stream.tell() != len(value):
            raise RefusedError("malformed_avro")
        return event


class _Types:
    """The types of a schema, checked."""

    def __init__(self, fastavro: Any, text: str, references: Sequence[str]) -> None:  # noqa: ANN401
        if sum(map(len, (text, *references))) > MAX_SCHEMA_BYTES:
            raise UnusableSchemaError("it is too long")
        self._fastavro = fastavro
        self._named: dict[str, Any] = {}
        self._aliases: dict[str, str] = {}
        self._nodes = 0
        try:
            for reference in references:
                fastavro.parse_schema(msgspec.json.decode(reference), self._named)
            self.top = fastavro.parse_schema(msgspec.json.decode(text), self._named)
            self._check(self.top, (), repeated=False)
        except (UnusableSchemaError, MemoryError):
            raise
        except Exception:  # a schema is whatever a producer has made of it
            raise UnusableSchemaError("it is no schema of Avro, or refers to what is not there") from None
        if not _is(self.top, "record"):
            raise UnusableSchemaError("it is not one of a record")

    def find(self, kind: Any, names: Names, passed: set[tuple[str, str]]) -> Iterator[Any]:  # noqa: ANN401
        """The types, no unions, of what may stand at a place.

        Args:
            kind: the type that the place is in.
            names: the place.
            passed: gets the fields on the way, each behind the name of its record.
        """
        kind = self._resolved(kind)
        if isinstance(kind, list):
            for branch in kind:
                yield from self.find(branch, names, passed)
        elif not names:
            yield kind
        elif _is(kind, "map"):
            yield from self.find(kind["values"], names[1:], passed)
        else:
            for field in kind.get("fields", ()):
                if field["name"] == names[0]:
                    passed.add((kind["name"], names[0]))
                    yield from self.find(field["type"], names[1:], passed)

    def repeats(self, kept: Kept) -> int:
        """Return the number of lists and maps in the schema, with some of its fields."""
        return sum(_is(kind, "array", "map") for kind in self._walk(self.top, kept))

    def are_mixed(self, kept: Kept) -> bool:
        """Return True if a union is among them of which fastavro, with a reader's schema, confuses two types."""
        unions = (kind for kind in self._walk(self.top, kept) if isinstance(kind, list))
        return any(sum(_is(self._resolved(one), *group) for one in union) > 1 for union in unions for group in _ALIKE)

    def _walk(self, kind: Any, kept: Kept) -> Iterator[Any]:  # noqa: ANN401
        """A type and the types in it."""
        kind = self._resolved(kind)
        yield kind
        for part in _parts(kind, kept):
            yield from self._walk(part, kept)

    def plain(self, kept: Kept) -> Any:  # noqa: ANN401
        """The schema with some of its fields, without logical types, and with every type that it uses."""
        return self._fastavro.parse_schema(self._plain(self.top, set(), kept))

    def _plain(self, kind: Any, defined: set[str], kept: Kept) -> Any:  # noqa: ANN401
        kind = self._resolved(kind)
        if isinstance(kind, list):
            return [self._plain(branch, defined, kept) for branch in kind]
        plain = {"type": "record" if _is(kind, "error") else kind["type"]}
        if _is(kind, *_NAMED):
            alias = self._aliases.setdefault(kind["name"], f"type{len(self._aliases)}")
            if alias in defined:
                return alias
            defined.add(alias)
            plain["name"] = alias
        for part in ("items", "values"):
            if part in kind:
                plain[part] = self._plain(kind[part], defined, kept)
        if "fields" in kind:
            fields = _fields(kind, kept)
            plain["fields"] = [{"name": f["name"], "type": self._plain(f["type"], defined, kept)} for f in fields]
        return plain | {name: kind[name] for name in ("symbols", "size") if name in kind}

    def _resolved(self, kind: Any) -> Any:  # noqa: ANN401
        if isinstance(kind, str):
            return {"type": kind} if kind in _PRIMITIVES else self._named[kind]
        return kind

    def _check(self, kind: Any, inside: tuple[str, ...], *, repeated: bool) -> int:  # noqa: ANN401
        """Return the least number of bytes of a value of a type.

        Args:
            kind: the type.
            inside: what it stands in, outermost first.
            repeated: whether a list or a map is among these.

        Raises:
            UnusableSchemaError: values of it may be large or deep for few bytes.
        """
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise UnusableSchemaError(f"it has more than {MAX_NODES:,} types")
        kind = self._resolved(kind)
        name = "" if isinstance(kind, list) else str(kind.get("name", ""))
        if name and name in inside:
            raise UnusableSchemaError("it refers to itself")
        if len(inside) >= MAX_DEPTH:
            raise UnusableSchemaError(f"more than {MAX_DEPTH} of its types stand inside one another")
        repeated = repeated or _is(kind, "array", "map")
        least = [self._check(part, (*inside, name), repeated=repeated) for part in _parts(kind)]
        if isinstance(kind, list):
            return 1
        if repeated and 0 in least:
            raise UnusableSchemaError("a list or a map in it may hold what takes no byte")
        if _is(kind, "record", "error"):
            return sum(least)
        return max(0, int(kind["size"])) if _is(kind, "fixed") else int(not _is(kind, "null"))


def _is(kind: Any, *names: str) -> bool:  # noqa: ANN401
    return isinstance(kind, dict) and kind["type"] in names


def _fields(kind: Any, kept: Kept) -> list[Any]:  # noqa: ANN401
    """Those fields of a type that are kept; none where it is no record."""
    return [field for field in kind.get("fields", ()) if kept is None or (kind["name"], field["name"]) in kept]


def _parts(kind: Any, kept: Kept = None) -> Iterable[Any]:  # noqa: ANN401
    """The types that a type is made of."""
    if isinstance(kind, list):
        return kind
    if _is(kind, "array"):
        return [kind["items"]]
    if _is(kind, "map"):
        return [kind["values"]]
    return [field["type"] for field in _fields(kind, kept)]


def _logical(kinds: Iterable[Any]) -> str:
    """The logical type of the whole numbers among the types of a time; nothing where it has none.

    Raises:
        UnusableSchemaError: they have several.
    """
    found = {str(kind.get("logicalType", "")) for kind in kinds if _is(kind, "int", "long")}
    if len(found) > 1:
        raise UnusableSchemaError("the time of an event has several units in it")
    return next(iter(found), "")


def _in_ms(unit: TimeUnit, logical: str, zone: tzinfo) -> Callable[[Any], int | None]:
    """Return a function that reads a time as its schema says, otherwise in the source's unit; None for a wrong type.

    Args:
        unit: time unit of the source.
        logical: logical type of the schema; a local timestamp has no offset from UTC.
        zone: time zone of times without an offset.
    """
    per_ms = _INSTANTS.get(logical)
    is_local = logical.startswith("local-") and zone is not UTC

    def read(value: Any) -> int | None:  # noqa: ANN401
        if value.__class__ is int and per_ms is not None:
            time_ms = int(value // per_ms)
            return local_ms(time_ms, zone) if is_local else time_ms
        if isinstance(value, str) and unit == "iso":
            try:
                return iso_ms(value, zone)
            except RefusedError:
                return None
        if logical or unit == "iso" or value.__class__ is not int:
            return None
        return int(value) * (1000 if unit == "s" else 1)

    return read


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

    def are_readable(self, values: Sequence[bytes]) -> bool:
        """See `Values`: the depth of a value is that of its schema."""
        return True

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
    return read.whole(value) if isinstance(read, ValueReader) else read(value)


def has_header(value: bytes) -> bool:
    """Return True if a value begins like one whose schema stands in a registry."""
    return len(value) >= HEADER_BYTES and value[0] == 0


def headers(records: Iterable[Record]) -> set[bytes]:
    """The headers of the values of some records: those of the schemas that have to be known."""
    return {value[:HEADER_BYTES] for record in records if (value := record.value) and has_header(value)}


def number_of(header: bytes) -> int:
    """The number of the schema of a value with this header."""
    return int.from_bytes(header[1:], "big")
