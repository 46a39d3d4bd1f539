"""Discrete Gaussian noise, P(Z = k) proportional to e^(-k^2 / (2 v)): exact draws for many counts, exact tails.

A ladder has independent increments: its finest level has noise of its own, and each coarser one that of the level
below and more. So every level is made from the finest without the data, and all of them together cost what the finest
does. The law of a sum is that of one discrete Gaussian but for a factor that is bounded here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import ParameterError
from stream_dp.exact.aes import KEY_BYTES
from stream_dp.exact.bits import BitSource
from stream_dp.exact.reals import exp_neg
from stream_dp.lossless.bulk import Staircase, Step, Uniforms
from stream_dp.lossless.levels import WORD_BITS

SMALLEST_STEP = Fraction(1)
"""Of the variances that are added up: then chances of the sum differ by less than 0.1 % from those of one number."""
LARGEST_VARIANCE = 1_000_000
"""Of one draw: its table has ten steps for each standard deviation."""

_SIGN = 1 << 41
_EXCESS_BITS = 64
_TWICE_SQUARED_PI = Fraction(197392, 10_000)
"""2 pi^2, rounded down."""
_FINEST_PARTS = 2000


@lru_cache(maxsize=256)
def _tails(variance: Fraction, precision: int) -> tuple[Sequence[int], Sequence[int]]:
    """Enclose 2^precision P(|Z| >= k) for k = 0, 1, ... up to the first (0, 1), which bounds all behind it as well.

    The weights w_k = e^(-k^2 / (2 v)) follow from each other by w_(k+1) = w_k r_k and r_(k+1) = r_k e^(-1/v), every
    rounding directed outwards. Those behind the last are at most a geometric series.
    """
    small = 2 * (variance.numerator // variance.denominator + 1).bit_length() + 32
    point = precision + 2 * small
    square = exp_neg(Fraction(1, variance), point)
    low = up = one = 1 << point
    low_ratio, up_ratio = exp_neg(Fraction(1, 2 * variance), point)
    lows, ups = [low], [up]
    while up >> small:
        low, up = low * low_ratio >> point, -(-up * up_ratio >> point)
        low_ratio, up_ratio = low_ratio * square[0] >> point, -(-up_ratio * square[1] >> point)
        lows.append(low)
        ups.append(up)
    beyond = -(-(up << point) // (one - up_ratio))
    least = list(accumulate(reversed(lows[1:])))[::-1]
    most = list(accumulate(reversed(ups[1:]), initial=beyond))[:0:-1]
    lower = [(2 * some << precision) // (one + 2 * most[0]) for some in least]
    upper = [-(-(2 * some << precision) // (one + 2 * least[0])) for some in most]
    end = next(at for at, pair in enumerate(zip(lower, upper, strict=True)) if pair == (0, 1)) + 1
    return [1 << precision, *lower[:end]], [1 << precision, *upper[:end]]


def _enclosed(variance: Fraction, k: int, precision: int) -> tuple[int, int]:
    lower, upper = _tails(variance, precision)
    return (lower[k], upper[k]) if k < len(lower) else (0, 1)


@lru_cache(maxsize=256)
def _magnitudes(variance: Fraction) -> Staircase:
    """The steps P(|Z| >= 1) > P(|Z| >= 2) > ...: so many as lie above a uniform number are |Z|."""
    if not 0 < variance <= LARGEST_VARIANCE:
        raise ParameterError(f"a variance must be above 0 and at most {LARGEST_VARIANCE}, not {variance}")

    def step(k: int) -> Step:
        return lambda precision: _enclosed(variance, k, precision)

    return Staircase(step)


def bulk_gaussian(variance: Fraction, size: int, bits: BitSource) -> NDArray[np.int64]:
    """Draw independent discrete Gaussian numbers, exactly.

    Args:
        variance: v, at most `LARGEST_VARIANCE`; the variance of a number is at most that.
        size: how many, at most 2^40.
        bits: fresh source of uniform bits; this call takes 256 of them, as the key of its AES-256.

    Returns:
        Shape (size,).

    Raises:
        ParameterError: the variance is out of range.

    Time: 15 nanoseconds per number, and some milliseconds when a variance is used for the first time.
    Source: specs/lossless 7.6, 7.10.
    """
    uniforms = Uniforms(bits.bits(8 * KEY_BYTES).to_bytes(KEY_BYTES))
    magnitudes = _magnitudes(variance).counts_above(uniforms, 0, size)
    return np.where(uniforms.leads(_SIGN, size) & 1, -magnitudes, magnitudes)


class GaussianSum:
    """The law of a sum of independent discrete Gaussian numbers.

    Between it and one number Z of the variance of all of them, chances differ by a factor of at most e^x, where x is
    the sum over the terms, in their order, of 5 e^(-2 pi^2 / (1 / u + 1 / v)): v is the variance of a term, and u that
    of those before it. Source: Kairouz, Liu and Steinke 2021, the lemma on the convolution of two discrete Gaussians.

    Attributes:
        parts: variances of the terms, each at least `SMALLEST_STEP` where there are several.
        variance: of all of them together.
    """

    def __init__(self, parts: Sequence[Fraction]) -> None:
        """Bound the factor.

        Raises:
            ParameterError: a variance is too small to be added to others.
        """
        if len(parts) > 1 and min(parts) < SMALLEST_STEP:
            raise ParameterError(f"a variance that is added to others must be at least {SMALLEST_STEP}")
        self.parts = tuple(parts)
        totals = list(accumulate(self.parts))
        self.variance = totals[-1]
        excess = Fraction(0)
        for total, part in zip(totals, self.parts[1:], strict=False):
            apart = Fraction(_TWICE_SQUARED_PI * total * part, total + part)
            excess += Fraction(5 * exp_neg(apart, _EXCESS_BITS)[1], 1 << _EXCESS_BITS)
        if excess >= 1:
            raise ParameterError("the variances that are added up are too small")
        # Of a wide law, parts of h numbers stand for their first: weights fall, so P(|Z| >= m h) is at most
        # 2 h S / (1 + 2 h T), with S the weights at m h, (m + 1) h, ... and T those at h, 2 h, ... These are the
        # weights of the variance over h^2, whose tail is 2 S / (1 + 2 T): the bound is at most 1 + 1 / (2 T) times it.
        root = isqrt(self.variance.numerator // self.variance.denominator)
        self._width = max(1, root // _FINEST_PARTS)
        self._narrow = Fraction(self.variance, self._width**2)
        self._factor = Fraction(1, 1 - excess)
        if self._width > 1:
            self._factor *= 1 + Fraction(1, root // self._width)

    def beyond(self, t: int) -> Fraction:
        """Return an upper bound of P(|S| >= t), t >= 0."""
        _, upper = _enclosed(self._narrow, t // self._width, _TAIL_PRECISION)
        return min(Fraction(1), Fraction(upper, 1 << _TAIL_PRECISION) * self._factor)

    def interval(self, confidence: Fraction) -> int:
        """Return a t with P(|S| <= t) >= confidence; the smallest but for the factor."""
        return self._first(1 - confidence) - 1

    def threshold(self, chance: Fraction) -> int:
        """Return a t >= 1 with P(S >= t) <= chance; the smallest but for the factor.

        Raises:
            ParameterError: the chance is not above 2^-190, or not below 1/2.
        """
        if not 0 < chance < Fraction(1, 2):
            raise ParameterError(f"the chance must lie between 0 and 1/2, not {chance}")
        return self._first(2 * chance)

    def _first(self, chance: Fraction) -> int:
        """The first multiple of the width t with P(|S| >= t) <= chance as it is bounded here."""
        end = len(_tails(self._narrow, _TAIL_PRECISION)[1]) * self._width
        firsts = range(self._width, end, self._width)
        at = bisect_left(firsts, True, key=lambda t: self.beyond(t) <= chance)
        if at == len(firsts):
            raise ParameterError("the chance is too small")
        return firsts[at]

    @property
    def tails(self) -> list[Fraction]:
        """P(|Z| >= t) for t = 0, 1, ..., of one number of all the variance, close enough for forecasts."""
        return [Fraction(chance, 1 << WORD_BITS) for chance in _tails(self.variance, WORD_BITS)[1]]

    @property
    def mean_absolute(self) -> Fraction:
        """E|S|, from above: the sum of P(|S| >= t) over t >= 1."""
        _, upper = _tails(self._narrow, WORD_BITS)
        tails = self._factor * Fraction(sum(upper[1:]) + len(upper), 1 << WORD_BITS)
        return tails if self._width == 1 else self._width * (1 + tails)


_TAIL_PRECISION = 192


@lru_cache(maxsize=256)
def gaussian_sum(parts: tuple[Fraction, ...], times: int = 1) -> GaussianSum:
    """The law of the sum of so many independent copies of a sum."""
    return GaussianSum(parts * times)
