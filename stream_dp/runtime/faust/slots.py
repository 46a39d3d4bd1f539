"""Stored records leave at slots, whatever the release engines compute meanwhile.

One task for a worker. What it publishes stands in the outboxes of stored windows, so a worker that stops, or loses a
partition, leaves the rest to whoever loads it next.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from stream_dp.runtime.faust.application import App
from stream_dp.runtime.faust.host import Host
from stream_dp.runtime.kafka.topics import RELEASES
from stream_dp.runtime.kafka.transactions import PartitionLostError, Writer
from stream_dp.windows.effects import Increment, Publish, Step

log = logging.getLogger("stream_dp.worker")

BEHIND_MS = 10_000
"""A view is behind if nothing of it has left at its slot for so long. One late window is a large one, not a backlog."""


@dataclass(slots=True)
class _Late:
    since_ms: int
    windows: int = 0
    told: bool = False


class Lateness:
    """Time that the views of a worker have been late."""

    def __init__(self) -> None:
        self._late: dict[str, _Late] = {}

    def left(self, view: str, slot_ms: int, late: int) -> None:
        """Take note of what left of a view at a slot.

        Args:
            view: its name.
            slot_ms: the slot.
            late: how many windows were to leave earlier; 0 if none was.
        """
        if late:
            found = self._late.setdefault(view, _Late(slot_ms))
            found.windows += late
            if not found.told and slot_ms - found.since_ms >= BEHIND_MS:
                found.told = True
                log.warning(
                    "view %s is behind: since %s its windows leave later than their slots, %d of them so far; "
                    "`stream-dp check` says how many windows a second are asked for and how many this machine releases",
                    view,
                    datetime.fromtimestamp(found.since_ms // 1000, UTC).isoformat().replace("+00:00", "Z"),
                    found.windows,
                )
        elif (over := self._late.pop(view, None)) is not None and over.told:
            log.info("view %s has caught up: after %d late windows they leave at their slots", view, over.windows)


class Publisher:
    """Publishes what the outboxes of a host hold, at the slots that its clock shows."""

    def __init__(self, app: App, host: Host) -> None:
        """Set up the publisher; the application has yet to be told to run it.

        Args:
            app: the application whose partitions it serves.
            host: has the outboxes, and sends what they hold.
        """
        self._app = app
        self._host = host
        self._slots = host.plan.slots
        self._lateness = Lateness()

    async def run(self) -> None:
        """Publish at every slot that something waits for, until the application stops."""
        while True:
            slot = await self._next_slot()
            for (partition, owner), step in self._due(slot):
                if not self._app.should_stop:
                    await self._publish(partition, owner, step, slot)

    async def _next_slot(self) -> int:
        """Wait for the next slot that something waits for.

        What waits for a slot that is over leaves at the next one. A slot is over at once: only what was ready when it
        came leaves. If the event loop was held up and wakes late, the slot is missed as well, since by how long it was
        held up could depend on what was computed.
        """
        host, slots = self._host, self._slots
        aim: int | None = None
        while True:
            host.outboxes_changed.clear()
            waiting = (outboxes.next_ms for outboxes in host.outboxes.values())
            planned = min((slot for slot in waiting if slot is not None), default=None)
            if planned is None:
                aim = None
                await host.outboxes_changed.wait()
                continue
            now = host.clock_ms()
            slot = slots.first(max(now, planned))
            aim = slot if aim is None else min(aim, slot)
            if await self._slept(aim - now):
                if not slots.missed(aim, host.clock_ms()):
                    return aim
                aim = None

    async def _slept(self, wait_ms: int) -> bool:
        """Sleep, and say whether the time has passed, or something came to wait that may have to leave earlier."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._host.outboxes_changed.wait()
        except TimeoutError:
            return True
        return False

    def _due(self, slot_ms: int) -> list[tuple[tuple[int, Writer], Step]]:
        """Publish the records of a slot: all that is ready now, and nothing that gets ready meanwhile.

        Where the partition has changed hands since windows were loaded, their outboxes are forgotten: they are stored.
        """
        host = self._host
        for key in [key for key in host.outboxes if not host.keeps(*key)]:
            del host.outboxes[key]
        table = host.tables[RELEASES]
        return [
            (key, outboxes.publish(slot_ms, table.rows(key[0])))
            for key, outboxes in host.outboxes.items()
            if outboxes.next_ms is not None and outboxes.next_ms <= slot_ms
        ]

    async def _publish(self, partition: int, owner: Writer, step: Step, slot_ms: int) -> None:
        """Publish what a partition has for a slot, as long as the group is not rebalanced."""
        host = self._host
        for effect in step:
            if not host.keeps(partition, owner):
                return
            match effect:
                case Publish(messages):
                    try:
                        await host.publish(messages, owner, slot_ms)
                    except PartitionLostError:  # it may have been this worker that claimed the partition anew
                        if host.keeps(partition, owner):
                            raise
                        return
                case Increment(_, late, ((_, view),)):
                    host.counters.add(effect)
                    self._lateness.left(view, slot_ms, late)
        self._app.add_future(host.settle(partition, owner))  # it may have to wait for the engine
