"""The first release of a window: reserve, draw, store; or the refusal that stands in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stream_dp.accounting import Cost, Overdraft, commit, reserve
from stream_dp.config.plan import ViewPlan
from stream_dp.exact.bits import Entropy
from stream_dp.kinds.lists import KeyList
from stream_dp.kinds.sealing import SealedTable, Sealing, WindowNoise, own_secret
from stream_dp.records.models import Reason
from stream_dp.releases.accounts import Accounts, price
from stream_dp.releases.clearances import Clearances
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.panes import Begun, Pane, Sums, begun, block_rows, inner_counts, is_passed_over, used_blocks
from stream_dp.releases.pieces import Addressed, Change, leave, stored_buckets, table_rows
from stream_dp.releases.publication import Booking, RecordBuilder
from stream_dp.releases.rows import BUCKET, WINDOW, AudienceState, Call, WindowRow, charged_rows
from stream_dp.releases.totals import TotalChange, counted
from stream_dp.releases.view_definitions import ViewDefinitions
from stream_dp.windows.durations import Slots
from stream_dp.windows.effects import Commit, Effect, Leave, Rows
from stream_dp.windows.encoding import after, encode, window_key
from stream_dp.windows.merging import Come, MergedBucket, outside, summed


class Arrivals:
    """Progress of arriving parts. Memory holds numbers; the counts are in the table.

    That a bucket is lost counts where it is not whole, and no more when all its parts come after all.
    """

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], dict[int, Come]] = {}

    def take(self, bucket: MergedBucket) -> Sequence[MergedBucket]:
        """Note a part; it takes the place of the one that came under its key.

        Returns:
            The parts, without counts, that are void because the bucket was cut otherwise for them: an item could be in
            one of them and in one of the new parts.
        """
        come = self._windows.setdefault((bucket.view, bucket.start_ms), {}).setdefault(bucket.bucket, Come())
        if bucket.lost:
            come.lost = True
            return ()
        void: list[MergedBucket] = []
        if come.parts != bucket.parts:
            void = [msgspec.structs.replace(bucket, part=part, counts={}) for part in sorted(come.numbers)]
            come.parts, come.numbers = bucket.parts, set()
        come.numbers.add(bucket.part)
        return void

    def complete(self, view: str, start_ms: int) -> int:
        """Return the number of buckets of a window that have all their parts, or are lost."""
        return sum(come.settled for come in self._windows.get((view, start_ms), {}).values())

    def is_lost(self, view: str, start_ms: int) -> bool:
        """Return True if a bucket of a complete window is lost."""
        return not all(come.whole for come in self._windows.get((view, start_ms), {}).values())

    def forget(self, view: str, start_ms: int) -> None:
        """A window has had its turn."""
        self._windows.pop((view, start_ms), None)


class _Arrived(NamedTuple):
    """Inputs of a release: the counts that arrived, the slot, and the levels of the audiences."""

    counts: Sequence[Mapping[str, int]]
    closed_ms: int
    slot_ms: int
    levels: Mapping[str, int]
    is_lost: bool


class _Sealed(NamedTuple):
    """Exact counts, and what was made of them."""

    counts: Mapping[str, int]
    table: SealedTable
    noise: WindowNoise
    key_id: str
    secret: bytes
    unknown: int | None
    """Number of them whose key is not on the list, where that is in a topic."""


class Releasing:
    """Releases the windows of the views of one partition, or the panes, each once, in their order."""

    def __init__(
        self,
        definitions: ViewDefinitions,
        accounts: Accounts,
        clearances: Clearances,
        arrivals: Arrivals,
        record_builder: RecordBuilder,
        sums: Sums,
        *,
        slots: Slots,
        keys: KeyRing,
        entropy: Entropy,
        lists: Callable[[str, int], Mapping[str, KeyList]],
        unknown_before: Mapping[str, int],
    ) -> None:
        """Set up the releasing.

        Args:
            definitions: the views' definitions, and how far their releases have come; it goes on with that.
            accounts: which ledger pays.
            clearances: who may see what.
            arrivals: what has come of the windows that wait.
            record_builder: makes the records.
            sums: makes those of windows that are made of panes.
            slots: when they leave.
            keys: the secrets that coarser levels are derived from.
            entropy: source of fresh noise.
            lists: as `ReleaseEngine` has them.
            unknown_before: by view, the start of the first window whose counts were not lost with their counters.
        """
        self._definitions = definitions
        self._accounts = accounts
        self._clearances = clearances
        self._arrivals = arrivals
        self._record_builder = record_builder
        self._sums = sums
        self._slots = slots
        self._keys = keys
        self._entropy = entropy
        self._lists = lists
        self._unknown_before = unknown_before
        self._last_slots: dict[str, int] = {}
        """By view, whatever it asks: the slot of its last window."""

    def passed(self, view: ViewPlan, row: WindowRow) -> None:
        """Take note of a window that was released before."""
        self._last_slots[view.view] = max(row.slot_ms, self._last_slots.get(view.view, row.slot_ms))

    def last_slot(self, view: ViewPlan) -> int:
        """The slot of the last window of a view that has one."""
        return self._last_slots[view.view]

    def is_unknown(self, view: ViewPlan, start: int) -> bool:
        """Return True if counts of a window were lost with their counters."""
        return start < self._unknown_before.get(view.name, start)

    def release(self, view: ViewPlan, start: int, rows: Rows) -> Iterator[Effect]:
        """Release a window that is complete, or refuse it.

        Args:
            view: the view.
            start: start of the window, ms.
            rows: the partition's table.
        """
        kept_ms = self._definitions.marks[view.name].kept_ms
        if not view.windows.has(start) or is_passed_over(view.at(start), start, kept_ms, rows):
            yield from self._pass_over(view, start, rows)
            return
        view = view.at(start)
        arrived = self._arrived(view, start, rows)
        window = begun(view, start, arrived.levels, self._keys.secrets, rows)
        if window is None and not arrived.levels:
            yield from self._pass_over(view, start, rows)
        elif window is None:
            yield from self._begin(view, start, arrived, rows)
        else:
            yield from self._go_on(view, start, arrived, window, rows)

    def _arrived(self, view: ViewPlan, start: int, rows: Rows) -> _Arrived:
        is_lost = self.is_unknown(view, start) or self._arrivals.is_lost(view.name, start)
        buckets = [bucket for bucket in stored_buckets(view.name, start, rows) if is_lost or not bucket.lost]
        closed_ms = max((bucket.closed_ms for bucket in buckets), default=0)
        slot = max(self._slots.after(closed_ms), self._last_slots.get(view.view, 0))  # in order, though clocks go back
        levels = {audience: self._clearances.level(view, audience, start) for audience in sorted(view.audiences)}
        levels = {audience: level for audience, level in levels.items() if level >= 0}
        return _Arrived([bucket.counts for bucket in buckets], closed_ms, slot, levels, is_lost)

    def _begin(self, view: ViewPlan, start: int, arrived: _Arrived, rows: Rows) -> Iterator[Effect]:
        """Release what is charged: a window, a pane, or the first pane of a window that is charged as a whole."""
        levels, slot = arrived.levels, arrived.slot_ms
        finest = max(levels.values())
        key, ledger = self._accounts.of(view, start)
        call = Call(view.name, start)
        balance = self._accounts.balance(view, start)
        reserved = reserve(ledger, str(call), view.cost(finest), balance.room)
        if arrived.is_lost or isinstance(reserved, Overdraft):
            reason: Reason = "lost" if arrived.is_lost else "budget"
            asked = Cost.ZERO if arrived.is_lost else view.cost(finest)
            row = WindowRow(refused=True, slot_ms=slot, lost=arrived.is_lost)
            refused = Booking(ledger, balance, asked)
            if view.window.shape.is_sum:
                leaving = self._sums.first(view, Pane(start, row), levels, balance.plan, ledger, rows)
            else:
                row.refused_grants = dict.fromkeys(levels, 0)
                leaving = self._record_builder.refusals(view, start, levels, 1, asked, refused, reason)
            leaving.append(self._record_builder.refusal(view, start, levels, 1, refused))
            yield from self._refuse(view, start, row, leaving, rows)
            return
        yield Commit(self._accounts.reserved_rows(view, key, reserved, str(call)))
        self._accounts.keep(view, key, reserved)
        sealed = self._sealed(view, start, arrived, rows)
        states = {name: AudienceState(1, level) for name, level in levels.items()}
        row = WindowRow(refused=False, slot_ms=slot, states=states, key_id=sealed.key_id, secret=sealed.secret)
        cost, shares = price(view, call, sealed.table, row)
        paid = commit(reserved, str(call), cost, shares, view=view.view)
        self._accounts.keep(view, key, paid)
        booking = Booking(paid, self._accounts.balance(view, start), view.cost(finest), shares)
        if view.window.shape.is_sum:
            leaving = self._sums.first(view, Pane(start, row, sealed.table), levels, booking.balance.plan, paid, rows)
        else:
            parts = [(sealed.table, sealed.noise)]
            leaving = self._record_builder.releases(view, start, parts, row.states, levels, booking)
        leaving.append(self._record_builder.charge(view, start, sealed.table, row.states, levels, -1, booking))
        yield from self._store_sealed(view, start, row, sealed, leaving, charged_rows(key, paid), rows)

    def _go_on(self, view: ViewPlan, start: int, arrived: _Arrived, window: Begun, rows: Rows) -> Iterator[Effect]:
        """Release a later pane of a window that is charged as a whole; nothing is asked of the ledger any more."""
        _, ledger = self._accounts.of(view, start)
        booking = Booking(ledger, self._accounts.balance(view, start), Cost.ZERO)
        reason: Reason | None = "lost" if arrived.is_lost else window.reason
        if reason is not None:
            asked = Cost.ZERO if reason == "lost" else view.cost(max(arrived.levels.values(), default=0))
            refused = dict.fromkeys(arrived.levels, 0)
            row = WindowRow(refused=True, slot_ms=arrived.slot_ms, lost=reason == "lost", refused_grants=refused)
            leaving = self._record_builder.refusals(view, start, arrived.levels, 1, asked, booking, reason)
            yield from self._refuse(view, start, row, leaving, rows)
            return
        sealed = self._sealed(view, start, arrived, rows)
        states = {name: AudienceState(1, level) for name, level in window.levels.items()}
        slot, key_id, secret = arrived.slot_ms, sealed.key_id, sealed.secret
        row = WindowRow(refused=False, slot_ms=slot, states=states, key_id=key_id, secret=secret)
        parts = [*window.blocks, (sealed.table, sealed.noise)]
        leaving = self._record_builder.releases(view, start, parts, row.states, window.levels, booking)
        yield from self._store_sealed(view, start, row, sealed, leaving, [], rows)

    def _sealed(self, view: ViewPlan, start: int, arrived: _Arrived, rows: Rows) -> _Sealed:
        counts = summed([*arrived.counts, *inner_counts(view, start, rows)])
        key_id, secret = self._keys.newest
        own = own_secret(view.noise_name(start), self._entropy)
        noise = WindowNoise.of(view.noise_name(start), secret, own)
        lists = self._lists(view.name, arrived.closed_ms)
        table = view.kind.seal(counts, Sealing(noise, self._entropy, lists))
        domain = view.kind.domain(lists) if view.kind.topics else None  # what is settled before was counted before
        return _Sealed(counts, table, noise, key_id, own, None if domain is None else outside(domain, counts))

    def _refuse(
        self, view: ViewPlan, start: int, row: WindowRow, leaving: Sequence[Addressed], rows: Rows
    ) -> Iterator[Effect]:
        became = {"windows_lost" if row.lost else "windows_refused": 1}
        yield from self._store(view, start, row, leave(view, start, row, row.slot_ms, leaving), [], rows, **became)

    def _store_sealed(
        self,
        view: ViewPlan,
        start: int,
        row: WindowRow,
        sealed: _Sealed,
        leaving: Sequence[Addressed],
        behind: Sequence[Change],
        rows: Rows,
    ) -> Iterator[Effect]:
        before = [
            *table_rows(view.name, start, sealed.table),
            *block_rows(view, start, sealed.counts),
            *leave(view, start, row, row.slot_ms, leaving),
        ]
        unknown = {} if sealed.unknown is None else {"events_unknown": sealed.unknown}
        yield from self._store(view, start, row, before, behind, rows, windows_released=1, **unknown)
        self._clearances.queue_released(self._definitions.views[view.name], start, row)

    def _pass_over(self, view: ViewPlan, start: int, rows: Rows) -> Iterator[Effect]:
        """Forget the counts of a window that is not released: nobody may see it, or it is in no period alone."""
        self._arrivals.forget(view.name, start)
        counts = window_key(BUCKET, view.name, start)
        self._definitions.marks[view.name].next_ms = view.window.shape.next(start)
        forgotten = [(key, None) for key, _ in rows.scan(counts, after(counts))]
        yield Commit([self._definitions.row(view), *forgotten])

    def _store(
        self,
        view: ViewPlan,
        start: int,
        row: WindowRow,
        before: Sequence[Change],
        behind: Sequence[Change],
        rows: Rows,
        **amounts: int,
    ) -> Iterator[Effect]:
        """Store a window and let it leave; forget its counts in the table, and count what became of it."""
        self._last_slots[view.view] = row.slot_ms
        self._arrivals.forget(view.name, start)
        forgotten = [window_key(BUCKET, view.name, start), *used_blocks(view, start, refused=row.refused)]
        those = [TotalChange(name, view.name, amount, start, 1) for name, amount in amounts.items()]
        yield Commit(
            [
                counted(those, rows),
                *before,
                (window_key(WINDOW, view.name, start), encode(row)),
                *behind,
                *self._definitions.advance(view, start, publishes_window=row.publishes_window),
                *((key, None) for prefix in forgotten for key, _ in rows.scan(prefix, after(prefix))),
            ]
        )
        yield Leave(view.name, start, row.slot_ms)
        yield from (one.increment for one in those)
