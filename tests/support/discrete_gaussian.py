"""Discrete Gaussian noise, P(Z = k) proportional to e^(-k^2 / (2 variance)), lossless on ladders of odd ratios.

Jacobi's product writes the noise of variance v as a sum over odd m of B_m - B'_m, independent, with
B_m = 1 of probability q^m / (1 + q^m), q = e^(-1 / (2v)). The noise of variance v / n, n odd, uses exactly the m that
are multiples of n: all levels are read from the same set of marks m. Between other variances no bridge exists
(specs/lossless 7.6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact import coins
from stream_dp.exact.bits import BitSource
from stream_dp.exact.reals import exp_neg
from tests.support.multiple_release import check_order

_BLOCK = 64


@dataclass(frozen=True, slots=True)
class Marks:
    """A reading kept as the marks m whose B_m (plus) or B'_m (minus) is one, and the exact or released count below.

    It tells more than the released integer; `zero + int(reading)` forgets the marks.
    """

    count: int
    plus: tuple[int, ...]
    minus: tuple[int, ...]

    def __add__(self, count: int, /) -> Marks:
        return Marks(self.count + count, self.plus, self.minus)

    def __int__(self) -> int:
        return self.count + len(self.plus) - len(self.minus)


@dataclass(frozen=True)
class OddRatioLadder:
    """Discrete Gaussian noise of the variances `variance / n`, n in `divisors`; a level is n, finer is larger.

    Guarantee of a set of levels: Delta2^2 n / (2 variance)-zCDP for its finest n (Canonne, Kamath, Steinke 2020).

    Attributes:
        variance: parameter of the coarsest level n = 1, in squared counts.
        divisors: 1 < n_1 < n_2 < ..., each an odd multiple of the one before; no other ratio has a bridge.

    Source: specs/lossless 7.6, vectors DG1, DG2.
    """

    variance: Fraction
    divisors: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.variance <= 0:
            raise ParameterError(f"a variance must be positive, not {self.variance}")
        if self.divisors[:1] != (1,):
            raise ParameterError("the divisors of a ladder start with 1, its coarsest level")
        for coarse, fine in pairwise(self.divisors):
            if fine <= coarse or fine % (2 * coarse) != coarse:
                raise ParameterError(
                    f"variance / {fine} has no bridge to variance / {coarse}: the ratio must be an odd integer above 1"
                )

    @property
    def zero(self) -> Marks:
        """See `NoiseFamily`."""
        return Marks(0, (), ())

    def is_finer(self, a: int, b: int) -> bool:
        """See `NoiseFamily`."""
        return a > b

    def fresh(self, level: int, bits: BitSource) -> Marks:
        """See `NoiseFamily`; draws all marks of the level, however large, without truncation."""
        self._check(level)
        return Marks(0, self._marks(level, bits), self._marks(level, bits))

    def coarsen(self, value_fine: Marks, fine: int, level: int, bits: BitSource) -> Marks:
        """See `NoiseFamily`; adds the marks of the coarse level that are not marks of the fine one."""
        self._check(fine, level)
        check_order(self, fine, level)
        plus, minus = (_others(self._marks(level, bits), fine) for _ in range(2))
        return Marks(value_fine.count, _union(value_fine.plus, plus), _union(value_fine.minus, minus))

    def between(
        self, value_fine: Marks, fine: int, value_coarse: Marks, coarse: int, level: int, bits: BitSource
    ) -> Marks:
        """See `NoiseFamily`; nothing is drawn, the marks of the coarse reading decide."""
        self._check(fine, level, coarse)
        check_order(self, fine, level, coarse)
        sides = ((value_fine.plus, value_coarse.plus), (value_fine.minus, value_coarse.minus))
        if value_coarse.count != value_fine.count or any(_multiples(large, fine) != small for small, large in sides):
            raise StateError("the marks of a coarser reading do not continue those of the finer one")
        return Marks(value_fine.count, *(_multiples(large, level) for _, large in sides))

    def sharpen(self, value_coarse: Marks, coarse: int, exact: int, level: int, bits: BitSource) -> Marks:
        """See `NoiseFamily`; nothing is drawn, the marks of the coarse reading decide."""
        self._check(level, coarse)
        check_order(self, level, coarse)
        if value_coarse.count != exact:
            raise StateError("the marks below this reading were forgotten; nothing finer can be drawn from it")
        return Marks(exact, _multiples(value_coarse.plus, level), _multiples(value_coarse.minus, level))

    def _check(self, *levels: int) -> None:
        for level in levels:
            if level not in self.divisors:
                raise ParameterError(f"{level} is not a level of the ladder; those are {self.divisors}")

    def _marks(self, level: int, bits: BitSource) -> tuple[int, ...]:
        """The odd multiples m of the level with B_m = 1, ascending.

        The probability of a set is proportional to the product of its q^m. So that of its size k is proportional to
        q^(level k^2) / prod_(j<=k) (1 - r^j), r = q^(2 level), and given k the gaps are geometric of r^k, ..., r^1.
        """
        scale = Fraction(self.variance, level)
        start = 0
        while (size := start + coins.choose(_sizes(scale, start), bits)) == start + _BLOCK:
            start += _BLOCK
        marks, place = [], -1
        for j in range(size, 0, -1):
            place += 1 + coins.geometric_exp(Fraction(j, scale), bits)
            marks.append(level * (2 * place + 1))
        return tuple(marks)


def _sizes(scale: Fraction, start: int) -> Callable[[int], Sequence[tuple[int, int]]]:
    """Weights of the sizes start, ..., start + _BLOCK - 1 of a set of marks, and of all larger ones together."""
    return lambda precision: _size_weights(scale, start, precision)


@lru_cache(maxsize=64)
def _size_weights(scale: Fraction, start: int, precision: int) -> list[tuple[int, int]]:
    one = 1 << precision
    low = high = one
    weights = [(low, high)]
    rest_low = rest_high = 0
    size = start
    while True:
        size += 1
        low_top, high_top = exp_neg(Fraction(2 * size - 1, 2 * scale), precision)
        low_gap, high_gap = exp_neg(Fraction(size, scale), precision)
        low_bottom, high_bottom = max(one - high_gap, 1), one - low_gap
        low, high = low * low_top // high_bottom, -(-high * high_top // low_bottom)
        if len(weights) < _BLOCK:
            weights.append((low, high))
            continue
        rest_low, rest_high = rest_low + low, rest_high + high
        if high <= 1 and 2 * high_top <= low_bottom:  # from here on the weights fall at least by halves
            return [*weights, (rest_low, rest_high + 1)]


def _others(marks: tuple[int, ...], level: int) -> tuple[int, ...]:
    return tuple(m for m in marks if m % level)


def _multiples(marks: tuple[int, ...], level: int) -> tuple[int, ...]:
    return tuple(m for m in marks if m % level == 0)


def _union(some: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(some + others))


def discrete_gaussian_noise(variance: Fraction, bits: BitSource) -> int:
    """Draw discrete Gaussian noise of any variance, exactly, by itself: no other level can be read from it.

    Raises:
        ParameterError: the variance is not positive.

    Source: specs/lossless 7.6 (Canonne, Kamath, Steinke 2020, Algorithm 3).
    """
    if variance <= 0:
        raise ParameterError(f"a variance must be positive, not {variance}")
    # Discrete Laplace noise of about the same spread, kept with the ratio of the two laws; any scale is exact.
    scale = 1 << ((variance.numerator // variance.denominator).bit_length() + 1) // 2
    while True:
        size, negative = coins.geometric_exp(Fraction(1, scale), bits), coins.uniform(2, bits)
        if negative and size == 0:
            continue
        if coins.bernoulli_exp(Fraction((size - Fraction(variance, scale)) ** 2, 2 * variance), bits):
            return -size if negative else size
