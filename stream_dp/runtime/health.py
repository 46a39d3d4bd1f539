"""Whether a worker lives and whether it is ready, in the words in which its start says what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.starting import Start
from stream_dp.runtime.stopping import Stop

if TYPE_CHECKING:
    from stream_dp.runtime.worker import Worker


class Health:
    """What probes ask, from the beginning of a process to its end.

    Attributes:
        start: what it waits for until there is a worker.
        worker: the worker, None until it is made.
    """

    def __init__(self, start: Start, stop: Stop | None = None) -> None:
        """Begin.

        Args:
            start: is told what the process waits for.
            stop: the order to stop, None if there will be none.
        """
        self.start = start
        self.worker: Worker | None = None
        self._stop = stop

    @property
    def is_alive(self) -> bool:
        """Whether no crash is under way; that somebody answers says that the event loop runs."""
        return self.worker is None or self.worker.crash_reason() is None

    @property
    def is_silent(self) -> bool:
        """Whether the worker waits for a broker that does not answer."""
        return self.worker is not None and self.worker.app.outage.is_silent

    @property
    def now_ms(self) -> int:
        """The time: by the broker's clock, as soon as the worker knows what that shows."""
        log_ms = None if self.worker is None else self.worker.log_ms
        return wall_clock_ms() if log_ms is None else log_ms

    @property
    def clock_ahead_ms(self) -> int:
        """How far the worker's clock is ahead of the broker's (below 0: behind), if that is too far; else 0."""
        return 0 if self.worker is None else self.worker.clock_ahead_ms

    @property
    def waits_for(self) -> str:
        """What it waits for, in words; nothing if it is ready: joined, recovered, right in time and not cut off."""
        if not self.is_alive:
            return "its end, since it has crashed"
        if self._stop is not None and self._stop.given:
            return "its end, since it was told to stop"
        if self.worker is None:
            return self.start.waits_for
        if self.is_silent:
            return f"the broker at {self.worker.app.outage.address}, which does not answer"
        return self.worker.words() or self.worker.clock_words
