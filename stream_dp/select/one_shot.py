"""Selection by one comparison of noisy counts with a threshold: Laplace noise, and any noise that is given.

The numbers compared are real. They are known by enclosures that are refined until they tell, so no comparison is ever
left to rounding; what is drawn of them beyond that is nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key, lru_cache

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import Fault
from stream_dp.exact.aes import UniformWords
from stream_dp.exact.bits import BitSource
from stream_dp.exact.checks import refuse, whole_faults
from stream_dp.exact.coins import START_PRECISION, Exponential, Real, exceeds
from stream_dp.exact.reals import log
from stream_dp.select.candidates import MOST_USERS, Domain, Item, Row
from stream_dp.select.gumbel import Thresholded, checked, price_faults, rank_faults, threshold


@dataclass(frozen=True, slots=True)
class LaplaceParameters:
    """The public parameters of the Laplace variant, for users who move few counts (specs/topk 2.4, Algorithm 4).

    Its price does not grow with k; it composes as any (epsilon, delta) mechanism, and does not pay as it gets.

    Attributes:
        k: items wanted, at least 1.
        kbar: how many of the largest counts the mechanism may look at, at least `k` and `items_per_user`.
        epsilon: what one count that moves costs, in (0, infinity): the noise has scale 1 / epsilon.
        delta: the parameter of the threshold, in (0, 1); NOT the delta that is delivered (specs/topk P25).
        items_per_user: bound on the counts one user moves.

    Raises:
        ParameterError: a parameter is outside its range or is not exact; every fault is listed with its name.
    """

    k: int
    kbar: int
    epsilon: Fraction
    delta: Fraction
    items_per_user: int

    def __post_init__(self) -> None:
        faults = rank_faults(self.k, self.kbar, items_per_user=self.items_per_user)
        if not faults and self.items_per_user > self.kbar:
            faults.append(Fault("kbar", f"must be at least items_per_user = {self.items_per_user}, not {self.kbar}"))
        refuse(faults + price_faults(self.epsilon, self.delta))

    @property
    def odds(self) -> Fraction:
        """Delta / delta: e^(epsilon (h_bot - h_next - 1))."""
        return Fraction(self.items_per_user, self.delta)


@dataclass(frozen=True, slots=True)
class FixedThresholdParameters:
    """The public parameters of the selection by a threshold without noise (specs/topk 2.9, Algorithm 8 corrected).

    Attributes:
        k: how many of the largest counts may be returned, at least 1; kbar is k.
        epsilon: what one item costs, in (0, infinity).
        delta: chance per item of naming it where only one of two neighbouring tables may, in (0, 1/2].

    Raises:
        ParameterError: a parameter is outside its range or is not exact; every fault is listed with its name.
    """

    k: int
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        faults = whole_faults(k=self.k) + price_faults(self.epsilon, self.delta)
        if not faults and 2 * self.delta > 1:
            faults.append(Fault("delta", f"must be at most 1/2, not {self.delta!r}"))
        refuse(faults)

    @property
    def odds(self) -> Fraction:
        """1 / (2 delta)."""
        return Fraction(1, 2 * self.delta)


_WORD_BITS = 64
_UNIFORM_BITS = _WORD_BITS - 1


@dataclass(frozen=True, slots=True)
class Exact:
    """A rational number."""

    value: Fraction

    def enclose(self, _precision: int) -> tuple[Fraction, Fraction]:
        """The number itself, twice."""
        return self.value, self.value


@dataclass(frozen=True, slots=True)
class Sum:
    """A whole number and a real one."""

    whole: int
    real: Real

    def enclose(self, precision: int) -> tuple[Fraction, Fraction]:
        """The bounds of the real number, shifted."""
        lower, upper = self.real.enclose(precision)
        return self.whole + lower, self.whole + upper


@dataclass(frozen=True, slots=True)
class NoisyThreshold:
    """h_bot of a selection and noise."""

    h_next: int
    parameters: Thresholded
    noise: Real

    def enclose(self, precision: int) -> tuple[Fraction, Fraction]:
        """The sums of the bounds."""
        lower, upper = threshold(self.h_next, self.parameters, precision)
        least, most = self.noise.enclose(precision)
        return lower + least, upper + most


class LaplaceNoise:
    """A Laplace number of scale 1 / epsilon, its bits drawn as far as a comparison asks for them.

    A sign, and |Z| = ln(1/U) / epsilon with a real uniform U of which 63 bits come from a word and all others from the
    source: there is no largest value (specs/topk P28).
    """

    def __init__(self, epsilon: Fraction, word: int, bits: BitSource) -> None:
        """Start with 64 fresh random bits: the sign, and the first bits of U."""
        self._epsilon = epsilon
        self._negative = bool(word >> _UNIFORM_BITS)
        self._exponential = Exponential(bits, word & ((1 << _UNIFORM_BITS) - 1), _UNIFORM_BITS)
        self._enclosed: dict[int, tuple[Fraction, Fraction]] = {}

    def enclose(self, precision: int) -> tuple[Fraction, Fraction]:
        """Bounds in users; about `precision` more bits of U than it has zeros in front."""
        if precision not in self._enclosed:
            self._enclosed[precision] = self._enclose(precision)
        return self._enclosed[precision]

    def _enclose(self, precision: int) -> tuple[Fraction, Fraction]:
        least, most = self._exponential.enclose(precision)
        scale = self._epsilon * (1 << precision)
        bounds = Fraction(least, scale), Fraction(most, scale)
        return (-bounds[1], -bounds[0]) if self._negative else bounds


@dataclass(frozen=True, slots=True)
class NoisyTopK:
    """Result of the Laplace variant; the guarantee covers all of it. It has no price by its length.

    Attributes:
        items: the items above the noisy threshold, the largest noisy count first, at most k.
        counts: their noisy counts, rounded down to whole users.
        bottom: whether fewer than k items were above the threshold.
    """

    items: tuple[Item, ...]
    counts: tuple[int, ...]
    bottom: bool


def noisy_top_k(rows: Iterable[Row], noise: Sequence[Real], bar: Real, k: int) -> NoisyTopK:
    """Decide a selection from noise that has been drawn: the items above the bar, the largest first, at most k.

    Args:
        rows: the candidates.
        noise: what is added to the count of each, in users.
        bar: the noisy threshold.
        k: items wanted.

    Returns:
        The items and their noisy counts rounded down; with bottom where there are fewer than k. Noisy counts that are
        equal, which has probability zero, stand in the order of the rows.

    Source: specs/topk 2.1 and 2.4, the return rule of Algorithms 1 and 4.
    """
    noisy = [(item, Sum(count, real)) for (item, count), real in zip(rows, noise, strict=True)]
    above = sorted((row for row in noisy if exceeds(row[1], bar)), key=cmp_to_key(_larger_first))[:k]
    items, counts = tuple(item for item, _ in above), tuple(_floor(value) for _, value in above)
    return NoisyTopK(items, counts, len(above) < k)


def laplace_top_k(rows: Iterable[Row], h_next: int, p: LaplaceParameters, bits: BitSource) -> NoisyTopK:
    """Select up to k of the most frequent items of an unknown domain whose users move few counts each.

    Neighbours add or remove one user, who moves at most `p.items_per_user` counts, each by at most 1. Every candidate
    and the threshold get Laplace noise of scale 1 / epsilon; the items above the noisy threshold come out in the order
    of their noisy counts, and bottom behind them where they are fewer than k.

    Args:
        rows: at most `p.kbar` candidates, as `candidates` returns them.
        h_next: the (kbar+1)-st largest count, 0 if there are fewer than that.
        p: the selection's parameters.
        bits: source of uniform bits, fresh for every call.

    Returns:
        The items with their noisy counts, rounded down, and whether bottom follows. No other noisy count exists.

    Raises:
        StateError: the rows are not what `candidates` returns for these parameters; nothing has been drawn.

    Guarantee: `accounting.laplace_selection_cost`-DP whatever k is. Every call costs this in full: there is no
    bounded range and no paying by length (specs/topk P25). Time: 50 nanoseconds per candidate and 0.1 milliseconds for
    each whose noise brings it near the threshold or the k-th. Source: specs/topk 2.4 (Algorithm 4, Lemmas 6.1 to 6.5).
    """
    given = checked(rows, h_next, p.kbar, Domain.POSITIVE)
    words = UniformWords(bits).draw(len(given) + 1)
    bar = NoisyThreshold(h_next, p, LaplaceNoise(p.epsilon, int(words[-1]), bits))
    places = _contenders(given.counts, words[:-1], p.epsilon, bar, p.k)
    items = given.items_at(places)
    return noisy_top_k(
        [(item, int(given.counts[place])) for item, place in zip(items, places, strict=True)],
        [LaplaceNoise(p.epsilon, int(words[place]), bits) for place in places],
        bar,
        p.k,
    )


def fixed_threshold_top_k(
    rows: Iterable[Row], h_next: int, p: FixedThresholdParameters, bits: BitSource
) -> tuple[Item, ...]:
    """Select, among the k largest counts that are larger than the next, those whose noisy count is above a threshold.

    Neighbours add or remove one user, who moves any number of counts, each by at most 1. The threshold h_bot =
    h_next + 1 + ln(1 / (2 delta)) / epsilon has no noise. What decides whether an item is looked at is its count
    against h_next, never against h_bot, as printed (specs/topk E3, P24).

    Args:
        rows: `candidates(counts, k, Domain.STRICT)`.
        h_next: the (k+1)-st largest count, 0 if there are fewer than that.
        p: the selection's parameters.
        bits: source of uniform bits, fresh for every call.

    Returns:
        The items in the order of their bytes: only which they are is covered, not their order by noise
        (specs/topk P26).

    Raises:
        StateError: the rows are not what `candidates` returns for these parameters; nothing has been drawn.

    Guarantee: (k epsilon, k delta)-DP; every call costs this in full. Source: specs/topk 2.9 (Algorithm 8, Theorem 5).
    """
    given = checked(rows, h_next, p.k, Domain.STRICT)
    words = UniformWords(bits).draw(len(given))
    return above_threshold(list(given), [LaplaceNoise(p.epsilon, int(word), bits) for word in words], h_next, p)


def above_threshold(
    rows: Iterable[Row], noise: Sequence[Real], h_next: int, p: FixedThresholdParameters
) -> tuple[Item, ...]:
    """The decision of `fixed_threshold_top_k`, from noise that has been drawn.

    Args:
        rows: the items looked at.
        noise: what is added to the count of each, in users.
        h_next: the count that follows them.
        p: the selection's parameters.
    """
    bar = NoisyThreshold(h_next, p, Exact(Fraction(0)))
    pairs = zip(rows, noise, strict=True)
    return tuple(sorted(item for (item, count), real in pairs if exceeds(Sum(count, real), bar)))


def _larger_first(one: tuple[Item, Real], other: tuple[Item, Real]) -> int:
    if exceeds(one[1], other[1]):
        return -1
    return 1 if exceeds(other[1], one[1]) else 0


def _floor(real: Real) -> int:
    precision = START_PRECISION
    while True:
        lower, upper = real.enclose(precision)
        if (whole := lower.numerator // lower.denominator) == upper.numerator // upper.denominator:
            return whole
        precision *= 2


def _contenders(
    counts: NDArray[np.int64], words: NDArray[np.uint64], epsilon: Fraction, bar: Real, k: int
) -> list[int]:
    """The places that may come out, from bounds of the noise in whole users; the others surely do not.

    A U with z zeros in front is in [2^-(z+1), 2^-z), so ln(1/U) is between z ln 2 and (z + 1) ln 2.
    """
    least, most = _octaves(epsilon)
    uniform = words & np.uint64((1 << _UNIFORM_BITS) - 1)
    zeros = _UNIFORM_BITS - np.searchsorted(np.uint64(1) << np.arange(_UNIFORM_BITS, dtype=np.uint64), uniform, "right")
    negative = words >> np.uint64(_UNIFORM_BITS) != 0
    lower = counts + np.where(negative, -most[zeros], least[zeros])
    upper = counts + np.where(negative, -least[zeros], most[zeros])
    floor = bar.enclose(START_PRECISION)[0]
    cut = min(max(floor.numerator // floor.denominator, -MOST_USERS), MOST_USERS)
    if k < len(counts):  # k others are surely at least this large
        cut = max(cut, int(np.partition(lower, len(counts) - k)[len(counts) - k]))
    places: list[int] = np.flatnonzero(upper >= cut).tolist()
    return places


@lru_cache(maxsize=64)
def _octaves(epsilon: Fraction) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For z zeros in front, 0 to 63, whole users below z ln 2 / epsilon and above (z + 1) ln 2 / epsilon."""
    below, above = log(Fraction(2), 2 * _WORD_BITS)
    scale = epsilon * (1 << 2 * _WORD_BITS)
    least = [min(int(zeros * below // scale), MOST_USERS) for zeros in range(_WORD_BITS)]
    most = [min(int(-(-(zeros + 1) * above // scale)), MOST_USERS) for zeros in range(_UNIFORM_BITS)]
    return np.array(least, np.int64), np.array([*most, MOST_USERS], np.int64)
