"""What a top-k selection costs a ledger."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.accounting.cost import Cost
from stream_dp.errors import ConfigError


def selection_cost(draws: int, epsilon: Fraction, delta: Fraction) -> Cost:
    """Price a top-k selection by the draws it made: what is returned is paid for, bottom included.

    Reserve the worst case, `draws = k`; commit `draws = len(items) + bottom`. Only epsilon is refunded: delta is
    the chance of the one bad event that every call has, whatever it returned.

    The basic term of the hardened bound: an output of r draws is, outside an event of probability
    delta / (1 + delta), at most e^(r epsilon) (1 + delta)^r as likely under a neighbour. That holds output by
    output, so along any transcript the factors multiply to at most e^(sum of committed epsilons), and the bad
    events add up to at most the sum of deltas. Mechanisms with an (epsilon, delta) of their own have the same form
    (the part of their output law above e^epsilon times the neighbour's weighs at most delta), so they may share
    the ledger and be chosen adaptively. Rounded up: ln(1 + delta) <= delta and delta / (1 + delta) <= delta.

    Args:
        draws: exponential-mechanism draws, at least 1.
        epsilon: price of one draw, as the mechanism was run with, above 0.
        delta: of one call, as the mechanism was run with, in (0, 1).

    Returns:
        (draws (epsilon + delta), delta).

    Raises:
        ConfigError: an argument is outside its range.

    Source: topk 3.4 (hardened statement, delta' = 0) and 2.7; the adaptive sum is the basic alternative of 3.5.
    """
    if draws < 1:
        raise ConfigError(f"a selection makes at least one draw, not {draws}: a lone bottom costs one")
    if epsilon <= 0 or not 0 < delta < 1:
        raise ConfigError(f"a draw needs epsilon > 0 and 0 < delta < 1, not {epsilon} and {delta}")
    return Cost(draws * (epsilon + delta), delta)
