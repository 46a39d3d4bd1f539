"""Draws without replacement by the exponential mechanism, exact: proposals in whole numbers, then a coin.

A draw picks place i with probability proportional to e^(epsilon c_i) among those that are left, and bottom with
odds e^(epsilon floor). Let R be the largest exponent that is left. A place whose count is d below R has the weight
e^(-epsilon d) <= 2^-j as soon as d >= D_j := ceil(j ln+ / epsilon), ln+ a rational number just above ln 2. So a
proposal draws a place with mass 2^-j, j the largest with D_j <= d, which takes whole numbers only, and accepts it with
probability 2^j e^(-epsilon d) <= 1; a place that is not accepted, or that has been drawn before, starts all over.
What is accepted has the law of the exponential mechanism, whatever R is and however the places are cut into levels:
for far places one level j that is too small for them costs repetitions and nothing else.

The counts are in order, so the places of a level are a range, and a table is never walked through.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.bits import BitSource
from stream_dp.exact.coins import START_PRECISION, happens, uniform
from stream_dp.exact.reals import exp_neg, log
from stream_dp.select.candidates import MOST_USERS, Candidates

BOTTOM = -1
"""The place of bottom."""

_LN_BITS = 96
_LN_TWO = log(Fraction(2), _LN_BITS)
_FAR_BITS = 3
"""Far places may together be one in 2^3 of what is proposed."""


@dataclass(frozen=True, slots=True)
class Bottom:
    """Competitor of the candidates: its weight is odds e^(epsilon floor), that of an item e^(epsilon count)."""

    floor: int
    odds: Fraction


@dataclass(frozen=True, slots=True)
class ProposalTable:
    """Places that the numbers below `total` propose.

    Attributes:
        reference: R, the count at which the weight is 1.
        total: the sum of all masses.
        top: a unit at level j has the mass 2^(top - j).
        levels: the levels that are not empty, rising.
        starts: the first number of each level.
        places: the first place of each level, and the end of the last; counted without those that are gone.
        units: units of one place; those of bottom are left over in its level.
        gone: places drawn before, rising.
    """

    reference: int
    total: int
    top: int
    levels: list[int]
    starts: list[int]
    places: list[int]
    units: int
    gone: list[int]

    def at(self, number: int) -> tuple[int, int]:
        """The place that a number proposes, and the level at which it does."""
        index = bisect_right(self.starts, number) - 1
        level = self.levels[index]
        place = self.places[index] + (number - self.starts[index] >> self.top - level) // self.units
        if place >= self.places[index + 1]:
            return BOTTOM, level
        for gone in self.gone:
            if gone > place:
                break
            place += 1
        return place, level


class Peeling:
    """Successive draws from one set of candidates and bottom.

    Time: a draw takes about three proposals of a few microseconds each, and at most one new set of levels, which is a
    binary search for each of some twenty levels.
    """

    def __init__(self, rows: Candidates, epsilon: Fraction, bottom: Bottom | None, bits: BitSource) -> None:
        """Set up the draws.

        Args:
            rows: the candidates.
            epsilon: the weight of a count is e^(epsilon count).
            bottom: what else can be drawn; None where nothing can.
            bits: source of uniform bits.
        """
        self._rows = rows
        self._epsilon = epsilon
        self._bottom = bottom
        self._bits = bits
        self._taken: set[int] = set()
        self._first = 0
        self._units = bottom.odds.denominator if bottom else 1
        self._bottom_units = bottom.odds.numerator if bottom else 0
        everything = len(rows) * self._units + self._bottom_units
        self._steps = _steps(epsilon, (everything // self._units).bit_length() + _FAR_BITS + 1)
        self._renew()

    def draw(self) -> int:
        """Draw a place that has not been drawn before, or bottom. There must be something left to draw."""
        while True:
            place, level = self.proposal.at(uniform(self.proposal.total, self._bits))
            if place in self._taken:
                continue
            rough = _rough(self._epsilon, self._distance(place), level)
            if happens(partial(self.coin, place, level), self._bits, rough=rough):
                if place != BOTTOM:
                    self.take(place, level)
                return place

    def coin(self, place: int, level: int, precision: int) -> tuple[int, int]:
        """Enclose the probability that a proposal is accepted, 2^level e^(epsilon (count - R)), at 2^precision."""
        return exp_neg(self._epsilon * self._distance(place), precision + level)

    def take(self, place: int, level: int) -> None:
        """Never draw a place again, and once half of what is proposed is gone, propose anew."""
        self._taken.add(place)
        self._spent += self._units << self.proposal.top - level
        if 2 * self._spent > self.proposal.total and (self._bottom or len(self._taken) < len(self._rows)):
            self._renew()

    def _distance(self, place: int) -> int:
        count = self._bottom.floor if place == BOTTOM and self._bottom else int(self._rows.counts[place])
        return self.proposal.reference - count

    def _renew(self) -> None:
        """Leave out what has been drawn, and take the largest weight that is left for 1."""
        while self._first in self._taken:
            self._first += 1
        self._spent = 0
        self.proposal = self._propose(sorted(self._taken))

    def _propose(self, gone: list[int]) -> ProposalTable:
        rows, units, waiting = self._rows, self._units, self._bottom_units
        candidates = [int(rows.counts[self._first])] if self._first < len(rows) else []
        reference = max(candidates + ([self._bottom.floor] if self._bottom else []))
        top = len(self._steps) - 1
        bottom_level = -1
        if self._bottom:
            bottom_level = int(self._steps.searchsorted(reference - self._bottom.floor, "right")) - 1
        # A level ends with the counts above R - (the next level's first distance).
        ends = rows.places_not_below(reference - self._steps[1:] + 1)
        levels, starts, places = list[int](), [0], [0]
        left, end_before = len(rows) - len(gone), self._first
        for level, end in enumerate(ends):
            if end == end_before and level != bottom_level:
                continue
            rest = left * units + waiting
            if rest << (top - level + _FAR_BITS) <= starts[-1]:
                break
            size = end - bisect_left(gone, end) - places[-1]
            mass = size * units
            if level == bottom_level:
                mass, waiting = mass + waiting, 0
            levels.append(level)
            starts.append(starts[-1] + (mass << top - level))
            places.append(places[-1] + size)
            left, end_before = left - size, end
        else:
            level = top
        levels.append(level)
        places.append(places[-1] + left)
        total = starts[-1] + (left * units + waiting << top - level)
        return ProposalTable(reference, total, top, levels, starts, places, units, gone)


def _rough(epsilon: Fraction, distance: int, level: int) -> tuple[int, int]:
    """Enclose 2^level e^(-epsilon distance), at most 1, by 1 - y and 1 - y + y^2 / 2, at 2^64. Enough for most."""
    below, above = _LN_TWO
    scaled = (distance * epsilon.numerator << _LN_BITS) // epsilon.denominator
    least, most = max(scaled - level * above, 0), scaled + 1 - level * below  # 2^96 y
    one = 1 << _LN_BITS
    lower, upper = one - most, one - least + (most * most >> _LN_BITS + 1) + 1
    places = _LN_BITS - START_PRECISION
    return lower >> places, (upper >> places) + 1


@lru_cache(maxsize=64)
def _steps(epsilon: Fraction, levels: int) -> NDArray[np.int64]:
    """D_0, ..., D_levels, or 2^62 where that is less: no two counts are so far apart."""
    _, above = _LN_TWO
    per = epsilon.numerator << _LN_BITS
    steps = [min(-(-level * above * epsilon.denominator // per), MOST_USERS) for level in range(levels + 1)]
    return np.array(steps, np.int64)
