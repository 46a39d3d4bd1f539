"""A broker that does not answer is waited for: said once when it falls silent, once when it is back."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from aiokafka.errors import KafkaError, KafkaTimeoutError

from stream_dp.errors import BrokerError, OutageError
from stream_dp.runtime.refusals import not_allowed

log = logging.getLogger("stream_dp.worker")

T = TypeVar("T")

NOTICED_SECONDS = 5
RETRY_SECONDS = 0.5


@contextmanager
def answering(address: str) -> Iterator[None]:
    """Tell a cluster that does not answer from one that refuses.

    Raises:
        OutageError: it did not answer, or not in a way that is final: asking again may help.
        AccessError: the account lacks a right.
        BrokerError: it refused for another reason.
    """
    try:
        yield
    except (KafkaError, OSError) as error:  # TimeoutError is an OSError
        if (refused := not_allowed(address, error)) is not None:
            raise refused from error
        kind, how = (OutageError, "does not answer") if is_silence(error) else (BrokerError, "refuses")
        raise kind(f"the cluster at {address} {how}: {str(error) or 'no answer in time'}") from error


def is_silence(error: KafkaError | OSError) -> bool:
    """Whether an error means that the cluster did not answer, or not in a way that is final."""
    return isinstance(error, OSError | KafkaTimeoutError) or bool(error.retriable)


class Outage:
    """What the parts of a worker that wait for the broker know together.

    They never give up: what is waited for arrives, or the worker is told to stop.
    """

    def __init__(self, address: str) -> None:
        """Set up the outage of a cluster that answers.

        Args:
            address: how the cluster is called in the log.
        """
        self.address = address
        self._silent = 0
        """How many wait for longer than is usual."""
        self._since: float | None = None
        self._over = -math.inf

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Around what the broker has to answer."""
        notice = _AliveFor(NOTICED_SECONDS, self._fall_silent)
        try:
            yield
        finally:
            notice.cancel()
            self._silent -= notice.given
        if self._since is not None and not self._silent:
            self._over = time.monotonic()
            seconds, self._since = self._over - self._since, None
            log.warning("the broker at %s answers again, after %.0f s; the worker goes on", self.address, seconds)

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question that is asked again and again while the broker does not answer.

        Raises:
            BrokerError: it refuses.
        """
        async with self.waiting():
            while True:
                try:
                    return await ask()
                except OutageError:
                    await asyncio.sleep(RETRY_SECONDS)

    @property
    def is_silent(self) -> bool:
        """Whether the broker is waited for at present, and has been for longer than is usual."""
        return self._since is not None

    def was_within(self, seconds: float) -> bool:
        """Whether the broker is silent, or was less than so many seconds ago."""
        return self._since is not None or time.monotonic() - self._over < seconds

    def _fall_silent(self) -> None:
        self._silent += 1
        if self._since is None:
            self._since = time.monotonic() - NOTICED_SECONDS
            log.warning("the broker at %s does not answer; the worker waits for it", self.address)


class _AliveFor:
    """Gives notice when the event loop has run for so many seconds.

    Seconds in which the process stood still do not count: then it was not the broker that kept silent.
    """

    def __init__(self, seconds: int, act: Callable[[], None]) -> None:
        self._left = seconds
        self._act = act
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(1, self._second)
        self.given = False

    def _second(self) -> None:
        self._left -= 1
        if self._left:
            self._next = self._loop.call_later(1, self._second)
        else:
            self.given = True
            self._act()

    def cancel(self) -> None:
        self._next.cancel()
