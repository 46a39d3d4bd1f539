"""Mechanisms that take a public number of random bits for each count, and pure ones for keys that nobody listed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import SupportsIndex

from stream_dp.accounting import Cost
from stream_dp.errors import Fault, ParameterError
from stream_dp.histograms.basic import basic_histogram, stability_histogram, stability_threshold
from stream_dp.histograms.compact import Compact, CompactHistogram
from stream_dp.histograms.counting_queries import Base, GeometricTable, ceil_log2, interval
from stream_dp.histograms.key_space import KeySpace
from stream_dp.histograms.pure_top_k import FLOOR_BITS, PureTopK, top_texts
from stream_dp.mechanisms.budget import Budget, Counts, Exact, cost_of, number, paying, positive, whole
from stream_dp.mechanisms.counts import CONFIDENCE, MOST_EPSILON, NoisyCounts, NoisyHistogram

LARGEST_COUNT = 1_000_000
_UNIFORM_BITS = 64
_FALLBACK_BITS = 20
_MOST_LOOKUP_EPSILON = 20
_MOST_COUNT_BITS = 32
_LOOKUP_UNIFORM_BITS = 32
_MOST_LOOKUP_NOISE = 1000


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A table that answers with a noisy count for every key.

    Attributes:
        table: answers by `lookup(key)`; `to_bytes` and `CompactHistogram.from_bytes` store and read it.
        interval_95: the noise of an answer is at most this with at least 95 % chance, in counts.
        cost: what it costs one user.
    """

    table: CompactHistogram
    interval_95: int
    cost: Cost


def strict_counts(
    counts: Counts,
    epsilon: Exact,
    *,
    items_per_user: SupportsIndex = 1,
    largest_count: SupportsIndex = LARGEST_COUNT,
    budget: Budget | None = None,
) -> NoisyCounts:
    """Add noise to the counts of public keys, with the same number of random bits and steps for each.

    Noisy counts lie between 0 and `largest_count`, rounded up to a power of two less 1: do not add up many of them.

    Args:
        counts: a count of at least 0 for every key of a public list, zeros too.
        epsilon: of the whole call, above 0.
        items_per_user: how many of the counts one user moves at most, each by at most 1.
        largest_count: a larger count counts as this.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: epsilon-DP. Source: specs/finite 2.5, 2.6.
    """
    price = number("epsilon", epsilon)
    query = _table(price, positive("items_per_user", items_per_user), largest_count)
    exact, cost = whole(counts, least=0), cost_of(price)

    with paying(budget, cost) as call:
        noisy = dict(zip(exact, basic_histogram(query, exact.values(), call.bits), strict=True))
    return NoisyCounts(noisy, interval(query, CONFIDENCE), cost)


def strict_histogram(
    counts: Counts,
    epsilon: Exact,
    delta: Exact,
    *,
    items_per_user: SupportsIndex = 1,
    largest_count: SupportsIndex = LARGEST_COUNT,
    budget: Budget | None = None,
) -> NoisyHistogram:
    """Show the keys of an unknown domain whose noisy counts are large, with the same number of random bits for each.

    Args:
        counts: the number of users for each key that occurs.
        epsilon: of the whole call, above 0.
        delta: the chance that a key which only one user has is shown, for all items of that user; between 0 and 1.
        items_per_user: how many keys one user has at most.
        largest_count: a larger count counts as this.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: (epsilon, delta)-DP. Source: specs/finite 2.6.
    """
    price, chance = number("epsilon", epsilon), number("delta", delta)
    items = positive("items_per_user", items_per_user)
    share = Fraction(chance, items)
    uniform_bits = max(_UNIFORM_BITS, ceil_log2(-(-4 * share.denominator // share.numerator)))
    query = _table(price, items, largest_count, uniform_bits)
    least = stability_threshold(query, share, sharp=True) + 1
    if least > query.bound:
        raise ParameterError([Fault("largest_count", f"must be larger: counts are shown from {least} on")])
    exact, cost = whole(counts, least=0), cost_of(price, chance)

    with paying(budget, cost) as call:
        shown = sorted(stability_histogram(query, least - 1, exact, call.bits), key=lambda row: (-row[1], row[0]))
    return NoisyHistogram(dict(shown), least, interval(query, CONFIDENCE), cost)


def pure_top_k(
    counts: Counts,
    k: SupportsIndex,
    epsilon: Exact,
    *,
    key_bytes: SupportsIndex = 32,
    items_per_user: SupportsIndex = 1,
    largest_count: SupportsIndex = LARGEST_COUNT,
    budget: Budget | None = None,
) -> NoisyHistogram:
    """Show the k largest counts of an unknown domain, with their keys, under pure epsilon: no delta.

    Every possible key of at most `key_bytes` bytes takes part, so counts must be larger than with a delta to stand out.

    Args:
        counts: the number of users for each key that occurs.
        k: show at most so many keys, at least 1; keys that tie with the next one are left out.
        epsilon: of the whole call, above 0.
        key_bytes: longer keys (in UTF-8) are left out.
        items_per_user: how many keys one user has at most.
        largest_count: a larger count counts as this.
        budget: pays for it.

    Returns:
        Keys with noisy counts of at least `minimum_count`: with 95 % chance none that nobody has. Its `interval_95`
        holds for all shown counts together.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: epsilon-DP. Source: specs/finite 2.9, D3.
    """
    price, keys = number("epsilon", epsilon), KeySpace(positive("key_bytes", key_bytes))
    items = positive("items_per_user", items_per_user)
    query = _table(price, items, largest_count, keys.size.bit_length() + FLOOR_BITS)
    top = PureTopK(query, positive("k", k), keys.size, items, _FALLBACK_BITS)
    exact, cost, beta = whole(counts, least=0), cost_of(price), 1 - CONFIDENCE
    least = top.least_spurious(beta) + 1

    with paying(budget, cost) as call:
        shown = sorted(top_texts(top, keys, exact, least, call.bits), key=lambda row: (-row[1], row[0]))
    return NoisyHistogram(dict(shown), least, top.within(beta), cost)


def lookup_table(
    counts: Counts,
    rows: SupportsIndex,
    epsilon: Exact,
    *,
    key_bytes: SupportsIndex = 20,
    items_per_user: SupportsIndex = 1,
    largest_count: SupportsIndex = LARGEST_COUNT,
    budget: Budget | None = None,
) -> LookupTable:
    """Make a table of fixed size that answers with a noisy count for every key, also for one that nobody has.

    Args:
        counts: the number of users for each key that occurs.
        rows: the counts that the table keeps sum up to at most this; of more, a random part of the keys is left out.
        epsilon: of the whole call, above 0.
        key_bytes: longer keys (in UTF-8) share one answer.
        items_per_user: how many keys one user has at most.
        largest_count: a larger count counts as this.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: epsilon-DP. Source: specs/finite 2.10.
    """
    price = number("epsilon", epsilon)
    items = positive("items_per_user", items_per_user)
    moved = 2 * items
    if not Fraction(1, _MOST_LOOKUP_NOISE) <= Fraction(price, moved) <= _MOST_LOOKUP_EPSILON:
        bounds = f"between 1/{_MOST_LOOKUP_NOISE} and {_MOST_LOOKUP_EPSILON}"
        words = f"must be {bounds} for each of the {moved} counts that one user moves"
        raise ParameterError([Fault("epsilon", words)])
    query = _table(price, moved, largest_count, _LOOKUP_UNIFORM_BITS)
    compact = Compact(query, positive("rows", rows), positive("key_bytes", key_bytes), items)
    exact, cost = whole(counts, least=0), cost_of(price)

    with paying(budget, cost) as call:
        table = compact.draw(exact, call.bits)
    return LookupTable(table, interval(query, CONFIDENCE), cost)


def _table(
    epsilon: Fraction, moved: int, largest_count: SupportsIndex, uniform_bits: int = _UNIFORM_BITS
) -> GeometricTable:
    """The noise with which `moved` counts of one user cost epsilon."""
    each = Fraction(epsilon, moved)
    if each > MOST_EPSILON:
        raise ParameterError([Fault("epsilon", f"must be at most {MOST_EPSILON} for each count that one user moves")])
    largest = positive("largest_count", largest_count)
    if largest >= 1 << _MOST_COUNT_BITS:
        raise ParameterError([Fault("largest_count", f"must be below 2^{_MOST_COUNT_BITS}, not {largest_count}")])
    return GeometricTable(largest.bit_length(), Base.within(each), uniform_bits)
