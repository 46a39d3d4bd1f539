"""Public lists of keys that stand in compacted topics, as they are when a worker starts."""

from __future__ import annotations

from collections.abc import Mapping

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError, Fault
from stream_dp.kinds.lists import KeyList
from stream_dp.runtime.client import Client


async def read_lists(plan: Plan, client: Client) -> tuple[Mapping[str, KeyList], list[Fault]]:
    """Read the lists that the views of an application need.

    A record's key is a key of the list; one without a value takes it out again. The topic is read to its present end,
    whatever its number of partitions.

    Returns:
        The lists by topic; and the faults: a topic is missing, holds a key that is no text, or a view cannot use it.
    """
    lists: dict[str, KeyList] = {}
    faults: list[Fault] = []
    for view in plan.views.values():
        for topic in view.kind.topics:
            try:
                if topic not in lists:
                    lists[topic] = await _read(topic, client)
            except ConfigError as error:
                faults += [Fault(f"views.{view.name}", fault.message) for fault in error.faults]
        if lists.keys() >= set(view.kind.topics):
            try:
                view.kind.check_lists(lists)
            except ConfigError as error:
                faults += [Fault(f"views.{view.name}.{fault.path}", fault.message) for fault in error.faults]
    return lists, faults


async def _read(topic: str, client: Client) -> KeyList:
    if await client.partitions(topic) is None:
        raise ConfigError(f"the broker has no topic {topic}, which its list stands in; create it first")
    listed: dict[bytes, None] = {}
    async for record in client.follow([topic], until_end=True):
        if record.key is None:
            continue
        if record.value is None:
            listed.pop(record.key, None)
        else:
            listed[record.key] = None
    try:
        return KeyList.of(key.decode() for key in listed)
    except UnicodeDecodeError:
        raise ConfigError(f"topic {topic} holds a key that is not text in UTF-8") from None
