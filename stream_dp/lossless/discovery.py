"""Unknown keys: how large a noisy count must be before its key is shown, and the delta that this costs.

A key that only one user counted for has count 1 with that user and does not exist without; the chance that it is
shown is the delta. It is not lossless: it adds over the levels of a ladder (specs/lossless 2.9.5, H03).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.reals import exp_neg, log, smallest_power
from stream_dp.lossless.levels import noise_parameter

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
    """What showing unknown keys adds to delta, over all levels and all items of one user.

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


def gate_delta(levels: Sequence[int], minimum: int, items_per_user: int) -> Fraction:
    """What showing unknown keys adds to delta where one gate decides for all levels which keys exist.

    The gate is the coarsest level: its delta is paid once, whatever finer levels print, at the price of missing
    small keys there. A gate at a finer level would tell coarse readers what they are not cleared for.

    Args:
        levels: A of every level of the ladder, coarse to fine.
        minimum: tau of the gate.
        items_per_user: l, the number of keys one user counts for in one window, each once.

    Returns:
        An upper bound of the delta of one window.

    Raises:
        ParameterError: as for `discovery_delta`.

    Source: specs/lossless 2.9.5 (single gate), vector H03.
    """
    return discovery_delta([(_coarsest(levels), minimum)], items_per_user)


def passing_gate(
    readings: Mapping[bytes, Sequence[int]], *, levels: Sequence[int], minimum: int
) -> dict[bytes, tuple[int, ...]]:
    """The readings of the keys that exist: those whose reading at the coarsest level reaches the gate.

    Args:
        readings: for every key its reading at every level, coarse to fine; `sealed.read_levels` has them by level.
        levels: A of those levels, coarse to fine.
        minimum: tau of the gate.

    Returns:
        All readings of the keys that pass, in the order of `readings`; every level prints exactly these keys.

    Raises:
        ParameterError: the levels do not go from coarse to fine, each once.
        StateError: a key does not have one reading per level.

    Source: specs/lossless 2.9.5 (single gate).
    """
    _coarsest(levels)
    if any(len(row) != len(levels) for row in readings.values()):
        raise StateError(f"a gate needs one reading per key and level; there are {len(levels)} levels")
    return {key: tuple(row) for key, row in readings.items() if row[0] >= minimum}


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
