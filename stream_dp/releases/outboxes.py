"""Outboxes of stored records that are to be published: releasing fills them, publishing empties them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice

from msgspec.structs import replace

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.announcements import ANNOUNCEMENT_MS, NEXT_SLOT_MS, AnnouncedRow, settled_announcements, unsent
from stream_dp.releases.expiry import finished
from stream_dp.releases.partition_state import PartitionState
from stream_dp.releases.pieces import (
    RecordRow,
    forgotten_records,
    published_records,
    stored_records,
    waiting_records,
)
from stream_dp.releases.publication import Destinations
from stream_dp.releases.rows import (
    LATE,
    NOTHING,
    VIEW,
    WINDOW,
    Change,
    Departure,
    TotalChange,
    WindowRow,
    counted,
    stored_window,
    stored_windows,
)
from stream_dp.windows.effects import Commit, Increment, Leave, Message, Publish, Rows, Step
from stream_dp.windows.encoding import after, cut, encode, text, window_key
from stream_dp.windows.views import view_of

PUBLISHED_AT_ONCE = 500
"""Records that are published together: behind so many, the runtime looks whether the partition is still its own."""
BYTES_AT_ONCE = 4 << 20
"""Of such records: a release of many parts is published in several goes."""
SETTLED_AT_ONCE = 256
"""Windows whose outboxes one commit empties."""


class Outboxes:
    """The outboxes of one partition's windows that are not empty. Memory holds windows and slots, no records.

    `publish` reads stored rows only, so it may run between any two effects of the release engine; `settle` rewrites
    them, so it may not. What a crash leaves behind: an outbox that was published, in part or as a whole, and not
    emptied is published again from its start, byte for byte; records whose departure was settled and that were not
    deleted yet, which `ReleaseEngine.load` deletes.
    """

    def __init__(self, accounts: str = "") -> None:
        """Set up empty outboxes.

        Args:
            accounts: the topic of the accounts; its published entries are not kept.
        """
        self._accounts = accounts
        self._left_ms: dict[tuple[str, int], int] = {}
        """The slot at which a window was published, by view and window, while it is in `_published`."""
        self._waiting: list[tuple[int, int, str]] = []
        """A heap of (slot, start of the window, definition): those of former definitions of a view begin earlier."""
        self._published: dict[tuple[str, int], int] = {}
        """By view and window: the number of the last departure that was published and still stands in its row."""
        self._expired: dict[tuple[str, int], int] = {}
        """The same of windows that expire: nothing more leaves of them, and they wait for `erase`."""
        self._announced: dict[bytes, tuple[AnnouncedRow, int]] = {}
        """Published records of views that are not settled yet, with their slots, by row."""
        self._late: set[tuple[str, int]] = set()
        """Those of them that left at a later slot than their own."""
        self._held: list[tuple[int, int, str]] = []
        """As `_waiting`: tombstones of a window that readers know no later one than. They wait until one has left."""
        self._waited: set[tuple[str, int]] = set()
        """The windows of these, and of those that were: nobody is late with them."""
        self._known: dict[str, int] = {}
        """By view: start of a window that readers know."""

    def add(self, leave: Leave) -> None:
        """Carry out a `Leave`."""
        heappush(self._waiting, (leave.slot_ms, leave.start_ms, leave.view))

    @property
    def next_ms(self) -> int | None:
        """The earliest slot that something waits for, None if nothing waits."""
        return self._waiting[0][0] if self._waiting else None

    def publish(self, slot_ms: int, rows: Rows) -> Step:
        """Publish what was to leave at a slot or before it, in the order of slots, the windows of a view in theirs.

        What is added later leaves later, though the step may not have begun.

        Args:
            slot_ms: the slot that has come.
            rows: the partition's table.
        """
        due: dict[tuple[str, int], None] = {}
        while self._waiting and self._waiting[0][0] <= slot_ms:
            _, start_ms, view = heappop(self._waiting)
            due.setdefault((view, start_ms))
        return self._published_at(slot_ms, list(due), rows)

    def _published_at(self, slot_ms: int, windows: Sequence[tuple[str, int]], rows: Rows) -> Step:
        announced = {key: row for key, (row, _) in self._announced.items()}
        fresh: dict[bytes, AnnouncedRow] = {}
        for view in [view for view, start in windows if start == ANNOUNCEMENT_MS]:
            fresh |= {key: row for key, row in unsent(view, rows).items() if announced.get(key) != row}
        if fresh:
            yield Publish([row.message for row in fresh.values()], slot_ms)
            self._announced |= {key: (row, slot_ms) for key, row in fresh.items()}
        windows = [window for window in windows if window[1] != ANNOUNCEMENT_MS]
        late: Counter[str] = Counter()
        batch: list[Message] = []
        size = 0
        last: dict[tuple[str, int], int] = {}
        for view, start in windows:
            departure = self._leaving(view, start, slot_ms, rows)
            if departure is None:
                continue
            for message in waiting_records(view, start, departure, rows):
                if len(batch) >= PUBLISHED_AT_ONCE or size >= BYTES_AT_ONCE:
                    yield from self._publish(batch, slot_ms, last)
                    batch, size, last = [], 0, {}
                batch.append(message)
                size += len(message.value or b"")
            last[view, start] = departure.number
            self._left_ms[view, start] = slot_ms
            is_late = departure.slot_ms < slot_ms and (view, start) not in self._waited
            if is_late:
                self._late.add((view, start))
            late[view] += is_late  # one that is not tells that the view has caught up
        yield from self._publish(batch, slot_ms, last)
        for view, missed in sorted(late.items()):
            yield Increment(LATE, missed, (("view", view_of(view)),))

    def _leaving(self, view: str, start: int, slot_ms: int, rows: Rows) -> Departure | None:
        """Return the next departure of a window. Later ones wait until that one is settled.

        Were both published, a crash before that would let the older revision be published again behind the newer one.
        """
        row = stored_window(view, start, rows)
        behind = self._published.get((view, start), 0) or self._expired.get((view, start), 0)
        outbox = row.outbox if row is not None else []
        due = [departure for departure in outbox if departure.number > behind and departure.slot_ms <= slot_ms]
        leaving = due.pop(0) if due and not behind else None
        if due:
            heappush(self._waiting, (due[0].slot_ms, start, view))
        if leaving is not None and row is not None and row.withdraws(leaving) and not self._knows(view, start, rows):
            self._held.append((leaving.slot_ms, start, view))
            self._waited.add((view, start))
            return None
        return leaving

    def _knows(self, view: str, start: int, rows: Rows) -> bool:
        """Return True if readers know a later window of a view than one, whatever it asked of that.

        Once they do, they always do: the records of that one are taken back only when a later one has left.
        """
        name = view_of(view)
        if self._known.get(name, start) <= start:
            found = _later(view, start, rows)
            self._known |= {} if found is None else {name: found}
        return self._known.get(name, start) > start

    def _publish(self, batch: list[Message], slot_ms: int, last: dict[tuple[str, int], int]) -> Iterator[Publish]:
        """Publish some records, and note the departures that are whole with them."""
        if batch:
            yield Publish(batch, slot_ms)
        self._published |= last

    @property
    def published(self) -> bool:
        """True if something was published that still stands in its outbox."""
        return bool(self._published or self._announced)

    @property
    def expired(self) -> bool:
        """True if `erase` has something to do."""
        return bool(self._expired)

    def settle(self, rows: Rows) -> Step:
        """Take published records out of their outboxes and keep them, for at most `SETTLED_AT_ONCE` windows.

        A window that expires waits for `erase` behind its last departure.
        """
        changed: list[Change] = []
        left: list[Change] = []
        kept: list[Change] = []
        settled: dict[tuple[str, int], int] = {}
        room = BYTES_AT_ONCE
        for (view, start), number in islice(self._published.items(), SETTLED_AT_ONCE):
            if room <= 0:
                break
            settled[view, start] = number
            row = stored_window(view, start, rows)
            if row is None:
                continue
            outbox = [departure for departure in row.outbox if departure.number > number]
            if row.expires and not outbox:
                self._expired[view, start] = number
                continue
            for departure in row.outbox:
                if departure.number <= number:
                    some = published_records(view, start, departure, self._left_ms[view, start], self._accounts, rows)
                    room -= sum(len(value or b"") for _, value in some)
                    kept += some
                    left += forgotten_records(view, start, departure)
            changed.append((window_key(WINDOW, view, start), encode(replace(row, outbox=outbox))))
        announced, self._announced = self._announced, {}
        if behind := [*settled_announcements(announced, rows)]:
            yield Commit(behind)
        if not settled:
            return
        whole = {window: number for window, number in settled.items() if window not in self._expired}
        if whole:  # in this order: no outbox stands without its records
            yield Commit([counted(self._counted(whole), rows), *kept, *changed, *left])
        over = [window for window, number in settled.items() if self._published[window] == number]
        for window in over:
            del self._published[window]
            del self._left_ms[window]
        self._over([window for window in over if window in whole])
        while self._held:
            heappush(self._waiting, self._held.pop())

    def erase(self, rows: Rows) -> Step:
        """Leave nothing of the windows that expire and that nothing more leaves of, in the table and in its files.

        All of them together: what is rewritten for that grows with what is retained, and not with their number.
        """
        expired = dict(self._expired)
        yield from finished(expired, rows)
        for some in cut(expired.items(), lambda _: 1, SETTLED_AT_ONCE):
            gone, left = dict(some), list[Change]()
            for (view, start), row in ((window, stored_window(*window, rows)) for window in gone):
                for departure in [] if row is None else row.outbox:
                    left += forgotten_records(view, start, departure)
            ended: list[Change] = [(window_key(WINDOW, *window), None) for window in gone]
            yield Commit([counted(self._counted(gone), rows), *ended, *left])
            self._over(gone)
        for window in expired:
            del self._expired[window]
        for name in {view for view, _ in expired if unsent(view, rows)}:  # a record was about what is gone
            self.add(Leave(name, ANNOUNCEMENT_MS, NEXT_SLOT_MS))

    def _counted(self, windows: Mapping[tuple[str, int], int]) -> list[TotalChange]:
        return [
            TotalChange(LATE, view, 1, start, windows[view, start])
            for view, start in windows
            if (view, start) in self._late
        ]

    def _over(self, windows: Iterable[tuple[str, int]]) -> None:
        self._late.difference_update(windows)
        self._waited.difference_update(windows)


def _later(view: str, start: int, rows: Rows) -> int | None:
    """Start of a window of a view that has left, later than one; None if none has."""
    asked = (key[len(VIEW + text("")) :].decode() for key, _ in rows.scan(VIEW, after(VIEW)))
    for name in (one for one in asked if view_of(one) == view_of(view)):
        found = next((at for at, row in stored_windows(name, rows, start + 1) if row.has_left), None)
        if found is not None:
            return found
    return None


def revoked(
    state: PartitionState,
    destinations: Destinations,
    view: ViewPlan,
    start: int,
    row: WindowRow,
    lowered_ms: Mapping[str, int],
) -> list[Change]:
    """Return the rows that void a window's waiting records that may not be published, the window's row last.

    Only records whose slot is at or after the lowering are voided. Records with an earlier slot are published, however
    late: otherwise the revisions of an audience would depend on how fast a worker publishes.

    Args:
        state: the partition's: the clearances say what an audience may be shown by now.
        destinations: the public topics.
        view: the view.
        start: start of the window.
        row: its row; it is changed.
        lowered_ms: time from which an audience may see less, by audience: when this was decided, or the later time that
            it names. Records of other audiences are not voided.
    """
    waiting: dict[str, dict[int, list[tuple[bytes, RecordRow]]]] = {}
    for departure in row.outbox:
        for key, record in stored_records(view.name, start, departure, state.rows):
            if record.value is not None or record.void:
                waiting.setdefault(record.topic, {}).setdefault(departure.number, []).append((key, record))
    changed: list[Change] = []
    states = row.states if row.sum is None else row.sum.states
    finest, is_lowered = row.finest, False
    for audience in (one for one in view.readers if one in lowered_ms):
        records = waiting.get(destinations.release(view.view, audience), {})
        departures = [one for one in row.outbox if one.number in records and one.slot_ms >= lowered_ms[audience]]
        most = state.clearances.most(view, audience, start)
        first = _first_revoked(departures, audience, row.has(audience), most)
        if first is not None:
            behind = (one for number, those in records.items() if number >= first.number for one in those)
            still = ((key, record) for key, record in behind if not record.void)
            changed += [(key, encode(replace(record, value=None, void=True))) for key, record in still]
            level = first.had.get(audience, NOTHING.level)
            if audience in states and states[audience].level != level:
                row.charge_step(finest)
                if row.sum is None:
                    row.withdrawn_steps[audience] = row.accounted_steps(audience)
                states[audience] = states[audience].back_at(level)
                is_lowered = True
    return [*changed, (window_key(WINDOW, view.name, start), encode(row))] if changed or is_lowered else []


def _first_revoked(departures: list[Departure], audience: str, has: int, most: int) -> Departure | None:
    """The first departure that gives an audience more than it may be shown; or anything, where it may see nothing.

    Args:
        departures: those that have records of the audience.
        audience: the audience.
        has: the level that it has with the last of them.
        most: the finest level that it may be shown.
    """
    levels = [*(one.had.get(audience, NOTHING.level) for one in departures[1:]), has]
    return next((one for one, level in zip(departures, levels, strict=False) if most < 0 or level > most), None)
