"""A worker's right to write, by its own clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from stream_dp.errors import StateError


class Lease:
    """Runs out when the process has not been running for long: suspended, swapped out, on a stopped machine.

    The group may by then have given its partitions to another worker. What it would write now would stand behind
    what the other one wrote, so it has to end instead; the timer that renews the lease runs on the event loop, and a
    worker whose loop is blocked loses it as well.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._renewed: float | None = None

    def renew(self) -> None:
        """Say that the process is running.

        Raises:
            StateError: the lease had run out before.
        """
        self.check()
        self._renewed = self._clock()

    def check(self) -> None:
        """Called before every write.

        Raises:
            StateError: the process has not been running for too long, and has to end.
        """
        if self._renewed is not None and self._clock() - self._renewed > self._seconds:
            raise StateError(
                f"this worker stood still for more than {self._seconds:g} s and may have lost its partitions to "
                "another one; it ends here and can be started again"
            )
