"""The noise of a view's counts, level by level of its ladder: what every kind that shows counts has in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.curves import ladder_rho
from stream_dp.errors import ConfigError, Fault
from stream_dp.lossless.families.discrete_laplace import interval, mean_absolute, sum_interval, sum_mean_absolute
from stream_dp.lossless.levels import WORD, threshold_for

CONFIDENCE = Fraction(95, 100)
"""Of the noise intervals in plans and records."""

COARSEST, FINEST = Fraction(1, 1000), Fraction(40)
"""Bounds on the epsilon of one count. Noise takes 1/epsilon words of a keyed stream per count; above 40 the threshold
A of specs/lossless 6.3 gets down to the resolution of its 64 bits, and nothing is hidden anyway."""

Ladder = Sequence[tuple[str, Fraction]]
"""Name and epsilon of every level, coarse to fine."""


@dataclass(frozen=True)
class NoiseLevel:
    """One privacy level of a view's ladder.

    Attributes:
        name: the level's name in the ladder.
        epsilon: what one window at this level costs one user, over all their items, without the choice of keys.
        threshold: A of specs/lossless 7.5; the noise of one count is discrete Laplace with a = A / 2^64, and
            ln(1/a) times the sensitivity is at most `epsilon`.
        noise_interval: smallest t with Pr[|noise| <= t] >= 95 %, in counts.
        expected_error: E|noise| of one count, exact, in counts.
        rho: what one window at this level, and at any coarser one before it, costs one user in zCDP
            (`accounting.ladder`). Charged in place of `epsilon` where the ledger has a part for it.
    """

    name: str
    epsilon: Fraction
    threshold: int
    noise_interval: int
    expected_error: Fraction
    rho: Fraction

    def interval_of(self, panes: int) -> int:
        """A t with Pr[|noise| <= t] >= 95 % for a count that is a sum over panes, each with noise of its own."""
        return self.noise_interval if panes == 1 else sum_interval(self._ratio, panes, CONFIDENCE)

    def error_of(self, panes: int) -> Fraction:
        """E|noise| of such a count, exact."""
        return self.expected_error if panes == 1 else sum_mean_absolute(self._ratio, panes)

    @property
    def _ratio(self) -> Fraction:
        return Fraction(self.threshold, WORD)


def noise_levels(ladder: Ladder, sensitivity: int, shown: Fraction = Fraction(0)) -> tuple[NoiseLevel, ...]:
    """The noise of every level of a ladder.

    A level's epsilon pays for all the counts one user moves, so one count is noised with epsilon divided by the
    sensitivity (specs/lossless 1.2).

    Args:
        ladder: the levels.
        sensitivity: how many of the published counts one user moves, each by one.
        shown: the chance that a key that only one user has is shown at any level; 0 where keys are public or chosen.

    Raises:
        ConfigError: a level's epsilon is out of bounds; the path is relative to the view.
    """
    faults = [
        Fault(
            "ladder",
            f"level {name!r} has epsilon {epsilon} for the {sensitivity} counts that one user moves, "
            f"{epsilon * Fraction(1, sensitivity)} for one; that must be between {COARSEST} and {FINEST}",
        )
        for name, epsilon in ladder
        if not COARSEST <= epsilon * Fraction(1, sensitivity) <= FINEST
    ]
    if faults:
        raise ConfigError(faults)
    thresholds = [threshold_for(epsilon * Fraction(1, sensitivity)) for _, epsilon in ladder]
    ratios = [Fraction(threshold, WORD) for threshold in thresholds]
    rhos = ladder_rho(ratios, sensitivity, shown)
    return tuple(
        NoiseLevel(name, epsilon, threshold, interval(ratio, CONFIDENCE), mean_absolute(ratio), rho)
        for (name, epsilon), threshold, ratio, rho in zip(ladder, thresholds, ratios, rhos, strict=True)
    )
