"""The end of a window's retention: its records, its sealed table and its secret go together, and nothing of it stays.

A window expires when a window of its view is stored that starts more than the retention behind it: by the schedule of
the view, whatever is counted, and whether windows are released or refused. Of a view that was taken out, it is when
such a window would have been over (`PartitionState.aged`). Then, oldest first,

1. its row is marked and its last departure added, one tombstone for every key of its records (`Retention.expire`).
   From here on nothing is read of it: the row names no key any more;
2. behind what still waits in its outbox the tombstones leave, at a slot like all that readers see, later than that of
   the newest window, and when a later window has left (`releases.outboxes`): one that waited may have been taken back;
3. when they have left, its table and its published records are deleted and its secret taken out of the row, all vanish
   from the files, and only then the row is deleted (`finished`). This happens at the worker's next beat, which
   is at most a sixteenth of `erase_within` later, for all windows that are due by then: their files are rewritten once.

What a crash leaves behind, at each cut. Before the mark, tombstones without a departure, which `pieces.leftovers`
finds. Between mark and end, a row whose last departure stands in its outbox: `ReleaseEngine.load` lets it leave again,
and tombstones that come twice say the same; then step 3 is done from its start. So no record stays without a row that
will take it back, no row stays without its tombstones having left, no record leaves when the secret is gone, and what
was deleted is not left in a file. Behind the last row nothing is left to do.

Of a window of panes, and of a total, all that is said here of a window holds for the pane that it ends with: with that
its records are taken back. A pane stays with its table and its secret as long as a retained window is made of it.

The newest published window of a view never expires, whatever its definition, and its records
stand in front of the tombstones of older ones: their slot is earlier, and what waits leaves in the order of slots. So
whatever is taken back, the public topics tell up to where windows were released (`releases.losses`), and none is ever
drawn again.

What a ledger has paid for the window stays in the ledger, and its entries in the operators' topic: published
is published, and statements are made of entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from msgspec.structs import replace

from stream_dp.config.plan import ViewPlan
from stream_dp.records.codec import record_keys
from stream_dp.releases.partition_state import PartitionState
from stream_dp.releases.pieces import Removal, forgotten_publication, forgotten_table, leave
from stream_dp.releases.publication import Destinations, extent_of
from stream_dp.releases.rows import (
    PUBLISHED,
    TABLE,
    WINDOW,
    AudienceState,
    Change,
    WindowRow,
    stored_window,
    stored_windows,
)
from stream_dp.windows.effects import Commit, Effect, Erase, Leave, Rows, Step
from stream_dp.windows.encoding import after, cut, encode, window_key

EXPIRED_AT_ONCE = 8
"""Windows that one step marks, in one commit."""
FINISHED_AT_ONCE = 256
"""Windows whose tables and secrets one commit deletes."""


class Retention:
    """Retention of one partition: finds the windows that are past it.

    Attributes:
        oldest: by view, no window before this one has still to be marked; the first stored one, as the engine sets it.
    """

    def __init__(self, state: PartitionState, destinations: Destinations) -> None:
        """Set up the retention; it knows of the windows of a view once `oldest` has it."""
        self._state = state
        self._destinations = destinations
        self.oldest: dict[str, int] = {}

    def is_over(self, view: ViewPlan) -> bool:
        """Return True if a window of the view may have to be marked."""
        return self.oldest[view.name] < self._horizon(view)

    def is_finished(self, view: ViewPlan) -> bool:
        """Return True if every window of a removed view has passed its retention, the newest included."""
        mark = self._state.marks[view.name]
        return self._state.is_over(view) and mark.kept_ms >= mark.next_ms

    def due_ms(self, view: ViewPlan) -> int | None:
        """When the next window of a view that was taken out expires by the wall clock, None if none does."""
        mark, oldest, shape = self._state.marks[view.name], self.oldest[view.name], view.window.shape
        if not view.is_removed or oldest >= min(mark.published_ms, mark.next_ms):
            return None
        return shape.end(shape.first_from(oldest + view.window.kept_ms + 1))

    def _horizon(self, view: ViewPlan) -> int:
        """Return the time before which windows expire: never the newest published one, or rows that `losses` needs.

        A pane stays as long as a retained window needs it. A definition that is over goes by the windows of the one
        that took its place (`Releasing`).
        """
        mark = self._state.marks[view.name]
        newest = view.window.shape.next(mark.next_ms, -1)
        is_over = self._state.is_over(view)
        return min(mark.kept_ms, mark.published_ms, mark.kept_ms if is_over else newest - view.window.kept_ms)

    def expire(self, view: ViewPlan, slot_ms: int) -> Step:
        """Mark the oldest windows that are past their retention, `EXPIRED_AT_ONCE` at most.

        Args:
            view: the view.
            slot_ms: when their records are taken back, later than the slot of the newest window.
        """
        name, horizon = view.name, self._horizon(view)
        changed: list[Change] = []
        leaving: list[Effect] = []
        found = stored_windows(name, self._state.rows, self.oldest[name], horizon)
        self.oldest[name] = horizon
        for start, row in islice(found, EXPIRED_AT_ONCE):
            tombstones = self._tombstones(view, start, row)
            row.expires, row.key_id = True, ""
            changed += leave(view, start, row, slot_ms, tombstones)
            changed.append((window_key(WINDOW, name, start), encode(row)))
            leaving.append(Leave(name, start, row.outbox[-1].slot_ms))
            self.oldest[name] = view.window.shape.next(start) if len(leaving) == EXPIRED_AT_ONCE else horizon
        if changed:
            yield Commit(changed)
            yield from leaving

    def _tombstones(self, view: ViewPlan, start_ms: int, row: WindowRow) -> list[Removal]:
        """Return the tombstones of every record of a window: its keys, without values.

        Nothing is sent to an audience that is no longer configured, since its topic may be gone.
        """
        if not row.publishes_window:
            return []
        states: Mapping[str, AudienceState] = row.states
        refused: Collection[str] = row.refused_grants.keys() | row.declined.keys()
        panes = None
        if row.sum is not None:
            states, refused, panes = row.sum.states, row.sum.refused_to, row.sum.panes
        extent = extent_of(view, view.window.shape.next(start_ms, 1 - (panes or 1)), panes)
        return [
            (self._destinations.release(view.view, audience), key, None)
            for audience in sorted(view.readers)
            for key in record_keys(
                view.view,
                audience,
                extent["window"],
                ends=panes is not None or extent["blocks"] is not None,
                parts=states[audience].parts if audience in states else 0,
                refused=audience in refused,
            )
        ]


def finished(windows: Iterable[tuple[str, int]], rows: Rows) -> Step:
    """Delete what is secret of windows whose tombstones have left; their rows, which go last, tell that of until then.

    Args:
        windows: by view and start.
        rows: the partition's table.
    """
    ranges: dict[str, tuple[int, int]] = {}
    for some in cut(windows, lambda _: 1, FINISHED_AT_ONCE):
        changed: list[Change] = []
        for view, start in some:
            if (row := stored_window(view, start, rows)) is not None:
                changed += forgotten_table(view, start, rows)
                changed += forgotten_publication(view, start, rows)
                changed.append((window_key(WINDOW, view, start), encode(replace(row, secret=b""))))
            first, last = ranges.get(view, (start, start))
            ranges[view] = min(first, start), max(last, start)
        yield Commit(changed)
    for view, (first, last) in ranges.items():  # windows of a view expire one behind the other
        for kind in (TABLE, WINDOW, PUBLISHED):
            yield Erase(window_key(kind, view, first), after(window_key(kind, view, last)))
