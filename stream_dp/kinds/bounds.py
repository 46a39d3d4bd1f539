"""The kind `bounds`: numbers of users who have 1, 2, 3 to 5, ... items in a window, to choose `items_per_user` by.

The bins are public and each user is in one of them, so one user moves one count by one: the bounds of a user need no
threshold, no delta and little noise. What a bound on the items of a user leaves out follows from the bins at no cost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field

from stream_dp.errors import ConfigError, Fault
from stream_dp.kinds.catalogue import CataloguePlan
from stream_dp.kinds.fields import Section, must
from stream_dp.kinds.kind import Explanation, Kind, ViewBasis
from stream_dp.kinds.noise_levels import CONFIDENCE, GAUSSIAN
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.sealing import SealedTable
from stream_dp.lossless.discrete_laplace import interval
from stream_dp.lossless.levels import noise_parameter
from stream_dp.records.by_kind import BinCount


class BoundsSettings(Section):
    """Numbers of users who have 1, 2, ... items."""

    kind: Literal["bounds"]
    grid: Annotated[
        list[Annotated[int, Field(ge=1)]],
        Field(min_length=1, max_length=100),
        must(lambda grid: all(low < high for low, high in pairwise(grid)), "rise"),
    ]


@dataclass(frozen=True, kw_only=True)
class BoundsPlan(CataloguePlan):
    """The plan of a bounds view.

    Attributes:
        grid: upper ends of all bins but the last.
    """

    grid: tuple[int, ...]
    name = "bounds"
    undivided = "a user is in one bin of a whole window"

    @property
    def moves(self) -> str:
        """One bin."""
        return "the count of one bin by one"

    @property
    def identity(self) -> Sequence[object]:
        """The grid."""
        return self.grid

    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """Every bin with its count, and what a bound at its upper end leaves out."""
        found = dict(zip(table.items, column, strict=True))
        names = degree_bins(self.grid)
        counts = [found[name] for name in names]
        sure = 1 - (1 - CONFIDENCE) * Fraction(1, len(counts))
        reach = interval(noise_parameter(self.levels[level].threshold), sure)
        items = [BinCount(item=name, count=found[name]) for name in names[-1:]]
        for name, bound in zip(names, self.grid, strict=False):
            low, middle, high = (100 * left_out(counts, self.grid, bound, side * reach) for side in (-1, 0, 1))
            ends = int(low), -int(-high // 1)
            items.insert(-1, BinCount(item=name, count=found[name], left_out=round(middle), left_out_95=ends))
        return {"items": tuple(items)}

    @property
    def showing(self) -> None:
        """None: what is counted are users, not items."""

    def explain(self, keys_at_worst: str) -> Explanation:
        """The bins.

        Details: the `grid`, upper ends of all bins but the last.
        """
        return Explanation(
            shows="how many users have how many values",
            keys=f"The bins are {', '.join(degree_bins(self.grid))}. They are public, and a user is in one of them, so "
            "there is no delta. Releases say what each bound on the values of a user would leave out.",
            seen=["all bins"] * len(self.levels),
            details={"grid": list(self.grid)},
        )


def degree_bins(grid: Sequence[int]) -> list[str]:
    """Return the names of the bins of a grid: "1", "2", "3-5", ..., "more than 20"."""
    ends = pairwise([0, *grid])
    return [
        *(str(most) if most == below + 1 else f"{below + 1}-{most}" for below, most in ends),
        f"more than {grid[-1]}",
    ]


def left_out(counts: Sequence[int], grid: Sequence[int], bound: int, reach: int) -> Fraction:
    """Return the share of items that a bound on the items of a user leaves out.

    Of a user with more items than the grid has, one more counts.

    Args:
        counts: noisy numbers of users by bin.
        grid: upper ends of all bins but the last.
        bound: one of them.
        reach: all counts are within this of the true ones: above 0 the most that may be left out is returned, below 0
            the least. 0: an estimate, with the middle of each bin.
    """
    out = kept = Fraction(0)
    side = (reach > 0) - (reach < 0)
    for count, (below, most) in zip(counts, pairwise([0, *grid, grid[-1] + 1]), strict=True):
        middle, half = Fraction(below + 1 + most, 2), Fraction(side * (most - below - 1), 2)
        if below >= bound:
            out += max(0, count + reach) * (middle + half - bound)
        kept += max(0, count - reach) * (bound if below >= bound else middle - half)
    return Fraction(out, out + kept) if out + kept else Fraction(max(0, side))


def plan_bounds(settings: BoundsSettings, basis: ViewBasis) -> BoundsPlan:
    """Make the bins, and compute the noise of every level.

    Raises:
        ConfigError: a level's epsilon is out of bounds, `items_per_user` is not one more than the last of the grid, or
            noise is Gaussian.
    """
    grid, names = settings.grid, degree_bins(settings.grid)
    if basis.items_per_user != grid[-1] + 1:
        words = f"must be {grid[-1] + 1}, one more than the last of the grid: then it is seen who has more"
        raise ConfigError([Fault("items_per_user", words)])
    if basis.noise == GAUSSIAN:
        raise ConfigError([Fault("noise", "is discrete Laplace where a user moves one count; leave it out")])
    return BoundsPlan(
        levels=basis.levels(1),
        sensitivity=1,
        listed=KeyList.of(names),
        grid=tuple(grid),
        degrees=tuple(names[bisect_left(grid, degree)] for degree in range(1, grid[-1] + 2)),
    )


BOUNDS = Kind("bounds", BoundsSettings, plan_bounds, names_keys=False)
