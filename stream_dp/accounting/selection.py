"""What a top-k selection costs a ledger."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.accounting.cost import Cost
from stream_dp.errors import ParameterError


def selection_cost(draws: int, epsilon: Fraction, delta: Fraction, *, squared: bool = False) -> Cost:
    """Price a top-k selection by the draws it made: what is returned is paid for, bottom included.

    Reserve the worst case, `draws = k`; commit `draws = len(items) + bottom`. Delta is not refunded: it is the chance
    of the one bad event that every call has, whatever it returned.

    The hardened bound: an output of r draws is, outside an event of probability delta / (1 + delta), at most
    (1 + delta)^r times as likely under a neighbour as r draws of an exponential mechanism over common items make it.
    Those draws are epsilon-bounded-range, one after another, each chosen by those before it. Their price is either
    r epsilon, the most that they can lose (the basic term), or, for a ledger that filters on squares, r epsilon^2,
    on which the third term of Lemma 4.4 rests (`squares_epsilon`). The factor (1 + delta)^r holds output by output
    and goes to the pure part in any case. Along any transcript the factors multiply, and the bad events add up to at
    most the sum of deltas. Mechanisms with an (epsilon, delta) of their own have the same form (the part of their
    output law above e^epsilon times the neighbour's weighs at most delta), so they may share the ledger and be
    chosen adaptively. Rounded up: ln(1 + delta) <= delta and delta / (1 + delta) <= delta.

    Args:
        draws: exponential-mechanism draws, at least 1; a private choice of kbar is one more (specs/topk 2.6).
        epsilon: price of one draw, as the mechanism was run with, above 0.
        delta: of one call, as the mechanism was run with, in [0, 1); 0 for a known domain, which has no bottom.
        squared: whether the ledger has a part for draws, a filter on squares.

    Returns:
        (draws (epsilon + delta), delta), or with `squared` (draws delta, delta) and squares of draws epsilon^2.

    Raises:
        ParameterError: an argument is outside its range.

    Source: specs/topk 3.4 (hardened statement) and 2.7; 3.5 for epsilons that change from call to call.
    """
    if draws < 1:
        raise ParameterError(f"a selection makes at least one draw, not {draws}: a lone bottom costs one")
    if epsilon <= 0 or not 0 <= delta < 1:
        raise ParameterError(f"a draw needs epsilon > 0 and 0 <= delta < 1, not {epsilon} and {delta}")
    if squared:
        return Cost(draws * delta, delta, squares=draws * epsilon**2)
    return Cost(draws * (epsilon + delta), delta)
