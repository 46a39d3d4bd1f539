"""What a selection with Laplace noise costs: per call, not per draw, whatever it returned."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.accounting.composition import general_cost
from stream_dp.accounting.cost import Cost
from stream_dp.accounting.inverse import largest
from stream_dp.accounting.rounding import exp_up, log_up
from stream_dp.errors import ParameterError


def laplace_selection_cost(items_per_user: int, epsilon: Fraction, delta: Fraction) -> Cost:
    """Price a selection with Laplace noise of scale 1/epsilon, whatever it returned and whatever k was.

    There is no refund, and its draws are no draws of `compose`: many calls add up by `general_cost`.

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


def fixed_threshold_cost(k: int, epsilon: Fraction, delta: Fraction, slack: Fraction = Fraction(0)) -> Cost:
    """Price a selection against a threshold without noise (Theorem 5): the set of items above it, in no order.

    Args:
        k: items it looks at, at least 1.
        epsilon: inverse scale of the Laplace noise, above 0.
        delta: that the threshold was computed with, for one item, in (0, 1/2].
        slack: in [0, 1); above 0 it buys the advanced term where that is less.

    Returns:
        (the least of k epsilon and the advanced term, k delta + slack).

    Raises:
        ParameterError: an argument is outside its range.

    Source: specs/topk 2.9 (Durfee and Rogers 2019, Theorem 5).
    """
    if k < 1 or epsilon <= 0 or not 0 < delta <= Fraction(1, 2):
        raise ParameterError(f"k >= 1, epsilon > 0 and 0 < delta <= 1/2 are needed, not {k}, {epsilon} and {delta}")
    return general_cost({Cost(epsilon, delta): k}, slack)
