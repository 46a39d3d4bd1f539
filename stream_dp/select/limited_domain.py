"""Top-k over an unknown domain: the positive-support form of Algorithm 1, drawn by exact peeling (topk 2.1, 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from stream_dp.errors import StateError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.choice import choose
from stream_dp.exact.reals import exp_neg
from stream_dp.select.candidates import Row, rank
from stream_dp.select.parameters import TopKParameters

Weights = Callable[[int], Sequence[tuple[int, int]]]
"""Encloses every weight at a precision: lower <= 2**precision * weight <= upper, all integers."""

# Weights are relative to e^(epsilon * reference). The reference follows the heaviest weight that is left once
# that has fallen by more than 22 nats, so at least 128 - 32 bits of the enclosures stay meaningful and a far
# leader, once drawn, does not force the sampler into refinements.
_MAX_NATS_BELOW_REFERENCE = 22


@dataclass(frozen=True, slots=True)
class TopK:
    """What a selection returns; all of it is covered by the guarantee, the order included.

    Attributes:
        items: the items drawn, in the order of the draws (best first), at most k.
        bottom: whether bottom was drawn, i.e. fewer than k items stand out; it is an output and it costs a draw.
    """

    items: tuple[bytes, ...]
    bottom: bool

    @property
    def draws(self) -> int:
        """What the selection has cost, in draws: one per item and one for bottom (topk 2.7, P15, P16)."""
        return len(self.items) + self.bottom


def limited_domain_top_k(rows: Sequence[Row], h_next: int, p: TopKParameters, bits: BitSource) -> TopK:
    """Select up to k of the most frequent items of an unknown domain, in order, without their counts.

    Neighbours add or remove one user, who moves at most `p.items_per_user` counts (any number if None), each by
    at most 1 and all in one direction. Each draw picks item i with probability proportional to e^(epsilon h_i)
    and bottom with e^(epsilon h_bot), h_bot = h_next + 1 + ln(m/delta)/epsilon, exactly; bottom ends the list.
    The law is that of the one-shot form with Gumbel noise on items and threshold (Lemma 5.4).

    The output carries no counts and nothing else may be derived from the rows: not their number, not h_next, not
    how long the call took (topk 5.2.8).

    Args:
        rows: at most `p.kbar` candidates, exactly as `candidates` returns them.
        h_next: the (kbar+1)-st largest count, 0 if there are fewer than that.
        p: the selection's parameters.
        bits: source of uniform bits, fresh for every call.

    Returns:
        The items drawn and whether bottom was; `draws` is what the call costs, between 1 and k.

    Raises:
        StateError: the rows are not what `candidates` returns for these parameters; nothing has been drawn.

    Guarantee: for r = `draws`, the outputs of that length lose at most r (epsilon + ln(1 + delta)), outside an
    event of probability delta / (1 + delta) per call; so (k (epsilon + ln(1 + delta)), delta)-DP, and pay what
    you get over a ledger. Time: O(k kbar) integer operations and a few exponentials per distinct count.
    Source: topk 2.2 and 3.4 (Durfee and Rogers 2019, Algorithms 1 and 3).
    """
    _check(rows, h_next, p)
    return peel(rows, h_next, p, lambda weights: choose(weights, bits))


def peel(rows: Sequence[Row], h_next: int, p: TopKParameters, pick: Callable[[Weights], int]) -> TopK:
    """Run the peeling form (Algorithm 3) and leave every draw to `pick`.

    Args:
        rows: candidates in the order of `rank`; not checked here.
        h_next: the count that follows them.
        p: the selection's parameters.
        pick: given the weights of the rows that are left, in their order, and of bottom, last, returns an index.

    Returns:
        The items picked before bottom, or the first k.

    Source: topk 2.1 (Algorithm 3), 2.0 for bottom's weight (m/delta) e^(epsilon (h_next + 1)).
    """
    left = list(rows)
    items: list[bytes] = []
    odds, per = p.multiplier * p.delta.denominator, p.delta.numerator  # m / delta
    floor = h_next + 1
    reference = left[0][1] if left and left[0][1] > floor else floor

    @cache
    def exponential(difference: int, precision: int) -> tuple[int, int]:
        return exp_neg(p.epsilon * difference, precision)

    def weights(precision: int) -> list[tuple[int, int]]:
        enclosed = [exponential(reference - count, precision) for _, count in left]
        lower, upper = exponential(reference - floor, precision)
        enclosed.append((lower * odds // per, -(-upper * odds // per)))
        return enclosed

    while len(items) < p.k:
        heaviest = left[0][1] if left and left[0][1] > floor else floor
        if p.epsilon * (reference - heaviest) > _MAX_NATS_BELOW_REFERENCE:
            reference = heaviest
        index = pick(weights)
        if index == len(left):
            return TopK(tuple(items), bottom=True)
        items.append(left.pop(index)[0])
    return TopK(tuple(items), bottom=False)


def _check(rows: Sequence[Row], h_next: int, p: TopKParameters) -> None:
    """Refuse rows that would void the sensitivity lemmas (topk P6, P8, P9, P10, test 17)."""
    if not isinstance(h_next, int) or h_next < 0:
        raise StateError("h_next must be a whole number of users")
    if any(not isinstance(count, int) or count < 1 or count < h_next for _, count in rows):
        raise StateError("a candidate's count must be a positive whole number and at least h_next")
    if any(rank(first) >= rank(second) for first, second in pairwise(rows)):
        raise StateError("candidates must be distinct, by count descending and then by item ascending")
    if len(rows) > p.kbar:
        raise StateError(f"{len(rows)} candidates were given, kbar is {p.kbar}")
    if len(rows) < p.kbar and h_next != 0:
        raise StateError("fewer candidates than kbar leave no count to follow them, so h_next must be 0")
