"""Selections: the most frequent keys, in order or as a set, with or without gaps; without their counts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import SupportsIndex

from stream_dp.accounting import Cost, selection_cost
from stream_dp.mechanisms.budget import Budget, Counts, Exact, cost_of, listed_counts, number, paying, positive, whole
from stream_dp.select.candidates import Neighbours, candidates
from stream_dp.select.gumbel import TopKParameters, known_domain_top_k, limited_domain_top_k
from stream_dp.select.lipschitz import SubsetParameters
from stream_dp.select.top_k_subset import canonical_top_k
from stream_dp.select.top_k_with_gaps import GapParameters, gap_top_k


@dataclass(frozen=True, slots=True)
class TopK:
    """The selected keys, without counts.

    Attributes:
        keys: best first.
        complete: whether there are k of them; otherwise no other key stands out.
        cost: what it costs one user: what is returned is paid for.
    """

    keys: tuple[str, ...]
    complete: bool
    cost: Cost


@dataclass(frozen=True, slots=True)
class GapTopK:
    """The selected keys and how far each is ahead of the next.

    Attributes:
        keys: best first.
        gaps: by key, in counts, noisy, rounded down; the last is ahead of a key that is not shown.
        cost: what keys and gaps together cost one user.
    """

    keys: tuple[str, ...]
    gaps: tuple[int, ...]
    cost: Cost


def top_k(
    counts: Counts,
    k: SupportsIndex,
    epsilon: Exact,
    delta: Exact,
    *,
    candidates_at_most: SupportsIndex | None = None,
    items_per_user: SupportsIndex | None = None,
    budget: Budget | None = None,
) -> TopK:
    """Select up to k of the most frequent keys of an unknown domain, in order, without their counts.

    Args:
        counts: the number of users for each key that occurs.
        k: how many keys are wanted, at least 1.
        epsilon: of each key that is returned, above 0.
        delta: of the call, between 0 and 1.
        candidates_at_most: how many of the largest counts are looked at; ten times k if it is None.
        items_per_user: how many keys one user has at most; None if nothing bounds it, which takes larger counts.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover k keys.

    Guarantee: (r (epsilon + delta), delta)-DP for r keys returned, one more where fewer than k are.
    Source: specs/topk 2.2, 3.4.
    """
    price, chance = number("epsilon", epsilon), number("delta", delta)
    wanted = positive("k", k)
    kbar = 10 * wanted if candidates_at_most is None else positive("candidates_at_most", candidates_at_most)
    items = None if items_per_user is None else positive("items_per_user", items_per_user)
    p = TopKParameters(wanted, kbar, price, chance, items)
    exact = whole(counts, least=0)

    with paying(budget, selection_cost(wanted, price, chance)) as call:
        found = limited_domain_top_k(*candidates(exact, p.kbar, p.domain), p, call.bits)
        call.cost = selection_cost(found.draws, price, chance)
    return TopK(tuple(map(str, found.items)), not found.bottom, call.cost)


def top_k_of_list(
    counts: Counts,
    keys: Collection[str],
    k: SupportsIndex,
    epsilon: Exact,
    *,
    budget: Budget | None = None,
) -> TopK:
    """Select the k most frequent keys of a public list, in order, without their counts.

    Args:
        counts: the number of users of every key; keys that are not listed are left out.
        keys: the public list.
        k: how many keys are wanted, at most as many as are listed.
        epsilon: of each key, above 0.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: (k epsilon)-DP. Source: specs/topk 2.8.
    """
    price = number("epsilon", epsilon)
    wanted = positive("k", k)
    exact = listed_counts(counts, keys, wanted)
    with paying(budget, selection_cost(wanted, price, Fraction(0))) as call:
        found = known_domain_top_k(exact, wanted, price, call.bits)
    return TopK(tuple(map(str, found.items)), complete=True, cost=call.cost)


def top_k_with_gaps(
    counts: Counts,
    keys: Collection[str],
    k: SupportsIndex,
    epsilon: Exact,
    *,
    budget: Budget | None = None,
) -> GapTopK:
    """Select the k most frequent keys of a public list and how far each is ahead of the next; the gaps are free.

    Args:
        counts: the number of users of every key; keys that are not listed are left out.
        keys: the public list, more than k keys.
        k: how many keys are wanted.
        epsilon: of the whole call, above 0.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: epsilon-DP, however many counts one user moves up, each by at most 1. Source: specs/gap 2.6 to 2.8.
    """
    price = number("epsilon", epsilon)
    wanted = positive("k", k)
    p = GapParameters(wanted, price, 1, monotone=True, neighbours=Neighbours.ADD_OR_REMOVE)
    exact, cost = listed_counts(counts, keys, wanted + 1), cost_of(price)

    with paying(budget, cost) as call:
        found = gap_top_k(exact, 0, p, call.bits)
    return GapTopK(tuple(map(str, found.items)), found.gaps, cost)


def top_k_subset(
    counts: Counts,
    keys: Collection[str],
    k: SupportsIndex,
    epsilon: Exact,
    *,
    budget: Budget | None = None,
) -> frozenset[str]:
    """Select the k most frequent keys of a public list as a set: for large k far more exact than an ordered list.

    Args:
        counts: the number of users of every key; keys that are not listed are left out.
        keys: the public list.
        k: how many keys are wanted, at most as many as are listed.
        epsilon: of the whole call, above 0.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: epsilon-DP, however many counts one user moves up, each by at most 1. Source: specs/subset 2.6.
    """
    price = number("epsilon", epsilon)
    wanted = positive("k", k)
    p, exact, cost = SubsetParameters(wanted, price), listed_counts(counts, keys, wanted), cost_of(price)

    with paying(budget, cost) as call:
        found = canonical_top_k(exact, 0, p, call.bits)
    return frozenset(map(str, found))
