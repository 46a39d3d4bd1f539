"""The ledgers of one partition: in memory, and as the rows that were stored of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stream_dp.accounting import Ledger, cancel, commit
from stream_dp.config.plan import ViewPlan
from stream_dp.releases.pricing import price
from stream_dp.releases.rows import (
    LEDGER,
    RESERVATION,
    Call,
    charged_rows,
    ledger_key,
    read_ledgers,
    repairs,
    reservation_key,
    stored_table,
    stored_window,
    with_budget,
)
from stream_dp.windows.effects import Commit, Effect, Rows
from stream_dp.windows.keys import after, text


class Accounts:
    """Which ledger pays for which window, and what is left in it."""

    def __init__(self, views: Mapping[str, ViewPlan]) -> None:
        """Set up the accounts; `load` makes them ready.

        Args:
            views: the views that these ledgers pay for.
        """
        self._views = views
        self._ledgers: dict[bytes, Ledger] = {}

    def of(self, view: ViewPlan, start_ms: int) -> tuple[bytes, Ledger]:
        """The ledger that pays for a window, and the key of its row."""
        key = ledger_key(view, start_ms)
        ledger = self._ledgers.get(key)
        return key, Ledger(view.ledger.budget) if ledger is None else ledger

    def keep(self, key: bytes, ledger: Ledger) -> None:
        """Go on with a ledger as it is after a step."""
        self._ledgers[key] = ledger

    def load(self, rows: Rows) -> Iterator[Effect]:
        """Drop or charge what was reserved when the process ended, and take the ledgers into memory."""
        stored = [*rows.scan(LEDGER, after(LEDGER)), *rows.scan(RESERVATION, after(RESERVATION))]
        for key, ledger in read_ledgers(stored).items():
            changes = repairs(key, ledger, rows)
            self._ledgers[key] = self._settled(key, ledger, changes, rows)
            if changes:
                yield Commit(changes)
        for budget, prefix in {(view.ledger.budget, LEDGER + text(view.ledger.name)) for view in self._views.values()}:
            for key in [key for key in self._ledgers if key.startswith(prefix)]:
                self._ledgers[key] = with_budget(self._ledgers[key], budget)

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
