"""What a selection can be expected to find: the statements of specs/topk 4, rounded so that they stay true."""

from __future__ import annotations

from collections.abc import Iterable
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


def inclusion(p: TopKParameters, lead: int, precision: int = _PRECISION) -> tuple[Fraction, Fraction]:
    """Enclose the chance that a lone item, `lead` users above the (kbar+1)-st count, is drawn against bottom.

    1 / (1 + e^(-epsilon g)), g = lead - 1 - ln(odds) / epsilon. Source: specs/topk 4.
    """
    # The item's weight over bottom's is e^(epsilon (lead - 1)) / odds.
    exponent = p.epsilon * (lead - 1)
    lower, upper = (Fraction(bound, 1 << precision) for bound in exp_neg(abs(exponent), precision))
    if exponent < 0:
        return Fraction(lower, lower + p.odds), Fraction(upper, upper + p.odds)
    return Fraction(1, 1 + p.odds * upper), Fraction(1, 1 + p.odds * lower)


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


def beats_whole_domain(p: TopKParameters, h_next: int, tail: Iterable[tuple[int, int]]) -> bool:
    """Whether the top item comes first at least as often as if every item of the domain were a candidate.

    m e^epsilon / delta e^(epsilon h_(kbar+1)) <= the sum of e^(epsilon h_(j)) over j > kbar: long heavy tails.

    Args:
        p: the selection's parameters.
        h_next: the (kbar+1)-st largest count.
        tail: how many items beyond the kbar largest have which count, at most h_next.

    Source: specs/topk 4 (Lemma E.1).
    """
    # Divided by e^(epsilon (h_next + 1)): the left side is m / delta.
    rows = list(tail)
    precision = _PRECISION
    while True:
        terms = [(number, exp_neg(p.epsilon * (h_next + 1 - count), precision)) for number, count in rows]
        if sum(number * lower for number, (lower, _) in terms) >= p.odds * (1 << precision):
            return True
        if sum(number * upper for number, (_, upper) in terms) < p.odds * (1 << precision):
            return False
        precision *= 2


def _log_above(q: Fraction) -> Fraction:
    return Fraction(log(q, _PRECISION)[1], 1 << _PRECISION)


def _check_chance(name: str, chance: Fraction) -> None:
    if not isinstance(chance, Fraction) or not 0 < chance < 1:
        raise ParameterError([Fault(name, f"must be an exact fraction between 0 and 1, not {chance!r}")])
