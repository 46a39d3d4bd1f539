"""The K heaviest keys of a huge universe with noisy counts, under pure differential privacy.

The ideal mechanism adds noise to the count of every key of the universe and releases the keys strictly above the
(K + 1)-st noisy count: at most K. It is simulated: noise for the observed keys, the K + 1 largest of all other noisy
counts (`order`), and distinct random keys to carry them. What the simulation rounds, a mixture with a release that does
not depend on the data repairs, if the rounding stays within `distance_limit`: then the ratio is that of the ideal
mechanism, exactly.

Source: specs/finite 2.7 to 2.9, D3, D7 (Balcer and Vadhan 2018, Algorithms 3.1, 6.4, 6.9 and A.3).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import factorial

from stream_dp.errors import Fault, ParameterError, StateError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.checks import chance_faults, refuse, whole_faults
from stream_dp.histograms.counting_queries import GeometricTable, ceil_log2, distance_limit, interval
from stream_dp.histograms.key_space import KeySpace
from stream_dp.histograms.order import largest_values, rounding_units

Cell = tuple[int, int]
"""A key and its noisy count."""

FLOOR_BITS = 8
"""A key that nobody has gets a uniform count in at most 1 of 2^8 releases (specs/finite 5.11)."""


@dataclass(frozen=True)
class PureTopK:
    """Public parameters of a K-capped histogram over a finite universe, and its draw.

    Neighbouring tables differ by one user, who moves at most `items_per_user` counts by one each.

    Attributes:
        query: noise of one count; counts are clamped to its bound C.
        k: at most so many keys are released.
        universe: the keys are 1..`universe`.
        items_per_user: bound on the counts one user moves.
        fallback_bits: with probability 2^-`fallback_bits` the release does not depend on the data.

    Raises:
        ParameterError: a parameter is out of range, `universe` has no key beyond the k released ones, or the uniform
            part of the noise is so large that it fills the release with keys that nobody has.

    Guarantee: no release is more likely than `ratio` times its probability on a neighbouring table; ln(`ratio`)-DP,
    pure. Source: specs/finite 2.9, D3, D7.
    """

    query: GeometricTable
    k: int
    universe: int
    items_per_user: int
    fallback_bits: int

    def __post_init__(self) -> None:
        refuse(
            whole_faults(
                k=self.k,
                universe=self.universe,
                items_per_user=self.items_per_user,
                fallback_bits=self.fallback_bits,
            )
        )
        faults = []
        if self.universe <= self.k:
            faults.append(Fault("k", f"must be below the number of possible keys, {self.universe}, not {self.k}"))
        least = ceil_log2(self.universe) + FLOOR_BITS
        if self.query.g < least:
            faults.append(
                Fault("query", f"g must be at least {least}, not {self.query.g}: uniform noise floods the release")
            )
        refuse(faults)

    @cached_property
    def ratio(self) -> Fraction:
        """The price of a release for one user, exact: the query's ratio for each count."""
        return self.query.ratio**self.items_per_user

    @cached_property
    def fallback_minimum(self) -> Fraction:
        """The least probability of a release in the fallback.

        A release of j <= k keys comes from k! or more sequences of k distinct keys, each with one choice of counts. A
        key is drawn with probability at least 1 / `universe`, rounded down to a multiple of 2^-`key_bits`.
        """
        key = Fraction((1 << self.key_bits) // self.universe, 1 << self.key_bits + self.query.h)
        return factorial(self.k) * key**self.k

    @cached_property
    def delta(self) -> Fraction:
        """The distance in total variation from the ideal mechanism that the fallback covers, exact."""
        return distance_limit(self.ratio, Fraction(1, 1 << self.fallback_bits), self.fallback_minimum)

    @cached_property
    def error(self) -> Fraction:
        """A bound on the distance of the simulation from the ideal mechanism; at most `delta`.

        Choosing one of m keys by floor(r m / 2^b) is off by at most m / 2^(b+2); the order statistics by
        `rounding_units`; all else is exact. The distances add (Lemma 2.10).
        """
        choices = Fraction((self.k + 1) * self.universe, 4 << self.choice_bits)
        return choices + Fraction(self._units, 1 << self.order_bits)

    @cached_property
    def key_bits(self) -> int:
        """Bits for a key of the fallback: they keep at least half of 1 / `universe`^k."""
        return ceil_log2(2 * self.k * self.universe)

    @cached_property
    def choice_bits(self) -> int:
        """Bits for a key that nobody has: a quarter of `delta` for all k + 1."""
        return _bits_for((self.k + 1) * self.universe, self.delta)

    @cached_property
    def order_bits(self) -> int:
        """Bits for a step of the order statistics: half of `delta` for all steps."""
        return _bits_for(2 * self._units, self.delta)

    @cached_property
    def _units(self) -> int:
        return rounding_units(self.query.bound, self.universe, self.k + 1)

    def bits(self, slots: int) -> int:
        """Random bits of a draw with `slots` slots for observed keys."""
        fallback = self.fallback_bits + self.k * (self.key_bits + self.query.h)
        return fallback + slots * self.query.bits + (self.k + 1) * (self.choice_bits + self.order_bits)

    def draw(self, counts: Mapping[int, int], source: BitSource, slots: int | None = None) -> list[Cell]:
        """Draw a release.

        Args:
            counts: of the observed keys, any number of them; others have count 0. Counts above C are clamped to it.
            source: of uniform bits; takes exactly `bits(slots)`, whatever comes out.
            slots: noise is drawn for so many keys; a public number makes the number of bits public. By default the
                number of observed keys.

        Returns:
            At most k keys with noisy counts in 1..C, by key. Keys at the cut are dropped, all of them.

        Raises:
            StateError: a key or a count is out of range, or more keys than slots are observed; nothing has been drawn.

        Guarantee: `ratio`, pure. The time depends on the counts and on what comes out: publish at a fixed instant.
        Time: `slots` draws of the noise, a sort of the keys, and about k steps as in `largest_values`.
        """
        keys = sorted(counts)
        slots = len(keys) if slots is None else slots
        self._check(keys, counts, slots)
        is_fallback = source.bits(self.fallback_bits) == 0
        fallback = self._draw_fallback(source)
        noisy = [(key, self.query.draw(min(counts[key], self.query.bound), source)) for key in keys]
        for _ in range(slots - len(keys)):
            source.bits(self.query.bits)
        choices = [source.bits(self.choice_bits) for _ in range(self.k + 1)]
        uniforms = [source.bits(self.order_bits) + 1 for _ in range(self.k + 1)]
        empties = self.universe - len(keys)
        places = min(self.k + 1, empties)  # where nearly all keys are observed, all others are candidates
        found = distinct_absent(
            keys, [scaled(r, self.choice_bits, empties - i) for i, r in enumerate(choices[:places])]
        )
        largest = largest_values(self.query, empties, uniforms[:places], self.order_bits)
        released = strictly_above_next([*noisy, *zip(found, largest, strict=True)], self.k)
        return fallback if is_fallback else released

    def _check(self, keys: Sequence[int], counts: Mapping[int, int], slots: int) -> None:
        if len(keys) > slots:
            raise StateError(f"{len(keys)} keys were observed, there are {slots} slots")
        if keys and not 1 <= keys[0] <= keys[-1] <= self.universe:
            raise StateError(f"a key lies outside 1..{self.universe}")
        if keys and min(counts.values()) < 0:
            raise StateError("a count must be a whole number of at least 0")

    def _draw_fallback(self, source: BitSource) -> list[Cell]:
        """Draw k keys, then k counts; a key that comes twice keeps the last count, zeros are left out."""
        keys = [scaled(source.bits(self.key_bits), self.key_bits, self.universe) for _ in range(self.k)]
        counts = [source.bits(self.query.h) for _ in range(self.k)]
        return sorted((key, count) for key, count in dict(zip(keys, counts, strict=True)).items() if count)

    def least_spurious(self, beta: Fraction) -> int:
        """Return the least tau such that with probability 1 - `beta` nobody's key has a released count above it.

        Dropping the counts up to tau is free: tau is public, and the rest is post-processing.

        Args:
            beta: in (0, 1), above the weight of the fallback.

        Raises:
            ParameterError: beta is out of range.

        Source: specs/finite 7.2 (`derived_prune_tau`).
        """
        most = self._left(beta) * self.query.draws // self.universe

        def is_rare(tau: int) -> bool:
            return self.query.draws - self.query.cdf(0, tau) <= most

        return bisect_left(range(self.query.bound), True, key=is_rare)

    def within(self, beta: Fraction) -> int:
        """Return a t such that with probability 1 - `beta` every released count is within t of the true one.

        By the union bound over all keys of the universe, so it holds for whichever are released.

        Args:
            beta: in (0, 1), above the weight of the fallback.

        Raises:
            ParameterError: beta is out of range.
        """
        return interval(self.query, 1 - self._left(beta) * Fraction(1, self.universe))

    def _left(self, beta: Fraction) -> Fraction:
        """Return what a chance leaves for the noise, beside the fallback and the simulation; above 0."""
        refuse(chance_faults(beta=beta))
        left = beta - Fraction(1, 1 << self.fallback_bits) - self.delta
        if left <= 0:
            raise ParameterError(f"must be above the weight of the fallback, 2^-{self.fallback_bits}", "beta")
        return left


def top_texts(
    top: PureTopK, keys: KeySpace, counts: Mapping[str, int], least: int, source: BitSource
) -> list[tuple[str, int]]:
    """Draw a release of texts as keys.

    What is no text, or stands for all keys that are too long, is left out, and so are counts below a minimum: all of
    that is post-processing.

    Args:
        top: the mechanism, over `keys.size` keys.
        keys: numbers the keys.
        counts: by text, at least 0.
        least: the smallest count that is kept.
        source: of uniform bits, as in `PureTopK.draw`.

    Returns:
        Texts and their noisy counts, in the order of the numbers of the keys.
    """
    exact = Counter[int]()
    for text in sorted(counts):
        exact[keys.index(text)] += counts[text]
    cells = [(_text(keys.key(number)), count) for number, count in top.draw(exact, source) if count >= least]
    return [(text, count) for text, count in cells if text]


def _text(key: bytes) -> str:
    """A key as text; empty if it is none."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return ""


def strictly_above_next(noisy: Iterable[Cell], k: int) -> list[Cell]:
    """Return the cells strictly above the (k + 1)-st largest count, by key: at most k (KeepHeavy's cut).

    Ties at the cut are all dropped: of keys that tie with the last candidate the simulation knows nothing.
    """
    cells = sorted(noisy)
    cut = sorted((count for _, count in cells), reverse=True)[k]
    return [cell for cell in cells if cell[1] > cut]


def distinct_absent(keys: Sequence[int], choices: Iterable[int]) -> list[int]:
    """Return distinct keys that are not in `keys`: each the z-th of those left, for the next z of `choices`.

    Without rejection, whose time would depend on the keys. Uniform over sequences for independent z, uniform over
    1..number left. Time: O(log n + number of choices) for a choice.

    Args:
        keys: rising and distinct.
        choices: the i-th in 1..number of absent keys - i.

    Source: specs/finite 2.9 (Algorithm A.3).
    """
    ranks: list[int] = []
    found = []
    for z in choices:
        rank = _absent(ranks, z)
        insort(ranks, rank)
        found.append(_absent(keys, rank))
    return found


def _absent(keys: Sequence[int], z: int) -> int:
    """Return the z-th whole number from 1 that is not in `keys`: z and as many as there are smaller keys."""
    return z + bisect_right(range(len(keys)), z, key=lambda i: keys[i] - i)


def scaled(r: int, bits: int, n: int) -> int:
    """Return one of 1..n for `bits` uniform bits r: each with probability 1 / n, rounded to a multiple of 2^-`bits`."""
    return (r * n >> bits) + 1


def _bits_for(units: int, limit: Fraction) -> int:
    """Return the least b with units / 2^b <= limit."""
    return ceil_log2(-(-units * limit.denominator // limit.numerator))
