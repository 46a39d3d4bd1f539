"""Kept records of a deleted release topic: where they are stored, and which of them have not expired since."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.announcements import published_announcements, stored_announcements
from stream_dp.releases.pieces import PublishedRecord
from stream_dp.releases.rows import PUBLISHED, stored_windows
from stream_dp.windows.effects import Message, Rows
from stream_dp.windows.encoding import after, decode, window_key


class KeptRecord(NamedTuple):
    """A kept record without its value; sorting puts records in the order in which they were published."""

    slot_ms: int
    start_ms: int
    key: bytes
    """Key of the record in its topic."""
    row: bytes
    """Key of the row that stores the record."""


def kept_records(topic: str, views: Collection[ViewPlan], rows: Rows, begins_ms: int = 0) -> list[KeptRecord]:
    """Return the kept records of a topic in the order of publication, except those of windows that are expiring.

    Args:
        topic: the topic.
        views: the definitions of the topic's view.
        rows: the partition's table.
        begins_ms: records whose slot is before this time are left out.
    """
    found: list[KeptRecord] = []
    for view in views:
        for start, window in stored_windows(view.name, rows):
            if window.expires:
                continue
            prefix = window_key(PUBLISHED, view.name, start)
            for row, value in rows.scan(prefix, after(prefix)):
                record = decode(PublishedRecord, value)
                if record.topic == topic and record.slot_ms >= begins_ms:
                    found.append(KeptRecord(record.slot_ms, start, record.key, row))
    return sorted(found)


def kept_announcements(topic: str, views: Collection[ViewPlan], rows: Rows) -> list[tuple[int, Message]]:
    """Return a topic's records about the views themselves, with their slots; they precede all other records."""
    published = [one for view in views for one in published_announcements(view.name, rows)]
    return [(slot_ms, message) for slot_ms, message in published if message.topic == topic]


def announced_keys(topic: str, views: Collection[ViewPlan], rows: Rows) -> set[bytes | None]:
    """Return the keys of the records of the views themselves that a topic has or will have.

    One that was changed and has not left yet is among them: what it is changed to leaves like any record.
    """
    stored = (one for view in views for one in stored_announcements(view.name, rows))
    return {message.key for message in stored if message.topic == topic}


class WrittenAgain:
    """Records that were written to a topic in two passes. The second makes up for what happened during the first."""

    def __init__(self) -> None:
        """Set up; nothing is written."""
        self._announcements: dict[bytes | None, tuple[int, bytes | None]] = {}
        """By key, the slot and the value that were written last."""
        self._records: set[KeptRecord] = set()
        self._present: set[bytes] = set()
        self._keys: set[bytes | None] = set()
        """Keys of all that the topic is to have, by the last pass."""

    def begin_pass(
        self, announced: Sequence[tuple[int, Message]], announced_keys: Collection[bytes | None]
    ) -> list[tuple[int, Message]]:
        """Return the records of the views themselves that have to be written in this pass.

        Args:
            announced: those that the topic had, with their slots.
            announced_keys: the keys of all of them, those that have not left yet too.
        """
        fresh = [
            (slot_ms, one) for slot_ms, one in announced if self._announcements.get(one.key) != (slot_ms, one.value)
        ]
        self._announcements |= {one.key: (slot_ms, one.value) for slot_ms, one in fresh}
        self._keys = {*announced_keys}
        return fresh

    def left(self, kept: Sequence[KeptRecord]) -> list[KeptRecord]:
        """Return those of the kept records that have to be written in this pass."""
        fresh = [one for one in kept if one not in self._records]
        self._records.update(fresh)
        self._keys.update(one.key for one in kept)
        return fresh

    def note_present(self, keys: Collection[bytes]) -> None:
        """Note the keys of all records that the topic has after a pass, also of those that others wrote."""
        self._present = {*keys}

    @property
    def over(self) -> list[bytes]:
        """The keys of what the topic has, and expired or was taken back since."""
        written = {*(one.key for one in self._records), *self._announcements, *self._present}
        return sorted(key for key in written - self._keys if key is not None)


def read_kept(kept: Sequence[KeptRecord], rows: Rows) -> Iterator[tuple[int, Message]]:
    """Yield kept records with their slots, without those that were deleted in the meantime."""
    for one in kept:
        stored = rows.get(one.row)
        if stored is not None:
            record = decode(PublishedRecord, stored)
            yield record.slot_ms, record.message
