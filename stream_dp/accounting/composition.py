"""The composition theorems: exact costs of many releases in, upper bounds out.

A step is chosen in reaction to everything released before it. `slack` is the delta' that a theorem adds to the deltas
of the steps for its bad event; it is a parameter of the analysis, no run depends on it. Every epsilon that is returned
is rounded up, and every parameter found for a target is rounded down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.cost import Cost
from stream_dp.accounting.curves import approximate_epsilon, zcdp_curve
from stream_dp.accounting.rounding import check_target, largest, log_up, root_up, tanh_half_up
from stream_dp.errors import ParameterError
from stream_dp.exact.reals import log

Steps = Mapping[Fraction, int]
"""Number of steps of each epsilon."""

NO_STEPS: Steps = {}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Terms of a composition theorem for the same steps; all hold, and the least is promised.

    Attributes:
        basic: the sum of the epsilons; holds at slack 0.
        advanced: from the mean and the range of a loss under pure DP; None at slack 0.
        bounded_range: from the half as long range of a selection's loss; None at slack 0.
    """

    basic: Fraction
    advanced: Fraction | None
    bounded_range: Fraction | None

    @property
    def epsilon(self) -> Fraction:
        """The least of the terms."""
        return min(term for term in (self.basic, self.advanced, self.bounded_range) if term is not None)


def compose(draws: Steps, pure: Steps, slack: Fraction, *, tight_mean: bool = False) -> Bounds:
    """Compose draws of selections with mechanisms under pure DP, in any order, each in reaction to what came before.

    How many steps there are of each epsilon is fixed beforehand; `squares_epsilon` is for steps that are not. With no
    draws this is Theorem 3, with nothing but draws Lemma 4.4, and with the noise of measured counts as `pure` the price
    of a selection with counts. The loss of a draw has mean at most e^2/2 and lies in an interval of length e, that of
    an e-DP mechanism has mean at most e tanh(e/2) <= e^2/2 and lies in one of length 2e.

    Args:
        draws: epsilon-bounded-range steps: exponential-mechanism draws from counts, bottom included.
        pure: epsilon-DP steps: counts with Laplace noise, discrete or not.
        slack: in [0, 1); at 0 only the basic term is finite.
        tight_mean: use that a step whose loss has range r has mean loss at most r^2/8, its cumulant function being 0 at
            0 and -1 with a second derivative of at most r^2/4; a draw gains a factor of 4, a pure step nothing.

    Raises:
        ParameterError: an argument is out of range.

    Guarantee: (`Bounds.epsilon`, slack)-DP. Time: one exponential per different epsilon, two roots.
    Source: specs/topk 3.1, 2.11 (Durfee and Rogers 2019, Theorem 3, Lemma 4.4); tight_mean: specs/topk 3.4.
    """
    _check_steps(draws=draws, pure=pure)
    steps = [*draws.items(), *pure.items()]
    basic = sum((count * epsilon for epsilon, count in steps), Fraction(0))
    if slack == 0:
        return Bounds(basic, None, None)
    _check_slack(slack)
    drawn, other = _squares(draws), _squares(pure)
    mean = sum((count * epsilon * tanh_half_up(epsilon) for epsilon, count in steps), Fraction(0))
    drawn_mean = drawn * Fraction(1, 8 if tight_mean else 2)
    return Bounds(
        basic,
        _azuma_hoeffding(mean, 4 * (drawn + other), slack),
        _azuma_hoeffding(drawn_mean + other * Fraction(1, 2), drawn + 4 * other, slack),
    )


def general_cost(costs: Mapping[Cost, int], slack: Fraction) -> Cost:
    """Theorem 3: mechanisms of any kind, each with an epsilon and a delta, chosen adaptively from a fixed list.

    Many calls of the Laplace selection are {laplace_selection_cost(...): calls}.

    Args:
        costs: how many mechanisms there are of each cost.
        slack: in [0, 1).

    Raises:
        ParameterError: an argument is out of range.

    Guarantee: what is returned, as (epsilon, delta)-DP: the sum of the deltas and slack. Source: specs/topk 3.1, 3.6.
    """
    steps: dict[Fraction, int] = {}
    if any(cost != Cost(cost.epsilon, cost.delta) for cost in costs):
        raise ParameterError("Theorem 3 composes costs of an epsilon and a delta, and of nothing else")
    for cost, count in costs.items():
        steps[cost.epsilon] = steps.get(cost.epsilon, 0) + count
    delta = sum((count * cost.delta for cost, count in costs.items()), slack)
    return Cost(compose(NO_STEPS, steps, slack).epsilon, delta)


def squares_epsilon(squares: Fraction, slack: Fraction) -> Fraction:
    """The guarantee of a filter on squares: C/2 + sqrt(C ln(1/slack) / 2).

    For steps that are epsilon_i-bounded-range, epsilon_i chosen in reaction to earlier outputs, as long as the sum of
    epsilon_i^2 stays at most C on every path. A step's loss has mean at most epsilon_i^2 / 2 and lies in an interval
    of length epsilon_i, so exp(t (loss - epsilon_i^2 / 2) - t^2 epsilon_i^2 / 8) multiplies to a supermartingale; with
    t = 2 b / C the total loss exceeds C/2 + b with probability at most exp(-2 b^2 / C).

    Args:
        squares: C, at least 0.
        slack: in (0, 1).

    Raises:
        ParameterError: an argument is out of range.

    Source: specs/topk 3.5, third term of Lemma 4.4 (Durfee and Rogers 2019).
    """
    _check_slack(slack)
    _at_least_0(squares=squares)
    return _azuma_hoeffding(squares * Fraction(1, 2), squares, slack)


def squares_within(epsilon: Fraction, slack: Fraction) -> Fraction:
    """The largest C with squares_epsilon(C, slack) <= epsilon, rounded down to 64 significant bits.

    Raises:
        ParameterError: epsilon is not positive, or slack is out of range.
    """
    check_target(epsilon)
    _check_slack(slack)
    return largest(lambda squares: squares_epsilon(squares, slack) <= epsilon)


def zcdp_epsilon(rho: Fraction, slack: Fraction) -> Fraction:
    """The epsilon of rho-zCDP at delta = slack, below the usual rho + 2 sqrt(rho ln(1/slack)).

    The least of rho alpha + ln(1 - 1/alpha) - ln(alpha slack) / (alpha - 1) over alpha > 1. Its derivative is
    rho - ln(1 / (alpha slack)) / (alpha - 1)^2, which changes sign once, and any alpha near there gives a bound. Since
    the Renyi filter of every order holds with adaptively chosen steps, so does this one where the sum of their rhos
    stays at most rho. It bounds the pair (epsilon, slack), not the chance that the loss exceeds epsilon; how it adds up
    with filters of other kinds whose steps come between those of this one is shown in `accounting.ledger`.

    Args:
        rho: at least 0.
        slack: in (0, 1).

    Raises:
        ParameterError: an argument is out of range.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12; Feldman and Zrnic 2021 for the filter.
    """
    _check_slack(slack)
    _at_least_0(rho=rho)
    if rho == 0:
        return Fraction(0)
    return approximate_epsilon(zcdp_curve(rho), slack, [_best_order(rho, slack)])


def rho_within(epsilon: Fraction, slack: Fraction) -> Fraction:
    """The largest rho with zcdp_epsilon(rho, slack) <= epsilon, rounded down to 64 significant bits.

    Raises:
        ParameterError: epsilon is not positive, or slack is out of range.
    """
    check_target(epsilon)
    _check_slack(slack)
    return largest(lambda rho: zcdp_epsilon(rho, slack) <= epsilon)


_ORDER_BITS = 64
_ORDER_STEPS = 32


def _best_order(rho: Fraction, slack: Fraction) -> Fraction:
    """An order alpha just above the root of (alpha - 1)^2 rho = ln(1 / (alpha slack)); rounding is harmless here."""
    limit = log(Fraction(1, slack), _ORDER_BITS)[1]
    low, high = Fraction(0), min(root_up(Fraction(limit, rho) * Fraction(1, 1 << _ORDER_BITS)), Fraction(1, slack))
    for _ in range(_ORDER_STEPS):
        middle = (low + high) * Fraction(1, 2)
        if middle**2 * rho * (1 << _ORDER_BITS) + log(1 + middle, _ORDER_BITS)[0] < limit:
            low = middle
        else:
            high = middle
    return 1 + high


def _azuma_hoeffding(mean: Fraction, squared_ranges: Fraction, slack: Fraction) -> Fraction:
    """Return the bound of a sum of losses but for probability slack: mean + sqrt(sum r_i^2 ln(1/slack) / 2), Theorem 4.

    Args:
        mean: bound on the sum of the means, each given what came before.
        squared_ranges: bound on the sum of the squared lengths of the intervals the losses lie in.
        slack: in (0, 1).
    """
    return mean + root_up(squared_ranges * log_up(Fraction(1, slack)) * Fraction(1, 2))


def _squares(steps: Steps) -> Fraction:
    return sum((count * epsilon**2 for epsilon, count in steps.items()), Fraction(0))


def _check_steps(**steps: Steps) -> None:
    for name, group in steps.items():
        for epsilon, count in group.items():
            if not isinstance(epsilon, Fraction) or epsilon < 0:
                raise ParameterError(f"the epsilon of {name} must be an exact fraction of at least 0, not {epsilon!r}")
            if not isinstance(count, int) or count < 0:
                raise ParameterError(f"the number of {name} must be a whole number of at least 0, not {count!r}")


def _check_slack(slack: Fraction) -> None:
    if not isinstance(slack, Fraction) or not 0 < slack < 1:
        raise ParameterError(f"slack must be an exact fraction between 0 and 1, not {slack!r}")


def _at_least_0(**numbers: Fraction) -> None:
    for name, number in numbers.items():
        if not isinstance(number, Fraction) or number < 0:
            raise ParameterError(f"{name} must be an exact fraction of at least 0, not {number!r}")
