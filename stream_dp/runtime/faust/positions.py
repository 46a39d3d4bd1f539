"""Positions: the offsets at which a worker continues to read its partitions, according to its tables.

A group's committed offset is only a hint. Anyone with a right to the group can move or delete it, and a broker deletes
it when a group has had no members for some days. The tables know what was counted. So a committed offset ahead of the
tables is ignored. If it is behind or missing, records are read again, which has no effect.

* Sources and re-keyed events: the row that says up to which offset they are counted (`count_rows.Marker`,
  `SourceProgress`).
* Ticks, partial counts, merged counts and orders: each commit of the table that their agent writes also stores the
  offset after the last chunk that the agent has finished.
* The control topic has one partition and no table of its own. It is small and compacted, and is read from its start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec
from faust.types import TP

from stream_dp.config.plan import Plan
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.outages import Outage
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics, sources_of
from stream_dp.runtime.kafka.transactions import PartitionLostError, Row
from stream_dp.windows.count_rows import SourceProgress, rekey_key
from stream_dp.windows.effects import Rows
from stream_dp.windows.encoding import decode, encode, text
from stream_dp.windows.marker_rows import read_marker
from stream_dp.windows.rekeying import place_behind

log = logging.getLogger("stream_dp.worker")

POSITION = b"\x00position"
"""Prefix of the keys of `Position` rows, in every table."""


class Position(msgspec.Struct, array_like=True, frozen=True):
    """The offset after the last record that an agent has finished, with the id of the topic."""

    topic_id: str
    offset: int


def position_key(topic: str) -> bytes:
    """Return the key of a topic's `Position` row."""
    return POSITION + text(topic)


class Positions:
    """Positions of one worker in its partitions."""

    def __init__(self, plan: Plan, tables: Mapping[str, DurableTable], client: Client, outage: Outage) -> None:
        """Set up the positions; none is known yet.

        Args:
            plan: the application.
            tables: its tables by name.
            client: a client of its broker.
            outage: waits for a broker that does not answer.
        """
        topics = Topics.of(plan)
        self._tables = tables
        self._client = client
        self._outage = outage
        self._sources = sources_of(plan)
        self._rekeyed = {topics.rekeyed(source): source for source in topics.rekeyed_sources}
        self._written_by = {
            topics.ticks: COUNTS,
            topics.partials: MERGES,
            topics.merged: RELEASES,
            topics.orders: RELEASES,
        }
        """Table that the agent of a topic writes, by topic; these topics have `Position` rows."""
        self._coalesced = {topics.control, *self._sources, *self._rekeyed, *self._written_by}
        self._ids: Mapping[str, str] = {}
        self._lives: Mapping[str, int] = {}
        self._finished: dict[TP, int] = {}
        """The offset after the last finished chunk."""
        self._stored: dict[TP, int] = {}
        self.round = 0
        """Number of times that the positions were found or forgotten; chunks of earlier rounds are ignored."""

    def go_by(self, lives: Mapping[str, int]) -> None:
        """Note how often each topic was created; offsets of re-keyed events belong to one creation."""
        self._lives = lives

    def forget(self) -> None:
        """Forget what was read, because partitions may have moved to other workers or a topic was created again."""
        self.round += 1
        self._finished.clear()
        self._stored.clear()

    async def begin_again(self, topic: str) -> None:
        """Forget what was read of a topic that was deleted and created again."""
        self.forget()
        states = await self._outage.patiently(lambda: self._client.describe([topic]))
        self._ids = {**self._ids, **{name: state.id for name, state in states.items()}}

    def finish(self, tp: TP, last: int, fetched_in: int) -> None:
        """Note that an agent has finished a chunk.

        Args:
            tp: the partition of the chunk.
            last: the offset of the chunk's last record.
            fetched_in: the round in which the agent got it.
        """
        if fetched_in == self.round and tp.topic in self._written_by:
            self._finished[tp] = last + 1

    def rows(self, table: str, partition: int) -> list[Row]:
        """Return the rows to store with the next commit of a partition of a table."""
        found: list[Row] = []
        for topic, written_by in self._written_by.items():
            tp = TP(topic, partition)
            offset = self._finished.get(tp)
            if written_by == table and offset is not None and self._stored.get(tp) != offset and topic in self._ids:
                self._stored[tp] = offset
                found.append((position_key(topic), encode(Position(self._ids[topic], offset))))
        return found

    async def find(self, committed: Mapping[TP, int | None]) -> dict[TP, int]:
        """Return the offsets at which reading continues.

        Args:
            committed: the group's committed offset for each assigned partition; None if there is none.

        Returns:
            The offset of the next record, by partition. Partitions of changelogs are left out, and so are partitions
            whose table this worker does not own.
        """
        states = await self._outage.patiently(lambda: self._client.describe(self._written_by))
        self._ids = {name: state.id for name, state in states.items()}
        found: dict[TP, int] = {}
        for tp, offset in committed.items():
            if tp.topic not in self._coalesced:
                continue
            try:
                found[tp] = self._position(tp, offset or 0)
            except PartitionLostError:
                log.debug("%s is assigned, but its table is not owned", tp)
        return found

    def _position(self, tp: TP, committed: int) -> int:
        if tp.topic in self._written_by:
            return min(committed, self._read(tp))
        if tp.topic not in self._sources and tp.topic not in self._rekeyed:
            return 0
        counted = self._counted(tp)
        if committed > counted:
            log.warning(
                "the committed offset %d of topic %s, partition %d, is ahead of what was counted. It is ignored; "
                "reading continues at offset %d",
                committed,
                tp.topic,
                tp.partition,
                counted,
            )
        return min(committed, counted)

    def _read(self, tp: TP) -> int:
        stored = self._rows(self._written_by[tp.topic], tp).get(position_key(tp.topic))
        position = None if stored is None else decode(Position, stored)
        is_of_topic = position is not None and position.topic_id == self._ids.get(tp.topic)
        return position.offset if position is not None and is_of_topic else 0

    def _counted(self, tp: TP) -> int:
        rows = self._rows(COUNTS, tp)
        if tp.topic in self._rekeyed:
            marker = read_marker(rows, self._rekeyed[tp.topic])
            life, offset = (0, 0) if marker is None else place_behind(marker.offset)
            return offset if life == self._lives.get(tp.topic) else 0
        source = self._sources[tp.topic]
        if source.key_field is None:
            counted = read_marker(rows, source.name)
            return 0 if counted is None else counted.offset + 1
        stored = rows.get(rekey_key(source.name))
        return 0 if stored is None else decode(SourceProgress, stored).offset + 1

    def _rows(self, table: str, tp: TP) -> Rows:
        rows = self._tables[table].rows(tp.partition)
        self._tables[table].owner(tp.partition)
        return rows
