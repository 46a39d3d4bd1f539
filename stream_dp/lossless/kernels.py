"""What a noise family must offer to be released at many levels, and families made of two independent sides.

A *level* is the exact parameter of the family (a, a rate, a variance, a number of bits); a *reading* is what is kept
of one released count: the released integer, or the parts it is made of. For levels fine, level, coarse in that order
(specs/lossless 1.5, 2.1):

    fresh    noise of a level
    coarsen  fine reading + W,   W ~ C(fine, level)
    between  fine reading + W1,  W1 ~ [C(fine, level) | W1 + W2 = coarse reading - fine reading], W2 ~ C(level, coarse)
    sharpen  exact count + Z,    Z ~ [noise of level | Z + W = coarse reading - exact count],      W ~ C(level, coarse)

C(fine, coarse) is the bridge: what has to be added to fine noise to get coarse noise, independently of it. The laws
stand beside the samplers as `pmf`, `bridge_pmf`, `between_pmf` and `sharpen_pmf`; where they are rational they are
Fractions, elsewhere integer enclosures at a precision, as in `exact.reals`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Generic, Protocol, Self, TypeVar

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import BitSource


class Reading(Protocol):
    """A value that can be moved by an exact count and gives the released integer; an int is one."""

    def __add__(self, count: int, /) -> Self:
        """The reading of a count larger by `count` under the same noise."""

    def __int__(self) -> int:
        """The released integer."""


Level = TypeVar("Level", bound=Hashable)
LevelT_contra = TypeVar("LevelT_contra", bound=Hashable, contravariant=True)
Value = TypeVar("Value", bound=Reading)


class NoiseFamily(Protocol[LevelT_contra, Value]):
    """An integer noise law at every level, such that coarse noise is fine noise plus something independent.

    All kernels raise ParameterError for something that is not a level or stands in the wrong order, and StateError for
    readings that no run can have left behind.
    """

    @property
    def zero(self) -> Value:
        """The reading of a count of 0 without noise; `zero + y` is all that is known of a released y."""

    def is_finer(self, a: LevelT_contra, b: LevelT_contra) -> bool:
        """Whether a has strictly less noise than b, and tells more."""

    def fresh(self, level: LevelT_contra, bits: BitSource) -> Value:
        """Noise of a level."""

    def coarsen(self, value_fine: Value, fine: LevelT_contra, level: LevelT_contra, bits: BitSource) -> Value:
        """A coarser reading from the nearest finer one."""

    def between(
        self,
        value_fine: Value,
        fine: LevelT_contra,
        value_coarse: Value,
        coarse: LevelT_contra,
        level: LevelT_contra,
        bits: BitSource,
    ) -> Value:
        """A reading between its two nearest ones."""

    def sharpen(
        self, value_coarse: Value, coarse: LevelT_contra, exact: int, level: LevelT_contra, bits: BitSource
    ) -> Value:
        """A reading finer than all so far, from the nearest coarser one and the exact count."""


class TailFamily(NoiseFamily[LevelT_contra, Value], Protocol[LevelT_contra, Value]):
    """A noise family with a rational tail, as sparse releases need it."""

    def tail(self, level: LevelT_contra, t: int) -> Fraction:
        """P(noise >= t)."""

    def above(self, level: LevelT_contra, t: int, bits: BitSource) -> Value:
        """Noise given that it is at least t, for t >= 0."""


def check_order(family: NoiseFamily[Level, Value], *levels: Level) -> None:
    """Refuse levels that do not go strictly from fine to coarse.

    Every family's parameter shrinks with the noise or grows with it, and mixing that up is the commonest error
    (specs/lossless 1.1; specs/lossless 5, no. 10).

    Raises:
        ParameterError: a level is not finer than the next one.
    """
    for fine, coarse in pairwise(levels):
        if not family.is_finer(fine, coarse):
            raise ParameterError(f"level {fine} must be finer than level {coarse}")


def check_monotone(value_fine: int, value_coarse: int) -> None:
    """Refuse one-sided readings of which the coarser one is smaller: no run leaves them behind.

    Raises:
        StateError: the stored state is corrupt; nothing may be released from it.
    """
    if value_coarse < value_fine:
        raise StateError(f"a coarser one-sided reading is {value_coarse}, below the finer one's {value_fine}")


@dataclass(frozen=True, slots=True)
class Sides:
    """A reading kept as two sides; the released integer is their difference, an exact count is part of `plus`.

    It tells more than the integer: whoever sees both sides of a fresh reading sees one-sided noise. It is state of
    the trusted side, and `zero + int(reading)` forgets the split.
    """

    plus: int
    minus: int

    @property
    def noise(self) -> int:
        """The released integer; of a fresh reading the noise itself."""
        return self.plus - self.minus

    def __add__(self, count: int, /) -> Sides:
        return Sides(self.plus + count, self.minus)

    def __int__(self) -> int:
        return self.noise


@dataclass(frozen=True)
class TwoSided(Generic[Level]):
    """The difference of two independent copies of a one-sided family: centred, and lossless as that one is.

    Attributes:
        side: the family of either side, with the same levels.
    """

    side: NoiseFamily[Level, int]

    @property
    def zero(self) -> Sides:
        """See `NoiseFamily`."""
        return Sides(0, 0)

    def is_finer(self, a: Level, b: Level) -> bool:
        """See `NoiseFamily`."""
        return self.side.is_finer(a, b)

    def fresh(self, level: Level, bits: BitSource) -> Sides:
        """See `NoiseFamily`."""
        return Sides(self.side.fresh(level, bits), self.side.fresh(level, bits))

    def coarsen(self, value_fine: Sides, fine: Level, level: Level, bits: BitSource) -> Sides:
        """See `NoiseFamily`; side by side."""
        return Sides(
            self.side.coarsen(value_fine.plus, fine, level, bits),
            self.side.coarsen(value_fine.minus, fine, level, bits),
        )

    def between(
        self, value_fine: Sides, fine: Level, value_coarse: Sides, coarse: Level, level: Level, bits: BitSource
    ) -> Sides:
        """See `NoiseFamily`; side by side."""
        return Sides(
            self.side.between(value_fine.plus, fine, value_coarse.plus, coarse, level, bits),
            self.side.between(value_fine.minus, fine, value_coarse.minus, coarse, level, bits),
        )

    def sharpen(self, value_coarse: Sides, coarse: Level, exact: int, level: Level, bits: BitSource) -> Sides:
        """See `NoiseFamily`; side by side, the exact count belonging to `plus`."""
        return Sides(
            self.side.sharpen(value_coarse.plus, coarse, exact, level, bits),
            self.side.sharpen(value_coarse.minus, coarse, 0, level, bits),
        )
