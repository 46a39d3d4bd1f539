"""Who may see what: the newest grant of every audience, and the windows that it still has to get or get sharper.

An audience that comes later gets the retained windows at its level by itself where somebody has that level of them or a
finer one: coarser releases of a window come free (`lossless 3.2`). Where it would cost more, nothing is charged that
nobody asked for; a grant asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from stream_dp.config.plan import ViewPlan
from stream_dp.control.grants import Order
from stream_dp.releases.rows import CLEARANCE, WINDOW, ClearanceRow, WindowRow, clearance_audience
from stream_dp.windows.effects import Rows
from stream_dp.windows.keys import after, decode, encode, text, window_start


class Clearances:
    """The clearances for the views of one partition.

    Attributes:
        sharpening: by audience, the windows that its newest grant still has to sharpen, or that it came later than,
            oldest first in every view.
        withheld: by audience that came later, the views with a retained window that would cost something.
    """

    def __init__(self, views: Mapping[str, ViewPlan], readable: Collection[str]) -> None:
        """Set up the clearances; `load` makes them ready.

        Args:
            views: the views, by name.
            readable: ids of the keys that are not retired: nobody sees a window of another one finer.
        """
        self._views = views
        self._readable = readable
        self._rows: dict[str, ClearanceRow] = {}
        self.sharpening: dict[str, deque[tuple[ViewPlan, int]]] = {}
        self.withheld: dict[str, set[str]] = {}
        self._later = ClearanceRow(0, [], 0, open=False)

    def load(self, rows: Rows, slot_ms: int) -> None:
        """Read the grants; go on with those that are not carried out. What audiences came later than leaves at a slot.

        `welcome` is told of every window then.
        """
        self._later = ClearanceRow(0, [], slot_ms, open=False)
        for key, value in rows.scan(CLEARANCE, after(CLEARANCE)):
            self._rows[clearance_audience(key)] = decode(ClearanceRow, value)
        for audience, row in self._rows.items():
            if row.open:
                self.sharpening[audience] = self._coarser(audience, rows)

    def welcome(self, view: ViewPlan, start_ms: int, row: WindowRow) -> None:
        """Look whether a window was released before audiences came that have no grant to carry out."""
        if row.refused or row.key_id not in self._readable:
            return
        for audience in sorted(view.audiences.keys() - row.given.keys()):
            if not self.of(audience).open:
                if self.lacks(view, audience, row):
                    self.sharpening.setdefault(audience, deque()).append((view, start_ms))
                else:
                    self.withheld.setdefault(audience, set()).add(view.view)

    def follow(self, view: ViewPlan, start_ms: int, row: WindowRow) -> None:
        """Look who is to see a pane finer that was released while earlier ones of its window wait to be sharpened."""
        for audience in sorted(view.audiences):
            if self.lacks(view, audience, row):
                self.sharpening.setdefault(audience, deque()).append((view, start_ms))

    def of(self, audience: str) -> ClearanceRow:
        """The grant of an audience that is to be carried out; where there is none, what is done without one."""
        row = self._rows.get(audience)
        return row if row is not None and row.open else self._later

    def level(self, view: ViewPlan, audience: str) -> int:
        """The level an audience may see: the last granted one that the view's ladder has, else where it starts."""
        row = self._rows.get(audience)
        index = {level.name: at for at, level in enumerate(view.levels)}
        granted = [index[name] for name in row.levels if name in index] if row is not None else []
        return granted[0] if granted else view.audiences[audience]

    def lacks(self, view: ViewPlan, audience: str, row: WindowRow) -> bool:
        """Whether an audience is to see a window finer than it does.

        With a grant to carry out, if that was not turned down there; without one, if it sees nothing and that is free.
        Never where the key of the window is retired: that is as if it were retained no longer.
        """
        level, grant = self.level(view, audience), self.of(audience)
        turned_down = grant.open and row.turned_down.get(audience) == grant.number
        if row.refused or row.key_id not in self._readable or turned_down:
            return False
        if not grant.open:
            return audience not in row.given and level <= row.finest
        return row.level(audience) < level

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

    def finish(self, audience: str) -> list[tuple[bytes, bytes]]:
        """An audience has all that it was to get; the row to store, if that was by a grant."""
        del self.sharpening[audience]
        if not self.of(audience).open:
            return []
        self._rows[audience].open = False
        return [self._stored(audience)]

    def _coarser(self, audience: str, rows: Rows) -> deque[tuple[ViewPlan, int]]:
        found: deque[tuple[ViewPlan, int]] = deque()
        for view in self._views.values():
            if audience in view.audiences:
                prefix = WINDOW + text(view.name)
                found += [
                    (view, window_start(WINDOW, view.name, key))
                    for key, value in rows.scan(prefix, after(prefix))
                    if self.lacks(view, audience, decode(WindowRow, value))
                ]
        return found

    def _stored(self, audience: str) -> tuple[bytes, bytes]:
        return CLEARANCE + text(audience), encode(self._rows[audience])
