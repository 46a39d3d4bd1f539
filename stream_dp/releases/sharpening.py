"""One audience sees one released window at a finer level: what that costs, and the rows that it changes."""

from __future__ import annotations

from collections.abc import Mapping

from stream_dp.accounting import Cost, Overdraft, commit, reserve
from stream_dp.releases.accounts import Accounts, difference
from stream_dp.releases.clearances import SharpeningRequest
from stream_dp.releases.panes import Sums, earlier_blocks, first_row
from stream_dp.releases.pieces import Addressed, Change, leave, noise_of, stored_table
from stream_dp.releases.publication import Booking, RecordBuilder
from stream_dp.releases.rows import NOTHING, WINDOW, AudienceState, Call, WindowRow, charged_rows
from stream_dp.windows.effects import Rows
from stream_dp.windows.encoding import encode, window_key


class Sharpening:
    """Sharpens windows of the views of one partition, as far as their ledgers can pay."""

    def __init__(
        self, accounts: Accounts, record_builder: RecordBuilder, sums: Sums, secrets: Mapping[str, bytes]
    ) -> None:
        """Set up the sharpening.

        Args:
            accounts: which ledger pays.
            record_builder: makes the records.
            sums: makes those of windows that are made of panes.
            secrets: by id, those that windows were sealed with.
        """
        self._accounts = accounts
        self._record_builder = record_builder
        self._sums = sums
        self._secrets = secrets

    def sharpened(self, request: SharpeningRequest, row: WindowRow, rows: Rows) -> list[Change]:
        """The rows that give one audience one window at a finer level: reservation, records, window, charge.

        Of a pane, what leaves is the window that ends with it, where that got finer. Nothing, if nothing is to leave.

        Args:
            request: the window, the audience and the level.
            row: the row of the window, whose key is not retired; changed in place.
            rows: the partition's table, with what was changed before.
        """
        view, start, audience, level, slot, *_ = request
        if not view.window.pays(start):
            return self._follow(request, row, rows)
        before, leaving, behind = list[Change](), list[Addressed](), list[Change]()
        had = {audience: row.has(audience)}
        if row.states.get(audience, NOTHING).level < level:
            before, leaving, behind = self._finer(request, row, rows)
        if row.sum is not None:
            plan, (_, ledger) = self._accounts.plan(view, start), self._accounts.of(view, start)
            leaving = [*self._sums.again(request, row, plan, ledger, rows), *leaving]
        if not leaving:
            return []
        left = leave(view, start, row, slot, leaving, had)
        return [*before, *left, (window_key(WINDOW, view.name, start), encode(row)), *behind]

    def _follow(self, request: SharpeningRequest, row: WindowRow, rows: Rows) -> list[Change]:
        """The same for a later pane of a window that is charged as a whole: as fine as its first pane was paid for."""
        view, start, audience, level, slot, *_ = request
        first, state = first_row(view, start, rows), row.states.get(audience, NOTHING)
        paid = -1 if first is None else min(level, first.states.get(audience, NOTHING).level)
        blocks = earlier_blocks(view, start, self._secrets, rows) if paid > state.level else None
        if blocks is None:
            return []
        own = stored_table(view.name, start, rows), noise_of(view, start, row, self._secrets)
        row.states[audience] = AudienceState(state.revision + 1, paid, state.parts)
        _, ledger = self._accounts.of(view, start)
        booking = Booking(ledger, self._accounts.balance(view, start), Cost.ZERO)
        leaving = self._record_builder.releases(view, start, [*blocks, own], row.states, {audience: paid}, booking)
        changed = leave(view, start, row, slot, leaving, {audience: state.level})
        return [*changed, (window_key(WINDOW, view.name, start), encode(row))]

    def _finer(
        self, request: SharpeningRequest, row: WindowRow, rows: Rows
    ) -> tuple[list[Change], list[Addressed], list[Change]]:
        """Return the rows before the window's, the records to publish (of a pane the entry), and the rows after."""
        view, start, audience, level, *_ = request
        state, finest = row.states.get(audience, NOTHING), row.finest
        accounted = row.accounted_level(audience)
        call = Call(view.name, start, audience, accounted, level)
        table = stored_table(view.name, start, rows)
        key, ledger = self._accounts.of(view, start)
        cost = difference(view, table, finest, max(finest, level))
        balance = self._accounts.balance(view, start)
        reserved = reserve(ledger, str(call), cost, balance.room)
        levels, revision = {audience: level}, state.revision + 1
        if isinstance(reserved, Overdraft):
            refused = Booking(ledger, balance, cost)
            request.refuse(row)
            if row.sum is not None:
                return [], [self._record_builder.refusal(view, start, levels, revision, refused)], []
            # Not `cost`: that tells what other audiences have of the window. It is at most what the record says.
            own = view.counts(level) if state.level < 0 else view.counts(level) - view.counts(state.level)
            leaving = self._record_builder.refusals(view, start, levels, revision, own, refused)
            return [], [*leaving, self._record_builder.refusal(view, start, levels, revision, refused)], []
        noise = noise_of(view, start, row, self._secrets)
        shares = {audience: difference(view, table, accounted, max(accounted, level))}
        paid = commit(reserved, str(call), cost, shares, view=view.view)
        before = self._accounts.reserved_rows(view, key, reserved, str(call))
        self._accounts.keep(view, key, paid)
        row.states[audience] = AudienceState(revision, level, state.parts)
        booking = Booking(paid, self._accounts.balance(view, start), cost, shares)
        leaving = []
        if row.sum is None:
            leaving = self._record_builder.releases(view, start, [(table, noise)], row.states, levels, booking)
        leaving.append(self._record_builder.charge(view, start, table, row.states, levels, finest, booking))
        return before, leaving, charged_rows(key, paid)
