"""A topic that a reader reads and withdraws its records from, and the reader on a machine that is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from stream_dp.windows.effects import Message, Step
from tests.support.machine import CutError, Loaded, Machine, newest

T = TypeVar("T", bound=Loaded)


@dataclass
class TopicReader(Generic[T]):
    """Reads `topic` at least once; what the reader itself sends there, it reads as well."""

    topic: str
    new: Callable[[], T]
    take: Callable[[T, Sequence[bytes | None], Machine], Step]
    machine: Machine = field(default_factory=Machine)
    cuts: Iterable[int] = ()
    back: int = 0
    """How many records are read again after a cut."""
    at_once: int = 100
    """How many records are read together."""
    compacts: bool = False
    """Whether compaction gets at the topic while the process is down: superseded records are not read again."""
    log: list[Message] = field(default_factory=list)
    """The topic."""
    read: int = 0

    def __post_init__(self) -> None:
        self._left = iter(self.cuts)
        self.machine.cut_after = next(self._left, None)
        self._running: T | None = None
        self._seen = 0

    def write(self, messages: Iterable[Message]) -> None:
        """Append records and read everything."""
        self.log += messages
        while self.read < len(self.log):
            self.read_some()

    def read_some(self) -> None:
        """Read one batch."""
        batch = self.log[self.read : self.read + self.at_once]
        if self.attempt(lambda reader: self.take(reader, [message.value for message in batch], self.machine)):
            self.read += len(batch)

    def load(self) -> None:
        """Start the reader if it does not run."""
        while self._running is None:
            fresh = self.new()
            try:
                self.machine.carry_out(fresh.load(self.machine))
                self._running = fresh
            except CutError:
                self._after_cut()
            finally:
                self._collect()

    def stop(self) -> None:
        """End the process between two steps."""
        self._running = None

    def restart(self) -> None:
        """End the process between two steps, and start it again."""
        self.stop()
        self.load()

    def attempt(self, step: Callable[[T], Step]) -> bool:
        """Run a step on the reader, started if need be; whether it was not cut."""
        self.load()
        assert self._running is not None
        try:
            self.machine.carry_out(step(self._running))
        except CutError:
            self._after_cut()
            return False
        finally:
            self._collect()
        return True

    def run(self, step: Callable[[T], Step]) -> None:
        """Run a step until it was not cut: a message that is delivered until it is acknowledged."""
        while not self.attempt(step):
            pass

    def _after_cut(self) -> None:
        self._running, self.read = None, max(0, self.read - self.back)
        self.machine.cut_after = next(self._left, None)
        if self.compacts:
            self._collect()
            last = {message.key: at for at, message in enumerate(self.log)}
            self.log = [m if last[m.key] == at else replace(m, value=None) for at, m in enumerate(self.log)]

    def _collect(self) -> None:
        sent, self._seen = self.machine.sent[self._seen :], len(self.machine.sent)
        self.log += [message for message in sent if message.topic == self.topic]

    def standing(self) -> set[bytes | None]:
        """Keys that compaction leaves a value of in the topic."""
        return {key for (_, _, key), value in newest(self.log).items() if value is not None}
