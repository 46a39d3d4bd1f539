"""What a selection can be expected to find: the statements of specs/topk 4, rounded so that they stay true."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.errors import Fault, ParameterError
from stream_dp.exact.reals import exp_neg, log
from stream_dp.select.parameters import Thresholded, TopKParameters, threshold

_PRECISION = 128


def lead_for_inclusion(p: Thresholded, chance: Fraction) -> Fraction:
    """How far a lone item has to stand above the (kbar+1)-st count to be returned with a chance.

    1 + (ln(odds) + ln(chance / (1 - chance))) / epsilon, in users, rounded up; one half is the threshold itself.

    Args:
        p: parameters of a selection with Gumbel noise.
        chance: in (0, 1).

    Raises:
        ParameterError: the chance is out of range.

    Source: specs/topk 4 ("single item against bottom").
    """
    _check_chance("chance", chance)
    return 1 + Fraction(_log_above(p.odds * Fraction(chance, 1 - chance)), p.epsilon)


def shortfall(p: TopKParameters, beta: Fraction) -> Fraction:
    """How far below the k-th largest count a returned item may lie: with probability 1 - beta none lies farther.

    ln(k kbar / beta) / epsilon, in users, rounded up.

    Raises:
        ParameterError: beta is not in (0, 1).

    Source: specs/topk 4 (Lemma 8.1a).
    """
    _check_chance("beta", beta)
    return Fraction(_log_above(Fraction(p.k * p.kbar, beta)), p.epsilon)


def lead_for_all(p: TopKParameters, beta: Fraction) -> Fraction:
    """How far the k-th largest count has to stand above the (kbar+1)-st for k items with probability 1 - beta.

    1 + ln(m / delta) / epsilon + ln(k / beta) / epsilon, in users, rounded up.

    Raises:
        ParameterError: beta is not in (0, 1).

    Source: specs/topk 4 (Lemma 8.1b).
    """
    _check_chance("beta", beta)
    return threshold(0, p, _PRECISION)[1] + Fraction(_log_above(Fraction(p.k, beta)), p.epsilon)


def chance_of_noise(p: TopKParameters) -> Fraction:
    """The chance that a table in which all counts are equal gives anything but bottom, rounded up.

    kbar / (kbar + e^epsilon m / delta). Source: specs/topk 4 ("flat histogram").
    """
    _, upper = exp_neg(p.epsilon, _PRECISION)
    weight = p.kbar * Fraction(upper, 1 << _PRECISION)
    return Fraction(weight, weight + p.odds)


def _log_above(q: Fraction) -> Fraction:
    return Fraction(log(q, _PRECISION)[1], 1 << _PRECISION)


def _check_chance(name: str, chance: Fraction) -> None:
    if not isinstance(chance, Fraction) or not 0 < chance < 1:
        raise ParameterError([Fault(name, f"must be an exact fraction between 0 and 1, not {chance!r}")])
