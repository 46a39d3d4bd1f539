"""Renyi and zCDP curves of the noise families, for summing over windows: upper bounds, all rounding upwards.

Everything is about one release; a set of releases of one snapshot has the curve of its finest (specs/lossless 1.3). A
move of several counts costs the sum of the moves of each; l counts that move by one each cost l times the curve of a
shift of one. Curves of different snapshots add at equal order. Exponential noise has no curve, its support tells; nor
have Poisson and binomial noise (`stream_dp.accounting.binomial` gives their epsilon and delta).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from stream_dp.accounting.rounding import down, exp_up, log_down, log_up, root_up, up
from stream_dp.errors import ParameterError

RenyiCurve = Callable[[Fraction], Fraction]
"""From an order alpha > 1 to a bound on the Renyi divergence of that order, in both directions."""

ORDERS = (
    *(Fraction(10 + n, 10) for n in range(1, 100)),
    *(Fraction(n) for n in (*range(11, 64), 128, 256, 512, 1024)),
)
"""Orders tried by `approximate_epsilon` when none are named."""


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


def discrete_laplace_renyi(a: Fraction, alpha: Fraction) -> Fraction:
    """Renyi divergence of discrete Laplace noise for a shift of one: ln((a^alpha + a^(1-alpha)) / (1 + a)) / (alpha-1).

    Exact but for the rounding: the privacy loss takes two values only, as in randomized response.

    Args:
        a: parameter of the noise, in (0, 1).
        alpha: order, above 1.

    Source: specs/lossless 3.6, vector A03.
    """
    least, most = _epsilon(a)
    moments = exp_up(-_order(alpha) * least) + exp_up((alpha - 1) * most)
    return Fraction(log_up(Fraction(moments, 1 + a)), alpha - 1)


def discrete_laplace_rho(a: Fraction) -> Fraction:
    """The zCDP of discrete Laplace noise for a shift of one: epsilon tanh(epsilon / 2), epsilon = ln(1/a).

    It is the limit of the divergence over alpha at alpha = 1, and no order needs more: with alpha = 1/2 + s,
    (alpha - 1) D = ln cosh(epsilon s) - ln cosh(epsilon / 2) is concave in s^2, and alpha (alpha - 1) = s^2 - 1/4.

    Source: specs/lossless 3.6, vector A03.
    """
    return _epsilon(a)[1] * Fraction(1 - a, 1 + a)


def laplace_renyi(epsilon: Fraction, alpha: Fraction) -> Fraction:
    """Renyi divergence of continuous Laplace noise for a shift by its sensitivity, epsilon = Delta / b.

    Source: Mironov 2017, Proposition 6.
    """
    _positive(epsilon=epsilon)
    share = Fraction(_order(alpha), 2 * alpha - 1)
    moments = share * exp_up((alpha - 1) * epsilon) + (1 - share) * exp_up(-alpha * epsilon)
    return Fraction(log_up(moments), alpha - 1)


def laplace_rho(epsilon: Fraction) -> Fraction:
    """The zCDP of continuous Laplace noise: epsilon + e^-epsilon - 1, the limit of its curve at alpha = 1.

    Source: Harrison and Manurangsi 2025.
    """
    _positive(epsilon=epsilon)
    return epsilon + exp_up(-epsilon) - 1


def skellam_renyi_bound(variance: Fraction, alpha: Fraction, l1: Fraction, l2_squared: Fraction) -> Fraction:
    """The published bound for Skellam noise, all coordinates at once, exactly.

    Args:
        variance: mu of each coordinate.
        alpha: integer order, at least 2.
        l1: Delta1 of the counts; for l counts that move by one each it is l, and so is Delta2^2.
        l2_squared: Delta2^2.

    Source: specs/lossless 7.7 (Agarwal, Kairouz and Liu 2021), vector S03.
    """
    _positive(variance=variance, l1=l1, l2_squared=l2_squared)
    _integer_order(alpha)
    rest = min(Fraction((2 * alpha - 1) * l2_squared + 6 * l1, 4 * variance**2), Fraction(3 * l1, 2 * variance))
    return Fraction(alpha * l2_squared, 2 * variance) + rest


def skellam_renyi(variance: Fraction, alpha: Fraction) -> Fraction:
    """Renyi divergence of Skellam noise for a shift of one, summed over its law P(k) ~ I_|k|(mu).

    The ratios x_n = I_(n+1) / I_n obey x_n = 1 / (2 (n+1) / mu + x_(n+1)), so from 0 < x_N < mu / (2 (N+1)) downwards
    they are enclosed ever more tightly. From n = max(alpha, 8 mu sqrt(alpha)) on a term of the sum is at most a fifth
    of the one before, by x_n <= mu / (2n) <= 1/16 and x_n / x_(n+1) <= (1 + 1 / (n+1)) (1 + mu^2 / (4 n^2)); the sum is
    cut `_EXTRA_TERMS` later, and what is left out is less than twice the last term.

    Args:
        variance: mu, the variance of the noise.
        alpha: integer order, at least 2.

    Source: specs/lossless 7.7, vector S03.
    """
    _positive(variance=variance)
    power = _integer_order(alpha) - 1
    bounds = _bessel_ratios(variance, max(power + 1, -int(-8 * variance * root_up(alpha) // 1)) + _EXTRA_TERMS)
    least_weight = most_weight = total = Fraction(1)  # I_n / I_0, and the sum of I_|k| / I_0 from below
    moment = term = Fraction(0)  # the sum of P(k)^alpha P(k-1)^(1-alpha), in the unit of the total
    for least, most in bounds:
        term = up(most_weight * Fraction(1, least) ** power)  # k = -n
        least_weight, most_weight = down(least_weight * least), up(most_weight * most)
        moment += term + up(most_weight * most**power)  # k = n + 1
        total += 2 * least_weight
    return Fraction(log_up(Fraction(moment + 2 * term, total)), power)


_EXTRA_TERMS = 64


def _bessel_ratios(variance: Fraction, count: int) -> list[tuple[Fraction, Fraction]]:
    """Bounds of I_(n+1)(mu) / I_n(mu) for n from 0 to count - 1."""
    bounds = [(Fraction(0), Fraction(variance, 2 * (count + 1)))]
    for n in reversed(range(count)):
        step, (least, most) = Fraction(2 * (n + 1), variance), bounds[-1]
        bounds.append((down(Fraction(1, step + most)), up(Fraction(1, step + least))))
    return bounds[:0:-1]


def approximate_epsilon(curve: RenyiCurve, delta: Fraction, orders: Iterable[Fraction] = ORDERS) -> Fraction:
    """The epsilon that a Renyi curve gives at a delta: (epsilon, delta)-DP for whatever the curve is about.

    Args:
        curve: a bound on the Renyi divergence, for instance a sum over snapshots.
        delta: in (0, 1).
        orders: the orders to try; integers for Skellam noise.

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


def _integer_order(alpha: Fraction) -> int:
    if alpha.denominator != 1 or alpha < 2:
        raise ParameterError(f"the order for Skellam noise must be an integer of at least 2, not {alpha}")
    return alpha.numerator


def _positive(**numbers: Fraction) -> None:
    for name, number in numbers.items():
        if number <= 0:
            raise ParameterError(f"{name.replace('_', ' ')} must be positive, not {number}")
