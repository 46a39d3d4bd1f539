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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiokafka.errors import KafkaError
from faust.types import TP

from stream_dp.config.plan import Plan
from stream_dp.errors import StreamDPError
from stream_dp.records.status import GapStatus, PartitionStatus, ViewStatus, WorkerStatus, encode_status
from stream_dp.runtime.client import Client, Outgoing
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.health import Health
from stream_dp.runtime.membership import instance_id
from stream_dp.runtime.standing import Standing
from stream_dp.runtime.topics import Topics, sources_of
from stream_dp.version import __version__

log = logging.getLogger("stream_dp.worker")

REPORT_SECONDS = 10.0
LOOK_SECONDS = 1.0
"""Whether newer settings hold is looked at so often: whoever posted them waits to hear it."""
FAREWELL_SECONDS = 1.0
"""How long a stop waits for a broker to take the record back."""


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
                said = status.settings, status.refusal, status.clock_ahead_ms != 0
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
    """How a worker is now.

    Args:
        plan: that of its start.
        client: says where the sources end.
        health: of the worker.
        since_ms: when its process began.
    """
    worker, plan = health.worker, _goes_by(plan, health)
    standings = worker.standings() if worker is not None else {}
    places = [TP(topic, partition) for partition, standing in standings.items() for topic in standing.read]
    ends = await client.ends(places) if places else {}
    return WorkerStatus(
        schema_version=1,
        code_version=__version__,
        instance=instance_id(plan),
        since_ms=since_ms,
        at_ms=health.now_ms,
        settings=plan.settings,
        waits_for=health.waits_for,
        refusal=_refusal(health),
        topics=[] if worker is None else list(worker.wrong_topics),
        clock_ahead_ms=health.clock_ahead_ms,
        partitions={
            partition: _partition(plan, standing, {topic: ends.get(TP(topic, partition), 0) for topic in standing.read})
            for partition, standing in standings.items()
        },
    )


def _goes_by(plan: Plan, health: Health) -> Plan:
    """What a worker goes by: newer settings may hold since its start."""
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
            question = plan.views.get(name)
            if question is not None and (question.until_ms is None or mark.open_from_ms < question.until_ms):
                status = ViewStatus(clock_ms=mark.clock_ms, open_from_ms=mark.open_from_ms)
                views.setdefault(question.view, status)  # the oldest that has a window open
    totals = {line: amount for line, amount in standing.totals.lines().items() if amount}
    return PartitionStatus(lag=lag, views=views, released=standing.released, totals=totals, missing=missing)
