"""The client of an embedded log."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Any

from faust.types import TP

from stream_dp.errors import BrokerError
from stream_dp.runtime.client import NO_GROUP, NO_OFFSETS, Group, Outgoing, TopicState
from stream_dp.runtime.memory import MemoryLog
from stream_dp.runtime.topics import TopicSpec


class MemoryClient:
    """The client of an embedded log."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        """Those of the topics that there are."""
        log, copies = self._log, sys.maxsize  # none is ever lost
        return {
            name: TopicState(log.ids[name], log.partitions[name], copies) for name in topics if name in log.partitions
        }

    async def group(self, name: str) -> Group:
        """No group: the one worker of an embedded log has everything."""
        return NO_GROUP

    async def dismiss(self, group: str, instance: str) -> None:
        """Nothing: nobody is a member."""

    async def delete_group(self, name: str) -> None:
        """Forget what was committed."""
        self._log.committed.clear()

    async def delete(self, topics: Collection[str]) -> None:
        """Delete topics; those that there are not stay away."""
        for topic in self._log.partitions.keys() & {*topics}:
            self._log.delete(topic)

    async def delete_before(self, places: Mapping[TP, int]) -> None:
        """Delete the records of partitions before an offset."""
        for tp, offset in places.items():
            self._log.delete_before(tp, offset)

    async def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has, None if there is no such topic."""
        return self._log.partitions.get(topic)

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        """Create the topics that do not exist yet."""
        for topic in topics:
            self._log.create(topic.name, topic.partitions, topic.config)

    async def entries(self) -> None:
        """No authorizer."""

    async def settings(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The settings that topics were given."""
        return {topic: self._log.settings.get(topic, {}) for topic in topics}

    async def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Give a topic settings; the log keeps them and does nothing about them."""
        self._log.settings[topic] = {**self._log.settings.get(topic, {}), **settings}

    async def publish(self, records: Iterable[Outgoing]) -> list[int | None]:
        """Append the records; returns their append times."""
        appended: list[int | None] = []
        for record in records:
            if record.key is None and record.value is None:
                raise BrokerError("a record needs a key or a value")  # as the Kafka client does
            now_ms = self._log.clock_ms()
            self._log.append(
                record.topic, record.partition, record.key, record.value, timestamp_ms=now_ms, headers=record.headers
            )
            appended.append(now_ms)
        return appended

    async def follow(
        self,
        topics: Sequence[str],
        *,
        until_end: bool = False,
        last: int | None = None,
        since: Mapping[TP, int] = NO_OFFSETS,
    ) -> AsyncIterator[Any]:
        """Every record of the topics from the beginning, the last ones or those from some offsets on, then new ones."""
        places = [TP(topic, p) for topic in topics for p in range(self._log.partitions.get(topic, 0))]
        ends = {tp: self._log.end(tp) for tp in places}
        positions = {tp: since.get(tp, 0 if last is None else max(0, ends[tp] - last)) for tp in places}
        while True:
            for tp in places:
                while positions[tp] < (ends[tp] if until_end else self._log.end(tp)):
                    some = self._log.read(tp, positions[tp], 1)
                    positions[tp] = some[0].offset + 1 if some else ends[tp]
                    for record in some:
                        yield record
            if until_end:
                return
            await asyncio.sleep(0.01)

    async def ends(self, places: Collection[TP]) -> Mapping[TP, int]:
        """Where partitions end now."""
        return {tp: self._log.end(tp) for tp in places}

    async def begins(self, places: Collection[TP]) -> Mapping[TP, int]:
        """Where partitions begin now."""
        return {tp: self._log.begins[tp] for tp in places}
