"""Releases of windows, and sharper revisions of them: reserve, draw or read, store; or a refusal in their place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from stream_dp.accounting import Cost
from stream_dp.config.plan import ViewPlan
from stream_dp.exact.bits import Entropy
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.sealing import SealedTable, Sealing, own_secret
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.models import Reason
from stream_dp.releases.accounts import price
from stream_dp.releases.clearances import SharpeningRequest
from stream_dp.releases.losses import LostCounts
from stream_dp.releases.panes import (
    Begun,
    Sums,
    begun,
    block_rows,
    earlier_blocks,
    first_row,
    inner_counts,
    is_passed_over,
    list_of_window,
    used_blocks,
)
from stream_dp.releases.partition_state import PartitionState
from stream_dp.releases.pieces import Addressed, leave, stored_buckets, table_rows
from stream_dp.releases.publication import Denial, Offer, RecordBuilder
from stream_dp.releases.rows import (
    BUCKET,
    NOTHING,
    WINDOW,
    AudienceState,
    Call,
    Change,
    TotalChange,
    WindowRow,
    counted,
    deletions,
)
from stream_dp.windows.effects import Commit, Effect, Leave
from stream_dp.windows.encoding import encode, window_key
from stream_dp.windows.merging import outside, summed

Lists = Callable[[str, int], Mapping[str, KeyList]]
"""The public lists of a view that stand in topics, by topic, as they hold for a window that closed at a time, in ms."""


class _Due(NamedTuple):
    """A window whose turn has come: what arrived for it, and who may see which level of it."""

    offer: Offer
    counts: Sequence[Mapping[str, int]]
    closed_ms: int
    slot_ms: int
    is_lost: bool
    is_interrupted: bool


class _Sealed(NamedTuple):
    """Exact counts, and what was made of them."""

    counts: Mapping[str, int]
    table: SealedTable
    noise: WindowNoise
    key_id: str
    secret: bytes
    unknown: int | None
    """Number of them whose key is not on the list, where that is in a topic."""


class _Released(NamedTuple):
    """Rows of a window whose turn is over, and the effects that follow once they are stored."""

    rows: Sequence[Change]
    leave: Leave | None = None
    counted: Sequence[TotalChange] = ()


BYTES_TOGETHER = 1 << 20
"""Of windows that one commit stores; one that is larger is stored alone, or as the last of them."""


class Releasing:
    """Releases the windows of one partition, or the panes, each once, in their order; sharpens what ledgers can pay."""

    def __init__(
        self,
        state: PartitionState,
        record_builder: RecordBuilder,
        *,
        lost: LostCounts,
        entropy: Entropy,
        lists: Lists,
    ) -> None:
        """Set up the releasing.

        Args:
            state: the partition's: its accounts are charged, its marks advance.
            record_builder: makes the records.
            lost: the counts that were lost on their way here.
            entropy: source of fresh noise.
            lists: the public lists that stand in topics.
        """
        self._state = state
        self._record_builder = record_builder
        self._sums = Sums(state, record_builder)
        self._lost = lost
        self._entropy = entropy
        self._lists = lists

    def release(self, windows: Sequence[tuple[ViewPlan, int]], is_due: Callable[[ViewPlan], bool]) -> Iterator[Effect]:
        """Release windows that are complete, or refuse them, as if one after the other, but in two commits for all.

        A window, a pane, or the first pane of a window that is charged as a whole is reserved for before it is drawn;
        nothing is asked of the ledger for a later pane. The first commit stores the reservations of all of them; in
        memory each is made again when its window's turn comes, so an entry says what it would without the others.
        Behind the others' reservations a window is not refused: it is tried again as the first of the next group. So is
        one that a period begins with beside another: before it, that one pays for windows which are in both.

        Args:
            windows: in their order, each with its start, ms; the next ones of their views.
            is_due: whether the next window of a view is still due: what became of those before it may have to be
                carried out first.
        """
        state, group = self._state, list[tuple[ViewPlan, int]]()
        paid: dict[Call, Offer] = {}
        for view, start in windows:
            if (offer := self._to_pay(view, start)) is not None:
                if view.windows_per_user is not None and any(call.view == view.name for call in paid):
                    break  # what it is charged depends on what the one before it was
                if group and state.accounts.begins_beside_another(offer.view, start):
                    break
                found = self._affordable(offer, alone=not paid)
                if found is None and paid:
                    break
                if found is not None:
                    paid[Call(view.name, start)] = found
            group.append((view, start))
        if reserved := state.accounts.rows():
            yield Commit(reserved)
        for call, offer in paid.items():
            state.accounts.set_aside(offer.view, call)
        while group and (stored := self._stored(group, paid, is_due)):
            del group[: len(stored)]
            those = [one for outcome in stored for one in outcome.counted]
            rows = (row for outcome in stored for row in outcome.rows)
            yield Commit([counted(those, state.rows), *rows, *state.accounts.rows()])
            yield from (outcome.leave for outcome in stored if outcome.leave is not None)
            yield from (one.increment for one in those)
        if dropped := state.accounts.drop_aside():
            yield Commit(dropped)

    def _stored(
        self,
        group: Sequence[tuple[ViewPlan, int]],
        paid: Mapping[Call, Offer],
        is_due: Callable[[ViewPlan], bool],
    ) -> list[_Released]:
        """Return what one commit stores: the first windows of a group, until it is large or one has to wait."""
        stored, room = list[_Released](), BYTES_TOGETHER
        with self._state.ahead() as ahead:
            for view, start in group:
                if room <= 0 or not is_due(view):
                    break
                if (offer := paid.get(call := Call(view.name, start))) is not None:
                    self._state.accounts.take_up(offer.view, call)
                stored.append(self._released(view, start, paid))
                ahead.change(stored[-1].rows)
                room -= sum(len(value or b"") for _, value in stored[-1].rows)
        return stored

    def _to_pay(self, view: ViewPlan, start: int) -> Offer | None:
        """Return what a ledger is to pay for before it is drawn; None if the window is not drawn, or is paid for."""
        if not view.windows.has(start) or not view.at(start).window.pays(start) or self._is_lost(view.at(start), start):
            return None
        offer = self._offer(view.at(start), start)
        return offer if offer.levels else None

    def _released(self, view: ViewPlan, start: int, paid: Mapping[Call, Offer]) -> _Released:
        state, kept_ms = self._state, self._state.marks[view.name].kept_ms
        if not view.windows.has(start) or is_passed_over(view.at(start), start, kept_ms, state.rows):
            return self._pass_over(view, start)
        due = self._due(view.at(start), start)
        view, start, levels = due.offer
        window = begun(state, due.offer)
        if window is None and not levels:
            return self._pass_over(view, start)
        reason: Reason | None = "lost" if due.is_lost else None if window is None else window.reason
        if window is not None and reason is None:
            return self._draw(due, Offer(view, start, window.levels), window)
        offer = paid.get(Call(view.name, start)) if reason is None else None
        return self._refuse(due, reason or "budget") if offer is None else self._draw(due, offer)

    def _affordable(self, offer: Offer, *, alone: bool) -> Offer | None:
        """Reserve for what the ledger pays for, and return that; None if it pays for nothing.

        That is all levels. If it does not pay for them, the view may say that the finest level of an audience that it
        pays for goes to all audiences that may have a finer one. If it pays for none, it may pay for the coarsest with
        fewer keys. Both are found out alone, with nothing else reserved.
        """
        view, start, levels = offer
        finest_first = sorted(set(levels.values()), reverse=True)
        for most in finest_first if view.falls_back and alone else finest_first[:1]:
            if self._state.accounts.reserve(view, Call(view.name, start), view.cost(most)):
                return Offer(view, start, {name: min(level, most) for name, level in levels.items()})
        shorter = self._shorter(offer) if view.falls_back and alone else None
        return None if shorter is None else self._affordable(Offer(shorter, start, levels), alone=alone)

    def _shorter(self, offer: Offer) -> ViewPlan | None:
        """Return a view with as many keys as can be paid for at the coarsest level, fewer than all; None if none can.

        How many follows from what was published before (docs/budgets.md, "Pay what you get").
        """
        view, start, levels = offer
        accounts, coarsest = self._state.accounts, min(levels.values())
        views = [replace(view, kind=kind) for kind in view.kind.shorter]
        room = accounts.room(view, start)
        at = bisect_left(
            views, True, key=lambda one: not accounts.added(one, start, Cost.ZERO, one.cost(coarsest)) <= room
        )
        return views[at - 1] if at else None

    def _is_lost(self, view: ViewPlan, start: int) -> bool:
        return self._lost.has(view, start) or self._state.arrivals.is_lost(view.name, start)

    def _offer(self, view: ViewPlan, start: int) -> Offer:
        levels = {name: self._state.clearances.level(view, name, start) for name in sorted(view.audiences)}
        return Offer(view, start, {audience: level for audience, level in levels.items() if level >= 0})

    def _due(self, view: ViewPlan, start: int) -> _Due:
        state, is_lost = self._state, self._is_lost(view, start)
        buckets = [bucket for bucket in stored_buckets(view.name, start, state.rows) if is_lost or not bucket.lost]
        closed_ms = max((bucket.closed_ms for bucket in buckets), default=0)
        slot = max(state.slots.after(closed_ms), state.last_slot(view))  # in order, though clocks go back
        is_interrupted = any(bucket.interrupted for bucket in buckets)
        counts = [bucket.counts for bucket in buckets]
        return _Due(self._offer(view, start), counts, closed_ms, slot, is_lost, is_interrupted)

    def _refuse(self, due: _Due, reason: Reason) -> _Released:
        offer, builder = due.offer, self._record_builder
        view, start, levels = offer
        asked = Cost.ZERO if reason == "lost" else view.cost(max(levels.values(), default=0))
        row = WindowRow(refused=True, slot_ms=due.slot_ms, lost=reason == "lost")
        booking = self._state.accounts.booking(view, start, asked)
        if view.window.shape.is_sum:
            leaving = self._sums.first(offer, row)
        else:
            row.refused_grants = dict.fromkeys(levels, 0)
            leaving = builder.refusals(offer, 1, Denial(asked, reason), booking)
        if view.window.pays(start):
            leaving.append(builder.refusal(offer, 1, booking))
        became = {"windows_lost" if row.lost else "windows_refused": 1}
        return self._store(view, start, row, leave(view, start, row, row.slot_ms, leaving), **became)

    def _draw(self, due: _Due, offer: Offer, window: Begun | None = None) -> _Released:
        """Seal a window, charge it if it was reserved for, and return what is stored and released of it.

        Args:
            due: the window.
            offer: the same with the levels that are released.
            window: what a pane of a running total continues from.
        """
        state, builder = self._state, self._record_builder
        view, start, levels = offer
        sealed = self._sealed(view, start, due)
        paid = {} if window is None else window.paid
        states = {name: AudienceState(1, level, steps=paid.get(name, [level])) for name, level in levels.items()}
        row = WindowRow(False, due.slot_ms, states, key_id=sealed.key_id, secret=sealed.secret)
        row.interrupted = due.is_interrupted or (window is not None and window.is_interrupted)
        entries = list[Addressed]()
        if view.window.pays(start):
            call = Call(view.name, start)
            charge = price(view, call, sealed.table, row)
            row.charge_step(row.finest)
            booking = state.accounts.charge(view, call, charge, view.cost(max(levels.values())))
            entries = [builder.charge(offer, sealed.table, row.states, -1, booking)]
        else:
            booking = state.accounts.booking(view, start)
        if view.window.shape.is_sum:
            leaving = self._sums.first(offer, row, sealed.table)
        else:
            blocks = () if window is None else window.blocks
            leaving = builder.releases(offer, [*blocks, (sealed.table, sealed.noise)], row, booking)
        before = [
            *table_rows(view.name, start, sealed.table),
            *block_rows(view, start, sealed.counts),
            *leave(view, start, row, row.slot_ms, [*leaving, *entries]),
        ]
        unknown = {} if sealed.unknown is None else {"events_unknown": sealed.unknown}
        stored = self._store(view, start, row, before, windows_released=1, **unknown)
        state.clearances.queue_released(state.views[view.name], start, row)
        return stored

    def _sealed(self, view: ViewPlan, start: int, due: _Due) -> _Sealed:
        rows, kind, fresh, unknown = self._state.rows, view.kind, summed(due.counts), None
        key_id, secret = self._state.keys.newest
        own = own_secret(view.noise_name(start), self._entropy)
        noise = WindowNoise.of(view.noise_name(start), secret, own)
        fixed = list_of_window(view, start, rows)
        lists = self._lists(view.name, due.closed_ms) if fixed is None else dict.fromkeys(kind.topics, fixed)
        if kind.topics and (domain := kind.domain(lists)) is not None:  # a fixed list was looked at before
            unknown, fresh = outside(domain, fresh), {key: fresh[key] for key in fresh if key in domain}
        inner = [*inner_counts(view, start, rows)]
        counts = summed([fresh, *inner]) if inner else fresh
        table = kind.seal(counts, Sealing(noise, self._entropy, lists))
        return _Sealed(counts, table, noise, key_id, own, unknown)

    def _pass_over(self, view: ViewPlan, start: int) -> _Released:
        """Forget the counts of a window that is not released: nobody may see it, or it is in no period alone."""
        state = self._state
        state.arrivals.forget(view.name, start)
        counts = window_key(BUCKET, view.name, start)
        state.marks[view.name].next_ms = view.window.shape.next(start)
        return _Released([state.row(view), *deletions(counts, state.rows)])

    def _store(
        self,
        view: ViewPlan,
        start: int,
        row: WindowRow,
        before: Sequence[Change],
        **amounts: int,
    ) -> _Released:
        """Store a window and let it leave; forget its counts in the table, and count what became of it."""
        state = self._state
        state.passed(view, row)
        state.arrivals.forget(view.name, start)
        forgotten = [window_key(BUCKET, view.name, start), *used_blocks(view, start, refused=row.refused)]
        return _Released(
            [
                *before,
                (window_key(WINDOW, view.name, start), encode(row)),
                *state.advance(view, start, publishes_window=row.publishes_window),
                *(change for prefix in forgotten for change in deletions(prefix, state.rows)),
            ],
            Leave(view.name, start, row.slot_ms),
            [TotalChange(name, view.name, amount, start, 1) for name, amount in amounts.items()],
        )

    # -- sharper revisions ------------------------------------------------------------------------------------

    def sharpened(self, request: SharpeningRequest, row: WindowRow) -> list[Change]:
        """The rows that give one audience one window at a finer level: reservation, records, window, charge.

        Of a pane, what leaves is the window that ends with it, where that got finer. Nothing, if nothing is to leave.

        Args:
            request: the window, the audience and the level.
            row: the row of the window, whose key is not retired; changed in place.
        """
        view, start, audience, level, slot, *_ = request
        before, leaving, behind = list[Change](), list[Addressed](), list[Change]()
        had = {audience: row.has(audience)}
        if not view.window.pays(start):
            leaving = self._following(request, row)
        elif row.states.get(audience, NOTHING).level < level:
            before, leaving, behind = self._finer(request, row)
        if row.sum is not None:
            leaving = [*self._sums.again(request, row), *leaving]
        if not leaving:
            return []
        left = leave(view, start, row, slot, leaving, had)
        return [*before, *left, (window_key(WINDOW, view.name, start), encode(row)), *behind]

    def _following(self, request: SharpeningRequest, row: WindowRow) -> list[Addressed]:
        """A later pane of a window that is charged as a whole: as fine as its first pane was paid for."""
        view, start, audience, level, *_ = request
        first, had = first_row(view, start, self._state.rows), row.states.get(audience, NOTHING)
        of_window = NOTHING if first is None else first.states.get(audience, NOTHING)
        paid = min(level, of_window.level)
        blocks = earlier_blocks(self._state, view, start) if paid > had.level else None
        if blocks is None:
            return []
        row.states[audience] = AudienceState(had.revision + 1, paid, had.parts, of_window.steps_to(paid))
        booking, offer = self._state.accounts.booking(view, start), Offer(view, start, {audience: paid})
        own = self._state.sealed(view, start, row)
        return self._record_builder.releases(offer, [*blocks, own], row, booking)

    def _finer(self, request: SharpeningRequest, row: WindowRow) -> tuple[list[Change], list[Addressed], list[Change]]:
        """Return the rows before the window's, the records to publish (of a pane the entry), and the rows after."""
        view, start, audience, level, *_ = request
        accounts, builder, offer = self._state.accounts, self._record_builder, Offer(view, start, {audience: level})
        had, finest, accounted = row.states.get(audience, NOTHING), row.finest, row.accounted_level(audience)
        call, number = Call(view.name, start, audience, accounted, level, finest), had.revision + 1
        table, noise = self._state.sealed(view, start, row)
        charge = price(view, call, table, row)
        if not accounts.reserve(view, call, charge.cost, charge.before):
            request.refuse(row)
            refused = accounts.booking(view, start, charge.cost)
            # Not `charge.cost`: that tells what other audiences have of the window. It is at most what the record says.
            own = view.request(level, had.level)
            leaving = (
                [] if row.sum is not None else builder.refusals(offer, number, Denial.for_now(own, had.level), refused)
            )
            return [], [*leaving, builder.refusal(offer, number, refused)], []
        before = accounts.rows()
        booking = accounts.charge(view, call, charge)
        row.charge_step(level)
        row.states[audience] = AudienceState(number, level, had.parts, [*had.steps, level])
        leaving = [] if row.sum is not None else builder.releases(offer, [(table, noise)], row, booking)
        leaving.append(builder.charge(offer, table, row.states, finest, booking))
        return before, leaving, accounts.rows()
