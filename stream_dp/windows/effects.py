"""Effects that a pure step asks of the runtime, in order: every step of the engine is a generator of these.

A step may be cut short between any two effects (a crash) and is then run again from its message. Whoever writes a
step proves that this changes nothing; the tests cut every step at every place.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Commit:
    """Store rows durably in one partition of the agent's table; a value of None deletes the row.

    The rows reach the changelog in the order given, in one batch or in several, so after a crash a prefix of them is
    there, of any length. Locally they appear when the changelog has acknowledged them: where they are more than a few
    megabytes, a part of them after the other. The step goes on when all are there.
    """

    rows: Sequence[tuple[bytes, bytes | None]]


@dataclass(frozen=True, slots=True)
class Message:
    """A record to publish. `partition` None leaves the choice to the topic's only partition."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int = 0
    headers: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Of its key and its value, in bytes."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class Send:
    """Publish records and wait until the broker has acknowledged every one."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class SendLetters(Send):
    """Publish dead letters, all for one partition of a topic; they are dropped if that does not take them."""


@dataclass(frozen=True, slots=True)
class Publish(Send):
    """Publish records to readers at a slot that has come; they bear its time."""

    slot_ms: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Let stored records of a window leave at a slot, or at a later one if they miss it. The step does not wait."""

    view: str
    start_ms: int
    slot_ms: int


@dataclass(frozen=True, slots=True)
class Erase:
    """Make the deleted rows of `[first, last)` vanish from the RocksDB files now, not at some later compaction."""

    first: bytes
    last: bytes


@dataclass(frozen=True, slots=True)
class Increment:
    """Add to a counter of the pipeline; names and labels never depend on the content of an event."""

    name: str
    amount: int
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Warn:
    """Write a warning to the worker's log; it names no user, no item and no count of events."""

    words: str


@dataclass(frozen=True, slots=True)
class Long:
    """Go on with the step off the event loop: what it works out next may take long."""


ROWS_LOADED = "rows_loaded"
"""The counter of the rows that `load` of a part has read back: how far it has come."""

Effect = Commit | Send | Leave | Erase | Increment | Warn | Long
Step = Iterator[Effect]


class Rows(Protocol):
    """Read access to one partition of the agent's table, as it stood after the last finished `Commit`."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a row, None when there is none."""

    def scan(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `first <= key < last`, in key order; of many, the later ones are read when they are asked for.

        All are of one kind, the first byte of their keys: kinds may be stored apart.
        """


class NoRows:
    """A table with nothing in it."""

    def get(self, key: bytes) -> bytes | None:
        """None."""
        return None

    def scan(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Nothing."""
        return iter(())


class Ahead:
    """Rows as they will stand after changes that are still to be committed."""

    def __init__(self, rows: Rows) -> None:
        """Set up.

        Args:
            rows: the rows as they stand.
        """
        self._changed: dict[bytes, bytes | None] = {}
        self._order: list[bytes] = []
        self._rows = rows

    def change(self, changed: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Change rows, in order; one of None is deleted."""
        for key, value in changed:
            if key not in self._changed:
                insort(self._order, key)
            self._changed[key] = value

    def get(self, key: bytes) -> bytes | None:
        """The value that the row will have."""
        return self._changed[key] if key in self._changed else self._rows.get(key)

    def scan(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `first <= key < last` as they will be, in key order."""
        changed = self._order[bisect_left(self._order, first) : bisect_left(self._order, last)]
        stored = (row for row in self._rows.scan(first, last) if row[0] not in self._changed)
        rows = ((key, value) for key in changed if (value := self._changed[key]) is not None)
        return merge(stored, rows)
