"""At which epsilon a probability is reached."""

from __future__ import annotations

import math
from collections.abc import Callable

_DIGITS = 1e-7
_FLAT = 700.0


def epsilon_at(target: float, probability: Callable[[float], float], guess: float = 1.0) -> float | None:
    """The epsilon at which a growing probability passes `target`, to seven digits.

    Bisection, on a logarithmic scale, hurried on by chords through the log odds.

    Returns:
        None where a probability of `target` is not reached by epsilon a billion times the guess.
    """

    def height(log_epsilon: float) -> float:
        return _logit(probability(math.exp(log_epsilon))) - _logit(target)

    low = high = math.log(guess)
    at_low = at_high = height(low)
    step = 1.0
    while at_high < 0:
        low, at_low = high, at_high
        high, step = high + step, min(2 * step, 4.0)
        at_high = height(high)
        if high - math.log(guess) > math.log(1e9):
            return None
    while at_low >= 0:
        high, at_high = low, at_low
        low, step = low - step, min(2 * step, 4.0)
        at_low = height(low)
    for turn in range(200):
        if high - low < _DIGITS:
            break
        chord = low + (high - low) * -at_low / (at_high - at_low)
        inner = min(max(chord, low + 1e-3 * (high - low)), high - 1e-3 * (high - low))
        middle = (low + high) / 2 if turn % 3 == 2 else inner
        value = height(middle)
        if value < 0:
            low, at_low = middle, value
        else:
            high, at_high = middle, value
        if abs(value) < _DIGITS:
            return math.exp(middle)
    return math.exp((low + high) / 2)


def _logit(probability: float) -> float:
    if probability <= 0:
        return -_FLAT
    return _FLAT if probability >= 1 else math.log(probability) - math.log1p(-probability)
