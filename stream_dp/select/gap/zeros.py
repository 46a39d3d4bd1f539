"""The keys that nobody has counted: the few of a billion whose noise is large are drawn, the others are not touched."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.bits import BitSource
from stream_dp.exact.coins import poisson, uniform
from stream_dp.exact.comparison import START_PRECISION, happens
from stream_dp.exact.reals import exp_neg, log
from stream_dp.select.gap.clocks import Survival
from stream_dp.select.gap.contending import MOST_PARTS, Contenders, Parts, Randomness, contenders, raised

Probability = Callable[[int], tuple[int, int]]

_MOST_LISTED = 1 << 16


def zero_contenders(
    zeros: int, first: int, wanted: int, t: int, randomness: Randomness, others: Contenders
) -> Contenders:
    """Of keys that all have the value 0 those that may be among the first of a domain.

    Their clocks are drawn from the top: which keys have V >= v for a high v, then which have V = v - 1, and so on,
    until `wanted` keys of the domain are surely ahead of everything below. The v to begin with takes part in nothing
    else, so the law does not depend on it.

    Args:
        zeros: how many keys there are.
        first: the number of the first of them.
        wanted: how many keys are first.
        t: the mean of the noise, in the unit of the values.
        randomness: what is drawn from.
        others: what contends of the rest of the domain.

    Time and memory: O(wanted), whatever `zeros` is. Source: specs/gap 2.8.
    """
    floor = others.floor(wanted)
    if zeros <= _MOST_LISTED:
        return contenders(np.zeros(zeros, np.int64), first, wanted, t, randomness, floor)
    survival, bits = randomness.clock.survival, randomness.bits
    # Below the floor nothing is wanted.
    level = start_level(zeros, wanted) if floor is None else max(start_level(zeros, wanted), floor // t)
    numbers = hit(zeros, partial(survival, level), bits) if level > 0 else np.arange(zeros)
    lower = raised(_alike(len(numbers), level * t), t, randomness)  # given V >= v, V - v is such a clock again
    while True:
        found = Contenders(first + numbers, lower)
        floor = Contenders.merged([others, found]).floor(wanted)
        # A key of a smaller clock is below level * t.
        if level == 0 or (floor is not None and level * t <= floor):
            return found.reaching(floor, t)
        level -= 1
        more = hit(zeros, partial(_at_most, survival, level), bits) if level > 0 else np.arange(zeros)
        more = np.setdiff1d(more, numbers, assume_unique=True)
        numbers = np.concatenate([numbers, more])
        lower = np.concatenate([lower, _alike(len(more), level * t)])


def start_level(zeros: int, wanted: int) -> int:
    """A v that three times as many clocks as are wanted, and some more, can be expected to reach."""
    return max(log(Fraction(zeros, 3 * wanted + 40), START_PRECISION)[0] >> START_PRECISION, 0)


def _alike(size: int, value: int) -> Parts:
    return np.full(size, value, np.int64 if value < MOST_PARTS else object)


def hit(keys: int, chance: Probability, bits: BitSource) -> NDArray[np.int64]:
    """The numbers of the keys, rising, each of which is there with a real probability below 1, independently.

    A Poisson number of points, each on a uniform key, leaves every key without a point with probability e^-rate,
    independently. With a rate above ln(1 / (1 - chance)) more keys are met than should be, and each is kept with what
    the chance is of that. Few points, where the chance is small.
    """
    _, upper = chance(START_PRECISION)
    rate = Fraction(upper, (1 << START_PRECISION) - upper)  # x / (1 - x) >= ln(1 / (1 - x))
    met = sorted({uniform(keys, bits) for _ in range(poisson(keys * rate, bits))})
    kept = partial(_kept, chance, rate)
    rough = kept(START_PRECISION)
    return np.array([number for number in met if happens(kept, bits, rough)], np.int64)


def _kept(chance: Probability, rate: Fraction, precision: int) -> tuple[int, int]:
    """Enclose chance / (1 - e^-rate)."""
    guard = precision + (rate.denominator // rate.numerator).bit_length() + 2
    lower, upper = chance(guard)
    low, high = (((1 << guard) - bound) for bound in reversed(exp_neg(rate, guard)))
    return (lower << precision) // high, min(-(-(upper << precision) // low), 1 << precision)


def _at_most(survival: Survival, v: int, precision: int) -> tuple[int, int]:
    """Enclose P(V = v | V <= v)."""
    one = 1 << precision
    low_next, high_next = survival(v + 1, precision)
    low, high = survival(v, precision)
    lower = (low - high_next << precision) // (one - low_next)
    return max(lower, 0), -(-(high - low_next << precision) // (one - high_next))
