"""Counts that have been measured after a selection, made better by its gaps; computed from what is published."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

from stream_dp.errors import Fault, ParameterError
from stream_dp.exact.rationals import decimal_down
from stream_dp.exact.reals import exp_neg
from stream_dp.select.gap.parameters import GapParameters

_PRECISION = 192


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
    one = 1 << _PRECISION
    power = exp_neg(exponent, _PRECISION)[1]
    return Fraction(power * one, (one - power) ** 2)
