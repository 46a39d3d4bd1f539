"""Top-k with gaps over a public domain, exact: the law of exponential noise whose gaps are rounded down."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import Fault, ParameterError, StateError
from stream_dp.exact.bits import BitSource
from stream_dp.select.candidates import Item, Name, Unseen
from stream_dp.select.gap.clocks import UNIT_CLOCK, WholeClock
from stream_dp.select.gap.contending import (
    MOST_PARTS,
    Contenders,
    Parts,
    Randomness,
    contenders,
    finish,
    fits,
    zero_contenders,
)
from stream_dp.select.gap.parameters import GapParameters, Noise
from stream_dp.select.parameters import Neighbours

PIECE = 1 << 17
"""Keys that are given noise at a time: what bounds the memory."""


@dataclass(frozen=True, slots=True)
class GapTopK:
    """What the selection returns; all of it is covered by the guarantee.

    Attributes:
        items: the k keys of the largest noisy counts, the largest first.
        gaps: by how many steps of 1 / resolution each is ahead of the next in noisy counts, rounded down; the last of
            them is ahead of a key that is not told.
    """

    items: tuple[Item | Unseen, ...]
    gaps: tuple[int, ...]


def gap_top_k(
    counts: Mapping[Name, int] | Mapping[Name, Fraction], zeros: int, p: GapParameters, bits: BitSource
) -> GapTopK:
    """Select the k largest counts of a public domain and by how much each is ahead of the next.

    Neighbours differ by one user, who moves any number of counts, each by at most `p.sensitivity`. The gaps cost
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
    return GapTopK(_named(keys[:-1], counts), gaps)


def gap_top_k_of_array(
    counts: NDArray[np.int64], zeros: int, p: GapParameters, bits: BitSource
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """`gap_top_k` of counts without names.

    Returns:
        k places of the array, or above it the length of the array and a number of a further key; and k gaps.

    Raises:
        ParameterError: the domain has fewer than k + 1 keys.
    """
    check_domain(len(counts), zeros, p.k + 1)
    pieces = (in_steps(counts[first : first + PIECE], p.resolution) for first in range(0, len(counts), PIECE))
    keys, gaps = noisiest(pieces, zeros, p.k + 1, p.noise, bits)
    return keys[:-1], gaps


def one_shot_top_k(
    counts: Mapping[Name, int],
    zeros: int,
    k: int,
    epsilon: Fraction,
    bits: BitSource,
    *,
    monotone: bool = False,
    sensitivity: Fraction = Fraction(1),
    neighbours: Neighbours = Neighbours.REPLACE,
) -> tuple[Item | Unseen, ...]:
    """Select the keys of the k largest counts of a public domain, in order, by exponential noise drawn once.

    As `gap_top_k` without the gaps: the same noise, the same guarantee and errors, but k keys are enough. With k = 1
    this is permute-and-flip.

    Source: specs/gap 3.1 (Lemma 2).
    """
    resolution = sensitivity.denominator if isinstance(sensitivity, Fraction) else 1
    p = GapParameters(k, epsilon, resolution, monotone, sensitivity, neighbours)
    check_domain(len(counts), zeros, k)
    keys, _ = noisiest(_pieces(counts, p.resolution), zeros, k, p.noise, bits)
    return _named(keys, counts)


def noisiest(
    pieces: Iterable[Parts], zeros: int, wanted: int, noise: Noise, bits: BitSource, clock: WholeClock = UNIT_CLOCK
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
    """Whether there are keys enough, whatever their counts are.

    Raises:
        ParameterError: there are not.
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
