"""The state of one partition: its rows, and what follows from them; everybody who releases works on this one object.

A view has one definition after another, as its settings change (`control.settings`). Each has state of its own, windows
of the later one leave behind all of the earlier one, and readers see one row of windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile

import msgspec

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.accounts import Accounts
from stream_dp.releases.clearances import Clearances
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.losses import Published, expired_windows, lost_state, lost_windows, write_off
from stream_dp.releases.pieces import TablePart, noise_of, stored_table
from stream_dp.releases.rows import (
    BLOCK,
    BUCKET,
    VIEW,
    Change,
    ViewRow,
    WindowRow,
    rolled_back,
    sealing_keys,
    stored_view,
    stored_window,
)
from stream_dp.windows.durations import Slots
from stream_dp.windows.effects import Ahead, Commit, Message, Rows, Step
from stream_dp.windows.encoding import encode, text
from stream_dp.windows.merging import Come, MergedHead, drop_except


def stream_ms(over: Iterable[tuple[ViewPlan, int]]) -> int:
    """The time of the stream of a view: the end of the newest window whose turn is over.

    Args:
        over: the definitions of the view that had such a window, each with the start of the next one; the first
            definition of all, where none had.
    """
    return max(view.window.shape.end(view.window.shape.next(next_ms, -1)) for view, next_ms in over)


def goes_by_the_wall(view: ViewPlan) -> bool:
    """Return True if the time of a view goes on though no window is released."""
    return view.window.clock == "wall"


class Arrivals:
    """Progress of arriving parts. Memory holds numbers; the counts are in the table.

    That a bucket is lost counts where it is not whole, and no more when all its parts come after all.
    """

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], dict[int, Come]] = {}
        self._bytes: Counter[tuple[str, int]] = Counter()

    def take(self, bucket: MergedHead, size: int) -> Sequence[MergedHead]:
        """Note a part; it takes the place of the one that came under its key.

        Args:
            bucket: the part.
            size: of its row, in bytes.

        Returns:
            The parts, without counts, that are void because the bucket was cut otherwise for them: an item could be in
            one of them and in one of the new parts.
        """
        come = self._windows.setdefault((bucket.view, bucket.start_ms), {}).setdefault(bucket.bucket, Come())
        self._bytes[bucket.view, bucket.start_ms] += size
        if bucket.lost:
            come.lost = True
            return ()
        void: list[MergedHead] = []
        if come.parts != bucket.parts:
            void = [msgspec.structs.replace(bucket, part=part) for part in sorted(come.numbers)]
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
        del self._bytes[view, start_ms]

    def size(self, view: str, start_ms: int) -> int:
        """Return the bytes of what has come of a window, at least what is stored."""
        return self._bytes[view, start_ms]


class PartitionState:
    """State of one partition. `load` reads it; after that only those change it who are named here.

    Attributes:
        rows: the partition's table as it is stored; inside `ahead`, as it will be.
        views: the definitions of its views, by name.
        marks: by definition, how far its releases have come. They change with a stored window (`advance`), with one
            that is passed over (`Releasing`), and with the time (`aged`).
        accounts: the ledgers. Calls change them (`Releasing`).
        clearances: who may see what. Grants change them (`ReleaseEngine`).
        arrivals: what has come of the windows that wait. Buckets change it (`ReleaseEngine`).
        keys: the secrets that windows are sealed with.
        secrets: those by id, without those of retired keys.
        slots: when records leave.
    """

    rows: Rows

    def __init__(self, views: Sequence[ViewPlan], slots: Slots, keys: KeyRing) -> None:
        """Set up the state; `load` makes it ready.

        Args:
            views: the views whose ledger lives in this partition, with their first editions.
            slots: when records leave.
            keys: the secrets that coarser levels are locked with.
        """
        self.views = {view.name: view for view in views}
        self.marks = {view.name: ViewRow(view.fingerprint, *[view.begins_ms] * 3) for view in views}
        self.slots = slots
        self.keys = keys
        self.secrets = keys.secrets
        self.accounts = Accounts(self.views)
        self.clearances = Clearances(self)
        self.arrivals = Arrivals()
        self._of: dict[str, list[ViewPlan]] = {}
        for view in views:
            self._of.setdefault(view.view, []).append(view)
        self._last_slots: dict[str, int] = {}
        """By view, whatever it asks: the slot of its last window."""
        self._wall_ms = 0

    def load(
        self,
        rows: Rows,
        published: Published,
        declare_lost: Callable[[str, int], Sequence[Message]],
        now_ms: int,
        *,
        accept_loss: bool,
    ) -> Step:
        """Read the rows, settle what a crash left open in totals and ledgers, and charge windows that were lost.

        Args:
            rows: the partition's table.
            published: what was found in the public topics of the views.
            declare_lost: as `Destinations` has it.
            now_ms: the wall time.
            accept_loss: go on where windows were published that are not stored.

        Raises:
            ConfigError: as `ReleaseEngine.load`.
        """
        self.rows = rows
        if undone := rolled_back(rows):
            yield Commit(undone)
        lost: dict[str, Sequence[int]] = {}
        for name, mark in self.marks.items():
            former, found = stored_view(name, rows), published.get(name, ())
            if former is not None:
                mark.check(name, former)
                self.marks[name] = former
            else:
                mark.next_ms = mark.kept_ms = mark.published_ms = self._first(self.views[name])
            self.keys.check(name, sealing_keys(name, rows))
            if missing := lost_windows(self.views[name], former, found, rows):
                gone = expired_windows(self.views[name], found, rows) if accept_loss else []
                lost[name] = sorted({*missing, *gone})
        if lost and not accept_loss:
            raise lost_state(lost)
        lost = self._with_earlier(lost, published)
        yield Commit([self.row(view) for view in self.views.values() if view.name not in lost])
        for kind in (BUCKET, BLOCK):
            yield from drop_except(kind, tuple(kind + text(name) for name in self.views), rows)
        yield from self.accounts.load(rows)
        for name, starts in lost.items():
            yield from write_off(self.views[name], starts, self.marks[name], self.accounts, declare_lost, rows)
        self.clearances.load(now_ms)
        self.tell(now_ms)

    @contextmanager
    def ahead(self) -> Iterator[Ahead]:
        """Let `rows` be what they will be behind changes that are collected for one commit."""
        stored = self.rows
        self.rows = collected = Ahead(stored)
        try:
            yield collected
        finally:
            self.rows = stored

    # -- definitions, and how far they have come --------------------------------------------------------------

    def earlier(self, view: ViewPlan) -> Iterator[ViewPlan]:
        """The definitions of the same view that were decided before one."""
        return takewhile(lambda one: one.name != view.name, self._of[view.view])

    def is_over(self, view: ViewPlan) -> bool:
        """Return True if a definition has no window left to release."""
        return view.until_ms is not None and self.marks[view.name].next_ms >= view.until_ms

    def has_turn(self, view: ViewPlan) -> bool:
        """Return True if the next window of a view is one of this definition."""
        return not self.is_over(view) and all(map(self.is_over, self.earlier(view)))

    def _with_earlier(self, lost: Mapping[str, Sequence[int]], published: Published) -> dict[str, Sequence[int]]:
        """Lost windows, and those lost of the definitions before them though nothing of them is public.

        Where a window of a definition was published, so was every window of those before it: the last one, where less
        is stored; and whatever has expired since may have been sharpened before.
        """
        found = dict(lost)
        for name in lost:
            for one in self.earlier(self.views[name]):
                gone = {*found.get(one.name, ()), *expired_windows(one, published.get(one.name, ()), self.rows)}
                if one.until_ms is not None and not self.is_over(one):
                    shape = one.window.shape
                    gone.add(shape.next(shape.first_from(one.until_ms), -1))
                if gone:
                    found[one.name] = sorted(gone)
        return found

    def _first(self, view: ViewPlan) -> int:
        """The first window of a definition without state: none that an earlier one has released by then.

        An earlier one that another took the place of before it began has released none.
        """
        stored = [(one, stored_view(one.name, self.rows)) for one in self.earlier(view)]
        behind = [row.next_ms for one, row in stored if row is not None and row.next_ms > one.begins_ms]
        return view.window.shape.first_from(max([view.begins_ms, *behind]))

    def advance(self, view: ViewPlan, start_ms: int, *, publishes_window: bool) -> list[Change]:
        """A window is stored: how far its definition has come, and how long windows of those before it are kept.

        These go by the windows of the one that took their place: they are kept no longer than if their definition went
        on, and the newest no longer than until one behind it was published.

        Args:
            view: the definition, with the edition of the window.
            start_ms: start of the window.
            publishes_window: whether a window is published with it.

        Returns:
            The rows to store behind the window's, its own definition's behind the others'.
        """
        mark = self.marks[view.name]
        mark.next_ms = max(mark.next_ms, view.window.shape.next(start_ms))
        mark.kept_ms = max(mark.kept_ms, start_ms - view.window.kept_ms)
        mark.published_ms = max(mark.published_ms, start_ms) if publishes_window else mark.published_ms
        changed: list[Change] = []
        for one in self.earlier(view):
            mark = self.marks[one.name]
            kept_ms = max(mark.kept_ms, min(mark.next_ms, start_ms - one.window.kept_ms))
            published_ms = mark.next_ms if publishes_window else mark.published_ms
            if (kept_ms, published_ms) != (mark.kept_ms, mark.published_ms):
                mark.kept_ms, mark.published_ms = kept_ms, published_ms
                changed.append(self.row(one))
        return [*changed, self.row(view)]

    def aged(self) -> list[Change]:
        """Update how long windows of removed views are kept, as they have no later window; the rows to store."""
        changed: list[Change] = []
        for view in self.views.values():
            mark = self.marks[view.name]
            if view.is_removed and self.is_over(view):
                shape = view.window.shape
                newest = shape.next(shape.first_open(self._without_view_ms(view)), -1)
                kept_ms = min(mark.next_ms, newest - view.window.kept_ms)
                if kept_ms > mark.kept_ms:
                    first = stored_window(view.name, mark.published_ms, self.rows)
                    if first is not None and not first.publishes_window:  # panes, and no window of them
                        mark.published_ms = mark.next_ms
                    mark.kept_ms = kept_ms
                    changed.append(self.row(view))
        return changed

    def row(self, view: ViewPlan) -> Change:
        """The row that says how far a definition has come."""
        return VIEW + text(view.name), encode(self.marks[view.name])

    def sealed(self, view: ViewPlan, start_ms: int, row: WindowRow) -> TablePart:
        """Return the sealed table of a released window, and what it was sealed with; its key is not retired."""
        return stored_table(view.name, start_ms, self.rows), noise_of(view, start_ms, row, self.secrets)

    # -- times ------------------------------------------------------------------------------------------------

    def tell(self, wall_ms: int) -> None:
        """Take note of the wall time."""
        self._wall_ms = max(self._wall_ms, wall_ms)

    def stream_ms(self, view: ViewPlan) -> int:
        """The end of the newest window whose turn is over, of all definitions of a view; before that, the view's start.

        A definition that none of its windows had a turn of says nothing: it may begin any time from now.
        """
        asked = [(one, self.marks[one.name]) for one in self._of[view.view]]
        over = [(one, mark.next_ms) for one, mark in asked if mark.next_ms > mark.published_ms]
        return stream_ms(over or [(one, mark.next_ms) for one, mark in asked[:1]])

    def now_ms(self, view: ViewPlan) -> int:
        """The time of a view."""
        return self._wall_ms if goes_by_the_wall(view) else self.stream_ms(view)

    def _without_view_ms(self, view: ViewPlan) -> int:
        """The time by which windows of a view get older that was taken out.

        By the event clock it is that of the views here that are still counted of its source; the wall clock's, where
        there is none.
        """
        alike = (one for one in self.views.values() if one.source.name == view.source.name and not one.is_removed)
        by_events = () if goes_by_the_wall(view) else (one for one in alike if not goes_by_the_wall(one))
        return max(map(self.stream_ms, by_events), default=self._wall_ms)

    def last_slot(self, view: ViewPlan) -> int:
        """The slot of the last window of a view; 0 if it has none."""
        return self._last_slots.get(view.view, 0)

    def passed(self, view: ViewPlan, row: WindowRow) -> None:
        """Take note of a window that is stored."""
        self._last_slots[view.view] = max(row.slot_ms, self.last_slot(view))

    def slot(self, view: ViewPlan, due_ms: int) -> int:
        """The slot of what was due at a time of a view, with a window that it has; by the stream with its newest."""
        if goes_by_the_wall(view):
            return max(self.slots.after(due_ms), self.slots.first(self._wall_ms))
        return self.last_slot(view)
