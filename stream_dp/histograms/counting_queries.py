"""Counting queries: noise for one count as a deterministic function of the count and of one uniform integer.

A counting query M maps a count c in 0..n and an integer u, uniform in 1..d, to an output in 0..n. All randomness is
that one integer, so its cost in bits is public, and the law can be enumerated: d Pr[M(c, U) <= z] is an integer.

All three samplers have the two-sided geometric law of ratio a = u/w for one more count of distance, with its tails
moved to the ends 0 and n (clamped, which is post-processing). `base` is the pair (u, w): one count more or less changes
no probability by more than w / u. `GeometricTable` is the one for releases. `ExactGeometric` and `TruncatedGeometric`
are those of the paper; their random integers have thousands of bits.

Source: specs/finite 2.0 to 2.5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from stream_dp.errors import Fault, ParameterError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.checks import positive_faults, refuse, whole_faults
from stream_dp.exact.reals import exp_neg, smallest_power

_GUARD = 64
"""Bits below the point of the table's recurrence."""
_BASE_BITS = 32
"""Bits of epsilon that `Base.within` keeps."""


def ceil_log2(a: int) -> int:
    """The least k with 2^k >= a, for a >= 1."""
    return (a - 1).bit_length()


class CountingQuery(ABC):
    """A counting query.

    Attributes:
        bound: n: counts and outputs are 0..n.
        draws: d: the random integer is one of 1..d, each with probability 1 / d.
        ratio: no output is more likely than this factor at one count than at a neighbouring one; exact.
    """

    bound: int
    draws: int
    ratio: Fraction

    @abstractmethod
    def cdf(self, count: int, z: int) -> int:
        """Return d Pr[M(count, U) <= z]: an integer, 0 for z < 0, `draws` for z >= `bound`, rising strictly."""

    def sample(self, count: int, u: int) -> int:
        """M(count, u): the least z with cdf(count, z) >= u, by a search of a public number of steps.

        Args:
            count: in 0..`bound`.
            u: in 1..`draws`.
        """
        low, high = 0, (1 << self.bound.bit_length()) - 1
        while low < high:
            middle = (low + high) // 2
            if self.cdf(count, middle) >= u:
                high = middle
            else:
                low = middle + 1
        return low


class BitQuery(CountingQuery):
    """A counting query whose random integer is `bits` raw bits: `draws` is 2^`bits`.

    Attributes:
        bits: of one draw, whatever the count and the output are.
    """

    bits: int

    def draw(self, count: int, source: BitSource) -> int:
        """Draw the output for a count; takes exactly `bits` bits.

        Args:
            count: in 0..`bound`.
            source: of uniform bits.
        """
        return self.sample(count, source.bits(self.bits) + 1)


@dataclass(frozen=True, slots=True)
class Base:
    """The ratio of the geometric law as two integers: one count of distance costs the factor u / w < 1.

    Raises:
        ParameterError: not 1 <= u < w.
    """

    u: int
    w: int

    def __post_init__(self) -> None:
        faults = whole_faults(u=self.u, w=self.w)
        if not faults and self.w <= self.u:
            faults = [Fault("w", f"must be above u = {self.u}, not {self.w}")]
        refuse(faults)

    @classmethod
    def dyadic(cls, k: int) -> Base:
        """(2^k, 2^k + 1): the base of the paper (specs/finite 2.1)."""
        return cls(1 << k, (1 << k) + 1)

    @classmethod
    def within(cls, epsilon: Fraction) -> Base:
        """Return a base whose ratio is at most e^epsilon, by less than 2^-31 epsilon in the exponent.

        u is a power of two with u epsilon >= 2^32, and w is u e^epsilon rounded down; one less where that exceeds a
        whole number by less than 2^-63. Proof of the bound: `upper` >= 2^p e^-epsilon, so u 2^p / upper <= u e^epsilon.

        Args:
            epsilon: price of one count more or less.

        Raises:
            ParameterError: epsilon is not an exact fraction above 0.

        Source: specs/finite 2.1 ("general rational base").
        """
        refuse(positive_faults(epsilon=epsilon))
        u = 1 << _BASE_BITS + ceil_log2(-(-epsilon.denominator // epsilon.numerator))
        # A relative error of 2 e^epsilon / 2^p in e^epsilon, so 2^(1-p) u e^(2 epsilon) in w, and e^2 < 2^3.
        precision = u.bit_length() + 3 * -(-epsilon.numerator // epsilon.denominator) + 64
        _, upper = exp_neg(epsilon, precision)
        return cls(u, (u << precision) // upper)

    @property
    def ratio(self) -> Fraction:
        """The factor w / u."""
        return Fraction(self.w, self.u)


def distance_limit(ratio: Fraction, gamma: Fraction, least: Fraction) -> Fraction:
    """Return how far a law may be from a pure one for its mixture with a fixed law to be pure: inequality (1).

    Let M have no output more likely than `ratio` times at a neighbour, let M' be within that total variation distance
    of M at every input, and let a law that does not depend on the data give every output of M' at least the
    probability `least`. Then M' with probability 1 - gamma, else that law, has M's ratio, exactly.

    Args:
        ratio: of M, above 1.
        gamma: weight of the fixed law, in (0, 1).
        least: its smallest probability.

    Source: specs/finite 2.0 (Lemma 3.2) and D7.
    """
    return (ratio - 1) * gamma * least * Fraction(1, (ratio + 1) * (1 - gamma))


class ExactGeometric(CountingQuery):
    """Clamped geometric noise, exactly (GeoSample).

    Guarantee: `base.ratio` for one count more or less, pure; that ratio is attained. Time: powers of about
    `bound` log2 w bits for each step of the search. Source: specs/finite 2.3 (Algorithm 4.8, Lemma 4.9).
    """

    def __init__(self, bound: int, base: Base) -> None:
        """Set the law.

        Args:
            bound: largest count.
            base: of the noise.

        Raises:
            ParameterError: the bound is below 1.
        """
        refuse(whole_faults(bound=bound))
        self.bound, self.base = bound, base
        self.ratio = base.ratio
        self.draws = (base.u + base.w) * base.w ** (bound - 1)

    def cdf(self, count: int, z: int) -> int:
        """As `CountingQuery.cdf`."""
        u, w, n = self.base.u, self.base.w, self.bound
        if z < 0:
            return 0
        if z >= n:
            return self.draws
        if z < count:
            return int(u ** (count - z) * w ** (n - (count - z)))
        return int(self.draws - u ** (z - count + 1) * w ** (n - 1 - (z - count)))


def least_cutoff(bound: int, base: Base, g: int) -> int:
    """Return the least t for which `TruncatedGeometric` is pure.

    Moving the tails beyond t to the centre moves 2 u^(t+1) / ((u + w) w^t) of the probability. Inequality (1) then
    reads 2 (g - 1) (bound + 1) u^(t+1) <= (w - u) w^t, a test of integers.

    Source: specs/finite 2.4, D7.
    """
    limit = distance_limit(base.ratio, Fraction(1, g), Fraction(1, bound + 1))
    return smallest_power(Fraction(base.u, base.w), limit * Fraction(base.u + base.w, 2 * base.u))


class TruncatedGeometric(CountingQuery):
    """Geometric noise with its tails beyond t moved to the centre, clamped, mixed with a uniform output (FastSample).

    Guarantee: `base.ratio` for one count more or less, pure. Time: powers of about t log2 w bits for each step of the
    search. Source: specs/finite 2.4 (Algorithm 4.11, Lemma 4.12).
    """

    def __init__(self, bound: int, base: Base, g: int, t: int) -> None:
        """Set the law.

        Args:
            bound: largest count.
            base: of the noise.
            g: the output is uniform with probability 1 / g.
            t: largest distance of the noise, at least `least_cutoff(bound, base, g)`.

        Raises:
            ParameterError: a parameter is out of range; with a shorter t the output would not be pure.
        """
        faults = whole_faults(bound=bound, g=g)
        if not faults and g < 2:
            faults = [Fault("g", f"must be at least 2, not {g}")]
        refuse(faults)
        least = least_cutoff(bound, base, g)
        if not isinstance(t, int) or t < least:
            raise ParameterError(f"must be a whole number of at least {least}, not {t!r}", "t")
        self.bound, self.base, self.g, self.t = bound, base, g, t
        self.ratio = base.ratio
        self._kept: int = (base.u + base.w) * base.w**t
        self._moved: int = base.u ** (t + 1)
        self.draws = (bound + 1) * self._kept * g

    def cdf(self, count: int, z: int) -> int:
        """As `CountingQuery.cdf`."""
        if z < 0:
            return 0
        if z >= self.bound:
            return self.draws
        return (z + 1) * self._kept + (self.g - 1) * (self.bound + 1) * self._truncated(z - count)

    def _truncated(self, distance: int) -> int:
        """`_kept` Pr[noise <= distance], of the truncated noise."""
        if distance >= 0:
            return self._kept - self._beyond(distance + 1)
        return self._beyond(-distance)

    def _beyond(self, j: int) -> int:
        """`_kept` Pr[noise >= j], j >= 1; its law is symmetric."""
        u, w, t = self.base.u, self.base.w, self.t
        return int(u**j * w ** (t + 1 - j) - self._moved) if j <= t else 0


class RawBits(BitQuery):
    """A counting query whose random integer comes from raw bits, although `draws` is no power of two.

    The 2^bits values are dealt out in order: q or q + 1 of them for each random integer of the query, which changes no
    probability by more than the factor (q + 1) / q between two counts.

    Guarantee: `ratio`, pure. Source: specs/finite 2.5, D2 (the map of Algorithm 8.5).
    """

    def __init__(self, query: CountingQuery, bits: int) -> None:
        """Wrap a query.

        Args:
            query: that wants an integer of 1..`query.draws`.
            bits: of one draw; with 2 more the ratio grows by at most a fourth of itself, with 20 by a millionth.

        Raises:
            ParameterError: there are fewer values of the bits than of the integer.
        """
        refuse(whole_faults(bits=bits))
        least = ceil_log2(query.draws)
        if bits < least:
            raise ParameterError(f"must be at least {least}, not {bits}", "bits")
        self.query, self.bits = query, bits
        self.bound, self.draws = query.bound, 1 << bits
        self._each, self._more = divmod(self.draws, query.draws)
        self.ratio = query.ratio * Fraction(self._each + 1, self._each) if self._more else query.ratio

    def cdf(self, count: int, z: int) -> int:
        """As `CountingQuery.cdf`: the integers 1..`_more` have one value more than the others."""
        below = self.query.cdf(count, z)
        return self._each * below + min(below, self._more)


def table_faults(h: int, base: Base, g: int, point: int) -> list[Fault]:
    """Return why a table of tails with `point` bits would not be pure: two tests of integers.

    Proof that a table without faults is pure. Let a = u/w, and T_j = a^(j-1) u / (u + w) the chance of noise of at
    least j. The recurrence H_1 = floor(2^(point+64) T_1), H_(j+1) = floor(a H_j) falls short of 2^(point+64) T_j by
    less than 1 + a + a^2 + ... = w / (w - u), which the first test keeps to 2^64. So G_j = floor(2^-64 H_j) falls
    short of 2^point T_j by e with 0 <= e < 2; where the table has ended G_j = 0 and the same holds. The distribution
    function of the cut noise around a count c, clamped to 0..n, is G_(c-z) at z < c and 2^point - G_(z-c+1) at
    c <= z < n: too small by e below c, too large by e above, and right at n. Its steps are therefore wrong by less than
    2 each, by less than 4 at c: half of their sum over n + 1 = 2^h places, the total variation distance, is less than
    (2^h + 1) 2^-point. The second test compares that with inequality (1).

    Args:
        h: bits of a count.
        base: of the noise.
        g: the output is uniform with probability 2^-g.
        point: bits of a tail.

    Source: specs/finite 2.5, D1.
    """
    faults = []
    if base.w > (base.w - base.u) << _GUARD:
        faults.append(Fault("base", f"w / (w - u) must be at most 2^{_GUARD}, not {base}"))
    limit = distance_limit(base.ratio, Fraction(1, 1 << g), Fraction(1, 1 << h))
    if Fraction((1 << h) + 1, 1 << point) > limit:
        faults.append(Fault("point", f"{point} bits are too few for h = {h}, g = {g} and a ratio of {base.ratio}"))
    return faults


class GeometricTable(BitQuery):
    """Clamped geometric noise from a table of tails, mixed with a uniform output (specs/finite 2.5).

    n = 2^h - 1. With probability 2^-g the output is uniform in 0..n: that makes the guarantee pure although the tails
    of the table are cut and rounded. A draw takes h + g + B bits and h steps, and no integer is longer than that.

    Guarantee: `base.ratio` for one count more or less, pure.
    """

    def __init__(self, h: int, base: Base, g: int) -> None:
        """Make the table.

        Args:
            h: bits of a count.
            base: of the noise.
            g: the output is uniform with probability 2^-g.

        Raises:
            ParameterError: h or g is below 1, or the base is too near 1 for the table (`table_faults`).
        """
        refuse(whole_faults(h=h, g=g))
        self.h, self.base, self.g = h, base, g
        self.bound = (1 << h) - 1
        self.ratio = base.ratio
        needed = -(-(base.u + base.w) * ((1 << h) + 1) // ((base.w - base.u) << h))
        self.point = 2 * h + g + ceil_log2(needed)
        refuse(table_faults(h, base, g, self.point))
        self.bits = h + g + self.point
        self.draws = 1 << self.bits
        self._mixed = ((1 << g) - 1) << h
        self._one = 1 << self.point

    @cached_property
    def tails(self) -> tuple[int, ...]:
        """At index j: 2^point Pr[noise >= j], rounded down, for j >= 1, as far as it is not 0; index 0 is not used."""
        u, w = self.base.u, self.base.w
        tails, guarded = [self._one], (1 << self.point + _GUARD) * u // (u + w)
        while tails[-1] and len(tails) <= self.bound:
            tails.append(guarded >> _GUARD)
            guarded = guarded * u // w
        return tuple(tails if tails[-1] else tails[:-1])

    def cdf(self, count: int, z: int) -> int:
        """As `CountingQuery.cdf`; two look-ups."""
        if z < 0:
            return 0
        if z >= self.bound:
            return self.draws
        tails = self.tails
        if z < count:
            below = tails[count - z] if count - z < len(tails) else 0
        else:
            below = self._one - (tails[z - count + 1] if z - count + 1 < len(tails) else 0)
        return (z + 1 << self.point) + self._mixed * below


def miss(query: ExactGeometric | TruncatedGeometric | GeometricTable, a: int) -> Fraction:
    """Return the chance that an output is more than `a` away from its count, for the count for which that is largest.

    Proof that two counts are enough. Below and above a count the law is the same at each distance, but for what lies
    beyond 0 and n. So all counts that can be missed by `a` on both sides are alike, and c = a + 1 is one of them; of
    those that can be missed on one side only, 0 has the longest other side.

    Args:
        query: the counting query.
        a: at least 0.

    Source: specs/finite 2.3, 2.5.
    """

    def at(count: int) -> int:
        return query.cdf(count, count - a - 1) + query.draws - query.cdf(count, count + a)

    return Fraction(max(at(0), at(min(a + 1, query.bound))), query.draws)


def interval(query: ExactGeometric | TruncatedGeometric | GeometricTable, confidence: Fraction) -> int:
    """Return the smallest a with Pr[|M(c) - c| <= a] >= confidence for every count c, the uniform outputs included.

    Args:
        query: the counting query.
        confidence: in [0, 1].

    Raises:
        ParameterError: the confidence is out of range.
    """
    if not 0 <= confidence <= 1:
        raise ParameterError(f"must lie between 0 and 1, not {confidence}", "confidence")
    return bisect_left(range(query.bound), True, key=lambda a: miss(query, a) <= 1 - confidence)


def mean_absolute(table: GeometricTable, count: int) -> Fraction:
    """Return E|M(count) - count|, exactly; at count 0 that is the mean of the output, which the clamp makes positive.

    Proof. It is the sum of Pr[M <= z] over z < count and of Pr[M > z] over z >= count.

    Args:
        table: the counting query.
        count: in 0..`table.bound`.

    Source: specs/finite 2.5, pitfall 22.
    """
    sides = count, table.bound - count
    uniform = sum(side * (side + 1) // 2 for side in sides) << table.point
    noise = table._mixed * sum(sum(table.tails[1 : side + 1]) for side in sides)
    return Fraction(uniform + noise, table.draws)
