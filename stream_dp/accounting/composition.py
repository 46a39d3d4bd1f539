"""The composition theorems: exact costs of many releases in, upper bounds out.

A step is chosen in reaction to everything released before it. `slack` is the delta' that a theorem adds to the deltas
of the steps for its bad event; it is a parameter of the analysis, no run depends on it. Every epsilon that is returned
is rounded up, and every parameter found for a target is rounded down.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from stream_dp.accounting.rounding import largest, log_down, log_up, root_up
from stream_dp.errors import ParameterError
from stream_dp.exact.checks import chance_faults, nonnegative_faults, positive_faults, refuse
from stream_dp.exact.reals import log


def zcdp_epsilon(rho: Fraction, slack: Fraction) -> Fraction:
    """The epsilon of rho-zCDP at delta = slack, below the usual rho + 2 sqrt(rho ln(1/slack)).

    The least of rho alpha + ln(1 - 1/alpha) - ln(alpha slack) / (alpha - 1) over alpha > 1. Its derivative is
    rho - ln(1 / (alpha slack)) / (alpha - 1)^2, which changes sign once, and any alpha near there gives a bound. Since
    the Renyi filter of every order holds with adaptively chosen steps, so does this one where the sum of their rhos
    stays at most rho. It bounds the pair (epsilon, slack), not the chance that the loss exceeds epsilon; how it adds up
    with costs of other kinds whose steps come between those of this one is shown in `accounting.ledger`.

    Args:
        rho: at least 0.
        slack: in (0, 1).

    Raises:
        ParameterError: an argument is out of range.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12; Feldman and Zrnic 2021 for the filter.
    """
    refuse(chance_faults(slack=slack) + nonnegative_faults(rho=rho))
    if rho == 0:
        return Fraction(0)
    order = _best_order(rho, slack)
    return renyi_epsilon(order * rho, order, slack)


@lru_cache(maxsize=256)  # a file is planned many times over while settings are compared
def rho_within(epsilon: Fraction, slack: Fraction) -> Fraction:
    """The largest rho with zcdp_epsilon(rho, slack) <= epsilon, rounded down to 64 significant bits.

    Raises:
        ParameterError: epsilon is not positive, or slack is out of range.
    """
    refuse(positive_faults(epsilon=epsilon) + chance_faults(slack=slack))
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


def discrete_laplace_rho(a: Fraction) -> Fraction:
    """The zCDP of discrete Laplace noise for a shift of one: epsilon tanh(epsilon / 2), epsilon = ln(1/a).

    It is the limit of the divergence over alpha at alpha = 1, and no order needs more: with alpha = 1/2 + s,
    (alpha - 1) D = ln cosh(epsilon s) - ln cosh(epsilon / 2) is concave in s^2, and alpha (alpha - 1) = s^2 - 1/4.

    Raises:
        ParameterError: a is not between 0 and 1.

    Source: specs/lossless 3.6, vector A03.
    """
    refuse(chance_faults(a=a))
    return log_up(Fraction(1, a)) * Fraction(1 - a, 1 + a)


def renyi_epsilon(divergence: Fraction, alpha: Fraction, delta: Fraction) -> Fraction:
    """The epsilon that a bound on the Renyi divergence of an order gives at a delta: (epsilon, delta)-DP.

    Args:
        divergence: the bound, in both directions, for instance a sum over snapshots.
        alpha: the order, above 1.
        delta: in (0, 1).

    Returns:
        divergence + ln(1 - 1/alpha) - ln(alpha delta) / (alpha - 1), or 0 where that is negative.

    Raises:
        ParameterError: delta or the order is out of range.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12.
    """
    refuse(chance_faults(delta=delta))
    if alpha <= 1:
        raise ParameterError(f"a Renyi order must be above 1, not {alpha}")
    beyond = log_up(1 - Fraction(1, alpha)) - Fraction(log_down(alpha * delta), alpha - 1)
    return max(Fraction(0), divergence + beyond)


_STEPS = 10**12
"""Costs are rounded up to whole parts of this, so that sums of many keep a small denominator."""


def ladder_rho(ratios: Sequence[Fraction], moved: int, shown: Fraction) -> list[tuple[Fraction, Fraction]]:
    """The zCDP of counts at the levels of a ladder: released first, and as a step from a coarser level.

    Released first, a level costs `moved` times e tanh(e/2), with e = ln(1/a). All coarser levels are then free, now or
    later: they are post-processing of it. A step from any coarser levels to it costs `moved` times e^2 / 2, whichever
    they are and whoever asks for it and why: given what they showed, the loss of the finer one takes two values 2e
    apart, so the cumulant K of what is added has K(0) = K(-1) = 0 and K'' <= (2e)^2 / 4, hence
    K(t) <= (e^2 / 2) t (t + 1). A key that only one of two neighbours has, once it is not shown, adds at most
    -ln(1 - p) <= p / (1 - p) in place of that.

    Args:
        ratios: the parameters a of the noise, coarse to fine, so falling.
        moved: how many counts one user moves, each by one.
        shown: p, the chance that a key that only one user has is shown at any level; 0 where keys are chosen otherwise.

    Returns:
        For each level what it costs first and what it costs as a step, rounded up. Both rise; the first is the less.

    Source: specs/lossless 3.6 and 3.7; the bound on a step as in specs/topk 3.4, tighter mean.
    """
    least = Fraction(shown, 1 - shown)
    costs = ((discrete_laplace_rho(a), log_up(Fraction(1, a)) ** 2 * Fraction(1, 2)) for a in ratios)
    return [(_rounded_up(moved * max(first, least)), _rounded_up(moved * max(step, least))) for first, step in costs]


def gaussian_rho(variance: Fraction, moved: int, shown: Fraction) -> Fraction:
    """The zCDP of counts with discrete Gaussian noise, and of all that is made from them without the data.

    Args:
        variance: the parameter of the noise, sigma^2.
        moved: as in `ladder_rho`.
        shown: as in `ladder_rho`.

    Returns:
        `moved` times 1 / (2 variance), rounded up.

    Source: Canonne, Kamath and Steinke 2020, Proposition 5.
    """
    one = Fraction(1, 2 * variance)
    return _rounded_up(moved * max(one, Fraction(shown, 1 - shown)))


def _rounded_up(value: Fraction) -> Fraction:
    return Fraction(-(-value.numerator * _STEPS // value.denominator), _STEPS)
