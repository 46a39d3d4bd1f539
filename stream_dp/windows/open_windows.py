"""Open windows in memory, which spill to disk when they grow too large.

A window's journal in the table is the truth. In memory stands who has which items; of a window that has outgrown the
bound, a spill store on disk knows it, and its counts are worked out from the journal when it closes. Either way the
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

import numpy as np
from numpy.typing import NDArray

from stream_dp.windows.catch_up import CatchUp, step_clock
from stream_dp.windows.count_rows import JournalRow, SourcePartitionClock, ViewMark, journal_key
from stream_dp.windows.encoding import bucket_of
from stream_dp.windows.participation import Participation
from stream_dp.windows.views import CountedView

CODE_BYTES = 4
MOST_CODES = 1 << 24
"""Numbers of items. A window goes on on disk before it needs half of them: no chunk brings the other half."""
_CODE_OBJECT_BYTES = getsizeof("@" * CODE_BYTES)
"""Bytes in memory of a code that is its own object: 8 fewer since Python 3.12."""
USER_BYTES = 139 + _CODE_OBJECT_BYTES
"""Upper bound on the bytes in memory of a user, not counting the text and a code for each contribution."""
ITEM_BYTES = 163 + _CODE_OBJECT_BYTES
"""Upper bound on the bytes in memory of a distinct item, not counting its text."""

_USER, _PAIR = b"u", b"p"
_BYTES_AT_ONCE = 1 << 20
"""Of codes that are counted together."""


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


_LAST = [chr(half >> 6) + chr(half & 0x3F) for half in range(1 << 12)]
_FIRST = [chr(0x40 | half >> 6) + chr(half & 0x3F) for half in range(1 << 12)]


def code_of(number: int) -> str:
    """The number of an item, below `MOST_CODES`, as ASCII text: 6 bits in each character, and the first of them marked.

    So a code that stands somewhere in a row of codes is one of them. Python looks for a text in a text, and puts one
    behind another, in a fraction of the time that it takes for bytes.
    """
    return _FIRST[number >> 12] + _LAST[number & 0xFFF]


_ANOTHER = code_of(MOST_CODES - 1)
"""Stands for an item that a user has and that is not asked for: it has no number."""


def _numbers_of(codes: str) -> NDArray[np.int64]:
    """Return the numbers of a row of codes."""
    packed = np.frombuffer(codes.encode("ascii"), ">u4").astype(np.int64)
    return packed >> 6 & 0x3F << 18 | packed >> 4 & 0x3F << 12 | packed >> 2 & 0x3F << 6 | packed & 0x3F


@dataclass(slots=True)
class OpenWindow:
    """Who has which items in a window.

    Items are numbered in the order in which they were first accepted, and a user has the codes of their numbers, one
    behind the other. That of a user with a single item belongs to the item: all such users share it. The journal's
    order is the order of acceptance, so a window that is read back from it is the same in every respect.

    A window in a spill store holds nothing between two chunks. Before one it takes out what the chunk asks about.
    """

    accepted: dict[bytes, str] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    """By item, in the order of the numbers."""
    memory_bytes: int = 0
    """Bytes in memory of users and items, estimated from above; 0 in a spill store."""
    spill_store: SpillStore | None = None
    _weighed: tuple[int, int] = (0, 0)

    @property
    def tables(self) -> tuple[dict[bytes, str], dict[str, str]]:
        """Mappings that change with every contribution, for a loop over many: `accepted` and `codes`."""
        return self.accepted, self.codes

    def add(self, row: JournalRow) -> None:
        """Take a stored journal row into what is held."""
        self.take_out(zip(row.users, row.items, strict=True))
        accepted, codes = self.tables
        held_by, own_of = accepted.get, codes.get
        for user, item in zip(row.users, row.items, strict=True):
            own = own_of(item)
            if own is None:
                own = codes[item] = code_of(len(codes))
            held = held_by(user)
            accepted[user] = own if held is None else held + own

    def counts(self, weights: Sequence[int] = ()) -> Iterator[tuple[str, int]]:
        """Items and how many users have them, in the order in which they were first accepted; not in a spill store.

        Args:
            weights: what a user with 1, 2, ... items counts for each of them; empty: 1.
        """
        totals, at = np.zeros(len(self.codes), np.int64), 0
        lengths, users = np.fromiter(map(len, self.accepted.values()), np.int64), iter(self.accepted.values())
        for number in np.bincount(np.cumsum(lengths) // _BYTES_AT_ONCE).tolist():
            numbers = _numbers_of("".join(islice(users, number)))
            if weights:
                degrees = lengths[at : at + number] // CODE_BYTES
                np.add.at(totals, numbers, np.repeat(np.array(weights, np.int64)[degrees - 1], degrees))
            else:
                totals += np.bincount(numbers, minlength=len(totals))
            at += number
        return zip(self.codes, totals.tolist(), strict=True)

    def held(self, users: Sequence[bytes]) -> list[int]:
        """Return how many items each of some users has."""
        if self.spill_store is None:
            return [len(self.accepted[user]) // CODE_BYTES for user in users]
        return [int.from_bytes(count or b"") for count in self.spill_store.get([_USER + user for user in users])]

    def by_degree(self, journal: Iterable[JournalRow]) -> Mapping[int, int]:
        """Return how many users have 1, 2, ... items.

        Args:
            journal: the rows of the window; read if it is in a spill store.
        """
        if self.spill_store is None:
            return {length // CODE_BYTES: users for length, users in Counter(map(len, self.accepted.values())).items()}
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
            if rows:
                pairs = (pair for row in rows for pair in zip(row.users, row.items, strict=True))
                self._put_away(self.spill_store, pairs)
            self.accepted, self.codes = {}, {}
            return
        users, items = len(self.accepted) - self._weighed[0], len(self.codes) - self._weighed[1]
        self._weighed = len(self.accepted), len(self.codes)
        self.memory_bytes += CODE_BYTES * sum(len(row.users) for row in rows) + USER_BYTES * users + ITEM_BYTES * items
        self.memory_bytes += sum(map(bytes.__sizeof__, islice(reversed(self.accepted), users)))
        self.memory_bytes += sum(map(str.__sizeof__, islice(reversed(self.codes), items)))
        if self.memory_bytes > memory.most_bytes or len(self.codes) > MOST_CODES // 2:
            names = list(self.codes)
            self.spill_store = memory.spill_stores()
            everything = ((user, names[n]) for user, held in self.accepted.items() for n in _numbers_of(held).tolist())
            self._put_away(self.spill_store, everything)

    def take_out(self, contributions: Iterable[tuple[bytes, str]]) -> None:
        """Before a chunk: load how many items its users have, and which of its items; if in a spill store."""
        if self.spill_store is None:
            return
        pairs = list(dict.fromkeys(contributions))
        users = list(dict.fromkeys(user for user, _ in pairs))
        held: dict[bytes, str] = {}
        for (user, item), found in zip(pairs, self.spill_store.get([_pair(*pair) for pair in pairs]), strict=True):
            if found is not None:
                own = self.codes.setdefault(item, code_of(len(self.codes)))
                held[user] = held.get(user, "") + own
        for user, count in zip(users, self.spill_store.get([_USER + user for user in users]), strict=True):
            if count is not None:
                known = held.get(user, "")
                self.accepted[user] = known + _ANOTHER * (int.from_bytes(count) - len(known) // CODE_BYTES)

    def _put_away(self, spill_store: SpillStore, contributions: Iterable[tuple[bytes, str]]) -> None:
        """Put contributions that were accepted into the spill store, and what users have now; hold nothing."""

        def entries() -> Iterator[tuple[bytes, bytes]]:
            for user, item in contributions:
                yield _pair(user, item), b""
            for user, held in self.accepted.items():
                yield _USER + user, (len(held) // CODE_BYTES).to_bytes(2)

        spill_store.put(entries())
        self.accepted, self.codes, self.memory_bytes = {}, {}, 0

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
    """A view, how far it has come, and its open windows by start, which it may share with views that bound alike."""

    view: CountedView
    mark: ViewMark
    windows: dict[int, OpenWindow] = field(default_factory=dict)
    """By start of where contributions are bounded: a window, or a longer interval of them."""
    rows: Counter[int] = field(default_factory=Counter)
    """Return the number of journal rows of each window."""
    participation: Participation | None = None
    """Who has entered how many windows; None if that is not bounded, and before it is loaded."""
    is_oldest: bool = True
    """No earlier definition of the view is counted."""

    def bounds_like(self, other: ViewState) -> bool:
        """Return True if whatever records come next, the same contributions to windows that hold the same are kept.

        It is not asked what the windows hold.
        """
        return self.view.participation is None and self.admits == other.admits and self.view.admits_like(other.view)

    @property
    def admits(self) -> tuple[object, ...]:
        """Return the part of what decides which events are in time that changes."""
        mark = self.mark
        clocks = {at: _clock_state(clock) for at, clock in mark.source_partitions.items()}
        return _clock_state(mark), mark.open_from_ms, clocks, self.is_oldest

    def take(self, start: int, row: JournalRow, memory: WindowMemory) -> None:
        """Take a stored journal row of a window into what is held."""
        window = self.windows.setdefault(self.view.bounded_in(start), OpenWindow())
        window.add(row)
        window.settle([row], memory)

    def next_key(self, start: int) -> bytes:
        """The key of the next journal row of a window."""
        self.rows[start] += 1
        return journal_key(self.view.name, start, self.rows[start] - 1)

    def forget_rows(self, stop_ms: int) -> list[tuple[int, int]]:
        """Forget the journals of what bounds only windows before the one that starts at `stop_ms`.

        Returns:
            Starts of the windows whose journals nobody needs any more, and how many rows these have.
        """
        over = sorted(start for start in self.rows if self.view.is_over(self.view.bounded_in(start), stop_ms))
        return [(start, self.rows.pop(start)) for start in over]

    def forget_windows(self) -> None:
        """Forget what bounds only windows that were handed on, by every view that shares them."""
        for start in [start for start in self.windows if self.view.is_over(start, self.mark.open_from_ms)]:
            self.windows.pop(start).drop()

    @property
    def closed_bytes(self) -> int:
        """Bytes in memory of the windows that are closed and not handed on."""
        return sum(one.memory_bytes for start, one in self.windows.items() if start < self.mark.closed_until_ms)

    @property
    def is_over(self) -> bool:
        """True if all its windows were handed on, and no more will follow."""
        return self.view.until_ms is not None and self.mark.open_from_ms >= self.view.until_ms


def _clock_state(clock: ViewMark | SourcePartitionClock) -> tuple[int, int | None, CatchUp | None]:
    """Return everything that decides what a clock shows after later ticks and watermarks."""
    return clock.clock_ms, clock.idle_since_ms, clock.catch_up


def pass_time(view: CountedView, clock: ViewMark | SourcePartitionClock, now_ms: int, before_ms: int) -> bool:
    """Set a clock by a tick, unless it stands still after a silence.

    Args:
        view: the view.
        clock: its time in a partition of the source; changed in place.
        now_ms: the time of the tick.
        before_ms: the time of the tick before it.

    Returns:
        True if the clock moves before the partition has caught up, because the catch-up reached its limit.
    """
    step = step_clock(view.catch_up_rule, clock.catch_up, before_ms, now_ms)
    clock.catch_up = step.catch_up
    if step.catch_up is None:
        _show_tick(view, clock, now_ms, step.before_ms)
    return step.is_cut_short


def _show_tick(view: CountedView, clock: ViewMark | SourcePartitionClock, now_ms: int, before_ms: int) -> None:
    if view.clock == "wall":
        clock.clock_ms = max(clock.clock_ms, now_ms)
    elif clock.idle_since_ms is None or now_ms - before_ms > _NOBODY_THERE_MS:
        clock.idle_since_ms = now_ms
    elif now_ms - clock.idle_since_ms >= view.idle_ms:
        clock.clock_ms = max(clock.clock_ms, min(clock.clock_ms + now_ms - clock.idle_since_ms, now_ms))
        clock.idle_since_ms = now_ms
