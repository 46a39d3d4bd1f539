"""What a selection can be expected to find, from public numbers alone, rounded to stay true (specs/subset 3.4, 3.6)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from stream_dp.errors import Fault, ParameterError
from stream_dp.exact.reals import log
from stream_dp.select.subset.logarithms import LOG_BITS, log2_above, log2_below, log_subsets, shift_for
from stream_dp.select.subset.parameters import SubsetParameters, Variant

Profile = Sequence[tuple[int, int]]
"""A public model of a table: (rank, count) says what the keys from this rank on have, up to the next pair's rank."""

MARGIN = Fraction(13, 10)
"""How far epsilon has to lie above the critical one."""

_PRECISION = 128


def worst_miss(d: int, p: SubsetParameters, alpha: Fraction) -> Fraction:
    """Bound what a selection misses: with probability 1 - alpha it misses no more.

    (1 - gamma) (the best count left out - the k-th) + gamma (the k-th - the worst count let in)
    <= (2 sensitivity / epsilon) (ln C(d, k) + ln(1 / alpha)).

    Args:
        d: size of the domain.
        p: the selection's parameters; epsilon above 0.
        alpha: in (0, 1).

    Returns:
        The right side, in users, rounded up.

    Raises:
        ParameterError: an argument is out of range.

    Source: specs/subset 3.4 (joint bound). A noise of hazard at most 1 outdoes a lead of g with probability at most
    e^-g.
    """
    faults = _domain_faults(d, p)
    if not p.epsilon:
        faults.append(Fault("epsilon", "must be above 0: at 0 nothing bounds what is missed"))
    if not isinstance(alpha, Fraction) or not 0 < alpha < 1:
        faults.append(Fault("alpha", f"must be an exact fraction between 0 and 1, not {alpha!r}"))
    if faults:
        raise ParameterError(faults)
    _, subsets = log_subsets(d, p.k, _PRECISION)
    _, rarity = log(Fraction(alpha.denominator, alpha.numerator), _PRECISION)
    return Fraction(2 * p.sensitivity * (subsets + rarity), p.epsilon * (1 << _PRECISION))


def critical_epsilon(profile: Profile, d: int, p: SubsetParameters) -> Fraction:
    """The epsilon below which subsets that are far from the top-k outweigh it by their number.

    Far are those that miss one of the best ceil(k / 100) ranks, or reach below rank k + floor(k / 2). A little below
    this epsilon the selection is an almost uniformly random subset; a little above, it is good. At gamma = 1 it is
    only a rough guide from above. Subsets that score as the top-k itself are not far.

    Args:
        profile: pairs (rank, count), ranks rising from 1, counts falling; a model or an earlier release, never the
            table that is to be released.
        d: size of the domain; the last count holds up to rank d.
        p: the selection's parameters; its epsilon takes no part.

    Returns:
        The critical epsilon, rounded up; 0 where no subset is far.

    Raises:
        ParameterError: the profile does not fall, or k is more than d.

    Time: k passes over the profile, and a comparison for each pair of its steps. Source: specs/subset 3.6.
    """
    faults = _domain_faults(d, p) + _profile_faults(profile, d)
    if faults:
        raise ParameterError(faults)
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
    return 2 * p.sensitivity * p.gamma.denominator * Fraction(most * ln_two, of << _PRECISION + LOG_BITS)


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


def _domain_faults(d: int, p: SubsetParameters) -> list[Fault]:
    if not isinstance(d, int) or isinstance(d, bool) or d < p.k:
        return [Fault("d", f"must be a whole number of at least k = {p.k}, not {d!r}")]
    return []


def _profile_faults(profile: Profile, d: int) -> list[Fault]:
    ranks, counts = [rank for rank, _ in profile], [count for _, count in profile]
    if not ranks or ranks[0] != 1:
        return [Fault("profile", "must begin with rank 1")]
    if any(rank >= after for rank, after in pairwise(ranks)) or ranks[-1] > d:
        return [Fault("profile", f"must have rising ranks, at most {d}")]
    if any(count < after for count, after in pairwise(counts)) or counts[-1] < 0:
        return [Fault("profile", "must have counts that fall from rank to rank and are at least 0")]
    return []
