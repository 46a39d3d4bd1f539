"""Records that were refused because the schema registry did not have their schema.

What a registry has under a number may differ between two readings of a record. So the first answer is stored before
anything of the chunk is counted or noted, and a chunk that is read again after a crash has the same result.

A registry is asked about every schema number. No answer stands for another number: numbers have gaps, so a missing
number says nothing about those above it. To bound the work that one user causes, a user may name at most
`MAX_SCHEMAS_OF_USER` numbers in a chunk. Records with further numbers of that user are refused without asking; the
records of others are not affected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from stream_dp.windows.avro import HEADER_BYTES, has_header, headers, unknown_schema
from stream_dp.windows.count_rows import SCHEMA_OUTCOMES
from stream_dp.windows.effects import Rows
from stream_dp.windows.encoding import decode, encode, text
from stream_dp.windows.events import UNKNOWN_SCHEMA, UNREADABLE_HEADER, Record, Schemas
from stream_dp.windows.records import OneRecord, Records

MAX_SCHEMAS_OF_USER = 256
"""Number of schemas that the records of one user may name in one chunk."""


class SchemaOutcomeRow(msgspec.Struct, array_like=True):
    """The outcome of the newest chunk that had a record without a known schema."""

    last_offset: int = -1
    """Offset of the last record of the chunk."""
    refused: list[int] = []
    """Offsets of the records that were refused; all others of the chunk have known schemas."""


class SchemaOutcomes:
    """Decides which records of one partition of a source are refused for their schemas, once for each record."""

    def __init__(self, source: str, *, is_keyed: bool) -> None:
        """Set up the outcomes; `load` makes them ready.

        Args:
            source: the source's name.
            is_keyed: True if the key of a record is its user.
        """
        self._key = SCHEMA_OUTCOMES + text(source)
        self._is_keyed = is_keyed
        self._row = SchemaOutcomeRow()
        self._schemas: Schemas = {}

    def load(self, rows: Rows) -> None:
        """Read the stored outcome."""
        stored = rows.get(self._key)
        self._row = SchemaOutcomeRow() if stored is None else decode(SchemaOutcomeRow, stored)

    def learn(self, schemas: Schemas) -> None:
        """Take the registry's answers about the next chunk; empty if its records have no schemas."""
        self._schemas = schemas

    def headers(self, records: Sequence[Record]) -> set[bytes]:
        """Return the headers of the schemas that the registry has to be asked for."""
        wanted = headers(records)
        if len(wanted) <= MAX_SCHEMAS_OF_USER and not self._is_settled(records):
            return wanted
        refused = self._refused_before(records)
        left = [record for record in records if record.offset not in refused]
        excess = self._excess(left)
        return headers(record for record in left if record.offset not in excess)

    def settle(self, records: Sequence[Record]) -> tuple[Sequence[Record], list[tuple[bytes, bytes]]]:
        """Decide about the records of a chunk.

        Returns:
            The records, with a refusal in place of each that has no known schema; and the rows to store before any of
            them is counted.
        """
        # If all records of a chunk were refused when it was read before, the registry was not asked about any.
        if not self._schemas and not self._is_settled(records):
            return records, []
        refused = self._refused_before(records)
        new = self._missing(records)
        if len(self._schemas) >= MAX_SCHEMAS_OF_USER:  # If a user exceeds the limit, at least this many were asked for.
            new |= self._excess([record for record in records if record.offset not in refused])
        new = {offset for offset in new if offset > self._row.last_offset}
        rows: list[tuple[bytes, bytes]] = []
        if new:
            self._row = SchemaOutcomeRow(records[-1].offset, sorted(refused | new))
            rows = [(self._key, encode(self._row))]
        return self._replaced(records, refused | new), rows

    def _is_settled(self, records: Sequence[Record]) -> bool:
        return bool(records) and records[0].offset <= self._row.last_offset

    def _refused_before(self, records: Sequence[Record]) -> set[int]:
        """Return the offsets of the records that were refused when they were read before."""
        return set(self._row.refused) if self._is_settled(records) else set()

    def _missing(self, records: Sequence[Record]) -> set[int]:
        """Return the offsets of the records whose schema the registry does not have."""
        if unknown_schema not in self._schemas.values():
            return set()
        unknown = {header for header, read in self._schemas.items() if read is unknown_schema}
        return {record.offset for record in records if (record.value or b"")[:HEADER_BYTES] in unknown}

    def _excess(self, records: Sequence[Record]) -> set[int]:
        """Return the offsets of the records whose schema number exceeds the limit of their user."""
        if not self._is_keyed:
            return set()
        named: defaultdict[bytes | None, set[bytes]] = defaultdict(set)
        found: set[int] = set()
        for record in records:
            value = record.value or b""
            if has_header(value):
                numbers = named[record.key]
                numbers.add(value[:HEADER_BYTES])
                if len(numbers) > MAX_SCHEMAS_OF_USER:
                    numbers.remove(value[:HEADER_BYTES])
                    found.add(record.offset)
        return found

    @staticmethod
    def _replaced(records: Sequence[Record], refused: set[int]) -> Sequence[Record]:
        if not refused:
            return records
        why = ((UNREADABLE_HEADER, UNKNOWN_SCHEMA.encode()),)
        return Records.of(
            [
                OneRecord(record.offset, record.timestamp, None, None, why) if record.offset in refused else record
                for record in records
            ]
        )
