"""Open windows in memory, which spill to disk when they grow too large.

A window's journal in the table is the truth. In memory stands its sum; of a window that has outgrown the bound, a spill
store on disk knows who has which items, and its counts are worked out from the journal when it closes. Either way the
same contributions are accepted: nothing is ever refused for want of memory. Whether one is kept depends on what the
same user added before and on nobody else, however many there are. So one user still adds at most `items_per_user` items
to a window and changes nobody else's contributions, and the sensitivity is the same as without a bound
(specs/lossless 1.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from sys import getsizeof
from typing import Protocol

from stream_dp.windows.count_rows import JournalRow, SourcePartitionClock, ViewMark
from stream_dp.windows.encoding import bucket_of
from stream_dp.windows.participation import Participation
from stream_dp.windows.views import CountedView

USER_BYTES, CONTRIBUTION_BYTES, ITEM_BYTES = 176, 8, 320
"""Bytes in memory of a user, of a contribution and of a distinct item, from above, beside their text."""

_USER, _PAIR = b"u", b"p"
_ANOTHER = -1
"""Stands for an item that a user has and that is not asked for: it has no number."""


class SpillStore(Protocol):
    """A map on disk, empty when it is made. It need not survive anything: the journal does."""

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """The values of keys, None for those that are not there."""

    def put(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Add or replace entries."""

    def drop(self) -> None:
        """Leave nothing of it on the disk; it is not used any more."""


@dataclass(frozen=True, slots=True)
class WindowMemory:
    """Memory that the users and items of an open window may take; with more, it goes on on disk.

    Attributes:
        most_bytes: the bound, by estimate.
        spill_stores: makes the place on disk.
    """

    most_bytes: int
    spill_stores: Callable[[], SpillStore]


@dataclass(slots=True)
class OpenWindow:
    """Who has which items in a window, and how many have each.

    Items are numbered in the order in which they were first accepted, and a user has a tuple of numbers. That of a
    user with a single item belongs to the item: all such users share it. The journal's order is the order of
    acceptance, so a window that is read back from it is the same in every respect.

    A window in a spill store holds nothing between two chunks. Before one it takes out what the chunk asks about.
    """

    accepted: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    alone: dict[str, tuple[int]] = field(default_factory=dict)
    """By item, what a user has who has nothing else; in the order of the numbers."""
    tallies: list[int] = field(default_factory=list)
    """By number, how many users have the item."""
    memory_bytes: int = 0
    """Bytes in memory of users and items, estimated from above; 0 in a spill store."""
    spill_store: SpillStore | None = None
    _weighed: tuple[int, int] = (0, 0)

    @property
    def tables(self) -> tuple[dict[bytes, tuple[int, ...]], dict[str, tuple[int]], list[int]]:
        """Mappings that change with every contribution, for a loop over many: `accepted`, `alone` and `tallies`."""
        return self.accepted, self.alone, self.tallies

    def add(self, row: JournalRow) -> None:
        """Take a stored journal row into the sum."""
        self.take_out(zip(row.users, row.items, strict=True))
        accepted, alone, tallies = self.tables
        for user, item in zip(row.users, row.items, strict=True):
            own = alone.get(item)
            if own is None:
                own = alone[item] = (len(tallies),)
                tallies.append(0)
            held = accepted.get(user)
            accepted[user] = own if held is None else held + own
            tallies[own[0]] += 1

    def counts(self, weights: Sequence[int] = ()) -> Iterator[tuple[str, int]]:
        """Items and how many users have them, in the order in which they were first accepted; not in a spill store.

        Args:
            weights: what a user with 1, 2, ... items counts for each of them; empty: 1.
        """
        tallies = [0] * len(self.tallies) if weights else self.tallies
        for numbers in self.accepted.values() if weights else ():
            weight = weights[len(numbers) - 1]
            for number in numbers:
                tallies[number] += weight
        return zip(self.alone, tallies, strict=True)

    def held(self, users: Sequence[bytes]) -> list[int]:
        """Return how many items each of some users has."""
        if self.spill_store is None:
            return [len(self.accepted[user]) for user in users]
        return [int.from_bytes(count or b"") for count in self.spill_store.get([_USER + user for user in users])]

    def by_degree(self, journal: Iterable[JournalRow]) -> Mapping[int, int]:
        """Return how many users have 1, 2, ... items.

        Args:
            journal: the rows of the window; read if it is in a spill store.
        """
        if self.spill_store is None:
            return Counter(map(len, self.accepted.values()))
        found = Counter(degree for row in journal for degree in self.held(row.users))
        return {degree: times // degree for degree, times in found.items()}  # each of a user's items says it once

    # -- the bound ------------------------------------------------------------------------------------------

    def settle(self, rows: Sequence[JournalRow], memory: WindowMemory) -> None:
        """Behind rows that were just counted, go on where there is room: in memory, or in a spill store.

        Args:
            rows: what was accepted since.
            memory: bounds what is held.
        """
        if self.spill_store is not None:
            self._put_away(self.spill_store, (pair for row in rows for pair in zip(row.users, row.items, strict=True)))
            return
        users, items = self._weighed
        self._weighed = len(self.accepted), len(self.alone)
        self.memory_bytes += CONTRIBUTION_BYTES * sum(len(row.users) for row in rows)
        for new in islice(reversed(self.accepted), len(self.accepted) - users):
            self.memory_bytes += USER_BYTES + getsizeof(new)
        for item in islice(reversed(self.alone), len(self.alone) - items):
            self.memory_bytes += ITEM_BYTES + getsizeof(item)
        if self.memory_bytes > memory.most_bytes:
            names = list(self.alone)
            self.spill_store = memory.spill_stores()
            everything = ((user, names[n]) for user, numbers in self.accepted.items() for n in numbers)
            self._put_away(self.spill_store, everything)

    def take_out(self, contributions: Iterable[tuple[bytes, str]]) -> None:
        """Before a chunk: load how many items its users have, and which of its items; if in a spill store."""
        if self.spill_store is None:
            return
        pairs = list(dict.fromkeys(contributions))
        users = list(dict.fromkeys(user for user, _ in pairs))
        held: dict[bytes, list[int]] = {}
        for (user, item), found in zip(pairs, self.spill_store.get([_pair(*pair) for pair in pairs]), strict=True):
            if found is not None:
                own = self.alone.get(item)
                if own is None:
                    own = self.alone[item] = (len(self.tallies),)
                    self.tallies.append(0)
                held.setdefault(user, []).append(own[0])
        for user, count in zip(users, self.spill_store.get([_USER + user for user in users]), strict=True):
            if count is not None:
                known = held.get(user, [])
                self.accepted[user] = (*known, *[_ANOTHER] * (int.from_bytes(count) - len(known)))

    def _put_away(self, spill_store: SpillStore, contributions: Iterable[tuple[bytes, str]]) -> None:
        """Put contributions that were accepted into the spill store, and what their users have now; hold nothing."""
        changed: set[bytes] = set()

        def entries() -> Iterator[tuple[bytes, bytes]]:
            for user, item in contributions:
                changed.add(user)
                yield _pair(user, item), b""
            for user in changed:
                yield _USER + user, len(self.accepted[user]).to_bytes(2)

        spill_store.put(entries())
        self.accepted, self.alone, self.tallies = {}, {}, []
        self.memory_bytes = 0

    def drop(self) -> None:
        """Leave nothing on the disk."""
        if self.spill_store is not None:
            self.spill_store.drop()


def _pair(user: bytes, item: str) -> bytes:
    return _PAIR + len(user).to_bytes(2) + user + item.encode()


def tables_of(read: Callable[[], Iterable[tuple[str, int]]], buckets: int, most: int) -> Iterator[dict[str, int]]:
    """Count items bucket by bucket, in as many passes over them as it takes to count a few buckets at a time.

    Args:
        read: reads every item once for each user who has it, and what that adds, the same in the same order each time.
        buckets: number of buckets.
        most: bytes that a pass may take in memory, estimated from above; a bucket that needs more is counted alone.

    Returns:
        The counts of every bucket, in order; in each, items stand in the order in which they are first read.
    """
    first, width = 0, buckets
    while first < buckets:
        width = min(width, buckets - first)
        tables: list[dict[str, int]] = [{} for _ in range(width)]
        sizes, size = [0] * width, 0
        for item, amount in read():
            at = bucket_of(item, buckets) - first
            if not 0 <= at < width:
                continue
            table = tables[at]
            if item in table:
                table[item] += amount
                continue
            table[item] = amount
            taken = ITEM_BYTES + getsizeof(item)
            sizes[at] += taken
            size += taken
            while width > 1 and size > most:
                width = (width + 1) // 2
                size -= sum(sizes[width:])
                del tables[width:], sizes[width:]
        yield from tables
        first += width


_NOBODY_THERE_MS = 60_000
"""Ticks further apart tell of an outage, which may have kept producers from writing: no idle time of the source."""


@dataclass(slots=True)
class ViewState:
    """A view, how far it has come, and its open windows by start."""

    view: CountedView
    mark: ViewMark
    windows: dict[int, OpenWindow] = field(default_factory=dict)
    """By start of where contributions are bounded: a window, or a longer interval of them."""
    rows: Counter[int] = field(default_factory=Counter)
    """Return the number of journal rows of each window."""
    participation: Participation | None = None
    """Who has entered how many windows; None if that is not bounded, and before it is loaded."""

    def forget(self, stop_ms: int) -> list[tuple[int, int]]:
        """Forget what bounds only windows that were handed on: all before the one that starts at `stop_ms`.

        Returns:
            Starts of the windows whose journals nobody needs any more, and how many rows these have.
        """
        for start in [start for start in self.windows if self.view.is_over(start, stop_ms)]:
            self.windows.pop(start).drop()
        over = sorted(start for start in self.rows if self.view.is_over(self.view.bounded_in(start), stop_ms))
        return [(start, self.rows.pop(start)) for start in over]

    @property
    def is_over(self) -> bool:
        """True if all its windows were handed on, and no more will follow."""
        return self.view.until_ms is not None and self.mark.open_from_ms >= self.view.until_ms


def pass_time(view: CountedView, clock: ViewMark | SourcePartitionClock, now_ms: int, before_ms: int) -> None:
    """Set a clock by a tick, `before_ms` being the one before it."""
    if view.clock == "wall":
        clock.clock_ms = max(clock.clock_ms, now_ms)
    elif clock.idle_since_ms is None or now_ms - before_ms > _NOBODY_THERE_MS:
        clock.idle_since_ms = now_ms
    elif now_ms - clock.idle_since_ms >= view.idle_ms:
        clock.clock_ms = max(clock.clock_ms, min(clock.clock_ms + now_ms - clock.idle_since_ms, now_ms))
        clock.idle_since_ms = now_ms
