"""A worker says how it is: a small record every few seconds, in the topic that `stream-dp status` reads.

It says so within two seconds, too, when it has begun to go by newer settings, or cannot, and when its clock gets wrong
or right again.

It says so from the moment at which there are topics, so that what a start waits for is known to others, too. Who stops
takes its record back; who is killed falls silent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from stream_dp.config.plan import Plan
from stream_dp.errors import StorageError, StreamDPError
from stream_dp.records.models import (
    GapStatus,
    PartitionStatus,
    TransactionStatus,
    ViewStatus,
    WorkerStatus,
    encode_status,
)
from stream_dp.releases.rows import LATE, stored_totals, stored_view
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.faust.delivery import Counters
from stream_dp.runtime.faust.membership import instance_id
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.open_transactions import OpenTransactions
from stream_dp.runtime.kafka.topics import COUNTS, RELEASES, Topics, sources_of
from stream_dp.runtime.kafka.transactions import PartitionLostError
from stream_dp.runtime.worker.health import Health
from stream_dp.version import __version__
from stream_dp.windows.count_rows import Missing, SourceProgress, rekey_key
from stream_dp.windows.effects import Increment, Message, Rows
from stream_dp.windows.encoding import decode
from stream_dp.windows.marker_rows import read_marker
from stream_dp.windows.rekeying import place_behind

log = logging.getLogger("stream_dp.worker")

COUNTED = ("events_counted", "events_unknown", "windows_closed")
SETTLED = (
    *("windows_released", "windows_refused", "windows_lost", "windows_sharpened", "sharpenings_refused"),
    *(LATE, "events_unknown"),
)
"""Totals of every view: where its source is counted, and where its ledger lives."""


@dataclass(slots=True)
class Standing:
    """Progress of one partition.

    Attributes:
        totals: what was counted in it since its first record.
        read: by source, the offset behind what is read of its topic, and of its re-keyed events.
        views: how far the views on the sources are counted.
        released: start of the first window that is not released or refused, of the views whose ledger lives in it.
        missing: which records were deleted before they were counted, by source.
    """

    totals: Counters = field(default_factory=Counters)
    read: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    views: dict[str, ViewStatus] = field(default_factory=dict)
    released: dict[str, int] = field(default_factory=dict)
    missing: dict[str, Sequence[Missing]] = field(default_factory=dict)


def standings(plan: Plan, tables: Mapping[str, DurableTable]) -> dict[int, Standing]:
    """Return the progress of the partitions that a worker owns, in every table, by number.

    Args:
        plan: the application.
        tables: of the worker.
    """
    found: dict[int, Standing] = {}
    for partition in sorted(frozenset.intersection(*(table.owned for table in tables.values()))):
        standing = Standing()
        with suppress(PartitionLostError, StorageError):  # a disk that refuses ends the worker at its next write
            _read_counts(plan, partition, tables[COUNTS].rows(partition), standing)
            _read_releases(plan, partition, tables[RELEASES].rows(partition), standing)
            found[partition] = standing
    return found


def _read_counts(plan: Plan, partition: int, rows: Rows, into: Standing) -> None:
    topics = Topics.of(plan)
    totals = [Increment(name, 0) for name in ("events_consumed", "watermarks_read", "records_missing")]
    for view in plan.views.values():
        totals += _zeros(view.view, COUNTED)
    for topic, source in sources_of(plan).items():
        marker = read_marker(rows, source.name)
        read, missing = {topic: 0}, list[Missing]()
        if marker is not None:
            read, missing = {topic: marker.offset + 1}, marker.missing
            totals += marker.totals()
            for name, mark in marker.views.items():
                definition = plan.views.get(name)
                if definition is not None and (definition.until_ms is None or mark.open_from_ms < definition.until_ms):
                    clocks = {number: clock.clock_ms for number, clock in mark.source_partitions.items()}
                    status = ViewStatus(clock_ms=mark.clock_ms, open_from_ms=mark.open_from_ms, source_clocks_ms=clocks)
                    into.views.setdefault(definition.view, status)  # the oldest that has a window open
        if source.key_field is not None:
            stored = rows.get(rekey_key(source.name))
            rekeyed = SourceProgress() if stored is None else decode(SourceProgress, stored)
            behind = 0 if marker is None else place_behind(marker.offset)[1]
            read, missing = {topic: rekeyed.offset + 1, topics.rekeyed(source.name): behind}, rekeyed.missing
            totals += rekeyed.totals()
        into.read[source.name] = {TopicPartition(name, partition): offset for name, offset in read.items()}
        into.missing[source.name] = missing
    into.totals.take(totals)


def _read_releases(plan: Plan, partition: int, rows: Rows, into: Standing) -> None:
    topics = Topics.of(plan)
    here = [view for view in plan.views.values() if topics.ledger_partition(view.ledger) == partition]
    goes_on: set[str] = set()
    for view in here:
        if view.view not in goes_on and (stored := stored_view(view.name, rows)) is not None:
            into.released[view.view] = stored.next_ms
            if view.until_ms is None or stored.next_ms < view.until_ms:
                goes_on.add(view.view)  # later definitions of it wait for this one
        into.totals.take(_zeros(view.view, SETTLED))
    names = {view.view for view in here}
    into.totals.take(one for one in stored_totals(rows) if dict(one.labels)["view"] in names)


def _zeros(view: str, names: Iterable[str]) -> Iterator[Increment]:
    """So that a total is there before it first grows."""
    return (Increment(name, 0, (("view", view),)) for name in names)


REPORT_SECONDS = 10.0
LOOK_SECONDS = 1.0
"""Interval at which newer settings are looked for: whoever posted them waits to hear it."""
FAREWELL_SECONDS = 1.0
"""Time that a stop waits for the broker to delete the record."""


@asynccontextmanager
async def reporting(plan: Plan, client: Client, health: Health) -> AsyncIterator[None]:
    """Say how a worker is until the context is left.

    Args:
        plan: its plan.
        client: of its broker.
        health: knows what it waits for, and the worker as soon as there is one.
    """
    topic, key = Topics.of(plan).status, instance_id(plan).encode()
    since_ms = wall_clock_ms()

    async def report() -> None:
        said: tuple[object, ...] = ()
        while True:
            due = time.monotonic() + REPORT_SECONDS
            try:
                status = await current(plan, client, health, since_ms)
                health.lag = {
                    (source, partition): records
                    for partition, one in status.partitions.items()
                    for source, records in one.lag.items()
                }
                await client.publish([Message(topic, key, encode_status(status))])
                said = status.settings, status.topic_problems, status.clock_ahead_ms != 0
            except (StreamDPError, KafkaError) as error:
                health.lag = {}
                log.debug("the status cannot be published: %s", error)
            while True:
                await asyncio.sleep(min(LOOK_SECONDS, REPORT_SECONDS))
                news = _goes_by(plan, health).settings, _problems(health), health.clock_ahead_ms != 0
                if time.monotonic() >= due or news != said:
                    break

    task = asyncio.create_task(report())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        with suppress(StreamDPError, KafkaError, TimeoutError):
            await asyncio.wait_for(client.publish([Message(topic, key, None)]), FAREWELL_SECONDS)


async def current(plan: Plan, client: Client, health: Health, since_ms: int) -> WorkerStatus:
    """Return the status of a worker.

    Args:
        plan: that of its start.
        client: says where the sources end.
        health: of the worker.
        since_ms: when its process began.
    """
    worker, plan = health.worker, _goes_by(plan, health)
    standings = worker.standings() if worker is not None else {}
    places = [place for standing in standings.values() for read in standing.read.values() for place in read]
    ends = await client.ends(places) if places else {}
    return WorkerStatus(
        schema_version=1,
        code_version=__version__,
        instance=instance_id(plan),
        started_ms=since_ms,
        reported_ms=health.now_ms,
        settings=plan.settings,
        waiting_for=health.waiting_for,
        topic_problems=_problems(health),
        clock_ahead_ms=health.clock_ahead_ms,
        open_transactions=[] if worker is None else _open_transactions(worker.transactions),
        partitions={partition: _partition(standing, ends) for partition, standing in standings.items()},
    )


def _open_transactions(transactions: OpenTransactions) -> list[TransactionStatus]:
    return [
        TransactionStatus(topic=one.place.topic, partition=one.place.partition, offset=one.offset, open_ms=age_ms)
        for one, age_ms in sorted(transactions.long().items())
    ]


def _goes_by(plan: Plan, health: Health) -> Plan:
    """Return the plan in effect at a worker: it may be newer than that of its start."""
    return plan if health.worker is None else health.worker.plan


def _problems(health: Health) -> list[str]:
    """Return the problems that an operator must solve."""
    if health.worker is None:
        return []
    worker = health.worker
    waiting = [worker.adoption.problem] if worker.adoption.problem else []
    missing = [*worker.watch.uncreated.values(), *worker.host.release_topics.problems]
    return [*(str(fault) for fault in worker.watch.wrong), *waiting, *missing]


def _partition(standing: Standing, ends: Mapping[TopicPartition, int]) -> PartitionStatus:
    return PartitionStatus(
        lag={
            source: sum(max(0, ends.get(place, 0) - offset) for place, offset in read.items())
            for source, read in standing.read.items()
        },
        views=standing.views,
        next_windows_ms=standing.released,
        counters={line: amount for line, amount in standing.totals.lines().items() if amount},
        deleted_records={
            source: tuple(GapStatus(first=gap.first, last=gap.behind - 1, at_ms=gap.at_ms) for gap in gaps)
            for source, gaps in standing.missing.items()
            if gaps
        },
    )


class CountersFile:
    """`counters.json`, where only operators look: beside the tables, not in a log that may be shipped elsewhere."""

    def __init__(self, folder: Path) -> None:
        """Set up the file; `write` makes it.

        Args:
            folder: where the tables are.
        """
        self._file = folder / "counters.json"
        self._written = True

    def write(self, counters: Counters) -> None:
        """Put the counters in the place of those written before; a disk that refuses is told of once."""
        fresh = self._file.with_suffix(".json.new")
        try:
            fresh.write_text(json.dumps(counters.lines(), indent=1) + "\n")
            fresh.replace(self._file)
        except OSError as error:
            if self._written:
                log.warning("%s is not written while the disk refuses: %s", self._file, error.strerror)
            self._written = False
        else:
            if not self._written:
                log.info("%s is written again", self._file)
            self._written = True
