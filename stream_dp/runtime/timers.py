"""What a worker does by the clock: ticks for its agents, and heartbeats that let the broker erase in time.

A timer counts and releases nothing (Faust's leaders are not fenced): it sends a tick to every partition of this worker,
and the agent that reads the tick acts.
"""

from __future__ import annotations

from stream_dp.runtime.application import App
from stream_dp.runtime.host import Host
from stream_dp.runtime.topics import MERGES, RELEASES
from stream_dp.windows.effects import Message

TICK_SECONDS = 1.0
HEARTBEAT = b"\x00heartbeat"
"""Key of the records that exist only so that a topic's open segment is closed in time (Topics.erasing)."""


def beat_seconds(erase_within_ms: int) -> float:
    """Time between two beats: four fall into the quarter of `erase_within` after which a segment is closed."""
    return max(1.0, erase_within_ms / 16_000)


class Timers:
    """The timers of one worker: `tick` for its agents, `beat` for what is erased in time, `renew` for its claims."""

    def __init__(self, app: App, host: Host) -> None:
        """Set up the timers; the application has yet to be told to run them.

        Args:
            app: the application whose partitions they serve.
            host: sends what they send.
        """
        self._app = app
        self._host = host
        self._greeted: set[int] = set()

    def forget(self) -> None:
        """Greet every partition anew: partitions may have changed hands."""
        self._greeted.clear()

    async def tick(self) -> None:
        """Tell the time to every partition of this worker; a new one is greeted, so that its agents wake up.

        They load what was stored and finish what was cut short.
        """
        if self._app.rebalancing:
            return
        now = str(self._host.clock_ms()).encode()
        owned = self._owned()
        new = [partition for partition in owned if partition not in self._greeted]
        self._greeted.update(new)
        ticks = [Message(self._host.topics.ticks, None, now, partition) for partition in owned]
        greetings = [heartbeat for partition in new for heartbeat in self._heartbeats(partition)]
        await self._host.send([*ticks, *greetings])

    async def beat(self) -> None:
        """Send a heartbeat to every partition of this worker, and write one to the tables that hold its counts."""
        for partition in self._owned():
            if self._app.rebalancing:
                return
            now = str(self._host.clock_ms()).encode()
            await self._host.send(self._heartbeats(partition))
            for name in (MERGES, RELEASES):
                await self._host.tables[name].beat(partition, HEARTBEAT, now)

    async def renew(self) -> None:
        """Keep the claims of this worker's tables known to the broker.

        Raises:
            PartitionLostError: another worker has taken a partition over.
        """
        if not self._app.rebalancing:
            for table in self._host.tables.values():
                await table.renew()

    def _owned(self) -> list[int]:
        ticks = self._host.topics.ticks
        return sorted(tp.partition for tp in self._app.consumer.assignment() if tp.topic == ticks)

    def _heartbeats(self, partition: int) -> list[Message]:
        topics = self._host.topics
        return [Message(topic, HEARTBEAT, None, partition) for topic in (topics.partials, topics.merged)]
