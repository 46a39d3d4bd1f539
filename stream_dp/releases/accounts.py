"""The ledgers of one partition: in memory, and as the rows that were stored of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stream_dp.accounting import Cost, Ledger, cancel, commit, encode, write_off
from stream_dp.config.plan import LedgerPlan, ViewPlan
from stream_dp.releases.pricing import price
from stream_dp.releases.rows import (
    LEDGER,
    RESERVATION,
    Call,
    charged_rows,
    ledger_key,
    promise_row,
    read_ledgers,
    repairs,
    reservation_key,
    reserved_rows,
    stored_promise,
    stored_table,
    stored_window,
)
from stream_dp.windows.effects import Commit, Effect, Rows
from stream_dp.windows.keys import after, text


class Accounts:
    """Which ledger pays for which window, what is left in it, and what its period promises."""

    def __init__(self, views: Mapping[str, ViewPlan]) -> None:
        """Set up the accounts; `load` makes them ready.

        Args:
            views: the views that these ledgers pay for.
        """
        self._views = views
        self._ledgers: dict[bytes, Ledger] = {}
        self._begun: dict[bytes, LedgerPlan] = {}

    def of(self, view: ViewPlan, start_ms: int) -> tuple[bytes, Ledger]:
        """The ledger that pays for a window, and the key of its row."""
        key = ledger_key(view, start_ms)
        ledger = self._ledgers.get(key)
        return key, Ledger(view.ledger.budget) if ledger is None else ledger

    def plan(self, view: ViewPlan, start_ms: int) -> LedgerPlan:
        """The plan of the ledger that pays for a window: as its period began, today's where it has not.

        A period begins with its first reservation. What was refused before that was refused under the plan of its day.
        """
        return self._begun.get(ledger_key(view, start_ms), view.ledger)

    def reserved_rows(self, view: ViewPlan, key: bytes, ledger: Ledger, call: str) -> list[tuple[bytes, bytes | None]]:
        """What a reservation changes; the first of a period fixes what the period promises."""
        first = [] if key in self._begun else [promise_row(key, view.ledger)]
        return [*first, *reserved_rows(key, ledger, call)]

    def keep(self, view: ViewPlan, key: bytes, ledger: Ledger) -> None:
        """Go on with a ledger as it is after a step."""
        self._ledgers[key] = ledger
        self._begun.setdefault(key, view.ledger)

    def charge_lost(self, view: ViewPlan, start_ms: int, cost: Cost) -> list[tuple[bytes, bytes | None]]:
        """Spend what was paid in the period of a window and is forgotten, at worst: the rows that this changes."""
        key, ledger = self.of(view, start_ms)
        paid = write_off(ledger, cost)
        first = [] if key in self._begun else [promise_row(key, view.ledger)]
        self.keep(view, key, paid)
        return [*first, (key, encode(paid))]

    def load(self, rows: Rows) -> Iterator[Effect]:
        """Drop or charge what was reserved when the process ended, and take the ledgers into memory."""
        stored = [*rows.scan(LEDGER, after(LEDGER)), *rows.scan(RESERVATION, after(RESERVATION))]
        for key, ledger in read_ledgers(stored).items():
            changes = repairs(key, ledger, rows)
            self._ledgers[key] = self._settled(key, ledger, changes, rows)
            if changes:
                yield Commit(changes)
        for prefix, plan in {LEDGER + text(view.ledger.name): view.ledger for view in self._views.values()}.items():
            for key in [key for key in self._ledgers if key.startswith(prefix)]:
                self._begun[key] = stored_promise(key, rows).plan(plan, self._ledgers[key].budget)

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
                ledger = commit(ledger, str(call), paid, shares)
                changes += charged_rows(key, ledger)
        return ledger
