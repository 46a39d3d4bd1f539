"""The canonical Lipschitz mechanism: a top-k subset of a public domain by one selection among all subsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial

import numpy as np

from stream_dp.errors import Fault, ParameterError, StateError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.comparison import START_PRECISION, Real, happens
from stream_dp.exact.reals import exp_neg, log
from stream_dp.select.candidates import MOST_USERS, Name, Unseen, as_array
from stream_dp.select.subset.envelope import Envelope
from stream_dp.select.subset.layout import Layout, depth_of, lay_out
from stream_dp.select.subset.logarithms import Integers
from stream_dp.select.subset.parameters import Noise, SubsetParameters
from stream_dp.select.subset.proposals import Proposal, propose


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


MOST_ZEROS = 1 << 60


def canonical_top_k(
    counts: Mapping[Name, int], zeros: int, p: SubsetParameters, bits: BitSource
) -> tuple[Name | Unseen, ...]:
    """Select k keys of a public domain as a set: no order, no counts.

    A subset that leaves out a best count M and lets in a worst count m comes with probability proportional to
    e^(-(epsilon / (2 sensitivity)) ((1 - gamma) M - gamma m)), exactly; with exponential noise by permute-and-flip on
    the same scores. M of the top-k is the (k+1)-st count (`Variant.SIGNED`) or the k-th (`Variant.PAPER`).

    Args:
        counts: keys of the domain and their numbers of users. Which keys the domain has must be public: keys that the
            data bring along void the guarantee (specs/subset P2).
        zeros: how many further keys the domain has; nobody has them, and they take no memory.
        p: the selection's parameters; k is at most `len(counts) + zeros`.
        bits: source of uniform bits, fresh for every call. How many are used, and how long it takes, depend on the
            counts and must not be told.

    Returns:
        k keys: those with a name, sorted, then unseen ones, sorted.

    Raises:
        ParameterError: `zeros` is no number of keys, or the domain has fewer than k keys.
        StateError: a count is not a whole number of users below 2^62.

    Guarantee: `p.epsilon`-DP for `p.neighbours`. Time: O(d + k B) with B at most ln C(d, k) + 22 blocks of counts,
    whatever epsilon and the counts are. Source: specs/subset 2.6, 3.1 (Shekelyan and Loukides, Theorem 4.1).
    """
    positions = _positions(as_array(counts), zeros, p, bits)
    names = list(counts)
    found: list[Name | Unseen] = []
    found += sorted(names[position] for position in positions if position < len(names))
    found += sorted(Unseen(position - len(names)) for position in positions if position >= len(names))
    return tuple(found)


def canonical_positions(counts: Integers, zeros: int, p: SubsetParameters, bits: BitSource) -> list[int]:
    """`canonical_top_k` on an array of counts.

    Args:
        counts: shape (n,), int64; a place is a key.
        zeros: how many further keys the domain has: n, n + 1, ...
        p: the selection's parameters.
        bits: source of uniform bits, fresh for every call.

    Returns:
        k places, rising.

    Raises:
        ParameterError: `zeros` is no number of keys, or the domain has fewer than k keys.
        StateError: the counts are no numbers of users below 2^62.
    """
    if counts.dtype != np.int64 or counts.ndim != 1:
        raise StateError("counts must be one row of whole numbers of 64 bits")
    if len(counts) and not 0 <= counts.min() <= counts.max() < MOST_USERS:
        raise StateError("a count must be a whole number of users below 2^62; one of them is not")
    return sorted(_positions(counts, zeros, p, bits))


def _positions(counts: Integers, zeros: int, p: SubsetParameters, bits: BitSource) -> list[int]:
    if not isinstance(zeros, int) or isinstance(zeros, bool) or not 0 <= zeros <= MOST_ZEROS:
        raise ParameterError([Fault("zeros", f"must be a whole number from 0 to 2^60, not {zeros!r}")])
    d = len(counts) + zeros
    if p.k > d:
        raise ParameterError([Fault("k", f"must be at most the domain's {d} keys, not {p.k}")])
    if p.k == d:
        return list(range(d))
    layout = lay_out(counts, zeros, p, rate=p.rate_in, depth=depth_of(d, p.k))
    return draw(layout, Envelope(layout, p), p, bits)


def draw(layout: Layout, envelope: Envelope, p: SubsetParameters, bits: BitSource) -> list[int]:
    """Propose subsets until one is accepted: its positions, in no order."""
    clock = ArrivalClock(envelope.total, bits)
    while True:
        clock.tick()
        cell = envelope.choose(bits)
        if cell is None:
            if bits.bits(envelope.excess):
                continue
            top: list[int] = layout.top.tolist()
            return top
        proposed = propose(layout, cell, p, bits)
        if proposed and happens(chance(proposed, clock, p.noise), bits):
            return proposed.positions


def chance(proposed: Proposal, clock: ArrivalClock, noise: Noise) -> Callable[[int], tuple[int, int]]:
    """Encloses the probability with which a proposal is accepted."""
    if noise is Noise.GUMBEL:
        return proposed.share
    return partial(_share_of_open, proposed, clock)


def _share_of_open(proposed: Proposal, clock: ArrivalClock, precision: int) -> tuple[int, int]:
    low, high = proposed.share(precision)
    low_open, high_open = still_open(clock, proposed.energy, precision)
    return low * low_open >> precision, -(-high * high_open >> precision)
