"""How a worker ends: in time, whatever it is doing, with what the broker has acknowledged."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from typing import Any, NoReturn

from stream_dp.runtime.logs import last_line

STOP_SECONDS = 7.0
"""How long a worker that is told to stop may take to finish and commit the chunk at hand."""


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
