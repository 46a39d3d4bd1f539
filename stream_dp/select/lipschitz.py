"""Weights of the canonical Lipschitz mechanism, and proposals of subsets by whole numbers that bound them.

Counts are laid out as a selection walks through them: the k largest in order, all others in blocks of nearly equal
counts. Any order among equal counts, and any layout of the blocks, gives the same law: a block only bounds what is in
it. Subsets lie in cells, each with a whole number, its envelope, that is at least what its subsets weigh together. A
member of a cell that was proposed stands with its true weight against the envelope, exactly.

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
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import comb

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import Fault, StateError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.checks import member_faults, nonnegative_faults, refuse, whole_faults
from stream_dp.exact.coins import uniform
from stream_dp.exact.reals import exp_neg, log
from stream_dp.select.candidates import MOST_USERS
from stream_dp.select.logarithms import LOG_BITS, Integers, log2_above, log2_below, power_above, shift_for


class Variant(StrEnum):
    """Score of the top-k itself among the subsets; every other one scores the same in both (specs/subset 1.4, E3)."""

    SIGNED = "signed"
    """By the best count that it leaves out: the wider the gap behind it, the more it stands out."""
    PAPER = "paper"
    """As if its worst count were the best one left out, as printed."""


class ScoreNoise(StrEnum):
    """The noise that a subset's score gets."""

    GUMBEL = "gumbel"
    """The exponential mechanism: bounded range, so epsilon^2 / 8 of zero-concentrated privacy (specs/subset 3.3)."""
    EXPONENTIAL = "exponential"
    """Permute-and-flip: about a tenth less epsilon for the same result, and no bounded range (specs/subset 3.3)."""


@dataclass(frozen=True, slots=True)
class SubsetParameters:
    """The public parameters of a canonical Lipschitz selection; fixed before any data are seen (specs/subset 1).

    A subset y that leaves out a best count M and lets in a worst count m scores
    -epsilon ((1 - gamma) M - gamma m), and the best noisy score wins. Neighbouring tables differ by one user, who is
    added or removed: counts move in one direction, by at most 1. Where users are replaced, counts move both ways, and
    what is promised is twice epsilon (specs/subset 1.2, P3).

    Attributes:
        k: items wanted, at least 1.
        epsilon: the price of the selection, at least 0; at 0 every subset comes equally often.
        gamma: how much of the score is about what is let in, the rest about what is left out; from 0 to 1.
        variant: how the top-k itself scores.
        noise: what the scores get.

    Raises:
        ParameterError: a parameter is outside its range or is not exact; every fault is listed with its name.
    """

    k: int
    epsilon: Fraction
    gamma: Fraction = Fraction(3, 4)
    variant: Variant = Variant.SIGNED
    noise: ScoreNoise = ScoreNoise.GUMBEL

    def __post_init__(self) -> None:
        faults = whole_faults(k=self.k) + nonnegative_faults(epsilon=self.epsilon)
        if not isinstance(self.gamma, Fraction) or not 0 <= self.gamma <= 1:
            faults.append(Fault("gamma", f"must be an exact fraction from 0 to 1, not {self.gamma!r}"))
        faults += member_faults(Variant, variant=self.variant) + member_faults(ScoreNoise, noise=self.noise)
        refuse(faults)

    @property
    def rate_in(self) -> Fraction:
        """Worth of one user of the worst count let in."""
        return self.gamma * self.epsilon

    @property
    def rate_out(self) -> Fraction:
        """Cost of one user of the best count left out."""
        return (1 - self.gamma) * self.epsilon


_DISTANCE_BITS = 31
_LN_TWO_ABOVE = Fraction(69314719, 10**8)
_SPARE_DEPTH = 20


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks and blocks of a table of counts, and of further zeros that are nowhere stored.

    A position is a place of `counts`, or beyond them the number of a zero.

    Attributes:
        counts: the counts, at least k + 1 of them.
        top: positions of the k largest, best first.
        leads: for h = 0, ..., k - 1 how far the (h+1)-st count stands above what the top-k is measured by.
        labels: the number of each block, rising; the higher, the smaller its counts.
        label_of: the block number of each position, one that no block has for the top.
        distances: how far the largest count of each block lies below the k-th.
        sizes: how many positions each block has, `zeros` in the last included.
        zeros: how many zeros are nowhere stored.
    """

    counts: Integers
    top: NDArray[np.intp]
    leads: list[int]
    labels: Integers
    label_of: Integers
    distances: list[int]
    sizes: Integers
    zeros: int

    def least(self) -> int:
        """The k-th largest count."""
        return int(self.counts[self.top[-1]])

    def above(self, block: int) -> NDArray[np.intp]:
        """The positions of all blocks with larger counts."""
        return np.flatnonzero(self.label_of < self.labels[block])

    def inside(self, block: int) -> NDArray[np.intp]:
        """The positions of a block that are stored; in the last block `zeros` more follow behind all counts."""
        return np.flatnonzero(self.label_of == self.labels[block])


def depth_of(d: int, k: int) -> int:
    """Return the depth below the k-th count to which blocks are told apart, in units of what they weigh.

    All subsets that reach deeper than ln C(d, k) + 20 weigh together about e^-20 of the top-k (specs/subset 2.6).
    """
    exponent = _LN_TWO_ABOVE * (comb(d, k).bit_length() - 1)
    return -(-exponent.numerator // exponent.denominator) + _SPARE_DEPTH


def lay_out(counts: Integers, zeros: int, p: SubsetParameters, *, rate: Fraction, depth: int) -> Layout:
    """Rank the k largest counts and cut the others into blocks.

    Args:
        counts: at least 0 and below 2^62.
        zeros: further zeros; more than k counts in all.
        p: the selection's parameters.
        rate: blocks per user; 0 makes one block.
        depth: the number of the last block, at least 0, below 2^30: it holds whatever is deeper.

    Time: some ten passes over the counts as arrays.
    """
    stored = min(zeros, p.k + 1)  # so that the top-k and the one that follows have positions
    if stored:
        counts = np.concatenate((counts, np.zeros(stored, np.int64)))
    top = _largest(counts, p.k)
    leading = counts[top].tolist()
    label_of = _labels(leading[-1] - counts, rate, depth)
    label_of[top] = depth + 1
    sizes = np.bincount(label_of, minlength=depth + 2)[: depth + 1]
    least_below = np.full(depth + 2, -1, np.int64)
    np.maximum.at(least_below, label_of, counts)
    labels = np.flatnonzero(sizes)
    distances = (leading[-1] - least_below[labels]).tolist()
    sizes = sizes[labels]
    sizes[-1] += zeros - stored
    measure = leading[-1] - (distances[0] if p.variant is Variant.SIGNED else 0)
    leads = [count - measure for count in leading]
    return Layout(counts, top, leads, labels, label_of, distances, sizes, zeros - stored)


def _largest(counts: Integers, k: int) -> NDArray[np.intp]:
    """The positions of the k largest, best first; among equal ones any order does."""
    least = np.partition(counts, len(counts) - k)[len(counts) - k]
    above = np.flatnonzero(counts > least)
    top = np.concatenate((above, np.flatnonzero(counts == least)[: k - len(above)]))
    return top[np.argsort(-counts[top], kind="stable")]


def _labels(distances: Integers, rate: Fraction, depth: int) -> Integers:
    """floor(rate distance), or one less, at most `depth`; distances are cut off where that is reached."""
    if not rate or not depth:
        return np.zeros(len(distances), np.int64)
    deepest = min(-(-depth * rate.denominator // rate.numerator), MOST_USERS)
    dropped = max(deepest.bit_length() - _DISTANCE_BITS, 0)
    scale = min((rate.numerator << _DISTANCE_BITS + dropped) // rate.denominator, depth + 1 << _DISTANCE_BITS)
    labels = np.clip(distances, 0, deepest)
    labels >>= dropped
    labels *= scale
    labels >>= _DISTANCE_BITS
    return np.minimum(labels, depth, out=labels)


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
        self.units = self._ends[-1]
        """Number of numbers that stand for cells."""
        self.total = self.units * Fraction(2) ** (faintest - self._bits)
        self._faintest = faintest
        self.excess = self._exponents[0]

    def choose(self, bits: BitSource) -> Cell | None:
        """A cell, with probability its envelope over `total`."""
        return self.at(uniform(self.units, bits))

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


_SHARE_GUARD_BITS = 8


@dataclass(frozen=True, slots=True)
class Pool:
    """Draws that find a member of a cell: `need` of the things 0, ..., `above` + `inside` - 1.

    Things below `above` stand for items before the block, all others for items of the block.

    Attributes:
        above, inside: how many there are of each kind.
        need: how many items a member has beyond those that its cell keeps.
        pinned: whether an item of the block is drawn first, then any others; else any at all are drawn.
    """

    above: int
    inside: int
    need: int
    pinned: bool

    @classmethod
    def of(cls, layout: Layout, cell: Cell, k: int) -> Pool:
        """The pool of a cell, drawn in the way that has fewer outcomes."""
        need = k - cell.kept
        inside = int(layout.sizes[cell.block])
        above = need - 1 + int(layout.sizes[: cell.block].sum())
        return cls(above, inside, need, inside * need <= above + inside)

    @property
    def outcomes(self) -> int:
        """Number of outcomes, all as likely."""
        if self.pinned:
            return self.inside * comb(self.above + self.inside - 1, self.need - 1)
        return comb(self.above + self.inside, self.need)

    def draw(self, bits: BitSource) -> frozenset[int]:
        """The things of a uniform outcome."""
        everything = self.above + self.inside
        if not self.pinned:
            return frozenset(distinct(everything, self.need, bits))
        first = self.above + uniform(self.inside, bits)
        others = distinct(everything - 1, self.need - 1, bits)
        return frozenset([first, *(thing + (thing >= first) for thing in others)])

    def ways(self, things: frozenset[int]) -> int:
        """From how many outcomes a member comes; 0 for what is no member, having nothing of the block."""
        hits = sum(thing >= self.above for thing in things)
        return hits if self.pinned else min(hits, 1)


def distinct(n: int, size: int, bits: BitSource) -> set[int]:
    """A uniform subset of 0, ..., n - 1 of a size (Floyd)."""
    chosen = set[int]()
    for last in range(n - size, n):
        number = uniform(last + 1, bits)
        chosen.add(last if number in chosen else number)
    return chosen


@dataclass(frozen=True, slots=True)
class ProposedSubset:
    """A subset that has been proposed.

    Attributes:
        positions: its items, in no order.
        energy: its weight is e^-energy, at most 1.
        outcomes, ways: it came from `ways` of the `outcomes` of its cell.
        cell: where it lies.
    """

    positions: list[int]
    energy: Fraction
    outcomes: int
    ways: int
    cell: Cell

    def share(self, precision: int) -> tuple[int, int]:
        """Enclose outcomes e^-energy / (ways envelope) at 2^precision.

        Drawn and then accepted so often, every subset has a chance in proportion to its weight.

        Raises:
            StateError: it is above 1: the envelope is none.
        """
        # e^-energy = 2^-halvings e^-rest, the rest below ln 2 or so: as many bits count as are asked for.
        point = precision + _SHARE_GUARD_BITS
        guard = point + (self.energy.numerator // self.energy.denominator).bit_length()
        below, above = _ln_two(guard)
        halvings = (self.energy.numerator << guard) // (self.energy.denominator * above)
        lower, _ = exp_neg(self.energy - Fraction(halvings * below, 1 << guard), point)
        _, upper = exp_neg(self.energy - Fraction(halvings * above, 1 << guard), point)
        shift = precision - point - halvings - self.cell.exponent
        divisor = self.ways * self.cell.mass
        low, high = self.outcomes * lower, self.outcomes * upper
        if -shift > high.bit_length():  # far less than any precision asked for
            return 0, 1
        if shift >= 0:
            low, high = low << shift, high << shift
        else:
            divisor <<= -shift
        low, high = low // divisor, -(-high // divisor)
        if low > 1 << precision:
            raise StateError("a cell's envelope is less than its subsets weigh; nothing may be selected with it")
        return low, high


def propose(layout: Layout, cell: Cell, p: SubsetParameters, bits: BitSource) -> ProposedSubset | None:
    """Draw an outcome of a cell; none where it is no member."""
    pool = Pool.of(layout, cell, p.k)
    return proposal(layout, cell, p, pool.draw(bits))


def proposal(layout: Layout, cell: Cell, p: SubsetParameters, things: frozenset[int]) -> ProposedSubset | None:
    """The subset that an outcome stands for."""
    pool = Pool.of(layout, cell, p.k)
    ways = pool.ways(things)
    if not ways:
        return None
    stored = len(layout.counts)
    leading, inside = layout.top[cell.kept + 1 :], layout.inside(cell.block)
    before = sorted(thing - len(leading) for thing in things if len(leading) <= thing < pool.above)
    behind = sorted(thing - pool.above for thing in things if thing >= pool.above)
    in_block = [int(inside[i]) if i < len(inside) else stored + i - len(inside) for i in behind]
    positions = [*layout.top[: cell.kept].tolist(), *leading[[t for t in things if t < len(leading)]].tolist()]
    if before:
        positions += layout.above(cell.block)[before].tolist()
    positions += in_block
    worst = min(int(layout.counts[position]) if position < stored else 0 for position in in_block)
    energy = p.rate_in * (layout.least() - worst) + p.rate_out * layout.leads[cell.kept]
    return ProposedSubset(positions, energy, pool.outcomes, ways, cell)


@lru_cache(maxsize=16)
def _ln_two(precision: int) -> tuple[int, int]:
    return log(Fraction(2), precision)
