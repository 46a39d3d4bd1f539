"""Release topics of one worker: the topic that each record goes to, and what happens when one is deleted.

A release topic holds no state. If it is deleted, its audience gets nothing until an operator asks for the topic to be
written again; all other audiences are served as before. The table has a row for each release topic, with the id of the
topic that records were written to. A release topic is *stopped* while the topic with that id does not exist, even if
another topic has its name: nothing is written to a topic that no one asked for. Records that leave in the meantime
count as published, and are kept with the others of their window. Before the first record is left out, the row says that
the topic must be written again. So if the topic was only thought to be deleted, or was restored, no record is missing.

`stream-dp republish` creates the topic if it is missing, and orders it to be written by its id. The owner of the
partition stores the order, writes every kept record with the time of its slot, and then stores the id: after that the
topic is no longer stopped. If the worker crashes before that, it starts again with the first record, with the same
bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stream_dp.config.plan import ViewPlan
from stream_dp.runtime.kafka.client import TopicState
from stream_dp.runtime.kafka.transactions import Row
from stream_dp.windows.effects import Rows
from stream_dp.windows.encoding import decode, encode, text

log = logging.getLogger("stream_dp.worker")

TOPIC = b"\x00topic"
"""Prefix of the keys of `TopicRow`s in the releases table."""


class TopicRow(msgspec.Struct, array_like=True, frozen=True):
    """The id of the topic that records are written to, and of the topic that is to be written again."""

    written_id: str
    wanted_id: str = ""
    former_ids: tuple[str, ...] = ()
    """The ids of the topics before these. The control topic is read again from its start, with every order in it."""

    def ordered(self, topic_id: str) -> TopicRow | None:
        """Return the row after an order to write the topic with an id again; None if the order is done or outdated."""
        known = dict.fromkeys(one for one in (*self.former_ids, self.written_id, self.wanted_id) if one)
        return None if topic_id in known else TopicRow("", topic_id, tuple(known))

    def unwritten(self) -> TopicRow:
        """Return the row once records are left out of the topic: all of them have to be written again."""
        return TopicRow("", self.written_id, self.former_ids)

    def written(self, topic_id: str) -> TopicRow:
        """Return the row once every record was written to the topic with an id."""
        return TopicRow(topic_id, "", self.former_ids)

    def stored(self, topic: str) -> Row:
        """Return this as the stored row of a topic."""
        return TOPIC + text(topic), encode(self)


class ReleaseTopics:
    """Release topics of a worker's loaded partitions."""

    def __init__(self, topic: Callable[[str, str], str]) -> None:
        """Set up the release topics; nothing is loaded.

        Args:
            topic: returns the release topic of a view and an audience.
        """
        self._topic = topic
        self._rows: dict[int, dict[str, TopicRow]] = {}
        """Rows by partition of the ledgers and by topic."""
        self._read_by: dict[str, tuple[str, str]] = {}
        """View and audience, by topic that must exist."""
        self._present: dict[str, str] = {}
        """Ids of the topics that exist, by name."""
        self._changed = asyncio.Event()

    def names(self, views: Iterable[ViewPlan]) -> list[str]:
        """Return the release topics of views."""
        asked = [(view.view, audience) for view in views if not view.never_holds for audience in view.readers]
        return list(dict.fromkeys(self._topic(*pair) for pair in asked))

    @property
    def known(self) -> list[str]:
        """The release topics of all loaded partitions."""
        return [topic for rows in self._rows.values() for topic in rows]

    def load(
        self,
        partition: int,
        views: Collection[ViewPlan],
        claimed: Mapping[str, str],
        present: Mapping[str, TopicState],
        rows: Rows,
    ) -> list[Row]:
        """Load the release topics of a partition.

        Args:
            partition: the partition.
            views: the views whose ledger is in the partition.
            claimed: ids of the topics that the application has claimed.
            present: release topics of the views that exist.
            rows: the rows of the releases table.

        Returns:
            The rows to store, for topics that are new to the application.
        """
        found: dict[str, TopicRow] = {}
        fresh: list[Row] = []
        for topic in self.names(views):
            if topic not in claimed:
                continue  # it could not be created yet, and its records wait
            stored = rows.get(TOPIC + text(topic))
            if stored is not None:
                found[topic] = decode(TopicRow, stored)
            else:
                found[topic] = TopicRow(claimed[topic])
                fresh.append(found[topic].stored(topic))
        self._rows[partition] = found
        for topic in self.names(views):
            self._read_by.pop(topic, None)  # an audience that was taken out misses nothing
        for view in views:
            for audience in view.audiences if not view.is_removed else ():
                self._read_by[self._topic(view.view, audience)] = view.view, audience
        self.look(present, set(found))
        return fresh

    def forget(self) -> None:
        """Forget everything, because partitions may have moved to other workers."""
        self._rows.clear()
        self._read_by.clear()
        self._present.clear()

    def look(self, present: Mapping[str, TopicState], asked: Collection[str]) -> None:
        """Note which topics exist.

        Args:
            present: the topics that exist.
            asked: the topics that were looked up.
        """
        before = self.stopped
        for topic in asked:
            if topic in present:
                self._present[topic] = present[topic].id
            else:
                self._present.pop(topic, None)
        if news := self.stopped - before:
            for words in self._words(news):
                log.warning("%s", words)
            self._changed.set()
            self._changed = asyncio.Event()

    @property
    def stopped(self) -> set[str]:
        """The stopped release topics."""
        return {
            topic
            for rows in self._rows.values()
            for topic, row in rows.items()
            if row.written_id != self._present.get(topic)
        }

    @property
    def problems(self) -> list[str]:
        """Problems that an operator must solve: stopped release topics that have an audience."""
        return list(self._words(self.stopped))

    def _words(self, topics: Collection[str]) -> Iterator[str]:
        for topic in sorted(topics):
            if topic in self._read_by:
                view, audience = self._read_by[topic]
                yield (
                    f"topic {topic} was deleted, so audience {audience} gets nothing more of view {view}; all other "
                    f"audiences do. To write it again: `stream-dp republish FILE {view} {audience}`"
                )

    def until_stopped(self) -> Awaitable[Any]:
        """Return what waits until another topic is stopped than those that are stopped at this call."""
        return self._changed.wait()  # of the present event: a task that runs later would wait for the next one

    def left_out(self, topics: Collection[str]) -> list[tuple[int, str, TopicRow]]:
        """Return the rows to store before records are left out of topics, each with its partition and topic."""
        return [
            (partition, topic, row.unwritten())
            for partition, rows in self._rows.items()
            for topic, row in rows.items()
            if topic in topics and row.written_id
        ]

    def row(self, partition: int, topic: str) -> TopicRow | None:
        """Return the row of a partition's topic; None if the partition does not have this topic."""
        return self._rows.get(partition, {}).get(topic)

    def take(self, partition: int, topic: str, row: TopicRow) -> None:
        """Take a row that was stored, unless everything was forgotten meanwhile: then the table has it."""
        if partition in self._rows:
            self._rows[partition][topic] = row

    def is_own(self, partition: int, topic: str, topic_id: str) -> bool:
        """Return True if records of a partition were written to the topic with this id."""
        row = self.row(partition, topic)
        return row is not None and row.written_id == topic_id

    def is_there(self, topic: str, topic_id: str) -> bool:
        """Return True if the topic with this id exists."""
        return self._present.get(topic) == topic_id

    @property
    def wanted(self) -> list[tuple[int, str, TopicRow]]:
        """The existing topics that are to be written again, each with its partition."""
        return [
            (partition, topic, row)
            for partition, rows in self._rows.items()
            for topic, row in rows.items()
            if row.wanted_id and row.wanted_id == self._present.get(topic)
        ]
