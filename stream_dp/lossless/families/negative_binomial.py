"""Shares of a geometric clock for agents that do not trust one another with the whole noise (specs/lossless 7.9).

n agents each add a negative binomial number per side, and the sum is discrete Laplace noise, level by level. Behind a
share stands a Poisson process of events with sizes; finer noise is what is left after deleting the latest events.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.errors import ParameterError
from stream_dp.exact import coins, laws
from stream_dp.exact.bits import BitSource
from stream_dp.exact.reals import exp_neg, log
from stream_dp.lossless.families.discrete_laplace import check_parameter
from stream_dp.lossless.kernels import TwoSided, check_monotone, check_order

_NO_NOISE = Fraction(0)  # as a level: noise is the bridge from no noise at all, and sharpening is between that and more


@dataclass(frozen=True)
class NegativeBinomial:
    """A share of a geometric clock: generating function ((1 - a) / (1 - a z))^share; a level is a, finer is smaller.

    Attributes:
        share: in (0, 1]; shares of independent agents add up, and a whole one is `GeometricClock`.

    Kernels cost the square of the clock in integer operations. Source: specs/lossless 7.9, vector N01.
    """

    share: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ParameterError(f"a share of the noise must lie in (0, 1], not {self.share}")

    @property
    def zero(self) -> int:
        """See `NoiseFamily`."""
        return 0

    def is_finer(self, a: Fraction, b: Fraction) -> bool:
        """See `NoiseFamily`."""
        return a < b

    def fresh(self, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`: a whole clock, of which every unit goes to this agent or to the others by Polya's urn."""
        check_parameter(level)
        mine = 0
        for unit in range(coins.geometric(level, bits)):
            mine += coins.bernoulli(Fraction(self.share + mine, 1 + unit), bits)
        return mine

    def coarsen(self, value_fine: int, fine: Fraction, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`; what is added is the difference of an independent path between the two levels."""
        check_parameter(fine, level)
        check_order(self, fine, level)
        other = self.fresh(level, bits)
        return value_fine + other - self.sharpen(other, level, 0, fine, bits)

    def between(
        self, value_fine: int, fine: Fraction, value_coarse: int, coarse: Fraction, level: Fraction, bits: BitSource
    ) -> int:
        """See `NoiseFamily`; inverts the distribution function."""
        check_parameter(fine, level, coarse)
        check_order(self, fine, level, coarse)
        check_monotone(value_fine, value_coarse)
        weights = self._between_weights(fine, level, coarse, value_coarse - value_fine)
        return value_fine + coins.weighted(weights, bits)

    def sharpen(self, value_coarse: int, coarse: Fraction, exact: int, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`; inverts the distribution function."""
        check_parameter(level, coarse)
        check_order(self, level, coarse)
        check_monotone(exact, value_coarse)
        weights = self._between_weights(_NO_NOISE, level, coarse, value_coarse - exact)
        return exact + coins.weighted(weights, bits)

    def pmf(self, level: Fraction, k: int, precision: int) -> tuple[int, int]:
        """Encloses 2^precision P(noise = k), by a few units."""
        return self.bridge_pmf(_NO_NOISE, level, k, precision)

    def bridge_pmf(self, fine: Fraction, coarse: Fraction, k: int, precision: int) -> tuple[int, int]:
        """Encloses 2^precision P(coarse reading is k above the fine one), by a few units."""
        if k < 0:
            return 0, 0
        weight = self._series(fine, coarse, k)[k]
        places = precision + 8
        least, most = log(Fraction(1 - fine, 1 - coarse), places)
        lower, _ = exp_neg(self.share * Fraction(most, 1 << places), places)
        _, upper = exp_neg(self.share * Fraction(least, 1 << places), places)
        return laws.scaled(weight, (lower, upper), 8)

    def between_pmf(self, fine: Fraction, level: Fraction, coarse: Fraction, k: int, w: int) -> Fraction:
        """P(the reading is w above the fine one | the coarse one is k above it): rational."""
        weights = self._between_weights(fine, level, coarse, k)
        return Fraction(weights[w], sum(weights)) if 0 <= w <= k else Fraction(0)

    def sharpen_pmf(self, coarse: Fraction, level: Fraction, z: int, w: int) -> Fraction:
        """P(the noise is w | the noise at the coarse level is z): rational."""
        return self.between_pmf(_NO_NOISE, level, coarse, z, w)

    def _between_weights(self, fine: Fraction, level: Fraction, coarse: Fraction, k: int) -> list[Fraction]:
        first, second = self._series(fine, level, k), self._series(level, coarse, k)
        return [first[w] * second[k - w] for w in range(k + 1)]

    def _series(self, fine: Fraction, coarse: Fraction, last: int) -> list[Fraction]:
        """Coefficients 0 to `last` of ((1 - fine z) / (1 - coarse z))^share; the bridge's law up to a factor."""
        # f' (1 - fine z) (1 - coarse z) = share (coarse - fine) f
        series = [Fraction(1)]
        for k in range(last):
            gained = (k * (fine + coarse) + self.share * (coarse - fine)) * series[k]
            lost = (k - 1) * fine * coarse * series[k - 1] if k else 0
            series.append(Fraction(gained - lost, k + 1))
        return series


def agent_share(agents: int) -> TwoSided[Fraction]:
    """The noise one of so many agents adds: the sum over the agents is discrete Laplace noise at every level.

    Guarantee: the sum of all shares. What fewer honest agents add is less noise: r of n shares are
    NB(r / n, a) per side.

    Raises:
        ParameterError: no agents.
    """
    if agents < 1:
        raise ParameterError(f"noise is shared among at least one agent, not {agents}")
    return TwoSided(NegativeBinomial(Fraction(1, agents)))
