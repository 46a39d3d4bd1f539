"""What many mechanisms of fixed epsilons cost together, with an advanced composition theorem: as in the papers.

Ledgers add up exact costs as they come (`stream_dp.accounting`); they need none of this. A step is chosen in reaction
to everything released before it. `slack` is the delta' that a theorem adds to the deltas of the steps for its bad
event; it is a parameter of the analysis, no run depends on it. Every epsilon that is returned is rounded up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.cost import Cost
from stream_dp.accounting.rounding import down, exp_up, log_up, root_up
from stream_dp.errors import ParameterError
from stream_dp.exact.checks import chance_faults, nonnegative_faults, refuse

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

    How many steps there are of each epsilon is fixed beforehand; ledgers admit steps that are not. With no draws this
    is Theorem 3, with nothing but draws Lemma 4.4, and with the noise of measured counts as `pure` the price of a
    selection with counts. The loss of a draw has mean at most e^2/2 and lies in an interval of length e, that of an
    e-DP mechanism has mean at most e tanh(e/2) <= e^2/2 and lies in one of length 2e.

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
    refuse(chance_faults(slack=slack))
    drawn, other = _squares(draws), _squares(pure)
    mean = sum((count * epsilon * tanh_half_up(epsilon) for epsilon, count in steps), Fraction(0))
    drawn_mean = drawn * Fraction(1, 8 if tight_mean else 2)
    return Bounds(
        basic,
        azuma_hoeffding(mean, 4 * (drawn + other), slack),
        azuma_hoeffding(drawn_mean + other * Fraction(1, 2), drawn + 4 * other, slack),
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


def azuma_hoeffding(mean: Fraction, squared_ranges: Fraction, slack: Fraction) -> Fraction:
    """Return the bound of a sum of losses but for probability slack: mean + sqrt(sum r_i^2 ln(1/slack) / 2), Theorem 4.

    Args:
        mean: bound on the sum of the means, each given what came before.
        squared_ranges: bound on the sum of the squared lengths of the intervals the losses lie in.
        slack: in (0, 1).
    """
    return mean + root_up(squared_ranges * log_up(Fraction(1, slack)) * Fraction(1, 2))


def tanh_half_up(x: Fraction) -> Fraction:
    """tanh(x/2) = (e^x - 1) / (e^x + 1), rounded up, for x of at least 0."""
    return 1 - down(Fraction(2, exp_up(x) + 1))


def _squares(steps: Steps) -> Fraction:
    return sum((count * epsilon**2 for epsilon, count in steps.items()), Fraction(0))


def _check_steps(**steps: Steps) -> None:
    for name, group in steps.items():
        refuse([fault for epsilon in group for fault in nonnegative_faults(**{f"the epsilon of {name}": epsilon})])
        for count in group.values():
            if not isinstance(count, int) or count < 0:
                raise ParameterError(f"the number of {name} must be a whole number of at least 0, not {count!r}")
