"""What readers who pool what they hold have learnt: the maximum within one noise path, the sum across paths.

All releases of one snapshot are randomized functions of the finest of them (specs/lossless 1.3), so a coalition has
learnt what its finest one costs. Snapshots, queries and selections are independent of one another, so their costs add.

Costs are exact numbers in a unit that adds under composition: the rho of zCDP, or epsilon of pure DP. Showing keys
nobody named before costs a delta besides, which adds over the levels even of one snapshot
(`stream_dp.lossless.discovery`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Disclosure:
    """Something a reader was given.

    Thresholding, top-k by noisy value, gaps between noisy values, rounding and averages of what a reader holds are
    no disclosures: they cost nothing (specs/lossless 3.2).

    Attributes:
        path: what noise it carries. One path is one (query, window, snapshot digest) read at any of its levels, or
            one run of a selection, whoever sees it. Changed counts, another query or window, and a repeated
            selection are other paths.
        reader: who was given it.
        cost: what it costs by itself: of a level the rho (or epsilon) of that level; of a selection its price.

    Raises:
        ParameterError: the cost is negative or is not a Fraction.
    """

    path: str
    reader: str
    cost: Fraction

    def __post_init__(self) -> None:
        if not isinstance(self.cost, Fraction) or self.cost < 0:
            raise ParameterError(f"a disclosure costs an exact fraction of at least 0, not {self.cost!r}")


def coalition_cost(disclosures: Iterable[Disclosure], readers: Collection[str]) -> Fraction:
    """What a user loses to `readers` when they share all they were given.

    Args:
        disclosures: everything given to anyone, in any order.
        readers: the members of the coalition; all readers together give the guarantee of the system.

    Returns:
        The sum over paths of the largest cost any member holds of it.

    Guarantee: the joint law of everything the coalition holds changes by no more than this when one user is added or
    removed, also where levels were asked for in reaction to earlier releases (specs/lossless 3.7).
    Source: specs/lossless 3.2, vectors A01, A02.
    """
    held: dict[str, Fraction] = {}
    for given in disclosures:
        if given.reader in readers:
            held[given.path] = max(given.cost, held.get(given.path, Fraction(0)))
    return sum(held.values(), Fraction(0))


def step_cost(disclosures: Collection[Disclosure], readers: Collection[str], step: Disclosure) -> Fraction:
    """What one more disclosure adds to a coalition's cost.

    Zero for a level no finer than one the coalition holds; the difference for a finer one (sharpening from rho to
    rho' is one fresh answer of rho' - rho); the full price on a path it holds nothing of; zero for outsiders.

    Args:
        disclosures: what was given before.
        readers: the coalition.
        step: what is about to be given.

    Source: specs/lossless 3.2, 2.4, vector A04.
    """
    return coalition_cost([*disclosures, step], readers) - coalition_cost(disclosures, readers)
