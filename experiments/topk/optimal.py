"""The best that holds for mechanisms of which only epsilon-DP is known: what bounded range is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile

from stream_dp.accounting.rounding import down, exp_down, exp_up, up
from stream_dp.errors import ParameterError


@dataclass(frozen=True, slots=True)
class OptimalPoint:
    """One point of the optimal curve of k epsilon-DP mechanisms, which randomized response attains.

    Attributes:
        index: i, from 0 (basic composition) to k // 2.
        epsilon: (k - 2i) epsilon, exactly.
        delta: delta_i, rounded up.
    """

    index: int
    epsilon: Fraction
    delta: Fraction


def optimal_curve(epsilon: Fraction, k: int) -> Iterator[OptimalPoint]:
    """Yield the points of the optimal composition, delta growing from 0.

    delta_i = sum over l < i of C(k, l) (x^l - x^(2i-l)) / (1 + x)^k with x = e^-epsilon, as A_i - x^(2i) B_i, whose
    sums A_i and B_i grow by a term with every i.

    Args:
        epsilon: of one mechanism, above 0.
        k: how many, at least 1.

    Raises:
        ParameterError: an argument is out of range.

    Time: a few multiplications of 256-bit and k-bit numbers per point. Source: specs/topk 3.7, Lemma A.1 (Kairouz, Oh
    and Viswanath 2017; Murtagh and Vadhan 2016).
    """
    if epsilon <= 0 or k < 1:
        raise ParameterError(f"optimal composition needs epsilon > 0 and k >= 1, not {epsilon} and {k}")
    x = exp_down(-epsilon), exp_up(-epsilon)
    total = _power(1 + x[0], k)
    binomial, power = 1, (Fraction(1), Fraction(1))  # C(k, l) and x^l
    direct = inverse = Fraction(0)  # A from above, B from below
    for i in range(k // 2 + 1):
        excess = direct - down(power[0] ** 2) * inverse
        yield OptimalPoint(i, (k - 2 * i) * epsilon, up(Fraction(max(excess, Fraction(0)), total)))
        direct = up(direct + binomial * power[1])
        inverse = down(inverse + Fraction(binomial, power[1]))
        binomial = binomial * (k - i) // (i + 1)
        power = down(power[0] * x[0]), up(power[1] * x[1])


def optimal_composition(epsilon: Fraction, k: int, delta: Fraction) -> OptimalPoint:
    """The point of the optimal curve with the least epsilon among those of at most a delta.

    Args:
        epsilon: of one mechanism, above 0.
        k: how many, at least 1.
        delta: at least 0.

    Raises:
        ParameterError: an argument is out of range.

    Source: specs/topk 3.7, 4 (Figure 1).
    """
    if delta < 0:
        raise ParameterError(f"delta must be at least 0, not {delta}")
    points = optimal_curve(epsilon, k)
    return max(takewhile(lambda point: point.delta <= delta, points), key=lambda point: point.index)


def _power(base: Fraction, exponent: int) -> Fraction:
    """base^exponent, rounded down."""
    power = Fraction(1)
    for bit in bin(exponent)[2:]:
        power = down(power * power * (base if bit == "1" else 1))
    return power
