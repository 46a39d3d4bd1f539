"""What gaps prove about counts, and how they make measured counts better; from published numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

from stream_dp.errors import Fault, ParameterError
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.exact.reals import exp_neg, log
from stream_dp.select.gap.parameters import GapParameters

_PRECISION = 128
_SMALLEST = 1100
"""No chance below 2^-1100 is told from it."""


def wrong_chance(gap: int, p: GapParameters) -> Fraction:
    """Bound the chance that the first i items are not the i largest counts and yet the i-th gap is this large.

    e^(-gap exponent), whatever the counts are and however many keys the domain has: a p-value of "this selection is
    wrong". With k = 1 it is exact: given that the winner is not a largest count, its gap has the law of the noise.

    Args:
        gap: the i-th gap of a selection, in steps.
        p: its parameters.

    Returns:
        The bound, rounded up to 12 significant digits; never below 2^-1100.

    Raises:
        ParameterError: the gap is no gap.

    Source: specs/gap 5.3 (1, 2).
    """
    exponent = _checked(gap) * p.exponent
    # e^-x takes less than 3/2 x + 1 bits before its first digit.
    whole = exponent.numerator // exponent.denominator
    precision = min(2 * whole + _PRECISION, _SMALLEST)
    return Fraction(decimal_up(Fraction(exp_neg(exponent, precision)[1], 1 << precision)))


def margin(gap: int, alpha: Fraction, p: GapParameters) -> Fraction | None:
    """Bound from below how far the first i items are ahead of all other keys, in true counts.

    A claim is made where the i-th gap g is at least t = ln(1/alpha) scale, and says that the smallest count among the
    first i items is at least g - t above the largest of all others; so these are the i largest. Claims made this way
    are false with probability alpha at most. For claims about all k ranks at once take alpha / k.

    Args:
        gap: the i-th gap of a selection, in steps.
        alpha: the chance of a false claim, in (0, 1).
        p: the selection's parameters.

    Returns:
        The bound in counts, rounded down to 12 significant digits; None where nothing can be claimed.

    Raises:
        ParameterError: the gap is no gap, or alpha is out of range.

    Source: specs/gap 5.3 (3).
    """
    if not isinstance(alpha, Fraction) or not 0 < alpha < 1:
        raise ParameterError([Fault("alpha", f"must be an exact fraction between 0 and 1, not {alpha!r}")])
    _, above = log(Fraction(alpha.denominator, alpha.numerator), _PRECISION)
    bound = Fraction(_checked(gap), p.resolution) - p.scale * Fraction(above, 1 << _PRECISION)
    return Fraction(decimal_down(bound)) if bound >= 0 else None


def _checked(gap: int) -> int:
    if not isinstance(gap, int) or gap < 0:
        raise ParameterError([Fault("gap", f"must be a whole number of steps, at least 0, not {gap!r}")])
    return gap


_VARIANCE_PRECISION = 192


def combine(measured: Sequence[int], gaps: Sequence[Fraction], lam: Fraction) -> list[Fraction]:
    """The best linear unbiased estimates of k counts from a fresh measurement of each and the gaps between them.

    The mean of the measurements is kept; of what the counts are apart, a share lam / (1 + lam) is taken from the
    measurements and the rest from the gaps. Where the order of the counts is not in doubt, the variance is
    (1 + lam k) / (k + lam k) of that of a measurement.

    BIASED GIVEN THE RANK: noise that has come out first is not centred. Where all counts are equal, the estimate of the
    first is too high by scale (H_k - 1) / (1 + lam) in the mean. Use these as point estimates. Quote an interval from
    the measurement alone, or where `margin` certifies the ranks.

    Args:
        measured: the selected counts with fresh noise of mean 0, in the order of the selection.
        gaps: what each of them is ahead of the next in noisy counts, in counts, without a bias: `gaps_between`.
        lam: the variance of the selection's noise over that of a measurement: `variance_ratio`.

    Returns:
        The estimates, exactly.

    Raises:
        ParameterError: there is not a gap between each two neighbours, or lam is negative.

    Source: specs/gap 5.1.
    """
    k = len(measured)
    faults = []
    if k == 0 or len(gaps) != k - 1:
        faults.append(Fault("gaps", f"must be one between each two neighbours of {k} counts, not {len(gaps)}"))
    if not isinstance(lam, Fraction) or lam < 0:
        faults.append(Fault("lam", f"must be an exact fraction of at least 0, not {lam!r}"))
    if faults:
        raise ParameterError(faults)
    behind = list(accumulate(gaps, initial=Fraction(0)))  # the first is ahead of each by so much
    together = sum(measured) + sum(behind)
    pairs = zip(measured, behind, strict=True)
    return [Fraction(together + lam * k * count - k * gap, (1 + lam) * k) for count, gap in pairs]


def gaps_between(gaps: Sequence[int], p: GapParameters) -> list[Fraction]:
    """The gaps between the selected counts, in counts; the one behind the last is left out.

    A gap is rounded down; half a step is what that takes away in the mean where the counts are well apart.
    """
    return [Fraction(2 * gap + 1, 2 * p.resolution) for gap in gaps[:-1]]


def variance_ratio(p: GapParameters, measured_exponent: Fraction) -> Fraction:
    """The variance of the selection's noise over that of a measurement, lam of `combine`, to 12 digits.

    Args:
        p: the selection's parameters.
        measured_exponent: x where the noise of a measurement is z with probability proportional to e^(-x |z|), for
            whole counts z: the epsilon of the measurements over how far one user moves all k of them together.

    Raises:
        ParameterError: the exponent is not positive.
    """
    if not isinstance(measured_exponent, Fraction) or measured_exponent <= 0:
        message = f"must be an exact fraction above 0, not {measured_exponent!r}"
        raise ParameterError([Fault("measured_exponent", message)])
    # Of a geometric number in steps, and of the difference of two of them in counts.
    of_selection = Fraction(_variance(p.exponent), p.resolution**2)
    return Fraction(decimal_down(Fraction(of_selection, 2 * _variance(measured_exponent))))


def _variance(exponent: Fraction) -> Fraction:
    """e^-x / (1 - e^-x)^2, closely."""
    one = 1 << _VARIANCE_PRECISION
    power = exp_neg(exponent, _VARIANCE_PRECISION)[1]
    return Fraction(power * one, (one - power) ** 2)
