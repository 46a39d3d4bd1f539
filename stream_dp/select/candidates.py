"""Candidates of a top-k selection: the exact kbar largest counts and the one that comes next."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from operator import itemgetter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import StateError


class Domain(StrEnum):
    """Choice of candidates among the kbar largest counts; part of a selection's public parameters."""

    POSITIVE = "positive"
    """Those that are not zero: nothing that nobody has is ever named (specs/topk 2.2)."""
    STRICT = "strict"
    """Those above the one that follows: no rule for ties, a larger threshold (specs/topk 2.3, Algorithm 5)."""
    WHOLE = "whole"
    """All, zeros included: only for counts that list a public catalogue in full (specs/topk 2.1, P10)."""


class Neighbours(StrEnum):
    """The neighbour relation of a guarantee; part of a selection's public parameters."""

    ADD_OR_REMOVE = "add or remove"
    """One user is in one of the tables and not in the other, and moves all counts in one direction."""
    REPLACE = "replace"
    """One user has other records in the other table: counts move both ways. Holds for adding and removing, too."""


Item = bytes | str
"""The name of an item: bytes, or text, which stands in the same order as its UTF-8; one of the two in a table."""
Row = tuple[Item, int]
"""An item and the number of users who have it."""
Name = TypeVar("Name", bytes, str)

MOST_USERS = 1 << 62
"""Counts are below this, so that differences fit 64 bits."""

_NOT_A_COUNT = "a count must be a whole number of users below 2^62; one of them is not"
_HASHED = (1 << 16) - 1
_MANY_TIES = 256


def rank(row: Row) -> tuple[int, Item]:
    """Sort key of the one order used everywhere: count descending, then item bytes ascending.

    The tie rule depends on nothing but the items themselves; arrival order, offsets or insertion order would
    let one user reorder many ties at once and break the guarantee (specs/topk 1.1, P8).
    """
    item, count = row
    return -count, item


class Candidates:
    """Candidates in the order of `rank`: their counts at once, their items only where asked for.

    A selection draws places among the counts; only the few items drawn have to be found among the names of the table.

    Attributes:
        counts: shape (n,), int64, falling.
    """

    __slots__ = ("_names", "_rising", "_table", "counts")

    def __init__(self, names: Sequence[Item], table: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Set what `candidates` has found.

        Args:
            names: the items of a table.
            table: their counts, shape (len(names),).
            counts: the first n of these counts in falling order.
        """
        self._names = names
        self._table = table
        self._rising = np.ascontiguousarray(counts[::-1])
        self.counts = self._rising[::-1]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Candidates:
        """Candidates from rows of any origin.

        Raises:
            StateError: they are not distinct, not in the order of `rank`, or hold something that is no count.
        """
        if isinstance(rows, cls):
            return rows
        rows = list(rows)
        if any(not isinstance(count, int) or not 0 <= count < MOST_USERS for _, count in rows):
            raise StateError("a candidate's count must be a whole number of users")
        if any(rank(first) >= rank(second) for first, second in pairwise(rows)):
            raise StateError("candidates must be distinct, by count descending and then by item ascending")
        counts = np.array([count for _, count in rows], np.int64)
        return cls([item for item, _ in rows], counts, counts)

    def items_at(self, places: Sequence[int]) -> list[Item]:
        """The items at places of the order.

        Time: two passes over the table, as arrays, and one more for each of its longest ties that is asked for.
        """
        drawn = self.counts[list(places)]
        firsts = len(self.counts) - self._rising.searchsorted(drawn, "right")
        ends = len(self.counts) - self._rising.searchsorted(drawn)
        counts = drawn.tolist()
        ties = self._ties(dict(zip(counts, (ends - firsts).tolist(), strict=True)))
        # An item's place among those that tie with it, which stand in the order of their bytes.
        offsets = (np.array(places, np.int64) - firsts).tolist()
        return [ties[count][offset] for count, offset in zip(counts, offsets, strict=True)]

    def places_not_below(self, counts: NDArray[np.int64]) -> list[int]:
        """For each of these counts how many are as large or larger."""
        places: list[int] = (len(self.counts) - self._rising.searchsorted(counts)).tolist()
        return places

    def _ties(self, sizes: dict[int, int]) -> dict[int, list[Item]]:
        """All items of the table with some counts, sorted; so many of them are candidates."""
        found: dict[int, list[Item]] = {}
        # The last tie may be longer in the table than among the candidates.
        few = {count for count, size in sizes.items() if size <= _MANY_TIES and count > self.counts[-1]}
        if few:
            found.update((count, []) for count in few)
            wanted = np.zeros(_HASHED + 1, np.bool_)
            wanted[np.array(list(few), np.int64) & _HASHED] = True
            rows = np.flatnonzero(wanted.take(self._table & _HASHED))
            for row, count in zip(rows.tolist(), self._table[rows].tolist(), strict=True):
                if count in few:
                    found[count].append(self._names[row])
        for count in sizes.keys() - few:
            found[count] = self._named(np.flatnonzero(self._table == count))
        for items in found.values():
            items.sort()
        return found

    def _named(self, rows: NDArray[np.int64]) -> list[Item]:
        if len(rows) == len(self._names):
            return list(self._names)
        return [self._names[rows[0]]] if len(rows) == 1 else list(itemgetter(*rows.tolist())(self._names))

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.counts)

    def __iter__(self) -> Iterator[Row]:
        """All of them, which costs a sort of items."""
        if not len(self):
            return iter(())
        rows = np.flatnonzero(self._table >= self.counts[-1])
        return iter(sorted(zip(self._named(rows), self._table[rows].tolist(), strict=True), key=rank)[: len(self)])

    def __eq__(self, other: object) -> bool:
        """Return True if the other has the same rows in the same order."""
        return isinstance(other, Iterable) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def first(self, kbar: int) -> tuple[Candidates, int]:
        """The first kbar of them, fewer than there are, and the count that follows."""
        return Candidates(self._names, self._table, self.counts[:kbar]), int(self.counts[kbar])


def candidates(counts: Mapping[Name, int], kbar: int, domain: Domain = Domain.POSITIVE) -> tuple[Candidates, int]:
    """Find the kbar largest counts and h_next, the count that follows them; of the kbar those in the domain.

    Merging shards is this same function. Let every shard send its own best kbar + 1 rows, that is
    `candidates(shard, kbar + 1)[0]`; then `candidates` of the union of what was sent equals `candidates` of the
    union of the shards, ties included. Proof: the shards hold disjoint items and `rank` is one total order on
    items. A row that its shard did not send has kbar + 1 rows of that shard before it, so it is neither among
    the first kbar of the union nor the one that follows; dropping it changes neither answer. Sending only kbar
    rows would lose h_next, and with it the guarantee (specs/topk P6).

    Args:
        counts: item to exact number of users, below 2^62; except in the whole domain zero counts are skipped, as if
            the item were not there.
        kbar: number of candidates, at least 1.
        domain: which of them are candidates.

    Returns:
        At most `kbar` rows in the order of `rank`, and h_next: the (kbar+1)-st count, 0 if there are fewer.

    Raises:
        StateError: a count is negative, not an integer, or too large.

    Time: 15 nanoseconds per count to read the mapping, a few more to put the counts in order; no item is looked at.
    Source: specs/topk 1.3, 2.1 to 2.3, 5.2.3, test 40.
    """
    table = as_array(counts)
    if kbar < len(table):
        highest = np.partition(table, len(table) - kbar - 1)[len(table) - kbar - 1 :]
        highest.sort()
        h_next = int(highest[0])
        highest = highest[1:]
    else:
        highest, h_next = np.sort(table), 0
    if domain is not Domain.WHOLE:
        least = h_next + 1 if domain is Domain.STRICT else 1
        highest = highest[np.searchsorted(highest, least) :]
    return Candidates(list(counts), table, highest[::-1]), h_next


def as_array(counts: Mapping[Name, int]) -> NDArray[np.int64]:
    """The counts of a table, in its order.

    Raises:
        StateError: one of them is not a whole number of users below 2^62.
    """
    try:
        table = np.frombuffer(struct.pack(f"={len(counts)}q", *counts.values()), np.int64)
    except struct.error:
        raise StateError(_NOT_A_COUNT) from None
    if len(table) and not 0 <= table.min() <= table.max() < MOST_USERS:
        raise StateError(_NOT_A_COUNT)
    return table


@dataclass(frozen=True, slots=True, order=True)
class Unseen:
    """The key with this number, from 0, among those of the domain that have no users."""

    number: int
