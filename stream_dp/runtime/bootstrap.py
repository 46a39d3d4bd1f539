"""What has to be there before a worker starts: topics, and the start of every view's first window."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError, Fault
from stream_dp.runtime.client import Client, Outgoing
from stream_dp.runtime.lists import Lists, read_lists
from stream_dp.runtime.owners import OWNERS, Life, create_owned
from stream_dp.runtime.topics import Topics
from stream_dp.windows.sizes import BROKER_BYTES

ORIGIN = b"origin/"
"""Control records under such a key tell when a view began; the first in the log holds for every worker, for ever."""


class Origin(msgspec.Struct, tag_field="type", tag="origin"):
    """The start of a view's first window, in ms."""

    view: str
    start_ms: int


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
    key_id: bytes,
    *,
    replication: int = 1,
    accept_loss: bool = False,
    now_ms: Callable[[], int] | None = None,
) -> Settled:
    """Claim and create the topics of an application, read its public lists, settle where each view's windows begin.

    Safe to run by any number of workers at once: a topic is created once, and of several origins the first in the
    control topic's log holds.

    Args:
        plan: the application.
        client: a client of its broker.
        key_id: the name of its key, from `keys.key_id`.
        replication: copies of every created topic.
        accept_loss: go on where a topic that the application had was deleted.
        now_ms: the wall clock.

    Returns:
        What a worker starts with.

    Raises:
        ConfigError: a source topic is missing or has another number of partitions than the plan says, a public list
            cannot be used, or topics belong to another application, were deleted, or do not take what is written to
            them.
        BrokerError: the cluster refused something.
    """
    lists, faults = await read_lists(plan, client)
    if faults := [*await _wrong_sources(plan, client), *faults]:
        raise ConfigError(faults)
    topics = Topics.of(plan)
    now = now_ms() if now_ms else int(time.time() * 1000)
    claim = await create_owned(plan, client, key_id, replication=replication, accept_loss=accept_loss, now_ms=now)
    await _check_sizes([OWNERS.name, *(spec.name for spec in topics.all(plan))], client)
    starts = {view.name: view.window.first_ms for view in plan.views.values()}
    open_views = [name for name, start in starts.items() if start is None]
    known = await _origins(client, topics) if open_views else {}
    if missing := [name for name in open_views if name not in known]:
        for name in missing:
            origin = Origin(name, plan.views[name].window.shape.start_of(now))
            key = ORIGIN + f"{name}/{uuid.uuid4()}".encode()
            await client.publish([Outgoing(topics.control, 0, key, msgspec.json.encode(origin))])
        known = await _origins(client, topics)
    settled = {name: known[name] if start is None else start for name, start in starts.items()}
    return Settled(settled, lists, claim.topics, claim.uncounted)


async def _origins(client: Client, topics: Topics) -> dict[str, int]:
    found: dict[str, int] = {}
    async for record in client.follow([topics.control], until_end=True):
        if record.key is not None and record.key.startswith(ORIGIN) and record.value is not None:
            origin = msgspec.json.decode(record.value, type=Origin)
            found.setdefault(origin.view, origin.start_ms)
    return found


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


async def _wrong_sources(plan: Plan, client: Client) -> list[Fault]:
    faults = []
    for source in {view.source.name: view.source for view in plan.views.values()}.values():
        count = await client.partitions(source.topic)
        path = f"sources.{source.name}"
        if count is None:
            faults.append(Fault(f"{path}.topic", f"the broker has no topic {source.topic}; create it first"))
        elif count != source.partitions:
            faults.append(Fault(f"{path}.partitions", f"topic {source.topic} has {count}, not {source.partitions}"))
    return faults
