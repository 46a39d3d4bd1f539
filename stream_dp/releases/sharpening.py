"""One audience sees one released window at a finer level: what that costs, and the rows that it changes."""

from __future__ import annotations

from collections.abc import Mapping

from stream_dp.accounting import Overdraft, commit, reserve
from stream_dp.config.plan import ViewPlan
from stream_dp.kinds.sealing import WindowNoise
from stream_dp.releases.accounts import Accounts
from stream_dp.releases.pieces import Change, leave, stored_table
from stream_dp.releases.pricing import difference
from stream_dp.releases.publication import Booking, Publisher
from stream_dp.releases.rows import NOTHING, WINDOW, Call, ClearanceRow, Given, WindowRow, charged_rows
from stream_dp.windows.effects import Rows
from stream_dp.windows.keys import encode, window_key


class Sharpening:
    """Sharpens windows of the views of one partition, as far as their ledgers can pay."""

    def __init__(self, accounts: Accounts, publisher: Publisher, secrets: Mapping[str, bytes]) -> None:
        """Set up the sharpening.

        Args:
            accounts: which ledger pays.
            publisher: makes the records.
            secrets: by id, those that windows were sealed with.
        """
        self._accounts = accounts
        self._publisher = publisher
        self._secrets = secrets

    def sharpened(
        self,
        view: ViewPlan,
        audience: str,
        level: int,
        clearance: ClearanceRow,
        start: int,
        row: WindowRow,
        rows: Rows,
    ) -> list[Change]:
        """The rows that give one audience one window at a finer level: reservation, records, window, charge.

        Args:
            view: the view.
            audience: the audience.
            level: index of the level.
            clearance: the grant that is carried out, or what stands for one.
            start: start of the window, ms.
            row: the row of the window, whose key is not retired; changed in place.
            rows: the partition's table.
        """
        slot = clearance.slot_ms
        given, finest = row.given.get(audience, NOTHING), row.finest
        call = Call(view.name, start, audience, given.level, level)
        table = stored_table(view.name, start, rows)
        key, ledger = self._accounts.of(view, start)
        cost = difference(view, table, finest, max(finest, level))
        room = self._accounts.room(view, start)
        reserved = reserve(ledger, str(call), cost, room)
        at = window_key(WINDOW, view.name, start)
        if isinstance(reserved, Overdraft):
            left = self._accounts.left(view, start)
            refused = Booking(self._accounts.plan(view, start), ledger, left, room, cost)
            # Not `cost`: that tells what other audiences have of the window. It is at most what the record says.
            own = view.counts(level) if given.level < 0 else view.counts(level) - view.counts(given.level)
            revision = given.revision + 1
            leaving = self._publisher.refusals(view, start, {audience: level}, revision, own, refused)
            row.turned_down[audience] = clearance.number
            return [*leave(view, start, row, slot, leaving), (at, encode(row))]
        noise = WindowNoise(view.noise_name(start), self._secrets[row.key_id])
        shares = {audience: difference(view, table, given.level, level)}
        paid = commit(reserved, str(call), cost, shares, view=view.name)
        before = self._accounts.reserved_rows(view, key, reserved, str(call))
        self._accounts.keep(view, key, paid)
        row.given[audience] = Given(given.revision + 1, level)
        left, room = self._accounts.left(view, start), self._accounts.room(view, start)
        booking = Booking(self._accounts.plan(view, start), paid, left, room, cost, shares)
        leaving = self._publisher.releases(view, start, table, noise, row.given, {audience: level}, finest, booking)
        before += leave(view, start, row, slot, leaving)
        return [*before, (at, encode(row)), *charged_rows(key, paid)]
