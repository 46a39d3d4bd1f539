"""Preparation of a worker (`prepare`): its topics, its public lists, and the settings in effect when it starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

import msgspec

from stream_dp.config.forecast import backlog_faults
from stream_dp.config.plan import Plan
from stream_dp.control.editions import first_record
from stream_dp.errors import AccessError, ClockError, ConfigError
from stream_dp.runtime.clock import Clock, Tick, apart, wall_clock_ms
from stream_dp.runtime.construction import explain_unplannable, plan_settings
from stream_dp.runtime.factory import Settled
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import SettingsLog, post_accepted
from stream_dp.runtime.kafka.list_topics import read_lists
from stream_dp.runtime.kafka.ownership import create_owned
from stream_dp.runtime.kafka.topic_checks import look_at_topics, wrong_sources
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.strict_noise import find_late_views
from stream_dp.runtime.verdicts import judge, take_back
from stream_dp.windows.durations import format_duration
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import encode

log = logging.getLogger("stream_dp.worker")


NO_MEMBERS = ("Empty", "Dead")
"""States of a group without workers."""


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

    The accepted settings are in effect. If there are none, the file is posted as the first settings and accepted. Safe
    to run by any number of workers at once: a topic is created once, and of several first settings, the first in the
    control topic's log take effect for all.

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
            cannot be used, views have not begun and windows of them are over, topics belong to another application,
            were deleted, or are not what they must be, or this machine computes windows of strict noise too slowly; or
            the settings that hold cannot be planned here.
        ClockError: at a first start, the clock of this machine does not agree with the broker's.
        BrokerError: the cluster refused something.
    """
    topics, settings = Topics.of(plan), SettingsLog(plan, client)
    now = now_ms()
    first, measured = first_record(plan, now), tuple[str, ...]()
    while True:
        await settings.read()
        history = settings.history
        known = history.accepted
        if history.waiting and (not known or await _has_no_workers(plan, client)):
            # A worker that begins meanwhile states that it uses the former settings. Then this verdict does not count.
            try:
                await settings.judge(await judge(history, plan, client, now, key_id() if known else None))
                continue
            except AccessError as error:
                if not known:
                    raise
                # The accepted settings stay in effect. `Adoption` tries again until this account has the right.
                log.warning("settings %d cannot be looked at yet: %s", history.waiting[0].number, error)
        try:
            holding = await asyncio.to_thread(plan_settings, known or [first], plan)
        except ConfigError as error:
            if not known:
                raise
            if history.used:
                raise explain_unplannable(known[-1].number, history.used, error) from None
            # No settings were ever used, so this file posts the first ones that take effect.
            await settings.judge(await take_back(history, plan, error, now))
            continue
        lists, faults = await read_lists(holding, client)
        faults = [*await wrong_sources(holding, client), *faults]
        if not known and not backfill and not accept_loss:
            faults += backlog_faults(plan, plan.views.keys(), now)
        faults = faults or await asyncio.to_thread(find_late_views, holding, lists, measured)
        measured = tuple(holding.views)
        if faults:
            raise ConfigError(faults)
        claim = await create_owned(
            holding, client, key_id(), accept_loss=accept_loss, now_ms=now, allow_missing=bool(known)
        )
        settled = Settled(holding, lists, claim.topics, claim.uncounted)
        await _check_topics(holding, client, settled.unclaimed)
        if known and history.used < holding.settings and not await settings.state_use(holding.settings):
            continue  # they were taken back
        if known:
            return settled
        await _check_clock(topics.ticks, client, Clock(now_ms, clock_bound_ms))
        number = history.next_number
        if await post_accepted(plan, client, msgspec.structs.replace(first, number=number)):
            # At once, so another first start, with another file, rarely takes them back.
            await settings.state_use(number)


async def _has_no_workers(plan: Plan, client: Client) -> bool:
    return (await client.group(plan.id)).state in NO_MEMBERS


async def _check_clock(ticks: str, client: Client, clock: Clock) -> None:
    """Make sure that views begin with the windows that they are in.

    Raises:
        ClockError: the clock of this machine does not agree with the broker's.
    """
    if clock.bound_ms is None:
        return
    sent_ms = clock.steady_ms()
    (at_ms,) = await client.publish([Message(ticks, None, encode(Tick(clock(), {})))])
    clock.learn({} if at_ms is None else {0: at_ms}, sent_ms)
    difference = clock.check()
    if clock.is_wrong:
        raise ClockError(
            f"{apart(difference, ticks)}, more than {format_duration(clock.bound_ms)}: views would begin with other "
            "windows than those of today; set the clocks and start again"
        )


async def _check_topics(plan: Plan, client: Client, unclaimed: Collection[str]) -> None:
    """Put the topics right as far as that loses nothing.

    Raises:
        ConfigError: some are not what they must be; every one is named.
    """
    found = await look_at_topics(plan, client, unclaimed)
    for words in found.righted:
        log.warning("%s", words)
    if faults := [*found.lost, *found.wrong]:
        raise ConfigError(faults)
