"""The guarantee of top-k selections, one call or a whole ledger of them, and the epsilon of a draw for a target.

A call that returns r outputs, bottom included, is r draws of an exponential mechanism, so a ledger that stops after
`draws` outputs (k*) and `calls` calls (l*) composes that many draws, whatever was asked (specs/topk 2.7, 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from experiments.topk.composition import NO_STEPS, compose
from stream_dp.accounting.cost import Cost
from stream_dp.accounting.rounding import largest, log_up, up
from stream_dp.errors import ParameterError
from stream_dp.exact.checks import positive_faults


@dataclass(frozen=True, slots=True)
class Statement:
    """A theorem about selections, in two forms.

    Attributes:
        printed: as published. Its proof goes through an equality (Lemma 5.6) that is false for two draws and more; no
            violation of the theorem itself is known.
        hardened: proved without that equality, and what is reported: every draw costs ln(1 + delta) more, and the
            calls of a ledger cost delta once instead of twice.
    """

    printed: Cost
    hardened: Cost


def single_call(
    k: int, epsilon: Fraction, delta: Fraction, slack: Fraction = Fraction(0), *, tight_mean: bool = False
) -> Statement:
    """Theorem 1: one selection of up to k items, whatever it returns.

    Args:
        k: draws at most, at least 1; with the private choice of kbar, which is a draw, one more than the items.
        epsilon: price of one draw, as the selection was run with, above 0.
        delta: of the call, as the selection was run with, in (0, 1).
        slack: in [0, 1).
        tight_mean: as in `compose`.

    Returns:
        (eps'(k), delta + slack) as printed; (eps'(k) + k ln(1 + delta), delta / (1 + delta) + slack) hardened.

    Raises:
        ParameterError: an argument is out of range.

    Source: specs/topk 3.2, 3.4.
    """
    _check(k, 1, delta)
    epsilons = _epsilons(k, epsilon, delta, slack, tight_mean=tight_mean)
    return Statement(
        Cost(epsilons[0], delta + slack),
        Cost(epsilons[1], up(Fraction(delta, 1 + delta)) + slack),
    )


def pay_what_you_get(
    draws: int,
    calls: int,
    epsilon: Fraction,
    delta: Fraction,
    slack: Fraction = Fraction(0),
    *,
    tight_mean: bool = False,
) -> Statement:
    """Theorem 2: any number of adaptive selections until `draws` outputs or `calls` calls are used up.

    The table, k and kbar of a call may depend on earlier outputs; epsilon and delta may not (ledgers, which add up
    exact costs, admit that).

    Args:
        draws: k*, outputs paid for, at least 1; bottom counts as one.
        calls: l*, selections run, at least 1. More than `draws` are of no use.
        epsilon: price of one draw, above 0.
        delta: of one call, in (0, 1).
        slack: delta', in [0, 1).
        tight_mean: as in `compose`.

    Returns:
        (eps*, 2 l* delta + delta') as printed; (eps* + k* ln(1 + delta), l* delta + delta') hardened.

    Raises:
        ParameterError: an argument is out of range.

    Source: specs/topk 3.3, 3.4.
    """
    _check(draws, calls, delta)
    epsilons = _epsilons(draws, epsilon, delta, slack, tight_mean=tight_mean)
    return Statement(Cost(epsilons[0], 2 * calls * delta + slack), Cost(epsilons[1], calls * delta + slack))


def epsilon_per_draw(target: Fraction, draws: int, slack: Fraction, *, tight_mean: bool = False) -> Fraction:
    """The largest epsilon of a draw that keeps eps*(k*) at a target, rounded down to 64 significant bits.

    Args:
        target: epsilon of all draws together, above 0, without the k* ln(1 + delta) of the hardened statement.
        draws: k*, at least 1.
        slack: in [0, 1).
        tight_mean: as in `compose`.

    Raises:
        ParameterError: an argument is out of range.

    Source: specs/topk 3.3, inverse of eq. (3).
    """
    _check_epsilon(target)
    _check(draws, 1)
    return largest(lambda epsilon: compose({epsilon: draws}, NO_STEPS, slack, tight_mean=tight_mean).epsilon <= target)


def _epsilons(
    draws: int, epsilon: Fraction, delta: Fraction, slack: Fraction, *, tight_mean: bool
) -> tuple[Fraction, Fraction]:
    _check_epsilon(epsilon)
    printed = compose({epsilon: draws}, NO_STEPS, slack, tight_mean=tight_mean).epsilon
    return printed, printed + draws * log_up(1 + delta)


def _check(draws: int, calls: int, delta: Fraction | None = None) -> None:
    if draws < 1 or calls < 1:
        raise ParameterError(f"a ledger of selections needs at least one draw and one call, not {draws} and {calls}")
    if delta is not None and not 0 < delta < 1:
        raise ParameterError(f"the delta of a call must lie between 0 and 1, not {delta}")


def _check_epsilon(epsilon: Fraction) -> None:
    if faults := positive_faults(epsilon=epsilon):
        raise ParameterError(faults)
