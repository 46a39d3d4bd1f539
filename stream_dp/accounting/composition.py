"""What many releases cost together: the composition theorems, exact numbers in, upper bounds out.

A step is chosen in reaction to everything released before it. `slack` is the delta' that a theorem adds to the deltas
of the steps for its bad event; it is a parameter of the analysis, no run depends on it. Every epsilon that is returned
is rounded up, and every parameter found for a target is rounded down.
"""

from __future__ import annotations

from fractions import Fraction

from stream_dp.accounting.curves import approximate_epsilon, zcdp_curve
from stream_dp.accounting.inverse import check_target, largest
from stream_dp.accounting.rounding import log_up, root_up
from stream_dp.errors import ConfigError
from stream_dp.exact.reals import log


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
        ConfigError: an argument is out of range.

    Source: topk 3.5, third term of Lemma 4.4 (Durfee and Rogers 2019).
    """
    _check_slack(slack)
    _at_least_0(squares=squares)
    return squares * Fraction(1, 2) + root_up(squares * log_up(Fraction(1, slack)) * Fraction(1, 2))


def squares_within(epsilon: Fraction, slack: Fraction) -> Fraction:
    """The largest C with squares_epsilon(C, slack) <= epsilon, rounded down to 64 significant bits.

    Raises:
        ConfigError: epsilon is not positive, or slack is out of range.
    """
    check_target(epsilon)
    _check_slack(slack)
    return largest(lambda squares: squares_epsilon(squares, slack) <= epsilon)


def zcdp_epsilon(rho: Fraction, slack: Fraction) -> Fraction:
    """The epsilon of rho-zCDP at delta = slack, below the usual rho + 2 sqrt(rho ln(1/slack)).

    The least of rho alpha + ln(1 - 1/alpha) - ln(alpha slack) / (alpha - 1) over alpha > 1. Its derivative is
    rho - ln(1 / (alpha slack)) / (alpha - 1)^2, which changes sign once, and any alpha near there gives a bound. Since
    the Renyi filter of every order holds with adaptively chosen steps, so does this one where the sum of their rhos
    stays at most rho.

    Args:
        rho: at least 0.
        slack: in (0, 1).

    Raises:
        ConfigError: an argument is out of range.

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
        ConfigError: epsilon is not positive, or slack is out of range.
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


def _check_slack(slack: Fraction) -> None:
    if not isinstance(slack, Fraction) or not 0 < slack < 1:
        raise ConfigError(f"slack must be an exact fraction between 0 and 1, not {slack!r}")


def _at_least_0(**numbers: Fraction) -> None:
    for name, number in numbers.items():
        if not isinstance(number, Fraction) or number < 0:
            raise ConfigError(f"{name} must be an exact fraction of at least 0, not {number!r}")
