"""Predictions of the simulator: records without their noise, and account entries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from stream_dp.accounting import Cost
from stream_dp.windows.durations import Slots

Kind: TypeAlias = Literal["view", "release", "refusal", "tombstone"]
Reason: TypeAlias = Literal["budget", "lost"]
Topic: TypeAlias = tuple[str, str]
"""View and audience."""


@dataclass(frozen=True)
class Place:
    """Place of an event in the sequence of its ledger."""

    tick_ms: int
    stage: int


@dataclass(frozen=True)
class Record:
    """A public record as far as it follows from the transcript.

    Attributes:
        place: the event that decided it.
        kind: what it is.
        view: the view whose topic it is in.
        audience: the audience whose topic it is in.
        edition: number of the edition it is about.
        start_ms: start of the window; None for records about views.
        end_ms: end of the window; None for records about views.
        level: name of the level, of a release.
        revision: of a release, from 1; of a refusal, the one that does not come.
        reason: of a refusal.
        list_version: the public list that a release is about; None without one.
        is_interrupted: whether a catch-up that was cut short closed the window.
        number: number of the record in its topic, from 1.
        slot_ms: its planned slot.
        voided_ms: tick of the lowering that keeps it from leaving; None: it leaves.
    """

    place: Place
    kind: Kind
    view: str
    audience: str
    edition: int
    start_ms: int | None = None
    end_ms: int | None = None
    level: str | None = None
    revision: int | None = None
    reason: Reason | None = None
    list_version: str | None = None
    is_interrupted: bool = False
    number: int = 0
    slot_ms: int = 0
    voided_ms: int | None = None

    @property
    def topic(self) -> Topic:
        """The topic it is in."""
        return self.view, self.audience


@dataclass(frozen=True)
class Entry:
    """A charge.

    Attributes:
        place: the event that it belongs to.
        view: the view that is charged.
        start_ms: start of the window, or pane, that is paid for.
        period: start and end of the period.
        charge: what was charged.
        spent: the sum of the period's charges, with this one.
        budget: the caps of the period.
    """

    place: Place
    view: str
    start_ms: int
    period: tuple[int, int]
    charge: Cost
    spent: Cost
    budget: Cost


@dataclass(frozen=True)
class Prediction:
    """The public decisions of one ledger, in order.

    Attributes:
        records: all records that were decided, those that a lowering voids included.
        entries: all charges.
        until_ms: every event before this tick was predicted; None if nothing is missing.
    """

    records: tuple[Record, ...]
    entries: tuple[Entry, ...]
    until_ms: int | None

    @property
    def leaving(self) -> tuple[Record, ...]:
        """The records that reach a reader."""
        return tuple(record for record in self.records if record.voided_ms is None)

    def of_topic(self, view: str, audience: str) -> tuple[Record, ...]:
        """The records that leave one topic."""
        return tuple(record for record in self.leaving if record.topic == (view, audience))


class Outbox:
    """Gives records their numbers and planned slots, and voids those that a lowering concerns (section 3)."""

    def __init__(self) -> None:
        """Start with empty topics."""
        self._records: list[Record] = []
        self._numbers: dict[Topic, int] = {}
        self._slots: dict[Topic, int] = {}

    @property
    def records(self) -> tuple[Record, ...]:
        """Every record, in the order of decision."""
        return tuple(self._records)

    def record(self, at: int) -> Record:
        """Return the record at a place."""
        return self._records[at]

    def post(self, record: Record, slots: Slots, closed_ms: int | None = None) -> int:
        """Decide a record; return its place in `records`.

        Args:
            record: the record, without number and slot.
            slots: the slots of the settings in effect.
            closed_ms: when its window closed, for a record that a window brings.
        """
        topic = record.topic
        base_ms = record.place.tick_ms if closed_ms is None else max(record.place.tick_ms, closed_ms)
        planned_ms = max(first_slot(base_ms, slots), self._slots.get(topic, 0))
        number = self._numbers.get(topic, 0) + 1
        self._slots[topic] = planned_ms
        self._numbers[topic] = number
        self._records.append(replace(record, number=number, slot_ms=planned_ms))
        return len(self._records) - 1

    def void(self, at: int, tick_ms: int, slots: Slots) -> bool:
        """Void a record by a lowering at a tick; return False if it leaves nevertheless."""
        record = self._records[at]
        if record.voided_ms is not None or record.slot_ms < tick_ms + slots.offset_ms:
            return False
        self._records[at] = replace(record, voided_ms=tick_ms)
        return True

    def newest_before(self, topic: Topic, tick_ms: int) -> int:
        """Return the number of the last record of a topic whose planned slot is before a time; 0 for none."""
        numbers = [
            record.number
            for record in self._records
            if record.topic == topic and record.slot_ms < tick_ms and record.voided_ms is None
        ]
        return max(numbers, default=0)


def first_slot(base_ms: int, slots: Slots) -> int:
    """Return the first slot at or after a time plus the offset."""
    earliest_ms = base_ms + slots.offset_ms
    return -(-earliest_ms // slots.every_ms) * slots.every_ms
