"""What binomial and Poisson noise costs: (epsilon, delta), never epsilon alone, because their support is bounded.

All results are upper bounds, rounded up. The theorems are wide; for one count `poisson_delta` is exact. A set of
releases of one snapshot costs what its finest costs, the one with the smallest variance (specs/lossless 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from stream_dp.accounting.rounding import down, exp_down, log_up, root_up, up
from stream_dp.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How far one user can move a vector of counts.

    Attributes:
        l1: Delta1, the sum of the moves.
        l2_squared: Delta2^2, the sum of their squares.
        largest: Delta-infinity, the largest move of one count.
    """

    l1: Fraction = Fraction(1)
    l2_squared: Fraction = Fraction(1)
    largest: Fraction = Fraction(1)

    @classmethod
    def of_items(cls, items_per_user: int) -> Sensitivity:
        """Of histograms to which a user adds at most `items_per_user` keys, each once."""
        return cls(Fraction(items_per_user), Fraction(items_per_user), Fraction(1))


_UNIT = Sensitivity()


def variance_needed(dimensions: int, delta: Fraction, sensitivity: Sensitivity = _UNIT) -> Fraction:
    """The variance from which on the theorems hold: max(23 ln(10 d / delta), 2 Delta-infinity).

    Args:
        dimensions: d, the number of counts.
        delta: in (0, 1).
        sensitivity: of the counts.

    Raises:
        ParameterError: d is less than 1, or delta is out of range.
    """
    if dimensions < 1 or not 0 < delta < 1:
        raise ParameterError(f"a delta in (0, 1) and at least one count are needed, not {delta} and {dimensions}")
    return max(23 * log_up(Fraction(10 * dimensions, delta)), 2 * sensitivity.largest)


def binomial_epsilon(
    bits: int, p: Fraction, dimensions: int, delta: Fraction, sensitivity: Sensitivity = _UNIT
) -> Fraction:
    """The epsilon of noise Bin(N, p) on each of d counts.

    Args:
        bits: N, the number of coins; with p = 1/2 the bits of a prefix popcount.
        p: chance of each coin, in (0, 1).
        dimensions: d, the number of counts.
        delta: in (0, 1).
        sensitivity: of the counts.

    Raises:
        ParameterError: N p (1 - p) is smaller than `variance_needed`, or an argument is out of range.

    Source: specs/lossless 3.3, Theorem E.1 (Agarwal et al. 2018), vector B02.
    """
    if not 0 < p < 1:
        raise ParameterError(f"the chance of a coin must lie between 0 and 1, not {p}")
    q = 1 - p
    squares, cubes = p**2 + q**2, p**3 + q**3
    return _theorem(
        variance=bits * p * q,
        b=Fraction(2, 3) * squares + abs(1 - 2 * p),
        c=3 * cubes + 2 * squares,
        d=Fraction(4, 3) * squares,
        dimensions=dimensions,
        delta=delta,
        sensitivity=sensitivity,
    )


def poisson_epsilon(mean: Fraction, dimensions: int, delta: Fraction, sensitivity: Sensitivity = _UNIT) -> Fraction:
    """The epsilon of noise Poi(lambda) on each of d counts: the limit p -> 0 of `binomial_epsilon`.

    Args:
        mean: lambda.
        dimensions: d, the number of counts.
        delta: in (0, 1).
        sensitivity: of the counts.

    Raises:
        ParameterError: lambda is not above `variance_needed`, or an argument is out of range.

    Source: specs/lossless 3.3, Theorem E.2, vector P04.
    """
    return _theorem(
        variance=mean,
        b=Fraction(5, 3),
        c=Fraction(5),
        d=Fraction(4, 3),
        dimensions=dimensions,
        delta=delta,
        sensitivity=sensitivity,
    )


def poisson_epsilon_simple(mean: Fraction, dimensions: int, delta: Fraction) -> Fraction:
    """The shorter and wider form of `poisson_epsilon` for counts that move by one in one place, delta < 1/100.

    Raises:
        ParameterError: lambda is not above `variance_needed`, or an argument is out of range.

    Source: specs/lossless 3.3, Corollary E.3, vector P04.
    """
    if not delta < Fraction(1, 100):
        raise ParameterError(f"the short form holds for delta < 1/100, not {delta}")
    _enough(mean, dimensions, delta, _UNIT)
    rest = 2 * log_up(Fraction(20 * dimensions, delta)) * log_up(Fraction(10, delta))
    return root_up(Fraction(2 * log_up(Fraction(5, 4 * delta)), mean)) + Fraction(rest, mean)


def _theorem(
    *,
    variance: Fraction,
    b: Fraction,
    c: Fraction,
    d: Fraction,
    dimensions: int,
    delta: Fraction,
    sensitivity: Sensitivity,
) -> Fraction:
    """Theorem E.1 with its constants b_p, c_p / sqrt 2 and d_p."""
    _enough(variance, dimensions, delta, sensitivity)
    log_125, log_10 = log_up(Fraction(5, 4 * delta)), log_up(Fraction(10, delta))
    log_20 = log_up(Fraction(20 * dimensions, delta))
    first = root_up(Fraction(2 * log_125 * sensitivity.l2_squared, variance))
    second = c * root_up(2 * log_10 * sensitivity.l2_squared) + b * sensitivity.l1
    third = sensitivity.largest * (Fraction(2, 3) * log_125 + d * log_20 * log_10)
    return first + Fraction(second, variance * (1 - delta * Fraction(1, 10))) + Fraction(third, variance)


def _enough(variance: Fraction, dimensions: int, delta: Fraction, sensitivity: Sensitivity) -> None:
    needed = variance_needed(dimensions, delta, sensitivity)
    if not variance > needed:
        raise ParameterError(f"the theorem needs a variance above {-int(-needed // 1)}, not {variance}")


@dataclass(frozen=True, slots=True)
class PoissonDelta:
    """The exact delta of Poisson noise on one count that moves by one, rounded up.

    Attributes:
        low: in the direction in which the smaller count is the likelier: a release below what the larger one can give.
        high: in the other direction.
    """

    low: Fraction
    high: Fraction

    @property
    def delta(self) -> Fraction:
        """The larger of the two."""
        return max(self.low, self.high)


_REACH = 1 << 200


def poisson_delta(mean: Fraction, epsilon: Fraction) -> PoissonDelta:
    """The delta at which noise Poi(lambda) on one count is epsilon-private, both directions of a move by one.

    low = sum max(0, P(k) - e^epsilon P(k-1)), high = sum max(0, P(k) - e^epsilon P(k+1)), with weights relative to that
    of floor(lambda), followed to both sides until they are below 2^-200; the rest enters through geometric bounds.

    Args:
        mean: lambda, at least 1.
        epsilon: at least 0.

    Raises:
        ParameterError: an argument is out of range.

    Time: O(sqrt(lambda)) weights. Source: specs/lossless 3.3, vector P05.
    """
    if mean < 1 or epsilon < 0:
        raise ParameterError(f"poisson_delta needs lambda >= 1 and epsilon >= 0, not {mean} and {epsilon}")
    factor = exp_down(epsilon)
    mode = mean.numerator // mean.denominator
    first, falling = mode, [(Fraction(1), Fraction(1))]
    while first > 0 and falling[-1][1] * _REACH > 1:
        falling.append(_times(falling[-1], Fraction(first, mean)))
        first -= 1
    last, rising = mode, [(Fraction(1), Fraction(1))]
    while rising[-1][1] * _REACH > 1:
        last += 1
        rising.append(_times(rising[-1], Fraction(mean, last)))
    weights = falling[:0:-1] + rising  # bounds of P(first), ..., P(last), in units of P(mode)
    low = weights[0][1] * Fraction(mean, mean - first)  # all k <= first
    high = weights[-1][1] * Fraction(last + 1, last + 1 - mean)  # all k >= last
    for (least, most), (next_least, next_most) in pairwise(weights):
        low += max(Fraction(0), next_most - factor * least)
        high += max(Fraction(0), most - factor * next_least)
    total = sum((least for least, _ in weights), Fraction(0))
    return PoissonDelta(up(Fraction(low, total)), up(Fraction(high, total)))


def _times(bounds: tuple[Fraction, Fraction], ratio: Fraction) -> tuple[Fraction, Fraction]:
    return down(bounds[0] * ratio), up(bounds[1] * ratio)
