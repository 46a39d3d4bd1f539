"""Top-k with gaps over a public domain, exact; and certificates from the gaps, which are published numbers alone."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import Fault, ParameterError, StateError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.checks import member_faults, positive_faults, refuse, whole_faults
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.exact.reals import exp_neg, log
from stream_dp.select.candidates import Item, Name, Neighbours, Unseen
from stream_dp.select.exponential import (
    MOST_PARTS,
    UNIT_CLOCK,
    Contenders,
    Parts,
    Randomness,
    WholeClock,
    contenders,
    finish,
    fits,
    zero_contenders,
)


@dataclass(frozen=True, slots=True)
class GapParameters:
    """The public parameters of a top-k selection with gaps; fixed before any data are seen.

    Neighbouring tables differ by one user, who moves any number of counts, each by at most 1.

    Attributes:
        k: items wanted, at least 1.
        epsilon: what a call costs, ids and gaps together, in (0, infinity).
        resolution: gaps are told in steps of 1 / resolution of a count, rounded down; a whole number of at least 1.
        monotone: whether a user moves all counts in one direction. Noise of half the scale is enough then. That is so
            for counts whose users are added or removed, and neither where users are replaced, nor with weights of both
            signs, nor where records are retracted: there the loss is exactly twice epsilon (specs/gap 6, no. 16).
        neighbours: what `monotone` stands on: it is refused unless users are added or removed.

    Raises:
        ParameterError: a parameter is outside its range or is not exact; every fault is listed with its name.

    Source: specs/gap 1.2, 2, 3.3.
    """

    k: int
    epsilon: Fraction
    resolution: int
    monotone: bool = False
    neighbours: Neighbours = Neighbours.REPLACE

    def __post_init__(self) -> None:
        faults = whole_faults(k=self.k, resolution=self.resolution)
        faults += positive_faults(epsilon=self.epsilon)
        faults += member_faults(Neighbours, neighbours=self.neighbours)
        if not isinstance(self.monotone, bool):
            faults.append(Fault("monotone", f"must be true or false, not {self.monotone!r}"))
        elif self.monotone and self.neighbours is not Neighbours.ADD_OR_REMOVE:
            faults.append(Fault("monotone", "holds only where neighbours add or remove a user: say so, or leave it"))
        refuse(faults)

    @property
    def scale(self) -> Fraction:
        """The mean of the noise, in counts: k / epsilon where monotone, else twice that (specs/gap 3.3)."""
        return Fraction((1 if self.monotone else 2) * self.k, self.epsilon)

    @property
    def exponent(self) -> Fraction:
        """s/t of specs/gap 2: the noise of a step more is less probable by the factor e^-exponent."""
        return Fraction(1, self.resolution * self.scale)

    @property
    def noise(self) -> GridNoise:
        """The noise on the grid of the steps."""
        return GridNoise(self.exponent.numerator, self.exponent.denominator)


@dataclass(frozen=True, slots=True)
class GridNoise:
    """Exponential noise on the grid on which a selection reckons: each step of the gaps cut into `parts`.

    Its mean is a whole number of these parts, so a draw in parts is `mean` times a clock of e^-1 and a remainder, and
    nothing has to be divided before the gaps are told. They are the same as if the steps had not been cut: of a number
    rounded down twice the coarser rounding stands (specs/gap 1.4, Lemma 10).

    Attributes:
        parts: parts of a step, s of specs/gap 2.
        mean: the scale of the noise in parts, t of specs/gap 2.
    """

    parts: int
    mean: int


PIECE = 1 << 17
"""Keys that are given noise at a time: what bounds the memory."""


@dataclass(frozen=True, slots=True)
class NoisyTopKWithGap:
    """Result of a selection with gaps; the guarantee covers all of it.

    Attributes:
        items: the k keys of the largest noisy counts, the largest first.
        gaps: by how many steps of 1 / resolution each is ahead of the next in noisy counts, rounded down; the last of
            them is ahead of a key that is not told.
    """

    items: tuple[Item | Unseen, ...]
    gaps: tuple[int, ...]


def gap_top_k(
    counts: Mapping[Name, int] | Mapping[Name, Fraction], zeros: int, p: GapParameters, bits: BitSource
) -> NoisyTopKWithGap:
    """Select the k largest counts of a public domain and by how much each is ahead of the next.

    Neighbours differ by one user, who moves any number of counts, each by at most 1. The gaps cost
    nothing: the guarantee is that of the ids alone. The law is that of real exponential noise of mean `p.scale` on
    every count, the counts rounded down to steps before and the gaps after it.

    Args:
        counts: keys of the domain with their counts or weights, whole numbers or fractions of any size and sign. Which
            keys are in the domain must not depend on data, whether they have counts or not.
        zeros: how many further keys of the domain have the count 0.
        p: the selection's parameters.
        bits: source of uniform bits, fresh for every call.

    Returns:
        k keys and k gaps; a key of count zero that was not in `counts` by its number.

    Raises:
        ParameterError: the domain has fewer than k + 1 keys, or `zeros` is no number of keys.
        StateError: a count is neither a whole number nor a fraction.

    Guarantee: `p.epsilon`-DP. Time: 20 nanoseconds per count and some more for k; memory for noise does not grow with
    the table, nor anything with `zeros`. How long a call takes depends on the noise: release on a fixed schedule.
    Source: specs/gap 2.6 to 2.8 (Ding et al. 2023, Theorems 4 to 6).
    """
    check_domain(len(counts), zeros, p.k + 1)
    keys, gaps = noisiest(_pieces(counts, p.resolution), zeros, p.k + 1, p.noise, bits)
    return NoisyTopKWithGap(_named(keys[:-1], counts), gaps)


def one_shot_top_k(
    counts: Mapping[Name, int] | Mapping[Name, Fraction], zeros: int, p: GapParameters, bits: BitSource
) -> tuple[Item | Unseen, ...]:
    """Select the keys of the k largest counts of a public domain, in order, by exponential noise drawn once.

    As `gap_top_k` without the gaps: the same noise, the same guarantee and errors, but k keys are enough. With k = 1
    this is permute-and-flip.

    Source: specs/gap 3.1 (Lemma 2).
    """
    check_domain(len(counts), zeros, p.k)
    keys, _ = noisiest(_pieces(counts, p.resolution), zeros, p.k, p.noise, bits)
    return _named(keys, counts)


def noisiest(
    pieces: Iterable[Parts], zeros: int, wanted: int, noise: GridNoise, bits: BitSource, clock: WholeClock = UNIT_CLOCK
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """The keys of the largest noisy values of a domain, the largest first, and how far each is ahead of the next.

    Args:
        pieces: the values of the counted keys, in steps, piece by piece.
        zeros: how many keys follow whose value is 0.
        wanted: how many keys are first; so many there must be.
        noise: the noise and the parts into which it cuts a step.
        bits: source of uniform bits.
        clock: what the noise is made of.

    Returns:
        The numbers of the keys, and wanted - 1 gaps in steps.
    """
    randomness, first = Randomness(bits, clock), 0
    close = Contenders.none()
    for piece in pieces:
        floor = close.floor(wanted)
        more = contenders(in_steps(piece, noise.parts), first, wanted, noise.mean, randomness, floor)
        close = Contenders.merged([close.reaching(floor, noise.mean), more])
        first += len(piece)
    parts = [close]
    if zeros:
        parts.append(zero_contenders(zeros, first, wanted, noise.mean, randomness, close))
    keys, differences = finish(parts, wanted, noise.mean, randomness)
    return keys, tuple((differences // noise.parts).tolist())


def in_steps(values: Parts, steps: int) -> Parts:
    """The values in a unit of which `steps` are one of theirs; exact whatever their size."""
    if values.dtype != object and not fits(values, MOST_PARTS // steps):
        values = values.astype(object)
    return values if steps == 1 else values * steps


def floored(value: int | Fraction, resolution: int) -> int:
    """The largest number of steps of 1 / resolution that is not above a value (specs/gap 2.5).

    Raises:
        StateError: the value is not exact.
    """
    if not isinstance(value, int | Fraction):
        raise StateError("a count must be a whole number or an exact fraction; one of them is not")
    return value.numerator * resolution // value.denominator


def check_domain(counted: int, zeros: int, least: int) -> None:
    """Refuse a domain that has too few keys, whatever their counts are.

    Raises:
        ParameterError: it has.
    """
    if not isinstance(zeros, int) or isinstance(zeros, bool) or zeros < 0:
        raise ParameterError([Fault("zeros", f"must be a whole number of keys, not {zeros!r}")])
    if counted + zeros < least:
        raise ParameterError([Fault("k", f"asks for a domain of {least} keys at least; it has {counted + zeros}")])


def _pieces(counts: Mapping[Any, int] | Mapping[Any, Fraction], resolution: int) -> Iterator[Parts]:
    """The counts in steps, as arrays."""
    values: Iterator[Any] = iter(counts.values())
    while piece := tuple(islice(values, PIECE)):
        try:
            yield in_steps(np.frombuffer(struct.pack(f"={len(piece)}q", *piece), np.int64), resolution)
        except struct.error:
            yield np.array([floored(value, resolution) for value in piece], object)


def _named(keys: NDArray[np.int64], counts: Mapping[Name, Any]) -> tuple[Name | Unseen, ...]:
    names = list(counts)
    return tuple(names[key] if key < len(names) else Unseen(key - len(names)) for key in keys.tolist())


_PRECISION = 128
_SMALLEST = 1100
"""No chance below 2^-1100 is told from it."""


def wrong_chance(gap: int, p: GapParameters) -> Fraction:
    """Bound the chance that the first i items are not the i largest counts and yet the i-th gap is this large.

    e^(-gap exponent), whatever the counts are and however many keys the domain has: a p-value of "this selection is
    wrong". With k = 1 it is exact: given that the winner is not a largest count, its gap has the law of the noise.

    Args:
        gap: the i-th gap of a selection, in steps, at least 0.
        p: its parameters.

    Returns:
        The bound, rounded up to 12 significant digits; never below 2^-1100.

    Source: specs/gap 5.3 (1, 2).
    """
    exponent = gap * p.exponent
    # e^-x takes less than 3/2 x + 1 bits before its first digit.
    whole = exponent.numerator // exponent.denominator
    precision = min(2 * whole + _PRECISION, _SMALLEST)
    return Fraction(decimal_up(Fraction(exp_neg(exponent, precision)[1], 1 << precision)))


def margin(gap: int, alpha: Fraction, p: GapParameters) -> Fraction | None:
    """Bound from below how far the first i items are ahead of all other keys, in true counts.

    A claim is made where the i-th gap g is at least t = ln(1/alpha) scale, and says that the smallest count among the
    first i items is at least g - t above the largest of all others; so these are the i largest. Claims made this way
    are false with probability alpha at most. For claims about all k ranks at once take alpha / k.

    Args:
        gap: the i-th gap of a selection, in steps, at least 0.
        alpha: the chance of a false claim, in (0, 1).
        p: the selection's parameters.

    Returns:
        The bound in counts, rounded down to 12 significant digits; None where nothing can be claimed.

    Source: specs/gap 5.3 (3).
    """
    _, above = log(Fraction(alpha.denominator, alpha.numerator), _PRECISION)
    bound = Fraction(gap, p.resolution) - p.scale * Fraction(above, 1 << _PRECISION)
    return Fraction(decimal_down(bound)) if bound >= 0 else None


_VARIANCE_PRECISION = 192


def combine(measured: Sequence[int], gaps: Sequence[Fraction], lam: Fraction) -> list[Fraction]:
    """The best linear unbiased estimates of k counts from a fresh measurement of each and the gaps between them.

    The mean of the measurements is kept; of what the counts are apart, a share lam / (1 + lam) is taken from the
    measurements and the rest from the gaps. Where the order of the counts is not in doubt, the variance is
    (1 + lam k) / (k + lam k) of that of a measurement.

    BIASED GIVEN THE RANK: noise that has come out first is not centred. Where all counts are equal, the estimate of the
    first is too high by scale (H_k - 1) / (1 + lam) in the mean. Use these as point estimates. Quote an interval from
    the measurement alone, or where `margin` certifies the ranks.

    Args:
        measured: the selected counts with fresh noise of mean 0, in the order of the selection.
        gaps: between each two neighbours, what the first is ahead of the other in noisy counts, in counts, without a
            bias: `gaps_between`.
        lam: the variance of the selection's noise over that of a measurement: `variance_ratio`.

    Returns:
        The estimates, exactly.

    Source: specs/gap 5.1.
    """
    k = len(measured)
    behind = list(accumulate(gaps, initial=Fraction(0)))  # the first is ahead of each by so much
    together = sum(measured) + sum(behind)
    pairs = zip(measured, behind, strict=True)
    return [Fraction(together + lam * k * count - k * gap, (1 + lam) * k) for count, gap in pairs]


def gaps_between(gaps: Sequence[int], p: GapParameters) -> list[Fraction]:
    """The gaps between the selected counts, in counts; the one behind the last is left out.

    A gap is rounded down; half a step is what that takes away in the mean where the counts are well apart.
    """
    return [Fraction(2 * gap + 1, 2 * p.resolution) for gap in gaps[:-1]]


def variance_ratio(p: GapParameters, measured: Fraction) -> Fraction:
    """The variance of the selection's noise over that of a measurement, lam of `combine`, to 12 digits.

    Args:
        p: the selection's parameters.
        measured: the variance of a measurement's noise.
    """
    of_selection = Fraction(_variance(p.exponent), p.resolution**2)  # of a geometric number, in steps
    return Fraction(decimal_down(Fraction(of_selection, measured)))


def _variance(exponent: Fraction) -> Fraction:
    """e^-x / (1 - e^-x)^2, closely."""
    one = 1 << _VARIANCE_PRECISION
    power = exp_neg(exponent, _VARIANCE_PRECISION)[1]
    return Fraction(power * one, (one - power) ** 2)
