"""The zCDP of the noise families, and the epsilon of a Renyi curve: upper bounds, all rounding upwards.

Everything is about one release; a set of releases of one snapshot has the curve of its finest (specs/lossless 1.3). A
move of several counts costs the sum of the moves of each; l counts that move by one each cost l times the curve of a
shift of one. Curves of different snapshots add at equal order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from stream_dp.accounting.rounding import log_down, log_up
from stream_dp.errors import ParameterError

RenyiCurve = Callable[[Fraction], Fraction]
"""From an order alpha > 1 to a bound on the Renyi divergence of that order, in both directions."""


def gaussian_rho(variance: Fraction, sensitivity_squared: Fraction) -> Fraction:
    """The zCDP of Gaussian noise, continuous or discrete: rho = Delta2^2 / (2 sigma^2), exactly.

    Args:
        variance: sigma^2. For the discrete Gaussian the parameter of the law, not its slightly smaller variance.
        sensitivity_squared: Delta2^2; l where l counts move by one each.

    Source: specs/lossless 2.4, 7.6 (Bun and Steinke 2016; Canonne, Kamath and Steinke 2020).
    """
    _positive(variance=variance, sensitivity_squared=sensitivity_squared)
    return Fraction(sensitivity_squared, 2 * variance)


def zcdp_curve(rho: Fraction) -> RenyiCurve:
    """The Renyi curve that rho-zCDP promises: alpha rho. For Gaussian noise it is attained."""
    return lambda alpha: _order(alpha) * rho


def discrete_laplace_rho(a: Fraction) -> Fraction:
    """The zCDP of discrete Laplace noise for a shift of one: epsilon tanh(epsilon / 2), epsilon = ln(1/a).

    It is the limit of the divergence over alpha at alpha = 1, and no order needs more: with alpha = 1/2 + s,
    (alpha - 1) D = ln cosh(epsilon s) - ln cosh(epsilon / 2) is concave in s^2, and alpha (alpha - 1) = s^2 - 1/4.

    Source: specs/lossless 3.6, vector A03.
    """
    return _epsilon(a)[1] * Fraction(1 - a, 1 + a)


def approximate_epsilon(curve: RenyiCurve, delta: Fraction, orders: Iterable[Fraction]) -> Fraction:
    """The epsilon that a Renyi curve gives at a delta: (epsilon, delta)-DP for whatever the curve is about.

    Args:
        curve: a bound on the Renyi divergence, for instance a sum over snapshots.
        delta: in (0, 1).
        orders: the orders to try, at least one.

    Returns:
        The least of curve(alpha) + ln(1 - 1/alpha) - ln(alpha delta) / (alpha - 1) over the orders, at least 0.

    Raises:
        ParameterError: delta is out of range, or an order is not above 1.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12.
    """
    if not 0 < delta < 1:
        raise ParameterError(f"delta must lie between 0 and 1, not {delta}")
    return max(Fraction(0), min(_epsilon_at(curve, delta, alpha) for alpha in orders))


def _epsilon_at(curve: RenyiCurve, delta: Fraction, alpha: Fraction) -> Fraction:
    return curve(_order(alpha)) + log_up(1 - Fraction(1, alpha)) - Fraction(log_down(alpha * delta), alpha - 1)


def _epsilon(a: Fraction) -> tuple[Fraction, Fraction]:
    """Bounds of ln(1/a)."""
    if not 0 < a < 1:
        raise ParameterError(f"the parameter of discrete Laplace noise lies between 0 and 1, not {a}")
    inverse = Fraction(a.denominator, a.numerator)
    return log_down(inverse), log_up(inverse)


def _order(alpha: Fraction) -> Fraction:
    if alpha <= 1:
        raise ParameterError(f"a Renyi order must be above 1, not {alpha}")
    return alpha


def _positive(**numbers: Fraction) -> None:
    for name, number in numbers.items():
        if number <= 0:
            raise ParameterError(f"{name.replace('_', ' ')} must be positive, not {number}")


_STEPS = 10**12
"""Costs are rounded up to whole parts of this, so that sums of many keep a small denominator."""


def ladder_rho(ratios: Sequence[Fraction], moved: int, shown: Fraction) -> list[Fraction]:
    """The zCDP of counts that can be read at the levels of a ladder, level by level.

    Attained by the first level: `moved` times e tanh(e/2), with e = ln(1/a). A step to a finer level costs `moved`
    times e^2 / 2: given the coarser loss, the finer one takes two values 2e apart, so the cumulant K of what is added
    has K(0) = K(-1) = 0 and K'' <= (2e)^2 / 4, hence K(t) <= (e^2 / 2) t (t + 1). A key that only one of two neighbours
    has, once it is not shown, adds at most -ln(1 - p) <= p / (1 - p) in place of that.

    Args:
        ratios: the parameters a of the noise, coarse to fine, so falling.
        moved: how many counts one user moves, each by one.
        shown: p, the chance that a key that only one user has is shown at any level; 0 where keys are chosen otherwise.

    Returns:
        For each level what everything up to it costs: rising, rounded up. Between two levels the difference pays for
        sharpening from one to the other, whoever asks for it and why.

    Source: specs/lossless 3.6 and 3.7; the bound on a step as in specs/topk 3.4, tighter mean.
    """
    least = Fraction(shown, 1 - shown)
    costs: list[Fraction] = []
    for a in ratios:
        step = log_up(Fraction(a.denominator, a.numerator)) ** 2 * Fraction(1, 2) if costs else discrete_laplace_rho(a)
        costs.append((costs[-1] if costs else 0) + _rounded_up(moved * max(step, least)))
    return costs


def _rounded_up(value: Fraction) -> Fraction:
    return Fraction(-(-value.numerator * _STEPS // value.denominator), _STEPS)
