"""One Faust message per fetched chunk of a partition, instead of one per record (docs/faust.md).

Faust spends two tasks and a queue slot on every message, which caps a worker at about 25,000 a second. The classes
here hand an agent the list of records that one fetch brought for one partition, in pieces if it is large. Everything
else is Faust's: membership, flow control, recovery, commits. Only topics named in `App.coalesced` and `App.changelogs`
are touched; a recovery stores a chunk of a changelog at once (`tables.Store`), and nothing below is about it.

A chunk bears the last offset of the chunk that went before it: an agent that meets a chunk whose predecessor it has not
seen knows that one was lost on the way. The records of the sources and the ticks are handed on in the order of
`TickOrder`; until then they are held here, where neither Faust nor an acknowledgement knows of them.

That is one order for the ticks and the records of a partition, whatever order they are fetched in. A tick says what the
clock showed, and where each source ended when it was asked just after. The records before that end go ahead of the
tick, those behind it follow. So the logs alone say which records a tick finds in time: how fast they are read, and how
many at once, decides nothing. A record waits for the first tick behind it. Nobody believes a tick alone: the broker
says when it was appended (`read_tick`).

The ends that a tick names are high watermarks, and only committed records are fetched. So a tick also waits until all
transactions that were open when it was made have ended.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import faust
from faust.types import TP, ConsumerMessage

from stream_dp.runtime.clock import Tick, read_tick
from stream_dp.runtime.kafka.unreadable import check_all_readable
from stream_dp.windows.encoding import CHUNK_BYTES, spans
from stream_dp.windows.records import Records

MAX_WAIT_SECONDS = 0.1
"""A fetch returns at the latest after this, so that a partition whose buffer had been full is not left waiting."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records that one fetch brought of one partition: the value of the message that stands for them."""

    topic: str
    partition: int
    records: Sequence[Any]
    now_ms: int
    """Of a source, the wall time of the tick behind the records; 0 of topics that no tick is about."""
    before: int | None = None
    """The last offset of the chunk before it, None for the first since the partition was assigned."""
    settings: int = 0
    """Number of the settings that have to be known before they are counted."""

    @property
    def values(self) -> list[bytes | None]:
        """The values of the records."""
        return Records.of(self.records).values


class TickOrder:
    """Holds what was fetched of sources and ticks until it is due: a partition is fetched on when nothing is held."""

    def __init__(self, ticks: str, sources: Collection[str], bound_ms: int | None = None) -> None:
        """Set up the order.

        Args:
            ticks: the topic of the ticks.
            sources: the topics that they are about, with as many partitions.
            bound_ms: how far a tick may be ahead of its append time (`read_tick`).
        """
        self._topic = ticks
        self._bound_ms = bound_ms
        self._sources = frozenset(sources)
        self._held: dict[TP, Records] = {}
        self._ticks: defaultdict[int, list[Tick]] = defaultdict(list)
        """By partition, what the held records of the ticks topic say."""

    def orders(self, topic: str) -> bool:
        """Return True if the records of a topic have to be held."""
        return topic == self._topic or topic in self._sources

    def holds(self, tp: TP) -> bool:
        """Return True if records of a partition are held."""
        return tp in self._held

    def hold(self, tp: TP, records: Sequence[Any]) -> None:
        """Take the records that follow on those taken before.

        Raises:
            StateError: a tick that cannot be read.
        """
        if tp in self._held:
            self._held[tp].extend(Records.of(records))
        else:
            self._held[tp] = Records.of(records)
        if tp.topic == self._topic:
            self._ticks[tp.partition] += [read_tick(record, self._bound_ms) for record in records]

    def forget(self, topic: str) -> None:
        """Drop the fetched records of a topic."""
        for tp in [tp for tp in self._held if tp.topic == topic]:
            del self._held[tp]
        if topic == self._topic:
            self._ticks.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()
        self._ticks.clear()

    def due(self, active: Collection[TP], read_to: Callable[[TP], int | None]) -> dict[TP, int]:
        """Return what may proceed now: by partition, the number of its held records. What follows them is due later.

        Args:
            active: the partitions that may be asked for.
            read_to: the offset behind everything that was fetched of a partition, records or not; None if not known.
        """
        due: dict[TP, int] = {}
        for partition, ticks in self._ticks.items():
            if ticks:
                places = {tp: count for tp, count in self._due(partition, ticks, read_to).items() if tp in active}
                due.update(places)
        return due

    def _due(self, partition: int, ticks: Sequence[Tick], read_to: Callable[[TP], int | None]) -> dict[TP, int]:
        due: dict[TP, int] = {}
        for tp, end in self._ends(partition, ticks[0]).items():
            if tp in self._held and (count := bisect_left(self._held[tp].offsets, end)):
                due[tp] = count
        if due:
            return due
        passed = 0
        while passed < len(ticks) and all(
            self._clear_to(tp, read_to) >= end for tp, end in self._ends(partition, ticks[passed]).items()
        ):
            passed += 1
        return {TP(self._topic, partition): passed} if passed else {}

    def _ends(self, partition: int, tick: Tick) -> dict[TP, int]:
        return {TP(topic, partition): end for topic, end in tick.ends.items() if topic in self._sources}

    def _clear_to(self, tp: TP, read_to: Callable[[TP], int | None]) -> int:
        """The offset before which nothing is left to wait for."""
        if tp in self._held:
            return self._held[tp].offsets[0]
        position = read_to(tp)
        return -1 if position is None else position

    def take(self, due: Mapping[TP, int]) -> dict[TP, tuple[Records, int, int]]:
        """Hand out what is due, as `due` just said.

        Returns:
            By partition the records, and the wall time of the tick behind them; of ticks, that of the first. And the
            number of the settings that have to be known for them.
        """
        taken: dict[TP, tuple[Records, int, int]] = {}
        for tp, count in due.items():
            ticks = self._ticks[tp.partition]
            held = self._held.pop(tp)
            if rest := held.leave(count):
                self._held[tp] = rest
            own = ticks[:count] if tp.topic == self._topic else ticks[:1]
            taken[tp] = held, ticks[0].now_ms, max(tick.settings for tick in own)
            if tp.topic == self._topic:
                del ticks[:count]
        return taken


class CoalescingConsumer:
    """Mixed into a Faust consumer: chunks in place of records for the coalesced topics."""

    app: Any
    _acked: Any
    _acked_index: Any
    _unacked_messages: Any
    _committed_offset: Any
    _seek: Any
    assignment: Any
    seek: Any
    fetched_to: Any
    """The offset the next fetch starts at: behind every record and transaction marker read so far."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._last: dict[TP, int] = {}
        self._assignments = 0
        """How often partitions were assigned."""
        self._sought: int | None = None
        """The assignment of which every partition was sought to its committed offset, None before the first."""
        self._starts = 0
        """How often everything that was fetched was forgotten."""
        self._order = TickOrder(self.app.ticks, self.app.sources, self.app.clock_bound_ms)

    @property
    def _is_sought(self) -> bool:
        return self._sought == self._assignments

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, Sequence[Any]]:
        coalesced, order = self.app.coalesced, self._order
        in_chunks = coalesced | self.app.changelogs
        active = set(active_partitions or ())
        if self.app.rebalancing or not self._is_sought:
            # Until a rebalance ends, Faust's recovery may already have resumed these partitions, but then clears the
            # queues that their records went to, and it seeks back only where an offset was committed. The end of one
            # rebalance says nothing of another that began meanwhile: that ends with a seek of its own.
            active = {tp for tp in active if tp.topic not in coalesced}
        seconds = 0.0 if order.due(active, self.fetched_to) else min(timeout, MAX_WAIT_SECONDS)
        wanted = {tp for tp in active if not order.holds(tp)}
        fetched: Mapping[TP, Sequence[Any]] = {}
        starts = self._starts
        if wanted:
            fetched = await super()._getmany(wanted, seconds)  # type: ignore[misc]
        else:  # to ask for none is to ask for all
            await asyncio.sleep(seconds)
        check_all_readable(fetched, self.app.sources)
        out: dict[TP, Sequence[Any]] = {}
        for tp, records in fetched.items():
            if not records:
                continue
            if self._starts != starts and tp.topic in coalesced:
                await self._leave_out(tp, records)
            elif order.orders(tp.topic):
                order.hold(tp, records)
            else:
                out[tp] = self._batches(tp, records, 0) if tp.topic in in_chunks else records
        # No fetch is under way here, so positions and records belong together.
        if self._is_sought and not self.app.rebalancing:
            for tp, (records, now_ms, settings) in order.take(order.due(active, self.fetched_to)).items():
                out[tp] = self._batches(tp, records, now_ms, settings)
        return out

    async def _leave_out(self, tp: TP, records: Sequence[Any]) -> None:
        """Let records that were under way when everything was forgotten be fetched again, unless a seek sees to it."""
        position = self.fetched_to(tp)
        if position is not None and position > records[0].offset:
            await self._seek(tp, records[0].offset)

    def _batches(self, tp: TP, records: Sequence[Any], now_ms: int, settings: int = 0) -> list[Chunk]:
        batches, whole = [], Records.of(records)
        is_small = whole.size_bytes <= CHUNK_BYTES
        cut = [] if is_small else spans(list(map(_size, whole)), CHUNK_BYTES)
        for some in [whole] if is_small else [whole[first:behind] for first, behind in cut]:
            batches.append(Chunk(tp.topic, tp.partition, some, now_ms, self._last.get(tp), settings))
            self._last[tp] = some.offsets[-1]
        return batches

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        if not isinstance(record, Chunk):
            return super()._to_message(tp, record)  # type: ignore[misc]
        return message_of(self.app, tp, record.records[-1], record)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Forget what was delivered before: it is fetched again from the committed offset."""
        self._start_over()
        self._assignments += 1
        await super().on_partitions_assigned(assigned, generation_id)  # type: ignore[misc]

    async def seek_to_committed(self) -> Any:
        """Seek to the offsets at which the tables say that reading continues; committed offsets are only a hint.

        Faust calls this when the tables are recovered. Records that are held now were fetched before the rebalance,
        because no fetch of these partitions begins during one.

        Returns:
            The offset of each partition after the seek; for a changelog, its committed offset.
        """
        assignment = self._assignments  # another one during the seek has partitions that it does not reach
        committed = await super().seek_to_committed()  # type: ignore[misc]
        found = await self.app.find_positions(committed)
        for tp, offset in found.items():
            await self._seek(tp, offset)
        self._start_over()
        self._sought = assignment
        return {**committed, **found}

    async def begin_again(self, topic: str) -> None:
        """Read a topic that was created again from its start, and drop what was fetched from the deleted one."""
        places = [tp for tp in self.assignment() if tp.topic == topic]
        self._starts += 1
        self._order.forget(topic)
        for tp in places:
            self._last.pop(tp, None)
            self._acked[tp].clear()
            self._acked_index[tp].clear()
            self._committed_offset.pop(tp, None)
            await self.seek(tp, 0)
        await self.app.topic_made_again(topic)

    def leave(self, tp: TP) -> None:
        """Let a stop not wait for the chunks of a partition that are at hand: the next start reads them again."""
        self._unacked_messages -= {message for message in self._unacked_messages if message.tp == tp}

    def _start_over(self) -> None:
        self._starts += 1
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


def message_of(app: Any, tp: TP, at: Any, value: Any, key: Any = None, headers: Any = None) -> ConsumerMessage:
    """Return a message of Faust's with the offset and time of the record `at`."""
    sent_s, generation = at.timestamp / 1000, app.consumer_generation_id
    stands = (*tp, at.offset, sent_s, 0)  # whose time it is, nobody asks
    return ConsumerMessage(*stands, headers, key, value, None, 0, 0, tp, generation_id=generation)


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
