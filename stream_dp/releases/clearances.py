"""Who may see what: the newest grant of every audience, and the windows that it still has to sharpen."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from stream_dp.config.plan import ViewPlan
from stream_dp.control.grants import Order
from stream_dp.releases.rows import CLEARANCE, NOTHING, WINDOW, ClearanceRow, WindowRow, clearance_audience
from stream_dp.windows.effects import Rows
from stream_dp.windows.keys import after, decode, encode, text, window_start


class Clearances:
    """The clearances for the views of one partition.

    Attributes:
        sharpening: by audience, the windows that its newest grant still has to sharpen, oldest first in every view.
    """

    def __init__(self, views: Mapping[str, ViewPlan]) -> None:
        """Set up the clearances; `load` makes them ready.

        Args:
            views: the views, by name.
        """
        self._views = views
        self._rows: dict[str, ClearanceRow] = {}
        self.sharpening: dict[str, deque[tuple[ViewPlan, int]]] = {}

    def load(self, rows: Rows) -> None:
        """Read the grants; go on with those that are not carried out."""
        for key, value in rows.scan(CLEARANCE, after(CLEARANCE)):
            self._rows[clearance_audience(key)] = decode(ClearanceRow, value)
        for audience, row in self._rows.items():
            if row.open:
                self.sharpening[audience] = self._coarser(audience, rows)

    def of(self, audience: str) -> ClearanceRow:
        """The newest grant of an audience that has one."""
        return self._rows[audience]

    def level(self, view: ViewPlan, audience: str) -> int:
        """The level an audience may see: the last granted one that the view's ladder has, else where it starts."""
        row = self._rows.get(audience)
        index = {level.name: at for at, level in enumerate(view.levels)}
        granted = [index[name] for name in row.levels if name in index] if row is not None else []
        return granted[0] if granted else view.audiences[audience]

    def is_coarser(self, view: ViewPlan, audience: str, row: WindowRow) -> bool:
        """Whether an audience may see a window finer than it does, and its newest grant was not turned down there."""
        if row.refused or row.turned_down.get(audience) == self._rows[audience].number:
            return False
        return row.given.get(audience, NOTHING).level < self.level(view, audience)

    def grant(self, order: Order, slot_ms: int) -> tuple[bytes, bytes] | None:
        """Take a grant in place of the former one of its audience; the row to store, None if it is not newer."""
        known = self._rows.get(order.audience)
        if known is not None and known.number >= order.number:
            return None
        former = known.levels if known is not None else []
        levels = [order.level, *(level for level in former if level != order.level)]
        self._rows[order.audience] = ClearanceRow(order.number, levels, slot_ms, open=True)
        return self._stored(order.audience)

    def begin(self, audience: str, rows: Rows) -> None:
        """Look which windows the newest grant of an audience has to sharpen."""
        self.sharpening[audience] = self._coarser(audience, rows)

    def finish(self, audience: str) -> tuple[bytes, bytes]:
        """The newest grant of an audience is carried out; the row to store."""
        del self.sharpening[audience]
        self._rows[audience].open = False
        return self._stored(audience)

    def _coarser(self, audience: str, rows: Rows) -> deque[tuple[ViewPlan, int]]:
        found: deque[tuple[ViewPlan, int]] = deque()
        for view in self._views.values():
            if audience in view.audiences:
                prefix = WINDOW + text(view.name)
                found += [
                    (view, window_start(WINDOW, view.name, key))
                    for key, value in rows.scan(prefix, after(prefix))
                    if self.is_coarser(view, audience, decode(WindowRow, value))
                ]
        return found

    def _stored(self, audience: str) -> tuple[bytes, bytes]:
        return CLEARANCE + text(audience), encode(self._rows[audience])
