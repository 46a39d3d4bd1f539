"""The cost of a top-k selection: by the draw, or by the call."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.accounting.cost import Cost
from stream_dp.accounting.rounding import exp_up, largest, log_up
from stream_dp.errors import ParameterError


def selection_cost(draws: int, epsilon: Fraction, delta: Fraction, *, pooled: bool = False) -> Cost:
    """Price a top-k selection by the draws it made: what is returned is paid for, bottom included.

    Reserve the worst case, `draws = k`; commit `draws = len(items) + bottom`. Delta is not refunded: it is the chance
    of the one bad event that every call has, whatever it returned.

    The hardened bound: an output of r draws is, outside an event of probability delta / (1 + delta), at most
    (1 + delta)^r times as likely under a neighbour as r draws of an exponential mechanism over common items make it.
    Those draws are epsilon-bounded-range, one after another, each chosen by those before it. Their price is either
    r epsilon, the most that they can lose, or, in a ledger with a pool, rho of r epsilon^2 / 8: a draw's loss lies in
    an interval of length epsilon, so its cumulant K has K(0) = K(-1) = 0 and K'' <= epsilon^2 / 4, hence
    K(t) <= (epsilon^2 / 8) t (t + 1). The factor (1 + delta)^r holds output by output and is charged as epsilon in any
    case. How all that adds up with other costs is shown in `accounting.ledger`. Rounded up: ln(1 + delta) <= delta and
    delta / (1 + delta) <= delta.

    Args:
        draws: exponential-mechanism draws, at least 1; a private choice of kbar is one more (specs/topk 2.6).
        epsilon: price of one draw, as the mechanism was run with, above 0.
        delta: of one call, as the mechanism was run with, in [0, 1); 0 for a known domain, which has no bottom.
        pooled: whether the ledger has a pool, counted in rho.

    Returns:
        (draws (epsilon + delta), delta), or with `pooled` (draws delta, delta) and rho of draws epsilon^2 / 8.

    Raises:
        ParameterError: an argument is outside its range.

    Source: specs/topk 3.4 (hardened statement) and 2.7; 3.5 for epsilons that change from call to call.
    """
    if draws < 1:
        raise ParameterError(f"a selection makes at least one draw, not {draws}: a lone bottom costs one")
    if epsilon <= 0 or not 0 <= delta < 1:
        raise ParameterError(f"a draw needs epsilon > 0 and 0 <= delta < 1, not {epsilon} and {delta}")
    if pooled:
        return Cost(draws * delta, delta, rho=draws * epsilon**2 * Fraction(1, 8))
    return Cost(draws * (epsilon + delta), delta)


def laplace_selection_cost(items_per_user: int, epsilon: Fraction, delta: Fraction) -> Cost:
    """Price a selection with Laplace noise of scale 1/epsilon, whatever it returned and whatever k was.

    There is no refund, and its draws are no draws of an exponential mechanism: many calls add up by Theorem 3.

    Args:
        items_per_user: Delta, the counts one user moves, at least 1.
        epsilon: inverse scale of the noise, above 0.
        delta: that the threshold was computed with, in (0, 1); not what is delivered, which is about ten times more.

    Returns:
        (Delta epsilon, (e^(Delta epsilon) + 1) (delta / 4) (3 + ln(Delta / delta))), rounded up.

    Raises:
        ParameterError: an argument is outside its range.

    Source: specs/topk 2.4, 3.6 (Durfee and Rogers 2019, Lemmas 6.1, 6.3; the constant 3 is not tight, 2 would be).
    """
    _check(items_per_user, epsilon, delta)
    total = items_per_user * epsilon
    return Cost(total, _factor(total) * _tail(items_per_user, delta))


def _check(items_per_user: int, epsilon: Fraction, delta: Fraction) -> None:
    if items_per_user < 1 or epsilon <= 0 or not 0 < delta < 1:
        raise ParameterError(
            "a Laplace selection needs at least one item per user, epsilon > 0 and 0 < delta < 1, "
            f"not {items_per_user}, {epsilon} and {delta}"
        )


def _factor(total: Fraction) -> Fraction:
    return exp_up(total) + 1


def _tail(items_per_user: int, delta: Fraction) -> Fraction:
    return delta * Fraction(1, 4) * (3 + log_up(Fraction(items_per_user, delta)))


def laplace_selection_delta(delivered: Fraction, items_per_user: int, epsilon: Fraction) -> Fraction:
    """The largest delta for the threshold of a Laplace selection that delivers at most a delta.

    Args:
        delivered: the delta that the selection may cost, in (0, 1).
        items_per_user: as in `laplace_selection_cost`.
        epsilon: as in `laplace_selection_cost`.

    Returns:
        A number below `delivered`, rounded down to 64 significant bits.

    Raises:
        ParameterError: an argument is outside its range.

    Source: specs/topk 2.4.
    """
    _check(items_per_user, epsilon, delivered)
    tail = Fraction(delivered, _factor(items_per_user * epsilon))
    return largest(lambda delta: delta < delivered and _tail(items_per_user, delta) <= tail)


def fixed_threshold_cost(k: int, epsilon: Fraction, delta: Fraction) -> Cost:
    """Price a selection against a threshold without noise (Theorem 5): the set of items above it, in no order.

    Args:
        k: items it looks at, at least 1.
        epsilon: inverse scale of the Laplace noise, above 0.
        delta: that the threshold was computed with, for one item, in (0, 1/2].

    Returns:
        (k epsilon, k delta).

    Raises:
        ParameterError: an argument is outside its range.

    Source: specs/topk 2.9 (Durfee and Rogers 2019, Theorem 5).
    """
    if k < 1 or epsilon <= 0 or not 0 < delta <= Fraction(1, 2):
        raise ParameterError(f"k >= 1, epsilon > 0 and 0 < delta <= 1/2 are needed, not {k}, {epsilon} and {delta}")
    return Cost(k * epsilon, k * delta)
