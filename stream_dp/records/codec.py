"""The bytes of a record or an entry and its key, and the JSON Schema of all of them.

What is written is closed: the models take no field that they do not have. What is read is open: a field that a reader
does not know was added by a later stream-dp, and is passed over. `records.models` says what may be added like that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from stream_dp.errors import StateError
from stream_dp.records.by_kind import RELEASES
from stream_dp.records.models import SCHEMA_VERSION, LedgerEntry, Part, Refusal, Release, TimeRange
from stream_dp.records.view_record import ViewRecord
from stream_dp.windows.encoding import UNDECODABLE, spans

T = TypeVar("T")

AnyRecord = Release | Refusal
"""A record about a window, of any kind."""


def _of_known_kind(refusal: Refusal) -> Refusal:
    if refusal.kind not in RELEASES:
        raise ValueError(f"kind: no kind is named {refusal.kind!r}")
    return refusal


_REFUSAL: Any = Annotated[Refusal, AfterValidator(_of_known_kind)]
_RELEASE: Any = Annotated[reduce(or_, RELEASES.values()), Field(discriminator="kind")]
_ADAPTER: TypeAdapter[AnyRecord | ViewRecord] = TypeAdapter(
    Annotated[_RELEASE | _REFUSAL | ViewRecord, Field(discriminator="type")]
)
_ENTRIES: TypeAdapter[LedgerEntry] = TypeAdapter(LedgerEntry)
_SCHEMAS: Mapping[str, tuple[str, TypeAdapter[Any]]] = {
    "record": ("Record of a topic <application>.releases.<view>.<audience>", _ADAPTER),
    **{kind: (release.title, TypeAdapter(release)) for kind, release in RELEASES.items()},
    "refusal": ("Refusal of a release", TypeAdapter(_REFUSAL)),
    "view": ("Record of a view", TypeAdapter(ViewRecord)),
    "entry": ("Entry of the operators' topic <application>-accounts", _ENTRIES),
}
SCHEMA_NAMES = tuple(_SCHEMAS)
ABOUT_WINDOWS = "release", "refusal"
"""The types of records that are about a window."""
_TYPES = *ABOUT_WINDOWS, "view"
_REFUSED = b"/refusal"


def encode(record: AnyRecord | ViewRecord | LedgerEntry) -> bytes:
    """Return a record or an entry as published: JSON in UTF-8, compact, keys sorted. Equal ones give equal bytes."""
    return _JSON.encode(_fields(record))


def _fields(record: BaseModel) -> dict[str, Any]:
    """Return the fields that a record has, as they are written but for the items of a release."""
    if isinstance(record, Release):
        return record.model_dump(mode="json", exclude_none=True, exclude={"items"}) | {"items": record.items}
    return record.model_dump(mode="json", exclude_none=True)


_JSON = msgspec.json.Encoder(order="sorted", enc_hook=_fields)
_AT_ONCE = 1 << 14
"""Items that are encoded while all other threads wait."""


def encode_parts(record: AnyRecord | ViewRecord, most: int) -> Sequence[tuple[bytes, bytes]]:
    """Return a record with its key, as `encode` and `topic_key` have them; in several parts where it is large.

    Args:
        record: the record.
        most: bytes of a part, key and value together.

    Returns:
        (key, value) of the record, or of its parts in their order.
    """
    key, data = topic_key(record), _fields(record)
    if not isinstance(record, Release):
        return [(key, _JSON.encode(data))]
    # An item on a line takes as many bytes as in a list, and has no line break in it.
    some = (record.items[at : at + _AT_ONCE] for at in range(0, len(record.items), _AT_ONCE))
    lines = b"".join(map(_JSON.encode_lines, some))

    def encoded(first: int, behind: int, **part: Mapping[str, int]) -> bytes:
        return _JSON.encode(data | {"items": msgspec.Raw(b"[%b]" % lines[first:behind].replace(b"\n", b","))} | part)

    size = len(encoded(0, 0)) + max(0, len(lines) - 1)
    frame = record.model_copy(update={"items": (), "part": Part(number=size, of=size)})
    ends = 1 + np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    parts = spans(np.diff(ends, prepend=0), most - len(topic_key(frame)) - len(encode(frame)))
    if len(key) + size <= most or len(parts) < 2:
        return [(key, encoded(0, len(lines) - 1))]
    return [
        (
            part_key(key, number),
            encoded(ends[first - 1] if first else 0, ends[behind - 1] - 1, part={"number": number, "of": len(parts)}),
        )
        for number, (first, behind) in enumerate(parts, start=1)
    ]


def parse(data: bytes) -> AnyRecord | ViewRecord | None:
    """Return the record that `encode` wrote, here or in a later stream-dp of this schema version.

    Returns:
        The record; None if its `type` is not known here: readers pass over it.

    Raises:
        StateError: not a record of this schema version, or of a kind that is not known here.
    """
    with suppress(*UNDECODABLE):
        if _typed(data).type not in _TYPES:
            return None
    return _decoded(_ADAPTER, data, "a release record")


def decode(data: bytes) -> AnyRecord:
    """Return the release or refusal in a message that holds one.

    Raises:
        StateError: not a record of this schema version, or of a kind that is not known here; or of another type.
    """
    record = parse(data)
    if not isinstance(record, Release | Refusal):
        raise StateError("not a release or a refusal")
    return record


def decode_entry(data: bytes) -> LedgerEntry:
    """Return the entry that `encode` wrote, here or in a later stream-dp of this schema version.

    Raises:
        StateError: not an entry of this schema version.
    """
    return _decoded(_ENTRIES, data, "an entry of the accounts")


def _decoded(adapter: TypeAdapter[T], data: bytes, what: str) -> T:
    try:
        return adapter.validate_json(data, extra="ignore")
    except ValidationError as error:
        _check_version(data, what)
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])
        raise StateError(f"not {what} of schema version {SCHEMA_VERSION}: {faults}") from None


def _check_version(data: bytes, what: str) -> None:
    """Raise an error of its own for what a later stream-dp wrote in another form: it is too new, not damaged."""
    with suppress(*UNDECODABLE):
        version = msgspec.json.decode(data, type=Versioned).schema_version
        if version > SCHEMA_VERSION:
            raise StateError(
                f"{what} of schema version {version} was found, and this stream-dp reads version {SCHEMA_VERSION}: "
                "read the topic with the stream-dp that wrote it, or a later one"
            )


class Versioned(msgspec.Struct, frozen=True):
    """Fields of every record and entry in every version, now and later."""

    schema_version: int
    type: str = ABOUT_WINDOWS[0]


class Outline(msgspec.Struct, frozen=True):
    """Fields that identify a record, read without the rest of it."""

    schema_version: Literal[1]
    type: Literal["release", "refusal"]
    edition: int
    revision: int
    window: OutlinedWindow
    ledger: OutlinedLedger
    part: dict[str, int] | None = None


def _typed(data: bytes) -> Versioned:
    """Return the type of a record, if it is of this schema version."""
    found = msgspec.json.decode(data, type=Versioned)
    return found if found.schema_version == SCHEMA_VERSION else Versioned(found.schema_version)


class OutlinedWindow(msgspec.Struct, frozen=True):
    """The window a record is about, or the period of its ledger."""

    start_ms: int
    end_ms: int


class OutlinedLedger(msgspec.Struct, frozen=True):
    """The ledger that a record is charged to."""

    name: str
    period: OutlinedWindow


def outline(data: bytes) -> Outline | None:
    """Return the outline of a record that `encode` wrote; None if it is not about a window, whatever its type.

    Raises:
        StateError: not a record of this schema version.
    """
    try:
        return None if _typed(data).type not in ABOUT_WINDOWS else msgspec.json.decode(data, type=Outline)
    except UNDECODABLE as error:
        _check_version(data, "a release record")
        raise StateError(f"not a release record: {error}") from None


def topic_key(record: AnyRecord | ViewRecord) -> bytes:
    """Return the Kafka key of a record: compaction keeps the newest release and the newest refusal of a window.

    A refusal has a key of its own: it must not displace the release that readers already have. So has each part of a
    release behind the first. The length of windows that are made of panes may change: their keys name the end as well.
    The record of a view has a key for each edition.
    """
    if isinstance(record, ViewRecord):
        return view_key(record.view, record.audience, record.edition.number)
    key = _window_key(
        record.view, record.audience, record.window, ends=record.panes is not None or record.blocks is not None
    )
    if isinstance(record, Refusal):
        return key + _REFUSED
    return part_key(key, record.part.number if record.part is not None else 1)


def view_key(view: str, audience: str, edition: int) -> bytes:
    """Return the Kafka key of the record of an edition of a view: compaction keeps the newest."""
    return f"{view}/{audience}/view/{edition}".encode()


def record_keys(view: str, audience: str, window: TimeRange, *, ends: bool, parts: int, refused: bool) -> list[bytes]:
    """Return the Kafka keys of the records of a window, as `topic_key` has them.

    Args:
        view: the view.
        audience: the audience.
        window: the window.
        ends: whether it is made of panes.
        parts: of the release in the most parts; 0: there is none.
        refused: whether there is a refusal.
    """
    key = _window_key(view, audience, window, ends=ends)
    released = [part_key(key, number) for number in range(1, parts + 1)]
    return [*released, *([key + _REFUSED] if refused else [])]


def _window_key(view: str, audience: str, window: TimeRange, *, ends: bool) -> bytes:
    key = f"{view}/{audience}/{window.start_ms}"
    return (f"{key}-{window.end_ms}" if ends else key).encode()


def part_key(release: bytes, number: int) -> bytes:
    """Return the Kafka key of a part of a release, by that of the release."""
    return release if number == 1 else b"%s/%d" % (release, number)


def window_of(key: bytes | None) -> tuple[int, int | None] | None:
    """Return start and end of the window that the Kafka key of a record names, in ms; None if it names no window.

    The end is None where the key has none.
    """
    try:
        start, _, end = (key or b"").split(b"/")[2].partition(b"-")
        return int(start), int(end) if end else None
    except (IndexError, ValueError):
        return None


def entry_key(entry: LedgerEntry) -> bytes:
    """Return the Kafka key of an entry: compaction keeps every charge, and the newest refusal of every revision."""
    first = entry.audiences[0]
    key = f"{entry.view}/{entry.window.start_ms}/{first.audience}/{first.revision}"
    return (key if entry.type == "charge" else f"{key}/refusal").encode()


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a record, for readers: it admits unknown fields.

    Args:
        name: one of `SCHEMA_NAMES`.

    Raises:
        KeyError: another name.
    """
    title, adapter = _SCHEMAS[name]
    body = adapter.json_schema(mode="serialization")
    for part in (body, *body.get("$defs", {}).values()):
        part.pop("additionalProperties", None)
        if part.get("title") == Refusal.__name__:
            part["properties"]["kind"]["enum"] = list(RELEASES)
    return {
        **body,
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:stream-dp:{name}:{SCHEMA_VERSION}",
        "title": title,
    }
