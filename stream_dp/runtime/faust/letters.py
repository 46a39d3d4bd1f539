"""Sends dead letters without letting their topic hold up counting.

A dead-letter topic may have no leader while all other topics answer. Counting does not depend on it: while a partition
of the topic does not acknowledge letters, further letters for it are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from stream_dp.runtime.kafka.transactions import Writer
from stream_dp.windows.effects import Increment, Message

log = logging.getLogger("stream_dp.worker")

LETTERS_SECONDS = 5.0
"""Time that counting waits for the acknowledgement of dead letters."""
LETTERS_DROPPED = "dead_letters_dropped"

_Place = tuple[str, int]


class DeadLetterBox:
    """Sends the dead letters of one worker."""

    def __init__(self, count: Callable[[Increment], None]) -> None:
        """Set up the box.

        Args:
            count: adds to a counter.
        """
        self._count = count
        self._waiting: dict[_Place, asyncio.Future[None]] = {}
        """Letters that are not acknowledged yet, by topic and partition."""

    async def send(self, messages: Sequence[Message], owner: Writer) -> None:
        """Send letters, all for one partition of a topic; return after `LETTERS_SECONDS` at the latest.

        Args:
            messages: the letters.
            owner: the writer of the partition that they are about.

        Raises:
            PartitionLostError: a successor of the owner has sent to the topic.
        """
        place = messages[0].topic, messages[0].partition
        if place in self._waiting:
            self._count(Increment(LETTERS_DROPPED, len(messages)))
            return
        sending = asyncio.ensure_future(owner.publish(messages))
        try:
            await asyncio.wait((sending,), timeout=LETTERS_SECONDS)
        except BaseException:
            sending.cancel()
            raise
        if sending.done():
            sending.result()
            return
        log.warning("topic %s takes no dead letters; further letters are dropped until it does", place[0])
        self._waiting[place] = sending
        sending.add_done_callback(lambda _: self._resume(place, sending))

    def forget(self) -> None:
        """Give up letters that are not acknowledged: their partitions may have changed hands."""
        for sending in self._waiting.values():
            sending.cancel()
        self._waiting.clear()

    def _resume(self, place: _Place, sending: asyncio.Future[None]) -> None:
        if self._waiting.get(place) is sending:
            del self._waiting[place]
        if sending.cancelled():
            return
        error = sending.exception()
        if error is None:
            log.warning("topic %s takes dead letters again", place[0])
        else:
            log.warning("dead letters for topic %s were lost: %s", place[0], error)
