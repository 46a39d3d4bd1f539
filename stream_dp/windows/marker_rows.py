"""The marker of a source as rows of the counts table: one, or several if it is too large for one.

A source that is not keyed by user has a clock for each view and source partition, and there may be thousands of
partitions. The rows of a large marker are written before the row that commits them, alternately to one of two slots.
The rows of the previous marker stay whole until then, so a crash leaves one of the two markers whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from stream_dp.windows.count_rows import MARKER, MARKER_PIECE, Marker
from stream_dp.windows.effects import Rows
from stream_dp.windows.encoding import ENTRIES_BYTES, after, bucket_number, decode, encode, text

_IN_PIECES = b"\xc1"
"""First byte of the row of a marker in pieces; no msgpack value begins with it."""

Row = tuple[bytes, bytes]


class _Pieces(msgspec.Struct, array_like=True):
    slot: int
    number: int


class MarkerRows:
    """Reads and encodes the marker of one source."""

    def __init__(self, source: str) -> None:
        """Set up the rows; `read` makes them ready.

        Args:
            source: the source's name.
        """
        self._name = text(source)
        self._slot = 0

    def read(self, rows: Rows | Mapping[bytes, bytes]) -> Marker | None:
        """Return the stored marker; None before the first."""
        stored = rows.get(MARKER + self._name)
        if stored is None:
            return None
        pieces = _decode_pieces(stored)
        if pieces is None:
            return decode(Marker, stored)
        self._slot = pieces.slot
        keys = [self._piece_key(pieces.slot, number) for number in range(pieces.number)]
        return decode(Marker, b"".join(rows.get(key) or b"" for key in keys))

    def encode(self, marker: Marker) -> list[Row]:
        """Return the rows of a marker, the one that commits it last."""
        value = encode(marker)
        if len(value) <= ENTRIES_BYTES:
            return [(MARKER + self._name, value)]
        self._slot = 1 - self._slot
        parts = [value[at : at + ENTRIES_BYTES] for at in range(0, len(value), ENTRIES_BYTES)]
        rows = [(self._piece_key(self._slot, number), part) for number, part in enumerate(parts)]
        head = _IN_PIECES + encode(_Pieces(self._slot, len(parts)))
        return [*rows, (MARKER + self._name, head)]

    def _piece_key(self, slot: int, number: int) -> bytes:
        return MARKER_PIECE + self._name + bytes((slot,)) + bucket_number(number)


def read_marker(rows: Rows, source: str) -> Marker | None:
    """Return the marker of a source; None before the first."""
    return MarkerRows(source).read(rows)


def read_other_markers(rows: Rows, source: str) -> Iterator[Marker]:
    """Yield the markers of all other sources that have one."""
    names = [key[len(MARKER) + 1 :].decode() for key, _ in rows.scan(MARKER, after(MARKER))]
    for name in names:
        marker = None if name == source else read_marker(rows, name)
        if marker is not None:
            yield marker


def _decode_pieces(stored: bytes) -> _Pieces | None:
    return decode(_Pieces, stored[1:]) if stored.startswith(_IN_PIECES) else None
