"""Discrete Laplace noise that ends: P(X = k) proportional to a^|k| where |k| <= t, and 0 beyond.

Of two counts that differ by one, each can have a single noisy count that the other cannot: the one at its far end. So
the noise is private but for the chance of that end. The noisy count of 0 is never above t: of the keys that nobody has
none can be shown from t + 1 on, and no noise has to be drawn for them.

Source: Desfontaines, Voss, Gipson and Mandayam 2022, "Differentially private partition selection" (k-TSGD).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.bits import BitSource
from stream_dp.exact.reals import power, smallest_power
from stream_dp.lossless.bulk import bulk_noise
from stream_dp.lossless.levels import noise_parameter

_PRECISION = 256


@dataclass(frozen=True)
class TruncatedLaplace:
    """The law of such noise.

    Attributes:
        threshold: level A, a = A / 2^64.
        largest: t, at least 1.

    Guarantee: (ln(1/a), P(X = t))-DP for a count that moves by one, in either direction.
    """

    threshold: int
    largest: int

    @classmethod
    def within(cls, threshold: int, delta: Fraction) -> Self:
        """Return the law with the least t for which P(X = t) is at most delta.

        That chance is a^t (1 - a) / (1 + a - 2 a^(t+1)), which falls with t.

        Args:
            threshold: level A.
            delta: in (0, 1).

        Raises:
            ParameterError: not a level.
        """
        a = noise_parameter(threshold)
        return cls(threshold, smallest_power(a, Fraction(delta * (1 + a), 1 - a + 2 * delta * a)))

    def draw(self, size: int, bits: BitSource) -> NDArray[np.int64]:
        """Draw independent numbers, exactly: discrete Laplace noise, drawn again where it is beyond t.

        Args:
            size: how many.
            bits: source of uniform bits, of which 256 are taken for each time that something is drawn.

        Returns:
            Shape (size,).

        Time: that of `bulk_noise` over P(|Z| <= t), which is nearly 1 where P(X = t) is far below 1 - a.
        """
        noise = bulk_noise(self.threshold, size, bits)
        while len(beyond := np.flatnonzero(np.abs(noise) > self.largest)):
            noise[beyond] = bulk_noise(self.threshold, len(beyond), bits)
        return noise

    def interval(self, confidence: Fraction) -> int:
        """Smallest s with P(|X| <= s) >= confidence, but for a rounding of the chance by less than 2^-250.

        P(|X| > s) = 2 (a^(s+1) - a^(t+1)) / (1 + a - 2 a^(t+1)), which falls with a^(t+1).

        Args:
            confidence: in [0, 1).
        """
        a, missed = self._a, 1 - confidence
        return max(0, smallest_power(a, missed * (1 + a) * Fraction(1, 2) + confidence * self._end) - 1)

    @property
    def mean_absolute(self) -> Fraction:
        """E|X|, rounded up; the formula falls with a^(t+1)."""
        a, end = self._a, self._end
        odds = Fraction(a, 1 - a)
        return Fraction(2 * odds - 2 * end * (self.largest + 1 + odds), 1 + a - 2 * end)

    def two_sided_from(self, minimum: int, confidence: Fraction) -> int:
        """Smallest noisy count whose interval has a lower end, as of `levels.two_sided_from`.

        It is minimum + r with the smallest a^r <= 1 - confidence + confidence a^(t+1).

        Proof. Let s be the half width, T(n) = P(X >= n) and B = 1 - confidence, so 2 T(s + 1) <= B. For 0 <= n <= t + 1
        T(n) is proportional to a^n - a^(t+1). The key is shown where X >= minimum - c. A miss below is X > s where the
        noisy count is at least minimum + r, a miss above X < -s.

        * c <= minimum, n = minimum - c: no miss above is shown. A miss below has at most T(n + r) / T(n), which falls
          with n: at most (a^r - a^(t+1)) / (1 - a^(t+1)) <= B.
        * c = minimum + d, 1 <= d <= s: no miss above is shown. One below has at most T(s + 1) / P(X >= -d) <= B.
        * d > s: no miss is P(|X| <= s) / P(X >= -d) >= 1 - B.

        Args:
            minimum: smallest noisy count that is shown.
            confidence: in (0, 1).
        """
        return minimum + smallest_power(self._a, 1 - confidence + confidence * self._end)

    @property
    def _a(self) -> Fraction:
        return noise_parameter(self.threshold)

    @cached_property
    def _end(self) -> Fraction:
        """A lower bound of a^(t+1)."""
        return Fraction(power(self._a, self.largest + 1, _PRECISION)[0], 1 << _PRECISION)
