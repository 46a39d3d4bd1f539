"""Windows that are sums of panes: what is released at the end of a pane, and again when its panes got sharper.

A pane is counted, noised, charged and sealed like a window that tumbles, and its row and its table are as those. What
readers get is the window that ends with it: the sum of what its panes show, all read at the finest level that the
audience has of every one. That is computed from readings that are paid for, so it costs nothing more, whatever windows
overlap and however long they are.

The window's row is that of its last pane: with it, the window is released, and later released again. It says of how
many panes the window is, so that a view may go on with windows of another length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import add
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from stream_dp.accounting import Cost
from stream_dp.config.plan import ViewPlan
from stream_dp.errors import StateError
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.sealing import SealedTable
from stream_dp.records.models import Reason
from stream_dp.releases.clearances import SharpeningRequest
from stream_dp.releases.partition_state import PartitionState
from stream_dp.releases.pieces import Addressed, TablePart, noise_of, stored_table
from stream_dp.releases.publication import Denial, Offer, RecordBuilder, Revision, account
from stream_dp.releases.rows import BLOCK, NOTHING, AudienceState, Change, PaneSum, WindowRow, stored_window
from stream_dp.windows.effects import Rows
from stream_dp.windows.encoding import after, bucket_number, decode, encode, text, window_key, window_start
from stream_dp.windows.merging import parts_of

REMEMBERED = 2_000_000
"""Numbers that are kept in memory of what panes add to windows; beyond that they are read again from their tables."""


class Pane(NamedTuple):
    """A pane of a window."""

    start_ms: int
    row: WindowRow
    table: SealedTable | None = None
    """Where it is not stored yet."""


class _Window(NamedTuple):
    """A window of panes."""

    view: ViewPlan
    panes: Sequence[Pane]

    def level(self, audience: str) -> int:
        """The finest level that an audience has of every pane, -1 if it has nothing of one."""
        return min(pane.row.states.get(audience, NOTHING).level for pane in self.panes)

    def counts_beyond(self, audience: str, level: int) -> Cost:
        """Return the cost of all panes' counts at a level beyond what an audience has of them."""
        had = [pane.row.states.get(audience, NOTHING).level for pane in self.panes]
        return sum((self.view.request(level, one) for one in had), Cost.ZERO)


class Sums:
    """Makes the records of windows that are sums of panes."""

    def __init__(self, state: PartitionState, record_builder: RecordBuilder) -> None:
        """Set up.

        Args:
            state: the partition's; the ledger that pays for the last pane is what records name.
            record_builder: addresses the records.
        """
        self._state = state
        self._record_builder = record_builder
        self._read: dict[tuple[str, int, int], Sequence[int]] = {}
        """By view, start and level: what panes add, those that were used last behind the others."""
        self._remembered = 0

    def first(self, offer: Offer, row: WindowRow, table: SealedTable | None = None) -> list[Addressed]:
        """Return the records of the window that ends with a pane, if one does; the pane's row is updated.

        There is none before the view has all panes of a window, nor where one of them is stored no longer. An audience
        that has nothing of one of the panes gets no record.

        Args:
            offer: the pane, and what the audiences may see.
            row: the row of the pane, released or refused just now.
            table: its sealed table, which is not stored yet.
        """
        view, start_ms, levels = offer
        count = len(view.window.shape.of_window(start_ms))
        panes = [*self._before(view, start_ms, count), Pane(start_ms, row, table)]
        reason = self._refusal(panes)
        row.sum = PaneSum(count if len(panes) == count else 0, refused=reason is not None)
        if not row.sum.panes:
            return []
        window = _Window(view, panes)
        records: list[Addressed] = []
        for audience in offer.audiences:
            if reason is not None:
                asked = Cost.ZERO if reason == "lost" else view.cost(max(levels.values())) * count
                revision = self._revision(window, audience, levels[audience], 1)
                records += self._record_builder.addressed(revision.refusal(Denial(asked, reason)))
                row.sum.refused_to.append(audience)
            elif (level := window.level(audience)) >= 0:
                row.sum.states[audience] = AudienceState(1, level)
                records += self._release(window, audience, row.sum.states[audience])
        return records

    def again(self, request: SharpeningRequest, row: WindowRow) -> list[Addressed]:
        """The next revision of the window that ends with a pane, if the audience has all its panes finer now.

        It is a refusal if the ledger did not pay for one of the panes.

        Args:
            request: the pane, who may see more, and what.
            row: the row of the pane; changed in place.
        """
        view, start_ms, audience, asked, *_ = request
        released = row.sum
        if released is None or not released.panes or released.refused:
            return []
        panes = [*self._before(view, start_ms, released.panes), Pane(start_ms, row)]
        state = released.states.get(audience, NOTHING)
        if len(panes) < released.panes or self._refusal(panes) is not None or state.level >= asked:
            return []
        window = _Window(view, panes)
        if (level := min(asked, window.level(audience))) > state.level:
            released.states[audience] = AudienceState(state.revision + 1, level, state.parts)
            return self._release(window, audience, released.states[audience])
        if not any(request.is_refused(pane.row) for pane in panes):
            return []
        request.refuse(row)
        released.refused_to = sorted({*released.refused_to, audience})
        revision = self._revision(window, audience, asked, state.revision + 1)
        denial = Denial.for_now(window.counts_beyond(audience, asked), state.level)
        return self._record_builder.addressed(revision.refusal(denial))

    def _before(self, view: ViewPlan, start_ms: int, panes: int) -> list[Pane]:
        """The panes of a window before its last, oldest first, as far as they are stored."""
        starts = [view.window.shape.next(start_ms, -back) for back in range(panes - 1, 0, -1)]
        found = [(start, stored_window(view.name, start, self._state.rows)) for start in starts]
        return [Pane(start, row) for start, row in found if row is not None and not row.expires]

    def _refusal(self, panes: Sequence[Pane]) -> Reason | None:
        """Why a window has no release, from its panes; with a key that is retired a pane cannot be read any more."""
        readable = self._state.secrets
        if any(pane.row.lost or (not pane.row.refused and pane.row.key_id not in readable) for pane in panes):
            return "lost"
        return "budget" if any(pane.row.refused for pane in panes) else None

    def _revision(self, window: _Window, audience: str, level: int, number: int) -> Revision:
        view, accounts, last_ms = window.view, self._state.accounts, window.panes[-1].start_ms
        _, ledger = accounts.of(view, last_ms)
        loss, books = ledger.readers.get(audience, Cost.ZERO), account(accounts.plan(view, last_ms), last_ms)
        interrupted = any(pane.row.interrupted for pane in window.panes)
        start_ms = window.panes[0].start_ms
        return Revision(view, audience, level, start_ms, number, loss, books, len(window.panes), interrupted)

    def _release(self, window: _Window, audience: str, state: AudienceState) -> list[Addressed]:
        view, panes = window.view, window.panes
        sums: Sequence[int] = ()
        for pane in panes:
            summand = self._summand(view, pane, state.level)
            sums = [*map(add, sums, summand)] if sums else summand
        table = panes[-1].table or stored_table(view.name, panes[-1].start_ms, self._state.rows)
        loss = sum((view.steps(pane.row.states[audience].steps) for pane in panes), view.keys_at_worst * len(panes))
        revision = self._revision(window, audience, state.level, state.revision)
        return self._record_builder.published(revision.release(view.kind.total(table, sums), loss), state)

    def _summand(self, view: ViewPlan, pane: Pane, level: int) -> Sequence[int]:
        """Return the addend of a pane at a level, cached once it is stored: it is in many windows."""
        place = view.name, pane.start_ms, level
        noise = noise_of(view, pane.start_ms, pane.row, self._state.secrets)
        if pane.table is not None:
            return view.kind.summand(pane.table, level, noise)
        found = self._read.pop(place, None)
        if found is None:
            found = view.kind.summand(stored_table(view.name, pane.start_ms, self._state.rows), level, noise)
            self._remembered += len(found)
        self._read[place] = found  # behind the others
        while self._remembered > REMEMBERED and len(self._read) > 1:
            self._remembered -= len(self._read.pop(next(iter(self._read))))
        return found


def list_of_window(view: ViewPlan, start: int, rows: Rows) -> KeyList | None:
    """Return the list that the panes of a window have before one, so that they add up; None where there are none yet.

    It is that of the first of them that was released, and stands with it.
    """
    shape = view.window.shape
    for at in shape.starts(shape.released.start_of(start), start) if view.kind.waits_for_list else ():
        row = stored_window(view.name, at, rows)
        if row is not None and not row.refused and not row.expires:
            return KeyList.of(stored_table(view.name, at, rows).items)
    return None


class BlockRow(msgspec.Struct, array_like=True):
    """The exact counts of the block that ends with a pane, or a part of them."""

    parts: int
    """Number of them."""
    counts: Mapping[str, int]


class Begun(NamedTuple):
    """The window of a pane that is not its first.

    Attributes:
        levels: who has which level of it.
        reason: why none of it is released any more, None where it goes on.
        blocks: the sealed blocks that a total has before the one that ends with the pane.
        paid: by audience the steps to its level, as they were charged with the first pane.
        is_interrupted: whether an earlier pane was closed before its source had caught up after an outage.
    """

    levels: Mapping[str, int]
    reason: Reason | None
    blocks: Sequence[TablePart] = ()
    paid: Mapping[str, list[int]] = MappingProxyType({})
    is_interrupted: bool = False


def begun(state: PartitionState, offer: Offer) -> Begun | None:
    """Return what a pane continues from; None where it is the first of its window, or windows have no panes.

    Args:
        state: the partition's.
        offer: the pane, and by audience the level that it may see.
    """
    view, start, allowed = offer
    if view.window.pays(start):
        return None
    first = first_row(view, start, state.rows)
    before = stored_window(view.name, view.window.shape.next(start, -1), state.rows)
    if first is None or before is None:  # its state was lost
        return Begun({}, "lost")
    if before.refused:
        return Begun({}, "lost" if before.lost else "budget")
    blocks = earlier_blocks(state, view, start)
    levels = {name: min(level, first.states.get(name, NOTHING).level) for name, level in allowed.items()}
    levels = {audience: level for audience, level in levels.items() if level >= 0}
    paid = {audience: first.states[audience].steps_to(level) for audience, level in levels.items()}
    return Begun(levels, "lost" if blocks is None else None, blocks or (), paid, before.interrupted)


def is_passed_over(view: ViewPlan, start: int, kept_ms: int, rows: Rows) -> bool:
    """Return True if a pane is of a window that began when nobody might see it: no total has the panes before.

    Args:
        view: the view.
        start: start of the pane.
        kept_ms: start of the first pane whose row is kept if it was released; what was lost was so before it.
        rows: the partition's table.
    """
    if view.window.pays(start) or view.window.charged(start).start_ms < kept_ms:
        return False
    before = stored_window(view.name, view.window.shape.next(start, -1), rows)
    return before is None and first_row(view, start, rows) is None


def first_row(view: ViewPlan, start: int, rows: Rows) -> WindowRow | None:
    """The row of the first pane of the window that a pane is in."""
    return stored_window(view.name, view.window.charged(start).start_ms, rows)


def earlier_blocks(state: PartitionState, view: ViewPlan, start: int) -> Sequence[TablePart] | None:
    """The sealed blocks that the total of a released pane has before the one that ends with it, oldest first.

    None where one of them cannot be read any more: it is not stored, or its key is retired. None of them where totals
    are not told of.
    """
    found: list[TablePart] = []
    for at in view.window.shape.blocks(start)[:-1]:
        row = stored_window(view.name, at, state.rows)
        if row is None or row.key_id not in state.secrets:
            return None
        found.append(state.sealed(view, at, row))
    return found


# -- exact counts --------------------------------------------------------------------------------------------------


def inner_counts(view: ViewPlan, start: int, rows: Rows) -> Iterator[Mapping[str, int]]:
    """Yield the counts of the block that ends with a pane, without that pane, to be added up.

    Raises:
        StateError: some of it is not there.
    """
    for at in view.window.shape.inner(start):
        prefix = window_key(BLOCK, view.name, at)
        found = [decode(BlockRow, value) for _, value in rows.scan(prefix, after(prefix))]
        if not found or {row.parts for row in found} != {len(found)}:
            raise StateError(f"the stored counts of some panes of view {view.name} are damaged")
        yield from (row.counts for row in found)


def block_rows(view: ViewPlan, start: int, counts: Mapping[str, int]) -> list[Change]:
    """The rows of the block that ends with a pane, if a longer one needs it.

    Args:
        view: the view.
        start: start of the pane.
        counts: exact, of the block.
    """
    if not view.window.shape.is_needed_later(start):
        return []
    parts = parts_of(counts)
    return [
        (window_key(BLOCK, view.name, start) + bucket_number(number), encode(BlockRow(len(parts), part)))
        for number, part in enumerate(parts)
    ]


def used_blocks(view: ViewPlan, start: int, *, refused: bool) -> list[bytes]:
    """Return the key prefixes of exact counts that are not needed after a pane.

    Args:
        view: the view.
        start: start of the pane.
        refused: whether it is refused: then none of its window are needed.
    """
    if view.window.pays(start):
        return []
    used = _open_before(view, start) if refused else view.window.shape.inner(start)
    return [window_key(BLOCK, view.name, at) for at in used]


def used_range(view: ViewPlan, start: int) -> tuple[bytes, bytes]:
    """Between which keys such rows stand, those that are needed still among them."""
    return window_key(BLOCK, view.name, view.window.charged(start).start_ms), window_key(BLOCK, view.name, start)


def leftover_blocks(view: ViewPlan, next_ms: int, rows: Rows) -> Iterator[Change]:
    """Yield the deletions of blocks that are no longer needed, or not yet.

    Args:
        view: the view.
        next_ms: start of its first pane that is not stored as released.
        rows: the partition's table.
    """
    needed: Sequence[int] = ()
    if not view.window.pays(next_ms):
        before = stored_window(view.name, view.window.shape.next(next_ms, -1), rows)
        needed = () if before is None or before.refused else _open_before(view, next_ms)
    prefix = BLOCK + text(view.name)
    for key, _ in rows.scan(prefix, after(prefix)):
        if window_start(BLOCK, view.name, key) not in needed:
            yield key, None


def _open_before(view: ViewPlan, start: int) -> Sequence[int]:
    """Starts of the last panes of the blocks that a pane or a later one needs; it is not the first of its window."""
    shape = view.window.shape
    return [at for at in shape.blocks(shape.next(start, -1)) if shape.is_needed_later(at)]
