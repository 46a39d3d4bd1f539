"""A broker of a test's own, which can be killed, frozen and brought back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from stream_dp.runtime.localkafka import broker as localkafka
from stream_dp.testing.application import WITHIN_SECONDS


class Broker:
    """A local Kafka that runs."""

    def __init__(self, folder: Path, heap: str = "1g") -> None:
        self._folder = folder
        self._heap = heap
        broker = localkafka.start(folder, heap=heap, ready_within_s=WITHIN_SECONDS)
        assert broker.address is not None
        self.address = broker.address

    @property
    def numbers(self) -> list[int]:
        """Of its brokers: it is alone."""
        return [1]

    def kill(self, *_: int) -> None:
        """End it with SIGKILL; its topics stay."""
        self._signal(signal.SIGKILL)

    def freeze(self, *_: int) -> None:
        """Stop it with SIGSTOP: it accepts connections and says nothing."""
        self._signal(signal.SIGSTOP)

    def come_back(self) -> None:
        """Go on, or start again with the topics that there were; blocks until it serves."""
        if localkafka.status(self._folder).running:
            self._signal(signal.SIGCONT)
        localkafka.start(self._folder, heap=self._heap, ready_within_s=WITHIN_SECONDS)

    def close(self) -> None:
        """End it for good."""
        self.come_back()
        localkafka.stop(self._folder)

    def _signal(self, number: int) -> None:
        pid = localkafka.status(self._folder).pid
        assert pid is not None
        os.kill(pid, number)
