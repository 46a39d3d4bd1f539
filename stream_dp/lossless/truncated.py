"""Discrete Laplace noise that ends: P(X = k) proportional to a^|k| where |k| <= t, and 0 beyond.

Source: Desfontaines, Voss, Gipson and Mandayam 2022, "Differentially private partition selection" (k-TSGD).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.bits import BitSource
from stream_dp.exact.reals import smallest_power
from stream_dp.lossless.bulk import bulk_noise
from stream_dp.lossless.levels import noise_parameter


@dataclass(frozen=True)
class TruncatedLaplace:
    """The law of such noise; (ln(1/a), P(X = t))-DP for a count that moves by one (docs/budgets.md, "Noise that ends").

    Attributes:
        threshold: level A, a = A / 2^64.
        largest: t, at least 1.
        rest: a number from a^(t+2) to a^(t+1).
    """

    threshold: int
    largest: int
    rest: Fraction

    @classmethod
    def within(cls, threshold: int, delta: Fraction) -> Self:
        """Return the law of level A with the least t for which P(X = t) is at most delta, which is in (0, 1).

        That chance is a^t (1 - a) / (1 + a - 2 a^(t+1)): a^t is at most the bound here, and a^(t-1) is above it.
        """
        a = noise_parameter(threshold)
        bound = Fraction(delta * (1 + a), 1 - a + 2 * delta * a)
        return cls(threshold, smallest_power(a, bound), a * a * bound)

    def draw(self, size: int, bits: BitSource) -> NDArray[np.int64]:
        """Draw independent numbers, shape (size,), exactly: discrete Laplace noise, again where it is beyond t.

        Time: that of `bulk_noise` over P(|Z| <= t), which is at least 1/3 where P(X = t) is at most 1 - a.
        """
        noise = bulk_noise(self.threshold, size, bits)
        while len(beyond := np.flatnonzero(np.abs(noise) > self.largest)):
            noise[beyond] = bulk_noise(self.threshold, len(beyond), bits)
        return noise

    def interval(self, confidence: Fraction) -> int:
        """Return an s with P(|X| > s) = 2 (a^(s+1) - a^(t+1)) / (1 + a - 2 a^(t+1)) at most 1 - confidence."""
        a, missed = noise_parameter(self.threshold), 1 - confidence
        return max(0, smallest_power(a, missed * (1 + a) * Fraction(1, 2) + confidence * self.rest) - 1)

    @property
    def mean_absolute(self) -> Fraction:
        """E|X|, rounded up: it falls with a^(t+1)."""
        a = noise_parameter(self.threshold)
        odds = Fraction(a, 1 - a)
        return Fraction(2 * odds - 2 * self.rest * (self.largest + 1 + odds), 1 + a - 2 * self.rest)
