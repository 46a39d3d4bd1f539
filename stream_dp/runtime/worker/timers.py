"""Timers of a worker: ticks for its agents, and heartbeats that let the broker erase in time.

A timer counts and releases nothing (Faust's leaders are not fenced): it sends a tick to every partition of this worker,
and the agent that reads the tick acts. What a tick means is fixed when it is made, however long it waits to be read.

A worker whose clock does not agree with the broker's makes no ticks. It asks the others for those of its partitions, by
a record in every partition of the ticks topic: a tick says the same whoever makes it. The answers to these records tell
it when the clocks agree again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from aiokafka import TopicPartition

from stream_dp.errors import ConfigError, Fault
from stream_dp.runtime.clock import Clock, Difference, apart
from stream_dp.runtime.faust.application import App
from stream_dp.runtime.faust.host import Host
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.ordering import Tick
from stream_dp.runtime.kafka.topics import MERGES, RELEASES
from stream_dp.runtime.kafka.transactions import PartitionLostError
from stream_dp.runtime.worker.adoption import Adoption
from stream_dp.windows.durations import format_duration
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import encode

log = logging.getLogger("stream_dp.worker")

TICK_SECONDS = 1.0
HEARTBEAT = b"\x00heartbeat"
"""Key of the records that exist only so that a topic's open segment is closed in time (Topics.erasing)."""
ASK_EVERY = 10
"""A worker whose clock is wrong asks others for ticks in place of every so many of its own."""
ASKED_MS = 30_000
"""For so long others make them."""


def beat_seconds(erase_within_ms: int) -> float:
    """Time between two beats: four fall into the quarter of `erase_within` after which a segment is closed."""
    return max(1.0, erase_within_ms / 16_000)


class Timers:
    """The timers of one worker: `tick` and `tell_time` for what waits for a time, `beat`, `renew` for its claims."""

    def __init__(self, app: App, host: Host, client: Client, adoption: Adoption, clock: Clock) -> None:
        """Set up the timers; the application has yet to be told to run them.

        Args:
            app: the application whose partitions they serve.
            host: sends what they send.
            client: says where the sources end, and the settings.
            adoption: goes by the settings.
            clock: of the worker; learns from ticks what the broker's shows.
        """
        self._clock = clock
        self._left_out = 0
        """How many ticks in a row were not made."""
        self._difference = Difference(0, 0)
        """How far the worker's clock was from the broker's when that was last looked at."""
        self._adoption = adoption
        self._app = app
        self._host = host
        self._client = client
        self._started: set[int] = set()
        self.ticked_ms: int | None = None
        """When the last tick was sent, by the host's clock."""

    def forget(self) -> None:
        """Greet every partition anew: partitions may have changed hands."""
        self._started.clear()

    async def tick(self) -> None:
        """Tell the time to every partition of this worker; a new one also gets a heartbeat, which wakes its agents.

        They load what was stored and finish what was cut short. Where the sources end has to be known: while the broker
        does not say it there is no tick, and the next one is for the events that wait. Nor is there one while the
        worker's clock is wrong.

        Raises:
            ConfigError: a source was made anew: the process has to end.
        """
        ticks = await self._app.outage.patiently(self._ticks)
        if self._app.rebalancing:
            return
        new = [partition for partition in self._owned() if partition not in self._started]
        self._started.update(new)
        await self._tell(ticks, [heartbeat for partition in new for heartbeat in self._heartbeats(partition)])
        if not self._clock.is_wrong:
            self.ticked_ms = self._host.clock_ms()

    async def compare_clocks(self) -> None:
        """Learn what the brokers' clocks show, before anything waits for a time."""
        if self._clock.bound_ms is not None:
            await self._tell(self._without_time(()))

    async def _tell(self, ticks: Sequence[Message], greetings: Sequence[Message] = ()) -> None:
        """Send ticks, and what goes with them; their append times tell what the brokers' clocks show."""
        sent_ms = self._clock.steady_ms()
        appended = await self._host.send([*ticks, *greetings])
        known = zip(ticks, appended, strict=False)
        self._clock.learn({tick.partition: at_ms for tick, at_ms in known if at_ms is not None}, sent_ms)

    async def _ticks(self) -> list[Message]:
        """Return the ticks to send now; none while it is not known which partitions this worker has.

        Raises:
            OutageError: the broker does not say where the sources end.
        """
        if self._app.rebalancing:
            return []
        if await self._is_wrong():
            await self._ends(())
            self._left_out += 1
            return self._without_time(tuple(self._owned())) if self._left_out % ASK_EVERY == 1 else []
        owned, now_ms, self._left_out = self._owned(), self._host.clock_ms(), 0
        asked = {at for at, when_ms in self._host.asked.items() if now_ms - when_ms < ASKED_MS}
        told = sorted(asked.intersection(self._everywhere).union(owned))
        ends = await self._ends(told)  # after the clock: what stood in the log at that time is before them
        topic, settings = self._host.topics.ticks, self._adoption.plan.settings
        return [Message(topic, None, encode(Tick(now_ms, ends[at], None, settings)), at) for at in told]

    def _without_time(self, asks: tuple[int, ...]) -> list[Message]:
        """Records for the whole ticks topic that say no time, and which partitions want ticks."""
        said = encode(Tick(self._host.clock_ms(), {}, None, self._adoption.plan.settings, asks))
        return [Message(self._host.topics.ticks, None, said, at) for at in self._everywhere]

    async def _is_wrong(self) -> bool:
        """Return True if the worker's clock is wrong; log one line when it gets so, and one when it is right again."""
        was_wrong, self._difference = self._clock.is_wrong, self._clock.check()
        if self._clock.is_wrong and not was_wrong:  # unless the machine was asleep, or the broker's clock was set
            await self.compare_clocks()
            self._difference = self._clock.check()
        if self._clock.is_wrong and not was_wrong:
            log.warning(
                "%s, more than %s: the worker makes no ticks, so it closes no window, until they agree; set the clock "
                "of this machine or, if that is right, of the broker",
                apart(self._difference, self._host.topics.ticks),
                format_duration(self._clock.bound_ms or 0),
            )
        elif was_wrong and not self._clock.is_wrong:
            log.warning("the clocks of this machine and of the broker agree again: the worker makes ticks")
        return self._clock.is_wrong

    @property
    def words(self) -> str:
        """Reason why ticks wait, other than the broker, in words; empty if they do not."""
        return f"clocks that agree: {apart(self._difference, self._host.topics.ticks)}" if self._clock.is_wrong else ""

    @property
    def _everywhere(self) -> range:
        return range(self._adoption.plan.partitions)

    async def tell_time(self) -> None:
        """Let release engines go on with what has waited for a time."""
        if not self._app.rebalancing:
            self._host.tell_time()

    async def beat(self) -> None:
        """Send a heartbeat to every partition of this worker, and write one to the tables that hold its counts.

        What is counted of re-keyed events is deleted.
        """
        for partition in self._owned():
            if self._app.rebalancing:
                return
            now = str(self._host.clock_ms()).encode()
            await self._host.send(self._heartbeats(partition))
            for name in (MERGES, RELEASES):
                await self._host.tables[name].beat(partition, HEARTBEAT, now)
            with suppress(PartitionLostError):
                await self._app.outage.patiently(partial(self._host.delete_counted, partition))

    async def renew(self) -> None:
        """Keep the claims of this worker's tables known to the broker.

        Raises:
            PartitionLostError: another worker has taken a partition over.
        """
        if not self._app.rebalancing:
            for table in self._host.tables.values():
                await table.renew()

    async def _ends(self, partitions: Collection[int]) -> Mapping[int, Mapping[str, int]]:
        """Where the sources end, by partition and topic; the settings that stand there now are known afterwards."""
        counted, control = self._host.counted_to(), self._adoption.place
        places = [TopicPartition(topic, partition) for partition in partitions for topic in sorted(self._app.sources)]
        ends: dict[int, dict[str, int]] = {partition: {} for partition in partitions}
        found = dict(await self._client.ends([*places, control]))
        await self._adoption.catch_up(found.pop(control, None))
        for (topic, partition), end in found.items():
            if end < counted.get(TopicPartition(topic, partition), 0):
                raise ConfigError(
                    [
                        Fault(
                            f"topic {topic}",
                            "is shorter than what was counted of it, so it was made anew; give the source and the "
                            "views on it new names, since their stored counts belong to the former topic",
                        )
                    ]
                )
            ends[partition][topic] = end
        return ends

    def _owned(self) -> list[int]:
        ticks = self._host.topics.ticks
        return sorted(tp.partition for tp in self._app.consumer.assignment() if tp.topic == ticks)

    def _heartbeats(self, partition: int) -> list[Message]:
        topics = self._host.topics
        return [Message(topic, HEARTBEAT, None, partition) for topic in (topics.partials, topics.merged)]
