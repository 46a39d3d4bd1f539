"""Unlocks: an audience sees a window at a finer level when the window is so old, as the configuration says.

When a window is unlocked follows from its end and the configuration alone, so it tells nothing. It is charged then what
it adds to the finest that anyone has of it; what a ledger keeps for the view covers that (`config.shares`).

Windows of a view age in order, so one mark tells how far an unlock has come: all windows before it have been unlocked,
or were not to be. After a downtime all that is overdue is carried out, the finest unlock of a view first: what an
audience has at that level is no sharpening request for a coarser one. An unlock that the ledger cannot pay for gives
one refusal; the window's row notes that, and every other unlock asks anew.

A grant that gives an audience less than it starts with holds the schedule back for its windows: what an operator
lowered does not come back by itself. One that gives more leaves the schedule as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.clearances import LOOKED_AT_ONCE, Clearances, SharpeningRequest, UnlockRow
from stream_dp.releases.pieces import Change
from stream_dp.releases.rows import UNLOCK, WINDOW, WindowRow
from stream_dp.releases.view_definitions import ViewDefinitions
from stream_dp.windows.durations import Slots
from stream_dp.windows.effects import Rows
from stream_dp.windows.encoding import decode, encode, text, window_key, window_start


class Ages:
    """The times of the views of one partition."""

    def __init__(
        self,
        definitions: ViewDefinitions,
        slots: Slots,
        last_slot: Callable[[ViewPlan], int],
    ) -> None:
        """Set up.

        Args:
            definitions: how far the releases of the views have come.
            slots: when records leave.
            last_slot: the slot of the last window of a view that has one.
        """
        self._definitions = definitions
        self._slots = slots
        self._last_slot = last_slot
        self._wall_ms = 0

    def tell(self, wall_ms: int) -> None:
        """Take note of the wall time."""
        self._wall_ms = max(self._wall_ms, wall_ms)

    @staticmethod
    def goes_by_the_wall(view: ViewPlan) -> bool:
        """Return True if the time of a view goes on though no window is released."""
        return view.window.clock == "wall"

    def now_ms(self, view: ViewPlan) -> int:
        """The time of a view."""
        return self._wall_ms if self.goes_by_the_wall(view) else self._definitions.stream_ms(view)

    def without_view_ms(self, view: ViewPlan) -> int:
        """The time by which windows of a view get older that was taken out.

        By the event clock it is that of the views here that are still counted of its source; the wall clock's, where
        there is none.
        """
        if self.goes_by_the_wall(view):
            return self._wall_ms
        alike = (one for one in self._definitions.views.values() if one.source.name == view.source.name)
        return max(
            (self.now_ms(one) for one in alike if not (one.is_removed or self.goes_by_the_wall(one))),
            default=self._wall_ms,
        )

    def slot(self, view: ViewPlan, due_ms: int) -> int:
        """The slot of what was due at a time of a view, with a window that it has; by the stream with its newest."""
        if self.goes_by_the_wall(view):
            return max(self._slots.after(due_ms), self._slots.first(self._wall_ms))
        return self._last_slot(view)


@dataclass(slots=True)
class _Step:
    """One unlock of one audience of one view, and how far it has come."""

    view: ViewPlan
    audience: str
    level: int
    after_ms: int
    mark_ms: int
    """Start of the first window that is still to be looked at."""

    @property
    def name(self) -> str:
        """Key of its mark: another unlock looks at all retained windows again."""
        return f"{self.audience} {self.after_ms} {self.view.levels[self.level].name}"

    def due_ms(self, start_ms: int) -> int:
        """When it unlocks a window; a pane with the window that ends with it, panes that are paid as one at once."""
        return self.view.window.at_age(start_ms, self.after_ms)


class Unlocks:
    """The unlocks of the views of one partition; implements `SharpeningRequests`."""

    def __init__(self, definitions: ViewDefinitions, clearances: Clearances, ages: Ages) -> None:
        """Set up the unlocks; `load` makes them ready.

        Args:
            definitions: the views' definitions, and how far their releases have come.
            clearances: what grants say.
            ages: how old windows are.
        """
        self._views = definitions.views
        self._marks = definitions.marks
        self._clearances = clearances
        self._ages = ages
        self._steps: list[_Step] = []
        self._changed: set[str] = set()

    def load(self, rows: Rows) -> list[Change]:
        """Read how far they have come; the rows to store. One that was taken out begins anew if it comes back."""
        over = set[str]()
        for view in self._views.values():
            stored = rows.get(UNLOCK + text(view.name))
            marks = {} if stored is None else decode(UnlockRow, stored).marks
            steps = [
                _Step(view, audience, unlock.level, unlock.after_ms, self._marks[view.name].kept_ms)
                for audience, unlocks in sorted(view.unlocks.items())
                for unlock in unlocks
            ]
            for step in sorted(steps, key=lambda one: -one.level):
                step.mark_ms = max(step.mark_ms, marks.get(step.name, step.mark_ms))
                self._steps.append(step)
            if not marks.keys() <= {step.name for step in steps}:
                over.add(view.name)
        return self._rows(over)

    @property
    def due_ms(self) -> int | None:
        """When the next window is unlocked by the wall clock, None if none is that was released."""
        by_wall = (step for step in self._steps if self._ages.goes_by_the_wall(step.view))
        due = (step.due_ms(step.mark_ms) for step in by_wall if step.mark_ms < self._marks[step.view.name].next_ms)
        return min(due, default=None)

    @property
    def waits(self) -> bool:
        """True if a window is to be unlocked by now."""
        return any(map(self._is_due, self._steps))

    def holds(self, view: ViewPlan) -> bool:
        """Return True if a window of a view is to be unlocked by now."""
        return any(step.view.view == view.view and self._is_due(step) for step in self._steps)

    def requests(self, rows: Rows) -> Iterator[tuple[SharpeningRequest, WindowRow]]:
        """Windows of one unlock that are old enough, the oldest first: no window is there twice."""
        step = next(filter(self._is_due, self._steps))
        view, until = step.view, self._marks[step.view.name].next_ms
        self._changed.add(view.name)
        windows = rows.scan(window_key(WINDOW, view.name, step.mark_ms), window_key(WINDOW, view.name, until))
        for key, value in islice(windows, LOOKED_AT_ONCE):
            start, row = window_start(WINDOW, view.name, key), decode(WindowRow, value)
            step.mark_ms = start
            if not self._is_due(step):
                return
            step.mark_ms = view.window.shape.next(start)
            if self._is_to_be_unlocked(step, start, row):
                slot = self._ages.slot(view, step.due_ms(start))
                yield SharpeningRequest(view, start, step.audience, step.level, slot), row
        if next(windows, None) is None:
            step.mark_ms = until

    def _is_due(self, step: _Step) -> bool:
        """Return True if the next window of an unlock was released and is old enough."""
        released = step.mark_ms < self._marks[step.view.name].next_ms
        return released and step.due_ms(step.mark_ms) <= self._ages.now_ms(step.view)

    def _is_to_be_unlocked(self, step: _Step, start: int, row: WindowRow) -> bool:
        if step.level in row.declined.get(step.audience, ()):  # it stands there, and a crash left out the mark
            return False
        lacks = row.level(step.audience) < step.level
        return lacks and self._clearances.may_rise(step.view, step.audience, start, row)

    def progress(self) -> list[Change]:
        """The marks to store behind requests that were run."""
        changed = self._rows(self._changed)
        self._changed.clear()
        return changed

    def _rows(self, views: Collection[str]) -> list[Change]:
        return [
            (UNLOCK + text(name), encode(UnlockRow({s.name: s.mark_ms for s in self._steps if s.view.name == name})))
            for name in sorted(views)
        ]
