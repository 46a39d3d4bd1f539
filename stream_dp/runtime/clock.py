"""The wall clock, and the clock of a worker, which is compared with the broker's.

The broker stamps every record of the ticks topic when it appends it (`message.timestamp.type=LogAppendTime`). A worker
learns from the answers to its own ticks what the brokers' clocks show, and keeps that time going with the steady clock
of its machine, which nobody sets. So it notices at once when its wall clock is set, and each second whether the two
still agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from stream_dp.windows.durations import format_duration
from stream_dp.windows.encoding import decode

CLOCK_BOUND_MS = 10_000
"""A worker whose clock is further than this from the broker's makes no ticks, and a tick that is further ahead of its
append time says nothing."""

_NONE: Mapping[int, int] = MappingProxyType({})


def wall_clock_ms() -> int:
    """Return the time of the machine's clock, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def steady_clock_ms() -> int:
    """Milliseconds of a clock that is never set."""
    return time.monotonic_ns() // 1_000_000


class Difference(NamedTuple):
    """Offset of a wall clock from that of a broker."""

    ahead_ms: int
    """Below 0: it is behind."""
    partition: int
    """Of the ticks topic; the broker is its leader."""


def apart(difference: Difference, ticks: str) -> str:
    """A difference in words, about the ticks topic of that name."""
    ahead_ms, partition = difference
    far, way = format_duration((abs(ahead_ms) + 500) // 1000 * 1000), "ahead of" if ahead_ms > 0 else "behind"
    return f"the clock of this machine is {far} {way} that of the broker which leads partition {partition} of {ticks}"


class Clock:
    """The time of a worker: what the broker's clock shows, as far as that is known, else what its own shows.

    Attributes:
        bound_ms: how far the two may be apart; None: they are not compared.
        is_wrong: whether they are further apart, as `check` found last.
        steady_ms: the clock that is never set: for `learn`, read before records are sent.
    """

    def __init__(
        self,
        own_ms: Callable[[], int] = wall_clock_ms,
        bound_ms: int | None = CLOCK_BOUND_MS,
        steady_ms: Callable[[], int] = steady_clock_ms,
    ) -> None:
        """Set up the clock; until `learn` is called it shows its own time.

        Args:
            own_ms: the wall clock of the machine.
            bound_ms: how far it may be from the broker's; None: it is not compared, for tests with clocks of their own.
            steady_ms: a clock that is never set.
        """
        self.bound_ms = bound_ms
        self.is_wrong = False
        self._own_ms = own_ms
        self.steady_ms = steady_ms
        self._starts = _NONE
        """By partition of the ticks topic: what the clock of its leader showed when the steady clock was at 0."""

    def __call__(self) -> int:
        """The time, in ms since the epoch."""
        log_ms = self.log_ms()
        return self._own_ms() if log_ms is None else log_ms

    def log_ms(self) -> int | None:
        """Time of the broker's clock, of several the earliest; None if it is not known."""
        return min(self._starts.values()) + self.steady_ms() if self._starts else None

    def earliest_ms(self) -> int:
        """The earlier of the broker's time and its own: what must not happen too early waits for both."""
        return min(self(), self._own_ms())

    def learn(self, appended: Mapping[int, int], sent_ms: int) -> None:
        """Take note of when brokers appended records, by their clocks.

        A record was appended between its sending and now; so an answer that took long says little, and what was known
        before stays as far as it fits.

        Args:
            appended: by partition of the ticks topic, the append time of a record in ms since the epoch; none are given
                where the topic keeps the times of senders, and then nothing is compared.
            sent_ms: what `steady_ms` was before they were sent.
        """
        if self.bound_ms is None or not appended:
            return
        now_ms, known = self.steady_ms(), self._starts
        least = {partition: at_ms - now_ms for partition, at_ms in appended.items()}
        self._starts = {
            partition: min(max(known.get(partition, start), start), start + now_ms - sent_ms)
            for partition, start in least.items()
        }

    def difference(self) -> Difference:
        """Offset of this machine's wall clock from the brokers', the largest of several."""
        own_ms = self._own_ms() - self.steady_ms()
        found = (Difference(own_ms - start, partition) for partition, start in self._starts.items())
        return max(found, key=lambda one: abs(one.ahead_ms), default=Difference(0, 0))

    def check(self) -> Difference:
        """Compare the clocks and set `is_wrong`; back within half of the bound they agree again."""
        difference = self.difference()
        bound_ms = self.bound_ms or 0
        self.is_wrong = abs(difference.ahead_ms) > (bound_ms // 2 if self.is_wrong else bound_ms)
        return difference


class Tick(msgspec.Struct, array_like=True, frozen=True):
    """A record of the ticks topic."""

    now_ms: int
    """The wall clock, read first."""
    ends: Mapping[str, int]
    """By topic, the end of the source's partition of the same number, asked for afterwards."""
    declare_lost: tuple[str, int] | None = None
    """In place of the time: a view of which counts were lost on their way, and the start of the first window that is
    waited for (`PartitionCounter.declare_lost`)."""
    settings: int = 0
    """Number of the settings that whoever made it knew: all that stood in the control topic at its time."""
    asks: tuple[int, ...] = ()
    """Partitions whose owner makes no ticks, since its clock is wrong: others make them (`Timers`)."""


def read_tick(record: Any, bound_ms: int | None) -> Tick:
    """Tick: a record of the ticks topic, the same for everyone who reads it.

    No tick is later than its append time, by the broker's clock. One that is further ahead of that than the bound was
    made by a wrong clock: it is about no source.

    Args:
        record: as it was fetched.
        bound_ms: the bound; None: append times are not looked at.

    Raises:
        StateError: it cannot be read.
    """
    tick = decode(Tick, record.value or b"")
    if bound_ms is None or tick.now_ms <= record.timestamp:
        return tick
    believed = tick.now_ms <= record.timestamp + bound_ms
    return msgspec.structs.replace(tick, now_ms=record.timestamp, ends=tick.ends if believed else {})
