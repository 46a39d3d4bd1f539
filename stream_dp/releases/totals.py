"""Totals of windows released, refused, lost, sharpened and late, stored with what they count.

One row holds those of all views of a partition, and what was added to them last. It stands first in the commit of what
it counts, so a crash in that commit may leave the row alone: then `rolled_back` finds that what was added last is
not stored. So everything is counted once, as often as it is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from stream_dp.releases.pieces import Change
from stream_dp.releases.rows import TOTALS, stored_view, stored_window
from stream_dp.windows.effects import Increment, Rows
from stream_dp.windows.encoding import decode, encode
from stream_dp.windows.views import view_of

LATE = "releases_late"


class TotalChange(msgspec.Struct, array_like=True):
    """Addition to the total of a view, and how to know that it was carried out."""

    counter: str
    view: str
    amount: int
    start_ms: int
    """The window that it is about, or the last one."""
    departure: int
    """Number of its departure; 0: none, the view has stepped over it."""

    @property
    def increment(self) -> Increment:
        """The same as an effect."""
        return Increment(self.counter, self.amount, (("view", view_of(self.view)),))

    def is_stored(self, rows: Rows) -> bool:
        """Return True if that which was counted stands in the table, or has left it."""
        if not self.departure:
            stored = stored_view(self.view, rows)
            return stored is not None and stored.next_ms > self.start_ms
        row = stored_window(self.view, self.start_ms, rows)
        if self.counter == LATE:
            return row is None or all(departure.number > self.departure for departure in row.outbox)
        return row is not None and row.departures >= self.departure


class TotalsRow(msgspec.Struct, array_like=True):
    """The totals of a partition."""

    views: dict[str, dict[str, int]] = {}
    """By view and counter."""
    last: list[TotalChange] = []
    """Additions of the last commit, as long as a crash may have left them out."""

    def add(self, one: TotalChange, sign: int = 1) -> None:
        """Add something, or take it back."""
        found = self.views.setdefault(one.view, {})
        found[one.counter] = found.get(one.counter, 0) + sign * one.amount


def counted(those: Iterable[TotalChange], rows: Rows) -> Change:
    """The row that goes first in the commit of what it counts."""
    row = _stored(rows)
    row.last = list(those)
    for one in row.last:
        row.add(one)
    return TOTALS, encode(row)


def rolled_back(rows: Rows) -> list[Change]:
    """Return the row without additions that are counted and not stored; to be applied first after a crash."""
    row = _stored(rows)
    undone = [one for one in row.last if not one.is_stored(rows)]
    if not undone:
        return []
    row.last = []
    for one in undone:
        row.add(one, -1)
    return [(TOTALS, encode(row))]


def stored_totals(rows: Rows) -> Iterator[Increment]:
    """The totals of a partition, as they are stored."""
    for view, found in _stored(rows).views.items():
        for counter, amount in found.items():
            yield Increment(counter, amount, (("view", view_of(view)),))


def _stored(rows: Rows) -> TotalsRow:
    stored = rows.get(TOTALS)
    return TotalsRow() if stored is None else decode(TotalsRow, stored)
