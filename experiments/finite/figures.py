"""The numbers behind Figures 3 to 6, the lower bounds and the parameters of Theorem 8.6, from the paper's formulas.

epsilon is 1 / e for a whole number e, and logarithms are certified: no number here is a float.

Source: specs/finite 3.2 to 3.4, 2.10, 4.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from experiments.finite.samplers import ceil_times_ln, fast_sample, k_for, paper_cutoff
from stream_dp.exact.reals import log, smallest_power
from stream_dp.histograms.counting_queries import ceil_log2
from stream_dp.histograms.galois_fields import Field

_PRECISION = 128
_IDEAL, _GEO, _FAST = "GeometricMechanism", "GeoSample", "FastSample"


@dataclass(frozen=True, slots=True)
class Errors:
    """Accuracies that are missed with probability beta at most.

    Attributes:
        per_query: of one bin.
        simultaneous: of all bins.
    """

    per_query: int
    simultaneous: int


@dataclass(frozen=True, slots=True)
class Heavy(Errors):
    """Accuracies of a sparse histogram.

    Attributes:
        above: `per_query` holds for counts larger than this.
    """

    above: int


@dataclass(frozen=True, slots=True)
class Stable(Heavy):
    """Accuracies of a stability histogram.

    Attributes:
        threshold: b: noisy counts above it are released.
    """

    threshold: int


def figure_3(e: int, universe: int, beta: Fraction) -> dict[str, Errors]:
    """BasicHistogram over a whole universe, by noise."""
    scales = {_IDEAL: (Fraction(2 * e), 1), _GEO: (Fraction(9 * e, 2), 1), _FAST: (Fraction(9 * e, 2), 2)}
    return {
        noise: Errors(ceil_times_ln(scale, factor * (1 / beta)), ceil_times_ln(scale, factor * universe / beta))
        for noise, (scale, factor) in scales.items()
    }


def figure_3_tight(e: int, universe: int, beta: Fraction) -> Errors:
    """The same of GeoSample, with the epsilon that it really spends: the least powers of 2^k / (2^k + 1)."""
    k = k_for(e)
    base = Fraction(1 << k, (1 << k) + 1)
    return Errors(smallest_power(base, beta), smallest_power(base, beta / universe))


def figure_4(e: int, n: int, beta: Fraction, delta: Fraction) -> dict[str, Stable]:
    """StabilityHistogram, by noise."""
    scales = {
        _IDEAL: (Fraction(2 * e), 2, 1, 2),
        _GEO: (Fraction(9 * e, 2), 2, 1, 2),
        _FAST: (Fraction(9 * e, 2), 4, 2, 8),
    }
    return {
        noise: Stable(
            threshold=1 + ceil_times_ln(scale, in_threshold / delta),
            per_query=ceil_times_ln(scale, in_error / beta),
            above=2 + ceil_times_ln(scale, in_sum / (beta * delta)),
            simultaneous=2 + ceil_times_ln(scale, in_sum * n / (beta * delta)),
        )
        for noise, (scale, in_threshold, in_error, in_sum) in scales.items()
    }


def figure_5(e: int, universe: int, beta: Fraction) -> dict[str, Heavy]:
    """PureSparseHistogram, by noise."""
    scale = Fraction(9 * e, 2)
    return {
        noise: Heavy(
            per_query=ceil_times_ln(scale, 2 * factor / beta),
            above=2 * ceil_times_ln(scale, 2 * factor * universe / beta),
            simultaneous=2 * ceil_times_ln(scale, factor * universe / beta),
        )
        for noise, factor in ((_GEO, 2), (_FAST, 4))
    }


def figure_6(e: int, universe: int, beta: Fraction) -> dict[str, Errors]:
    """CompactHistogram, by noise."""
    return {
        noise: Errors(
            ceil_times_ln(Fraction(5 * e), factor / beta), ceil_times_ln(Fraction(5 * e), factor * universe / beta)
        )
        for noise, factor in ((_GEO, 1), (_FAST, 2))
    }


@dataclass(frozen=True, slots=True)
class LowerBounds:
    """Errors below which no mechanism gets, each rounded down by less than 2^-120; `delta` 0 is pure.

    Attributes:
        per_query: of one bin (Theorem 7.1).
        simultaneous: of all bins (Theorem 7.1).
        sparse: of one bin, for releases with at most n' keys (Theorem 7.2).
    """

    per_query: Fraction
    simultaneous: Fraction
    sparse: Fraction


def lower_bounds(e: int, universe: int, n: int, beta: Fraction, delta: Fraction, n_prime: int) -> LowerBounds:
    """The bounds of specs/finite 3.3, for beta up to 1/2."""
    caps = [Fraction(n)]
    if delta:
        caps.append(e * _ln(1 / (4 * e * delta)) - 1)
    return LowerBounds(
        per_query=min(e * _ln(1 / (4 * beta)) - 1, *caps) / 2,
        simultaneous=min(e * _ln((universe - 1) / (4 * beta)) - 1, *caps) / 2,
        sparse=min(Fraction(e, 2) * _ln(universe / (16 * beta * n_prime)) - 1, *caps) / 2,
    )


@lru_cache(maxsize=64)
def _ln(argument: Fraction) -> Fraction:
    return Fraction(log(argument, _PRECISION)[0], 1 << _PRECISION)


@dataclass(frozen=True, slots=True)
class CompactParameters:
    """The parameters of Theorem 8.6.

    Attributes:
        e: of FastSample: 1 / epsilon'.
        g: of FastSample: 1 / gamma.
        k: of its base.
        t: its cutoff.
        draw_bits: of its random integer.
        exponent: l of the field.
        field_bits: of an element.
        size_bytes: of a release.
    """

    e: int
    g: int
    k: int
    t: int
    draw_bits: int
    exponent: int
    field_bits: int
    size_bytes: int


def theorem_8_6(n: int, e: int, universe: int, beta: Fraction) -> CompactParameters:
    """The paper's parameters of a compact histogram of n rows, accurate for all bins but with probability beta."""
    reduced, inverse_gamma = -(-10 * e // 9), 2 * universe / beta
    g = -(-inverse_gamma.numerator // inverse_gamma.denominator)
    draws = fast_sample(n, reduced, g).draws
    field = Field.with_bits(ceil_log2(max(universe, 30 * draws * e)))
    return CompactParameters(
        e=reduced,
        g=g,
        k=k_for(reduced),
        t=paper_cutoff(n, reduced, g),
        draw_bits=draws.bit_length(),
        exponent=field.exponent,
        field_bits=field.degree,
        size_bytes=(n + 1) * field.degree // 8,
    )


def error_constant(e: int) -> Fraction:
    """(2 / epsilon~') epsilon for the noise of Theorem 8.6, rounded up; the theorem says 5."""
    k = k_for(-(-10 * e // 9))
    return 1 / (_ln(1 + Fraction(1, 1 << k)) * e)
