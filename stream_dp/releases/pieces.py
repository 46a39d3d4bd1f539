"""Parts of a window in several rows, since no row is large: its sealed table, and the records to be published.

All of them are stored before the window's row, which is the commit point. What a crash leaves of them without it stands
at no stored window, or at a departure that no stored window has: `leftovers` finds it, and nothing else is read. Rows
of two draws never stand together, since a window is drawn again only after they were deleted; every row of a table
names the draw all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from types import MappingProxyType

import msgspec

from stream_dp.config.plan import ViewPlan
from stream_dp.errors import StateError
from stream_dp.kinds.sealing import SealedTable
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.releases.rows import (
    BUCKET,
    OUTBOX,
    PUBLISHED,
    TABLE,
    WINDOW,
    Change,
    Departure,
    WindowRow,
    deletions,
)
from stream_dp.windows.effects import Message, Rows
from stream_dp.windows.encoding import MESSAGE_BYTES, after, bucket_number, decode, encode, spans, text, window_key
from stream_dp.windows.merging import MergedBucket

ROW_OVERHEAD = 2048
"""Bytes of a row around what it is there for: keys, the name of a topic, a digest, numbers."""
RECORD_BYTES = MESSAGE_BYTES - ROW_OVERHEAD
"""Of a record that stands in a row."""
_PLACE_BYTES = 4
_DIGEST_BYTES = 16
_ENTRY_BYTES = 16
"""Of an entry of a table beside its key."""

Addressed = tuple[str, bytes, bytes]
"""Topic, key and bytes of a record or an entry."""
TablePart = tuple[SealedTable, WindowNoise]
"""A sealed table, and what it was sealed with."""
Removal = tuple[str, bytes, None]
"""Topic and key of a record that is taken back."""


class TableRow(msgspec.Struct, array_like=True):
    """A part of a sealed table."""

    parts: int
    """Number of them."""
    table: SealedTable
    """The table with some of its keys; what is not about keys stands in every part."""


class RecordRow(msgspec.Struct, array_like=True):
    """A record that waits for its slot; its bytes are fixed before the first attempt to publish it."""

    topic: str
    key: bytes
    value: bytes | None
    """None: what stands under the key is taken back."""
    void: bool = False
    """True if it was revoked before it left (`releases.outboxes.revoked`)."""


class PublishedRecord(msgspec.Struct, array_like=True):
    """The newest published record of a key in its topic. It is deleted when its window expires."""

    topic: str
    key: bytes
    value: bytes
    slot_ms: int
    """The slot at which it was published."""

    @property
    def message(self) -> Message:
        """The record in the form in which it is published."""
        return Message(self.topic, self.key, self.value)


# -- sealed tables ------------------------------------------------------------------------------------------------


def table_rows(view: str, start: int, table: SealedTable) -> list[Change]:
    """The rows of a sealed table."""
    beside = len(table.excess) // max(1, len(table.items))
    sizes = [len(item.encode()) + _ENTRY_BYTES + beside for item in table.items]
    cuts = spans(sizes, RECORD_BYTES - len(table.payload)) or [(0, 0)]
    return [
        (table_key(view, start, number), encode(TableRow(len(cuts), _part(table, first, end, beside))))
        for number, (first, end) in enumerate(cuts)
    ]


def _part(table: SealedTable, first: int, end: int, beside: int) -> SealedTable:
    excess = table.excess[beside * first : beside * end]
    return SealedTable(table.digest, table.items[first:end], table.values[first:end], table.payload, excess)


def table_key(view: str, start: int, part: int) -> bytes:
    """The row of a part of a sealed table."""
    return window_key(TABLE, view, start) + bucket_number(part)


def forgotten_table(view: str, start: int, rows: Rows) -> list[Change]:
    """Return the deletions of a sealed table, as far as it is stored."""
    return deletions(window_key(TABLE, view, start), rows)


def stored_table(view: str, start: int, rows: Rows) -> SealedTable:
    """The sealed table of a released window.

    Raises:
        StateError: it is not there as it was stored.
    """
    prefix = window_key(TABLE, view, start)
    found = [decode(TableRow, value) for _, value in rows.scan(prefix, after(prefix))]
    if not found or {(row.parts, row.table.digest) for row in found} != {(len(found), found[0].table.digest)}:
        raise StateError(f"the stored table of a window of view {view} is damaged")
    parts = [row.table for row in found]
    items, values = ([*chain(*columns)] for columns in ([one.items for one in parts], [one.values for one in parts]))
    return SealedTable(parts[0].digest, items, values, parts[0].payload, b"".join(one.excess for one in parts))


def noise_of(view: ViewPlan, start: int, row: WindowRow, secrets: Mapping[str, bytes]) -> WindowNoise:
    """Return the noise parameters of a released window.

    Args:
        view: the view.
        start: start of the window.
        row: its row; it does not expire.
        secrets: by id, those of the application, the one that it was sealed with among them.
    """
    return WindowNoise.of(view.noise_name(start), secrets[row.key_id], row.secret)


# -- records that are to leave ------------------------------------------------------------------------------------


def record_rows(view: str, start: int, departure: Departure, records: Sequence[Addressed | Removal]) -> list[Change]:
    """The rows of the records that leave together, in their order."""
    return [
        (key, encode(RecordRow(*record)))
        for key, record in zip(_record_keys(view, start, departure), records, strict=True)
    ]


def leave(
    view: ViewPlan,
    start: int,
    row: WindowRow,
    slot_ms: int,
    records: Sequence[Addressed | Removal],
    had: Mapping[str, int] = MappingProxyType({}),
) -> list[Change]:
    """Let records leave at a slot or later: a departure of the window's row, and the rows that go before it.

    Args:
        view: the view.
        start: start of the window.
        row: its row.
        slot_ms: the slot.
        records: the records.
        had: by audience of a sharper revision, the level that it had before.
    """
    return record_rows(view.name, start, row.add(slot_ms, len(records), had), records)


def waiting_records(view: str, start: int, departure: Departure, rows: Rows) -> Iterator[Message]:
    """The records of a departure, one at a time, without those that were revoked.

    Raises:
        StateError: one is not there.
    """
    for _, row in stored_records(view, start, departure, rows):
        if not row.void:
            yield Message(row.topic, row.key, row.value)


def stored_records(view: str, start: int, departure: Departure, rows: Rows) -> Iterator[tuple[bytes, RecordRow]]:
    """The records of a departure with the keys of their rows, also those that were revoked."""
    for key in _record_keys(view, start, departure):
        yield key, decode(RecordRow, rows.get(key) or b"")


def forgotten_records(view: str, start: int, departure: Departure) -> list[Change]:
    """Return the deletions after the records of a departure were published."""
    return [(key, None) for key in _record_keys(view, start, departure)]


def published_records(
    view: str, start: int, departure: Departure, slot_ms: int, unkept: str, rows: Rows
) -> list[Change]:
    """Return the changes that keep the records of a departure after it was published at a slot.

    Args:
        view: the view.
        start: start of the window.
        departure: the departure from the window's outbox.
        slot_ms: the slot.
        unkept: a topic whose records are not kept.
        rows: the partition's table.
    """
    changed: list[Change] = []
    for _, row in stored_records(view, start, departure, rows):
        if row.void or row.topic == unkept:
            continue
        record = None if row.value is None else encode(PublishedRecord(row.topic, row.key, row.value, slot_ms))
        changed.append((_published_key(view, start, row.topic, row.key), record))
    return changed


def _published_key(view: str, start: int, topic: str, key: bytes) -> bytes:
    digest = blake2b(text(topic) + key, digest_size=_DIGEST_BYTES).digest()
    return window_key(PUBLISHED, view, start) + digest


def _record_keys(view: str, start: int, departure: Departure) -> Iterator[bytes]:
    prefix = _departure_key(view, start, departure)
    return (prefix + place.to_bytes(_PLACE_BYTES) for place in range(departure.records))


def _departure_key(view: str, start: int, departure: Departure) -> bytes:
    return window_key(OUTBOX, view, start) + departure.number.to_bytes(_PLACE_BYTES)


# -- deleting -----------------------------------------------------------------------------------------------------


def leftovers(view: str, next_ms: int, waiting: Iterable[tuple[int, Departure]], rows: Rows) -> list[Change]:
    """Return the deletions of tables and records that a crash left without their window or departure.

    Args:
        view: the view.
        next_ms: start of the first window that is not stored as released.
        waiting: the departures of all its outboxes, with the start of their window.
        rows: the partition's table.
    """
    tables = rows.scan(window_key(TABLE, view, next_ms), after(TABLE + text(view)))
    records = rows.scan(OUTBOX + text(view), after(OUTBOX + text(view)))
    kept = {_departure_key(view, start, departure) for start, departure in waiting}
    left = [key for key, _ in tables]
    left += [key for key, _ in records if key[:-_PLACE_BYTES] not in kept]
    return [(key, None) for key in left]


def forgotten_window(view: str, start: int, rows: Rows) -> list[Change]:
    """Return the deletions of a window with incomplete state, its row first: nothing is stored without that."""
    pieces = [*deletions(window_key(OUTBOX, view, start), rows), *forgotten_publication(view, start, rows)]
    return [(window_key(WINDOW, view, start), None), *forgotten_table(view, start, rows), *pieces]


def forgotten_publication(view: str, start: int, rows: Rows) -> list[Change]:
    """Return the changes that delete the kept records of a window."""
    return deletions(window_key(PUBLISHED, view, start), rows)


def stored_buckets(view: str, start: int, rows: Rows) -> list[MergedBucket]:
    """The exact counts of a window that waits, as far as they have come."""
    prefix = window_key(BUCKET, view, start)
    return [decode(MergedBucket, value) for _, value in rows.scan(prefix, after(prefix))]
