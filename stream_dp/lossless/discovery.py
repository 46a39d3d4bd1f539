"""Unknown keys: how large a noisy count must be before its key is shown, and the delta that this costs.

A key that only one user counted for has count 1 with that user and does not exist without; the chance that it is
shown is the delta. It is not lossless: it adds over the levels of a ladder (lossless 2.9.5, H03).
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

    Source: lossless 2.9.5 with c = 1, 2.9.4.
    """
    a = noise_parameter(threshold)
    if not 0 < delta < 1:
        raise ParameterError(f"delta must lie between 0 and 1, not {delta}")
    return 1 + smallest_power(a, delta * (1 + a))


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

    Source: lossless 2.9.5, vector H03.
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

    Source: lossless 2.9.5 (single gate), vector H03.
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

    Source: lossless 2.9.5 (single gate).
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
