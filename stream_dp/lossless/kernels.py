"""The kernels that a noise family needs to be released at many levels.

A *level* is the exact parameter of the family (a, a rate, a variance, a number of bits); a *reading* is what is kept
of one released count: the released integer, or the parts it is made of. For levels fine, level, coarse in that order
(specs/lossless 1.5, 2.1):

    fresh    noise of a level
    coarsen  fine reading + W,   W ~ C(fine, level)
    between  fine reading + W1,  W1 ~ [C(fine, level) | W1 + W2 = coarse reading - fine reading], W2 ~ C(level, coarse)
    sharpen  exact count + Z,    Z ~ [noise of level | Z + W = coarse reading - exact count],      W ~ C(level, coarse)

C(fine, coarse) is the bridge: what has to be added to fine noise to get coarse noise, independently of it.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from typing import Protocol, Self, TypeVar

from stream_dp.errors import ParameterError
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
        """Return true if a has strictly less noise than b."""

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
