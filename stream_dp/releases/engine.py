"""The release engine: reserve, draw, store; the views whose ledgers live in one partition.

Every method is a step (see `stream_dp.windows.effects`). What a crash leaves behind, at each cut:

* before the reservation is stored: nothing happened; if it is the first of its period, what the period promises may
  stand alone, and is written again, as it is configured then;
* after it: nothing was stored or shown; `load` drops the reservation, and the next attempt draws anew;
* inside the commit that stores a window: the window's row is the commit point. Before it, as above; rows of the table
  and of records that stand already are deleted by `load` (`releases.pieces`). After it the ledger may still hold the
  reservation; `load` finds the row and turns it into the charge. Of windows that are stored together the charges are
  one row, behind all of them: it ends their reservations as well, so none is charged twice;
* after the commit: the records stand in the window's outbox until they have left (`releases.outboxes`). Releasing ends
  here: a window's records leave at its slot, and a slot is not waited for.

So what was charged always covers what was published, a window is drawn once, and every window leaves at its turn,
empty or not: the data trigger, delay and suppress nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from types import MappingProxyType

from stream_dp.config.plan import ViewPlan
from stream_dp.control.grant_records import Order
from stream_dp.exact.bits import Entropy
from stream_dp.releases.announcements import ANNOUNCEMENT_MS, Announcements
from stream_dp.releases.clearances import Clearances
from stream_dp.releases.expiry import Retention
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.losses import NOTHING_LOST, UNPUBLISHED, LostCounts, Published
from stream_dp.releases.outboxes import BYTES_AT_ONCE, revoked
from stream_dp.releases.panes import leftover_blocks, used_range
from stream_dp.releases.partition_state import PartitionState, goes_by_the_wall
from stream_dp.releases.pieces import leftovers
from stream_dp.releases.publication import Destinations, RecordBuilder
from stream_dp.releases.releasing import Lists, Releasing
from stream_dp.releases.rows import (
    BLOCK,
    BUCKET,
    NOTHING,
    OUTBOX,
    TABLE,
    Change,
    TotalChange,
    WindowRow,
    counted,
    merged_key,
    stored_windows,
)
from stream_dp.releases.unlocks import Leftover, Unlocks
from stream_dp.windows.durations import Slots
from stream_dp.windows.effects import Commit, Effect, Erase, Leave, Rows, Send, Step
from stream_dp.windows.encoding import after, decode, text, window_key
from stream_dp.windows.merging import MergedHead

RELEASED_AT_ONCE = 256
"""Windows that one step releases: between two steps the runtime looks whether the partition is still its own."""
SMALL_BYTES = 64 << 10
"""Counts of the windows that one step releases: a window with more is released alone, so that none waits for it."""
SHARPENED_AT_ONCE = 8
"""Windows that one step sharpens, in one commit; fewer, if their rows come to `BYTES_AT_ONCE`."""


FROM_THE_START: Mapping[str, Mapping[str, int]] = MappingProxyType({})
"""Every audience may see what it may since time 0."""


class ReleaseEngine:
    """Releases and sharpens windows.

    Guarantee: all records it publishes under one ledger and period are together (epsilon, delta)-DP for a user, with
    the ledger's budget, to all audiences and to whoever holds the stored state; specs/lossless 3.2.
    """

    def __init__(
        self,
        views: Sequence[ViewPlan],
        *,
        slots: Slots,
        keys: KeyRing,
        entropy: Entropy,
        lists: Lists,
        destinations: Destinations,
        lost: LostCounts = NOTHING_LOST,
    ) -> None:
        """Set up the engine; `load` makes it ready.

        Args:
            views: the views whose ledger lives in this partition, with their first editions.
            slots: when records leave.
            keys: the secrets that coarser levels are locked with.
            entropy: source of fresh noise.
            lists: the public lists that stand in topics.
            destinations: where what it sends goes.
            lost: the counts that were lost on their way here.
        """
        self._state = state = PartitionState(views, slots, keys)
        self._destinations = destinations
        self._lost = lost
        self._releasing = Releasing(state, RecordBuilder(destinations), lost=lost, entropy=entropy, lists=lists)
        self._retention = Retention(state, destinations)
        self._announcements = Announcements(state, destinations)
        self._unlocks = Unlocks(state)
        self._leftover = Leftover(state)
        self._requests: list[Clearances | Unlocks | Leftover] = [state.clearances, self._unlocks, self._leftover]

    @property
    def views(self) -> Collection[ViewPlan]:
        """The views whose ledger lives in this partition."""
        return self._state.views.values()

    @property
    def over(self) -> list[ViewPlan]:
        """The removed views whose windows have all passed their retention."""
        removed = [view for view in self.views if view.is_removed]
        unfinished = {view.view for view in removed if not self._retention.is_finished(view)}
        return [view for view in removed if view.view not in unfinished]

    @property
    def withheld(self) -> Mapping[str, Collection[str]]:
        """By audience that came later, the views of which it has no retained windows until a grant pays for them."""
        return self._state.clearances.withheld

    def load(
        self,
        rows: Rows,
        published: Published = UNPUBLISHED,
        *,
        accept_loss: bool = False,
        now_ms: int,
        disclosed_ms: Mapping[str, Mapping[str, int]] = FROM_THE_START,
    ) -> Step:
        """Read the state and finish what a crash cut short; erase counts of views that are no longer configured.

        What is complete or ordered is carried out by `due`, as long as `waits`.

        Args:
            rows: the partition's table.
            published: what was found in the public topics of the views, read after what others stored is in the table.
            accept_loss: go on where windows were published that are not stored: charge them at worst, never release
                them again. All that was published is needed then.
            now_ms: the wall time, from which the slot of windows follows that audiences came later than.
            disclosed_ms: when the settings that last changed what an audience may see were accepted, by view and
                audience. Records that they withhold are void from then on.

        Raises:
            ConfigError: a view was changed in a way that the stored releases do not fit; or the key of a retained
                window is missing; or state was lost, which is not accepted, or of too many windows. Nothing has been
                published.
        """
        state, declare_lost = self._state, self._destinations.declare_lost
        yield from state.load(rows, published, declare_lost, now_ms, accept_loss=accept_loss)
        over = self._unlocks.load()
        yield from self._announcements.waiting()  # before the releases that they are about
        for view in self.views:
            yield from self._settle_view(view, self._lowered_ms(view, disclosed_ms))
            self._lost.check(view, state.marks[view.name].next_ms)
        if announced := self._announcements.load(self._retention.oldest):
            yield Commit(announced)
            yield from self._announcements.waiting()
        aged = state.aged()
        if changed := [*over, *self._leftover.load(), *state.clearances.carry_out(now_ms), *aged]:
            yield Commit(changed)
        if self._lost.on_the_way:
            yield Send([ask for name, mark in state.marks.items() for ask in declare_lost(name, mark.next_ms)])
        for kind in (BUCKET, BLOCK):
            yield Erase(kind, after(kind))

    def _lowered_ms(self, view: ViewPlan, disclosed_ms: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
        """Return from when on settings may have taken something from each audience.

        What a grant took away was void from its time on when it was carried out. Were that looked at again here, with
        the time of the settings, a restart would decide what else is void.
        """
        settings_ms = disclosed_ms.get(view.view, {})
        granted_ms = self._state.clearances.granted_ms
        return {audience: max(settings_ms.get(audience, 0), granted_ms(audience)) for audience in view.readers}

    def _settle_view(self, view: ViewPlan, lowered_ms: Mapping[str, int]) -> Iterator[Effect]:
        """Step over stored windows, let leave what is in their outboxes, note the buckets of those that wait."""
        state, rows, mark = self._state, self._state.rows, self._state.marks[view.name]
        departures, void = [], list[Change]()
        oldest: int | None = None
        newest: tuple[int, WindowRow] | None = None
        for start, row in stored_windows(view.name, rows):
            void += self._revoked(view, start, row, lowered_ms)
            newest = start, row
            state.passed(view, row)
            departures += [(start, departure) for departure in row.outbox]
            state.clearances.queue_catch_up(view, start, row)
            oldest = start if oldest is None and not row.expires else oldest
        if void:
            yield Commit(void)
        if newest is not None and mark.next_ms <= newest[0]:  # a crash left out what stands behind its row
            start, row = newest
            yield Commit(state.advance(view.at(start), start, publishes_window=row.publishes_window))
        self._retention.oldest[view.name] = mark.next_ms if oldest is None else oldest
        buckets, due = BUCKET + text(view.name), window_key(BUCKET, view.name, mark.next_ms)
        until = after(buckets) if view.until_ms is None else max(due, window_key(BUCKET, view.name, view.until_ms))
        nobodys = [*rows.scan(buckets, due), *rows.scan(until, after(buckets))]
        if over := [(key, None) for key, _ in nobodys]:
            yield Commit([state.row(view), *over])
        blocks = leftover_blocks(view, mark.next_ms, rows)
        if left := [*leftovers(view.name, mark.next_ms, departures, rows), *blocks]:
            yield Commit(left)
            for kind in (TABLE, OUTBOX, BLOCK):
                yield Erase(kind + text(view.name), after(kind + text(view.name)))
        for start, departure in departures:
            yield Leave(view.name, start, departure.slot_ms)
        for _, value in rows.scan(due, until):
            state.arrivals.take(decode(MergedHead, value), len(value))

    def _revoked(self, view: ViewPlan, start: int, row: WindowRow, lowered_ms: Mapping[str, int]) -> list[Change]:
        changed = revoked(self._state, self._destinations, view, start, row, lowered_ms) if row.outbox else []
        if changed:  # whoever has less of it now than they may see gets that in its place
            self._state.clearances.queue_released(view, start, row)
        return changed

    def _all_revoked(self, lowered_ms: Mapping[str, int]) -> Iterator[Change]:
        for view in self.views:
            for start, row in stored_windows(view.name, self._state.rows):
                yield from self._revoked(view, start, row, lowered_ms)

    # -- releasing --------------------------------------------------------------------------------------------

    def buckets(self, values: Sequence[bytes | None]) -> Step:
        """Take merged buckets; the windows that they complete are released by `due`, as long as `waits`.

        Args:
            values: encoded buckets as consumed; None is a withdrawal and says nothing.
        """
        taken = [(decode(MergedHead, value), value) for value in values if value is not None]
        changed: list[Change] = []
        for bucket, value in taken:
            if self._awaits(bucket):
                changed += [(merged_key(void), None) for void in self._state.arrivals.take(bucket, len(value))]
                changed.append((merged_key(bucket), value))
        if changed:
            yield Commit(changed)
        if taken:
            yield Send([self._destinations.withdrawal(bucket) for bucket, _ in taken])

    def _awaits(self, bucket: MergedHead) -> bool:
        """Return True if a bucket is of a window that is still to be released, by the definition it was counted for."""
        view = self._state.views.get(bucket.view)
        is_its_own = view is not None and (view.until_ms is None or bucket.start_ms < view.until_ms)
        return is_its_own and bucket.start_ms >= self._state.marks[bucket.view].next_ms

    @property
    def waits(self) -> bool:
        """True if a window is complete and its turn has come, or one expires, or somebody has to see one finer."""
        asked = any(requests.waits for requests in self._requests)
        return asked or any(map(self._is_due, self.views)) or any(map(self._retention.is_over, self.views))

    def due(self) -> Step:
        """Release windows that are complete and whose turn it is; or let some expire; or sharpen some.

        The first that there is to do of these: it is `RELEASED_AT_ONCE` at most, in the order of their ends whatever
        view they are of, or `EXPIRED_AT_ONCE` of a view, or `SHARPENED_AT_ONCE`.
        """
        state, over = self._state, self._group()
        if over:
            yield from self._releasing.release(over, self._is_due)
        if not over and (past := next(filter(self._retention.is_over, self.views), None)) is not None:
            slot = state.slots.after(state.last_slot(past) + 1)
            yield from self._retention.expire(past, slot)
            if announced := self._announcements.expire(past.name, self._retention.oldest[past.name]):
                yield Commit(announced)
                yield Leave(past.name, ANNOUNCEMENT_MS, slot)
        elif not over:
            yield from self._sharpen()
        if over and (aged := state.aged()):
            yield Commit(aged)
        for view, start in over:  # all of them at once: to forget them in the files takes longer than the rest
            prefix = window_key(BUCKET, view.name, start)
            yield Erase(prefix, after(prefix))
            if not view.window.pays(start):
                yield Erase(*used_range(view, start))

    def _group(self) -> list[tuple[ViewPlan, int]]:
        """Return the windows that are released together: of those at hand the ones that end first."""
        state, group, room = self._state, list[tuple[ViewPlan, int]](), SMALL_BYTES
        turns = [self._turn(view, state.marks[view.name].next_ms) for view in self.views if self._is_due(view)]
        heapify(turns)
        while turns and len(group) < RELEASED_AT_ONCE:
            _, name, start = heappop(turns)
            view = state.views[name]
            room -= state.arrivals.size(name, start)
            if group and room < 0:
                break
            group.append((view, start))
            following = view.window.shape.next(start)
            if view.until_ms is not None and following >= view.until_ms:
                break  # the next definition of the view has its turn from here on
            if self._is_complete(view, following):
                heappush(turns, self._turn(view, following))
        return group

    def _is_due(self, view: ViewPlan) -> bool:
        has_come = self._is_complete(view, self._state.marks[view.name].next_ms)
        return has_come and self._state.has_turn(view) and not self._is_blocked(view)

    def _is_complete(self, view: ViewPlan, start: int) -> bool:
        complete = self._state.arrivals.complete(view.name, start)
        return complete == view.buckets or self._lost.has(view, start)

    def _is_blocked(self, view: ViewPlan) -> bool:
        """Return True if the time of a view stands still until all that is due by then is carried out."""
        if goes_by_the_wall(view):
            return False
        return self._state.clearances.waits or self._unlocks.holds(view) or self._leftover.holds(view)

    @staticmethod
    def _turn(view: ViewPlan, start: int) -> tuple[int, str, int]:
        return view.window.shape.end(start), view.name, start

    # -- sharpening -------------------------------------------------------------------------------------------

    def order(self, order: Order, *, now_ms: int) -> Step:
        """Take a grant: windows to come use it; `due` lets retained windows of the audience leave again, sharper.

        A grant below what an audience has lowers it: for windows to come, and retained ones become no finer; what waits
        for its slot and is finer does not leave. What was published stays. One with a time is carried out by `tell`.

        Args:
            order: the grant.
            now_ms: the wall time, from which the slot of the sharper revisions follows.
        """
        if changed := self._state.clearances.take(order, now_ms):
            yield Commit([*changed, *self._all_revoked({order.audience: order.given_ms})])

    @property
    def due_ms(self) -> int | None:
        """The earliest time at which `tell` has something to do, None if there is none."""
        expiring = map(self._retention.due_ms, self.views)
        due = (self._state.clearances.due_ms, self._unlocks.due_ms, self._leftover.due_ms, *expiring)
        return min((time for time in due if time is not None), default=None)

    def tell(self, now_ms: int) -> Step:
        """Take note of the time: what waited for it is carried out by `due`, as long as `waits`.

        Args:
            now_ms: the wall time.
        """
        self._state.tell(now_ms)
        clearances = self._state.clearances
        while (due_ms := clearances.due_ms) is not None and due_ms <= now_ms:
            lowered_ms = dict.fromkeys(clearances.due_audiences(due_ms), due_ms)
            yield Commit([*clearances.carry_out(due_ms), *self._all_revoked(lowered_ms)])
        if changed := self._state.aged():
            yield Commit(changed)

    def _sharpen(self) -> Iterator[Effect]:
        """Run some of the requests of the first who asks."""
        asking = next((requests for requests in self._requests if requests.waits), None)
        if asking is None:
            return
        changed: list[Change] = []
        leaving, those = list[Leave](), list[TotalChange]()
        left, room = SHARPENED_AT_ONCE, BYTES_AT_ONCE
        clearances = self._state.clearances
        with self._state.ahead() as ahead:
            for request, row in asking.requests():
                left -= 1
                view, start, audience, *_ = request
                had = row.states.get(audience, NOTHING).level
                if sharpened := self._releasing.sharpened(request, row):  # else other panes are not finer yet
                    ahead.change(sharpened)
                    if row.states.get(audience, NOTHING).level > had:
                        clearances.queue_shared(request, row)
                        clearances.queue_overlapping(request, had)
                    changed += sharpened
                    room -= sum(len(value or b"") for _, value in sharpened)
                    leaving.append(Leave(view.name, start, row.outbox[-1].slot_ms))
                    refused = row.level(audience) < request.level and request.is_refused(row)
                    became = "sharpenings_refused" if refused else "windows_sharpened"
                    those.append(TotalChange(became, view.name, 1, start, row.departures))
                if left == 0 or room <= 0:
                    break
        yield Commit([counted(those, self._state.rows), *changed, *asking.progress()])
        yield from leaving
        yield from (one.increment for one in those)
