"""The ledgers of one partition: which pays for which window, in memory and as the rows that were stored of them.

A ledger is a population's, and what was spent belongs to that population and a time. Periods follow one another, so a
window is in one of them; but where their length or start was changed, a period of the former shape and one of today's
may share some time. Both keep what they promise:

* A period that has begun pays for its windows until it ends, whatever is configured since. (Unless today's period has
  begun as well; then that pays.)
* Each row has what was charged to it and nothing else, so nothing is counted twice, however often the shape is changed
  there and back. What counts against its caps is that, and all that was charged to other periods that it overlaps.
* A window is admitted if it fits under the caps of the period that pays for it, and of every other that has begun and
  that the window is in, even in part.

Guarantee: what the windows in a period that has begun have cost, whichever period paid, stays within its caps.

Proof. Each of those windows lies in the period that paid for it, so that period is the one in question or overlaps it,
and all it was charged counts. When the period began this was within the caps, the first window included. Since then
every window that is even partly in it was admitted only if it fitted, in every entry that it adds to. Others add
nothing to what the windows in it have cost.

Within that every view has a share (`config.shares`), of the same periods: what it was charged in one counts in another
that overlaps it, as above. The shares are those of the plan in force at the first reservation of a period, and are
stored with its promise: whatever becomes of the settings of one view takes nothing that is kept for another.

So nothing is forgotten, and a period of another shape may be left with nothing: it is charged whole periods of the
former shape of which only some windows are in it. It also has its caps fixed after some of what they cover was drawn,
so a new shape must not be chosen by what was released (`accounting.ledger`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from stream_dp.accounting import Cost, Ledger, cancel, commit, encode, write_off
from stream_dp.config.plan import LedgerPlan, ViewPlan
from stream_dp.config.shares import Shares, most_of
from stream_dp.kinds.sealing import SealedTable
from stream_dp.releases.pieces import stored_table
from stream_dp.releases.rows import (
    LEDGER,
    RESERVATION,
    Call,
    WindowRow,
    charged_rows,
    ledger_key,
    period_of,
    population_of,
    promise_rows,
    read_ledgers,
    repairs,
    reservation_key,
    reserved_rows,
    shares_row,
    stored_promise,
    stored_shares,
    stored_window,
)
from stream_dp.windows.effects import Commit, Effect, Rows
from stream_dp.windows.encoding import after
from stream_dp.windows.shapes.base import Interval
from stream_dp.windows.views import view_of


def difference(view: ViewPlan, table: SealedTable, before: int, level: int) -> Cost:
    """Return the cost of a level beyond the finest that was released before, -1 for none (specs/lossless 3.2)."""
    cost = view.spent(table, level)
    return cost if before < 0 else cost - view.spent(table, before)


def price(view: ViewPlan, call: Call, table: SealedTable, row: WindowRow) -> tuple[Cost, dict[str, Cost]]:
    """Return the cost of a stored call against all audiences together, and against each that it served alone."""
    if call.audience:
        others = max([row.drawn, *(state.level for name, state in row.states.items() if name != call.audience)])
        finest = max(others, call.before)
        return (
            difference(view, table, finest, max(finest, call.level)),
            {call.audience: difference(view, table, call.before, max(call.before, call.level))},
        )
    return (
        view.spent(table, row.finest),
        {name: view.spent(table, state.level) for name, state in row.states.items()},
    )


@dataclass(frozen=True, slots=True)
class Balance:
    """Budget that remains in the period that pays for a window.

    Attributes:
        plan: the ledger's plan, with what the period promises.
        left: what of the caps is left.
        room: what of that the window's view may take.
        shares: how the views share the caps.
    """

    plan: LedgerPlan
    left: Cost
    room: Cost
    shares: Shares


class Accounts:
    """Ledgers of one partition: the one that pays for a window, its remaining budget, and its period's promise."""

    def __init__(self, views: Mapping[str, ViewPlan]) -> None:
        """Set up the accounts; `load` makes them ready.

        Args:
            views: the views that these ledgers pay for.
        """
        self._views = views
        self._ledgers: dict[bytes, Ledger] = {}
        self._begun: dict[bytes, LedgerPlan] = {}
        self._overlaps: dict[bytes, list[bytes]] = {}
        self._shares: dict[bytes, Shares] = {}

    def of(self, view: ViewPlan, start_ms: int) -> tuple[bytes, Ledger]:
        """The ledger that pays for a window, and the key of its row."""
        key, window = ledger_key(view, start_ms), view.window.charged(start_ms)
        if key not in self._begun:
            key = next((other for other in self._overlapping(key) if period_of(other).holds(window)), key)
        ledger = self._ledgers.get(key)
        return key, Ledger(view.ledger.budget) if ledger is None else ledger

    def plan(self, view: ViewPlan, start_ms: int) -> LedgerPlan:
        """The plan of the ledger that pays for a window: as its period began, today's where it has not.

        A period begins with its first reservation. What was refused before that was refused under the plan of its day.
        """
        key, _ = self.of(view, start_ms)
        return self._begun.get(key, view.ledger)

    def balance(self, view: ViewPlan, start_ms: int) -> Balance:
        """Return the balance of the period that pays for a window."""
        shares = self._shared(self.of(view, start_ms)[0], view)
        return Balance(self.plan(view, start_ms), self.left(view, start_ms), self.room(view, start_ms), shares)

    def left(self, view: ViewPlan, start_ms: int) -> Cost:
        """Return a window's remaining budget: entry by entry the least that a period leaves which the window is in."""
        key, ledger = self.of(view, start_ms)
        rests = [self._rest(other, self._ledgers[other]) for other in self._others(key, view, start_ms)]
        return reduce(Cost.least, rests, self._rest(key, ledger))

    def room(self, view: ViewPlan, start_ms: int) -> Cost:
        """Return what may still be reserved for a window: the remaining budget that is not kept for other views."""
        key, _ = self.of(view, start_ms)
        periods = [key, *self._others(key, view, start_ms)]
        rooms = [self._shared(of, view).room(view.view, self._taken(of)) for of in periods]
        return reduce(Cost.least, rooms, self.left(view, start_ms))

    def _others(self, key: bytes, view: ViewPlan, start_ms: int) -> list[bytes]:
        """The periods that have begun and that a window is in, even in part, beside the one that pays for it."""
        window = view.window.charged(start_ms)
        return [other for other in self._overlapping(key) if period_of(other).overlaps(window)]

    def _shared(self, key: bytes, view: ViewPlan) -> Shares:
        """Return the shares of a ledger's views in a period: as when it began, or as planned where it has not."""
        found = self._shares.get(key)
        if found is None:
            found = self._shares[key] = self._planned(key, view)
        return found

    def _planned(self, key: bytes, view: ViewPlan) -> Shares:
        """Return the shares of a period that begins now.

        For a view that was taken out all its windows are kept that it has in the period, since the last of them may
        still be open; the others share what that leaves.
        """
        period, budget, of = period_of(key), view.ledger.budget, population_of(key)
        newest = self._newest(of)
        ended = {name: self._scheduled(name, of, period) for name in self._ended(of)}
        kept = sum(ended.values(), Cost.ZERO)
        shared = Shares.of(budget.most(kept) - kept, period, newest.values())
        return replace(shared, budget=budget, kept={**ended, **shared.kept})

    def _stored(self, key: bytes, budget: Cost, kept: dict[str, Cost]) -> Shares:
        """Return the stored shares of a period that began before.

        What views that were taken out since then do not need any more is not kept for them.
        """
        of, period = population_of(key), period_of(key)
        newest = self._newest(of)
        needed = {
            name: cost.least(self._scheduled(name, of, period)) for name, cost in kept.items() if name not in newest
        }
        return Shares(budget, kept | needed, most_of(budget, newest.values()))

    def _paying(self, population: bytes) -> list[ViewPlan]:
        """The definitions of all views that a population pays for."""
        return [one for one in self._views.values() if population == LEDGER + one.ledger.fingerprint]

    def _ended(self, population: bytes) -> set[str]:
        """The views of a population that were taken out."""
        return {one.view for one in self._paying(population)} - self._newest(population).keys()

    def _newest(self, population: bytes) -> dict[str, ViewPlan]:
        """The newest definitions of its other views, by view."""
        return {one.view: one for one in self._paying(population) if one.until_ms is None}

    def _scheduled(self, view: str, population: bytes, period: Interval) -> Cost:
        """Return the worst-case cost of a view's windows in a period, by its definitions."""
        asked = (one for one in self._paying(population) if one.view == view)
        return sum((one.scheduled(max(period.start_ms, one.begins_ms), period.end_ms) for one in asked), Cost.ZERO)

    def _taken(self, key: bytes) -> dict[str, Cost]:
        """Return each view's charges in a period and in others that it overlaps, spent and reserved."""
        taken: dict[str, Cost] = {}
        for ledger in (self._ledgers[of] for of in (key, *self._overlapping(key)) if of in self._ledgers):
            reserved = [(view_of(Call.parse(call).view), cost) for call, cost in ledger.reserved.items()]
            for name, cost in [*ledger.views.items(), *reserved]:
                taken[name] = taken[name] + cost if name in taken else cost
        return taken

    def _rest(self, key: bytes, ledger: Ledger) -> Cost:
        """Return what remains of a period's caps.

        An entry that the periods it overlaps have overdrawn has nothing left; a period that would begin with one has
        nothing at all.
        """
        charged = [_charged(self._ledgers[other]) for other in self._overlapping(key)]
        taken = sum(charged, _charged(ledger))
        if key not in self._begun and not taken <= ledger.budget:
            return Cost.ZERO
        return ledger.budget.most(taken) - taken

    def _overlapping(self, key: bytes) -> list[bytes]:
        """The other periods of a population that have begun and overlap one, whose shape is another therefore."""
        found = self._overlaps.get(key)
        if found is None:
            period, of = period_of(key), population_of(key)
            found = [other for other in self._begun if other.startswith(of) and other != key]
            found = self._overlaps[key] = [other for other in found if period_of(other).overlaps(period)]
        return found

    def reserved_rows(self, view: ViewPlan, key: bytes, ledger: Ledger, call: str) -> list[tuple[bytes, bytes | None]]:
        """Return the rows that a reservation changes; the first of a period fixes what the period promises."""
        return [*self._promise(view, key), *reserved_rows(key, ledger, call)]

    def keep(self, view: ViewPlan, key: bytes, ledger: Ledger) -> None:
        """Go on with a ledger as it is after a step."""
        self._ledgers[key] = ledger
        if key not in self._begun:
            self._begun[key] = view.ledger
            self._overlaps.clear()

    def charge_lost(self, view: ViewPlan, start_ms: int, cost: Cost) -> list[tuple[bytes, bytes | None]]:
        """Spend what was paid in the period of a window and is forgotten, at worst: the rows that this changes."""
        key, ledger = self.of(view, start_ms)
        paid = write_off(ledger, cost, view=view.view)
        changed = [*self._promise(view, key), (key, encode(paid))]
        self.keep(view, key, paid)
        return changed

    def _promise(self, view: ViewPlan, key: bytes) -> list[tuple[bytes, bytes | None]]:
        """Return the rows that a period begins with; none where it has begun."""
        return [] if key in self._begun else promise_rows(key, view.ledger, self._shared(key, view))

    def load(self, rows: Rows) -> Iterator[Effect]:
        """Drop or charge what was reserved when the process ended, and take the ledgers into memory."""
        stored = [*rows.scan(LEDGER, after(LEDGER)), *rows.scan(RESERVATION, after(RESERVATION))]
        for key, ledger in read_ledgers(stored).items():
            changes = repairs(key, ledger, rows)
            self._ledgers[key] = self._settled(key, ledger, changes, rows)
            if changes:
                yield Commit(changes)
        for plan in {view.ledger.fingerprint: view.ledger for view in self._views.values()}.values():
            for key in [key for key in self._ledgers if key.startswith(LEDGER + plan.fingerprint)]:
                period, budget = period_of(key), self._ledgers[key].budget
                self._begun[key] = stored_promise(key, rows).plan(plan, period, budget)
                kept = stored_shares(key, rows)
                shares = self._shares[key] = self._stored(key, budget, kept)
                if shares.kept != kept:  # for good: what is free may be taken, and nobody gets it back
                    yield Commit([shares_row(key, shares)])

    def _settled(self, key: bytes, ledger: Ledger, changes: list[tuple[bytes, bytes | None]], rows: Rows) -> Ledger:
        """A ledger without the reservations that are about a configured view, and what that changes."""
        for call in map(Call.parse, sorted(ledger.reserved)):
            view, row = self._views.get(call.view), stored_window(call.view, call.start_ms, rows)
            if view is None:
                continue  # a view that is no longer configured keeps what it had reserved
            if row is None or not call.stored(row):
                ledger = cancel(ledger, str(call))
                changes.append((reservation_key(key, str(call)), None))
            else:
                paid, shares = price(view, call, stored_table(view.name, call.start_ms, rows), row)
                ledger = commit(ledger, str(call), paid, shares, view=view.view)
                changes += charged_rows(key, ledger)
        return ledger


def _charged(ledger: Ledger) -> Cost:
    """Return what was charged to a ledger itself, spent and reserved."""
    return ledger.budget - ledger.left
