"""The five noises of Lipschitz mechanisms in standard form, by the logarithms of what is said about them.

A noise is fit if its hazard rate is at most 1 everywhere: then scores that move by c change no probability of being
above a value by more than the factor e^c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
_LOG_2 = float(np.log(2))
_LARGEST = 700.0
"""Beyond it the exponential function leaves the doubles."""
_ONE_OF_MANY = 34.0
"""From it on 1 - e^(-z) is z in doubles, z = e^-g."""


@dataclass(frozen=True, slots=True)
class Noise:
    """A continuous noise; every function takes and gives an array.

    Attributes:
        name: as the tables have it.
        log_cumulative: log F, -inf below the support.
        log_survival: log (1 - F).
        log_density: log f, -inf below the support.
        quantile: the inverse of F, on (0, 1).
        link: the best of m of these noises, from log m plus a Gumbel noise: the quantile at exp(-exp(-g)).
        tail: what (1 - F) e^x tends to.
        kinks: whether a function of it has a kink: none, log (1 - F) alone, or the density, too.
    """

    name: str
    log_cumulative: Callable[[FloatArray], FloatArray]
    log_survival: Callable[[FloatArray], FloatArray]
    log_density: Callable[[FloatArray], FloatArray]
    quantile: Callable[[ArrayLike], FloatArray]
    link: Callable[[ArrayLike], FloatArray]
    tail: float = 1.0
    kinks: Literal["none", "survival", "density"] = "none"

    def hazard(self, x: ArrayLike) -> FloatArray:
        """The hazard rate f / (1 - F)."""
        values = np.asarray(x, float)
        return _exp(self.log_density(values) - self.log_survival(values))

    def reversed_hazard(self, x: FloatArray) -> FloatArray:
        """The same from the other end, f / F; 0 where F is 0."""
        return _exp(self.log_density(x) - np.maximum(self.log_cumulative(x), -_LARGEST))


def _exp(x: FloatArray) -> FloatArray:
    return np.exp(np.clip(x, -2 * _LARGEST, _LARGEST))


def _log_one_minus_exp(x: FloatArray) -> FloatArray:
    """The logarithm of 1 - e^-x for x > 0, with all digits at both ends."""
    return np.where(x > _LOG_2, np.log1p(-_exp(-np.maximum(x, _LOG_2))), np.log(-np.expm1(-np.minimum(x, _LOG_2))))


def _from_zero(inside: Callable[[FloatArray], FloatArray], below: float) -> Callable[[FloatArray], FloatArray]:
    """A function on the numbers from zero on, and what it is elsewhere."""

    def function(x: FloatArray) -> FloatArray:
        return np.where(x >= 0, inside(np.maximum(x, 0.0)), below)

    return function


def _above_zero(inside: Callable[[FloatArray], FloatArray]) -> Callable[[FloatArray], FloatArray]:
    """A log F of a positive noise."""

    def function(x: FloatArray) -> FloatArray:
        return np.where(x > 0, inside(np.where(x > 0, x, 1.0)), -np.inf)

    return function


def _minus_log_log(g: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Both of z = e^-g and -log (1 - e^-z)."""
    values = np.asarray(g, float)
    z = _exp(-values)
    many = values > _ONE_OF_MANY
    return z, np.where(many, values, -_log_one_minus_exp(np.where(many, 1.0, z)))


def _laplace_log_cumulative(x: FloatArray) -> FloatArray:
    return np.where(x < 0, np.minimum(x, 0.0) - _LOG_2, np.log1p(-_exp(-np.maximum(x, 0.0)) / 2))


def _laplace_quantile(p: ArrayLike) -> FloatArray:
    values = np.asarray(p, float)
    lower = np.minimum(values, 0.5)
    upper = np.maximum(values, 0.5)
    quantiles: FloatArray = np.where(values < 0.5, np.log(2 * lower), -np.log(2 * (1 - upper)))
    return quantiles


def _laplace_link(g: ArrayLike) -> FloatArray:
    z, above = _minus_log_log(g)
    return np.where(z <= _LOG_2, above - _LOG_2, _LOG_2 - z)


def _logistic_link(g: ArrayLike) -> FloatArray:
    z, above = _minus_log_log(g)
    return above - z


def _half_logistic_link(g: ArrayLike) -> FloatArray:
    z, above = _minus_log_log(g)
    return np.log1p(_exp(-z)) + above


def _logit(p: ArrayLike) -> FloatArray:
    values = np.asarray(p, float)
    odds: FloatArray = np.log(values) - np.log1p(-values)
    return odds


GUMBEL = Noise(
    "gumbel",
    lambda x: -_exp(-x),
    lambda x: _log_one_minus_exp(_exp(-x)),
    lambda x: -x - _exp(-x),
    lambda p: -np.log(-np.log(np.asarray(p, float))),
    lambda g: np.asarray(g, float),
)
EXPONENTIAL = Noise(
    "exponential",
    _above_zero(_log_one_minus_exp),
    lambda x: -np.maximum(x, 0.0),
    _from_zero(np.negative, -np.inf),
    lambda p: -np.log1p(-np.asarray(p, float)),
    lambda g: _minus_log_log(g)[1],
    kinks="survival",
)
LAPLACE = Noise(
    "laplace",
    _laplace_log_cumulative,
    lambda x: _laplace_log_cumulative(-x),
    lambda x: -np.abs(x) - _LOG_2,
    _laplace_quantile,
    _laplace_link,
    tail=0.5,
    kinks="density",
)
LOGISTIC = Noise(
    "logistic",
    lambda x: -np.logaddexp(0.0, -x),
    lambda x: -np.logaddexp(0.0, x),
    lambda x: -np.logaddexp(0.0, -x) - np.logaddexp(0.0, x),
    _logit,
    _logistic_link,
)
HALF_LOGISTIC = Noise(
    "halflogistic",
    _above_zero(lambda x: _log_one_minus_exp(x) - np.log1p(_exp(-x))),
    _from_zero(lambda x: _LOG_2 - np.logaddexp(0.0, x), 0.0),
    _from_zero(lambda x: _LOG_2 - x - 2 * np.log1p(_exp(-x)), -np.inf),
    lambda p: np.log1p(np.asarray(p, float)) - np.log1p(-np.asarray(p, float)),
    _half_logistic_link,
    tail=2.0,
    kinks="survival",
)

NOISES = {noise.name: noise for noise in (EXPONENTIAL, HALF_LOGISTIC, GUMBEL, LAPLACE, LOGISTIC)}
"""By name, from the one that asks for the smallest budget to the one that asks for the largest."""
