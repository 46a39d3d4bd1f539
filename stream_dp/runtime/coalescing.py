"""One Faust message per fetched chunk of a partition, instead of one per record (streaming.md 4.2).

Faust spends two tasks and a queue slot on every message, which caps a worker at about 25,000 a second. The classes
here hand an agent the list of records that one fetch brought for one partition. Everything else is Faust's:
membership, flow control, recovery, commits. Only topics named in `App.coalesced` are touched; changelogs are not.

A chunk bears, in place of a key, the last offset of the chunk that was fetched before it: an agent that meets a chunk
whose predecessor it has not seen knows that one was lost on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import faust
from faust.types import TP, ConsumerMessage

MAX_WAIT_SECONDS = 0.1
"""A fetch returns at the latest after this, so that a partition whose buffer had been full is not left waiting."""


class CoalescingConsumer:
    """Mixed into a Faust consumer: chunks in place of records for the coalesced topics."""

    app: Any
    _acked: Any
    _acked_index: Any
    highwater: Any
    fetched_to: Any
    """The offset the next fetch starts at: behind every record and transaction marker read so far."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fetched: dict[TP, int] = {}
        self._before: dict[tuple[TP, int], int | None] = {}
        self._positions_seen: dict[TP, int | None] = {}

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, Sequence[Any]]:
        if self.app.rebalancing:
            # Until a rebalance ends, Faust's recovery may already have resumed these partitions, but then clears the
            # queues that their records went to, and it seeks back only where an offset was committed.
            active_partitions = {tp for tp in active_partitions or () if tp.topic not in self.app.coalesced}
            if not active_partitions:
                await asyncio.sleep(min(timeout, MAX_WAIT_SECONDS))
                return {}
        fetched = await super()._getmany(active_partitions, min(timeout, MAX_WAIT_SECONDS))  # type: ignore[misc]
        coalesced = self.app.coalesced
        for tp in active_partitions or ():
            if tp.topic in self.app.sources:  # no fetch is under way here, so position and records belong together
                self._positions_seen[tp] = self.fetched_to(tp)
        for tp, records in fetched.items():
            if tp.topic in coalesced and records:
                self._before[tp, records[-1].offset] = self._fetched.get(tp)
                self._fetched[tp] = records[-1].offset
        return {tp: [records] if tp.topic in coalesced else records for tp, records in fetched.items() if records}

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        if tp.topic not in self.app.coalesced:
            return super()._to_message(tp, record)  # type: ignore[misc]
        last = record[-1]
        return ConsumerMessage(
            tp.topic,
            tp.partition,
            last.offset,
            last.timestamp / 1000,
            last.timestamp_type,
            None,
            self._before.pop((tp, last.offset), None),
            record,
            None,
            0,
            0,
            tp,
            generation_id=self.app.consumer_generation_id,
        )

    def drained(self, tp: TP, counted_to: int) -> bool:
        """Whether a source partition was read to the end of its log, and all that was read is counted.

        Args:
            tp: the partition.
            counted_to: the offset behind the last counted record.
        """
        position, end = self._positions_seen.get(tp), self.highwater(tp)
        return position is not None and end is not None and position >= end and self._fetched.get(tp, -1) < counted_to

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Forget what was delivered before: it is fetched again from the committed offset."""
        self._start_over()
        await super().on_partitions_assigned(assigned, generation_id)  # type: ignore[misc]

    async def seek_to_committed(self) -> Any:
        """As above: what was fetched before a seek is no predecessor of what comes after it."""
        self._start_over()
        return await super().seek_to_committed()  # type: ignore[misc]

    def _start_over(self) -> None:
        self._fetched.clear()
        self._before.clear()
        self._positions_seen.clear()

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        # The offsets inside a chunk are no gap; one agent reads a partition in order, so there are no others.
        if tp.topic not in self.app.coalesced:
            await super()._add_gap(tp, offset_from, offset_to)  # type: ignore[misc]

    def _new_offset(self, tp: TP) -> int | None:
        if tp.topic not in self.app.coalesced:
            offset: int | None = super()._new_offset(tp)  # type: ignore[misc]
            return offset
        acked = self._acked[tp]
        if not acked:
            return None
        last = max(acked)
        acked.clear()
        self._acked_index[tp].clear()
        return int(last) + 1


class ChunkSchema(faust.Schema):
    """Hands chunks through undecoded; an agent decodes them itself."""

    def compile(self, app: Any, **_: Any) -> Any:
        """The decoder that the conductor calls for every message."""
        create_event = app.create_event

        async def decode(message: Any, *, propagate: bool = False) -> Any:
            return create_event(message.key, message.value, message.headers, message)

        return decode
