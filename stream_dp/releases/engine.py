"""The release engine: reserve, draw, store; the views whose ledgers live in one partition.

Every method is a step (see `stream_dp.windows.effects`). What a crash leaves behind, at each cut:

* before the reservation is stored: nothing happened; if it is the first of its period, what the period promises may
  stand alone, and is written again, as it is configured then;
* after it: nothing was stored or shown; `load` drops the reservation, and the next attempt draws anew;
* inside the commit that stores a window: the window's row is the commit point. Before it, as above; rows of the table
  and of records that stand already are deleted by `load` (`releases.pieces`). After it the ledger may still hold the
  reservation; `load` finds the row and turns it into the charge. The charge and the end of the reservation are two
  rows; the charge names its call, so that it is not made twice;
* after the commit: the records stand in the window's outbox until they have left (`releases.outboxes`). Releasing ends
  here: a window's records leave at its slot, and a slot is not waited for.

So what was charged always covers what was published, a window is drawn once, and every window leaves at its turn,
empty or not: the data trigger, delay and suppress nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from stream_dp.config.plan import ViewPlan
from stream_dp.control.grants import Order
from stream_dp.exact.bits import Entropy
from stream_dp.kinds.lists import KeyList
from stream_dp.releases.accounts import Accounts
from stream_dp.releases.clearances import Clearances, SharpeningRequests
from stream_dp.releases.expiry import Retention
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.leftover import Leftover
from stream_dp.releases.losses import (
    UNPUBLISHED,
    Published,
    check_unknown,
    expired_windows,
    lost_state,
    lost_windows,
    write_off,
)
from stream_dp.releases.outboxes import BYTES_AT_ONCE, revoked
from stream_dp.releases.panes import Sums, leftover_blocks, used_range
from stream_dp.releases.pieces import (
    Change,
    leftovers,
)
from stream_dp.releases.publication import RecordBuilder
from stream_dp.releases.releasing import Arrivals, Releasing
from stream_dp.releases.rows import (
    BLOCK,
    BUCKET,
    NOTHING,
    OUTBOX,
    TABLE,
    WINDOW,
    ViewRow,
    WindowRow,
    merged_key,
    sealing_keys,
    stored_view,
)
from stream_dp.releases.sharpening import Sharpening
from stream_dp.releases.totals import TotalChange, counted, rolled_back
from stream_dp.releases.unlocks import Ages, Unlocks
from stream_dp.releases.view_definitions import ViewDefinitions
from stream_dp.windows.durations import Slots
from stream_dp.windows.effects import Ahead, Commit, Effect, Erase, Leave, Message, Rows, Send, Step
from stream_dp.windows.encoding import after, decode, encode, text, window_key, window_start
from stream_dp.windows.merging import MergedBucket, drop_except

RELEASED_AT_ONCE = 8
"""Windows that one step releases: between two steps the runtime looks whether the partition is still its own."""
SHARPENED_AT_ONCE = 8
"""Windows that one step sharpens, in one commit; fewer, if their rows come to `BYTES_AT_ONCE`."""


class ReleaseEngine:
    """Releases and sharpens windows.

    Guarantee: all records it publishes under one ledger and period are together (epsilon, delta)-DP for a user, with
    the ledger's budget, to all audiences and to whoever holds the stored state; specs/lossless 3.2.
    """

    def __init__(
        self,
        views: Sequence[ViewPlan],
        starts: Mapping[str, int],
        *,
        slots: Slots,
        keys: KeyRing,
        entropy: Entropy,
        lists: Callable[[str, int], Mapping[str, KeyList]],
        topic: Callable[[str, str], str],
        accounts: str,
        withdrawal: Callable[[MergedBucket], Message],
        declare_lost: Callable[[str, int], Sequence[Message]],
        gaps: bool = False,
        unknown_before: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Set up the engine; `load` makes it ready.

        Args:
            views: the views whose ledger lives in this partition.
            starts: start of each view's first window, ms.
            slots: when records leave.
            keys: the secrets that coarser levels are derived from.
            entropy: source of fresh noise.
            lists: the public lists of a view that stand in topics, by topic, as they hold for a window that closed at a
                time, in ms.
            topic: the public topic of a view and an audience.
            accounts: the operators' topic of the accounts.
            withdrawal: the tombstone that erases a merged bucket from its topic; sent once the bucket is stored.
            declare_lost: asks the counters of a view to stand in for what they handed on, from a window on. What stands
                in is taken for windows that wait, and in them for buckets that have not come.
            gaps: whether a topic in which counts stand on their way here was ever lost: windows may miss some.
            unknown_before: by view, the start of the first window whose counts were not lost with their counters.
        """
        self._views = {view.name: view for view in views}
        self._marks = {view.name: ViewRow(view.fingerprint, *[starts[view.name]] * 3) for view in views}
        self._slots = slots
        self._keys = keys
        self._withdrawal = withdrawal
        self._topic = topic
        self._clearances = Clearances(self._views, self._marks, keys.secrets, slots)
        self._arrivals = Arrivals()
        self._declare_lost = declare_lost
        self._gaps = gaps
        self._unknown_before = unknown_before
        self._accounts = Accounts(self._views)
        self._definitions = definitions = ViewDefinitions(self._views, self._marks)
        record_builder = RecordBuilder(topic, accounts)
        sums = Sums(record_builder, keys.secrets)
        self._retention = Retention(self._marks, topic)
        self._sharpening = Sharpening(self._accounts, record_builder, sums, keys.secrets)
        self._releasing = Releasing(
            definitions,
            self._accounts,
            self._clearances,
            self._arrivals,
            record_builder,
            sums,
            slots=slots,
            keys=keys,
            entropy=entropy,
            lists=lists,
            unknown_before=unknown_before,
        )
        self._ages = ages = Ages(definitions, slots, self._releasing.last_slot)
        self._unlocks = Unlocks(definitions, self._clearances, ages)
        self._leftover = Leftover(definitions, self._accounts, self._clearances, ages)
        self._requests: list[SharpeningRequests] = [self._clearances, self._unlocks, self._leftover]

    @property
    def views(self) -> Collection[ViewPlan]:
        """The views whose ledger lives in this partition."""
        return self._views.values()

    @property
    def withheld(self) -> Mapping[str, Collection[str]]:
        """By audience that came later, the views of which it has no retained windows until a grant pays for them."""
        return self._clearances.withheld

    def load(self, rows: Rows, published: Published = UNPUBLISHED, *, accept_loss: bool = False, now_ms: int) -> Step:
        """Read the state and finish what a crash cut short; erase counts of views that are no longer configured.

        What is complete or ordered is carried out by `due`, as long as `waits`.

        Args:
            rows: the partition's table.
            published: what was found in the public topics of the views, read after what others stored is in the table.
            accept_loss: go on where windows were published that are not stored: charge them at worst, never release
                them again. All that was published is needed then.
            now_ms: the wall time, from which the slot of windows follows that audiences came later than.

        Raises:
            ConfigError: a view was changed in a way that the stored releases do not fit; or the key of a retained
                window is missing; or state was lost, which is not accepted, or of too many windows. Nothing has been
                published.
        """
        if undone := rolled_back(rows):
            yield Commit(undone)
        lost: dict[str, Sequence[int]] = {}
        for name, mark in self._marks.items():
            former = stored_view(name, rows)
            if former is not None:
                mark.check(name, former)
                mark.next_ms, mark.kept_ms, mark.published_ms = former.next_ms, former.kept_ms, former.published_ms
            else:
                behind = self._definitions.first(self._views[name], mark.next_ms, rows)
                mark.next_ms = mark.kept_ms = mark.published_ms = behind
            self._keys.check(name, sealing_keys(name, rows))
            if found := lost_windows(self._views[name], former, published.get(name, ()), rows):
                gone = expired_windows(self._views[name], published.get(name, ()), rows) if accept_loss else []
                lost[name] = sorted({*found, *gone})
        if lost and not accept_loss:
            raise lost_state(lost)
        lost = self._definitions.with_earlier(lost, published, rows)
        yield Commit([self._definitions.row(view) for view in self.views if view.name not in lost])
        for kind in (BUCKET, BLOCK):
            yield from drop_except(kind, tuple(kind + text(name) for name in self._views), rows)
        yield from self._accounts.load(rows)
        for name, starts in lost.items():
            yield from write_off(self._views[name], starts, self._marks[name], self._accounts, self._declare_lost, rows)
        self._clearances.load(rows, now_ms)
        self._ages.tell(now_ms)
        over = self._unlocks.load(rows)
        for view in self._views.values():
            yield from self._settle_view(view, rows)
            check_unknown(view, self._marks[view.name].next_ms, self._unknown_before)
        aged = self._definitions.aged(self._ages.without_view_ms, rows)
        if changed := [*over, *self._leftover.load(rows), *self._clearances.carry_out(rows, now_ms), *aged]:
            yield Commit(changed)
        if self._gaps:
            yield Send([ask for name, mark in self._marks.items() for ask in self._declare_lost(name, mark.next_ms)])
        for kind in (BUCKET, BLOCK):
            yield Erase(kind, after(kind))

    def _settle_view(self, view: ViewPlan, rows: Rows) -> Iterator[Effect]:
        """Step over stored windows, let leave what is in their outboxes, note the buckets of those that wait."""
        mark = self._marks[view.name]
        prefix = WINDOW + text(view.name)
        departures, void = [], list[Change]()
        oldest: int | None = None
        newest: tuple[int, WindowRow] | None = None
        for key, value in rows.scan(prefix, after(prefix)):
            row = decode(WindowRow, value)
            start = window_start(WINDOW, view.name, key)
            void += self._revoked(view, start, row, rows)
            newest = start, row
            self._releasing.passed(view, row)
            departures += [(start, departure) for departure in row.outbox]
            self._clearances.queue_catch_up(view, start, row)
            oldest = start if oldest is None and not row.expires else oldest
        if void:
            yield Commit(void)
        if newest is not None and mark.next_ms <= newest[0]:  # a crash left out what stands behind its row
            start, row = newest
            yield Commit(self._definitions.advance(view.at(start), start, publishes_window=row.publishes_window))
        self._retention.begin(view, mark.next_ms if oldest is None else oldest)
        buckets, due = BUCKET + text(view.name), window_key(BUCKET, view.name, mark.next_ms)
        until = after(buckets) if view.until_ms is None else max(due, window_key(BUCKET, view.name, view.until_ms))
        nobodys = [*rows.scan(buckets, due), *rows.scan(until, after(buckets))]
        if over := [(key, None) for key, _ in nobodys]:
            yield Commit([self._definitions.row(view), *over])
        blocks = leftover_blocks(view, mark.next_ms, rows)
        if left := [*leftovers(view.name, mark.next_ms, departures, rows), *blocks]:
            yield Commit(left)
            for kind in (TABLE, OUTBOX, BLOCK):
                yield Erase(kind + text(view.name), after(kind + text(view.name)))
        for start, departure in departures:
            yield Leave(view.name, start, departure.slot_ms)
        for _, value in rows.scan(due, until):
            self._arrivals.take(decode(MergedBucket, value))

    def _revoked(self, view: ViewPlan, start: int, row: WindowRow, rows: Rows) -> list[Change]:
        def most(audience: str) -> int:
            return self._clearances.most(view, audience, start)

        changed = revoked(view, start, row, most, self._topic, rows) if row.outbox else []
        if changed:  # whoever has less of it now than they may see gets that in its place
            self._clearances.queue_released(view, start, row)
        return changed

    def _all_revoked(self, rows: Rows) -> Iterator[Change]:
        for view in self._views.values():
            prefix = WINDOW + text(view.name)
            for key, value in rows.scan(prefix, after(prefix)):
                row, start = decode(WindowRow, value), window_start(WINDOW, view.name, key)
                yield from self._revoked(view, start, row, rows)

    # -- releasing --------------------------------------------------------------------------------------------

    def buckets(self, values: Sequence[bytes | None], rows: Rows) -> Step:
        """Take merged buckets; the windows that they complete are released by `due`, as long as `waits`.

        Args:
            values: encoded buckets as consumed; None is a withdrawal and says nothing.
            rows: the partition's table.
        """
        taken = [decode(MergedBucket, value) for value in values if value is not None]
        awaited = [bucket for bucket in taken if self._awaits(bucket)]
        changed: list[Change] = []
        for bucket in awaited:
            changed += [(merged_key(void), None) for void in self._arrivals.take(bucket)]
            changed.append((merged_key(bucket), encode(bucket)))
        if changed:
            yield Commit(changed)
        if taken:
            yield Send([self._withdrawal(bucket) for bucket in taken])

    def _awaits(self, bucket: MergedBucket) -> bool:
        """Return True if a bucket is of a window that is still to be released, by the definition it was counted for."""
        view = self._views.get(bucket.view)
        is_its_own = view is not None and (view.until_ms is None or bucket.start_ms < view.until_ms)
        return is_its_own and bucket.start_ms >= self._marks[bucket.view].next_ms

    @property
    def waits(self) -> bool:
        """True if a window is complete and its turn has come, or one expires, or somebody has to see one finer."""
        views = self._views.values()
        asked = any(requests.waits for requests in self._requests)
        return asked or any(map(self._is_due, views)) or any(map(self._expires, views))

    def due(self, rows: Rows) -> Step:
        """Release windows that are complete and whose turn it is; or let some expire; or sharpen some.

        The first that there is to do of these: it is `RELEASED_AT_ONCE` at most, in the order of their ends whatever
        view they are of, or `EXPIRED_AT_ONCE` of a view, or `SHARPENED_AT_ONCE`.
        """
        over: list[tuple[ViewPlan, int]] = []
        while len(over) < RELEASED_AT_ONCE and (waiting := [*filter(self._is_due, self._views.values())]):
            view = min(waiting, key=self._turn)
            start = self._marks[view.name].next_ms
            yield from self._releasing.release(view, start, rows)
            over.append((view, start))
        if not over and (past := next(filter(self._expires, self._views.values()), None)) is not None:
            slot = self._slots.after(self._releasing.last_slot(past) + 1)
            yield from self._retention.expire(past, slot, rows)
        elif not over:
            yield from self._sharpen(rows)
        if over and (aged := self._definitions.aged(self._ages.without_view_ms, rows)):
            yield Commit(aged)
        for view, start in over:  # all of them at once: to forget them in the files takes longer than the rest
            prefix = window_key(BUCKET, view.name, start)
            yield Erase(prefix, after(prefix))
            if not view.window.pays(start):
                yield Erase(*used_range(view, start))

    def _is_due(self, view: ViewPlan) -> bool:
        start = self._marks[view.name].next_ms
        if not self._definitions.has_turn(view):
            return False
        complete = self._arrivals.complete(view.name, start) == view.buckets or self._releasing.is_unknown(view, start)
        return complete and not self._is_blocked(view)

    def _is_blocked(self, view: ViewPlan) -> bool:
        """Return True if the time of a view stands still until all that is due by then is carried out."""
        if self._ages.goes_by_the_wall(view):
            return False
        return self._clearances.waits or self._unlocks.holds(view) or self._leftover.holds(view)

    def _expires(self, view: ViewPlan) -> bool:
        return self._retention.is_over(view)

    def _turn(self, view: ViewPlan) -> tuple[int, str]:
        return view.window.shape.end(self._marks[view.name].next_ms), view.name

    # -- sharpening -------------------------------------------------------------------------------------------

    def order(self, order: Order, rows: Rows, *, now_ms: int) -> Step:
        """Take a grant: windows to come use it; `due` lets retained windows of the audience leave again, sharper.

        A grant below what an audience has lowers it: for windows to come, and retained ones become no finer; what waits
        for its slot and is finer does not leave. What was published stays. One with a time is carried out by `tell`.

        Args:
            order: the grant.
            rows: the partition's table.
            now_ms: the wall time, from which the slot of the sharper revisions follows.
        """
        if changed := self._clearances.take(order, rows, now_ms):
            yield Commit([*changed, *self._all_revoked(rows)])

    @property
    def due_ms(self) -> int | None:
        """The earliest time at which `tell` has something to do, None if there is none."""
        expiring = map(self._retention.due_ms, self._views.values())
        due = (self._clearances.due_ms, self._unlocks.due_ms, self._leftover.due_ms, *expiring)
        return min((time for time in due if time is not None), default=None)

    def tell(self, now_ms: int, rows: Rows) -> Step:
        """Take note of the time: what waited for it is carried out by `due`, as long as `waits`.

        Args:
            now_ms: the wall time.
            rows: the partition's table.
        """
        self._ages.tell(now_ms)
        if changed := self._clearances.carry_out(rows, now_ms):
            yield Commit([*changed, *self._all_revoked(rows)])
        if changed := self._definitions.aged(self._ages.without_view_ms, rows):
            yield Commit(changed)

    def _sharpen(self, rows: Rows) -> Iterator[Effect]:
        """Run some of the requests of the first who asks."""
        asking = next((requests for requests in self._requests if requests.waits), None)
        if asking is None:
            return
        changed: list[Change] = []
        leaving, those = list[Leave](), list[TotalChange]()
        left, room, ahead = SHARPENED_AT_ONCE, BYTES_AT_ONCE, Ahead(rows)
        for request, row in asking.requests(ahead):
            left -= 1
            view, start, audience, *_ = request
            had = row.states.get(audience, NOTHING).level
            if sharpened := self._sharpening.sharpened(request, row, ahead):  # else other panes are not finer yet
                ahead.change(sharpened)
                if row.states.get(audience, NOTHING).level > had:
                    self._clearances.queue_shared(request, row)
                    self._clearances.queue_overlapping(request, had, ahead)
                changed += sharpened
                room -= sum(len(value or b"") for _, value in sharpened)
                leaving.append(Leave(view.name, start, row.outbox[-1].slot_ms))
                refused = row.level(audience) < request.level and request.is_refused(row)
                became = "sharpenings_refused" if refused else "windows_sharpened"
                those.append(TotalChange(became, view.name, 1, start, row.departures))
            if left == 0 or room <= 0:
                break
        yield Commit([counted(those, rows), *changed, *asking.progress()])
        yield from leaving
        yield from (one.increment for one in those)
