"""Transactions that stay open for a long time and block what a worker reads.

A partition is read up to its last stable offset, the first record of its oldest open transaction. Ticks that name a
later end wait, and so do the windows that they close. If the producer is dead, the broker aborts the transaction after
the producer's `transaction.timeout.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

from aiokafka import TopicPartition

from stream_dp.errors import AccessError, BrokerError
from stream_dp.runtime.clock import steady_clock_ms
from stream_dp.runtime.kafka.client import Client
from stream_dp.windows.durations import format_duration

log = logging.getLogger("stream_dp.worker")

LOOK_SECONDS = 5.0
"""Interval between two looks."""
LONG_MS = 30_000
"""A transaction that blocks a partition for this long is reported."""


class OpenTransaction(NamedTuple):
    """A transaction that blocks a partition, and the offset of its first record."""

    place: TopicPartition
    offset: int


class OpenTransactions:
    """Watch for open transactions that block what one worker reads."""

    def __init__(
        self,
        client: Client,
        assigned: Callable[[], Collection[TopicPartition]],
        whole: Callable[[], Collection[str]],
        steady_ms: Callable[[], int] = steady_clock_ms,
    ) -> None:
        """Set up the watch; the application calls `look` repeatedly.

        Args:
            client: a client of the broker.
            assigned: returns the partitions assigned to the worker.
            whole: returns the topics of which the worker reads every partition.
            steady_ms: a monotonic clock, in ms.
        """
        self._client = client
        self._assigned = assigned
        self._whole = whole
        self._steady_ms = steady_ms
        self._since_ms: dict[OpenTransaction, int] = {}
        self._reported: set[OpenTransaction] = set()

    def long(self) -> dict[OpenTransaction, int]:
        """Return the transactions that have blocked a partition for `LONG_MS` or longer, with that time in ms."""
        now_ms = self._steady_ms()
        ages = {one: now_ms - since_ms for one, since_ms in self._since_ms.items()}
        return {one: age_ms for one, age_ms in ages.items() if age_ms >= LONG_MS}

    async def look(self) -> None:
        """Find the open transactions; log one line when one has been open for `LONG_MS`, and one when it has ended."""
        try:
            places = await self._places()
            # In this order, a record that is appended in between does not look like an open transaction.
            ends = await self._client.ends(places)
            stable = await self._client.stable_ends(places)
        except (AccessError, BrokerError) as error:
            log.debug("open transactions cannot be looked for: %s", error)
            return
        now_ms = self._steady_ms()
        before = self._since_ms
        found = {OpenTransaction(place, stable[place]) for place, end in ends.items() if stable[place] < end}
        self._since_ms = {one: before.get(one, now_ms) for one in found}
        for one in self.long().keys() - self._reported:
            log.warning(
                "a transaction has been open for more than %s in topic %s, partition %d, since offset %d: until it "
                "ends, later records are not read and windows wait",
                format_duration(LONG_MS),
                *one.place,
                one.offset,
            )
            self._reported.add(one)
        for one in self._reported - found:
            if one.place in ends:  # otherwise the partition moved to another worker
                log.warning("the transaction of topic %s, partition %d, offset %d has ended", *one.place, one.offset)
        self._reported &= found

    async def _places(self) -> list[TopicPartition]:
        """Return the partitions to ask about, without those of deleted topics, on which the client would wait."""
        assigned = [TopicPartition(*place) for place in self._assigned()]
        whole = self._whole()
        present = await self._client.describe({*whole, *(place.topic for place in assigned)})
        places = [place for place in assigned if place.topic in present]
        for topic in present.keys() & {*whole}:
            places += [TopicPartition(topic, partition) for partition in range(present[topic].partitions)]
        return places
