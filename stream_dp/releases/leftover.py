"""Spending of a ledger's leftover budget on sharper releases, at stated times.

A view may say (`sharpen` in the configuration) that one audience is to see a level of as many windows as the rest of a
period pays for. At every multiple of `every` since 1970 its windows of the periods that have gone on since the last
such time are sharpened, the newest first, until the next would not fit. It fits if its period has so much left above

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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stream_dp.accounting import Cost
from stream_dp.config.plan import SharpenPlan, ViewPlan
from stream_dp.releases.accounts import Accounts
from stream_dp.releases.clearances import LOOKED_AT_ONCE, Clearances, LeftoverRow, SharpeningRequest
from stream_dp.releases.pieces import Change
from stream_dp.releases.rows import LEFTOVER, NOTHING, WINDOW, WindowRow, period_of, stored_window
from stream_dp.releases.unlocks import Ages
from stream_dp.releases.view_definitions import ViewDefinitions
from stream_dp.windows.effects import Rows
from stream_dp.windows.encoding import decode, encode, text, window_key, window_start
from stream_dp.windows.shapes.base import Interval


@dataclass(slots=True)
class _Run:
    """A view that sharpens by what is left, and how far it has come."""

    view: ViewPlan
    plan: SharpenPlan
    row: LeftoverRow


class Leftover:
    """The views of one partition that sharpen by what their ledger has left; implements `SharpeningRequests`."""

    def __init__(self, definitions: ViewDefinitions, accounts: Accounts, clearances: Clearances, ages: Ages) -> None:
        """Set it up; `load` makes it ready.

        Args:
            definitions: the views' definitions, and how far their releases have come.
            accounts: what the ledgers have left.
            clearances: what grants say.
            ages: what time it is for a view.
        """
        self._views = definitions.views
        self._marks = definitions.marks
        self._accounts = accounts
        self._clearances = clearances
        self._ages = ages
        self._runs: list[_Run] = []
        self._changed: set[str] = set()

    def load(self, rows: Rows) -> list[Change]:
        """Read how far it has come; the rows to store. A view that is new to it runs at the next time of its grid."""
        new: list[Change] = []
        for name, view in sorted(self._views.items()):
            if view.sharpen is not None:
                stored = rows.get(LEFTOVER + text(name))
                first = LeftoverRow(view.sharpen.times.start_of(self._ages.now_ms(view)))
                run = _Run(view, view.sharpen, first if stored is None else decode(LeftoverRow, stored))
                self._runs.append(run)
                new += [] if stored is not None else [self._stored(run)]
        return new

    @property
    def due_ms(self) -> int | None:
        """The next time at which a view sharpens by the wall clock; 0 if it is at it."""
        due = (self._due_ms(run) for run in self._runs if self._ages.goes_by_the_wall(run.view))
        return min(due, default=None)

    @property
    def waits(self) -> bool:
        """True if a view is to sharpen by now."""
        return any(map(self._is_due, self._runs))

    def holds(self, view: ViewPlan) -> bool:
        """Return True if a view is to sharpen by now."""
        return any(run.view.view == view.view and self._is_due(run) for run in self._runs)

    def _is_due(self, run: _Run) -> bool:
        return self._due_ms(run) <= self._ages.now_ms(run.view)

    def _due_ms(self, run: _Run) -> int:
        """When a view sharpens next; its grid may be another one than it was."""
        return 0 if run.row.at_ms is not None else run.plan.next_ms(run.row.done_ms)

    def requests(self, rows: Rows) -> Iterator[tuple[SharpeningRequest, WindowRow]]:
        """Windows of the first view that sharpens by now, the newest first, as long as what is left pays for them."""
        run = min(filter(self._is_due, self._runs), key=self._due_ms)
        row, view, shape = run.row, run.view, run.view.window.shape
        self._changed.add(view.name)
        if row.at_ms is None:
            row.at_ms = run.plan.times.start_of(self._ages.now_ms(view))
            row.before_ms = self._marks[view.name].next_ms
        first = max(view.ledger.periods.start_of(row.done_ms), self._marks[view.name].kept_ms)
        pending: dict[Interval, dict[tuple[str, int], Cost]] = {}
        start = shape.next(row.before_ms, -1)
        for _ in range(LOOKED_AT_ONCE):
            if start < first:
                row.done_ms, row.at_ms = row.at_ms, None
                return
            row.before_ms = start
            stored = stored_window(view.name, start, rows) if shape.end(start) <= row.at_ms else None
            if stored is not None and self._is_to_be_sharpened(run, start, stored):
                key, _ = self._accounts.of(view, start)
                period = period_of(key)
                if period not in pending:
                    pending[period] = self._unlocks_to_come(view, period, rows)
                if self._fits(run, start, stored, period, pending[period]):
                    pending[period].pop((view.name, start), None)
                    if (later := self._unlock_to_come(view, max(stored.finest, run.plan.level))) != Cost.ZERO:
                        pending[period][view.name, start] = later
                    slot = self._ages.slot(view, row.at_ms)
                    yield SharpeningRequest(view, start, run.plan.audience, run.plan.level, slot), stored
                else:
                    row.before_ms = start = min(start, self._first_in(view, period))
            start = shape.next(start, -1)

    def progress(self) -> list[Change]:
        """The rows to store behind requests that were run."""
        changed = [self._stored(run) for run in self._runs if run.view.name in self._changed]
        self._changed.clear()
        return changed

    def _is_to_be_sharpened(self, run: _Run, start: int, row: WindowRow) -> bool:
        audience = run.plan.audience
        lacks = row.states.get(audience, NOTHING).level < run.plan.level
        return lacks and self._clearances.may_rise(run.view, audience, start, row)

    def _fits(
        self, run: _Run, start: int, row: WindowRow, period: Interval, pending: Mapping[tuple[str, int], Cost]
    ) -> bool:
        """Return True if a window can be sharpened out of what nobody needs."""
        view, level = run.view, max(row.finest, run.plan.level)
        cost = view.counts(level) if row.finest < 0 else view.counts(level) - view.counts(row.finest)
        kept = self._accounts.plan(view, start).budget * run.plan.reserve
        kept = sum((cost for at, cost in pending.items() if at != (view.name, start)), kept)
        kept = sum((self._to_come(other, period) for other in self._sharing(view)), kept)
        kept += self._unlock_to_come(view, level)
        return cost <= self._accounts.room(view, start) and cost + kept <= self._accounts.left(view, start)

    def _sharing(self, view: ViewPlan) -> list[ViewPlan]:
        return [other for other in self._views.values() if other.ledger.fingerprint == view.ledger.fingerprint]

    def _to_come(self, view: ViewPlan, period: Interval) -> Cost:
        """Return the worst-case cost of a view's windows that are still to be released in a period."""
        first = view.charged.shape.first_from(max(self._marks[view.name].next_ms, period.start_ms))
        return view.scheduled(first, period.end_ms)

    @staticmethod
    def _first_in(view: ViewPlan, period: Interval) -> int:
        """Start of the first window that starts in a period."""
        return view.window.shape.first_from(period.start_ms)

    def _unlocks_to_come(self, view: ViewPlan, period: Interval, rows: Rows) -> dict[tuple[str, int], Cost]:
        """Return the cost of scheduled unlocks of a period's released windows, by view and window."""
        found: dict[tuple[str, int], Cost] = {}
        for other in self._sharing(view):
            if other.unlocks:
                last = window_key(WINDOW, other.name, period.end_ms)
                for key, value in rows.scan(window_key(WINDOW, other.name, period.start_ms), last):
                    row, start = decode(WindowRow, value), window_start(WINDOW, other.name, key)
                    asks = other.window.pays(start) and not (row.refused or row.expires)
                    if asks and (cost := self._unlock_to_come(other, row.finest)) != Cost.ZERO:
                        found[other.name, start] = cost
        return found

    @staticmethod
    def _unlock_to_come(view: ViewPlan, finest: int) -> Cost:
        """Return the cost of a window's scheduled unlocks beyond the finest level that somebody has of it."""
        if not view.unlocks or finest < 0 or finest >= view.planned_level:
            return Cost.ZERO
        return view.counts(view.planned_level) - view.counts(finest)

    def _stored(self, run: _Run) -> Change:
        return LEFTOVER + text(run.view.name), encode(run.row)
