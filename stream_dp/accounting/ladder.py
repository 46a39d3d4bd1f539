"""What the levels of a ladder of discrete Laplace noise cost in zCDP, so that sharpening may be chosen along the way.

A reader asks for a finer level after having seen a coarser one. Pure epsilon does not mind: what was lost at the
finest level in the end is at most its epsilon on every path (specs/lossless 3.7). A filter on zCDP does: it needs a
bound for the finer level *given* what the coarser one showed. For Gaussian noise that is the difference of the two
rhos. For discrete Laplace noise it is not. The loss of one count at level e is +e or -e; given that it was -c at a
coarser level, it moves to +e or -e with a mean of more than e tanh(e/2) - c tanh(c/2), and a reader who sharpens only
such windows would gain more than was charged. So a step up the ladder is charged what holds whatever the coarser level
showed.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from stream_dp.accounting.curves import discrete_laplace_rho
from stream_dp.accounting.rounding import log_up

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
