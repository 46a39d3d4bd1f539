"""Permute-and-flip over subsets, without walking through them: a race that the first success wins.

Permute-and-flip gives every candidate y a uniform time U_y and a coin of chance p_y = e^-energy, 1 for the top-k; the
first in time whose coin says yes wins. On the clock t = -ln(1 - U) candidate y succeeds, if it has not before, at the
rate p_y e^-t / (1 - p_y (1 - e^-t)), at most p_y. So proposals that come as a Poisson process of constant rate, for
each y at least p_y, and are accepted with what is left of that, succeed as the candidates do.
"""

from __future__ import annotations

from fractions import Fraction

from stream_dp.exact.bits import BitSource
from stream_dp.exact.comparison import START_PRECISION, Real
from stream_dp.exact.reals import exp_neg, log


class ArrivalClock:
    """The time of the last of some proposals that come at a constant rate; its bits are drawn as they are asked for."""

    def __init__(self, rate: Fraction, bits: BitSource) -> None:
        """Start at time 0."""
        self._rate = rate
        self._bits = bits
        self._uniforms: list[tuple[int, int]] = []

    def tick(self) -> None:
        """Go on to the next proposal: an exponential time, ln(1 / U) / rate, passes."""
        self._uniforms.append((0, 0))

    def enclose(self, precision: int) -> tuple[Fraction, Fraction]:
        """Bounds of the time; about `precision` bits of each U, and as many as it has zeros in front."""
        least = most = 0
        for i in range(len(self._uniforms)):
            uniform, size = self._uniforms[i]
            while uniform >> precision == 0:
                uniform, size = uniform << START_PRECISION | self._bits.bits(START_PRECISION), size + START_PRECISION
            self._uniforms[i] = uniform, size
            # U lies in [uniform, uniform + 1) / 2^size.
            least += log(Fraction(1 << size, uniform + 1), precision)[0]
            most += log(Fraction(1 << size, uniform), precision)[1]
        scale = self._rate * (1 << precision)
        return Fraction(least, scale), Fraction(most, scale)


def still_open(time: Real, energy: Fraction, precision: int) -> tuple[int, int]:
    """Enclose e^-t / (1 - p (1 - e^-t)), p = e^-energy, at 2^precision: rising in p, falling in t."""
    least, most = time.enclose(precision)
    one = 1 << precision
    low_open, high_open = exp_neg(most, precision)[0], exp_neg(least, precision)[1]
    low, high = exp_neg(energy, precision)
    low_rest = (one << precision) - low * (one - low_open)
    high_rest = (one << precision) - high * (one - high_open)
    return (
        (low_open << 2 * precision) // low_rest if low_rest else 0,
        min(-(-(high_open << 2 * precision) // high_rest), one) if high_rest else one,
    )
