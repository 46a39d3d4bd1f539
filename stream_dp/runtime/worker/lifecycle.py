"""A start says what it waits for, and ends when nothing moves for too long."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from stream_dp.errors import OutageError
from stream_dp.runtime.kafka.outages import RETRY_SECONDS
from stream_dp.runtime.worker.logs import last_line

log = logging.getLogger("stream_dp.worker")

T = TypeVar("T")

START_SECONDS = 300.0
SAY_SECONDS = 10.0
LOOK_SECONDS = 0.2


class Start:
    """Reason why a start waits, and the time since when that has not changed."""

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
    def waiting_for(self) -> str:
        """Reason why it waits, in words."""
        return self._words()

    def wait_for(self, what: str | Callable[[], str]) -> None:
        """Note what it waits for from now on; as a function, words that change with the progress made."""
        self._words = what if callable(what) else lambda: what

    def look(self) -> bool:
        """Say what it waits for, now and then; whether there is still time."""
        words, now = self.waiting_for, self._clock()
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
        """Return the answer to a query of the broker, repeated until there is one."""
        while True:
            try:
                return await ask()
            except OutageError:
                await asyncio.sleep(RETRY_SECONDS)


STOP_SECONDS = 7.0
"""Time that a stopping worker may take to finish and commit the chunk at hand."""


class Stop:
    """The order to stop, by SIGINT or SIGTERM.

    The process ends within `STOP_SECONDS` of the first signal, even if the event loop hangs, and at once on a second.
    What it had at hand is read again by the next start.
    """

    def __init__(self) -> None:
        """Set up the order; nobody listens yet."""
        self.given = False
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def listen(self) -> None:
        """Take the order from now on, in the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._told)

    async def wait(self) -> None:
        """Return when the order is given."""
        await self._event.wait()

    def _told(self, *_: Any) -> None:
        if self.given:
            _leave_now("told to stop a second time; what was at hand is read again by the next start")
        self.given = True
        threading.Thread(target=_watch, name="stop", daemon=True).start()
        self._loop.call_soon_threadsafe(self._event.set)


def _watch() -> None:
    time.sleep(STOP_SECONDS)
    _leave_now(
        f"not finished {STOP_SECONDS:g} s after it was told to stop, the worker ends without waiting for the chunk at "
        "hand and the broker; the next start reads it again"
    )


def _leave_now(why: str) -> NoReturn:
    """End the process from any thread; a logger might wait for the one that hangs."""
    os.write(sys.stderr.fileno(), f"{last_line(why, logging.WARNING)}\n".encode())
    os._exit(0)


def start_over(why: str) -> NoReturn:
    """Run the process's command again, under the same process id, as a supervisor would; a loss is accepted once."""
    _say(why, logging.WARNING)
    os.execv(sys.executable, [sys.executable, *(word for word in sys.orig_argv[1:] if word != "--accept-loss")])  # noqa: S606


def leave(code: int, why: str) -> NoReturn:
    """End the process with what was acknowledged and nothing more; why is said on standard error."""
    _say(why, logging.ERROR if code else logging.INFO)
    os._exit(code)


def _say(why: str, level: int) -> None:
    sys.stderr.write(f"{last_line(why, level)}\n")
    sys.stderr.flush()
    logging.shutdown()
