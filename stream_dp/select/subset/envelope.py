"""Cells of subsets, and a whole number for each that is at least what its subsets weigh together.

Cell (h, block) holds the subsets that keep the h best counts, leave out the next, and whose worst count lies in the
block. Against the top-k, which weighs 1, a subset weighs e^-(rate_in D + rate_out U), D how far its worst count lies
below the k-th and U how far the best one left out stands above what the top-k is measured by. The envelope takes the
block's largest count for D, and instead of the subsets of a cell it counts something that is easier to count and to
draw from, j = k - 1 - h, s the size of the block, n that of the block and of all before it:

    s C(n + j - 1, j)    an item of the block and any j others, so that a subset comes as often as it has such items;
    C(n + j, j + 1)      any j + 1, so that some have no item of the block.

The smaller one is less than e / (e - 1) times the cell. Whole numbers propose cells; what they add to the weights is
taken back by a coin, so that their precision has no part in the law (specs/subset 2.6, 2.8).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np

from stream_dp.exact.bits import BitSource
from stream_dp.exact.coins import uniform
from stream_dp.exact.reals import log
from stream_dp.select.subset.layout import Layout
from stream_dp.select.subset.logarithms import (
    LOG_BITS,
    Integers,
    log2_above,
    log2_below,
    power_above,
    shift_for,
)
from stream_dp.select.subset.parameters import SubsetParameters

_MOST_BITS = 44
"""Bits of the largest number in a row of cells, where the row is short enough for their sum to fit 63."""
_FAINTEST = 64
"""A row of cells, or the top-k, that weighs less than 2^-64 of the largest is proposed as if it weighed that."""
_CELLS_AT_ONCE = 1 << 16
_FARTHEST = 1 << 30 + LOG_BITS
_GUARD_BITS = 64


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that was chosen.

    Attributes:
        kept: h, how many of the best counts its subsets keep.
        block: where their worst count lies.
        mass, exponent: the envelope is mass 2^exponent.
    """

    kept: int
    block: int
    mass: int
    exponent: int


class Envelope:
    """Proposes cells by their envelopes; None stands for the top-k, whose envelope is 2^`excess`, its weight 1.

    Rows of cells with the same h are summed up one after another and made again where one is chosen, so that memory
    grows with the number of blocks and not with k. Time: about 20 nanoseconds per cell.
    """

    def __init__(self, layout: Layout, p: SubsetParameters) -> None:
        """Weigh all cells."""
        self._k = p.k
        self._through = np.cumsum(layout.sizes)
        self._shift = shift_for(self._through + p.k)
        self._log_size = log2_above(layout.sizes, shift_for(layout.sizes))
        self._depth = _fixed_point(p.rate_in, layout.distances)
        self._lead = _fixed_point(p.rate_out, layout.leads)[::-1]  # by j
        self._log_step = log2_below(np.arange(1, p.k + 1))
        self._bits = min(_MOST_BITS, 61 - len(layout.sizes).bit_length())
        self._rows_at_once = max(_CELLS_AT_ONCE // len(layout.sizes), 1)
        self._before: list[Integers] = []
        scales, sums = [0], [1 << self._bits]  # the top-k
        for rows in self._chunks():
            scale = -(-rows.max(axis=1) >> LOG_BITS)
            scales += scale.tolist()
            sums += self._masses(rows, scale).sum(axis=1).tolist()
        faintest = max(scales) - _FAINTEST
        self._scales = scales
        self._exponents = [max(scale, faintest) for scale in scales]
        self._ends = list(
            accumulate(mass << exponent - faintest for mass, exponent in zip(sums, self._exponents, strict=True))
        )
        self.total = self._ends[-1] * Fraction(2) ** (faintest - self._bits)
        self._faintest = faintest
        self.excess = self._exponents[0]

    def choose(self, bits: BitSource) -> Cell | None:
        """A cell, with probability its envelope over `total`."""
        return self.at(uniform(self._ends[-1], bits))

    def at(self, number: int) -> Cell | None:
        """The cell that a number below `units` stands for; all of them, equally often, propose a cell."""
        row = bisect_right(self._ends, number)
        if row == 0:
            return None
        j = row - 1
        masses = self._row(j)
        place = number - self._ends[j] >> self._exponents[row] - self._faintest
        block = int(np.searchsorted(np.cumsum(masses), place, "right"))
        return Cell(self._k - 1 - j, block, int(masses[block]), self._exponents[row] - self._bits)

    @property
    def units(self) -> int:
        """How many numbers stand for cells."""
        return self._ends[-1]

    def _row(self, j: int) -> Integers:
        chunk, place = divmod(j, self._rows_at_once)
        first = chunk * self._rows_at_once
        rows, _ = self._rows(first, j + 1, self._before[chunk])
        masses: Integers = self._masses(rows[place:], np.array([self._scales[j + 1]]))[0]
        return masses

    def _masses(self, rows: Integers, scale: Integers) -> Integers:
        return power_above(rows - (scale[:, None] - self._bits << LOG_BITS))

    def _chunks(self) -> Iterator[Integers]:
        before = np.zeros(len(self._through), np.int64)
        for first in range(0, self._k, self._rows_at_once):
            self._before.append(before)
            rows, before = self._rows(first, min(first + self._rows_at_once, self._k), before)
            yield rows

    def _rows(self, first: int, end: int, before: Integers) -> tuple[Integers, Integers]:
        """The logarithms of the envelopes of rows j = first, ..., end - 1, and of C(n + end - 1, end) behind them.

        C(n + j, j + 1) = C(n + j - 1, j) (n + j) / (j + 1), starting with `before`, that of j = first.
        """
        j = np.arange(first, end)[:, None]
        steps = log2_above(self._through + j, self._shift) - self._log_step[first:end, None]
        rows = np.cumsum(steps, axis=0)
        rows += before
        after = rows[-1].copy()
        # The smaller count: C(n + j - 1, j) times the smaller of (n + j) / (j + 1) and s.
        steps -= self._log_size
        rows -= np.maximum(steps, 0, out=steps)
        rows -= self._depth
        rows -= self._lead[first:end, None]
        return rows, after


def _fixed_point(rate: Fraction, distances: list[int]) -> Integers:
    """At most 2^LOG_BITS rate D / ln 2 for each distance D, and at most what can be summed up."""
    _, ln_two = log(Fraction(2), _GUARD_BITS)
    scaled = rate * Fraction(1 << _GUARD_BITS + LOG_BITS, ln_two)
    return np.array(
        [min(distance * scaled.numerator // scaled.denominator, _FARTHEST) for distance in distances], np.int64
    )
