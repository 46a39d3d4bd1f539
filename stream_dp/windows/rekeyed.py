"""Counts of a partition of users whose events come in parcels from all partitions of a source (`windows.rekeying`).

Each partition of the source is a lane with a time of its own, which its ticks and watermarks move. An event is late or
early by the time of its lane, as if it were counted where it stands in the source: that is written in the logs of the
source and the ticks. A window closes when the times of all lanes have passed it, so that no lane, however far behind,
has an event to come that is in time for it.

In every lane events come in their order, but a crash may make some come again, and whoever sends them may have lost
the partition and not know it yet. Whoever sends an event has sent, or has seen sent, all that stand before it. So the
first time that an event comes, all before it have come, and one whose offset is not behind the last is a repetition.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, cast

from stream_dp.windows.count_rows import Lane, LaneClock, hear
from stream_dp.windows.counting import PartitionCounter, Row
from stream_dp.windows.effects import Commit, Effect, Increment, Step
from stream_dp.windows.events import Record
from stream_dp.windows.keys import decode
from stream_dp.windows.rekeying import Parcel
from stream_dp.windows.view_states import ViewState, pass_time

LIFE_BITS = 40
"""Offsets of a topic that was made anew come behind all that the former one had."""


def place_behind(marker_offset: int) -> tuple[int, int]:
    """The life of the topic of the parcels, and the offset in it, behind what a marker says is counted."""
    if marker_offset < 0:
        return 0, 0
    life, offset = divmod(marker_offset, 1 << LIFE_BITS)
    return life, offset + 1


class RekeyedCounter(PartitionCounter):
    """A `PartitionCounter` of parcels. Plain ticks say nothing to it: those of the source come in parcels."""

    def __init__(self, *args: Any, lanes: int, life: int, **options: Any) -> None:  # noqa: ANN401  handed through
        """Set up the counter.

        Args:
            args: as of `PartitionCounter`.
            lanes: how many partitions the source has.
            life: how often the topic of the parcels was made (`owners.Life`).
            options: as of `PartitionCounter`.
        """
        super().__init__(*args, **options)
        self._lanes = lanes
        self._life, self._base = life, life << LIFE_BITS

    @property
    def next_offset(self) -> int:
        """The offset behind the last parcel that was counted."""
        life, offset = place_behind(self._marker.offset)
        return offset if life == self._life else 0

    def chunk(self, records: Sequence[Record], now_ms: int, begins: int = 0) -> Step:
        """Count consecutive parcels; hand on every window that they close. None is deleted before it is counted."""
        fresh = [record for record in records if self._base + record.offset > self._marker.offset]
        if not fresh:
            return
        last = self._base + fresh[-1].offset
        changed: list[Row] = []
        for record in fresh:
            changed += yield from self._parcel(decode(Parcel, record.value or b""), last)
        self._marker.offset = last
        yield Commit([*changed, self._marker_row()])
        yield from self._hand_on()

    def ticks(self, times_ms: Sequence[int], ends: Sequence[int] = (), begins: int = 0) -> Step:
        """Nothing."""
        yield from ()

    def _parcel(self, parcel: Parcel, last: int) -> Generator[Effect, None, list[Row]]:
        lane = self._marker.lanes.setdefault(parcel.partition, Lane())
        events = [event for event in parcel.events if event.offset > lane.offset]
        watermarks = [mark for mark in parcel.watermarks if mark[0] > lane.offset]
        if len(events) < len(parcel.events):
            yield Increment("events_replayed", len(parcel.events) - len(events))
        if parcel.missing is not None and parcel.missing[1] - 1 > lane.offset:
            lane.offset = parcel.missing[1] - 1
            lane.gap_ms, lane.read_ms = parcel.now_ms, max(lane.read_ms, parcel.now_ms)
            self._open_gaps(parcel.now_ms, parcel.partition)
        changed: list[Row] = []
        if events or watermarks:
            decoded = self._decoder.decode(cast("Sequence[Record]", events))
            decoded.watermarks = watermarks
            lane.read_ms = parcel.now_ms
            self._close_gaps(hear(lane, watermarks, parcel.now_ms), parcel.partition)
            changed = yield from self._count(decoded, last, parcel.now_ms, parcel.partition)
            lane.offset = max(*(event.offset for event in events[-1:]), *(mark[0] for mark in watermarks[-1:]), -1)
        for now_ms in parcel.ticks_ms:
            if now_ms > lane.tick_ms:
                for state in self._counting:
                    pass_time(state.view, self._clock(state, parcel.partition), now_ms, lane.tick_ms)
                    self._move(state, now_ms)
                lane.tick_ms = now_ms
        return changed

    def _clock(self, state: ViewState, partition: int) -> LaneClock:
        return state.mark.lanes.setdefault(partition, LaneClock(state.view.first_ms, None))

    def _move(self, state: ViewState, wall_ms: int) -> None:
        """A view's time is that of the lane that is furthest behind; none passes before all were heard of."""
        lanes = state.mark.lanes
        if len(lanes) == self._lanes:
            state.mark.clock_ms = max(state.mark.clock_ms, min(lane.clock_ms for lane in lanes.values()))
        super()._move(state, max(wall_ms, state.mark.closed_ms))
