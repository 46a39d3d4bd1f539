"""Release topics of one worker: which topic its records go to, and what happens when one is deleted.

A release topic holds no state. When it is deleted, its audience gets nothing until an operator asks for it to be
written again, and all other audiences go on. The table has a row for each release topic with the id of the topic that
records were written to. A topic is *stopped* as long as the topic with that id is not there, whether or not there is
another one of its name: nothing is written to a topic that nobody asked for. What leaves meanwhile counts as
published; its record is kept with the others of its window. Before the first record is left out, the row says that the
topic has to be written again. So nothing is missing from a topic that only seemed to be gone, or was brought back.

`stream-dp republish` makes the topic if it is missing, and asks for it by its id. The owner of the partition stores
that, writes every kept record with the time of its slot, and then stores the id: from there on the topic is as any
other. A crash before that begins again from the first record, with the same bytes.
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
    """The id of the topic that records are written to, and of the one that they are to be written to again."""

    written_id: str
    wanted_id: str = ""
    former_ids: tuple[str, ...] = ()
    """The ids of the topics before these. The control topic is read again from its start, with every order in it."""

    def ordered(self, topic_id: str) -> TopicRow | None:
        """Return the row once the topic with an id is to be written again; None if that was done or is out of date."""
        known = dict.fromkeys(one for one in (*self.former_ids, self.written_id, self.wanted_id) if one)
        return None if topic_id in known else TopicRow("", topic_id, tuple(known))

    def unwritten(self) -> TopicRow:
        """Return the row once records are left out of the topic: all of them have to be written again."""
        return TopicRow("", self.written_id, self.former_ids)

    def written(self, topic_id: str) -> TopicRow:
        """Return the row once every record was written to the topic with an id."""
        return TopicRow(topic_id, "", self.former_ids)

    def stored(self, topic: str) -> Row:
        """Return the row of a topic."""
        return TOPIC + text(topic), encode(self)


class ReleaseTopics:
    """Release topics of the partitions that a worker has loaded."""

    def __init__(self, topic: Callable[[str, str], str]) -> None:
        """Set up; nothing is loaded.

        Args:
            topic: of a view's name and an audience: their public topic.
        """
        self._topic = topic
        self._rows: dict[int, dict[str, TopicRow]] = {}
        """By partition of the ledgers, and topic."""
        self._read_by: dict[str, tuple[str, str]] = {}
        """By topic that is to be there: the view and the audience."""
        self._present: dict[str, str] = {}
        """The ids of the topics that are there."""
        self._changed = asyncio.Event()

    def names(self, views: Iterable[ViewPlan]) -> list[str]:
        """Return the release topics of views."""
        asked = [(view.view, audience) for view in views if not view.never_holds for audience in view.readers]
        return list(dict.fromkeys(self._topic(*pair) for pair in asked))

    @property
    def known(self) -> list[str]:
        """The topics of all partitions that were loaded."""
        return [topic for rows in self._rows.values() for topic in rows]

    def load(
        self,
        partition: int,
        views: Collection[ViewPlan],
        claimed: Mapping[str, str],
        present: Mapping[str, TopicState],
        rows: Rows,
    ) -> list[Row]:
        """Take the topics of a partition.

        Args:
            partition: the partition.
            views: the views whose ledger lives in it.
            claimed: the ids of the topics that the application has claimed.
            present: their release topics that are there.
            rows: of the releases table.

        Returns:
            The rows to store: of topics that are new to the application.
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
        """Forget everything: partitions may have changed hands."""
        self._rows.clear()
        self._read_by.clear()
        self._present.clear()

    def look(self, present: Mapping[str, TopicState], asked: Collection[str]) -> None:
        """Take note of which topics are there.

        Args:
            present: the topics that are there.
            asked: the topics that were asked for.
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
        """The topics that nothing is written to."""
        return {
            topic
            for rows in self._rows.values()
            for topic, row in rows.items()
            if row.written_id != self._present.get(topic)
        }

    @property
    def problems(self) -> list[str]:
        """Problems for an operator to solve: topics that are stopped and that somebody reads."""
        return list(self._words(self.stopped))

    def _words(self, topics: Collection[str]) -> Iterator[str]:
        for topic in sorted(topics):
            if topic in self._read_by:
                view, audience = self._read_by[topic]
                yield (
                    f"topic {topic} was deleted: audience {audience} gets nothing more of view {view}; all other "
                    f"audiences do. `stream-dp republish FILE {view} {audience}` writes it again"
                )

    def until_stopped(self) -> Awaitable[Any]:
        """Return what waits until another topic is stopped than those that are stopped at this call."""
        return self._changed.wait()  # of the present event: a task that runs later would wait for the next one

    def left_out(self, topics: Collection[str]) -> list[tuple[int, str, TopicRow]]:
        """Return the rows to store before records are left out of topics, with their partition and topic."""
        return [
            (partition, topic, row.unwritten())
            for partition, rows in self._rows.items()
            for topic, row in rows.items()
            if topic in topics and row.written_id
        ]

    def row(self, partition: int, topic: str) -> TopicRow | None:
        """Return what is known of a topic of a partition; None if it is not one of its topics."""
        return self._rows.get(partition, {}).get(topic)

    def take(self, partition: int, topic: str, row: TopicRow) -> None:
        """Take a row that was stored, unless everything was forgotten meanwhile: then the table has it."""
        if partition in self._rows:
            self._rows[partition][topic] = row

    def is_own(self, partition: int, topic: str, topic_id: str) -> bool:
        """Return True if the topic with an id is the one that records of a partition were written to."""
        row = self.row(partition, topic)
        return row is not None and row.written_id == topic_id

    def is_there(self, topic: str, topic_id: str) -> bool:
        """Return True if a topic is there, with an id."""
        return self._present.get(topic) == topic_id

    @property
    def wanted(self) -> list[tuple[int, str, TopicRow]]:
        """The topics that are to be written again and are there, with their partition."""
        return [
            (partition, topic, row)
            for partition, rows in self._rows.items()
            for topic, row in rows.items()
            if row.wanted_id and row.wanted_id == self._present.get(topic)
        ]
