"""From the records of a source topic to events, and the reasons why a record is not one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import msgspec

WATERMARK_HEADER = "stream-dp-watermark"
"""A record without a value and with this header (a time in ms, as text) says that no earlier event will follow."""

MAX_ITEM_BYTES = 1024
"""Of an item, in UTF-8."""
MAX_KEY_BYTES = 1024
_SURELY_FITS = MAX_ITEM_BYTES // 4
"""Characters; none has more than 4 bytes."""

TimeUnit = Literal["ms", "s", "iso"]
Partitioner = Callable[[bytes], int]


class Record(Protocol):
    """The part of a consumed Kafka record that counting looks at."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class EventFormat:
    """How a source writes its events: JSON objects, keyed by user, with fields of these names."""

    items: tuple[str, ...]
    """The item field of every view on this source."""
    user: str | None
    """A field that must equal the record key, or None when the key alone names the user."""
    time: str | None
    """The field of the event time, or None for the timestamp of the record."""
    unit: TimeUnit


@dataclass(slots=True)
class Decoded:
    """A chunk, decoded: parallel lists of what is an event, the watermarks, and what was refused."""

    offsets: list[int]
    users: list[bytes]
    times: list[int]
    items: list[list[str]]
    """One list per item field, parallel to the others."""
    watermarks: list[tuple[int, int]]
    """(offset, time in ms) of the records that carry a watermark."""
    refused: list[tuple[int, str]]
    """(offset, reason) of the records that are no event."""


class EventDecoder:
    """Decodes chunks of one source. Nothing of a bad record but its reason leaves this class."""

    def __init__(self, form: EventFormat) -> None:
        texts = {name: None for name in (form.user, *form.items) if name is not None}
        kinds: dict[str, Any] = dict.fromkeys(texts, str | int)
        if form.time is not None and form.time not in texts:
            kinds[form.time] = str if form.unit == "iso" else int
        inner = {name: f"field_{index}" for index, name in enumerate(kinds)}
        fields = [(inner[name], kind, msgspec.field(name=name)) for name, kind in kinds.items()]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Event", fields, gc=False)).decode
        self._item_names = [inner[name] for name in form.items]
        self._user_name = None if form.user is None else inner[form.user]
        self._time = _time_reader(form, inner)

    def decode(self, records: Sequence[Record]) -> Decoded:
        """Decode a chunk; the order of its records is kept.

        Args:
            records: consecutive records of one partition.

        Returns:
            Events, watermarks and refusals; every record stands in exactly one of them.
        """
        out = Decoded([], [], [], [[] for _ in self._item_names], [], [])
        for record in records:
            if not record.value or record.key is None:
                self._without_event(record, out)
                continue
            try:
                self._event(record, out)
            except _RefusedError as refusal:
                out.refused.append((record.offset, refusal.reason))
            except (ValueError, RecursionError):  # an integer too long for a text, nesting too deep
                out.refused.append((record.offset, "malformed_json"))
        return out

    def _event(self, record: Record, out: Decoded) -> None:
        key = record.key
        try:
            event: Any = self._decode(record.value or b"")
        except msgspec.ValidationError as error:
            missing = "missing required" in str(error)
            raise _RefusedError("missing_field" if missing else "wrong_type") from None
        except (msgspec.DecodeError, UnicodeError):
            raise _RefusedError("malformed_json") from None
        if not key or len(key) > MAX_KEY_BYTES:
            raise _RefusedError("bad_key")
        if self._user_name is not None and str(getattr(event, self._user_name)).encode() != key:
            raise _RefusedError("key_mismatch")
        items = [getattr(event, name) for name in self._item_names]
        for index, item in enumerate(items):
            if item.__class__ is not str:
                items[index] = str(item)
            if len(items[index]) > _SURELY_FITS and len(items[index].encode()) > MAX_ITEM_BYTES:
                raise _RefusedError("item_too_long")
        time = self._time(event, record)
        out.offsets.append(record.offset)
        out.users.append(key)
        out.times.append(time)
        for column, item in zip(out.items, items, strict=True):
            column.append(item)

    @staticmethod
    def _without_event(record: Record, out: Decoded) -> None:
        headers: Mapping[str, bytes] = dict(record.headers or ())
        if not record.value and WATERMARK_HEADER in headers:
            try:
                out.watermarks.append((record.offset, int(headers[WATERMARK_HEADER])))
            except (TypeError, ValueError):
                out.refused.append((record.offset, "bad_watermark"))
        else:
            out.refused.append((record.offset, "null_key" if record.key is None else "null_value"))


class _RefusedError(Exception):
    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def _time_reader(form: EventFormat, names: Mapping[str, str]) -> Callable[[Any, Record], int]:
    if form.time is None:
        return lambda _event, record: record.timestamp
    name, iso = names[form.time], form.unit == "iso"
    factor = 1000 if form.unit == "s" else 1

    def read(event: object, _record: Record) -> int:
        value = getattr(event, name)
        if isinstance(value, str) is not iso:
            raise _RefusedError("wrong_type")
        return _iso_ms(value) if iso else value * factor

    return read


def _iso_ms(value: str) -> int:
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise _RefusedError("wrong_type") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    delta = time - datetime(1970, 1, 1, tzinfo=UTC)
    return delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000
