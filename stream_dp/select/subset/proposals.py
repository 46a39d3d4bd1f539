"""A member of a cell, and the chance with which it stands: its true weight against the cell's envelope, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from stream_dp.errors import StateError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.coins import uniform
from stream_dp.exact.reals import exp_neg, log
from stream_dp.select.subset.envelope import Cell
from stream_dp.select.subset.layout import Layout
from stream_dp.select.subset.logarithms import binomial
from stream_dp.select.subset.parameters import SubsetParameters

_GUARD_BITS = 8


@dataclass(frozen=True, slots=True)
class Pool:
    """What is drawn to find a member of a cell: `need` of the things 0, ..., `above` + `inside` - 1.

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
        """How many outcomes there are, all as likely."""
        if self.pinned:
            return self.inside * binomial(self.above + self.inside - 1, self.need - 1)
        return binomial(self.above + self.inside, self.need)

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
class Proposal:
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
        point = precision + _GUARD_BITS
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


def propose(layout: Layout, cell: Cell, p: SubsetParameters, bits: BitSource) -> Proposal | None:
    """Draw an outcome of a cell; none where it is no member."""
    pool = Pool.of(layout, cell, p.k)
    return proposal(layout, cell, p, pool.draw(bits))


def proposal(layout: Layout, cell: Cell, p: SubsetParameters, things: frozenset[int]) -> Proposal | None:
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
    return Proposal(positions, energy, pool.outcomes, ways, cell)


@lru_cache(maxsize=16)
def _ln_two(precision: int) -> tuple[int, int]:
    return log(Fraction(2), precision)
