"""The law of a sum of independent discrete Laplace noises, exactly: what a count bears that is a sum of noised counts.

Of n noises of parameter a the sum S is the difference of two negative binomial laws. Its tail is a sum of n positive
terms: with x = a^2 / (1 - a^2) and w = a / (1 - a),

    P(S >= t) = ((1 - a) / (1 + a))^n  a^t / (1 - a)  sum over j < n of C(n + j - 1, j) x^j W(n - 1 - j),  t >= 0,
    W(m) = C(n + t - 1, m) + w W(m - 1),  W(-1) = 0.

Proof. P(S = d) = (1 - a)^2n a^d sum over k of C(n + k - 1, k) C(n + k + d - 1, k + d) a^2k, which is a hypergeometric
2F1(n, n + d; d + 1; a^2); Pfaff's transformation makes that ((1 - a) / (1 + a))^n a^d times the sum over j < n of
C(n + d - 1, n - 1 - j) C(n + j - 1, j) x^j. Let U(m) be the sum over d >= t of a^d C(n + d - 1, m). By Pascal's rule
(1 - a) U(m) = a^t C(n + t - 1, m) + a U(m - 1), so U(m) = a^t W(m) / (1 - a).
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from stream_dp.lossless.families.discrete_laplace import check_parameter

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
