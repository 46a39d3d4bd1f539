"""Histograms bin by bin: over a public list of keys, and over the keys that occur with a threshold.

Neighbours add or remove one user, who moves at most L counts by one each, all in one direction. The paper substitutes
one row, which moves one count up and one down: its price is that of L = 2.

Source: specs/finite 2.6, 7.2.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.checks import chance_faults, refuse
from stream_dp.histograms.counting_queries import BitQuery, CountingQuery, GeometricTable

Key = TypeVar("Key", bytes, str, int)

_LEAD_BITS = 62
"""Bits of a draw that the search looks at first; 64 with a sign and one to add."""
_AT_ONCE = 1024
"""Keys whose bits are read together."""


def basic_histogram(query: BitQuery, counts: Collection[int], source: BitSource) -> list[int]:
    """Add noise to every count of a list whose keys are public and no function of the data.

    Args:
        query: the noise; a larger count than its bound counts as the bound.
        counts: of the keys, in a fixed order; zeros too.
        source: of uniform bits; exactly `query.bits` are taken for each key, key after key.

    Returns:
        The noisy counts, in the same order.

    Raises:
        StateError: a count is negative; nothing has been drawn.

    Guarantee: r^L for a user who moves L counts, r = `query.ratio`, pure; the clamp moves no two counts apart. For the
    substitution of a row r^2. Time: for a `GeometricTable` half a microsecond per key, else a search per key. Source:
    specs/finite 2.6 (Algorithm 5.1, Theorem 5.2).
    """
    if min(counts, default=0) < 0:
        raise StateError(f"a count must be at least 0, not {min(counts)}")
    bound = query.bound
    clamped = [count if count < bound else bound for count in counts]
    if not isinstance(query, GeometricTable) or query.h > _LEAD_BITS:
        return [query.draw(count, source) for count in clamped]
    steps = _steps(query)
    return [
        noisy
        for start in range(0, len(clamped), _AT_ONCE)
        for noisy in steps.draw(clamped[start : start + _AT_ONCE], source)
    ]


@lru_cache(maxsize=16)
def _steps(table: GeometricTable) -> _Steps:
    """A table is used for every window."""
    return _Steps(table)


class _Steps:
    """One rising table of integers that gives the output for every count: `GeometricTable.sample` for many at once.

    Let B = `point`, and v be the bits of a draw, so that the output is the least z with cdf(c, z) > v. At 0 <= z < n,
    cdf(c, z) = (c + 1) 2^B + W(z - c) with W(y) = y 2^B + (2^g - 1) 2^h f(y) and f(y) = 2^B Pr[noise <= y]: only the
    shift depends on c. So with y the least place with W(y) > v - (c + 1) 2^B the output is c + y, clamped to 0..n.
    Where the tails have ended, W goes on in steps of 2^B; of that part one step is in this table on either side.

    Leads are integers divided by 2^(bits - 62), rounded down. The leads of v and of (c + 1) 2^B enclose that of their
    difference; a lead of W outside of it compares as W does. Where one is inside, and at the ends, `sample` decides.
    """

    def __init__(self, table: GeometricTable) -> None:
        self._table = table
        one, *tails = table.tails
        self._center = len(tails) + 1
        mixed = (1 << table.h + table.g) - (1 << table.h)
        noise = [0, *reversed(tails), *(one - tail for tail in tails), one]
        steps = (((place - self._center) << table.point) + mixed * below for place, below in enumerate(noise))
        self._leads = np.array([_lead(step, table.bits) for step in steps], np.int64)
        # All noise is in the table: what lies beyond it is clamped.
        self._is_whole = len(tails) == table.bound

    def draw(self, counts: list[int], source: BitSource) -> list[int]:
        """Draw the outputs for counts in 0..n; takes `bits` bits for each."""
        table, size = self._table, len(counts)
        value = source.bits(size * table.bits)
        at = np.array(counts, np.int64)
        least, most = self._shifts(at)
        leads = _leads(value, size, table.bits)
        places = np.searchsorted(self._leads, leads - most)
        is_last = places == len(self._leads)
        doubts = ~is_last & (self._leads[places - is_last] <= leads - least)
        if not self._is_whole:
            doubts |= is_last | (places == 0)
        outputs: list[int] = np.clip(at + places - self._center, 0, table.bound).tolist()
        for place in np.flatnonzero(doubts).tolist():
            bits = value >> (size - 1 - place) * table.bits & (table.draws - 1)
            outputs[place] = table.sample(counts[place], bits + 1)
        return outputs

    def _shifts(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Enclose (c + 1) 2^point, in units of a lead."""
        excess = self._table.h + self._table.g - _LEAD_BITS
        if excess <= 0:
            exact = (counts + 1) << -excess
            return exact, exact
        least = counts >> excess
        return least, least + 1


def _lead(value: int, bits: int) -> int:
    return value >> bits - _LEAD_BITS if bits > _LEAD_BITS else value << _LEAD_BITS - bits


def _leads(value: int, size: int, bits: int) -> NDArray[np.int64]:
    """The leads of `size` integers of `bits` bits that stand one after another in one."""
    total = size * bits
    data = (value << -total % 8).to_bytes((total + 7) // 8, "big") + bytes(9)
    starts = np.arange(0, total, bits)
    words = np.ndarray((len(data) - 7,), ">u8", data, strides=(1,))[starts >> 3].astype(np.uint64)
    shifts = (starts & 7).astype(np.uint64)
    nexts = np.frombuffer(data, np.uint8)[(starts >> 3) + 8].astype(np.uint64)
    words = words << shifts | nexts >> np.uint64(8) - shifts
    spare = max(_LEAD_BITS - bits, 0)
    leads: NDArray[np.int64] = (words >> np.uint64(64 - _LEAD_BITS + spare)).astype(np.int64) << spare
    return leads


def stability_threshold(query: CountingQuery, delta: Fraction, *, sharp: bool = False) -> int:
    """Return the least threshold b for which `stability_histogram` has a given delta.

    With p = Pr[M(1) > b] the test is 2 p <= delta, of integers. The uniform outputs of the query are in p: at most
    delta / 4 of the outputs should be uniform, else b is large. For users who move L counts ask for delta / L.

    The paper asks for 2 p. The smaller b with p <= delta is enough for one count, and for the substitution of one row,
    whatever p is. Proof. A bin that goes from 1 to 0 can show what the other input cannot, with probability p; where it
    shows nothing it costs nothing. A bin that goes from 0 to 1 shows nothing with probability 1 before and 1 - p after.
    If p <= 1 - 1/r that is a factor of at most r. Else what exceeds r (1 - p) is 1 - r (1 - p) <= p. Where both happen
    in one substitution, nothing is shown with probability 1 - p at either input, so only the p of the first is left.

    Args:
        query: the noise.
        delta: in (0, 1).
        sharp: test p <= delta instead.

    Returns:
        b in 0..`query.bound`; the bound means that nothing is ever released.

    Raises:
        ParameterError: delta is out of range.

    Source: specs/finite 2.6 (Algorithm 5.4, Theorem 5.5; exact test and sharp form derived there).
    """
    refuse(chance_faults(delta=delta))
    factor = 1 if sharp else 2

    def is_enough(b: int) -> bool:
        return factor * (query.draws - query.cdf(1, b)) * delta.denominator <= delta.numerator * query.draws

    return bisect_left(range(query.bound), True, key=is_enough)


def stability_histogram(query: BitQuery, b: int, counts: Mapping[Key, int], source: BitSource) -> list[tuple[Key, int]]:
    """Release the noisy counts above a threshold, of keys that occur; no list of keys is needed.

    How many bits are taken tells how many keys occur, and so does the time: draw behind a fixed schedule.

    Args:
        query: the noise; a larger count than its bound counts as the bound.
        b: the threshold, from `stability_threshold`.
        counts: of the keys; those of 0 do not occur.
        source: of uniform bits; exactly `query.bits` are taken for each key that occurs, in the order of the keys.

    Returns:
        Keys and noisy counts, all above `b`, in the order of the keys.

    Raises:
        ParameterError: b is not in 0..`query.bound`.
        StateError: a count is negative; nothing has been drawn.

    Guarantee: with r = `query.ratio` and p = Pr[M(1) > b], for a user who moves L counts (r^L, 1 - (1 - p)^L), which is
    at most L p. Proof. Let the user bring m of the keys. Counts that occur either way show a law that changes by r
    each. The m new keys all stay hidden with probability (1 - p)^m; that is the only way without the user. So the
    excess over r^L is at most 1 - (1 - p)^m with the user against without; and without against with it is 0 or
    1 - (r (1 - p))^m, which is no more. For the substitution of a row (r^2, p): see `stability_threshold`.
    Time: as `basic_histogram`, and a sort. Source: specs/finite 2.6 (Algorithm 5.4, Theorem 5.5).
    """
    if not 0 <= b <= query.bound:
        raise ParameterError(f"must lie between 0 and {query.bound}, not {b}", "b")
    occurring = sorted((key, count) for key, count in counts.items() if count)
    noisy = basic_histogram(query, [count for _, count in occurring], source)
    return [(key, value) for (key, _), value in zip(occurring, noisy, strict=True) if value > b]
