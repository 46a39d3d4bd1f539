"""Poisson noise: one-sided integers that only grow as the noise gets coarser, by thinning one another.

Adding it to a count is (epsilon, delta)-private and never pure: the release is not below the count
(specs/lossless 3.3).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.errors import ParameterError
from stream_dp.exact import coins, laws
from stream_dp.exact.bits import BitSource
from stream_dp.lossless.kernels import check_monotone, check_order
from stream_dp.lossless.levels import WORD_BITS, noise_parameter


@dataclass(frozen=True)
class Poisson:
    """Poisson noise; a level is a number whose multiple is the mean, finer is smaller.

    A release has the mean count + `mean(level)`: subtract that where it is displayed.

    Attributes:
        mean_per_level: mean and variance of the noise per unit of the level.

    Source: specs/lossless 2.5, vectors P01 to P03.
    """

    mean_per_level: Fraction = Fraction(1)

    @property
    def zero(self) -> int:
        """See `NoiseFamily`."""
        return 0

    def mean(self, level: Fraction) -> Fraction:
        """Expectation of the noise, which is its variance too."""
        return self.mean_per_level * level

    def is_finer(self, a: Fraction, b: Fraction) -> bool:
        """See `NoiseFamily`."""
        return a < b

    def fresh(self, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`."""
        _check(level)
        return coins.poisson(self.mean(level), bits)

    def coarsen(self, value_fine: int, fine: Fraction, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`; what is added is Poisson again."""
        _check(fine)
        check_order(self, fine, level)
        return value_fine + coins.poisson(self.mean(level - fine), bits)

    def between(
        self, value_fine: int, fine: Fraction, value_coarse: int, coarse: Fraction, level: Fraction, bits: BitSource
    ) -> int:
        """See `NoiseFamily`; each point of the difference falls below the level by itself."""
        _check(fine)
        check_order(self, fine, level, coarse)
        check_monotone(value_fine, value_coarse)
        share = Fraction(level - fine, coarse - fine)
        return value_fine + coins.binomial(value_coarse - value_fine, share, bits)

    def sharpen(self, value_coarse: int, coarse: Fraction, exact: int, level: Fraction, bits: BitSource) -> int:
        """See `NoiseFamily`; each point of the noise is kept by itself."""
        _check(level)
        check_order(self, level, coarse)
        check_monotone(exact, value_coarse)
        return exact + coins.binomial(value_coarse - exact, Fraction(level, coarse), bits)

    def pmf(self, level: Fraction, k: int, precision: int) -> tuple[int, int]:
        """Encloses 2^precision P(noise = k), by at most 2 units."""
        return laws.poisson_pmf(self.mean(level), k, precision)

    def bridge_pmf(self, fine: Fraction, coarse: Fraction, k: int, precision: int) -> tuple[int, int]:
        """Encloses 2^precision P(coarse reading is k above the fine one), by at most 2 units."""
        return laws.poisson_pmf(self.mean(coarse - fine), k, precision)

    def between_pmf(self, fine: Fraction, level: Fraction, coarse: Fraction, k: int, w: int) -> Fraction:
        """P(the reading is w above the fine one | the coarse one is k above it)."""
        return laws.binomial_pmf(k, Fraction(level - fine, coarse - fine), w)

    def sharpen_pmf(self, coarse: Fraction, level: Fraction, z: int, w: int) -> Fraction:
        """P(the noise is w | the noise at the coarse level is z)."""
        return laws.binomial_pmf(z, Fraction(level, coarse), w)


def points_below(most: Fraction, thresholds: Sequence[int], bits: BitSource) -> tuple[int, ...]:
    """Read one Poisson process at several levels: the points with a 64-bit mark below A, for each A.

    A pure function of the stream, so a keyed one gives every level at any time in any order without stored noise.

    Args:
        most: mean number of points; the level A has mean `most` A / 2^64.
        thresholds: levels A, 1 <= A < 2^64, in any order.
        bits: the stream of this count.

    Returns:
        The numbers of points, in the order of `thresholds`: jointly the noise of those levels.

    Raises:
        ParameterError: not a level, or a negative mean.

    Source: specs/lossless 7.7, last line.
    """
    for threshold in thresholds:
        noise_parameter(threshold)
    marks = sorted(bits.bits(WORD_BITS) for _ in range(coins.poisson(most, bits)))
    return tuple(bisect_left(marks, threshold) for threshold in thresholds)


def _check(level: Fraction) -> None:
    if level <= 0:
        raise ParameterError(f"a level of Poisson noise must be positive, not {level}")
