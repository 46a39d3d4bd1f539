"""Windows that are told of at the end of every pane, by sums over blocks of panes.

The panes of a window are numbered from 0. The block that ends with pane i has as many panes as the largest power of two
that divides i + 1. The panes 0, ..., i are then that block and the blocks that make up what stands before it: as many
as i + 1 has ones as a binary number. These are the nodes `cover(0, i + 1)` of the binary tree in
`lossless.factorization`, of every i, and no other: no total needs the right half of a node, so none is made.

Sensitivity. One unit of one pane is in at most h = floor(log2 n) + 1 of the blocks of a window of n panes, and one of
the first pane is in as many. For the blocks that a pane is in have different lengths: two of one length, 2^k, end at
different odd multiples of 2^k, so they have no pane in common. A length is a power of two and at most n, and there are
h of these. The first pane is in the blocks that end behind 1, 2, 4, ... panes, h of them. So whoever adds one unit to
each of c counts, of whatever panes, changes the table of all blocks by at most c h in L1; noise is scaled to that.

A block is the sum of its last pane and of the blocks that make up the rest of it: to seal it the exact counts of those
are needed, and after that of none of them. At any time these are at most log2 n.

Source: specs/lossless 2.8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stream_dp.windows.shape import Stretch, Tiling


def height(panes: int) -> int:
    """How many blocks of a window of so many panes one pane can be in: h."""
    return panes.bit_length()


def most_blocks(panes: int) -> int:
    """The most blocks that a total is the sum of in a window of so many panes: the most ones up to that number."""
    return max((panes + 1).bit_length() - 1, panes.bit_count())


def blocks_of(pane: int) -> Sequence[int]:
    """The last panes of the blocks that make up the panes 0, ..., `pane`, in their order."""
    return _ends(0, pane + 1)


def inner_blocks(pane: int) -> Sequence[int]:
    """The last panes of the blocks that make up the block that ends with `pane` without that pane, in their order."""
    return _ends((pane + 1) & pane, pane)


def is_needed_later(pane: int, panes: int) -> bool:
    """Whether the block that ends with a pane is part of a longer one, in a window of so many panes."""
    end = pane + 1
    return end + (end & -end) <= panes


def _ends(first: int, end: int) -> Sequence[int]:
    """The last panes of the blocks that make up `first`, ..., `end` - 1, where a longer block or the window begins."""
    last = []
    while end > first:
        last.append(end - 1)
        end &= end - 1
    return last[::-1]


@dataclass(frozen=True, slots=True)
class Running:
    """How panes make up the windows that are told of while they last.

    A pane is named by its start, and so is what is told at its end: the total of its window up to there.

    Attributes:
        panes: what is counted.
        windows: what the totals are of; panes tile them.
    """

    panes: Tiling
    windows: Tiling

    @property
    def count(self) -> int:
        """How many panes a window has."""
        return self.panes.begun(0, self.windows.length_ms)

    @property
    def most_blocks(self) -> int:
        """The most blocks that a total of a window is the sum of."""
        return most_blocks(self.count)

    def first(self, start_ms: int) -> int:
        """Start of the first pane of the window that a pane is in."""
        return self.windows.start_of(start_ms)

    def total(self, start_ms: int) -> Stretch:
        """What is told of at the end of a pane."""
        return Stretch(self.first(start_ms), self.panes.end(start_ms))

    def blocks(self, start_ms: int) -> Sequence[int]:
        """Starts of the last panes of the blocks that the total at the end of a pane is the sum of."""
        return [*self._starts(start_ms, blocks_of(self._number(start_ms)))]

    def inner(self, start_ms: int) -> Sequence[int]:
        """The same for what the block that ends with a pane has beside that pane."""
        return [*self._starts(start_ms, inner_blocks(self._number(start_ms)))]

    def kept(self, retention_ms: int) -> int:
        """How long after its end a pane is kept: the first of a window as long as the last, which goes on from it."""
        return self.panes.next(retention_ms, self.count - 1)

    def is_needed_later(self, start_ms: int) -> bool:
        """Whether the block that ends with a pane is part of a longer one."""
        return is_needed_later(self._number(start_ms), self.count)

    def _number(self, start_ms: int) -> int:
        return self.panes.begun(self.first(start_ms), start_ms)

    def _starts(self, start_ms: int, numbers: Sequence[int]) -> Iterator[int]:
        return (self.panes.next(self.first(start_ms), number) for number in numbers)
