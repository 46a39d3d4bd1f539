"""The input of a test as plain data: what is written to a source topic, in order, and who may read it as events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.runtime.factory import SourceRecords
from stream_dp.windows.effects import Message
from stream_dp.windows.events import names_of, put


@dataclass(frozen=True, slots=True)
class Event:
    """One event: a user, an item, a time in ms since the epoch.

    Lands in the user's partition, or in any one where the source is not keyed by user.

    Views of lists count `more` items of it.
    """

    user: str
    item: str
    time_ms: int
    more: tuple[str, ...] = ()

    def items(self, view: ViewPlan) -> tuple[str, ...]:
        """Return the items that a view counts."""
        return (self.item, *self.more) if view.has_lists else (self.item,)


@dataclass(frozen=True, slots=True)
class Watermark:
    """A watermark in every partition of the source: nothing earlier follows."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class Raw:
    """A record as it is, for what is no event."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)


Script = Iterable[Event | Watermark | Raw]
"""Script of one source topic: its events and watermarks, in order."""


class SourceWriter:
    """Turns scripts into the records of one source of a plan."""

    def __init__(self, plan: Plan, source: str | None = None) -> None:
        """Set up the writer.

        Args:
            plan: the application.
            source: the source's name; None if the plan has one only.

        Raises:
            ConfigError: no such source, or its events cannot be written: a script holds a time that stands in a field.
        """
        found = {view.source.name: view.source for view in plan.views.values()}
        if source is None and len(found) == 1:
            source = next(iter(found))
        if source not in found:
            raise ConfigError(f"no source {source!r}; there are {', '.join(found)}")
        self.source: SourcePlan = found[source]
        self._records = SourceRecords(self.source)
        self._written = 0
        self._views = [view for view in plan.views.values() if view.source.name == source]
        if self.source.time_field is None:
            raise ConfigError(f"sources.{source}: scripted events need a time field")
        self._time_field = self.source.time_field

    def place(self, user: str) -> int:
        """The partition of a user, by the source's partitioner; murmur2 where producers are trusted with it."""
        return self._records.place(user.encode())

    def value(self, event: Event) -> dict[str, object]:
        """Return the value of an event's record."""
        value: dict[str, object] = {}
        for view in self._views:
            put(value, names_of(view.item_field), list(event.items(view)) if view.has_lists else event.item)
        for name in (self.source.user_field, self.source.key_field):
            if name is not None:
                put(value, names_of(name), event.user)
        put(value, names_of(self._time_field), self._time(event.time_ms))
        return value

    def records(self, script: Script) -> Iterator[Message]:
        """The records of a script, in order."""
        for act in script:
            match act:
                case Event(user=user):
                    record = self._records.event(user.encode(), json.dumps(self.value(act)).encode())
                    yield record if self.source.key_field is None else self._anywhere(record)
                case Watermark(time_ms):
                    yield from self._records.watermark(time_ms)
                case Raw(partition, key, value, headers):
                    yield Message(self.source.topic, key, value, partition, headers)

    def _anywhere(self, record: Message) -> Message:
        """The record without a key, in one partition after another: events of a user are everywhere."""
        self._written += 1
        return replace(record, partition=self._written % self.source.partitions, key=None)

    def _time(self, time_ms: int) -> str | int:
        if self.source.time_unit == "iso":
            return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).isoformat()
        return time_ms if self.source.time_unit == "ms" else time_ms // 1000
