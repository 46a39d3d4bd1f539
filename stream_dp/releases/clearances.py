"""Who may see what: the grants of every audience, and the windows that it still has to get or get sharper.

What an audience may see of a window is decided by the newest of its grants that was carried out, has the window in its
scope, and has a level of the view's ladder; else by the configuration. Which windows were retained and which were to
come is noted with the grant when it is carried out. All partitions rank grants alike, by their time and number.

An audience that comes later gets the retained windows at its level by itself where somebody has that level of them or a
finer one: coarser releases of a window come free (specs/lossless 3.2). Where it would cost more, nothing is charged
that nobody asked for: a grant asks. Whoever was withheld or refused a window gets it when somebody else has it as fine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from stream_dp.config.file_schema import NO_LEVEL
from stream_dp.config.plan import ViewPlan
from stream_dp.control.grant_records import Order, Scope, covers
from stream_dp.errors import StateError
from stream_dp.releases.rows import CLEARANCE, NOTHING, Change, WindowRow, stored_window, stored_windows
from stream_dp.windows.encoding import after, decode, encode, text

if TYPE_CHECKING:
    from stream_dp.releases.partition_state import PartitionState

_NEVER = -(1 << 62)
"""Before every window."""


class GrantRow(msgspec.Struct, array_like=True):
    """A grant that was taken: one that waits for its time, or one that was carried out or is about to be."""

    number: int
    """`Order.number`."""
    id: str
    """`Order.id`."""
    level: str
    scope: Scope
    time_ms: int
    """Its time. Those that are carried out at once are no older than what was carried out before, so that a clock that
    goes wrong does not let a later one decide nothing."""
    slot_ms: int | None = None
    """When the sharper revisions leave; later, if they miss it. None: it waits for its time."""
    open: bool = False
    """True if retained windows may still have to be sharpened."""
    turns: dict[str, int] = msgspec.field(default_factory=dict)
    """By view of this partition, where the scope asks for it: start of the first window that was to come when the grant
    was carried out."""

    @property
    def rank(self) -> tuple[int, int]:
        """The newest one decides."""
        return self.time_ms, self.number

    def starts(self, view: str) -> tuple[int | None, int | None]:
        """The first start in its scope, and the first behind it; None where there is no such bound."""
        turn = self.turns.get(view)
        if self.scope.windows == "retained":
            return None, _NEVER if turn is None else turn  # a view that came later had no window then
        if self.scope.windows == "future":
            return turn, None
        return self.scope.from_ms, self.scope.until_ms


class ClearanceRow(msgspec.Struct, array_like=True):
    """The grants of an audience."""

    number: int
    """Of the last order that was taken: one that is read again is known by it."""
    grants: list[GrantRow]
    """Those that wait, and those that decide what may be seen of a window that is retained or to come; oldest first."""


def clearance_audience(key: bytes) -> str:
    """The audience of a clearance row."""
    if len(key) != 2 + key[1]:
        raise StateError("a stored clearance has a damaged key")
    return key[2:].decode()


class SharpeningRequest(NamedTuple):
    """One window of one audience that is to become finer."""

    view: ViewPlan
    start_ms: int
    audience: str
    level: int
    """Index of the level, finer than what the audience has."""
    slot_ms: int
    """When the revision leaves; later, if it misses that."""
    grant: int | None = None
    """The number of the grant that asks."""
    follows: bool = False
    """True if the audience has the level of the pane already, and only the window with it is to follow."""

    def is_refused(self, row: WindowRow) -> bool:
        """Return True if a ledger could not pay for it, by the row of the window, or of a pane of it."""
        if self.follows:
            return False
        if self.grant is not None:
            return row.refused_grants.get(self.audience) == self.grant
        return self.level in row.declined.get(self.audience, ())

    def refuse(self, row: WindowRow) -> None:
        """Note that."""
        if self.grant is not None:
            row.refused_grants[self.audience] = self.grant
        else:
            row.declined[self.audience] = sorted({*row.declined.get(self.audience, ()), self.level})


class _Candidate(NamedTuple):
    """A window that an audience may have to get finer."""

    view: ViewPlan
    start_ms: int
    slot_ms: int
    """When it leaves, where no grant says that."""


class Clearances:
    """The clearances for the views of one partition.

    Attributes:
        withheld: by audience that came later, the views with a retained window that would cost something.
    """

    def __init__(self, state: PartitionState) -> None:
        """Set up the clearances of the views of a partition; `load` makes them ready."""
        self._state = state
        self._rows: dict[str, ClearanceRow] = {}
        self._sharpening: dict[str, deque[_Candidate]] = {}
        """By audience: windows that its grants have to sharpen, or that it came later than, oldest first in a view; and
        windows that are behind a pane of theirs that became finer."""
        self._changed: set[str] = set()
        self.withheld: dict[str, set[str]] = {}
        self._later_ms = 0
        """The slot of what audiences came later than."""

    def load(self, now_ms: int) -> None:
        """Read the grants; go on with those that are not carried out. What audiences came later than leaves at a slot.

        Call `queue_catch_up` for every window then.
        """
        self._later_ms = self._state.slots.after(now_ms)
        for key, value in self._state.rows.scan(CLEARANCE, after(CLEARANCE)):
            self._rows[clearance_audience(key)] = decode(ClearanceRow, value)
        for audience, row in self._rows.items():
            if any(grant.open for grant in row.grants):
                self._sharpening[audience] = self._lacking(audience)

    def queue_catch_up(self, view: ViewPlan, start_ms: int, row: WindowRow) -> None:
        """Queue a window for audiences that came later or were refused it, and may have it without an open grant."""
        if not self._is_there(row):
            return
        for audience in sorted(view.audiences):
            has_window = row.level(audience) == row.states.get(audience, NOTHING).level >= 0
            if has_window and audience not in self._rows:
                continue
            grant = self._deciding(view, audience, start_ms)
            if grant is None or not grant.open:
                if self._request(view, audience, start_ms, row, self._later_ms):
                    self._add(audience, _Candidate(view, start_ms, self._later_ms))
                elif self._is_withheld(view, audience, start_ms, row):
                    self.withheld.setdefault(audience, set()).add(view.view)

    def _is_withheld(self, view: ViewPlan, audience: str, start_ms: int, row: WindowRow) -> bool:
        """Return True if an audience has nothing of a window, and may have something that costs more."""
        lacks = row.states.get(audience, NOTHING).level < 0 and view.window.pays(start_ms)
        return lacks and self.level(view, audience, start_ms) >= 0

    def queue_released(self, view: ViewPlan, start_ms: int, row: WindowRow) -> None:
        """Queue a window that was released just now for audiences that are to see more of it.

        Of a pane it is whoever waits for earlier ones of its window; and audiences come with an edition that begins
        later, for which it is as if the window had been released before they came.
        """
        for audience in sorted(view.audiences):
            if self._request(view, audience, start_ms, row, row.slot_ms):
                self._add(audience, _Candidate(view, start_ms, row.slot_ms))

    def queue_shared(self, request: SharpeningRequest, row: WindowRow) -> None:
        """Queue a window that became finer for audiences to whom it was withheld or refused: it is free now."""
        view, start_ms, _, _, slot_ms, *_ = request
        for audience in sorted(view.audiences):
            free = self._request(view, audience, start_ms, row, slot_ms)
            if free is not None and free.grant is None and not free.follows:
                self._add(audience, _Candidate(view, start_ms, slot_ms))

    def queue_overlapping(self, request: SharpeningRequest, had: int) -> None:
        """Queue later windows with a pane that became finer: up to the first that is no finer than it was.

        Args:
            request: what made the pane finer.
            had: index of the level that the audience had of it.
        """
        view, start_ms, audience, _, slot_ms, *_ = request
        for number in range(1, view.most_panes):
            at = view.window.shape.next(start_ms, number)
            row = stored_window(view.name, at, self._state.rows)
            if row is None or row.states.get(audience, NOTHING).level <= had:
                return
            if row.level(audience) < row.states[audience].level:
                self._add(audience, _Candidate(view, at, slot_ms))

    def _add(self, audience: str, place: _Candidate) -> None:
        self._sharpening.setdefault(audience, deque()).append(place)

    def level(self, view: ViewPlan, audience: str, start_ms: int) -> int:
        """The level an audience may see of a window, as far as it does not rise by itself with the window's age."""
        grant = self._deciding(view, audience, start_ms)
        return view.audiences.get(audience, -1) if grant is None else _index(view, grant.level)

    def most(self, view: ViewPlan, audience: str, start_ms: int) -> int:
        """The finest level an audience may be shown of a window, whoever asks for it at whatever age; -1: nothing.

        A grant gives nothing to who was taken out.
        """
        reads = [one for one in (view, view.at(start_ms)) if audience in one.audiences]
        level = max((self.level(one, audience, start_ms) for one in reads), default=NOTHING.level)
        start = view.audiences.get(audience)
        if start is None or self.level(view, audience, start_ms) < start:
            return level
        by_age = [step.level for step in view.unlocks.get(audience, ())]
        left_over = [view.sharpen.level] if view.sharpen is not None and view.sharpen.audience == audience else []
        return max([level, *by_age, *left_over])

    def may_rise(self, view: ViewPlan, audience: str, start_ms: int, row: WindowRow) -> bool:
        """Return True if an audience may see a window finer though no grant asks.

        Not if it is refused, nor if its key is retired, nor where a grant gives the audience less of it than the
        configuration starts it with.
        """
        return self._is_there(row) and self.level(view, audience, start_ms) >= view.audiences[audience]

    def _is_there(self, row: WindowRow) -> bool:
        """Return True if a window can be made finer: it was released, and its key is not retired."""
        return not row.refused and row.key_id in self._state.secrets

    def _deciding(self, view: ViewPlan, audience: str, start_ms: int) -> GrantRow | None:
        """The grant that decides what an audience may see of a window, None if it is the configuration.

        Of panes that are charged together it is the one that decides for their window.
        """
        row, start_ms = self._rows.get(audience), view.window.charged(start_ms).start_ms
        for grant in reversed(row.grants) if row is not None else ():
            first, until = grant.starts(view.name)
            begun = grant.slot_ms is not None and (first is None or first <= start_ms)
            if begun and _concerns(grant, view) and (until is None or start_ms < until):
                return grant
        return None

    def _request(
        self, view: ViewPlan, audience: str, start_ms: int, row: WindowRow, slot_ms: int
    ) -> SharpeningRequest | None:
        """Return the sharpening request of an audience for a released window, None if it is to get nothing more.

        With a grant to carry out, if that was not turned down there. Without one, if it sees nothing, or less than its
        grant was for, and that is free, as later panes of totals are to whoever has the first; or less of a window than
        of the pane that it ends with. Nothing where the key of the window is retired: that is as if it were retained no
        longer.
        """
        if not self._is_there(row):
            return None
        grant, has = self._deciding(view, audience, start_ms), row.states.get(audience, NOTHING).level
        level = self.level(view, audience, start_ms)
        asks = grant if grant is not None and grant.open and row.refused_grants.get(audience) != grant.number else None
        if asks is not None and asks.slot_ms is not None and row.level(audience) < level:
            return SharpeningRequest(view, start_ms, audience, level, asks.slot_ms, asks.number)
        lacks = has < level and (has < 0 or grant is not None)
        is_free = not any(view.counts(level, row.finest)) or not view.window.pays(start_ms)
        if lacks and is_free:
            return SharpeningRequest(view, start_ms, audience, level, slot_ms)
        has = min(has, self.most(view, audience, start_ms))
        if row.level(audience) < has:
            return SharpeningRequest(view, start_ms, audience, has, slot_ms, follows=True)
        return None

    # -- taking grants ----------------------------------------------------------------------------------------

    def take(self, order: Order, now_ms: int) -> list[Change]:
        """Take a grant, or let one that waits be forgotten; the rows to store, none if the order is known."""
        row = self._rows.get(order.audience) or ClearanceRow(-1, [])
        if row.number >= order.number:
            return []
        row.number = order.number
        row.grants = [grant for grant in row.grants if grant.slot_ms is not None or grant.id != order.id]
        self._rows[order.audience] = row
        if order.level is not None:
            done = [grant.time_ms for grant in row.grants if grant.slot_ms is not None]
            time_ms = max([order.given_ms, *done]) if order.at_ms is None else order.at_ms
            grant = GrantRow(order.number, order.id, order.level, order.scope, time_ms)
            row.grants = sorted([*row.grants, grant], key=lambda one: one.rank)
            if order.at_ms is None:
                self._carry_out(order.audience, grant, self._state.slots.after(now_ms))
        return [self._stored(order.audience)]

    @property
    def due_ms(self) -> int | None:
        """The earliest time that a grant waits for."""
        waiting = [grant.time_ms for row in self._rows.values() for grant in row.grants if grant.slot_ms is None]
        return min(waiting, default=None)

    def due_audiences(self, now_ms: int) -> list[str]:
        """Return the audiences of which a grant begins when `carry_out` is called."""
        return [
            audience
            for audience, row in self._rows.items()
            if any(grant.slot_ms is None and grant.time_ms <= now_ms for grant in row.grants)
        ]

    def granted_ms(self, audience: str) -> int:
        """Return when the last grant of an audience began, or was given; 0 if it has none."""
        row = self._rows.get(audience)
        begun = [grant.time_ms for grant in row.grants if grant.slot_ms is not None] if row is not None else []
        return max(begun, default=0)

    def carry_out(self, now_ms: int) -> list[Change]:
        """Let the grants begin whose time has come; the rows to store."""
        changed = []
        for audience, row in self._rows.items():
            due = [grant for grant in row.grants if grant.slot_ms is None and grant.time_ms <= now_ms]
            for grant in due:
                self._carry_out(audience, grant, self._state.slots.after(grant.time_ms))
            changed += [self._stored(audience)] if due else []
        return changed

    def _carry_out(self, audience: str, grant: GrantRow, slot_ms: int) -> None:
        grant.slot_ms, grant.open = slot_ms, True
        if grant.scope.windows != "all":
            grant.turns = {
                name: self._state.marks[name].next_ms
                for name, view in self._state.views.items()
                if _concerns(grant, view)
            }
        row = self._rows[audience]
        row.grants = [one for one in row.grants if one.slot_ms is None or one.open or self._decides(one, row)]
        self._sharpening[audience] = self._lacking(audience)

    def _decides(self, grant: GrantRow, row: ClearanceRow) -> bool:
        """Return True if a grant may still decide something of a window that is retained or to come."""
        newer = [one for one in row.grants if one.slot_ms is not None and one.rank > grant.rank]
        for view in self._state.views.values():
            if _concerns(grant, view):
                first, until = grant.starts(view.name)
                kept = self._state.marks[view.name].kept_ms
                over = until is not None and until <= kept
                covered = any(covers(one.starts(view.name), (first, until)) for one in newer if _concerns(one, view))
                if not over and not covered:
                    return True
        return False

    # -- carrying them out ------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """True if an audience has to get something."""
        return bool(self._sharpening)

    def requests(self) -> Iterator[tuple[SharpeningRequest, WindowRow]]:
        """Yield the requests of the first audience that waits, window by window."""
        audience, windows = next(iter(self._sharpening.items()))
        if not windows:
            self._finish(audience)
        while windows:
            view, start, slot_ms = windows.popleft()
            row = stored_window(view.name, start, self._state.rows)
            request = None if row is None else self._request(view, audience, start, row, slot_ms)
            if not windows:
                self._finish(audience)
            if row is not None and request is not None:  # else it is no longer retained, or there already
                yield request, row

    def _finish(self, audience: str) -> None:
        del self._sharpening[audience]
        self._changed.add(audience)

    def progress(self) -> list[Change]:
        """The rows to store behind requests that were run: the grants of an audience that has all it was to get."""
        changed = []
        for audience in sorted(self._changed & self._rows.keys()):
            opened = [grant for grant in self._rows[audience].grants if grant.open]
            for grant in opened:
                grant.open = False
            changed += [self._stored(audience)] if opened else []
        self._changed.clear()
        return changed

    def _lacking(self, audience: str) -> deque[_Candidate]:
        found: deque[_Candidate] = deque()
        for view in self._state.views.values():
            if audience in view.audiences:
                for start, row in stored_windows(view.name, self._state.rows):
                    if self._request(view, audience, start, row, self._later_ms):
                        found.append(_Candidate(view, start, self._later_ms))
        return found

    def _stored(self, audience: str) -> Change:
        return CLEARANCE + text(audience), encode(self._rows[audience])


def _index(view: ViewPlan, level: str) -> int:
    index = NOTHING.level if level == NO_LEVEL else view.level_index(level)
    assert index is not None  # noqa: S101 - `_concerns`
    return index


def _concerns(grant: GrantRow, view: ViewPlan) -> bool:
    """Return True if a carried-out grant is about windows of a view, at a level that its ladder has, or at none."""
    named = not grant.scope.views or view.view in grant.scope.views
    return named and (grant.level == NO_LEVEL or view.level_index(grant.level) is not None)
