"""One Faust message per fetched chunk of a partition, instead of one per record (docs/faust.md).

Faust spends two tasks and a queue slot on every message, which caps a worker at about 25,000 a second. The classes
here hand an agent the list of records that one fetch brought for one partition, in pieces if it is large. Everything
else is Faust's: membership, flow control, recovery, commits. Only topics named in `App.coalesced` are touched;
changelogs are not.

A chunk bears the last offset of the chunk that went before it: an agent that meets a chunk whose predecessor it has not
seen knows that one was lost on the way. The records of the sources and the ticks are handed on in the order of
`TickOrder`; until then they are held here, where neither Faust nor an acknowledgement knows of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import faust
from faust.types import TP, ConsumerMessage

from stream_dp.runtime.kafka.ordering import TickOrder
from stream_dp.windows.encoding import CHUNK_BYTES, cut

MAX_WAIT_SECONDS = 0.1
"""A fetch returns at the latest after this, so that a partition whose buffer had been full is not left waiting."""


@dataclass(frozen=True, slots=True)
class ChunkMessage:
    """The value of the message that stands for a chunk."""

    records: Sequence[Any]
    before: int | None
    """The last offset of the chunk before it, None for the first since the partition was assigned."""
    now_ms: int
    """Of a source, the wall time of the tick behind the records; 0 of topics that no tick is about."""
    settings: int = 0
    """Number of the settings that have to be known before they are counted."""


class CoalescingConsumer:
    """Mixed into a Faust consumer: chunks in place of records for the coalesced topics."""

    app: Any
    _acked: Any
    _acked_index: Any
    _unacked_messages: Any
    _seek: Any
    fetched_to: Any
    """The offset the next fetch starts at: behind every record and transaction marker read so far."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._last: dict[TP, int] = {}
        self._order = TickOrder(self.app.ticks, self.app.sources, self.app.clock_bound_ms)

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, Sequence[Any]]:
        coalesced, order = self.app.coalesced, self._order
        active = set(active_partitions or ())
        if self.app.rebalancing:
            # Until a rebalance ends, Faust's recovery may already have resumed these partitions, but then clears the
            # queues that their records went to, and it seeks back only where an offset was committed.
            active = {tp for tp in active if tp.topic not in coalesced}
        seconds = 0.0 if order.due(active, self.fetched_to) else min(timeout, MAX_WAIT_SECONDS)
        wanted = {tp for tp in active if not order.holds(tp)}
        fetched: Mapping[TP, Sequence[Any]] = {}
        if wanted:
            fetched = await super()._getmany(wanted, seconds)  # type: ignore[misc]
        else:  # to ask for none is to ask for all
            await asyncio.sleep(seconds)
        out: dict[TP, Sequence[Any]] = {}
        for tp, records in fetched.items():
            if not records:
                continue
            if order.orders(tp.topic):
                order.hold(tp, records)
            else:
                out[tp] = self._batches(tp, records, 0) if tp.topic in coalesced else records
        if not self.app.rebalancing:  # no fetch is under way here, so positions and records belong together
            for tp, (records, now_ms, settings) in order.take(order.due(active, self.fetched_to)).items():
                out[tp] = self._batches(tp, records, now_ms, settings)
        return out

    def _batches(self, tp: TP, records: Sequence[Any], now_ms: int, settings: int = 0) -> list[ChunkMessage]:
        batches = []
        for some in cut(records, _size, CHUNK_BYTES):
            batches.append(ChunkMessage(some, self._last.get(tp), now_ms, settings))
            self._last[tp] = some[-1].offset
        return batches

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        if tp.topic not in self.app.coalesced:
            return super()._to_message(tp, record)  # type: ignore[misc]
        last = record.records[-1]
        return ConsumerMessage(
            tp.topic,
            tp.partition,
            last.offset,
            last.timestamp / 1000,
            last.timestamp_type,
            None,
            None,
            record,
            None,
            0,
            0,
            tp,
            generation_id=self.app.consumer_generation_id,
        )

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Forget what was delivered before: it is fetched again from the committed offset."""
        self._start_over()
        await super().on_partitions_assigned(assigned, generation_id)  # type: ignore[misc]

    async def seek_to_committed(self) -> Any:
        """As above; where nothing is committed, Faust seeks nowhere, and what was held is fetched again from its first.

        What is held afterwards was fetched before: during a rebalance no fetch of these partitions begins.
        """
        committed = await super().seek_to_committed()  # type: ignore[misc]
        for tp, offset in self._order.first_held().items():
            if not committed.get(tp):
                await self._seek(tp, offset)
        self._start_over()
        return committed

    def leave(self, tp: TP) -> None:
        """Let a stop not wait for the chunks of a partition that are at hand: the next start reads them again."""
        self._unacked_messages -= {message for message in self._unacked_messages if message.tp == tp}

    def _start_over(self) -> None:
        self._last.clear()
        self._order.clear()

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


def _size(record: Any) -> int:
    return len(record.key or b"") + len(record.value or b"")


class ChunkSchema(faust.Schema):
    """Hands chunks through undecoded; an agent decodes them itself."""

    def compile(self, app: Any, **_: Any) -> Any:
        """The decoder that the conductor calls for every message."""
        create_event = app.create_event

        async def decode(message: Any, *, propagate: bool = False) -> Any:
            return create_event(message.key, message.value, message.headers, message)

        return decode
