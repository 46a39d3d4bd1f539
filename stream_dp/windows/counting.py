"""Bounded exact counts of one partition of a source, each event once whatever crashes.

All state is a journal in the table and its sum in memory, or on disk (`windows.open_windows`). A chunk appends rows for
each window it adds to, then the marker, whose offset is the commit point: rows behind it are rolled back when the
partition is loaded, records up to it are skipped when they are read again. Which contribution is kept depends on the
user's own earlier events only.

Views that keep the same contributions share open windows: a chunk is bounded once for all of them. Each has a journal
of its own. Views share when, on loading, all that bounding reads is equal, the stored journals included
(`ViewState.bounds_like`). They part as soon as one of them hands on another window than the rest.

Chunks and ticks come in one order, that of the logs (`runtime.faust.coalescing`): a tick comes after exactly the
records that were in the source when it was made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from stream_dp.errors import ConfigError
from stream_dp.windows.bounding import Admission, bound_chunk
from stream_dp.windows.count_rows import (
    JOURNAL,
    REPEATS,
    JournalRow,
    JournalRowHead,
    Marker,
    SourcePartition,
    SourcePartitionClock,
    ViewMark,
    refusals,
    take_watermarks,
)
from stream_dp.windows.effects import (
    ROWS_LOADED,
    Commit,
    Effect,
    Increment,
    Long,
    Message,
    Rows,
    Send,
    SendLetters,
    Step,
    Warn,
)
from stream_dp.windows.encoding import (
    CHUNK_BYTES,
    cut,
    decode,
    row_size,
    text,
    window_start,
)
from stream_dp.windows.events import Decoded, EventDecoder, Partitioner, Record, Schemas
from stream_dp.windows.gaps import Interval, close_gap, note_interrupted, open_gap, words
from stream_dp.windows.handover import Handover, send_lost_partials
from stream_dp.windows.journals import Journals, purge_journals
from stream_dp.windows.marker_rows import MarkerRows, read_other_markers
from stream_dp.windows.merging import drop_except
from stream_dp.windows.open_windows import ViewState, WindowMemory, pass_time
from stream_dp.windows.partial_counts import Outlet, PartialCounts
from stream_dp.windows.participation import Participation, drop_others
from stream_dp.windows.schema_outcomes import SchemaOutcomes
from stream_dp.windows.views import HANDED_ON_AT_ONCE, CountedView, plausible_times, view_of

DeadLetters = Callable[[int, int, str, Sequence[str]], Message]
"""(partition, offset, reason, views that do not count it) to a record of the dead-letter topic: metadata only."""

Row = tuple[bytes, bytes | None]

LARGE_BYTES = 16 << 20
"""Of an open window in memory: the tables of a larger one take 10 ms and longer at times, when they grow."""
CLOSED_BYTES = 1 << 20
"""Of closed windows in memory: if there is more, it takes 5 ms and longer to count them."""

_Refused = tuple[Sequence[tuple[int, str]], Sequence[str]]
"""Refused records, (offset, reason), and the views that refused them; none: every view did."""
_Lost = tuple[int, int, list[tuple[CountedView, Interval]]]
"""Missing records: the first offset, the one after the last, and by view the windows that may lack them."""


def fresh_records(records: Sequence[Record], offset: int) -> Generator[Effect, None, Sequence[Record]]:
    """Return the records behind an offset; those up to it are read again."""
    fresh = records if records[0].offset > offset else [record for record in records if record.offset > offset]
    yield Increment("events_consumed", len(records))
    if len(fresh) < len(records):
        yield Increment("events_replayed", len(records) - len(fresh))
    return fresh


@dataclass(frozen=True, slots=True)
class CountedPartition:
    """Partition of a source whose records are counted.

    Attributes:
        source: the source's name.
        partition: the number of the partition.
        partitioner: the hash that places users, None to trust the producers.
    """

    source: str
    partition: int
    partitioner: Partitioner | None = None

    def misplaced(self, users: Iterable[bytes]) -> Container[bytes]:
        """Return the users among these whose events belong into another partition."""
        if self.partitioner is None:
            return ()
        asked = list(set(users))
        return {user for user, at in zip(asked, self.partitioner(asked), strict=True) if at != self.partition}


class PartitionCounter:
    """Counts one partition of one source for all its views.

    Every method returns a step: a generator of effects to be carried out in order. A step that was cut short is run
    again, after `load`, from the same message.
    """

    def __init__(
        self,
        counted: CountedPartition,
        views: Sequence[CountedView],
        decoder: Callable[[Sequence[str]], EventDecoder],
        *,
        outlet: Outlet,
        dead_letters: DeadLetters,
        configured: Collection[str],
        memory: WindowMemory,
    ) -> None:
        """Set up the counter; `load` makes it ready.

        Args:
            counted: the partition.
            views: the views on the source; of a view whose definition changed each definition, in the order of their
                windows.
            decoder: makes what reads its records, for those of `views` that still count: its item columns are theirs.
            outlet: where partials go.
            dead_letters: where refused records are noted.
            configured: names of all views of the application; rows of others are deleted.
            memory: bounds what an open window holds in memory.
        """
        self._memory = memory
        self._source = counted.source
        self._marker_rows = MarkerRows(counted.source)
        self._configured = set(configured)
        self._partition = counted.partition
        self._decoder_of = decoder
        self._outlet = outlet
        self._dead_letters = dead_letters
        self._counted = counted
        self.schema_outcomes = SchemaOutcomes(counted.source, is_keyed=True)
        self._views = [ViewState(view, ViewMark.new(view, view.first_ms, 0)) for view in views]
        self._plausible = plausible_times(views)
        self._marker = Marker(views={state.view.name: state.mark for state in self._views})
        self._choose()
        self._group()

    def _choose(self) -> None:
        """Choose the definitions that count: those that are over do not, and their fields need not be in records."""
        self._counting = [state for state in self._views if not state.is_over]
        self._decoder = self._decoder_of([state.view.name for state in self._counting])
        seen: set[str] = set()
        for state in self._counting:
            state.is_oldest = state.view.view not in seen
            seen.add(state.view.view)

    def _group(self) -> None:
        """Put views together that share their open windows."""
        groups: dict[int, list[tuple[int, ViewState]]] = {}
        for column, state in enumerate(self._counting):
            groups.setdefault(id(state.windows), []).append((column, state))
        self._groups = [(group[0][0], [state for _, state in group]) for group in groups.values()]
        """Of each, the column of a chunk that its views count."""

    @property
    def next_offset(self) -> int:
        """The offset behind the last record whose effect is stored."""
        return self._marker.offset + 1

    @property
    def takes_long(self) -> bool:
        """True if the next chunk may need a window or users on disk, add to a large window, or let views part."""
        if any(state.view.participation is not None or state.view.groups_users for state in self._counting):
            return True
        if any(not all(state.is_oldest for state in group) for _, group in self._groups if len(group) > 1):
            return True
        windows = (window for _, group in self._groups for window in group[0].windows.values())
        large = min(LARGE_BYTES, self._memory.most_bytes // 2)
        return any(window.spill_store is not None or window.memory_bytes > large for window in windows)

    def load(self, rows: Rows) -> Step:
        """Rebuild the state from the table; roll back what stands behind the commit point, finish what was cut short.

        Raises:
            ConfigError: a view was changed in a way that its stored counts do not fit.
        """
        self._journals = Journals(rows)
        self._partials = PartialCounts(self._partition, self._journals, self._outlet, self._memory)
        self.schema_outcomes.load(rows)
        marker = self._marker = self._marker_rows.read(rows) or Marker(views={})
        self._check_moved(marker, rows)
        yield from Handover([state.view for state in self._views], marker, rows).carried_out(
            self._marker_rows, self._outlet, self._partition
        )
        for state in self._views:
            state.mark = marker.views.get(state.view.name, state.mark)
            if state.mark.fingerprint != state.view.fingerprint:
                raise ConfigError(_changed(state.view.name))
        self._choose()
        rolled_back: list[Row] = []
        left: list[Row] = []
        leaders: list[ViewState] = []
        for state in self._views:
            bound = state.view.participation
            state.participation = None if bound is None else Participation(state.view, bound, rows)
            like = (one for one in leaders if one.bounds_like(state))
            alike = next((one for one in like if self._journals.are_equal(one, state, marker.offset)), None)
            if alike is None:
                leaders.append(state)
            else:
                state.windows = alike.windows
            for some in cut(self._journals.stored_rows(state), row_size, CHUNK_BYTES):
                for key, value in some:
                    start = window_start(JOURNAL, state.view.name, key)
                    row = decode(JournalRow if alike is None else JournalRowHead, value)
                    if row.last_offset > marker.offset:
                        rolled_back.append((key, None))
                        if state.participation is not None and isinstance(row, JournalRow):
                            left += state.participation.rolled_back(start, row.users, marker.offset)
                        continue
                    state.rows[start] += 1
                    if isinstance(row, JournalRow):
                        state.take(start, row, self._memory)
                yield Increment(ROWS_LOADED, len(some))
        if rolled_back:
            yield Commit([*left, *rolled_back])  # in this order: the journal tells who had entered
        marker.views = {state.view.name: state.mark for state in self._views}
        yield from drop_except(JOURNAL, tuple(JOURNAL + text(name) for name in self._configured), rows)
        yield from drop_others(self._configured, rows)
        self._group()
        yield from self._forget_entered(self._views)
        yield from self._hand_on()

    def _check_moved(self, marker: Marker, rows: Rows) -> None:
        """Refuse views that went to another source while counts of them are stored, whichever is loaded first."""
        own = {state.view.name for state in self._views}
        others = read_other_markers(rows, self._source)
        came = own & {name for other in others for name in other.views}
        went = marker.views.keys() & (self._configured - own)
        if came | went:
            raise ConfigError(_changed(min(came | went)))

    def learn(self, schemas: Schemas) -> None:
        """Take the schemas of the chunks to come: a step asks nobody for one."""
        self.schema_outcomes.learn(schemas)
        self._decoder.learn(schemas)

    def chunk(self, records: Sequence[Record], now_ms: int, begins: int = 0) -> Step:
        """Count consecutive records of the partition; hand on every window that they close.

        Args:
            records: the records.
            now_ms: the wall time of the tick behind them, the first that was made when they stood in the log.
            begins: the offset at which the log of the partition began when they had been read; may be 0 where none
                is missing between them and the last that was counted.
        """
        last = records[-1].offset
        fresh = yield from fresh_records(records, self._marker.offset)
        if not fresh:
            return
        fresh, outcomes = self.schema_outcomes.settle(fresh)
        if outcomes:
            yield Commit(outcomes)
        missing = self._pass_to(fresh[0].offset, begins, now_ms)
        yield from self._tell_missing([missing])
        decoded = self._decoder.decode(fresh)
        decoded.watermarks, not_believed = self._plausible.check_watermarks(decoded.watermarks, now_ms)
        decoded.refused = sorted([*decoded.refused, *not_believed])
        self._marker.consumed += len(fresh)
        self._marker.watermarks += len(decoded.watermarks)
        self._take_watermarks(self._marker, self._partition, decoded.watermarks, now_ms)
        if decoded.watermarks:
            yield Increment("watermarks_read", len(decoded.watermarks))
        changed = yield from self._count(decoded, last, now_ms, self._partition)
        yield self._chunk_committed(changed, last)
        yield from self._hand_on()

    def _chunk_committed(self, changed: Sequence[Row], last: int) -> Commit:
        """Store a chunk that ends at an offset, the marker last."""
        self._marker.offset = last
        bounded = (state.participation for state in self._counting if state.participation is not None)
        entered = [row for one in bounded for row in one.stored(last)]
        return Commit([*changed, *entered, *self._marker_rows.encode(self._marker)])

    def _count(self, decoded: Decoded, last: int, now_ms: int, partition: int) -> Generator[Effect, None, list[Row]]:
        """Count what was decoded of consecutive records of a partition of the source.

        Args:
            decoded: the records.
            last: the last offset of the chunk.
            now_ms: the wall time of the tick behind them.
            partition: whose they are.

        Returns:
            The journal rows of what was accepted.
        """
        refused: list[_Refused] = [(decoded.refused, [])]
        changed: list[Row] = []
        misplaced = self._counted.misplaced(decoded.users)
        for column, group in self._groups:
            one = group[0]
            self._take_out(one, decoded, column)
            admission = Admission(
                self._clock(one, partition).clock_ms,
                now_ms,
                one.mark.open_from_ms,
                decoded.watermarks if one.view.clock == "event" else (),
                misplaced,
                is_oldest=one.is_oldest,
                participation=one.participation,
            )
            bound = bound_chunk(one.view, one.windows, decoded.columns[column], admission)
            refused.append((bound.refused, [state.view.name for state in group]))
            counted = sum(len(row.users) for row in bound.added.values())
            values: list[tuple[int, bytes]] = []
            settled: dict[int, list[JournalRow]] = {}
            for start, row in bound.added.items():
                row.last_offset = last
                values += [(start, value) for value in row.encoded()]
                settled.setdefault(one.view.bounded_in(start), []).append(row)
            for start, window in one.windows.items():
                if start in settled or window.spill_store is not None:
                    window.settle(settled.get(start, ()), self._memory)
            for state in group:
                clock = self._clock(state, partition)
                clock.clock_ms = bound.clock_ms
                if decoded.watermarks:
                    clock.idle_since_ms = now_ms
                self._move(state, now_ms)
                yield Increment("events_counted", counted, (("view", state.view.view),))
                changed += [(state.next_key(start), value) for start, value in values]
        yield from self._refuse(refused, partition)
        return changed

    def ticks(self, times_ms: Sequence[int], ends: Sequence[int] = (), begins: int = 0) -> Step:
        """Let the wall clock close windows.

        Args:
            times_ms: the wall times of ticks with no record between them. A time that is not behind all earlier ones
                says nothing new: the tick is read again, or the clock was set back.
            ends: the offset that the partition ended at when each tick was made. What stands before it and was not
                read is no record, or was deleted.
            begins: as of `chunk`, when the log had been read up to the last of them.
        """
        missing: list[_Lost | None] = []
        for now_ms, end in zip_longest(times_ms, ends, fillvalue=0):
            missing.append(self._pass_to(end, begins, now_ms))
            self._tick(self._marker, self._partition, now_ms)
        yield from self._tell_missing(missing)
        yield Commit(self._marker_rows.encode(self._marker))
        yield from self._hand_on()

    def _tick(self, progress: Marker | SourcePartition, partition: int, now_ms: int) -> None:
        """Let time pass in a partition of the source; a time that is not behind all earlier ones says nothing new."""
        if now_ms > progress.tick_ms:
            for state in self._counting:
                clock = self._clock(state, partition)
                shown_ms = clock.clock_ms
                if pass_time(state.view, clock, now_ms, progress.tick_ms):
                    note_interrupted(state.view, state.mark, shown_ms, clock.clock_ms)
                self._move(state, now_ms)
            progress.tick_ms = now_ms

    # -- records that are missing -----------------------------------------------------------------------------

    def _pass_to(self, end: int, begins: int, now_ms: int) -> _Lost | None:
        """Go on at an offset as `SourceProgress.pass_to`, and refuse the windows that may lack what is missing."""
        marker, now_ms = self._marker, max(now_ms, self._marker.tick_ms)
        gap = marker.pass_to(end, begins, now_ms) if self.next_offset < end else None
        return None if gap is None else (*gap, self._open_gaps(marker, self._partition, now_ms))

    def _open_gaps(
        self, progress: Marker | SourcePartition, partition: int, now_ms: int
    ) -> list[tuple[CountedView, Interval]]:
        """Refuse the windows that may lack records which are missing at the present place of a partition."""
        progress.gap_ms, progress.read_ms = now_ms, max(progress.read_ms, now_ms)
        found: list[tuple[CountedView, Interval]] = []
        for state in self._counting:
            interval = open_gap(state.view, state.mark, self._clock(state, partition), now_ms)
            found += [(state.view, interval)] if interval is not None else []
        return found

    def _take_watermarks(
        self, progress: Marker | SourcePartition, partition: int, watermarks: Sequence[tuple[int, int]], now_ms: int
    ) -> None:
        """Note how far a partition was read; its first watermark that is news bounds what may lack missing records."""
        progress.read_ms = now_ms
        shown_ms = take_watermarks(progress, watermarks, now_ms)
        if shown_ms is not None:
            for state in self._counting:
                close_gap(state.view, state.mark, self._clock(state, partition), shown_ms)

    def _tell_missing(self, missing: Iterable[_Lost | None]) -> Iterator[Effect]:
        if found := [one for one in missing if one is not None]:
            first, behind = found[0][0], found[-1][1]
            yield Increment("records_missing", behind - first)
            spans = [span for *_, spans in found for span in spans]
            yield Warn(words(self._source, self._partition, first, behind, spans))

    @staticmethod
    def _take_out(state: ViewState, decoded: Decoded, column: int) -> None:
        """Before a chunk is counted, make windows on disk ready for what it holds of each."""
        view = state.view
        for start, window in state.windows.items():
            if window.spill_store is not None:
                end = (view.bounds or view.windows).end(start)
                events = zip(*decoded.columns[column], strict=True)
                window.take_out((user, item) for _, user, time, item in events if start <= time < end)

    def declare_lost(self, view: str, from_ms: int) -> Step:
        """Stand in for what was handed on of a view, since some of it was lost on its way.

        What was not lost comes before it, in the same partition, and outranks it. What was not handed on yet will be.
        So each window that is waited for is complete in the end, with all its counts or known to be lost.

        Args:
            view: its name; nothing is done for one that is not counted here.
            from_ms: start of the first window that is waited for.
        """
        for state in self._views:
            if state.view.name == view:
                yield from send_lost_partials(state.view, state.mark, from_ms, self._outlet, self._partition)

    def _refuse(self, refused: Sequence[_Refused], partition: int) -> Iterator[Effect]:
        tally: dict[tuple[str, str], int] = {}
        letters: dict[tuple[int, str], dict[str, None]] = {}
        marks = self._marker.views
        for found, views in refused:
            for reason, amount in Counter(reason for _, reason in found).items():
                tally |= {(reason, view): amount for view in views or [""]}
            names = dict.fromkeys(map(view_of, views or [state.view.name for state in self._counting]))
            for offset, reason in found:
                if reason not in REPEATS:
                    letters.setdefault((offset, reason), {}).update(names)
        for (reason, view), amount in sorted(tally.items()):
            total = marks[view].refused if view else self._marker.refused
            total[reason] = total.get(reason, 0) + amount
            yield from refusals({reason: amount}, view_of(view))
        if letters:
            yield SendLetters([self._dead_letters(partition, *place, list(views)) for place, views in letters.items()])

    def _clock(self, state: ViewState, _partition: int) -> ViewMark | SourcePartitionClock:
        """The time of a view by which the events of a partition of the source are judged."""
        return state.mark

    def _move(self, state: ViewState, wall_ms: int) -> None:
        """Close what the clock has passed. What a tick closes is closed as of the tick, however long counting took."""
        until, mark = state.view.closed_before(state.mark.clock_ms), state.mark
        if until > mark.closed_until_ms:
            mark.closed_until_ms, mark.closed_ms = until, wall_ms

    # -- handing on -------------------------------------------------------------------------------------------

    def _hand_on(self) -> Iterator[Effect]:
        """Publish the partial counts of closed windows; then delete the journals of those that a step before handed on.

        To forget a journal in the files takes longer than to hand on a window, and a release waits for every partition:
        so that is done in the partition's next step, a tick later at most. Where contributions are bounded over more
        than a window, a journal tells what its users may still add to later ones, so it is kept until the last of them
        is handed on.
        """
        before = self._to_purge()
        while closed := self._closed():
            if sum(state.closed_bytes for state in closed) > CLOSED_BYTES:
                yield Long()
            for state in closed:
                view, mark = state.view, state.mark
                stop = min(mark.closed_until_ms, view.windows.next(mark.open_from_ms, HANDED_ON_AT_ONCE))
                starts = view.windows.starts(mark.open_from_ms, stop)
                partials = (message for start in starts for message in self._partials.messages(state, start))
                for some in cut(partials, lambda message: message.size, CHUNK_BYTES):
                    yield Send(some)
                mark.hand_on(stop, state.forget_rows(stop), len(starts))
                yield Commit(self._marker_rows.encode(self._marker))
                yield Increment("windows_closed", len(starts), (("view", view.view),))
            if any(state.is_over for state in closed):
                self._choose()
            self._part()
            for state in closed:
                state.forget_windows()
            yield from self._forget_entered(closed)
            self._group()
            if self._closed():  # so many that they do not pile up in the marker
                yield from purge_journals(self._marks(), before)
                before = self._to_purge()
        yield from purge_journals(self._marks(), before)

    def _closed(self) -> list[ViewState]:
        """The views that have windows to hand on."""
        return [state for state in self._counting if state.mark.open_from_ms < state.mark.closed_until_ms]

    def _to_purge(self) -> Mapping[str, int]:
        """By view, how many windows were handed on whose journals stand."""
        return {state.view.name: len(state.mark.purging) for state in self._views}

    def _marks(self) -> Mapping[str, ViewMark]:
        return {state.view.name: state.mark for state in self._views}

    def _part(self) -> None:
        """Give windows of their own, from their journals, to views that no longer take the same events as the first."""
        for _, (first, *others) in self._groups:
            for state in others:
                if state.admits != first.admits:
                    state.windows = {}
                    for start in state.rows:
                        for row in self._journals.window_rows(state.view.name, start):
                            state.take(start, row, self._memory)

    @staticmethod
    def _forget_entered(states: Sequence[ViewState]) -> Iterator[Effect]:
        """Forget who has entered windows of periods that are over."""
        for state in states:
            if state.participation is not None:
                yield from state.participation.erased(None if state.is_over else state.mark.open_from_ms)


def _changed(view: str) -> str:
    return (
        f"views.{view}: its source, item field, window, bounds, kind, ladder or thresholds were changed while counts "
        "or releases of it are stored; give the changed view a new name, or set it back"
    )
