"""Top-k subsets of a public domain by the canonical Lipschitz mechanism: the whole set is one selection.

First the selection, then what it can be expected to find, from public numbers alone and rounded to stay true
(specs/subset 3.4, 3.6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np

from stream_dp.errors import Fault, ParameterError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.checks import refuse
from stream_dp.exact.coins import Exponential, Real, happens
from stream_dp.exact.reals import exp_neg, log
from stream_dp.select.candidates import Name, Unseen, as_array
from stream_dp.select.lipschitz import (
    Envelope,
    Layout,
    ProposedSubset,
    ScoreNoise,
    SubsetParameters,
    Variant,
    depth_of,
    lay_out,
    propose,
)
from stream_dp.select.logarithms import LOG_BITS, Integers, log2_above, log2_below, log_subsets, shift_for


class ArrivalClock:
    """The time of the last of some proposals that come at a constant rate; its bits are drawn as they are asked for."""

    def __init__(self, rate: Fraction, bits: BitSource) -> None:
        """Start at time 0."""
        self._rate = rate
        self._bits = bits
        self._passed: list[Exponential] = []

    def tick(self) -> None:
        """Go on to the next proposal: an exponential time of mean 1 / rate passes."""
        self._passed.append(Exponential(self._bits))

    def enclose(self, precision: int) -> tuple[Fraction, Fraction]:
        """Bounds of the time; about `precision` bits of each U, and as many as it has zeros in front."""
        bounds = [one.enclose(precision) for one in self._passed]
        scale = self._rate * (1 << precision)
        return Fraction(sum(least for least, _ in bounds), scale), Fraction(sum(most for _, most in bounds), scale)


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
    e^(-epsilon ((1 - gamma) M - gamma m)), exactly; with exponential noise by permute-and-flip on
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

    Guarantee: `p.epsilon`-DP where a user is added or removed, who moves any number of counts, each by at most 1. Time:
    O(d + k B) with B at most ln C(d, k) + 22 blocks of counts, whatever epsilon and the counts are. Source:
    specs/subset 2.6, 3.1 (Shekelyan and Loukides, Theorem 4.1).
    """
    positions = canonical_positions(as_array(counts), zeros, p, bits)
    names = list(counts)
    found: list[Name | Unseen] = []
    found += sorted(names[position] for position in positions if position < len(names))
    found += sorted(Unseen(position - len(names)) for position in positions if position >= len(names))
    return tuple(found)


def canonical_positions(counts: Integers, zeros: int, p: SubsetParameters, bits: BitSource) -> list[int]:
    """Select as `canonical_top_k`, from an array of counts: k of its places and of those behind it, in no order."""
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


def chance(proposed: ProposedSubset, clock: ArrivalClock, noise: ScoreNoise) -> Callable[[int], tuple[int, int]]:
    """Encloses the probability with which a proposal is accepted."""
    if noise is ScoreNoise.GUMBEL:
        return proposed.share
    return partial(_share_of_open, proposed, clock)


def _share_of_open(proposed: ProposedSubset, clock: ArrivalClock, precision: int) -> tuple[int, int]:
    low, high = proposed.share(precision)
    low_open, high_open = still_open(clock, proposed.energy, precision)
    return low * low_open >> precision, -(-high * high_open >> precision)


Profile = Sequence[tuple[int, int]]
"""A public model of a table: (rank, count) says what the keys from this rank on have, up to the next pair's rank."""

MARGIN = Fraction(13, 10)
"""Factor by which epsilon has to lie above the critical one."""

_PRECISION = 128


def worst_miss(d: int, p: SubsetParameters, alpha: Fraction) -> Fraction:
    """Bound what a selection misses: with probability 1 - alpha it misses no more.

    (1 - gamma) (the best count left out - the k-th) + gamma (the k-th - the worst count let in)
    <= (1 / epsilon) (ln C(d, k) + ln(1 / alpha)).

    Args:
        d: size of the domain, at least k.
        p: the selection's parameters; epsilon above 0.
        alpha: in (0, 1).

    Returns:
        The right side, in users, rounded up.

    Source: specs/subset 3.4 (joint bound). A noise of hazard at most 1 outdoes a lead of g with probability at most
    e^-g.
    """
    _, subsets = log_subsets(d, p.k, _PRECISION)
    _, rarity = log(Fraction(alpha.denominator, alpha.numerator), _PRECISION)
    return Fraction(subsets + rarity, p.epsilon * (1 << _PRECISION))


def critical_epsilon(profile: Profile, d: int, p: SubsetParameters) -> Fraction:
    """The epsilon below which subsets that are far from the top-k outweigh it by their number.

    Far are those that miss one of the best ceil(k / 100) ranks, or reach below rank k + floor(k / 2). A little below
    this epsilon the selection is an almost uniformly random subset; a little above, it is good. At gamma = 1 it is
    only a rough guide from above. Subsets that score as the top-k itself are not far.

    Args:
        profile: pairs (rank, count), ranks rising from 1, counts falling; a model or an earlier release, never the
            table that is to be released.
        d: size of the domain, at least k; the last count holds up to rank d.
        p: the selection's parameters; its epsilon takes no part.

    Returns:
        The critical epsilon, rounded up; 0 where no subset is far.

    Raises:
        ParameterError: the profile does not fall.

    Time: k passes over the profile, and a comparison for each pair of its steps. Source: specs/subset 3.6.
    """
    refuse(_profile_faults(profile, d))
    k, good_head, good_tail = p.k, -(-p.k // 100), p.k + p.k // 2
    if k == d:
        return Fraction(0)
    heads = [(rank, count) for rank, count in _cut(profile, good_head + 1) if rank <= k]
    kth = heads[-1][1]
    steps = _cut(_cut(profile, k + 1), min(good_tail + 1, d))
    ends = [rank - 1 for rank, _ in steps[1:]] + [d]
    tails = [(end, count) for end, (_, count) in zip(ends, steps, strict=True) if end > k]
    measure = tails[0][1] if p.variant is Variant.SIGNED else kth
    # Of the classes of two steps the one with the fewest best ranks and the lowest worst rank has the most subsets.
    inside, outside = p.gamma.numerator, p.gamma.denominator - p.gamma.numerator
    most, of = 0, 1
    rows = _log_classes([end for end, _ in tails], k, {k - rank for rank, _ in heads})
    for rank, lead in heads:
        sizes = rows[k - rank]
        for (end, count), size in zip(tails, sizes, strict=True):
            gap = outside * (lead - measure) + inside * (kth - count)
            if (rank <= good_head or end > good_tail) and gap > 0 and size * of > most * gap:
                most, of = size, gap
    _, ln_two = log(Fraction(2), _PRECISION)
    return p.gamma.denominator * Fraction(most * ln_two, of << _PRECISION + LOG_BITS)


def _log_classes(ends: Sequence[int], k: int, wanted: set[int]) -> dict[int, list[int]]:
    """2^LOG_BITS log2 C(t - k - 1 + j, j), a little more, for the ranks t and the j that are wanted."""
    behind = np.array(ends, np.int64) - k - 1
    shift = shift_for(behind + k)
    below = log2_below(np.arange(1, k + 1))
    total = np.zeros(len(ends), np.int64)
    rows = {}
    for j in range(k):
        if j:
            total = total + log2_above(behind + j, shift) - below[j - 1]
        if j in wanted:
            rows[j] = total.tolist()
    return rows


def _cut(profile: Profile, rank: int) -> list[tuple[int, int]]:
    """The profile with a step that begins at a rank."""
    if any(start == rank for start, _ in profile):
        return list(profile)
    before = [step for step in profile if step[0] < rank]
    return [*before, (rank, before[-1][1]), *profile[len(before) :]]


def _profile_faults(profile: Profile, d: int) -> list[Fault]:
    ranks, counts = [rank for rank, _ in profile], [count for _, count in profile]
    if not ranks or ranks[0] != 1:
        return [Fault("profile", "must begin with rank 1")]
    if any(rank >= after for rank, after in pairwise(ranks)) or ranks[-1] > d:
        return [Fault("profile", f"must have rising ranks, at most {d}")]
    if any(count < after for count, after in pairwise(counts)) or counts[-1] < 0:
        return [Fault("profile", "must have counts that fall from rank to rank and are at least 0")]
    return []
