"""Release topics of one worker: each is live, or missing for a reason.

A release topic holds no state. While it is missing, its audience gets nothing; all other audiences are served as
before. This module alone decides which topics are missing, and why:

* *not created*: the application has no such topic yet, for example because the account may not create it. The worker
  tries again.
* *deleted*: someone deleted the topic, or replaced it by another one with its name. Nothing is written to a topic that
  no one asked for, so an operator must run `stream-dp republish`, which creates the topic and claims it.
* *unwritten*: the claimed topic exists, and records are still to be written to it. The worker does this on its own.

This follows from three things: the topic that the application claims (`ownership.Life`), the topic that exists, and the
row of the topic in the releases table, which has the id of the topic that every record was written to. A topic is live
if it exists with the id in its row. Otherwise its records count as published, and are kept with the others of their
window. Before the first record is left out, the id is removed from the row. So if the topic was reported as deleted by
mistake, or was restored, no record is missing.

If a claimed topic exists with another id than that in its row, the owner of the partition writes every kept record to
it, with the time of its slot, and then stores the id (`Republisher`). If the worker crashes before that, it starts
again with the first record, with the same bytes.

If the application itself gave a topic up, and created it again because its audience is back, the row has the time at
which the settings were accepted that brought the audience back. Records with an earlier slot are not written: their
retention is over, or an operator deleted them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from stream_dp.config.plan import ViewPlan
from stream_dp.runtime.kafka.client import TopicState
from stream_dp.runtime.kafka.ownership import Life
from stream_dp.runtime.kafka.transactions import Row
from stream_dp.windows.effects import Rows
from stream_dp.windows.encoding import decode, encode, text

log = logging.getLogger("stream_dp.worker")

TOPIC = b"\x00topic"
"""Prefix of the keys of `TopicRow`s in the releases table."""


class Reason(StrEnum):
    """Reason why a release topic is missing, for the log and `stream-dp status`."""

    NOT_CREATED = (
        "this account cannot create topic {topic}, so audience {audience} gets its records of view {view} late; "
        "other audiences are not affected. Grant the rights that `stream-dp acl FILE --worker PRINCIPAL` lists. If a "
        "former topic with this name still exists, delete it. The worker tries again"
    )
    DELETED = (
        "topic {topic} was deleted, so audience {audience} gets nothing more of view {view}; other audiences are not "
        "affected. To write it again: `stream-dp republish FILE {view} {audience}`"
    )
    UNWRITTEN = (
        "the worker is writing topic {topic}; until this is done, audience {audience} gets nothing new of view {view}"
    )


class TopicRow(msgspec.Struct, array_like=True, frozen=True):
    """The stored row of a release topic."""

    written_id: str = ""
    """The id of the topic that every record was written to; empty once records were left out."""
    ended: int = 0
    """The last life before this topic that the application itself ended, as in `ownership.Life`."""
    begins_ms: int = 0
    """Records whose slot is before this time are not in the topic."""

    def encode_row(self, topic: str) -> Row:
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
        """View and audience, by topic that has an audience."""
        self._claims: dict[str, Life] = {}
        self._present: dict[str, str] = {}
        """Ids of the topics that exist, by name."""
        self._logged: dict[str, Reason] = {}
        """Missing topics that were logged."""
        self._changed = asyncio.Event()

    def names(self, views: Iterable[ViewPlan]) -> list[str]:
        """Return the release topics of views, even of views that were taken back: records for them may still wait."""
        asked = [(view.view, audience) for view in views for audience in view.readers]
        return list(dict.fromkeys(self._topic(*pair) for pair in asked))

    @property
    def claimed(self) -> set[str]:
        """The release topics of all loaded partitions that the application claims."""
        loaded = {topic for rows in self._rows.values() for topic in rows}
        return {topic for topic in loaded if self._claimed_id(topic)}

    def _claimed_id(self, topic: str) -> str:
        life = self._claims.get(topic)
        return "" if life is None or life.is_given_up else life.id

    def load(
        self,
        partition: int,
        views: Collection[ViewPlan],
        claims: Mapping[str, Life],
        present: Mapping[str, TopicState],
        rows: Rows,
        joined_ms: Mapping[str, Mapping[str, int]],
    ) -> list[Row]:
        """Load the release topics of a partition.

        Args:
            partition: the partition.
            views: the views whose ledger is in the partition.
            claims: the topics that the application has claimed.
            present: the claimed release topics of the views that exist.
            rows: the rows of the releases table.
            joined_ms: when the settings were accepted that last added an audience, by view and audience.

        Returns:
            The rows to store, before any record leaves.
        """
        before = self.stopped
        found: dict[str, TopicRow] = {}
        fresh: list[Row] = []
        joined = {
            self._topic(view, audience): time_ms
            for view, audiences in joined_ms.items()
            for audience, time_ms in audiences.items()
        }
        for topic in self.names(views):
            life = claims.get(topic)
            stored = rows.get(TOPIC + text(topic))
            former = None if stored is None else decode(TopicRow, stored)
            found[topic] = _loaded_row(former, life, joined.get(topic, 0))
            if found[topic] != former:
                fresh.append(found[topic].encode_row(topic))
            self._read_by.pop(topic, None)  # an audience that was taken out misses nothing
            self._claims.pop(topic, None)
            if life is not None:
                self._claims[topic] = life
        self._rows[partition] = found
        for view in views:
            for audience in () if view.is_removed or view.never_holds else view.audiences:
                self._read_by[self._topic(view.view, audience)] = view.view, audience
        self._note_present(present, found.keys())
        self._note_changes(before)
        return fresh

    def forget(self) -> None:
        """Forget everything, because partitions may have moved to other workers."""
        self._rows.clear()
        self._read_by.clear()
        self._claims.clear()
        self._present.clear()

    def claim(self, lives: Mapping[str, Life]) -> None:
        """Note what the application claims now."""
        self._claims |= lives

    def look(self, present: Mapping[str, TopicState], asked: Collection[str]) -> None:
        """Note which topics exist.

        Args:
            present: the topics that exist.
            asked: the topics that were looked up.
        """
        before = self.stopped
        self._note_present(present, asked)
        self._note_changes(before)

    def _note_present(self, present: Mapping[str, TopicState], asked: Collection[str]) -> None:
        for topic in asked:
            if topic in present:
                self._present[topic] = present[topic].id
            else:
                self._present.pop(topic, None)

    def _note_changes(self, before: Collection[str]) -> None:
        self._log_missing()
        if not self.stopped.issubset(before):
            self._changed.set()
            self._changed = asyncio.Event()

    def _log_missing(self) -> None:
        missing = self.missing
        for topic, reason in missing.items():
            if self._logged.get(topic) != reason and reason != Reason.UNWRITTEN:
                log.warning("%s", self._describe(topic, reason))
        loaded = {topic for rows in self._rows.values() for topic in rows}
        others = {topic: reason for topic, reason in self._logged.items() if topic not in loaded}
        self._logged = others | missing

    @property
    def stopped(self) -> set[str]:
        """The missing release topics, including those without an audience: no record is written to them."""
        return {topic for _, topic, row in self._loaded_rows() if not self._is_live(topic, row)}

    @property
    def missing(self) -> dict[str, Reason]:
        """The missing release topics that have an audience, each with the reason."""
        found = [(topic, self._reason(topic)) for _, topic, row in self._loaded_rows() if not self._is_live(topic, row)]
        return {topic: reason for topic, reason in sorted(found) if topic in self._read_by}

    def _loaded_rows(self) -> Iterator[tuple[int, str, TopicRow]]:
        return ((partition, topic, row) for partition, rows in self._rows.items() for topic, row in rows.items())

    def _is_live(self, topic: str, row: TopicRow) -> bool:
        return row.written_id != "" and row.written_id == self._present.get(topic)

    def _reason(self, topic: str) -> Reason:
        claimed = self._claimed_id(topic)
        if not claimed:
            return Reason.NOT_CREATED
        return Reason.UNWRITTEN if claimed == self._present.get(topic) else Reason.DELETED

    def _describe(self, topic: str, reason: Reason) -> str:
        view, audience = self._read_by[topic]
        return reason.format(topic=topic, view=view, audience=audience)

    @property
    def problems(self) -> list[str]:
        """The missing release topics that have an audience, in words, with the remedy."""
        return [self._describe(topic, reason) for topic, reason in self.missing.items()]

    def until_stopped(self) -> Awaitable[Any]:
        """Return what waits until another topic is stopped than those that are stopped at this call."""
        return self._changed.wait()  # of the present event: a task that runs later would wait for the next one

    def left_out(self, topics: Collection[str]) -> list[tuple[int, str, TopicRow]]:
        """Return the rows to store before records are left out of topics, each with its partition and topic."""
        return [
            (partition, topic, replace(row, written_id=""))
            for partition, topic, row in self._loaded_rows()
            if topic in topics and row.written_id
        ]

    def row(self, partition: int, topic: str) -> TopicRow | None:
        """Return the row of a partition's topic; None if the partition does not have this topic."""
        return self._rows.get(partition, {}).get(topic)

    def note_stored(self, partition: int, topic: str, row: TopicRow) -> None:
        """Note a row that was stored, unless everything was forgotten meanwhile: then the table has it."""
        if partition in self._rows:
            self._rows[partition][topic] = row
            self._log_missing()

    def may_write(self, topic: str, topic_id: str) -> bool:
        """Return True if the topic with this id exists and is the claimed one."""
        return topic_id == self._claimed_id(topic) == self._present.get(topic)

    @property
    def unwritten(self) -> list[tuple[int, str, str]]:
        """The topics to write, each with its partition and id."""
        return [
            (partition, topic, self._claims[topic].id)
            for partition, topic, row in self._loaded_rows()
            if not self._is_live(topic, row) and self._reason(topic) == Reason.UNWRITTEN
        ]


def _loaded_row(former: TopicRow | None, life: Life | None, joined_ms: int) -> TopicRow:
    """Return the row of a topic from the stored one and the claim."""
    if former is None:
        if life is None:
            return TopicRow()
        return TopicRow("" if life.is_given_up else life.id, life.ended)
    if life is None or life.ended <= former.ended:
        return former
    if life.is_given_up:  # Its audience is not back yet.
        return replace(former, written_id="")
    return TopicRow("", life.ended, joined_ms)
