"""Preparation of a worker's start: topics, public lists, and the settings in effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stream_dp.config.forecast import backlog_faults
from stream_dp.config.plan import Plan, SourcePlan
from stream_dp.control.editions import first_record, plan_holding
from stream_dp.errors import ClockError, ConfigError, Fault
from stream_dp.runtime.clock import Clock, apart, wall_clock_ms
from stream_dp.runtime.kafka.client import Client, Outgoing
from stream_dp.runtime.kafka.control_topic import SettingsLog, post
from stream_dp.runtime.kafka.lists import Lists, read_lists
from stream_dp.runtime.kafka.ordering import Tick
from stream_dp.runtime.kafka.ownership import Life, create_owned
from stream_dp.runtime.kafka.topic_settings import look_at_topics
from stream_dp.runtime.kafka.topics import Topics, sources_of
from stream_dp.windows.durations import format_duration
from stream_dp.windows.encoding import encode

log = logging.getLogger("stream_dp.worker")


@dataclass(frozen=True, slots=True)
class Settled:
    """Results of the preparation, which a worker needs.

    Attributes:
        plan: the plan that holds.
        lists: the public lists that stand in topics, which are followed while it runs.
        topics: the topics that the application made, each with its life (`owners.Claim`).
        uncounted: by view, where exact counts of it were lost: when that was accepted, in ms.
    """

    plan: Plan
    lists: Lists = field(default_factory=Lists, compare=False)
    topics: Mapping[str, Life] = field(default_factory=dict)
    uncounted: Mapping[str, int] = field(default_factory=dict)


async def prepare(
    plan: Plan,
    client: Client,
    key_id: Callable[[], str],
    *,
    accept_loss: bool = False,
    backfill: bool = False,
    now_ms: Callable[[], int] = wall_clock_ms,
    clock_bound_ms: int | None = None,
) -> Settled:
    """Claim and create the topics of an application, read its public lists, settle which settings hold.

    Those that stand in the control topic do; where there are none, the file is posted as the first ones. Safe to run by
    any number of workers at once: a topic is created once, and of several first settings the first in the control
    topic's log hold for all.

    Args:
        plan: of the file that the worker is started with.
        client: a client of its broker.
        key_id: says what it is known by, `KeyRing.application`. It may make a key: asked when the rest is right.
        accept_loss: go on where a topic that the application had was deleted. With the control topic it may have lost
            its settings, so nothing is asked about when its views began.
        backfill: begin views of the first settings whose first windows are over already.
        now_ms: the wall clock.
        clock_bound_ms: how far it may be from the broker's at a first start; None: they are not compared.

    Returns:
        What a worker starts with.

    Raises:
        ConfigError: a source topic is missing or has another number of partitions than the plan says, a public list
            cannot be used, views have not begun and windows of them are over, or topics belong to another application,
            were deleted, or are not what they must be; or the settings that hold cannot be planned here.
        ClockError: at a first start, the clock of this machine does not agree with the broker's.
        BrokerError: the cluster refused something.
    """
    topics, settings = Topics.of(plan), SettingsLog(plan, client)
    now = now_ms()
    first = first_record(plan, now)
    while True:
        await settings.read()
        known = settings.known
        holding = await asyncio.to_thread(plan_holding, known or [first], plan)
        lists, faults = await read_lists(holding, client)
        faults = [*await wrong_sources(holding, client), *faults]
        if not known and not backfill and not accept_loss:
            faults += backlog_faults(plan, plan.views.keys(), now)
        if faults:
            raise ConfigError(faults)
        claim = await create_owned(holding, client, key_id(), accept_loss=accept_loss, now_ms=now)
        await _check_topics(holding, client)
        if known:
            return Settled(holding, lists, claim.topics, claim.uncounted)
        await _check_clock(topics.ticks, client, Clock(now_ms, clock_bound_ms))
        await post(plan, client, first)


async def _check_clock(ticks: str, client: Client, clock: Clock) -> None:
    """Make sure that views begin with the windows that they are in.

    Raises:
        ClockError: the clock of this machine does not agree with the broker's.
    """
    if clock.bound_ms is None:
        return
    sent_ms = clock.steady_ms()
    (at_ms,) = await client.publish([Outgoing(ticks, 0, None, encode(Tick(clock(), {})))])
    clock.learn({} if at_ms is None else {0: at_ms}, sent_ms)
    difference = clock.check()
    if clock.is_wrong:
        raise ClockError(
            f"{apart(difference, ticks)}, more than {format_duration(clock.bound_ms)}: views would begin with other "
            "windows than those of today; set the clocks and start again"
        )


async def _check_topics(plan: Plan, client: Client) -> None:
    """Put the topics right as far as that loses nothing.

    Raises:
        ConfigError: some are not what they must be; every one is named.
    """
    found = await look_at_topics(plan, client)
    for words in found.righted:
        log.warning("%s", words)
    if faults := [*found.lost, *found.wrong]:
        raise ConfigError(faults)


def _no_topic(source: SourcePlan) -> str:
    words = f"the broker has no topic {source.topic}; create it with {source.partitions} partitions"
    if source.format != "json" or source.time_field is None:
        return words
    return f"{words}, or write history: `stream-dp feed FILE {source.name} --from EVENTS` creates the topic"


async def wrong_sources(plan: Plan, client: Client) -> list[Fault]:
    """The sources that have no topic, or one with other partitions than the plan says."""
    faults = []
    for source in sources_of(plan).values():
        count = await client.partitions(source.topic)
        path = f"sources.{source.name}"
        if count is None:
            faults.append(Fault(f"{path}.topic", _no_topic(source)))
        elif count != source.partitions:
            faults.append(Fault(f"{path}.partitions", f"topic {source.topic} has {count}, not {source.partitions}"))
    return faults
