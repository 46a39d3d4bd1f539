"""A start says what it waits for, and ends when nothing moves for too long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stream_dp.errors import OutageError
from stream_dp.runtime.outage import RETRY_SECONDS

log = logging.getLogger("stream_dp.worker")

T = TypeVar("T")

START_SECONDS = 300.0
SAY_SECONDS = 10.0
LOOK_SECONDS = 0.2


class Start:
    """What a start waits for, and since when that has not changed."""

    def __init__(self, within_s: float = START_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin.

        Args:
            within_s: how long it may wait for one thing; a recovery that goes on is never waited for too long.
            clock: seconds that only grow.
        """
        self.within_s = within_s
        self._clock = clock
        self._words: Callable[[], str] = lambda: "the machine"
        self._last = ""
        self._since = self._said = clock()

    @property
    def waits_for(self) -> str:
        """What it waits for, in words."""
        return self._words()

    def wait_for(self, what: str | Callable[[], str]) -> None:
        """Note what it waits for from now on; as a function, words that change with the progress made."""
        self._words = what if callable(what) else lambda: what

    def look(self) -> bool:
        """Say what it waits for, now and then; whether there is still time."""
        words, now = self.waits_for, self._clock()
        if words != self._last:
            self._last, self._since = words, now
        if now - self._said >= SAY_SECONDS:
            self._said = now
            log.info("waiting for %s", words)
        return now - self._since < self.within_s

    async def overdue(self) -> None:
        """Return when it has waited too long for one thing."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self.look():
                return

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question to the broker that is asked again and again until there is one."""
        while True:
            try:
                return await ask()
            except OutageError:
                await asyncio.sleep(RETRY_SECONDS)
