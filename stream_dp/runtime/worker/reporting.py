"""A worker says how it is: a small record every few seconds, in the topic that `stream-dp status` reads.

It says so within two seconds, too, when it has begun to go by newer settings, or cannot, and when its clock gets wrong
or right again.

It says so from the moment at which there are topics, so that what a start waits for is known to others, too. Who stops
takes its record back; who is killed falls silent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from stream_dp.config.plan import Plan
from stream_dp.errors import StorageError, StreamDPError
from stream_dp.records.models import GapStatus, PartitionStatus, ViewStatus, WorkerStatus, encode_status
from stream_dp.releases.rows import stored_view
from stream_dp.releases.totals import LATE, stored_totals
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.faust.membership import instance_id
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.client import Client, Outgoing
from stream_dp.runtime.kafka.topics import COUNTS, RELEASES, Topics, sources_of
from stream_dp.runtime.kafka.transactions import PartitionLostError
from stream_dp.runtime.metrics import Counters
from stream_dp.runtime.worker.health import Health
from stream_dp.version import __version__
from stream_dp.windows.count_rows import MARKER, Marker, Missing, RekeyMarker, rekey_key
from stream_dp.windows.effects import Increment, Rows
from stream_dp.windows.encoding import decode, text
from stream_dp.windows.rekeying import place_behind

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
        counted: how far it is counted, by topic of a source; None where it never was.
        read: the offset behind what is read, by topic of a source, or of its re-keyed events.
        released: start of the first window that is not released or refused, of the views whose ledger lives in it.
        missing: which records were deleted before they were counted, by topic of a source.
    """

    totals: Counters = field(default_factory=Counters)
    counted: dict[str, Marker | None] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    released: dict[str, int] = field(default_factory=dict)
    missing: dict[str, list[Missing]] = field(default_factory=dict)


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
            _read_counts(plan, tables[COUNTS].rows(partition), standing)
            _read_releases(plan, partition, tables[RELEASES].rows(partition), standing)
            found[partition] = standing
    return found


def _read_counts(plan: Plan, rows: Rows, into: Standing) -> None:
    topics = Topics.of(plan)
    totals = [Increment(name, 0) for name in ("events_consumed", "watermarks_read", "records_missing")]
    for view in plan.views.values():
        totals += _zeros(view.view, COUNTED)
        source = view.source
        if source.topic not in into.counted:
            stored = rows.get(MARKER + text(source.name))
            into.counted[source.topic] = marker = None if stored is None else decode(Marker, stored)
            into.read[source.topic] = 0 if marker is None else marker.offset + 1
            totals += marker.totals() if marker is not None else ()
            into.missing[source.topic] = marker.missing if marker is not None else []
            if source.key_field is not None:
                into.read[topics.rekeyed(source.name)] = 0 if marker is None else place_behind(marker.offset)[1]
                stored = rows.get(rekey_key(source.name))
                rekeyed = RekeyMarker() if stored is None else decode(RekeyMarker, stored)
                into.read[source.topic] = rekeyed.offset + 1
                into.missing[source.topic] = rekeyed.missing
                totals += rekeyed.totals()
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


log = logging.getLogger("stream_dp.worker")

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
                await client.publish([Outgoing(topic, 0, key, encode_status(status))])
                said = status.settings, status.settings_error, status.clock_ahead_ms != 0
            except (StreamDPError, KafkaError) as error:
                log.debug("the status cannot be published: %s", error)
            while True:
                await asyncio.sleep(min(LOOK_SECONDS, REPORT_SECONDS))
                news = _goes_by(plan, health).settings, _refusal(health), health.clock_ahead_ms != 0
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
            await asyncio.wait_for(client.publish([Outgoing(topic, 0, key, None)]), FAREWELL_SECONDS)


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
    places = [TopicPartition(topic, partition) for partition, standing in standings.items() for topic in standing.read]
    ends = await client.ends(places) if places else {}
    return WorkerStatus(
        schema_version=1,
        code_version=__version__,
        instance=instance_id(plan),
        started_ms=since_ms,
        reported_ms=health.now_ms,
        settings=plan.settings,
        waiting_for=health.waiting_for,
        settings_error=_refusal(health),
        topic_problems=[] if worker is None else list(worker.wrong_topics),
        clock_ahead_ms=health.clock_ahead_ms,
        partitions={
            partition: _partition(
                plan, standing, {topic: ends.get(TopicPartition(topic, partition), 0) for topic in standing.read}
            )
            for partition, standing in standings.items()
        },
    )


def _goes_by(plan: Plan, health: Health) -> Plan:
    """Return the plan in effect at a worker: it may be newer than that of its start."""
    return plan if health.worker is None else health.worker.plan


def _refusal(health: Health) -> str:
    return "" if health.worker is None else health.worker.refusal


def _partition(plan: Plan, standing: Standing, ends: dict[str, int]) -> PartitionStatus:
    topics = Topics.of(plan)
    lag: dict[str, int] = {}
    views: dict[str, ViewStatus] = {}
    missing: dict[str, tuple[GapStatus, ...]] = {}
    for topic, source in sources_of(plan).items():
        if topic not in standing.counted:
            continue
        marker = standing.counted[topic]
        lag[source.name] = sum(max(0, ends[at] - standing.read[at]) for at in {topic, topics.counted(source)})
        if gaps := standing.missing[topic]:
            missing[source.name] = tuple(
                GapStatus(first=gap.first, last=gap.behind - 1, at_ms=gap.at_ms) for gap in gaps
            )
        for name, mark in (marker.views if marker is not None else {}).items():
            definition = plan.views.get(name)
            if definition is not None and (definition.until_ms is None or mark.open_from_ms < definition.until_ms):
                status = ViewStatus(clock_ms=mark.clock_ms, open_from_ms=mark.open_from_ms)
                views.setdefault(definition.view, status)  # the oldest that has a window open
    totals = {line: amount for line, amount in standing.totals.lines().items() if amount}
    return PartitionStatus(
        lag=lag, views=views, next_windows_ms=standing.released, counters=totals, deleted_records=missing
    )
