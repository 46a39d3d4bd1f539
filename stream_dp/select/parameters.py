"""What a top-k selection is asked to do, checked once, and the threshold an item has to reach."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from stream_dp.errors import Fault, ParameterError
from stream_dp.exact.reals import exp_neg, log


class Domain(StrEnum):
    """Which of the kbar largest counts are candidates; part of a selection's public parameters."""

    POSITIVE = "positive"
    """Those that are not zero: nothing that nobody has is ever named (specs/topk 2.2)."""
    STRICT = "strict"
    """Those above the one that follows: no rule for ties, a larger threshold (specs/topk 2.3, Algorithm 5)."""
    WHOLE = "whole"
    """All, zeros included: only for counts that list a public catalogue in full (specs/topk 2.1, P10)."""


@dataclass(frozen=True, slots=True)
class TopKParameters:
    """The public parameters of a top-k selection with Gumbel noise; fixed before any data are seen (specs/topk 1.3).

    Neighbouring tables differ by one user, who moves at most `items_per_user` counts, each by at most 1.

    Attributes:
        k: items wanted, at least 1.
        kbar: how many of the largest counts the mechanism may look at, at least `k`.
        epsilon: price of one draw, in (0, infinity); the noise and the threshold both use it (specs/topk P5).
        delta: chance, per call, of naming an item that only one of two neighbouring tables has, in (0, 1).
        items_per_user: bound on the counts one user moves, or None where nothing bounds it.
        domain: which of the kbar largest counts are candidates.

    Raises:
        ParameterError: a parameter is outside its range or is not exact; every fault is listed with its name.

    Source: specs/topk 1.2, 1.3, 2.0.
    """

    k: int
    kbar: int
    epsilon: Fraction
    delta: Fraction
    items_per_user: int | None = None
    domain: Domain = Domain.POSITIVE

    def __post_init__(self) -> None:
        faults = _count_faults(self.k, self.kbar, self.items_per_user) + _price_faults(self.epsilon, self.delta)
        if not isinstance(self.domain, Domain):
            faults.append(Fault("domain", f"must be one of {', '.join(Domain)}, not {self.domain!r}"))
        if faults:
            raise ParameterError(faults)

    @property
    def multiplier(self) -> int:
        """How many items one user can move into or out of the candidates: min(Delta, kbar) (specs/topk 2.0).

        In the strict domain kbar whatever the user's bound is: one count can evict all that equal it (specs/topk P1).
        Never a function of the table: with fewer than kbar keys it stays what it is (specs/topk P7, P9).
        """
        if self.items_per_user is None or self.domain is Domain.STRICT:
            return self.kbar
        return min(self.items_per_user, self.kbar)

    @property
    def odds(self) -> Fraction:
        """The weight m / delta of bottom against an item of h_next + 1 users."""
        return Fraction(self.multiplier, self.delta)


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
        faults = _count_faults(self.k, self.kbar, self.items_per_user, bounded=True)
        if not faults and self.items_per_user > self.kbar:
            faults.append(Fault("kbar", f"must be at least items_per_user = {self.items_per_user}, not {self.kbar}"))
        faults += _price_faults(self.epsilon, self.delta)
        if faults:
            raise ParameterError(faults)

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
        faults = _count_faults(self.k, self.k, None) + _price_faults(self.epsilon, self.delta)
        if not faults and 2 * self.delta > 1:
            faults.append(Fault("delta", f"must be at most 1/2, not {self.delta!r}"))
        if faults:
            raise ParameterError(faults)

    @property
    def odds(self) -> Fraction:
        """1 / (2 delta)."""
        return Fraction(1, 2 * self.delta)


class Thresholded(Protocol):
    """Parameters of a selection that has a threshold."""

    @property
    def epsilon(self) -> Fraction:
        """The selection's epsilon."""

    @property
    def odds(self) -> Fraction:
        """e^(epsilon (h_bot - h_next - 1))."""


def threshold(h_next: int, parameters: Thresholded, precision: int = 64) -> tuple[Fraction, Fraction]:
    """Enclose h_bot, the count at which an item alone is returned as often as not.

    h_bot = h_next + 1 + ln(odds) / epsilon, where odds are m / delta, or 1 / (2 delta) for the fixed threshold. With
    `h_next = 0` this is how far an item has to stand above the (kbar+1)-st, which is public; with the true `h_next`
    it is not, and must not be published (specs/topk 5.2.8). The peeling form compares weights and computes no
    logarithm.

    Args:
        h_next: the (kbar+1)-st largest count, 0 if there are fewer.
        parameters: the selection.
        precision: bits after the binary point of the logarithm.

    Returns:
        A lower and an upper bound, in users; they differ by a few 2**-precision / epsilon.

    Source: specs/topk 2.0, tests 1, 2 and 15.
    """
    epsilon = parameters.epsilon
    lower, upper = (
        h_next + 1 + Fraction(bound * epsilon.denominator, epsilon.numerator << precision)
        for bound in _log(parameters.odds, precision)
    )
    return lower, upper


_log = lru_cache(maxsize=64)(log)
"""A selection compares with its threshold many times."""


def _count_faults(k: int, kbar: int, items_per_user: int | None, *, bounded: bool = False) -> list[Fault]:
    bounds = {"k": k, "kbar": kbar}
    if bounded or items_per_user is not None:
        bounds["items_per_user"] = items_per_user  # type: ignore[assignment]
    faults = [
        Fault(name, f"must be a whole number of at least 1, not {value!r}")
        for name, value in bounds.items()
        if not isinstance(value, int) or isinstance(value, bool) or value < 1
    ]
    if not faults and kbar < k:
        faults.append(Fault("kbar", f"must be at least k = {k}, not {kbar}"))
    return faults


def _price_faults(epsilon: Fraction, delta: Fraction) -> list[Fault]:
    faults = []
    if not isinstance(epsilon, Fraction) or epsilon <= 0:
        faults.append(Fault("epsilon", f"must be an exact fraction above 0, not {epsilon!r}"))
    if not isinstance(delta, Fraction) or not 0 < delta < 1:
        faults.append(Fault("delta", f"must be an exact fraction between 0 and 1, not {delta!r}"))
    return faults


_PRECISION = 128


def lead_for_inclusion(p: Thresholded, chance: Fraction) -> Fraction:
    """How far a lone item has to stand above the (kbar+1)-st count to be returned with a chance.

    1 + (ln(odds) + ln(chance / (1 - chance))) / epsilon, in users, rounded up; one half is the threshold itself.

    Args:
        p: parameters of a selection with Gumbel noise.
        chance: in (0, 1).

    Raises:
        ParameterError: the chance is out of range.

    Source: specs/topk 4 ("single item against bottom").
    """
    _check_chance("chance", chance)
    return 1 + Fraction(_log_above(p.odds * Fraction(chance, 1 - chance)), p.epsilon)


def shortfall(p: TopKParameters, beta: Fraction) -> Fraction:
    """How far below the k-th largest count a returned item may lie: with probability 1 - beta none lies farther.

    ln(k kbar / beta) / epsilon, in users, rounded up.

    Raises:
        ParameterError: beta is not in (0, 1).

    Source: specs/topk 4 (Lemma 8.1a).
    """
    _check_chance("beta", beta)
    return Fraction(_log_above(Fraction(p.k * p.kbar, beta)), p.epsilon)


def lead_for_all(p: TopKParameters, beta: Fraction) -> Fraction:
    """How far the k-th largest count has to stand above the (kbar+1)-st for k items with probability 1 - beta.

    1 + ln(m / delta) / epsilon + ln(k / beta) / epsilon, in users, rounded up.

    Raises:
        ParameterError: beta is not in (0, 1).

    Source: specs/topk 4 (Lemma 8.1b).
    """
    _check_chance("beta", beta)
    return threshold(0, p, _PRECISION)[1] + Fraction(_log_above(Fraction(p.k, beta)), p.epsilon)


def chance_of_noise(p: TopKParameters) -> Fraction:
    """The chance that a table in which all counts are equal gives anything but bottom, rounded up.

    kbar / (kbar + e^epsilon m / delta). Source: specs/topk 4 ("flat histogram").
    """
    _, upper = exp_neg(p.epsilon, _PRECISION)
    weight = p.kbar * Fraction(upper, 1 << _PRECISION)
    return Fraction(weight, weight + p.odds)


def _log_above(q: Fraction) -> Fraction:
    return Fraction(log(q, _PRECISION)[1], 1 << _PRECISION)


def _check_chance(name: str, chance: Fraction) -> None:
    if not isinstance(chance, Fraction) or not 0 < chance < 1:
        raise ParameterError([Fault(name, f"must be an exact fraction between 0 and 1, not {chance!r}")])


class Neighbours(StrEnum):
    """The neighbour relation of a guarantee; part of a selection's public parameters."""

    ADD_OR_REMOVE = "add or remove"
    """One user is in one of the tables and not in the other, and moves all counts in one direction."""
    REPLACE = "replace"
    """One user has other records in the other table: counts move both ways. Holds for adding and removing, too."""

    @property
    def least_sensitivity(self) -> Fraction:
        """Half the length of the interval in which one user moves a count by at most 1 (specs/subset 1.2, P3)."""
        return Fraction(1, 2) if self is Neighbours.ADD_OR_REMOVE else Fraction(1)
