"""Binomial noise as a prefix popcount: the noise of N bits is the number of ones among the first N of a stream.

Coarser noise reads more bits, so all levels are nested. Never pure: the support is bounded (specs/lossless 3.3, 7.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact import coins, laws
from stream_dp.exact.bits import BitSource
from stream_dp.lossless.kernels import check_monotone, check_order


@dataclass(frozen=True)
class PrefixPopcount:
    """The number of ones among N fair bits; a level is N, finer is smaller.

    A release has the mean count + N / 2: subtract `mean(level)` where it is displayed, and never round it before.
    Source: specs/lossless 7.8, vector B01.
    """

    @property
    def zero(self) -> int:
        """See `NoiseFamily`."""
        return 0

    def mean(self, level: int) -> Fraction:
        """N / 2; the variance is N / 4."""
        return Fraction(level, 2)

    def is_finer(self, a: int, b: int) -> bool:
        """See `NoiseFamily`."""
        return a < b

    def fresh(self, level: int, bits: BitSource) -> int:
        """See `NoiseFamily`."""
        _check(level)
        return bits.bits(level).bit_count()

    def coarsen(self, value_fine: int, fine: int, level: int, bits: BitSource) -> int:
        """See `NoiseFamily`; the ones among the further bits."""
        _check(fine)
        check_order(self, fine, level)
        return value_fine + bits.bits(level - fine).bit_count()

    def between(self, value_fine: int, fine: int, value_coarse: int, coarse: int, level: int, bits: BitSource) -> int:
        """See `NoiseFamily`; which of the further bits are ones is uniform among all placements."""
        _check(fine)
        check_order(self, fine, level, coarse)
        ones = _ones(value_fine, value_coarse, coarse - fine)
        return value_fine + coins.hypergeometric(ones, coarse - fine - ones, level - fine, bits)

    def sharpen(self, value_coarse: int, coarse: int, exact: int, level: int, bits: BitSource) -> int:
        """See `NoiseFamily`."""
        _check(level)
        check_order(self, level, coarse)
        ones = _ones(exact, value_coarse, coarse)
        return exact + coins.hypergeometric(ones, coarse - ones, level, bits)

    def pmf(self, level: int, k: int) -> Fraction:
        """P(k ones)."""
        return laws.binomial_pmf(level, Fraction(1, 2), k)

    def bridge_pmf(self, fine: int, coarse: int, k: int) -> Fraction:
        """P(coarse reading is k above the fine one)."""
        return laws.binomial_pmf(coarse - fine, Fraction(1, 2), k)

    def between_pmf(self, fine: int, level: int, coarse: int, k: int, w: int) -> Fraction:
        """P(the reading is w above the fine one | the coarse one is k above it)."""
        return laws.hypergeometric_pmf(k, coarse - fine - k, level - fine, w)

    def sharpen_pmf(self, coarse: int, level: int, z: int, w: int) -> Fraction:
        """P(w ones among the first bits | z among all bits of the coarse level)."""
        return laws.hypergeometric_pmf(z, coarse - z, level, w)


def ones_among_first(levels: Sequence[int], bits: BitSource) -> tuple[int, ...]:
    """Read one stream of fair bits at several levels: the ones among its first N bits, for each N.

    A pure function of the stream, so a keyed one gives every level at any time in any order without stored noise.

    Args:
        levels: numbers of bits, at least 1, in any order.
        bits: the stream of this count, read as far as the coarsest level.

    Returns:
        The numbers of ones, in the order of `levels`: jointly the noise of those levels.

    Raises:
        ParameterError: not a level.

    Source: specs/lossless 7.8.
    """
    found, ones, read = {}, 0, 0
    for level in sorted(set(levels)):
        _check(level)
        ones += bits.bits(level - read).bit_count()
        found[level], read = ones, level
    return tuple(found[level] for level in levels)


def _ones(value_fine: int, value_coarse: int, places: int) -> int:
    """How many of the bits between two readings are ones."""
    check_monotone(value_fine, value_coarse)
    if value_coarse - value_fine > places:
        raise StateError(f"{value_coarse - value_fine} ones are stored for only {places} bits")
    return value_coarse - value_fine


def _check(level: int) -> None:
    if level < 1:
        raise ParameterError(f"a level of popcount noise must be at least one bit, not {level}")
