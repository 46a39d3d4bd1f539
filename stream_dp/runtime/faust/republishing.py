"""Writing release topics of one worker: from the claims and the kept records to live topics (`ReleaseTopics`).

It writes a topic if the application claims it, it exists, and records are missing in it: after `stream-dp republish`,
when a topic was created later than planned, or when an audience is back. It also gives up the topics of removed views
when their retention is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from stream_dp.config.plan import ViewPlan
from stream_dp.control.republications import Republication
from stream_dp.errors import AccessError, BrokerError
from stream_dp.releases.republication import (
    WrittenAgain,
    announced_keys,
    kept_announcements,
    kept_records,
    read_kept,
)
from stream_dp.runtime.faust.app import App
from stream_dp.runtime.faust.release_topics import ReleaseTopics, TopicRow
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.ownership import Life, Owner, claimed, give_up
from stream_dp.runtime.kafka.topics import RELEASES
from stream_dp.runtime.kafka.transactions import PartitionLostError, Row, Writer
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import cut

if TYPE_CHECKING:
    from stream_dp.runtime.faust.host import Host

log = logging.getLogger("stream_dp.worker")

TOPIC_CHECK_S = 0.5
"""Interval between two checks that a topic still exists, while it is written."""
RECORDS_AT_ONCE = 100
"""Number of kept records that are read and written together."""


class _AbandonedError(Exception):
    """Raised if a topic is deleted, or settings change, while it is written. If still claimed, it is written again."""


class Republisher:
    """Keeps the release topics of a worker's partitions complete."""

    def __init__(self, app: App, client: Client, host: Host, owner: Owner) -> None:
        """Set up the republisher; nothing is loaded.

        Args:
            app: the application that sends.
            client: a client of its broker.
            host: has the release engines and tables.
            owner: the application, as it claims topics.
        """
        self._app = app
        self._client = client
        self._host = host
        self._owner = owner
        self._writing: set[str] = set()
        """Release topics that are being written."""
        self._ignored: set[Republication] = set()
        """Orders that were ignored. The control topic may be read again from its start, with every order in it."""

    @property
    def _topics(self) -> ReleaseTopics:
        return self._host.release_topics

    @property
    def _table(self) -> DurableTable:
        return self._host.tables[RELEASES]

    async def load(self, partition: int, views: Collection[ViewPlan]) -> None:
        """Load which release topics of a partition are missing."""
        owner = self._table.owner(partition)
        fresh = await self._load_rows(partition, views, self._host.claims)
        if self._topics.stopped:  # others may have created a topic since this worker read the claims
            fresh = await self._load_rows(partition, views, await self._read_claims())
        if fresh:
            await self._table.commit(partition, fresh, owner)

    async def _load_rows(self, partition: int, views: Collection[ViewPlan], lives: Mapping[str, Life]) -> list[Row]:
        """Load the release topics of a partition with some claims, and return the rows to store."""
        names = self._topics.names(views)
        named = [topic for topic in names if topic in lives and not lives[topic].is_given_up]
        present = await self._app.outage.patiently(lambda: self._client.describe(named))
        rows = self._table.rows(partition)
        return self._topics.load(partition, views, lives, present, rows, self._host.plan.joined_ms)

    async def _read_claims(self) -> Mapping[str, Life]:
        owners = self._host.topics.owners.name
        return await self._app.outage.patiently(lambda: claimed(owners, self._owner, self._client))

    async def give_up_expired(self, partition: int, views: Collection[ViewPlan]) -> None:
        """Give up the release topics of removed views whose windows have all passed their retention.

        Only the schedule decides this, not the data.

        Args:
            partition: the partition of the views' ledgers.
            views: the views.

        Raises:
            AccessError: this account may not delete topics. They are given up nevertheless.
            BrokerError: the cluster does not answer, or refused.
        """
        names = [topic for topic in self._topics.names(views) if topic in self._topics.claimed]
        if not names or self._topics.row(partition, names[0]) is None:
            return
        lives = await give_up(self._host.topics.owners.name, self._owner, names, self._client)
        self._topics.claim(lives)
        self._topics.look({}, names)
        log.info("deleted the release topics of removed views, because their retention has ended: %s", ", ".join(names))

    async def take_order(self, partition: int, order: Republication) -> None:
        """Take an order to write a release topic again; `write_missing` carries it out.

        An order acts only if it names the topic that the application claims.
        """
        while not self._host.has_engine(partition):
            await self._host.load_engine(partition)
        if self._topics.row(partition, order.topic) is None:
            return  # another partition has it
        lives = await self._read_claims()
        life = lives.get(order.topic)
        if life is None or life.is_given_up or life.id != order.topic_id:
            self._log_ignored(order)
            return
        self._topics.claim({order.topic: life})
        present = await self._app.outage.patiently(lambda: self._client.describe([order.topic]))
        self._topics.look(present, [order.topic])

    def is_known(self, order: Republication) -> bool:
        """Return True if an order names a release topic of the application; log it otherwise."""
        is_known = order.topic in self._host.topics.releases(self._host.plan)
        if not is_known:
            self._log_ignored(order)
        return is_known

    def _log_ignored(self, order: Republication) -> None:
        if order not in self._ignored:
            self._ignored.add(order)
            log.warning(
                "an order to write topic %s again is ignored: the application does not claim a topic with id %s. If "
                "`stream-dp status` says that the topic is missing, run `stream-dp republish` again",
                order.topic,
                order.topic_id,
            )

    async def leave_out(self, topics: Collection[str]) -> None:
        """Store that topics must be written, before any record is left out of them."""
        for partition, topic, row in self._topics.left_out(topics):
            await self._store(partition, topic, row)

    async def _store(self, partition: int, topic: str, row: TopicRow) -> None:
        await self._table.commit(partition, [row.encode_row(topic)], self._table.owner(partition))
        self._topics.note_stored(partition, topic, row)

    def write_missing(self) -> None:
        """Begin to write the topics that lack records, unless that has begun."""
        for partition, topic, topic_id in self._topics.unwritten:
            if topic not in self._writing and self._host.has_engine(partition):
                self._writing.add(topic)
                self._app.add_future(self._write(partition, topic, topic_id))

    async def _write(self, partition: int, topic: str, topic_id: str) -> None:
        """Write every kept record to a release topic; after that the topic is live.

        The first pass runs while other records are published. The second pass holds up publishing: it writes the
        records published since, and takes back those that have expired since.
        """
        table = self._table
        host = self._host
        owner: Writer | None = None
        try:
            owner = table.owner(partition)
            written = WrittenAgain()
            await self._write_kept(partition, owner, topic, topic_id, written)
            written.note_present(await self._read_keys(topic))
            async with host.publishing:
                await host.settle(partition, owner)
                await self._write_kept(partition, owner, topic, topic_id, written)
                tombstones = [(None, Message(topic, key, None)) for key in written.over]
                await self._write_records(tombstones, partition, owner, topic, topic_id)
                table.check_owner(partition, owner)
                row = self._topics.row(partition, topic)
                if row is None or not self._topics.may_write(topic, topic_id):
                    raise _AbandonedError
                await self._store(partition, topic, TopicRow(topic_id, row.ended, row.begins_ms))
            log.info("topic %s is complete", topic)
        except _AbandonedError:
            log.warning("topic %s was deleted, or settings changed, while it was written", topic)
        except PartitionLostError:  # Its next owner begins again.
            if owner is not None and table.is_owner(partition, owner):
                raise
        finally:
            self._writing.discard(topic)

    async def _read_keys(self, topic: str) -> set[bytes]:
        """Return the keys of all records in a topic that is being written.

        It may have records of windows that expired while nothing was written to it: a worker that wrote it was stopped,
        or the topic was only thought to be deleted. No former owner of the partition writes to it any more.

        Raises:
            _AbandonedError: the topic was deleted, or the broker does not answer.
        """
        keys: set[bytes] = set()
        try:
            async for record in self._client.follow([topic], until_end=True, foreign=True):
                if record.value is None:
                    keys.discard(record.key)
                else:
                    keys.add(record.key)
        except AccessError as error:  # `stream-dp acl` lists the right, but publishing does not need it
            log.warning("records in topic %s that have expired may stay there: %s", topic, error)
        except BrokerError as error:
            raise _AbandonedError from error
        return keys

    async def _write_kept(
        self,
        partition: int,
        owner: Writer,
        topic: str,
        topic_id: str,
        written: WrittenAgain,
    ) -> None:
        """Write the kept records of a topic that are not written yet.

        Raises:
            _AbandonedError: newer settings, which may have other views, are replacing the release engine.
        """
        views = self._host.engine_views(partition)
        row = self._topics.row(partition, topic)
        if views is None or row is None:
            raise _AbandonedError
        rows = self._table.rows(partition)
        kept = await asyncio.to_thread(kept_records, topic, views, rows, row.begins_ms)
        had = kept_announcements(topic, views, rows)
        announced = written.begin_pass(had, announced_keys(topic, views, rows))
        await self._write_records(announced, partition, owner, topic, topic_id)
        for some in cut(written.left(kept), lambda _: 1, RECORDS_AT_ONCE):
            records = [*read_kept(some, rows)]
            await self._write_records(records, partition, owner, topic, topic_id)

    async def _write_records(
        self,
        records: Sequence[tuple[int | None, Message]],
        partition: int,
        owner: Writer,
        topic: str,
        topic_id: str,
    ) -> None:
        """Write records to a missing release topic.

        Raises:
            _AbandonedError: the topic was deleted in the meantime.
            PartitionLostError: the partition has changed hands.
        """
        if not records:
            return
        writing = asyncio.ensure_future(owner.publish_at(records))
        try:
            while not writing.done():
                await asyncio.wait((writing,), timeout=TOPIC_CHECK_S)
                self._table.check_owner(partition, owner)
                if not self._topics.may_write(topic, topic_id):
                    owner.give_up({topic})
                    raise _AbandonedError
            writing.result()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
