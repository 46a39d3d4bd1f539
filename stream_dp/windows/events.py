"""From the records of a source topic to events, and the reasons why a record is not one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import chain, combinations, repeat
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Protocol, cast

import msgspec

from stream_dp.windows.local_times import DEFAULT_ZONE, read_zone, text_ms
from stream_dp.windows.nesting import SURELY_FLAT_BYTES, is_too_deep
from stream_dp.windows.plausible_times import BAD_WATERMARK
from stream_dp.windows.records import Records

Names = tuple[str, ...]
"""The names from the top of an event down to a field."""

ABSENT = object()
"""Stands for a field that is not there."""
_STEP = re.compile(r'\.(?P<plain>[\w-]+)|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]')
_UNREADABLE = re.compile(r'["\\\x00-\x1f]')
"""Characters that msgspec does not support in the names of decoded fields (`msgspec.defstruct`)."""
MAX_DEPTH = 64
"""Most names in a path, because each name nests the decoder, and its recursion, one level deeper."""
_FORM = (
    'a path is $ and one .name or ["any text"] after another, as $.page.id or $["page"]["the id"]; of a list there is '
    "no single element to name"
)


def names_of(field: str) -> Names:
    """The names that a field of the configuration stands for: a path begins with `$`, anything else is one name.

    Raises:
        ValueError: the text begins like a path but is not one, or the decoder cannot read such a path.
    """
    names = _steps(field) if field.startswith("$") else [field]
    for name in names:
        if _UNREADABLE.search(name):
            raise ValueError(
                f"the name {name!r} has a quotation mark, a backslash or a control character; fields with such names "
                "cannot be read; rename the field"
            )
    if len(names) > MAX_DEPTH:
        raise ValueError(f"the path has {len(names)} names; the limit is {MAX_DEPTH}")
    return tuple(names)


def _steps(field: str) -> list[str]:
    names: list[str] = []
    at = 1
    while at < len(field):
        step = _STEP.match(field, at)
        if step is None:
            raise ValueError(_FORM)
        names.append(step["plain"] or _unquoted(step["quoted"]))
        at = step.end()
    if not names:
        raise ValueError(_FORM)
    return names


def _unquoted(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        raise ValueError(_FORM) from None


def path_of(names: Names) -> str:
    """Return the text of a field path, which `names_of` reads back; plain where possible."""
    if len(names) == 1 and not names[0].startswith("$"):
        return names[0]
    return "$" + "".join(
        f".{name}" if re.fullmatch(r"[\w-]+", name) else f"[{msgspec.json.encode(name).decode()}]" for name in names
    )


def find(event: object, names: Sequence[str]) -> object:
    """Return the value at a path of nested mappings, `ABSENT` if there is none."""
    for name in names:
        if not isinstance(event, Mapping) or name not in event:
            return ABSENT
        event = event[name]
    return event


def put(event: dict[str, object], names: Sequence[str], value: object) -> None:
    """Let a value stand at a place of nested dictionaries; those on the way are made, or copied."""
    *outer, last = names
    for name in outer:
        inner = event.get(name)
        event[name] = event = dict(inner) if isinstance(inner, Mapping) else {}
    event[last] = value


def clash(fields: Iterable[tuple[str, bool]]) -> tuple[str, str] | None:
    """Two fields that no event can have both: one would be an object, or a list, where the other is a text.

    Args:
        fields: by the words of the configuration, and whether it is a list.
    """
    places = {(names_of(field), is_list): field for field, is_list in fields}
    for (one, its), (other, others) in combinations(places, 2):
        shorter = min(len(one), len(other))
        if one[:shorter] == other[:shorter] and (len(one) != len(other) or its is not others):
            return places[one, its], places[other, others]
    return None


UNREADABLE_HEADER = "stream-dp-unreadable"
"""Header of the stand-in for a record that cannot be read; its value is the reason."""
UNKNOWN_SCHEMA = "unknown_schema"
"""Reason for refusing a record whose schema the registry does not have."""
UNREADABLE_REASONS = frozenset(
    {"record_too_large", "bad_header", "damaged_record", "damaged_batch", "unsupported_format"}
)
WATERMARK_HEADER = "stream-dp-watermark"
"""A record without a value and with this header (a time in ms, as text) says that no earlier event will follow."""

MAX_ITEM_BYTES = 1024
"""Of an item, in UTF-8."""
MAX_KEY_BYTES = 1024
MOST_BYTES = 510 << 10
"""Of the value of a record that is passed on to its user's partition: with its user it fits into a message
(`windows.encoding`)."""
MOST_ITEMS = 10_000
"""In the list of one event: as many as a view can let a user add to a window."""
_TOGETHER, _FEW_TOGETHER = 500, 50
"""Records that are decoded together, if each of them is an event; if not, some of them."""
_SURELY_FITS = MAX_ITEM_BYTES // 4
"""Characters; none has more than 4 bytes."""

TimeUnit = Literal["ms", "s", "iso"]
ValueFormat = Literal["json", "avro"]
Partitioner = Callable[[Sequence[bytes]], Sequence[int]]
"""From users to their partitions."""
Read = Callable[[bytes], Mapping[str, Any]]
"""From a value to its fields.

Raises:
    RefusedError: it is no event.
"""
Schemas = Mapping[bytes, Read]
"""By what stands in front of a value, how it is read."""


class Record(Protocol):
    """The part of a consumed Kafka record that counting looks at."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class EventFormat:
    """Format of a source's events: objects, keyed by user, with these fields."""

    items: tuple[str, ...]
    """The item field of every view on this source."""
    user: str | None
    """A field that must equal the record key, or None when the key alone names the user."""
    time: str | None
    """The field of the event time, or None for the timestamp of the record."""
    unit: TimeUnit
    lists: frozenset[str] = frozenset()
    """Those of the item fields that are lists of items."""
    key: str | None = None
    """The field of the user where records are not keyed by user (`KeyReader`), else None."""
    zone: str = DEFAULT_ZONE
    """The time zone of times without an offset from UTC."""

    @property
    def fields(self) -> set[str]:
        """All of them."""
        return {field for field in (self.key, self.user, self.time, *self.items) if field is not None}


class Column(NamedTuple):
    """The contributions to a view: parallel lists. Those of one event stand together, and have all but the item."""

    offsets: list[int]
    users: list[bytes]
    times: list[int]
    items: list[str]


@dataclass(slots=True)
class Decoded:
    """A chunk, decoded: parallel lists of what is an event, the watermarks, and what was refused."""

    offsets: list[int]
    users: list[bytes]
    times: list[int]
    columns: list[Column]
    """One for each item field. With one item an event, it shares the lists of the events."""
    watermarks: list[tuple[int, int]]
    """(offset, time in ms) of the records that carry a watermark. The time may be any number; callers use
    `PlausibleTimes.check_watermarks` to find out which are believed."""
    refused: list[tuple[int, str]]
    """(offset, reason) of the records that are no event."""

    @classmethod
    def empty(cls, lists: Sequence[bool]) -> Decoded:
        """Nothing yet.

        Args:
            lists: of each item field, whether it is a list.
        """
        offsets, users, times = list[int](), list[bytes](), list[int]()
        columns = [Column([], [], [], []) if is_list else Column(offsets, users, times, []) for is_list in lists]
        return cls(offsets, users, times, columns, [], [])


class Values(Protocol):
    """Reads values in one format into a type that has the fields which are needed of them."""

    malformed: str
    """The reason of what cannot be read."""

    def learn(self, schemas: Schemas) -> None:
        """Take the schemas of the values to come."""

    def are_readable(self, values: Sequence[bytes]) -> bool:
        """Return True if no value is nested too deeply to be read; `values` is not empty."""

    def read(self, value: bytes) -> Any:  # noqa: ANN401  a struct made at run time
        """The fields of a value.

        Raises:
            RefusedError: it cannot be read.
            msgspec.ValidationError: it lacks a field, or one is of another type.
            ValueError: it cannot be read, as with RecursionError.
        """


class JsonValues:
    """`Values` in JSON."""

    malformed = "malformed_json"

    def __init__(self, event: type) -> None:
        """Set up the reader.

        Args:
            event: what values are read into.
        """
        self.read: Callable[[bytes], Any] = msgspec.json.Decoder(event).decode

    def are_readable(self, values: Sequence[bytes]) -> bool:
        """See `Values`."""
        if max(map(len, values)) <= SURELY_FLAT_BYTES:
            return True
        return not any(map(is_too_deep, values))

    def learn(self, schemas: Schemas) -> None:
        """JSON has none."""


class EventDecoder:
    """Decodes chunks of one source. Nothing of a bad record but its reason leaves this class."""

    def __init__(self, form: EventFormat, values: Callable[[type], Values] = JsonValues) -> None:
        """Set up the decoder.

        Args:
            form: what is needed of the values.
            values: how they are read.
        """
        kinds: dict[Names, Any] = {names_of(name): str | int for name in (form.user, *form.items) if name is not None}
        kinds |= {names_of(name): list[str | int] for name in form.lists}
        if form.time is not None:
            kinds.setdefault(names_of(form.time), str if form.unit == "iso" else int)
        event, places = _struct(kinds)
        self._values = values(event)
        self._read = self._values.read
        names = list(dict.fromkeys(form.items))
        self._item_of = [attrgetter(places[names_of(name)]) for name in names]
        self._lists = [name in form.lists for name in names]
        self._columns = [names.index(name) for name in form.items]
        self._user = None if form.user is None else attrgetter(places[names_of(form.user)])
        self._times = _time_reader(form, places)
        self.learn = self._values.learn

    def decode(self, records: Sequence[Record]) -> Decoded:
        """Decode a chunk; the order of its records is kept.

        Args:
            records: consecutive records of one partition.

        Returns:
            Events, watermarks and refusals; every record stands in exactly one of them.
        """
        out = Decoded.empty(self._lists)
        self._decode(Records.of(records), out, [column.items for column in out.columns], _TOGETHER)
        for column, is_list in zip(out.columns, self._lists, strict=True):
            if is_list:
                _spread(column, out)
        out.columns = [out.columns[at] for at in self._columns]
        return out

    def _decode(self, records: Records, out: Decoded, columns: Sequence[list[Any]], together: int) -> None:
        for first in range(0, len(records), together):
            some = records[first : first + together]
            if self._all_events(some, out, columns):
                continue
            if together > _FEW_TOGETHER:
                self._decode(some, out, columns, _FEW_TOGETHER)
            else:
                self._one_by_one(some, out, columns)

    def _all_events(self, records: Records, out: Decoded, columns: Sequence[list[Any]]) -> bool:
        """Decode records of which each is an event, column by column, which takes a third of the time.

        Returns:
            False if one of them may be none, or has a list; then nothing has changed.
        """
        keys, values = cast("list[bytes]", records.keys), cast("list[bytes]", records.values)
        if any(self._lists) or not all(keys) or not all(values) or max(map(len, keys)) > MAX_KEY_BYTES:
            return False
        if not self._values.are_readable(values):
            return False
        try:
            events = list(map(self._read, values))
            if self._user is not None and not _are(keys, _all_texts(list(map(self._user, events)))):
                return False
            times = self._times(events, records.timestamps)
            found = [list(map(item, events)) for item in self._item_of]
        except (RefusedError, ValueError, RecursionError):  # msgspec.ValidationError is a ValueError
            return False
        texts = list(map(_all_texts, found))
        if any(max(map(len, items)) > _SURELY_FITS for items in texts):
            return False
        out.offsets += records.offsets
        out.users += keys
        out.times += times
        for column, items in zip(columns, texts, strict=True):
            column.extend(items)
        return True

    def _one_by_one(self, records: Sequence[Record], out: Decoded, columns: Sequence[list[Any]]) -> None:
        for record in records:
            if not record.value or record.key is None:
                _without_event(record, out, is_keyed=True)
                continue
            try:
                self._event(record, out, columns)
            except RefusedError as refusal:
                out.refused.append((record.offset, refusal.reason))
            except (ValueError, RecursionError):  # an integer too long for a text, nesting too deep
                out.refused.append((record.offset, self._values.malformed))

    def _event(self, record: Record, out: Decoded, columns: Sequence[list[Any]]) -> None:
        key = record.key
        event = _event(self._values, record.value or b"")
        if not key or len(key) > MAX_KEY_BYTES:
            raise RefusedError("bad_key")
        if self._user is not None and str(self._user(event)).encode() != key:
            raise RefusedError("key_mismatch")
        items: list[Any] = [item(event) for item in self._item_of]
        for index, item in enumerate(items):
            if item.__class__ is not str or len(item) > _SURELY_FITS:
                items[index] = _texts(item) if item.__class__ is list else _text(item)
        (time,) = self._times([event], [record.timestamp])
        out.offsets.append(record.offset)
        out.users.append(key)
        out.times.append(time)
        for texts, item in zip(columns, items, strict=True):
            texts.append(item)


class Keyed(NamedTuple):
    """A chunk of a source that is not keyed by user: every record stands in exactly one of the lists."""

    events: list[tuple[bytes, Record]]
    """With their users."""
    watermarks: list[tuple[int, int]]
    refused: list[tuple[int, str]]


class KeyReader:
    """Reads the user of a record out of a field of its value; the record's own key is not looked at."""

    def __init__(self, field: str, values: Callable[[type], Values] = JsonValues) -> None:
        """Set up the reader.

        Args:
            field: a name or a path.
            values: how they are read.
        """
        event, places = _struct({names_of(field): str | int})
        self._values = values(event)
        self.learn = self._values.learn
        self._key = attrgetter(places[names_of(field)])

    def read(self, records: Sequence[Record]) -> Keyed:
        """Read a chunk; the order of its records is kept."""
        out = Decoded.empty([])
        events: list[tuple[bytes, Record]] = []
        for record in records:
            if not record.value:
                _without_event(record, out, is_keyed=False)
                continue
            try:
                events.append((self._user(record.value), record))
            except RefusedError as refusal:
                out.refused.append((record.offset, refusal.reason))
            except (ValueError, RecursionError):
                out.refused.append((record.offset, self._values.malformed))
        return Keyed(events, out.watermarks, out.refused)

    def _user(self, value: bytes) -> bytes:
        if len(value) > MOST_BYTES:
            raise RefusedError("record_too_large")
        user = str(self._key(_event(self._values, value))).encode()
        if not user or len(user) > MAX_KEY_BYTES:
            raise RefusedError("bad_key")
        return user


class RefusedError(Exception):
    """A record is no event, for this reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def _all_texts(values: list[Any]) -> list[str]:
    return values if set(map(type, values)) == {str} else list(map(str, values))


def _are(keys: Sequence[bytes], users: Sequence[str]) -> bool:
    """Return True if as many users are the keys, one by one; joined they are compared at once.

    Where a key has a line break, what is equal joined may be cut at another place, so it may be False then.
    """
    joined = b"\n".join(keys)
    return joined.count(b"\n") == len(keys) - 1 and "\n".join(users).encode() == joined


def _event(values: Values, value: bytes) -> Any:  # noqa: ANN401
    if not values.are_readable([value]):
        raise RefusedError(values.malformed)
    try:
        return values.read(value)
    except msgspec.ValidationError as error:
        missing = "missing required" in str(error)
        raise RefusedError("missing_field" if missing else "wrong_type") from None


def unreadable_reason(record: Record) -> str | None:
    """Return why a record could not be read; None for one that was read."""
    if record.key is not None or record.value is not None or not record.headers:
        return None
    name, reason = record.headers[0]
    if name != UNREADABLE_HEADER or reason is None:
        return None
    text = reason.decode(errors="replace")
    return text if text in UNREADABLE_REASONS or text == UNKNOWN_SCHEMA else None


def _without_event(record: Record, out: Decoded, *, is_keyed: bool) -> None:
    headers: Mapping[str, bytes] = dict(record.headers or ())
    if (unreadable := unreadable_reason(record)) is not None:
        out.refused.append((record.offset, unreadable))
    elif not record.value and WATERMARK_HEADER in headers:
        try:
            out.watermarks.append((record.offset, int(headers[WATERMARK_HEADER])))
        except (TypeError, ValueError):
            out.refused.append((record.offset, BAD_WATERMARK))
    else:
        out.refused.append((record.offset, "null_key" if is_keyed and record.key is None else "null_value"))


def _text(item: str | int) -> str:
    text = str(item)
    if len(text) > _SURELY_FITS and len(text.encode()) > MAX_ITEM_BYTES:
        raise RefusedError("item_too_long")
    return text


def _texts(items: Sequence[str | int]) -> list[str]:
    """A list of items as it is counted; one bad item refuses the event, which is counted whole or not at all."""
    if len(items) > MOST_ITEMS:
        raise RefusedError("too_many_items")
    return [_text(item) for item in items]


def _spread(column: Column, out: Decoded) -> None:
    """Make contributions of a column that has a list for every event."""
    lists: Sequence[Sequence[str]] = list(cast("Any", column.items))
    counts = list(map(len, lists))
    column.items[:] = chain.from_iterable(lists)
    column.offsets.extend(chain.from_iterable(map(repeat, out.offsets, counts)))
    column.users.extend(chain.from_iterable(map(repeat, out.users, counts)))
    column.times.extend(chain.from_iterable(map(repeat, out.times, counts)))


def _struct(kinds: Mapping[Names, Any]) -> tuple[type, dict[Names, str]]:
    """The type that fields of these kinds are decoded into, in one pass, and where in it each of them stands."""
    inner: dict[str, dict[Names, Any]] = {}
    for (name, *rest), kind in kinds.items():
        inner.setdefault(name, {})[tuple(rest)] = kind
    fields: list[tuple[str, Any, Any]] = []
    places: dict[Names, str] = {}
    for index, (name, below) in enumerate(inner.items()):
        attribute = f"field_{index}"
        kind, deeper = (below[()], {(): ""}) if () in below else _struct(below)
        fields.append((attribute, kind, msgspec.field(name=name)))
        for names, place in deeper.items():
            places[name, *names] = f"{attribute}.{place}" if place else attribute
    return msgspec.defstruct("Event", fields, gc=False), places


def _time_reader(form: EventFormat, places: Mapping[Names, str]) -> Callable[[list[Any], list[int]], list[int]]:
    """Reads the times of events, each with that of its record; one that is of another type raises RefusedError."""
    if form.time is None:
        return _record_times
    get, iso = attrgetter(places[names_of(form.time)]), form.unit == "iso"
    factor = 1000 if form.unit == "s" else 1
    zone = read_zone(form.zone)

    def read(events: list[Any], _timestamps: list[int]) -> list[int]:
        values = list(map(get, events))
        if set(map(type, values)) != {str if iso else int}:
            raise RefusedError("wrong_type")
        if iso:
            return list(map(iso_ms, values, repeat(zone)))
        return values if factor == 1 else [value * factor for value in values]

    return read


def _record_times(_events: list[Any], timestamps: list[int]) -> list[int]:
    """Return the timestamps of the records; Kafka stores -1 if the producer set none."""
    if min(timestamps, default=0) < 0:
        raise RefusedError("no_timestamp")
    return timestamps


def iso_ms(value: str, zone: tzinfo = UTC) -> int:
    """Return the time of an ISO 8601 text in ms; without an offset from UTC, it is in the given zone.

    Raises:
        RefusedError: it is no such text.
    """
    try:
        return text_ms(value, zone)
    except ValueError:
        raise RefusedError("wrong_type") from None
