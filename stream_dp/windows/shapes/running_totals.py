"""Windows that are told of at the end of every pane, by sums over blocks of panes.

The panes of a window are numbered from 0. The block that ends with pane i has as many panes as the largest power of two
that divides i + 1. The panes 0, ..., i are then that block and the blocks that make up what stands before it: as many
as i + 1 has ones as a binary number. No total needs the right half of a
longer block, so none is made.

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
from typing import Self

from stream_dp.errors import Fault
from stream_dp.windows.durations import format_duration
from stream_dp.windows.shapes.hopping import dividing
from stream_dp.windows.shapes.paned import too_many
from stream_dp.windows.shapes.shape import Interval, Settings, lengths_in_words
from stream_dp.windows.shapes.tumbling import OfPanes, Tiling

MOST_TOTALS = 10_000
"""Panes of a window of which a total is told at the end of each."""


def height(panes: int) -> int:
    """Return how many blocks of a window of so many panes one pane can be in: h."""
    return panes.bit_length()


def most_blocks(panes: int) -> int:
    """Return the most blocks that a total is the sum of in a window of so many panes: the most ones up to there."""
    return max((panes + 1).bit_length() - 1, panes.bit_count())


def blocks_of(pane: int) -> Sequence[int]:
    """Return the last panes of the blocks that make up the panes 0, ..., `pane`, in their order."""
    return _ends(0, pane + 1)


def inner_blocks(pane: int) -> Sequence[int]:
    """Return the last panes of the blocks that make up the block that ends with `pane`, without that pane, in order."""
    return _ends((pane + 1) & pane, pane)


def _ends(first: int, end: int) -> Sequence[int]:
    """The last panes of the blocks that make up `first`, ..., `end` - 1, where a longer block or the window begins."""
    last = []
    while end > first:
        last.append(end - 1)
        end &= end - 1
    return last[::-1]


@dataclass(frozen=True, slots=True)
class Running(OfPanes):
    """Windows of which a total is released at the end of every pane, and that are paid for once, with the first.

    A pane is named by its start, and so is what is told at its end: the total of its window up to there.

    Attributes:
        pane: what is counted.
        windows: what the totals are of; panes tile them.
    """

    tells_totals = True
    bounded_unit = "noised count"
    due_words = "under way or over"

    pane: Tiling
    windows: Tiling

    @classmethod
    def faults(cls, settings: Settings) -> Iterator[Fault]:
        """Find windows that cannot be told of at the end of every pane."""
        size, pane, length = settings.size_ms, settings.pane, format_duration(settings.size_ms)
        if settings.step is not None:
            yield Fault("step", "has no meaning for running: each window begins where the one before ends")
        if pane is None:
            yield Fault("pane", f"is required by running: how often a total is told in a window of {length}")
        elif size % pane:
            yield Fault(
                "pane",
                f"{length} is no whole number of panes of {format_duration(pane)}; give pane: "
                f"{lengths_in_words(dividing(size, pane))}, or another size",
            )
        else:
            yield from too_many(size, pane, MOST_TOTALS, "each with a noisy table of its own")

    @classmethod
    def planned(cls, settings: Settings) -> Self:
        """Return the windows and their panes; without panes, a window is one."""
        pane, origin = settings.pane or settings.size_ms, settings.origin_ms
        return cls(Tiling(pane, origin), Tiling(settings.size_ms, origin))

    @property
    def settings(self) -> Settings:
        """Settings that ask for it."""
        return Settings(self.windows.length_ms, pane=self.pane.length_ms, start_ms=self.windows.origin_ms, totals=True)

    @property
    def released(self) -> Tiling:
        """Shape of the windows that the totals are of."""
        return self.windows

    @property
    def paid(self) -> Tiling:
        """The windows, each with all its totals."""
        return self.windows

    @property
    def told(self) -> Tiling:
        """A total is released at the end of every pane."""
        return self.pane

    @property
    def bounds(self) -> Tiling:
        """A user's items are bounded in the whole window."""
        return self.windows

    @property
    def identity(self) -> Sequence[int | str]:
        """Length of a pane, and of a window, which is not smaller."""
        return [self.pane.length_ms, self.windows.length_ms]

    @property
    def totals(self) -> int:
        """Number of panes of a window; each ends a total."""
        return self.pane.begun(0, self.windows.length_ms)

    @property
    def summands(self) -> int:
        """The most blocks that a total of a window is the sum of."""
        return most_blocks(self.totals)

    def kept(self, retention_ms: int) -> int:
        """Return how long after its end a pane is kept: the first as long as the last, which goes on from it."""
        return self.pane.next(retention_ms, self.totals - 1)

    def total(self, start_ms: int) -> Interval:
        """Return what is told of at the end of a pane."""
        return Interval(self.windows.start_of(start_ms), self.pane.end(start_ms))

    def blocks(self, start_ms: int) -> Sequence[int]:
        """Return the starts of the last panes of the blocks that the total at the end of a pane is the sum of."""
        return [*self._starts(start_ms, blocks_of(self._number(start_ms)))]

    def inner(self, start_ms: int) -> Sequence[int]:
        """Return the same for what the block that ends with a pane has beside that pane."""
        return [*self._starts(start_ms, inner_blocks(self._number(start_ms)))]

    def is_needed_later(self, start_ms: int) -> bool:
        """Tell whether the block that ends with a pane is part of a longer one."""
        end = self._number(start_ms) + 1
        return end + (end & -end) <= self.totals

    @property
    def when(self) -> str:
        """Of which time something is released, and how often."""
        return f"since the start of each {self.windows.words}, told every {self.pane.words}"

    def explained(self, ledger: str) -> str:
        """Say when a total is told, and that a window is paid for once."""
        return (
            f"At the end of every {self.pane.words} the total since the window of {self.windows.words} began is told. "
            f"A user counts once in the whole window, and that is paid for once, with its first {self.pane.words}; "
            "what follows costs nothing. The error and the interval of a level are those of a total of "
            f"{self.summands} blocks, the most there are."
        )

    def _number(self, start_ms: int) -> int:
        return self.pane.begun(self.windows.start_of(start_ms), start_ms)

    def _starts(self, start_ms: int, numbers: Sequence[int]) -> Iterator[int]:
        return (self.pane.next(self.windows.start_of(start_ms), number) for number in numbers)
