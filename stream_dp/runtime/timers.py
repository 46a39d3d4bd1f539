"""What a worker does by the clock: ticks for its agents, and heartbeats that let the broker erase in time.

A timer counts and releases nothing (Faust's leaders are not fenced): it sends a tick to every partition of this worker,
and the agent that reads the tick acts. What a tick means is fixed when it is made, however long it waits to be read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial

from faust.types import TP

from stream_dp.errors import ConfigError, Fault
from stream_dp.runtime.adoption import Adoption
from stream_dp.runtime.application import App
from stream_dp.runtime.client import Client
from stream_dp.runtime.fence import PartitionLostError
from stream_dp.runtime.host import Host
from stream_dp.runtime.ordering import Tick
from stream_dp.runtime.topics import MERGES, RELEASES
from stream_dp.windows.effects import Message
from stream_dp.windows.keys import encode

TICK_SECONDS = 1.0
HEARTBEAT = b"\x00heartbeat"
"""Key of the records that exist only so that a topic's open segment is closed in time (Topics.erasing)."""


def beat_seconds(erase_within_ms: int) -> float:
    """Time between two beats: four fall into the quarter of `erase_within` after which a segment is closed."""
    return max(1.0, erase_within_ms / 16_000)


class Timers:
    """The timers of one worker: `tick` and `tell_time` for what waits for a time, `beat`, `renew` for its claims."""

    def __init__(self, app: App, host: Host, client: Client, adoption: Adoption) -> None:
        """Set up the timers; the application has yet to be told to run them.

        Args:
            app: the application whose partitions they serve.
            host: sends what they send.
            client: says where the sources end, and the settings.
            adoption: goes by the settings.
        """
        self._adoption = adoption
        self._app = app
        self._host = host
        self._client = client
        self._greeted: set[int] = set()
        self.ticked_ms: int | None = None
        """When the last tick was sent, by the host's clock."""

    def forget(self) -> None:
        """Greet every partition anew: partitions may have changed hands."""
        self._greeted.clear()

    async def tick(self) -> None:
        """Tell the time to every partition of this worker; a new one is greeted, so that its agents wake up.

        They load what was stored and finish what was cut short. Where the sources end has to be known: while the broker
        does not say it there is no tick, and the next one is for the events that wait.

        Raises:
            ConfigError: a source was made anew: the process has to end.
        """
        ticks = await self._app.outage.patiently(self._ticks)
        if self._app.rebalancing:
            return
        new = [tick.partition for tick in ticks if tick.partition not in self._greeted]
        self._greeted.update(new)
        greetings = [heartbeat for partition in new for heartbeat in self._heartbeats(partition)]
        await self._host.send([*ticks, *greetings])
        self.ticked_ms = self._host.clock_ms()

    async def _ticks(self) -> list[Message]:
        """A tick for every partition of this worker, none while it is not known which these are.

        Raises:
            OutageError: the broker does not say where the sources end.
        """
        if self._app.rebalancing:
            return []
        owned, now_ms = self._owned(), self._host.clock_ms()
        ends = await self._ends(owned)  # after the clock: what stood in the log at that time is before them
        topic, settings = self._host.topics.ticks, self._adoption.plan.settings
        return [Message(topic, None, encode(Tick(now_ms, ends[at], None, settings)), at) for at in owned]

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
        places = [TP(topic, partition) for partition in partitions for topic in sorted(self._app.sources)]
        ends: dict[int, dict[str, int]] = {partition: {} for partition in partitions}
        found = dict(await self._client.ends([*places, control]))
        await self._adoption.catch_up(found.pop(control, None))
        for (topic, partition), end in found.items():
            if end < counted.get(TP(topic, partition), 0):
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
