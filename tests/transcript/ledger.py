"""The sequence of one ledger: its events by tick and stage (section 3)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.transcript.announcements import Announcements
from tests.transcript.clock import Clocks, Closing, Partition
from tests.transcript.editions import Edition, History, State
from tests.transcript.expiry import Expiry
from tests.transcript.levels import Carried
from tests.transcript.predictions import Place, Prediction, Topic
from tests.transcript.raising import Raising
from tests.transcript.releasing import Price, Releasing
from tests.transcript.transcript import (
    Control,
    Grant,
    KeyAdded,
    KeyRetired,
    Transcript,
    Verdict,
    Withdrawal,
)
from tests.transcript.windows import Unit

ListVersion = Callable[[str, Edition, int], str | None]
"""Function from population, edition and tick time to the version of the list; None without a list."""

# The stages of a tick.
CONTROL = 1
WINDOWS = 2
UNLOCKS = 3
LEFTOVERS = 4
EXPIRY = 5


class OpenEndError(Exception):
    """The transcript ends before something that decides the next event."""


@dataclass(frozen=True)
class Due:
    """A window that is decided at a tick."""

    edition: Edition
    start_ms: int
    end_ms: int
    closing: Closing

    @property
    def order(self) -> tuple[int, int, str]:
        """Its place in the order of the windows of a tick."""
        return self.end_ms, self.start_ms, self.edition.view


class Ledger:
    """Follows the ticks of a ledger's own partition."""

    def __init__(
        self,
        population: str,
        transcript: Transcript,
        history: History,
        partition: Partition,
        clocks: Clocks,
        list_version: ListVersion,
        price: Price,
    ) -> None:
        """Start before the first tick."""
        self.population = population
        self.partition = partition
        self.stopped_ms: int | None = None
        self.releasing: Releasing | None = None
        self._transcript = transcript
        self._history = history
        self._clocks = clocks
        self._list_version = list_version
        self._price = price
        self._read = 0
        self._key: str | None = None
        self._pending: list[tuple[int, Grant]] = []
        self._withdrawn: set[str] = set()
        self._next: dict[tuple[str, int], int] = {}
        self._announcements = Announcements(population)

    # One tick

    def move(self, tick_ms: int, control_end: int) -> None:
        """Process every event of a tick, unless the ledger waits for something earlier."""
        if self.stopped_ms is not None:
            return
        try:
            self._read_control(tick_ms, control_end)
            if not self._is_heard(tick_ms):
                raise OpenEndError
            if self.releasing is not None:
                self._decide_windows(tick_ms)
                self._raising.unlock(tick_ms, Place(tick_ms, UNLOCKS))
                self._raising.sharpen(tick_ms, Place(tick_ms, LEFTOVERS))
                self._expiry.expire_by_wall_clock(tick_ms, Place(tick_ms, EXPIRY))
        except OpenEndError:
            self.stopped_ms = tick_ms

    @property
    def prediction(self) -> Prediction:
        """The decisions so far."""
        if self.releasing is None:
            return Prediction((), (), self.stopped_ms)
        return Prediction(self.releasing.outbox.records, tuple(self.releasing.entries), self.stopped_ms)

    def feeding(self, topic: str) -> Topic | None:
        """Return view and audience of a release topic of this ledger; None for any other topic."""
        if self.releasing is None:
            return None
        for edition in self._editions(self.releasing.state):
            view = self.releasing.state.newest(edition.view) or edition.plan
            for audience in {*view.audiences, *edition.plan.audiences}:
                if topic == f"{self.releasing.state.plan.id}.releases.{edition.view}.{audience}":
                    return edition.view, audience
        return None

    def newest_before(self, topic: Topic, tick_ms: int) -> int:
        """Return the number of the last record that a list at a tick is made of.

        Raises:
            OpenEndError: the transcript ends before this ledger has decided all of these records.
        """
        if self.releasing is None:
            return 0
        earliest_ms = tick_ms - self.releasing.state.plan.slots.offset_ms
        is_stopped = self.stopped_ms is not None and self.stopped_ms < earliest_ms
        if is_stopped or (self.partition.last_ms or 0) < earliest_ms:
            raise OpenEndError
        return self.releasing.outbox.newest_before(topic, tick_ms)

    def _is_heard(self, tick_ms: int) -> bool:
        """Return True if all sources that are read by watermarks have ticks up to this one (section 4)."""
        if self.releasing is None:
            return True
        for edition in self._editions(self.releasing.state):
            next_ms = self._next_start(edition)
            is_over = edition.until_ms is not None and next_ms >= edition.until_ms
            if edition.plan.window.clock == "wall" or is_over:
                continue
            heard_ms = self._clocks.heard_until(edition.plan.source.name)
            if heard_ms is None or heard_ms < tick_ms:
                return False
        return True

    # Stage 1

    def _read_control(self, tick_ms: int, control_end: int) -> None:
        place = Place(tick_ms, CONTROL)
        first = self._read
        self._read = max(first, control_end)
        records = list(enumerate(self._transcript.control))[first : self._read]
        switched = self._switch(records, place)
        self._pending += [(offset, record) for offset, record in records if isinstance(record, Grant)]
        self._withdrawn.update(record.grant for _, record in records if isinstance(record, Withdrawal))
        carried = list(self._carry_out(tick_ms))
        releasing = self.releasing
        if releasing is None or not (switched or carried):
            return
        releasing.clearances.grants += carried
        releasing.void(tick_ms)
        self._announcements.void(tick_ms, releasing.state, releasing.outbox)
        asked: list[tuple[int, Carried | None]] = [(one.offset, one) for one in carried]
        asked += [(offset, None) for offset in switched]
        for _, grant in sorted(asked, key=lambda one: one[0]):
            if grant is None:
                releasing.release_free(releasing.windows.released(), place)
            else:
                self._raising.grant(grant, place)

    def _switch(self, records: Sequence[tuple[int, Control]], place: Place) -> list[int]:
        """Put accepted settings and keys into effect; return the offsets of the settings."""
        switched: list[int] = []
        for offset, record in records:
            if isinstance(record, Verdict):
                state = next((one for one in self._history.states if one.offset == offset), None)
                if state is not None:
                    self._put_into_effect(state, place)
                    switched.append(offset)
            elif isinstance(record, KeyAdded):
                self._key = record.key
            elif isinstance(record, KeyRetired) and self.releasing is not None:
                self.releasing.retired.add(record.key)
        return switched

    def _put_into_effect(self, state: State, place: Place) -> None:
        if self.releasing is None:
            self.releasing = Releasing(state, self._price)
            self._expiry = Expiry(self.releasing, self._announcements, self._is_decided)
            self._raising = Raising(self.releasing, self._undecided)
        self.releasing.state = state
        self._announcements.announce(state, self.releasing.outbox, place)
        self._raising.learn(state, place.tick_ms)

    def _carry_out(self, tick_ms: int) -> Iterator[Carried]:
        """Yield the grants whose time has come and that were not withdrawn, by offset."""
        waiting: list[tuple[int, Grant]] = []
        for offset, grant in self._pending:
            if grant.name in self._withdrawn:
                continue
            if grant.at_ms is not None and grant.at_ms > tick_ms:
                waiting.append((offset, grant))
            else:
                yield Carried(tick_ms, offset, grant)
        self._pending = waiting

    # Stage 2

    def _decide_windows(self, tick_ms: int) -> None:
        assert self.releasing is not None
        due: list[Due] = []
        for edition in self._editions(self.releasing.state):
            due += self._due(edition, tick_ms)
        for one in sorted(due, key=lambda window: window.order):
            if one.closing is _UNKNOWN:
                raise OpenEndError
            self._decide(one, tick_ms)

    def _decide(self, due: Due, tick_ms: int) -> None:
        assert self.releasing is not None
        place = Place(tick_ms, WINDOWS)
        edition = due.edition
        windows = self.releasing.windows
        former = windows.list_of_window(edition, due.start_ms)
        version = former or self._list_version(self.population, edition, tick_ms)
        bill = windows.bill(edition, due.start_ms, tick_ms)
        closing = due.closing
        if self._is_accepted_loss(edition.view, due.start_ms, tick_ms):
            closing = Closing(closing.tick_ms, True, closing.is_interrupted)
        unit = Unit(edition, due.start_ms, due.end_ms, bill, closing, self._key, version, {})
        self._next[edition.view, edition.number] = self._following(edition, due.start_ms)
        self.releasing.decide(unit, place)
        self._expiry.note(unit, tick_ms)
        if edition.plan.window.clock == "event":
            self._raising.pass_time(edition, due.end_ms, place)
            self._expiry.expire_by_watermark(unit, place)

    def _due(self, edition: Edition, tick_ms: int) -> Iterator[Due]:
        """The windows of an edition that are decided at a tick."""
        assert self.releasing is not None
        start_ms = self._next_start(edition)
        while edition.has(start_ms):
            end_ms = edition.plan.window.shape.counted.end(start_ms)
            since = self._history.since(edition, start_ms, self.releasing.state)
            begun_ms = self.partition.takes_effect(since.offset)
            if begun_ms is None or begun_ms > tick_ms:
                return
            is_wall = edition.plan.window.clock == "wall"
            if is_wall and end_ms + edition.plan.window.grace_ms > tick_ms:
                return
            source = edition.plan.source.name
            closing = self._clocks.close(source, edition.plan.window, (start_ms, end_ms), since)
            if not is_wall and (closing is None or closing.tick_ms > tick_ms):
                return
            yield Due(edition, start_ms, end_ms, closing or _UNKNOWN)
            start_ms = self._following(edition, start_ms)

    def _is_accepted_loss(self, view: str, start_ms: int, tick_ms: int) -> bool:
        """Return True if an operator accepted the loss of a window before it was decided."""
        for effect_ms, loss in self.partition.losses():
            if effect_ms <= tick_ms and view in loss.views and loss.from_ms <= start_ms < loss.until_ms:
                return True
        return False

    # Which windows

    def _editions(self, state: State) -> list[Edition]:
        """The editions that are charged to this ledger."""
        found = itertools.chain.from_iterable(state.editions.values())
        return [one for one in found if one.plan.ledger.population == self.population]

    def _next_start(self, edition: Edition) -> int:
        """The start of the first window of an edition that was not decided."""
        key = (edition.view, edition.number)
        if key not in self._next:
            first_ms = edition.plan.window.shape.counted.first_from(edition.first_ms)
            self._next[key] = edition.plan.windows.next(first_ms)
        return self._next[key]

    def _following(self, edition: Edition, start_ms: int) -> int:
        """The start of the next window that a period can pay for."""
        return edition.plan.windows.next(edition.plan.window.shape.counted.next(start_ms))

    def _undecided(self) -> list[tuple[Edition, int]]:
        """Each edition with the start of its first window that was not decided."""
        assert self.releasing is not None
        return [(edition, self._next_start(edition)) for edition in self._editions(self.releasing.state)]

    def _is_decided(self, edition: Edition) -> bool:
        """Return True if all windows of an edition were decided."""
        return edition.until_ms is not None and self._next_start(edition) >= edition.until_ms


_UNKNOWN = Closing(0, False, False)
"""Stand-in for the closing of a window that the transcript does not have."""
