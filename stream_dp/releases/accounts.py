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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from types import MappingProxyType
from typing import NamedTuple, Self

import msgspec

from stream_dp.accounting import (
    Cost,
    Dearest,
    Ledger,
    Overdraft,
    cancel,
    commit,
    decode_cost,
    encode_cost,
    reserve,
    write_off,
)
from stream_dp.accounting import decode as decode_ledger
from stream_dp.accounting import encode as encode_ledger
from stream_dp.accounting.ledger import Rational
from stream_dp.config.plan import FINGERPRINT_BYTES, LedgerPlan, PoolPlan, ViewPlan
from stream_dp.config.shares import Shares, most_of
from stream_dp.errors import StateError
from stream_dp.kinds.sealing import SealedTable
from stream_dp.releases.pieces import stored_table
from stream_dp.releases.rows import LEDGER, PROMISE, Call, Change, WindowRow, stored_window
from stream_dp.windows.effects import Commit, Effect, Rows
from stream_dp.windows.encoding import after, decode, encode, moment, moment_at
from stream_dp.windows.shapes.shape import Interval
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import view_of

_PERIOD_AT = len(LEDGER) + FINGERPRINT_BYTES
_END_AT = _PERIOD_AT + len(moment(0))
_LEDGER_BYTES = _END_AT + len(moment(0))

NO_SHARES: Mapping[str, Cost] = MappingProxyType({})


def difference(view: ViewPlan, table: SealedTable, before: int, level: int) -> Cost:
    """Return the cost of a level beyond the finest that was charged before, -1 for none (specs/lossless 3.2)."""
    return view.spent(table, level) if before < 0 else view.counts(level, before)


class Charge(NamedTuple):
    """Cost of a call, and what its window cost before.

    Attributes:
        cost: of the call, against all audiences together.
        shares: the same against each audience alone that it serves.
        before: cost of the window until then, against all together.
        had: the same against each of `shares` alone.
    """

    cost: Cost
    shares: Mapping[str, Cost]
    before: Cost = Cost.ZERO
    had: Mapping[str, Cost] = MappingProxyType({})


def price(view: ViewPlan, call: Call, table: SealedTable, row: WindowRow) -> Charge:
    """Return the charge of a call, by its window's row as it is before the call or after it."""
    if call.audience:
        of_audience = [level for level in row.accounted_steps(call.audience) if level <= call.before]
        return Charge(
            difference(view, table, call.paid, call.level),
            {call.audience: difference(view, table, call.before, call.level)},
            view.paid(table, [level for level in row.steps if level <= call.paid]),
            {call.audience: view.paid(table, of_audience)},
        )
    return Charge(
        view.spent(table, row.finest),
        {name: view.spent(table, state.level) for name, state in row.states.items()},
    )


def charged_before(view: ViewPlan, start_ms: int, row: WindowRow, rows: Rows) -> Cost:
    """Return what a window was charged until now, where the price of more depends on that; else nothing."""
    if view.windows_per_user is None:
        return Cost.ZERO
    return view.paid(stored_table(view.name, start_ms, rows), row.steps)


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


@dataclass(frozen=True, slots=True)
class Booking:
    """Outcome of a call of a ledger.

    Attributes:
        ledger: the ledger after the step.
        balance: what its period has left after it, and for whom.
        requested: the call's cost at worst.
        charged: what the call added to what is spent; nothing where it was refused.
        shares: what it added to the privacy loss of each audience, alone; none where it was refused.
        is_first: whether nothing was charged for the view in the period before.
    """

    ledger: Ledger
    balance: Balance
    requested: Cost = Cost.ZERO
    charged: Cost = Cost.ZERO
    shares: Mapping[str, Cost] = field(default_factory=dict)
    is_first: bool = True


class Promise(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Promise of a ledger in a period. It is in effect until the period ends, whatever is configured since.

    Caps have to be fixed before the first draw (`accounting.ledger`), so it is stored before the first reservation, and
    all records of the period print it.
    """

    epsilon: Rational
    delta: Rational
    pool: tuple[Rational, Rational, Rational] | None
    """Epsilon, slack and cap."""

    @classmethod
    def of(cls, ledger: LedgerPlan) -> Self:
        """Return the promise of a ledger that is planned like this."""
        total, pool = ledger.total, ledger.pool
        promised = None if pool is None else (str(pool.epsilon), str(pool.slack), str(pool.cap))
        return cls(str(total.epsilon), str(total.delta), promised)

    def plan(self, ledger: LedgerPlan, period: Interval, budget: Cost) -> LedgerPlan:
        """A ledger as it is planned today, but for the period, what it promises and the caps that keep that."""
        total = Cost(Fraction(self.epsilon), Fraction(self.delta))
        pool = None if self.pool is None else PoolPlan(*map(Fraction, self.pool))
        return replace(ledger, total=total, budget=budget, periods=Tiling.of(period), pool=pool)


class PeriodRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Budget that a period began with: its promise, and the part of it that is kept for each view."""

    promise: Promise
    kept: dict[str, bytes]
    """By view, the encoded cost of what is kept for it (`config.shares`)."""


def ledger_key(view: ViewPlan, start_ms: int) -> bytes:
    """The row of a view's ledger in the configured period of a window: of one that is released it holds all."""
    period = view.ledger.periods.interval(start_ms)
    return LEDGER + view.ledger.fingerprint + moment(period.start_ms) + moment(period.end_ms)


def population_of(ledger: bytes) -> bytes:
    """Return the prefix of the keys of all ledgers of a population, by one of them."""
    return ledger[:_PERIOD_AT]


def period_of(ledger: bytes) -> Interval:
    """The period that a ledger is about, by the key of its row.

    Raises:
        StateError: it is no key of a ledger.
    """
    if len(ledger) != _LEDGER_BYTES:
        raise StateError("a stored ledger has a damaged key")
    return Interval(moment_at(ledger, _PERIOD_AT), moment_at(ledger, _END_AT))


def promise_key(ledger: bytes) -> bytes:
    """The row of what a period promises, and keeps for each view, by the key of its ledger."""
    return PROMISE + ledger[len(LEDGER) :]


def period_row(key: bytes, promise: Promise, shares: Shares) -> Change:
    """Return the row of what a period promises, and keeps for each view."""
    kept = {name: encode_cost(cost) for name, cost in sorted(shares.kept.items())}
    return promise_key(key), encode(PeriodRow(promise, kept))


def read_ledgers(rows: Iterable[tuple[bytes, bytes]]) -> dict[bytes, Ledger]:
    """The ledgers among rows, by key.

    Raises:
        StateError: one of them is damaged, overdrawn or of another version.
    """
    return {key: decode_ledger(value) for key, value in rows if key.startswith(LEDGER)}


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
        self._taken: dict[bytes, dict[str, Cost]] = {}
        """By ledger: what each view has spent and reserved."""
        self._aside: dict[bytes, dict[str, Cost]] = {}
        """By ledger: reservations that are stored and that memory has forgotten until the turn of their calls."""
        self._unstored: dict[bytes, list[Change]] = {}
        """By ledger that changed since it was stored: the row that its period begins with, where that begins now."""

    def of(self, view: ViewPlan, start_ms: int) -> tuple[bytes, Ledger]:
        """The ledger that pays for a window, and the key of its row."""
        key = ledger_key(view, start_ms)
        if key not in self._begun:
            window = view.window.charged(start_ms)
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
        rooms = [self._shared(of, view).room(view.view, self._all_taken(of)) for of in periods]
        return reduce(Cost.least, rooms, self.left(view, start_ms))

    def _others(self, key: bytes, view: ViewPlan, start_ms: int) -> list[bytes]:
        """The periods that have begun and that a window is in, even in part, beside the one that pays for it."""
        charged = view.window.charged
        return [other for other in self._overlapping(key) if period_of(other).overlaps(charged(start_ms))]

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

    def _all_taken(self, key: bytes) -> Mapping[str, Cost]:
        """Return what each view has spent and reserved in a period and in others that it overlaps."""
        others = self._overlapping(key)
        taken = self._taken.get(key, {})
        return taken if not others else _added([taken, *(self._taken[other] for other in others)])

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

    def booking(self, view: ViewPlan, start_ms: int, requested: Cost = Cost.ZERO) -> Booking:
        """Return the outcome of a call that the ledger of a window refused just now, or was not asked for."""
        _, ledger = self.of(view, start_ms)
        return Booking(ledger, self.balance(view, start_ms), requested, is_first=view.view not in ledger.views)

    def begins_beside_another(self, view: ViewPlan, start_ms: int) -> bool:
        """Return True if a period begins with a window, and pays from then on for some that another one would pay."""
        key, _ = self.of(view, start_ms)
        return key not in self._begun and bool(self._overlapping(key))

    def reserve(self, view: ViewPlan, call: Call, cost: Cost, before: Cost = Cost.ZERO) -> bool:
        """Reserve the worst-case cost of a call: what a user who is in the dearest windows pays more for it.

        `rows` are to be stored before anything is drawn.

        Args:
            view: the view.
            call: the call.
            cost: of its window at worst, beyond `before`.
            before: cost of the window until now.

        Returns:
            False if the ledger cannot pay.
        """
        key, ledger = self.of(view, call.start_ms)
        more = self.added(view, call.start_ms, before, cost)
        reserved = reserve(ledger, str(call), more, self.room(view, call.start_ms))
        if isinstance(reserved, Overdraft):
            return False
        self._keep(view, key, reserved)
        return True

    def rows(self) -> list[Change]:
        """Return the rows of the ledgers that changed since this was asked: each is one row, however many calls did.

        It holds the reservations that were set aside. The first of a period fix what the period promises.
        """
        unstored, self._unstored = self._unstored, {}
        return [row for key, begins in unstored.items() for row in (*begins, (key, encode_ledger(self._whole(key))))]

    def _whole(self, key: bytes) -> Ledger:
        ledger = self._ledgers[key]
        return replace(ledger, reserved=ledger.reserved.update(self._aside.get(key, {})), known_left=ledger.left)

    def set_aside(self, view: ViewPlan, call: Call) -> None:
        """Forget a stored reservation in memory until its turn comes: other calls are booked as if it came later."""
        key, ledger = self.of(view, call.start_ms)
        self._aside.setdefault(key, {})[str(call)] = ledger.reserved[str(call)]
        self._change(view.view, key, cancel(ledger, str(call)))

    def take_up(self, view: ViewPlan, call: Call) -> None:
        """Have a stored reservation in memory again.

        Raises:
            StateError: what came before it was charged more than was reserved.
        """
        key, ledger = self.of(view, call.start_ms)
        found = reserve(ledger, str(call), self._aside[key].pop(str(call)))
        if isinstance(found, Overdraft):
            raise StateError(f"a ledger does not cover {call}, though it was reserved for")
        self._change(view.view, key, found)

    def drop_aside(self) -> list[Change]:
        """Drop the reservations that are still set aside, and return the rows to store."""
        self._unstored |= {key: [] for key, calls in self._aside.items() if calls}
        self._aside.clear()
        return self.rows()

    def charge(self, view: ViewPlan, call: Call, charge: Charge, requested: Cost | None = None) -> Booking:
        """Charge a call that was reserved for; `rows` are to be stored behind what it paid for.

        Args:
            view: the view.
            call: the call.
            charge: its cost.
            requested: its cost at worst; None: as charged.
        """
        key, reserved = self.of(view, call.start_ms)
        paid, charged = charge_call(view, reserved, call, charge)
        self._keep(view, key, paid)
        asked = charge.cost if requested is None else requested
        balance, is_first = self.balance(view, call.start_ms), view.view not in reserved.views
        return Booking(paid, balance, asked, charged.cost, charged.shares, is_first)

    def added(self, view: ViewPlan, start_ms: int, before: Cost, cost: Cost) -> Cost:
        """Return what the ledger of a window is charged if the window is to cost more.

        Args:
            view: the view.
            start_ms: start of the window.
            before: cost of the window until now.
            cost: what it is to cost beyond that.
        """
        found = dearest_of(view, self.of(view, start_ms)[1], start_ms)
        return cost if found is None else found.raised(before, cost).total - found.total

    def to_come(self, view: ViewPlan, first_ms: int, end_ms: int) -> Cost:
        """Return what windows on schedule are charged at worst that begin from `first_ms` on in a period that ends."""
        found = dearest_of(view, self.of(view, first_ms)[1], first_ms) if first_ms < end_ms else None
        if found is None:
            return view.scheduled(first_ms, end_ms)
        windows = view.charged.begun(first_ms, end_ms if view.until_ms is None else min(end_ms, view.until_ms))
        return found.with_windows(view.planned, windows).total - found.total

    def _keep(self, view: ViewPlan, key: bytes, ledger: Ledger) -> None:
        """Go on with a ledger as it is after a step, and note that it is to be stored."""
        if key not in self._begun:
            self._unstored[key] = [period_row(key, Promise.of(view.ledger), self._shared(key, view))]
            self._begun[key] = view.ledger
            self._overlaps.clear()
        self._unstored.setdefault(key, [])
        self._change(view.view, key, ledger)

    def _change(self, view: str, key: bytes, ledger: Ledger) -> None:
        """Take the place of a ledger in memory, by a step that was about a view."""
        left = ledger.budget if key not in self._ledgers else self._ledgers[key].left
        taken = self._taken.setdefault(key, {})
        taken[view] = taken.get(view, Cost.ZERO) + left - ledger.left
        self._ledgers[key] = ledger

    def charge_lost(self, view: ViewPlan, lost: Mapping[int, tuple[Cost, Cost]]) -> list[Change]:
        """Spend what windows have cost and their ledgers have forgotten, and return the rows to store.

        Args:
            view: the view.
            lost: by start of the window, the cost that is known and what it may have cost beyond.
        """
        for key, start in [(self.of(view, start)[0], start) for start in sorted(lost)]:
            ledger = self._ledgers.get(key) or Ledger(view.ledger.budget)
            found, (before, more) = dearest_of(view, ledger, start), lost[start]
            kept: dict[str, Dearest] = {}
            if found is not None:
                raised = kept[_bounded_by(view, start)] = found.raised(before, more)
                more = raised.total - found.total
            self._keep(view, key, write_off(ledger, more, view=view.view, dearest=kept))
        return self.rows()

    def load(self, rows: Rows) -> Iterator[Effect]:
        """Drop or charge what was reserved when the process ended, and take the ledgers into memory.

        Raises:
            StateError: a row is damaged, or not stored beside its ledger.
        """
        for key, ledger in read_ledgers(rows.scan(LEDGER, after(LEDGER))).items():
            settled = self._ledgers[key] = self._settled(ledger, rows)
            reserved = ({view_of(call.partition(" ")[0]): cost} for call, cost in settled.reserved.items())
            self._taken[key] = _added([settled.views, *reserved])
            if settled != ledger:
                yield Commit([(key, encode_ledger(settled))])
        for plan in {view.ledger.fingerprint: view.ledger for view in self._views.values()}.values():
            for key in [key for key in self._ledgers if key.startswith(LEDGER + plan.fingerprint)]:
                period, budget = period_of(key), self._ledgers[key].budget
                if (beside := rows.get(promise_key(key))) is None:
                    raise StateError("a ledger is stored, and not what its period promises and keeps for each view")
                begun_with = decode(PeriodRow, beside)
                self._begun[key] = begun_with.promise.plan(plan, period, budget)
                kept = {name: decode_cost(value) for name, value in begun_with.kept.items()}
                shares = self._shares[key] = self._stored(key, budget, kept)
                if shares.kept != kept:  # for good: what is free may be taken, and nobody gets it back
                    yield Commit([period_row(key, begun_with.promise, shares)])

    def _settled(self, ledger: Ledger, rows: Rows) -> Ledger:
        """A ledger without the reservations that are about a configured view."""
        for call in map(Call.parse, sorted(ledger.reserved)):
            view, row = self._views.get(call.view), stored_window(call.view, call.start_ms, rows)
            if view is None:
                continue  # a view that is no longer configured keeps what it had reserved
            if row is None or not call.stored(row):
                ledger = cancel(ledger, str(call))
            else:
                charge = price(view, call, stored_table(view.name, call.start_ms, rows), row)
                ledger, _ = charge_call(view, ledger, call, charge)
        return ledger


def _bounded_by(view: ViewPlan, start_ms: int, audience: str = "") -> str:
    """Return the name of a group of windows: a user is in at most `windows_per_user` of them.

    A group is a definition in a period of the configuration, whichever period pays. With an audience, the name is that
    of what the group costs against the audience alone.
    """
    return f"{view.name} {view.ledger.periods.start_of(start_ms)} {audience}"


def dearest_of(view: ViewPlan, ledger: Ledger, start_ms: int, audience: str = "") -> Dearest | None:
    """Return the largest charges of those windows; None if users may be in every window."""
    if view.windows_per_user is None:
        return None
    return ledger.dearest.get(_bounded_by(view, start_ms, audience)) or Dearest(view.windows_per_user)


def charge_call(view: ViewPlan, ledger: Ledger, call: Call, charge: Charge) -> tuple[Ledger, Charge]:
    """Return a ledger once a call was charged that it had reserved for, and what that added to it."""
    if view.windows_per_user is None:
        return commit(ledger, str(call), charge.cost, charge.shares, view=view.view), charge
    changed: dict[str, Dearest] = {}

    def added(audience: str, before: Cost, cost: Cost) -> Cost:
        found = dearest_of(view, ledger, call.start_ms, audience)
        assert found is not None  # noqa: S101 - the view bounds windows
        raised = changed[_bounded_by(view, call.start_ms, audience)] = found.raised(before, cost)
        return raised.total - found.total

    shares = {name: added(name, charge.had.get(name, Cost.ZERO), cost) for name, cost in charge.shares.items()}
    cost = added("", charge.before, charge.cost)
    return commit(ledger, str(call), cost, shares, view=view.view, dearest=changed), Charge(cost, shares)


def _added(costs: Iterable[Mapping[str, Cost]]) -> dict[str, Cost]:
    """Add costs up by name."""
    total: dict[str, Cost] = {}
    for name, cost in (one for some in costs for one in some.items()):
        total[name] = total[name] + cost if name in total else cost
    return total


def _charged(ledger: Ledger) -> Cost:
    """Return what was charged to a ledger itself, spent and reserved."""
    return ledger.budget - ledger.left
