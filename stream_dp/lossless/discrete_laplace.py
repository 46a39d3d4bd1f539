"""The discrete Laplace law, P(Z = k) = (1 - a) / (1 + a) a^|k|, 0 < a < 1, and its kernels: exact rationals.

It is the difference of two geometric clocks. Adding Z to a count of sensitivity 1 is ln(1/a)-DP. The kernels here
keep nothing but the released integer; `two_clocks` keeps the clocks and has simpler ones with the same joint law.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from stream_dp.errors import ParameterError
from stream_dp.exact import coins
from stream_dp.exact.bits import BitSource
from stream_dp.exact.reals import smallest_power


def bridge_atom(a_fine: Fraction, a_coarse: Fraction) -> Fraction:
    """Weight of the point mass at zero in the bridge; the weights of a ladder's steps multiply.

    Source: specs/lossless 7.1, vectors D01, D02.
    """
    return Fraction(a_fine * (1 - a_coarse) ** 2, a_coarse * (1 - a_fine) ** 2)


def mean_absolute(a: Fraction) -> Fraction:
    """E|Z| = 2a / (1 - a^2), in counts: the expected error of a released count."""
    return Fraction(2 * a, 1 - a * a)


def interval(a: Fraction, confidence: Fraction) -> int:
    """Smallest t >= 0 with P(|Z| <= t) >= confidence: the half width of an exact confidence interval, in counts.

    Args:
        a: noise parameter, in (0, 1).
        confidence: in [0, 1).

    Raises:
        ParameterError: an argument is out of range.
    """
    if not 0 < a < 1 or not 0 <= confidence < 1:
        raise ParameterError(f"an interval needs 0 < a < 1 and 0 <= confidence < 1, not {a} and {confidence}")
    # P(|Z| > t) = 2 a^(t+1) / (1 + a)
    return max(smallest_power(a, (1 - confidence) * (1 + a) * Fraction(1, 2)) - 1, 0)


def draw_noise(a: Fraction, bits: BitSource) -> int:
    """Draw noise of level a: the difference of two geometric clocks.

    Raises:
        ParameterError: not 0 < a < 1.
    """
    check_parameter(a)
    return coins.geometric(a, bits) - coins.geometric(a, bits)


def coarsen(value: int, fine: Fraction, coarse: Fraction, bits: BitSource) -> int:
    """Draw a coarser reading from a finer one: the same with the weight of the bridge's atom, else moved by noise.

    Raises:
        ParameterError: not 0 < fine < coarse < 1.

    Source: specs/lossless 7.1, vectors D01 to D06.
    """
    check_parameter(fine, coarse)
    if fine >= coarse:
        raise ParameterError(f"level {fine} must be finer than level {coarse}")
    if coins.bernoulli(bridge_atom(fine, coarse), bits):
        return value
    return value + draw_noise(coarse, bits)


def check_parameter(*levels: Fraction) -> None:
    """Refuse what is not a noise parameter.

    Raises:
        ParameterError: not 0 < a < 1.
    """
    for a in levels:
        if not 0 < a < 1:
            raise ParameterError(f"a noise parameter must lie strictly between 0 and 1, not {a}")


_RESOLUTION = 1 << 32


def sum_tail(a: Fraction, terms: int, t: int) -> Fraction:
    """P(S >= t), any t >= 0, exact.

    Args:
        a: the parameter of each noise, 0 < a < 1.
        terms: how many noises are added, 1 or more.
        t: from where on.
    """
    check_parameter(a)
    part, whole = _tail(a, terms, t)
    return Fraction(part, whole)


def _tail(a: Fraction, terms: int, t: int) -> tuple[int, int]:
    """The tail as two integers that are not made coprime: of a day of minutes they have a million digits."""
    top, bottom = a.numerator, a.denominator
    far, square = bottom + top, bottom**2 - top**2
    choose, weight, power, inner, total = 1, _central(terms), 1, 0, 0
    for m in range(terms):
        inner = choose * power + top * far * inner  # W(m), times that power of the square
        power *= square
        total = total * top**2 + weight * inner
        choose = choose * (terms + t - 1 - m) // (m + 1)
        weight = weight * (terms - 1 - m) // max(1, 2 * terms - 2 - m)
    return top**t * bottom * total, bottom**t * far ** (2 * terms - 1)


def _central(terms: int) -> int:
    """C(2 n - 2, n - 1)."""
    found = 1
    for at in range(1, terms):
        found = found * (terms - 1 + at) // at
    return found


@lru_cache(maxsize=256)
def sum_interval(a: Fraction, terms: int, confidence: Fraction) -> int:
    """A t with P(|S| <= t) >= confidence: the smallest for the parameter, rounded up to `_RESOLUTION`.

    That is the smallest for the parameter itself, or by a few millionths more. Proof that a larger parameter is on the
    safe side: it is a sum S + W with an independent W (`discrete_laplace.bridge_pmf`); S is symmetric and log-concave,
    as each of its terms is, so no interval of a length has more of it than the one around 0.

    Args:
        a: the parameter of each noise.
        terms: how many are added.
        confidence: below 1.
    """
    missed = 1 - confidence
    rounded = min(Fraction(-(-a.numerator * _RESOLUTION // a.denominator), _RESOLUTION), 1 - Fraction(1, _RESOLUTION))
    parameter = max(a, rounded)

    def within(t: int) -> bool:
        part, whole = _tail(parameter, terms, t + 1)
        return 2 * part * missed.denominator <= missed.numerator * whole

    low, high = -1, 1
    while not within(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return high


@lru_cache(maxsize=256)
def sum_mean_absolute(a: Fraction, terms: int) -> Fraction:
    """E|S|, exact: 2 a (n P(S = 0) + (n - 1) P(S = 1)) / (1 - a)^2.

    Proof. The generating function G(z) = ((1 - a)^2 / ((1 - a z)(1 - a / z)))^n satisfies
    (z - a)(1 - a z) z G'(z) = n a (z^2 - 1) G(z). Compare coefficients, and add them up from z^2 on.
    """
    from_zero, from_one, from_two = (sum_tail(a, terms, t) for t in range(3))
    near_zero = terms * (from_zero - from_one) + (terms - 1) * (from_one - from_two)
    return Fraction(2 * a * near_zero, (1 - a) ** 2)
