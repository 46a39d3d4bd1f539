"""Oracles of discrete Laplace noise: the exact laws of its kernels, and its Renyi divergence."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.accounting.rounding import exp_up, log_down, log_up
from stream_dp.lossless.discrete_laplace import bridge_atom
from tests.support.laplace_family import pmf


def tail(a: Fraction, t: int) -> Fraction:
    """P(Z >= t), any integer t; a^t / (1 + a) for t >= 0.

    Source: specs/lossless 2.9.4, vector H02.
    """
    if t >= 0:
        return Fraction(a**t, 1 + a)
    return 1 - Fraction(a ** (1 - t), 1 + a)


def bridge_pmf(a_fine: Fraction, a_coarse: Fraction, k: int) -> Fraction:
    """P(W = k) of the only W, independent of the fine noise, that turns it into coarse noise; a_fine <= a_coarse.

    An atom at zero plus a discrete Laplace law of the coarse parameter.

    Source: specs/lossless 7.1, vectors D01, D02.
    """
    atom = bridge_atom(a_fine, a_coarse)
    return (1 - atom) * pmf(a_coarse, k) + (atom if k == 0 else 0)


def sharpen_pmf(a_coarse: Fraction, a: Fraction, z: int, w: int) -> Fraction:
    """P(the noise at a is w | the noise at a_coarse is z), a < a_coarse.

    Source: specs/lossless 7.2, vector D04.
    """
    return Fraction(pmf(a, w) * bridge_pmf(a, a_coarse, z - w), pmf(a_coarse, z))


def between_pmf(a_fine: Fraction, a: Fraction, a_coarse: Fraction, k: int, w: int) -> Fraction:
    """P(the reading at a is w above the fine one | the coarse one is k above it), a_fine < a < a_coarse.

    Unlike that of continuous Laplace noise, k = 0 does not force w = 0.

    Source: specs/lossless 7.3, vector D05.
    """
    return Fraction(bridge_pmf(a_fine, a, w) * bridge_pmf(a, a_coarse, k - w), bridge_pmf(a_fine, a_coarse, k))


def variance(a: Fraction) -> Fraction:
    """Var(Z) = 2a / (1 - a)^2, in squared counts."""
    return Fraction(2 * a, (1 - a) ** 2)


def discrete_laplace_renyi(a: Fraction, alpha: Fraction) -> Fraction:
    """Renyi divergence for a shift of one: ln((a^alpha + a^(1-alpha)) / (1 + a)) / (alpha - 1).

    Exact but for the rounding: the privacy loss takes two values only, as in randomized response.

    Source: specs/lossless 3.6, vector A03.
    """
    inverse = Fraction(a.denominator, a.numerator)
    moments = exp_up(-alpha * log_down(inverse)) + exp_up((alpha - 1) * log_up(inverse))
    return Fraction(log_up(Fraction(moments, 1 + a)), alpha - 1)


def half_width(a: Fraction, terms: int) -> int:
    """Smallest t with P(|S| <= t) >= 95 %, S a sum of noises of parameter a: by convolution, from the law alone.

    Probabilities are integers over 2^128, rounded down, as far out as they are not zero.
    """
    one, law = {0: (1 - a) / (1 + a)}, {0: 1 << 128}
    while one[len(one) - 1] * a > Fraction(1, 1 << 60):
        one[len(one)] = one[len(one) - 1] * a
    weights = {k: int(one[abs(k)] * (1 << 128)) for k in range(1 - len(one), len(one))}
    for _ in range(terms):
        sums: dict[int, int] = {}
        for d, p in law.items():
            for k, q in weights.items():
                sums[d + k] = sums.get(d + k, 0) + (p * q >> 128)
        law = sums
    held = t = 0
    while True:
        held += law[t] + (law[-t] if t else 0)
        if held * 100 >= 95 << 128:
            return t
        t += 1
