"""Clocks of the simulator: rising ticks, when control records take effect, when windows close, and which are lost.

Sections 2 (ticks, control), 3 (`closed(w)`), 6 (lost windows), 8 (declared losses) and 9 (catch-up).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from stream_dp.config.plan import WindowPlan
from tests.transcript.transcript import DeclaredLoss, Gap, LossAccepted, PartitionEvent, Tick, Watermark

SECOND_MS = 1000
SHORTEST_SILENCE_MS = 5 * SECOND_MS
MOST_CATCH_UPS = 10
"""Limit of a catch-up, in multiples of the catch-up time, from the end of the first silence."""


@dataclass(frozen=True)
class Partition:
    """One partition: its rising ticks, cut to seconds, and the events between them."""

    events: tuple[PartitionEvent, ...]

    @classmethod
    def from_events(cls, events: Sequence[PartitionEvent]) -> Partition:
        """Keep the rising ticks and everything that is not a tick."""
        kept: list[PartitionEvent] = []
        newest_ms: int | None = None
        control_end = 0
        for event in events:
            if not isinstance(event, Tick):
                kept.append(event)
                continue
            time_ms = event.time_ms - event.time_ms % SECOND_MS
            if newest_ms is not None and time_ms <= newest_ms:
                continue
            newest_ms = time_ms
            control_end = max(control_end, event.control_end)
            kept.append(Tick(time_ms, control_end, event.sources))
        return cls(tuple(kept))

    @cached_property
    def ticks(self) -> tuple[Tick, ...]:
        """The rising ticks."""
        return tuple(event for event in self.events if isinstance(event, Tick))

    @property
    def last_ms(self) -> int | None:
        """Time of the last tick."""
        return self.ticks[-1].time_ms if self.ticks else None

    def first_tick(self, time_ms: int) -> int | None:
        """Return the first tick at or after a time."""
        return next((tick.time_ms for tick in self.ticks if tick.time_ms >= time_ms), None)

    def takes_effect(self, offset: int, source: str | None = None) -> int | None:
        """Return the tick at which a control record takes effect; with a source, the first that is about it."""
        for tick in self.ticks:
            is_about = source is None or source in tick.sources
            if is_about and tick.control_end > offset:
                return tick.time_ms
        return None

    def losses(self) -> Iterator[tuple[int, LossAccepted]]:
        """Yield each accepted loss with the tick after it."""
        waiting: list[LossAccepted] = []
        for event in self.events:
            if isinstance(event, LossAccepted):
                waiting.append(event)
            if isinstance(event, Tick):
                for loss in waiting:
                    yield event.time_ms, loss
                waiting.clear()


@dataclass(frozen=True)
class Reading:
    """Time that the clock of a source partition shows at a tick.

    Attributes:
        tick_ms: time of the tick.
        closes_ms: windows whose end plus grace is at or before this are closed; None for none.
        is_cut: whether the limit cut a catch-up short at this tick.
    """

    tick_ms: int
    closes_ms: int | None
    is_cut: bool


class CatchUp:
    """The clock that stands still after a silence (section 9)."""

    def __init__(self, grace_ms: int, catch_up_ms: int) -> None:
        """Start without a silence."""
        self._grace_ms = grace_ms
        self._catch_up_ms = catch_up_ms
        self._previous_ms: int | None = None
        self._first_end_ms = 0
        self._until_ms = 0
        self.is_standing = False

    def move(self, tick_ms: int) -> bool:
        """Read the next tick about the source; return True if the limit ends the catch-up here."""
        silence_ms = 0 if self._previous_ms is None else tick_ms - self._previous_ms
        self._previous_ms = tick_ms
        if silence_ms > SHORTEST_SILENCE_MS and 2 * silence_ms > self._grace_ms and self._catch_up_ms:
            if not self.is_standing:
                self._first_end_ms = tick_ms
                self._until_ms = tick_ms
            self.is_standing = True
            # A short silence must not end the catch-up that a long one began.
            self._until_ms = max(self._until_ms, tick_ms + min(self._catch_up_ms, silence_ms))
        if not self.is_standing:
            return False
        if tick_ms >= self._until_ms:
            self.is_standing = False
            return False
        if tick_ms >= self._first_end_ms + MOST_CATCH_UPS * self._catch_up_ms:
            self.is_standing = False
            return True
        return False


class EventTime:
    """The clock of watermarks, which advances like the wall clock when none comes for the idle time."""

    def __init__(self, idle_ms: int) -> None:
        """Start before the first watermark."""
        self._idle_ms = idle_ms
        self._heard_ms: int | None = None
        self._base_ms: int | None = None

    def hear(self, watermark_ms: int, tick_ms: int) -> None:
        """Read a watermark; one that is ahead of the tick after it counts as that tick."""
        heard_ms = min(watermark_ms, tick_ms)
        current_ms = self.show(tick_ms)
        self._base_ms = heard_ms if current_ms is None else max(heard_ms, current_ms)
        self._heard_ms = tick_ms

    def show(self, tick_ms: int) -> int | None:
        """Return what the clock shows at a tick."""
        if self._heard_ms is None:
            self._heard_ms = tick_ms
        idle_for_ms = tick_ms - self._heard_ms - self._idle_ms
        if idle_for_ms <= 0:
            return self._base_ms
        if self._base_ms is None:
            return tick_ms - self._idle_ms
        return self._base_ms + idle_for_ms


def readings(partition: Partition, source: str, window: WindowPlan) -> tuple[Reading, ...]:
    """Return what the clock that closes windows shows at each tick about a source."""
    catch_up = CatchUp(window.grace_ms, window.catch_up_ms)
    event_time = EventTime(window.idle_ms)
    unread: list[Watermark] = []
    closes_ms: int | None = None
    found: list[Reading] = []
    for event in partition.events:
        if isinstance(event, Watermark) and event.source == source:
            unread.append(event)
        if not isinstance(event, Tick) or source not in event.sources:
            continue
        for watermark in unread:
            event_time.hear(watermark.time_ms, event.time_ms)
        unread.clear()
        is_cut = catch_up.move(event.time_ms)
        if not catch_up.is_standing:
            shown_ms = event.time_ms if window.clock == "wall" else event_time.show(event.time_ms)
            closes_ms = shown_ms if closes_ms is None or shown_ms is None else max(closes_ms, shown_ms)
        found.append(Reading(event.time_ms, closes_ms, is_cut))
    return tuple(found)


@dataclass(frozen=True)
class Closing:
    """How a window closes.

    Attributes:
        tick_ms: time of the tick that closes it; over partitions the latest.
        is_lost: whether counts of it may be missing.
        is_interrupted: whether a catch-up that was cut short closed it.
    """

    tick_ms: int
    is_lost: bool
    is_interrupted: bool

    def joined(self, other: Closing) -> Closing:
        """Return the closing of a window over both partitions."""
        return Closing(
            max(self.tick_ms, other.tick_ms),
            self.is_lost or other.is_lost,
            self.is_interrupted or other.is_interrupted,
        )


@dataclass(frozen=True)
class SourceClock:
    """Clock of one group of views that close together, in one source partition."""

    partition: Partition
    source: str
    window: WindowPlan

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        """The readings at each tick about the source."""
        return readings(self.partition, self.source, self.window)

    def close(self, start_ms: int, end_ms: int, since: Since, declared: Sequence[Declaration]) -> Closing | None:
        """Return how a window closes in this partition; None while it is open."""
        tick_ms = self.partition.takes_effect(since.offset, self.source)
        if tick_ms is None:
            return None
        closed = self._close_by_clock(end_ms, tick_ms)
        given_up_ms = self._give_up(end_ms, tick_ms, declared)
        if given_up_ms is not None and (closed is None or given_up_ms <= closed.tick_ms):
            return Closing(given_up_ms, is_lost=True, is_interrupted=False)
        if closed is None:
            return None
        is_lost = self._began_late(start_ms, tick_ms, since)
        is_lost = is_lost or self._is_in_gap(start_ms, closed.tick_ms, tick_ms, since)
        return Closing(closed.tick_ms, is_lost, closed.is_interrupted)

    def _close_by_clock(self, end_ms: int, tick_ms: int) -> Closing | None:
        """Return the closing by the first tick, from that of the settings on, whose clock has passed the window."""
        due_ms = end_ms + self.window.grace_ms
        for reading in self.readings:
            is_passed = reading.closes_ms is not None and reading.closes_ms >= due_ms
            if is_passed and reading.tick_ms >= tick_ms:
                return Closing(reading.tick_ms, False, reading.is_cut)
        return None

    def _give_up(self, end_ms: int, tick_ms: int, declared: Sequence[Declaration]) -> int | None:
        """Return the tick at which an operator's declaration closes the window."""
        over_ms = end_ms + self.window.grace_ms if self.window.clock == "wall" else end_ms
        found: list[int] = []
        for declaration in declared:
            if over_ms > declaration.loss.until_ms:
                continue
            effect_ms = self.partition.takes_effect(declaration.offset)
            if effect_ms is not None:
                found.append(max(effect_ms, tick_ms))
        return min(found, default=None)

    def _began_late(self, start_ms: int, tick_ms: int, since: Since) -> bool:
        """Return True if records of the window may have passed before its definition was counted."""
        if since.is_from_start_of_log:
            return False
        if self.window.clock == "wall":
            return start_ms <= tick_ms
        shown_ms = next(reading.closes_ms for reading in self.readings if reading.tick_ms == tick_ms)
        clock_ms = tick_ms if shown_ms is None else shown_ms
        return start_ms <= clock_ms + self.window.max_ahead_ms

    def _is_in_gap(self, start_ms: int, closed_ms: int, tick_ms: int, since: Since) -> bool:
        """Return True if a record that may be missing could have belonged to the window.

        Records of a new source that came before its settings are judged by the tick that brings the settings.
        """
        for before_ms, after_ms in self.gaps:
            was_open = before_ms is None or closed_ms > before_ms
            was_counted = after_ms > tick_ms or since.is_from_start_of_log
            if was_open and was_counted and start_ms <= max(after_ms, tick_ms) + self.window.max_ahead_ms:
                return True
        return False

    @cached_property
    def gaps(self) -> tuple[tuple[int | None, int], ...]:
        """The ticks about the source around each place where records may be missing."""
        found: list[tuple[int | None, int]] = []
        before_ms: int | None = None
        is_open = False
        for event in self.partition.events:
            if isinstance(event, Gap) and event.source == self.source:
                is_open = True
            if isinstance(event, Tick) and self.source in event.sources:
                if is_open:
                    found.append((before_ms, event.time_ms))
                before_ms = event.time_ms
                is_open = False
        return tuple(found)


@dataclass(frozen=True)
class Since:
    """Start of the counting of a definition.

    Attributes:
        offset: of the acceptance of the settings that made the definition.
        is_from_start_of_log: whether no settings had named the source before.
    """

    offset: int
    is_from_start_of_log: bool


@dataclass(frozen=True)
class Declaration:
    """A declared loss and its offset in the control topic."""

    offset: int
    loss: DeclaredLoss


class Clocks:
    """Closing of windows over all partitions of their sources."""

    def __init__(self, partitions: dict[int, Partition], declarations: Sequence[Declaration]) -> None:
        """Read the partitions and the losses that operators declared."""
        self._partitions = partitions
        self._declarations = declarations
        self._clocks: dict[tuple[str, int, WindowPlan], SourceClock] = {}

    def close(self, source: str, window: WindowPlan, interval: tuple[int, int], since: Since) -> Closing | None:
        """Return `closed(w)`; None while a partition of the source has not closed the window."""
        joined: Closing | None = None
        for number in sorted(self._partitions):
            declared = [one for one in self._declarations if (one.loss.source, one.loss.partition) == (source, number)]
            closing = self._clock(source, number, window).close(*interval, since, declared)
            if closing is None:
                return None
            joined = closing if joined is None else joined.joined(closing)
        return joined

    def heard_until(self, source: str) -> int | None:
        """Return the time up to which every partition of a source has ticks about it."""
        found: list[int] = []
        for partition in self._partitions.values():
            times = [tick.time_ms for tick in partition.ticks if source in tick.sources]
            if not times:
                return None
            found.append(times[-1])
        return min(found, default=None)

    def _clock(self, source: str, number: int, window: WindowPlan) -> SourceClock:
        """Return the clock of a group; groups with one clock share it."""
        key = (source, number, window)
        if key not in self._clocks:
            self._clocks[key] = SourceClock(self._partitions[number], source, window)
        return self._clocks[key]
