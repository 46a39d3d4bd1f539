"""The noise of every level: its law, its cost, and the intervals and minimum counts that follow from it.

All are pure functions of their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

from stream_dp.accounting.composition import gaussian_rho, ladder_rho
from stream_dp.accounting.rounding import root_up
from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.rationals import decimal_up
from stream_dp.exact.reals import log
from stream_dp.histograms.counting_queries import Base, GeometricTable
from stream_dp.histograms.counting_queries import interval as table_interval
from stream_dp.histograms.counting_queries import mean_absolute as table_mean_absolute
from stream_dp.lossless.discrete_laplace import interval, mean_absolute, sum_interval, sum_mean_absolute
from stream_dp.lossless.gaussian import SMALLEST_STEP, GaussianSum, gaussian_sum
from stream_dp.lossless.levels import WORD, minimum_count, threshold_for, two_sided_from
from stream_dp.lossless.truncated import TruncatedLaplace
from stream_dp.records.models import Amount, Noise

CONFIDENCE = Fraction(95, 100)
"""Of the noise intervals in plans and records."""

LAPLACE, GAUSSIAN, TRUNCATED = "discrete-laplace", "discrete-gaussian", "truncated-laplace"

_LOG_PRECISION = 64

COARSEST, FINEST = Fraction(1, 1000), Fraction(40)
"""Bounds on the epsilon of one count. Below 1/1000 noise is of thousands of users; above 40 the threshold A of
specs/lossless 6.3 gets down to the resolution of its 64 bits, and nothing is hidden anyway."""

GAUSSIAN_FINEST = Fraction(1)
"""The same bound of discrete Gaussian noise: finer, its tails are no lighter than those of Laplace noise."""

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
        rho: what one window that is released first at this level costs one user in zCDP. Charged in place of `epsilon`
            where the ledger has a pool.
        step_rho: the same for a step to it from any coarser level (`accounting.composition.ladder_rho`).
    """

    name: str
    epsilon: Fraction
    threshold: int
    noise_interval: int
    expected_error: Fraction
    rho: Fraction
    step_rho: Fraction

    def interval_of(self, panes: int) -> int:
        """A t with Pr[|noise| <= t] >= 95 % for a count that is a sum over panes, each with noise of its own."""
        return self.noise_interval if panes == 1 else sum_interval(self._ratio, panes, CONFIDENCE)

    def error_of(self, panes: int) -> Fraction:
        """E|noise| of such a count, exact."""
        return self.expected_error if panes == 1 else sum_mean_absolute(self._ratio, panes)

    @property
    def identity(self) -> Sequence[object]:
        """Everything about the level that may not change while state of the view exists; JSON."""
        return [self.name, str(self.epsilon), self.threshold]

    @property
    def variance(self) -> Fraction:
        """Variance of the noise of one count, exact."""
        a = self._ratio
        return Fraction(2 * a, (1 - a) ** 2)

    def minimum_count(self, delta: Fraction) -> int:
        """The smallest count that the noisy count of a key with one user reaches with at most a chance of delta."""
        return minimum_count(self.threshold, delta)

    def two_sided_from(self, minimum: int) -> int:
        """The smallest noisy count whose interval has a lower end, of keys that are shown from a minimum count on."""
        return two_sided_from(self.threshold, minimum, CONFIDENCE)

    @property
    def pure_epsilon(self) -> Fraction | None:
        """The same as `epsilon`, where that is a promise."""
        return self.epsilon

    def price(self, panes: int = 1) -> dict[str, Any]:
        """The cost of a window of so many panes, as records have it."""
        return {"epsilon": Amount.up(self.epsilon * panes)}

    @cached_property
    def noise(self) -> Noise:
        """The law of the noise of one count, as records name it."""
        return Noise(distribution="discrete laplace", ratio=Amount.up(self._ratio), scale=self._scale)

    @property
    def _scale(self) -> str:
        least, _ = log(Fraction(self._ratio.denominator, self._ratio.numerator), 2 * _LOG_PRECISION)
        return decimal_up(Fraction(1 << 2 * _LOG_PRECISION, least))

    @property
    def _ratio(self) -> Fraction:
        return Fraction(self.threshold, WORD)


@dataclass(frozen=True)
class TableLevel(NoiseLevel):
    """The one level of a kind whose noise comes from a table: a public number of bits and steps for each count.

    Such noise cannot be refined later without paying again, so there is no second level (specs/finite 2.5).

    Attributes:
        threshold: 0; the noise is that of the table.
        table: draws the noise of one count.
    """

    table: GeometricTable

    @property
    def identity(self) -> Sequence[object]:
        """As of every level; the noise is that of the table."""
        table = self.table
        return [self.name, str(self.epsilon), table.h, table.base.u, table.base.w, table.g]

    @cached_property
    def noise(self) -> Noise:
        """As of every level, with what is peculiar to a table."""
        return Noise(
            distribution="clamped discrete laplace",
            ratio=Amount.up(self._ratio),
            scale=self._scale,
            largest_count=self.table.bound,
            uniform=Amount.up(Fraction(1, 1 << self.table.g)),
        )

    @property
    def _ratio(self) -> Fraction:
        return Fraction(self.table.base.u, self.table.base.w)


@dataclass(frozen=True)
class TruncatedLevel(NoiseLevel):
    """The one level of a histogram whose noise ends; delta pays for its end as well as for new keys.

    The variance, figures of sums and `two_sided_from` are those of noise without an end, and hold here. Proof for the
    last: as in `levels.two_sided_from`, where P(X >= n + s) / P(X >= n) = (a^(n+s) - u) / (a^n - u) <= a^s with
    u = a^(t+1), and the other two cases need no more than that the law is symmetric.

    Attributes:
        law: of the noise of one count.
    """

    law: TruncatedLaplace

    @property
    def identity(self) -> Sequence[object]:
        """As of every level, and where the noise ends."""
        return [*super().identity, self.law.largest]

    def minimum_count(self, delta: Fraction) -> int:
        """Smallest count that no noise reaches from 0; the law is made for delta."""
        return self.law.largest + 1

    @cached_property
    def noise(self) -> Noise:
        """As of every level, and where it ends."""
        ends = {"distribution": "truncated discrete laplace", "largest": self.law.largest}
        return super().noise.model_copy(update=ends)


@dataclass(frozen=True)
class GaussianLevel(NoiseLevel):
    """A level with discrete Gaussian noise.

    All levels of a ladder are paid for with the first release, whichever that is: `rho` is that of the finest, and a
    step costs nothing. What a step alone tells has no bound that was proved.

    Attributes:
        epsilon: its size in the ladder: noise has a standard deviation of the sensitivity over that.
        threshold: 0; there are no clocks.
        parts: variances of what its noise is the sum of, that of the finest level first.
    """

    parts: tuple[Fraction, ...]

    def interval_of(self, panes: int) -> int:
        """As of every level."""
        return self.noise_interval if panes == 1 else self._law(panes).interval(CONFIDENCE)

    def error_of(self, panes: int) -> Fraction:
        """As of every level, but rounded up."""
        return self.expected_error if panes == 1 else self._law(panes).mean_absolute

    @property
    def identity(self) -> Sequence[object]:
        """As of every level."""
        return [self.name, "discrete gaussian", str(self.variance)]

    @property
    def variance(self) -> Fraction:
        """Parameter of the noise, which its variance does not exceed."""
        return self._law().variance

    @property
    def tails(self) -> list[Fraction]:
        """The chances that the noise of one count is 0, 1, 2, ... or more away from 0, for forecasts."""
        return self._law().tails

    def minimum_count(self, delta: Fraction) -> int:
        """As of every level."""
        return 1 + self._law().threshold(delta)

    def two_sided_from(self, minimum: int) -> int:
        """As of every level (`levels.two_sided_from`): t + 1 above the minimum count.

        Proof. Let T(n) = P(Z >= n), c the count, B = 1 - confidence; 2 T(t + 1) <= B. A miss below is Z > t where the
        noisy count is at least minimum + t + 1, a miss above Z < -t. The key is shown where Z >= minimum - c.

        * c <= minimum, n = minimum - c: no miss above is shown. A miss below has T(n + t + 1) / T(n), which falls with
          n, since sums of discrete Gaussians are log-concave: at most T(t + 1) / T(0) <= B, for 2 T(0) >= 1.
        * c = minimum + d, 1 <= d <= t: no miss above is shown. One below has at most T(t + 1) / P(Z >= -d) <= B.
        * d > t: no miss is P(|Z| <= t) / P(Z >= -d) >= 1 - B.
        """
        return minimum + self.interval_of(1) + 1

    @property
    def pure_epsilon(self) -> None:
        """None: no epsilon without a delta holds."""

    def price(self, panes: int = 1) -> dict[str, Any]:
        """As of every level."""
        return {"rho": Amount.up(self.rho * panes)}

    @cached_property
    def noise(self) -> Noise:
        """As of every level."""
        deviation = root_up(self.variance)
        return Noise(distribution="discrete gaussian", variance=Amount.up(self.variance), scale=decimal_up(deviation))

    def _law(self, panes: int = 1) -> GaussianSum:
        return gaussian_sum(self.parts, panes)


def gaussian_levels(ladder: Ladder, sensitivity: int, shown: Fraction = Fraction(0)) -> tuple[NoiseLevel, ...]:
    """The discrete Gaussian noise of every level of a ladder.

    Args:
        ladder: the levels. Noise has a standard deviation of the sensitivity over their epsilon.
        sensitivity: how many of the published counts one user moves, each by one.
        shown: the chance that a key that only one user has is shown at any level; 0 where keys are public or chosen.

    Raises:
        ConfigError: a level's epsilon is out of bounds, or two are too close; the path is relative to the view.

    Guarantee: all levels together cost `rho`. Proof: each of the counts that a user moves has, at the finest level,
    noise of variance v, which is 1 / (2 v)-zCDP; all coarser levels are made from that without the data. Source:
    Canonne, Kamath and Steinke 2020, Proposition 5.
    """
    variances = [Fraction(sensitivity, epsilon) ** 2 for _, epsilon in ladder]
    faults = [
        Fault("ladder", f"{_out_of_bounds(name, epsilon, sensitivity, GAUSSIAN_FINEST)} for discrete Gaussian noise")
        for name, epsilon in ladder
        if not COARSEST <= Fraction(epsilon, sensitivity) <= GAUSSIAN_FINEST
    ]
    steps = [coarse - fine for coarse, fine in pairwise(variances)]
    faults += [
        Fault(
            "ladder",
            f"levels {coarse!r} and {fine!r} are too close for discrete Gaussian noise: the variance of a "
            f"count falls by {decimal_up(step)} between them; that must be at least {SMALLEST_STEP}",
        )
        for (coarse, _), (fine, _), step in zip(ladder, ladder[1:], steps, strict=False)
        if step < SMALLEST_STEP
    ]
    if faults:
        raise ConfigError(faults)
    rho = gaussian_rho(variances[-1], sensitivity, shown)
    made = []
    for at, (name, epsilon) in enumerate(ladder):
        parts = (variances[-1], *reversed(steps[at:]))
        law = gaussian_sum(parts)
        interval, error = law.interval(CONFIDENCE), law.mean_absolute
        made.append(GaussianLevel(name, epsilon, 0, interval, error, rho, Fraction(0), parts))
    return tuple(made)


def truncated_levels(ladder: Ladder, sensitivity: int, shown: Fraction = Fraction(0)) -> tuple[NoiseLevel, ...]:
    """The one level of a ladder, with discrete Laplace noise that ends; arguments as of `noise_levels`.

    Raises:
        ConfigError: no key is shown by its count, there are more levels, or an epsilon or delta is out of bounds; the
            path is relative to the view.

    Guarantee: the level's epsilon, with a delta of `shown` for each count that a user moves, if keys are shown from its
    minimum count on. Proof: docs/budgets.md, "Noise that ends".
    """
    if not shown:
        raise ConfigError([Fault("noise", f"{TRUNCATED} noise is for a histogram, whose delta pays for its end")])
    name, epsilon, one = _only_level(ladder, sensitivity)
    threshold = threshold_for(one)
    ratio = Fraction(threshold, WORD)
    if shown > 1 - ratio:
        words = f"must be at most 1 - e^-{one} for each item of a user with {TRUNCATED} noise; spend less of it"
        raise ConfigError([Fault("delta", words)])
    law, (rho,) = TruncatedLaplace.within(threshold, shown), ladder_rho([ratio], sensitivity, shown)
    return (TruncatedLevel(name, epsilon, threshold, law.interval(CONFIDENCE), law.mean_absolute, *rho, law),)


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
    of_one = [Fraction(epsilon, sensitivity) for _, epsilon in ladder]
    faults = [
        Fault("ladder", _out_of_bounds(name, epsilon, sensitivity))
        for (name, epsilon), one in zip(ladder, of_one, strict=True)
        if not COARSEST <= one <= FINEST
    ]
    if faults:
        raise ConfigError(faults)
    thresholds = [threshold_for(one) for one in of_one]
    ratios = [Fraction(threshold, WORD) for threshold in thresholds]
    rhos = ladder_rho(ratios, sensitivity, shown)
    return tuple(
        NoiseLevel(name, epsilon, threshold, interval(ratio, CONFIDENCE), mean_absolute(ratio), *rho)
        for (name, epsilon), threshold, ratio, rho in zip(ladder, thresholds, ratios, rhos, strict=True)
    )


def _out_of_bounds(name: str, epsilon: Fraction, sensitivity: int, finest: Fraction = FINEST) -> str:
    return (
        f"level {name!r} has epsilon {epsilon} for the {sensitivity} counts that one user moves, "
        f"{Fraction(epsilon, sensitivity)} for one; that must be between {COARSEST} and {finest}"
    )


def _only_level(ladder: Ladder, sensitivity: int) -> tuple[str, Fraction, Fraction]:
    """Return the name of the one level of a ladder, its epsilon, and that of one count."""
    (name, epsilon), *others = ladder
    if others:
        words = f"must have one level, not {len(ladder)}: later releases cannot make this noise finer"
        raise ConfigError([Fault("ladder", words)])
    one = Fraction(epsilon, sensitivity)
    if not COARSEST <= one <= FINEST:
        raise ConfigError([Fault("ladder", _out_of_bounds(name, epsilon, sensitivity))])
    return name, epsilon, one


def table_level(ladder: Ladder, sensitivity: int, *, count_bits: int, uniform_bits: int) -> TableLevel:
    """The one level of a ladder, with noise from a table.

    Args:
        ladder: the levels.
        sensitivity: how many of the published counts one user moves, each by one.
        count_bits: counts are clamped to 2^count_bits - 1.
        uniform_bits: a count is replaced by a uniform one with probability 2^-uniform_bits.

    Raises:
        ConfigError: there are more levels, or epsilon is out of bounds; the path is relative to the view.

    Guarantee: the level's epsilon, pure: the ratio of the table to the power of the sensitivity is at most e^epsilon,
    certified in integers (`Base.within`).
    """
    name, epsilon, one = _only_level(ladder, sensitivity)
    rho = table_rho(epsilon)
    table = GeometricTable(count_bits, Base.within(one), uniform_bits)
    return TableLevel(
        name=name,
        epsilon=epsilon,
        threshold=0,
        noise_interval=table_interval(table, CONFIDENCE),
        expected_error=table_mean_absolute(table, table.bound >> 1),
        rho=rho,
        step_rho=rho,
        table=table,
    )


LAWS: Mapping[str, Callable[[Ladder, int, Fraction], tuple[NoiseLevel, ...]]] = {
    LAPLACE: noise_levels,
    GAUSSIAN: gaussian_levels,
    TRUNCATED: truncated_levels,
}
"""By the `noise` of a view: what makes its levels."""


def table_rho(epsilon: Fraction) -> Fraction:
    """Return the zCDP of table noise of a window: that of any mechanism with its epsilon."""
    return epsilon * epsilon * Fraction(1, 2)


def exceeded(mean: Fraction, chance: Fraction) -> Fraction:
    """Return the value that exponential noise exceeds with a chance, from above: mean ln(1 / chance)."""
    _, above = log(Fraction(1, chance), _LOG_PRECISION)
    return mean * Fraction(above, 1 << _LOG_PRECISION)
