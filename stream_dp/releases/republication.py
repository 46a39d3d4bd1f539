"""Records of a release topic that was lost: where they are kept, and what the topic held that has expired since."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.announcements import published_announcements
from stream_dp.releases.pieces import PublishedRecord
from stream_dp.releases.rows import PUBLISHED, stored_windows
from stream_dp.windows.effects import Message, Rows
from stream_dp.windows.encoding import after, decode, window_key


class KeptRecord(NamedTuple):
    """A kept record without its value. They are ordered as they left."""

    slot_ms: int
    start_ms: int
    key: bytes
    """Of the record in its topic."""
    row: bytes
    """Key of the row that has the record."""


def kept_records(topic: str, views: Collection[ViewPlan], rows: Rows) -> list[KeptRecord]:
    """Return the kept records of a topic, as they left; none of windows that expire.

    Args:
        topic: the topic.
        views: the definitions of the view that it is about.
        rows: the partition's table.
    """
    found: list[KeptRecord] = []
    for view in views:
        for start, window in stored_windows(view.name, rows):
            if window.expires:
                continue
            prefix = window_key(PUBLISHED, view.name, start)
            for row, value in rows.scan(prefix, after(prefix)):
                record = decode(PublishedRecord, value)
                if record.topic == topic:
                    found.append(KeptRecord(record.slot_ms, start, record.key, row))
    return sorted(found)


def kept_announcements(topic: str, views: Collection[ViewPlan], rows: Rows) -> list[tuple[int, Message]]:
    """Return the records of the views themselves that a topic had, with their slots; they come before all others."""
    published = [one for view in views for one in published_announcements(view.name, rows)]
    return [(slot_ms, message) for slot_ms, message in published if message.topic == topic]


def read_kept(kept: Sequence[KeptRecord], rows: Rows) -> Iterator[tuple[int, Message]]:
    """Yield kept records with their slots; those that were deleted meanwhile are left out."""
    for one in kept:
        stored = rows.get(one.row)
        if stored is not None:
            record = decode(PublishedRecord, stored)
            yield record.slot_ms, record.message
