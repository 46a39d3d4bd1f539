"""One partition of a table, its changelog and its topics in memory, where a step can be cut at every point.

A point lies before every effect, behind the last one, and inside a `Commit` or a `Send` behind every row or message.
What a cut leaves is what a crash leaves: the rows that reached the changelog, and the messages that were sent. The
object that ran the step is thrown away, a new one is loaded from the rows, and messages are delivered again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from stream_dp.windows.effects import Commit, Erase, Increment, Leave, Message, Rows, Send, Step, Warn


class CutError(Exception):
    """The process ended here."""


@dataclass
class Machine:
    """Carries out steps on rows in memory; implements `stream_dp.windows.effects.Rows`."""

    rows: dict[bytes, bytes] = field(default_factory=dict)
    changelog: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    """Every row ever written, in order."""
    sent: list[Message] = field(default_factory=list)
    leaving: list[Leave] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=Counter)
    in_files: set[bytes] = field(default_factory=set)
    """Keys that were deleted and whose former rows no `Erase` has yet removed from the files."""
    outdated: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Rows that were deleted or replaced, and that no `Erase` has yet removed from the files."""
    points: int = 0
    """Points passed so far."""
    scanned: int = 0
    """Rows that were read by `scan`."""
    commits: int = 0
    """Commits of which every row was written."""
    cut_after: int | None = None
    """Points to pass before the next cut; None for no cut."""
    watch: Callable[[], None] = lambda: None
    """Called at every point: for what must hold wherever a crash hits."""

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def scan(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        for row in sorted((key, value) for key, value in self.rows.items() if first <= key < last):
            self.scanned += 1
            yield row

    def carry_out(self, step: Step) -> None:
        """Do what a step asks for.

        Raises:
            CutError: the cut was reached.
        """
        for effect in step:
            self._point()
            match effect:
                case Commit(rows):
                    for at, (key, value) in enumerate(rows):
                        if at:
                            self._point()
                        self._write(key, value)
                    self.commits += 1
                case Send(messages):
                    for at, message in enumerate(messages):
                        if at:
                            self._point()
                        self.sent.append(message)
                case Erase(first, last):
                    assert first < last
                    self.in_files = {key for key in self.in_files if not first <= key < last}
                    self.outdated = [row for row in self.outdated if not first <= row[0] < last]
                case Leave():
                    self.leaving.append(effect)
                case Increment(name, amount, labels):
                    self.counts[name, labels] += amount
                case Warn(words):
                    self.warned.append(words)
        self._point()

    def _write(self, key: bytes, value: bytes | None) -> None:
        self.changelog.append((key, value))
        if key in self.rows:
            self.outdated.append((key, self.rows[key]))
        if value is None:
            self.in_files.update({key} & self.rows.keys())
            self.rows.pop(key, None)
        else:
            self.rows[key] = value

    def _point(self) -> None:
        self.points += 1
        self.watch()
        if self.cut_after is not None:
            if self.cut_after == 0:
                self.cut_after = None
                raise CutError
            self.cut_after -= 1

    def unerased(self, kind: bytes) -> list[bytes]:
        """Keys of a kind that were deleted, while their bytes may still stand in a file."""
        return sorted(key for key in self.in_files if key.startswith(kind))


class Loaded(Protocol):
    """What a machine runs: rebuilt by `load` after every cut."""

    def load(self, rows: Rows) -> Step: ...


T = TypeVar("T", bound=Loaded)


def deliver(
    machine: Machine,
    new: Callable[[], T],
    messages: Sequence[Callable[[T], Step]],
    *,
    cuts: Iterable[int] = (),
    again: int = 0,
) -> T:
    """Deliver messages in order, at least once, to objects that are cut.

    Args:
        machine: where steps are carried out.
        new: makes the object, not loaded.
        messages: the step that each message asks for.
        cuts: after how many points each crash happens, counted from the restart before it.
        again: how many finished messages are delivered again after a crash.

    Returns:
        The last object.
    """
    left = iter(cuts)
    machine.cut_after = next(left, None)
    running: T | None = None
    at = 0
    while running is None or at < len(messages):
        try:
            if running is None:
                fresh = new()
                machine.carry_out(fresh.load(machine))
                running = fresh
            if at < len(messages):
                machine.carry_out(messages[at](running))
                at += 1
        except CutError:
            running, at = None, max(0, at - again)
            machine.cut_after = next(left, None)
    machine.cut_after = None
    return running


def newest(messages: Iterable[Message]) -> dict[tuple[str, int, bytes | None], bytes | None]:
    """What compaction leaves of topics: the last value of every (topic, partition, key)."""
    return {(message.topic, message.partition, message.key): message.value for message in messages}
