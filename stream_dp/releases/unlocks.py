"""Sharper releases that the configuration gives by itself: when a window is old enough, or from what a ledger has left.

*Unlocks.* When a window is unlocked follows from its end and the configuration alone, so it tells nothing. It is
charged then what it adds to the finest that anyone has of it; what a ledger keeps for the view covers that
(`config.shares`).

Windows of a view age in order, so one mark tells how far an unlock has come: all windows before it have been unlocked,
or were not to be. After a downtime all that is overdue is carried out, the finest unlock of a view first: what an
audience has at that level is no sharpening request for a coarser one. An unlock that the ledger cannot pay for gives
one refusal; the window's row notes that, and every other unlock asks anew.

A grant that gives an audience less than it starts with holds the schedule back for its windows: what an operator
lowered does not come back by itself. One that gives more leaves the schedule as it is.

*Leftover.* A view may say (`sharpen` in the configuration) that one audience is to see a level of as many windows as
the rest of a period pays for. At every multiple of `every` since 1970 its windows of the periods that have gone on
since the last such time are sharpened, the newest first, until the next would not fit. It fits if its period has so
much left above

* the reserve, a part of the period's budget, and
* what the windows still to come in the period cost at worst, of every view of the ledger, and what the schedule of
  unlocks asks for those that were released.

Nothing is refused, and nothing tells of the window that did not fit but that it stays as it is. Several such views of
one ledger go one after another, by their names.

Privacy. Which windows are sharpened is chosen by what the ledger has left. That is worked out from the plan, from the
time, and from what was charged, which follows from what was released: a function of the output that the ledger covers
already, and never of counts. A choice of what to ask next by what was released before is what the ledger's caps are
proved for (`accounting.ledger`): each sharper release is reserved and charged before it is stored, so whatever is
chosen, all records together keep within the caps. When it happens is on a public grid.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from stream_dp.accounting import Cost, Dearest
from stream_dp.config.plan import SharpenPlan, ViewPlan
from stream_dp.releases.accounts import charged_before, period_of
from stream_dp.releases.clearances import SharpeningRequest
from stream_dp.releases.partition_state import PartitionState, goes_by_the_wall
from stream_dp.releases.rows import LEFTOVER, NOTHING, UNLOCK, Change, WindowRow, stored_window, stored_windows
from stream_dp.windows.encoding import decode, encode, text
from stream_dp.windows.shapes.shape import Interval

LOOKED_AT_ONCE = 500
"""Windows that one step looks at: between two steps the runtime looks whether the partition is still its own."""


class UnlockRow(msgspec.Struct, array_like=True):
    """Progress of an unlock through the windows of a view."""

    marks: dict[str, int]
    """By audience, time and level of an unlock: start of the first window that is still to be looked at."""


class LeftoverRow(msgspec.Struct, array_like=True):
    """Progress of spending a ledger's leftover budget on sharper releases of a view."""

    done_ms: int
    """The last time of the grid that is carried out."""
    at_ms: int | None = None
    """The one that is being carried out."""
    before_ms: int = 0
    """Of that: windows that start before this are still to be looked at."""


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


@dataclass(slots=True)
class _Run:
    """A view that sharpens by what is left, and how far it has come."""

    view: ViewPlan
    plan: SharpenPlan
    row: LeftoverRow


T = TypeVar("T", bound=_Step | _Run)


class _ByTime(ABC, Generic[T]):
    """Sharper releases that become due as time goes on, view by view; they ask as `Clearances` do."""

    def __init__(self, state: PartitionState) -> None:
        """Set them up for the views of a partition; `load` makes them ready."""
        self._state = state
        self._schedules: list[T] = []
        self._changed: set[str] = set()

    @abstractmethod
    def _due_ms(self, one: T) -> int | None:
        """When something is due next, by the time of the view; None if nothing is that was released."""

    @abstractmethod
    def _rows(self, views: Collection[str]) -> list[Change]:
        """The rows that say how far some views have come."""

    @property
    def due_ms(self) -> int | None:
        """When something is due next by the wall clock, None if nothing is."""
        due = (self._due_ms(one) for one in self._schedules if goes_by_the_wall(one.view))
        return min((time for time in due if time is not None), default=None)

    def _is_due(self, one: T) -> bool:
        due_ms = self._due_ms(one)
        return due_ms is not None and due_ms <= self._state.now_ms(one.view)

    @property
    def waits(self) -> bool:
        """True if something is due by now."""
        return any(map(self._is_due, self._schedules))

    def holds(self, view: ViewPlan) -> bool:
        """Return True if something of a view is due by now."""
        return any(one.view.view == view.view and self._is_due(one) for one in self._schedules)

    def progress(self) -> list[Change]:
        """The rows to store behind requests that were run."""
        changed = self._rows(self._changed)
        self._changed.clear()
        return changed


class Unlocks(_ByTime[_Step]):
    """The unlocks of the views of one partition."""

    def load(self) -> list[Change]:
        """Read how far they have come; the rows to store. One that was taken out begins anew if it comes back."""
        over = set[str]()
        for view in self._state.views.values():
            stored = self._state.rows.get(UNLOCK + text(view.name))
            marks = {} if stored is None else decode(UnlockRow, stored).marks
            steps = [
                _Step(view, audience, unlock.level, unlock.after_ms, self._state.marks[view.name].kept_ms)
                for audience, unlocks in sorted(view.unlocks.items())
                for unlock in unlocks
            ]
            for step in sorted(steps, key=lambda one: -one.level):
                step.mark_ms = max(step.mark_ms, marks.get(step.name, step.mark_ms))
                self._schedules.append(step)
            if not marks.keys() <= {step.name for step in steps}:
                over.add(view.name)
        return self._rows(over)

    def requests(self) -> Iterator[tuple[SharpeningRequest, WindowRow]]:
        """Windows of one unlock that are old enough, the oldest first: no window is there twice."""
        step = next(filter(self._is_due, self._schedules))
        view, until = step.view, self._state.marks[step.view.name].next_ms
        self._changed.add(view.name)
        windows = stored_windows(view.name, self._state.rows, step.mark_ms, until)
        for start, row in islice(windows, LOOKED_AT_ONCE):
            step.mark_ms = start
            if not self._is_due(step):
                return
            step.mark_ms = view.window.shape.next(start)
            if self._is_to_be_unlocked(step, start, row):
                slot = self._state.slot(view, step.due_ms(start))
                yield SharpeningRequest(view, start, step.audience, step.level, slot), row
        if next(windows, None) is None:
            step.mark_ms = until

    def _due_ms(self, one: _Step) -> int | None:
        """When the next window is old enough, if it was released."""
        released = one.mark_ms < self._state.marks[one.view.name].next_ms
        return one.due_ms(one.mark_ms) if released else None

    def _is_to_be_unlocked(self, step: _Step, start: int, row: WindowRow) -> bool:
        if step.level in row.declined.get(step.audience, ()):  # it stands there, and a crash left out the mark
            return False
        lacks = row.level(step.audience) < step.level
        return lacks and self._state.clearances.may_rise(step.view, step.audience, start, row)

    def _rows(self, views: Collection[str]) -> list[Change]:
        return [
            (
                UNLOCK + text(name),
                encode(UnlockRow({s.name: s.mark_ms for s in self._schedules if s.view.name == name})),
            )
            for name in sorted(views)
        ]


class Leftover(_ByTime[_Run]):
    """The views of one partition that sharpen by what their ledger has left."""

    def load(self) -> list[Change]:
        """Read how far it has come; the rows to store. A view that is new to it runs at the next time of its grid."""
        new = set[str]()
        for name, view in sorted(self._state.views.items()):
            if view.sharpen is not None:
                stored = self._state.rows.get(LEFTOVER + text(name))
                first = LeftoverRow(view.sharpen.times.start_of(self._state.now_ms(view)))
                row = first if stored is None else decode(LeftoverRow, stored)
                self._schedules.append(_Run(view, view.sharpen, row))
                if stored is None:
                    new.add(name)
        return self._rows(new)

    def _due_ms(self, one: _Run) -> int:
        """When a view sharpens next, 0 if it is at it; its grid may be another one than it was."""
        return 0 if one.row.at_ms is not None else one.plan.next_ms(one.row.done_ms)

    def requests(self) -> Iterator[tuple[SharpeningRequest, WindowRow]]:
        """Windows of the first view that sharpens by now, the newest first, as long as what is left pays for them."""
        run = min(filter(self._is_due, self._schedules), key=self._due_ms)
        row, view, shape = run.row, run.view, run.view.window.shape
        self._changed.add(view.name)
        if row.at_ms is None:
            row.at_ms = run.plan.times.start_of(self._state.now_ms(view))
            row.before_ms = self._state.marks[view.name].next_ms
        first = max(view.ledger.periods.start_of(row.done_ms), self._state.marks[view.name].kept_ms)
        pending: dict[Interval, dict[tuple[str, int], Cost]] = {}
        start = shape.next(row.before_ms, -1)
        for _ in range(LOOKED_AT_ONCE):
            if start < first:
                row.done_ms, row.at_ms = row.at_ms, None
                return
            row.before_ms = start
            stored = stored_window(view.name, start, self._state.rows) if shape.end(start) <= row.at_ms else None
            if stored is not None and self._is_to_be_sharpened(run, start, stored):
                key, _ = self._state.accounts.of(view, start)
                period = period_of(key)
                if period not in pending:
                    pending[period] = self._unlocks_to_come(view, period)
                if self._fits(run, start, stored, period, pending[period]):
                    pending[period].pop((view.name, start), None)
                    if (later := self._unlock_to_come(view, max(stored.finest, run.plan.level))) != Cost.ZERO:
                        pending[period][view.name, start] = later
                    slot = self._state.slot(view, row.at_ms)
                    yield SharpeningRequest(view, start, run.plan.audience, run.plan.level, slot), stored
                else:
                    row.before_ms = start = min(start, shape.first_from(period.start_ms))
            start = shape.next(start, -1)

    def _is_to_be_sharpened(self, run: _Run, start: int, row: WindowRow) -> bool:
        audience = run.plan.audience
        lacks = row.states.get(audience, NOTHING).level < run.plan.level
        return lacks and self._state.clearances.may_rise(run.view, audience, start, row)

    def _fits(
        self, run: _Run, start: int, row: WindowRow, period: Interval, pending: Mapping[tuple[str, int], Cost]
    ) -> bool:
        """Return True if a window can be sharpened out of what nobody needs."""
        view, level = run.view, max(row.finest, run.plan.level)
        more = view.counts(level, row.finest)
        if not any(more):
            return True
        kept = self._state.accounts.plan(view, start).budget * run.plan.reserve
        kept += self._together({at: cost for at, cost in pending.items() if at != (view.name, start)})
        kept = sum((self._to_come(other, period) for other in self._sharing(view)), kept)
        kept += self._unlock_to_come(view, level)
        cost = self._state.accounts.added(view, start, charged_before(view, start, row, self._state.rows), more)
        return cost <= self._state.accounts.room(view, start) and cost + kept <= self._state.accounts.left(view, start)

    def _together(self, costs: Mapping[tuple[str, int], Cost]) -> Cost:
        """Return what windows cost a user at most, by view and window; of a view all, or as many as a user is in."""
        total, dearest = Cost.ZERO, dict[str, Dearest]()
        for (name, _), cost in costs.items():
            most = self._state.views[name].windows_per_user
            if most is None:
                total += cost
            else:
                dearest[name] = dearest.get(name, Dearest(most)).raised(Cost.ZERO, cost)
        return sum((one.total for one in dearest.values()), total)

    def _sharing(self, view: ViewPlan) -> list[ViewPlan]:
        return [other for other in self._state.views.values() if other.ledger.fingerprint == view.ledger.fingerprint]

    def _to_come(self, view: ViewPlan, period: Interval) -> Cost:
        """Return the worst-case cost of a view's windows that are still to be released in a period."""
        first = view.charged.shape.first_from(max(self._state.marks[view.name].next_ms, period.start_ms))
        return self._state.accounts.to_come(view, first, period.end_ms)

    def _unlocks_to_come(self, view: ViewPlan, period: Interval) -> dict[tuple[str, int], Cost]:
        """Return the cost of scheduled unlocks of a period's released windows, by view and window."""
        found: dict[tuple[str, int], Cost] = {}
        for other in self._sharing(view):
            if other.unlocks:
                for start, row in stored_windows(other.name, self._state.rows, period.start_ms, period.end_ms):
                    asks = other.window.pays(start) and not (row.refused or row.expires)
                    if asks and (cost := self._unlock_to_come(other, row.finest)) != Cost.ZERO:
                        found[other.name, start] = cost
        return found

    @staticmethod
    def _unlock_to_come(view: ViewPlan, finest: int) -> Cost:
        """Return the cost of a window's scheduled unlocks beyond the finest level that somebody has of it."""
        return Cost.ZERO if finest < 0 else view.unlocks_beyond(finest)

    def _rows(self, views: Collection[str]) -> list[Change]:
        runs = (run for run in self._schedules if run.view.name in views)
        return [(LEFTOVER + text(run.view.name), encode(run.row)) for run in runs]
