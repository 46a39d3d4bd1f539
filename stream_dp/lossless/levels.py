"""Levels of a noise ladder as exact integers, and how large a noisy count must be before an unknown key is shown."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from stream_dp.errors import ParameterError
from stream_dp.exact.reals import exp_neg, log, smallest_power

WORD_BITS = 64
WORD = 1 << WORD_BITS
"""Words of the threshold process are uniform in [0, WORD)."""

_START_PRECISION = 2 * WORD_BITS


def threshold_for(epsilon_per_unit: Fraction) -> int:
    """The level of a nominal epsilon: A = ceil(2^64 e^-epsilon).

    Rounding upwards only adds noise: ln(2^64 / A) <= epsilon.

    Args:
        epsilon_per_unit: what a change of one count by one may cost, the level's epsilon over the L1 sensitivity.

    Raises:
        ParameterError: epsilon is not positive, or so small that A would be 2^64.

    Source: specs/lossless 6.3, vector D12.
    """
    if epsilon_per_unit <= 0:
        raise ParameterError(f"epsilon per count must be positive, not {epsilon_per_unit}")
    precision = _START_PRECISION
    while True:
        # e^-epsilon is irrational, so the ceiling is one more than the floor and the two ends agree in the end.
        lower, upper = ((end >> (precision - WORD_BITS)) + 1 for end in exp_neg(epsilon_per_unit, precision))
        if lower == upper:
            break
        precision *= 2
    if lower >= WORD:
        raise ParameterError(f"epsilon per count must be above 2^-64, not {epsilon_per_unit}")
    return lower


def noise_parameter(threshold: int) -> Fraction:
    """The parameter a = A / 2^64 of the discrete Laplace law at level A; larger is coarser.

    Raises:
        ParameterError: not 1 <= A < 2^64: A = 0 would be no noise at all, and from 2^64 on a clock never stops.
    """
    if not 1 <= threshold < WORD:
        raise ParameterError(f"a level must be an integer from 1 to 2^64 - 1, not {threshold}")
    return Fraction(threshold, WORD)


def epsilon_bound(threshold: int) -> Fraction:
    """Return the cost of a change of one count by one at level A: ln(2^64 / A), rounded up by less than 2^-60.

    The rounding can lie above the nominal epsilon that A was made for, which bounds the cost as well.

    Raises:
        ParameterError: not a level.

    Source: specs/lossless 7.5, D12.
    """
    a = noise_parameter(threshold)
    return Fraction(log(Fraction(a.denominator, a.numerator), WORD_BITS)[1], WORD)


_PRECISION = 256


def minimum_count(threshold: int, delta: Fraction) -> int:
    """Smallest tau with a^(tau - 1) / (1 + a) <= delta: P(1 + Z >= tau) at level A, exactly.

    Args:
        threshold: level A, a = A / 2^64.
        delta: chance that a key counted by one user is shown at this level, in (0, 1). For a ladder of m levels and
            l items per user: the whole delta over m l.

    Returns:
        tau >= 1; the key is shown where its noisy count is at least tau.

    Raises:
        ParameterError: not a level, or delta out of range.

    Source: specs/lossless 2.9.5 with c = 1, 2.9.4.
    """
    a = noise_parameter(threshold)
    if not 0 < delta < 1:
        raise ParameterError(f"delta must lie between 0 and 1, not {delta}")
    return 1 + smallest_power(a, delta * (1 + a))


def two_sided_from(threshold: int, minimum: int, confidence: Fraction) -> int:
    """Smallest noisy count whose interval has a lower end, given that a key is shown where that count is large.

    A key is shown where its own noisy count v at this level reaches `minimum` (not so behind a gate), so among shown
    keys larger noise is more frequent. With t from `discrete_laplace.interval`, the count c of the key lies in
    [v - t, v + t] where v is at least the number returned, and in [1, v + t] where it is smaller, with at least
    `confidence` given that the key is shown, whatever c >= 1 is. (A key that nobody counted for is never shown.) Where
    the number is above t + 2 no smaller one would do: for c = 1 a miss below has a chance of exactly a^s.

    Proof. Z is the noise, q = P(Z > t) = a^(t+1) / (1+a) <= (1 - confidence) / 2, and s the smallest with a^s <=
    1 - confidence; the number is minimum + s. A miss above is Z < -t, one below Z > t and Z >= minimum + s - c; the key
    is shown where Z >= minimum - c.

    * c <= minimum: no miss above is shown. P(Z >= n) = a^n / (1+a) for n >= 0, so a miss below has at most
      P(Z >= minimum + s - c) / P(Z >= minimum - c) = a^s.
    * c = minimum + d, 1 <= d <= t: no miss above is shown. One below has at most q / P(Z >= -d), and
      (1+a) P(Z >= -d) = 1 + a - a^(d+1) >= (1+a) / 2, since 2 a^2 <= 1 + a: at most 2 q.
    * d > t: no miss is P(|Z| <= t) / P(Z >= -d) >= 1 - 2 q.

    Args:
        threshold: level A, a = A / 2^64.
        minimum: smallest noisy count that is shown.
        confidence: in (0, 1).

    Raises:
        ParameterError: not a level, or the confidence is out of range.
    """
    if not 0 < confidence < 1:
        raise ParameterError(f"a confidence must lie between 0 and 1, not {confidence}")
    return minimum + smallest_power(noise_parameter(threshold), 1 - confidence)


def discovery_delta(levels: Sequence[tuple[int, int]], items_per_user: int) -> Fraction:
    """Return the delta of showing unknown keys, over all levels and all items of one user.

    The union bound l sum_i a_i^(tau_i - 1) / (1 + a_i), each power rounded up by less than 2^-250. With thresholds
    from `minimum_count` the exact bound is at most what was divided among them.

    The guarantee (epsilon of the finest level held, delta) also asks that no set of levels shows a user's own keys
    more often than its epsilon could hide: for the levels from the coarsest down to each a, the delta so far is at
    most 1 - a. It fails only for absurd settings, and is refused here.

    Args:
        levels: (A, minimum count) of every level of the ladder, coarse to fine.
        items_per_user: l, the number of keys one user counts for in one window, each once.

    Returns:
        An upper bound of the delta of one window.

    Raises:
        ParameterError: the ladder is not strictly coarse to fine, a number is out of range, or the condition fails.

    Source: specs/lossless 2.9.5, vector H03.
    """
    if items_per_user < 1 or any(count < 1 for _, count in levels):
        raise ParameterError("items per user and minimum counts must be at least 1")
    if levels:
        _coarsest([threshold for threshold, _ in levels])
    delta = Fraction(0)
    for threshold, count in levels:
        a = noise_parameter(threshold)
        delta += items_per_user * Fraction(_power_at_most(a, count - 1), 1 + a)
        if delta > 1 - a:
            raise ParameterError(
                f"minimum count {count} is too small for its level: the delta of the ladder down to it is more than "
                "1 - e^-(epsilon / items per user); spend less delta, or more epsilon"
            )
    return delta


def _coarsest(levels: Sequence[int]) -> int:
    """The first of a ladder's levels, which go from coarse to fine."""
    if not levels or any(coarse <= fine for coarse, fine in pairwise(levels)):
        raise ParameterError("the levels of a ladder must go from coarse to fine, each once")
    return levels[0]


def _power_at_most(a: Fraction, n: int) -> Fraction:
    """An upper bound of a^n = e^(-n ln(1/a)), above it by less than 2^-250, whatever the size of n."""
    precision = _PRECISION + n.bit_length()
    least, _ = log(Fraction(a.denominator, a.numerator), precision)
    _, upper = exp_neg(Fraction(n * least, 1 << precision), precision)
    return Fraction(upper, 1 << precision)
