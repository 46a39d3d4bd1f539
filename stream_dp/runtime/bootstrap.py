"""What has to be there before a worker starts: topics, public lists, and the start of every view's first window."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from stream_dp.config.backlog import backlog_faults
from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError, Fault
from stream_dp.runtime.client import Client
from stream_dp.runtime.lists import Lists, read_lists
from stream_dp.runtime.origins import begin, read_origins
from stream_dp.runtime.owners import Life, create_owned
from stream_dp.runtime.topics import Topics
from stream_dp.windows.sizes import BROKER_BYTES


@dataclass(frozen=True, slots=True)
class Settled:
    """What a worker has to know beside its plan, settled before it starts.

    Attributes:
        starts: the start of the first window of every view, in ms.
        lists: the public lists that stand in topics, which are followed while it runs.
        topics: the topics that the application made, each with its life (`owners.Claim`).
        uncounted: by view, where exact counts of it were lost: when that was accepted, in ms.
    """

    starts: Mapping[str, int]
    lists: Lists = field(default_factory=Lists, compare=False)
    topics: Mapping[str, Life] = field(default_factory=dict)
    uncounted: Mapping[str, int] = field(default_factory=dict)


async def prepare(
    plan: Plan,
    client: Client,
    key_id: str,
    *,
    accept_loss: bool = False,
    backfill: bool = False,
    now_ms: Callable[[], int] | None = None,
) -> Settled:
    """Claim and create the topics of an application, read its public lists, settle where each view's windows begin.

    Safe to run by any number of workers at once: a topic is created once, and of several origins the first in the
    control topic's log holds.

    Args:
        plan: the application.
        client: a client of its broker.
        key_id: what it is known by, `KeyRing.application`.
        accept_loss: go on where a topic that the application had was deleted. With the control topic it may have lost
            when its views began, so nothing is asked about that.
        backfill: begin views whose first windows are over already.
        now_ms: the wall clock.

    Returns:
        What a worker starts with.

    Raises:
        ConfigError: a source topic is missing or has another number of partitions than the plan says, a public list
            cannot be used, a view was changed since it began, or has not begun and windows of it are over, or topics
            belong to another application, were deleted, or do not take what is written to them.
        BrokerError: the cluster refused something.
    """
    topics = Topics.of(plan)
    now = now_ms() if now_ms else int(time.time() * 1000)
    lists, faults = await read_lists(plan, client)
    faults = [*await wrong_sources(plan, client), *faults]
    origins = await read_origins(plan, client)
    altered = {} if accept_loss else origins.changed
    if not backfill and not accept_loss:
        faults += backlog_faults(plan, plan.views.keys() - origins.begun.keys() - altered.keys(), now)
    if faults:
        raise ConfigError(faults)
    claim = await create_owned(plan, client, key_id, accept_loss=accept_loss, now_ms=now)
    await _check_sizes([topics.owners.name, *(spec.name for spec in topics.all(plan))], client)
    if altered:  # whose topics these are was asked first
        raise ConfigError([*altered.values()])
    starts = await begin(plan, client, now, origins.begun)
    return Settled(starts, lists, claim.topics, claim.uncounted)


async def _check_sizes(topics: Collection[str], client: Client) -> None:
    """Make sure that topics that were there already take the batches that are sent to them.

    Raises:
        ConfigError: some do not; every one is named.
    """
    small = [(topic, most) for topic, most in (await client.most_bytes(topics)).items() if most < BROKER_BYTES]
    if small:
        raise ConfigError(
            [
                Fault(f"topic {topic}", f"it takes {most} bytes at once; set its max.message.bytes to {BROKER_BYTES}")
                for topic, most in small
            ]
        )


async def wrong_sources(plan: Plan, client: Client) -> list[Fault]:
    """The sources that have no topic, or one with other partitions than the plan says."""
    faults = []
    for source in {view.source.name: view.source for view in plan.views.values()}.values():
        count = await client.partitions(source.topic)
        path = f"sources.{source.name}"
        if count is None:
            faults.append(Fault(f"{path}.topic", f"the broker has no topic {source.topic}; create it first"))
        elif count != source.partitions:
            faults.append(Fault(f"{path}.partitions", f"topic {source.topic} has {count}, not {source.partitions}"))
    return faults
