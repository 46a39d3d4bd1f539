"""Continuous noise families, and lossless multiple release over any of them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
Size: TypeAlias = int | tuple[int, ...]

Number = TypeVar("Number", float, Fraction)
"""Closed forms take doubles, or Fractions where they are checked exactly."""


class ContinuousFamily(Protocol):
    """A noise family that satisfies the convolution preorder, as the four kernels that release it losslessly.

    A level is the family's own parameter. Values are releases h + noise, arrays of independent coordinates; every
    kernel acts coordinate by coordinate. Kernels that keep a neighbour's value return that very double, so that equal
    releases stay recognisable.

    Source: specs/lossless 2.1.
    """

    def is_finer(self, level: float, other: float) -> bool:
        """Return true if `level` has less noise than `other`."""

    def fresh(self, level: float, size: Size, rng: np.random.Generator) -> FloatArray:
        """Noise of a level, the first release."""

    def coarsen(self, value_fine: FloatArray, fine: float, level: float, rng: np.random.Generator) -> FloatArray:
        """The release at a level coarser than the only neighbour."""

    def between(
        self,
        value_fine: FloatArray,
        fine: float,
        value_coarse: FloatArray,
        coarse: float,
        level: float,
        rng: np.random.Generator,
    ) -> FloatArray:
        """The release at a level between two neighbours; the data are not needed."""

    def sharpen(
        self, value_coarse: FloatArray, coarse: float, exact: FloatArray, level: float, rng: np.random.Generator
    ) -> FloatArray:
        """The release at a level finer than the only neighbour; `exact` is the statistic h."""

    def density(self, level: float, x: FloatArray) -> FloatArray:
        """The density of the noise of a level."""


def release_in_order(
    family: ContinuousFamily, exact: FloatArray, levels: Iterable[float], rng: np.random.Generator
) -> dict[float, FloatArray]:
    """Release a statistic at several levels, one after the other, from the two nearest releases each time.

    Whatever the order, the joint law is the same: the finest release plus independent bridges, in which the data enter
    through the finest one alone.

    Args:
        family: the noise family.
        exact: the statistic h, any shape.
        levels: the levels in the order in which they are asked for; asking again repeats the release.
        rng: source of noise; of the quality that figures need.

    Returns:
        The release at every level, each in the shape of `exact`.

    Source: specs/lossless 2.2 (Algorithm 4, Lemma A.1).
    """
    held: dict[float, FloatArray] = {}
    for level in levels:
        if level in held:
            continue
        fine = coarse = None
        for other in held:
            if family.is_finer(other, level):
                fine = other if fine is None or family.is_finer(fine, other) else fine
            else:
                coarse = other if coarse is None or family.is_finer(other, coarse) else coarse
        if fine is not None and coarse is not None:
            held[level] = family.between(held[fine], fine, held[coarse], coarse, level, rng)
        elif fine is not None:
            held[level] = family.coarsen(held[fine], fine, level, rng)
        elif coarse is not None:
            held[level] = family.sharpen(held[coarse], coarse, exact, level, rng)
        else:
            held[level] = exact + family.fresh(level, exact.shape, rng)
    return held
